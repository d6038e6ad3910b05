"""Reproduces table 3 of "Can't Be Late" (NSDI 2024): mean hours on demand of greedy, uniform progress, the optimum.

Takes the eight traces of 2022 (a tick of 600 s) in a directory, their first 13 days, and 300 random starts in each of a
job of 48 hours with a deadline of 60 hours and a changeover of 0.2 hours. The paper counts hours without changeovers;
those that are billed are next to them. The traces are those of
https://github.com/skypilot-org/spot-traces; they are not part of this project.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from cloudgpu.core.spot.policies import POLICIES
from cloudgpu.core.spot.replay.backtest import Backtest, backtest, mean
from cloudgpu.core.spot.replay.traces import Trace, parse_trace
from cloudgpu.core.spot.simulate import SpotJob

JOB = SpotJob(work_h=48, deadline_h=60, tick_h=1 / 6, changeover_h=0.2, price_spot=1, price_on_demand=3)
GAP_S, DAYS = 600, 13
PUBLISHED = {"greedy": 30.8, "uniform-progress": 25.1, "optimum": 20.7}


def main() -> None:
    """Print the table, next to what was published."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, required=True, metavar="DIR", help="where the traces are")
    parser.add_argument("--starts", type=int, default=300, help="random starts in each trace (300)")
    parser.add_argument("--seed", type=int, default=0, help="picks the starts (0)")
    parser.add_argument("--policy", action="append", choices=list(POLICIES), help="a further policy; may be repeated")
    asked = parser.parse_args()
    traces = read(asked.traces)
    print(f"{len(traces)} traces with a tick of {GAP_S} s, their first {DAYS} days, {asked.starts} starts in each")
    begun = time.process_time()
    names = ["greedy", "uniform-progress", *(asked.policy or ())]
    found = backtest(traces, JOB, {name: POLICIES[name] for name in names}, starts=asked.starts, seed=asked.seed)
    print(table(found))
    print(f"{len(found.starts)} starts, {time.process_time() - begun:.0f} s of CPU")


def read(directory: Path) -> list[Trace]:
    """Return the beginning of each trace below a directory that has a tick of 600 s."""
    found = [parse_trace(file.read_bytes(), file.stem) for file in sorted(directory.rglob("*.json"))]
    return [trace.first(DAYS * 86_400) for trace in found if trace.interval_s == GAP_S]


def table(found: Backtest) -> str:
    """Return a line for each policy and the optimum: hours on demand without changeovers, as published, as billed."""
    rows = [(one.policy, one.on_demand_work_h, one.on_demand_h, one.cost.mean, one.missed) for one in found.policies]
    bests = [start.best for start in found.starts]
    hours = (mean([best.on_demand_work_h for best in bests]), mean([best.on_demand_h for best in bests]))
    rows.append(("optimum", *hours, found.optimum, 0))
    lines = [f"{'':18}{'on demand':>10}{'published':>10}{'billed':>8}{'cost':>9}{'missed':>8}"]
    for name, work, billed, cost, missed in rows:
        published = f"{PUBLISHED[name]:.1f}" if name in PUBLISHED else ""
        lines.append(f"{name:18}{work:>10.2f}{published:>10}{billed:>8.2f}{cost:>9.2f}{missed:>8}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
