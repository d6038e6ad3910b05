"""Measures G of spot policies on traces that the adaptive policy was not fitted to.

    python benchmarks/spot/evaluate.py --traces DIR [--fold zone|year|shipped] [--starts 4] [--policy adaptive] ...

G is the share of the gap between uniform progress and the optimum that a policy closes: the sum of (uniform progress -
policy) over the sum of (uniform progress - optimum), costs as shares of on demand alone. 1 is the optimum, 0 is uniform
progress. p95 is the 95th percentile of cost minus optimum, less that of uniform progress.

With `--fold zone` the adaptive policy is fitted anew for each availability zone, without any trace of it; with `year`
without any trace of that year, with `gpu` without that GPU and size. `--fold shipped` takes the shipped models: use it
on zones that these have not seen, never on the traces that they were fitted to.

The starts lie evenly in each trace. Nothing is random but the paired bootstrap over traces, which has a fixed seed.
With `--together` the traces of one month, GPU and size are zones of one job. `--history 168` gives the policy so many
hours before the start. A policy runs without the safety net: a missed deadline is counted.

With `--live`, both are told no more of spot than a live job knows (core/spot/known_availability.py). The optimum still
knows everything.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.spot.fit import fit, read
from cloudgpu.core.spot.adaptive import Adaptive
from cloudgpu.core.spot.hazards import mixture_of
from cloudgpu.core.spot.policies import POLICIES
from cloudgpu.core.spot.replay.draws import Draws
from cloudgpu.core.spot.replay.optimum import optimum
from cloudgpu.core.spot.replay.traces import Trace
from cloudgpu.core.spot.simulate import SpotJob, simulate
from cloudgpu.core.spot.situation import Policy

BASE = "uniform-progress"
FOLDS = {"zone": r"[a-z]+-[a-z]+-\d+[a-z]", "year": r"(?<=-)20\d\d(?=/)", "gpu": r"(?<=_)[kv]\d+_\d+$"}
SAMPLES = 2000


@dataclass(frozen=True)
class Case:
    """One job: the traces it can run in, where it starts, and what it asks for."""

    group: str
    traces: tuple[Trace, ...]
    job: SpotJob
    start_s: float

    def zones(self) -> list[bytes]:
        """Return the availability of every zone during the job."""
        tick_s = self.job.tick_h * 3600
        ticks = int(self.job.deadline_h / self.job.tick_h + 1 - 1e-9)
        return [trace.sampled(tick_s, self.start_s, ticks) for trace in self.traces]

    def history(self, hours: float) -> list[list[int]] | None:
        """Return what was seen before the start, a tick apart, or None for no history."""
        tick_s = self.job.tick_h * 3600
        ticks = int(min(hours * 3600, self.start_s) / tick_s)
        if not ticks:
            return None
        return [list(trace.sampled(tick_s, self.start_s - ticks * tick_s, ticks)) for trace in self.traces]


@dataclass
class Row:
    """What one case cost, as shares of on demand alone."""

    case: Case
    best: float
    base: float
    cost: float
    missed: bool


def cases(groups: dict[str, tuple[Trace, ...]], options: argparse.Namespace) -> Iterator[Case]:
    """Yield every job: each deadline, changeover, group and start; a policy solves its plans once for equal jobs."""
    for deadline, changeover in product(options.deadline, options.changeover):
        job = SpotJob(options.work, deadline, options.tick / 3600, changeover, 1.0, options.ratio)
        for group, traces in groups.items():
            room = min(trace.seconds for trace in traces) - deadline * 3600
            for number in range(options.starts if room > 0 else 0):
                yield Case(group, traces, job, room * number / max(1, options.starts - 1))


def grouped(traces: Sequence[Trace], *, together: bool) -> dict[str, tuple[Trace, ...]]:
    """Return each trace alone, or those that differ in nothing but their zone."""
    found: dict[str, list[Trace]] = defaultdict(list)
    for trace in traces:
        found[re.sub(FOLDS["zone"], "zones", trace.name) if together else trace.name].append(trace)
    return {name: tuple(of) for name, of in found.items() if len(of) > 1 or not together}


def fitted(names: Sequence[str], traces: Sequence[Trace], fold: str) -> dict[str, Policy]:
    """Return the adaptive policy for each group, fitted without the fold that the group is in."""
    of: dict[str, Policy] = {}
    found: dict[str, Policy] = {}
    for name in names:
        out = "|".join(sorted(set(re.findall(FOLDS[fold], name)))) or "$^"
        if out not in of:
            of[out] = Adaptive(mixture_of(fit([trace for trace in traces if not re.search(out, trace.name)])))
        found[name] = of[out]
    return found


def measured(case: Case, policy: Policy, base: Policy, history: float, *, live: bool = False) -> Row:
    """Run one case."""
    zones, alone = case.zones(), case.job.work_h * case.job.price_on_demand
    run = simulate(case.job, zones, policy, prior_history=case.history(history), live=live)
    plain = simulate(case.job, zones, base, live=live)
    return Row(case, optimum(case.job, zones).cost / alone, plain.cost / alone, run.cost / alone, run.missed)


def gain(rows: Sequence[Row]) -> float:
    """Return G."""
    gap = sum(row.base - row.best for row in rows)
    return sum(row.base - row.cost for row in rows) / gap if gap else 0.0


def interval(rows: Sequence[Row]) -> tuple[float, float]:
    """Return the middle 95 % of G when traces are drawn anew; policy and base stay paired."""
    groups = defaultdict(list)
    for row in rows:
        groups[row.case.group].append(row)
    of, draws = list(groups.values()), Draws(0)
    drawn = sorted(gain([row for _ in of for row in of[draws.below(len(of))]]) for _ in range(SAMPLES))
    return drawn[int(0.025 * SAMPLES)], drawn[int(0.975 * SAMPLES)]


def tail(rows: Sequence[Row]) -> float:
    """Return by how much the 95th percentile of cost minus optimum is above that of uniform progress."""
    place = int(0.95 * (len(rows) - 1))
    return sorted(row.cost - row.best for row in rows)[place] - sorted(row.base - row.best for row in rows)[place]


def shown(name: str, rows: Sequence[Row]) -> str:
    """Return a line of the table."""
    costs = [sum(part) / len(rows) for part in zip(*((r.best, r.base, r.cost) for r in rows), strict=True)]
    return f"{name:<28} {len(rows):>5} {gain(rows):>6.3f} {tail(rows):>+7.3f}  " + " ".join(f"{c:.4f}" for c in costs)


KEYS: dict[str, Callable[[Row], object]] = {
    "changeover": lambda row: row.case.job.changeover_h,
    "deadline": lambda row: row.case.job.deadline_h,
    "": lambda row: row.case.group,
}


def main() -> None:
    """Print G in all and by changeover, deadline and trace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--fold", choices=[*FOLDS, "shipped"], default="zone")
    parser.add_argument("--policy", choices=list(POLICIES), default="adaptive")
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--work", type=float, default=48.0, help="hours")
    parser.add_argument("--deadline", type=float, nargs="+", default=[54, 60, 72, 96], help="hours")
    parser.add_argument("--changeover", type=float, nargs="+", default=[0.01, 0.05, 0.1, 0.2, 0.5], help="hours")
    parser.add_argument("--ratio", type=float, default=3.0, help="price of on demand over that of spot")
    parser.add_argument("--tick", type=float, default=600, help="seconds")
    parser.add_argument("--starts", type=int, default=4, help="in each trace")
    parser.add_argument("--history", type=float, default=0.0, help="hours before the start that the policy knows")
    parser.add_argument("--live", action="store_true", help="as blind as a live job")
    options = parser.parse_args()
    traces, begun = read(options.traces), time.process_time()
    groups = grouped(traces, together=options.together)
    if options.policy == "adaptive" and options.fold != "shipped":
        policies = fitted(list(groups), traces, options.fold)
    else:
        policies = dict.fromkeys(groups, POLICIES[options.policy]())
    base = POLICIES[BASE]()
    tested = [(case, policies[case.group]) for case in cases(groups, options)]
    rows = [measured(case, policy, base, options.history, live=options.live) for case, policy in tested]
    low, high = interval(rows)
    print(f"{'':28} {'runs':>5} {'G':>6} {'p95':>7}  optimum uniform {options.policy}")
    print(shown("all", rows), f" G {low:.2f} to {high:.2f}; missed {sum(row.missed for row in rows)}")
    for title, key in KEYS.items():
        for value in dict.fromkeys(map(key, rows)):
            print(shown(f"{title} {value}"[-28:].strip(), [row for row in rows if key(row) == value]))
    print(f"{time.process_time() - begun:.0f} s of CPU")


if __name__ == "__main__":
    main()
