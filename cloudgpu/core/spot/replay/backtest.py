"""Backtests policies over traces: each from the same starts, next to the exact optimum, with the noise of the result.

The job starts at random moments of each trace, the same for all policies. What is said of a policy is the mean over
all starts, and an interval from a bootstrap over traces, or over starts where there is one trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import NamedTuple

from cloudgpu.core.spot.replay.draws import Draws
from cloudgpu.core.spot.replay.optimum import Optimum, optimum
from cloudgpu.core.spot.replay.traces import Trace
from cloudgpu.core.spot.safety_net import SafetyNet
from cloudgpu.core.spot.simulate import Run, SpotJob, simulate
from cloudgpu.core.spot.situation import Policy
from cloudgpu.errors import InvalidRequest

RESAMPLES = 1000  # of the bootstrap
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Start:
    """One start: in which traces (one, or all together as zones), when, and the least that it can cost."""

    traces: tuple[Trace, ...]
    at_s: float  # seconds since the begin of the traces
    best: Optimum

    def zones(self, job: SpotJob) -> list[bytes]:
        """Return availability at each tick of the job, one for each trace."""
        return zones_of(self.traces, job, self.at_s)


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the interval that it is in with 95% confidence; both ends are None for a single observation."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """How a policy did; costs are in the currency of the job's prices, per job."""

    policy: str
    runs: tuple[Run, ...]  # one for each start, in their order
    cost: Interval
    cost_p95: float
    above: Interval  # cost minus optimum, as a fraction of the cost with only on-demand machines
    above_p95: float
    on_demand_h: float
    on_demand_work_h: float  # without changeovers
    spot_h: float
    starts: float
    losses: float
    missed: int  # runs that missed the deadline


@dataclass(frozen=True, slots=True)
class Backtest:
    """The answer: the starts, and each policy in the order given."""

    job: SpotJob
    starts: tuple[Start, ...]
    policies: tuple[PolicyResult, ...]
    shown: Start  # the start with the middling cost under the last policy
    timelines: tuple[Run, ...]  # what each policy does from there, tick by tick
    too_short: tuple[str, ...] = ()  # traces that no run fits into
    together: bool = False  # all traces were the zones of one world

    @property
    def optimum(self) -> float:
        """Return the mean cost of the optimum."""
        return mean([start.best.cost for start in self.starts])


def zones_of(traces: Sequence[Trace], job: SpotJob, at_s: float) -> list[bytes]:
    """Return availability at each tick of a job that starts at this second of the traces."""
    tick_s = job.tick_h * 3600
    ticks = ceil(job.deadline_h / job.tick_h - 1e-9)
    return [trace.sampled(tick_s, at_s, ticks) for trace in traces]


def starts_of(
    traces: Sequence[Trace],
    job: SpotJob,
    count: int,
    draws: Draws,
    *,
    together: bool = False,
    progress: Callable[[int], None] | None = None,
) -> list[Start]:
    """Return `count` random starts in each trace that is long enough, or, `together`, in all of them as one world.

    Traces that are used together begin at the same moment; the shortest one says how long they are. `progress` is
    called with the number of starts so far: the optimum of each takes a while.
    """
    window_s = job.deadline_h * 3600
    worlds = [tuple(traces)] if together else [(trace,) for trace in traces]
    starts: list[Start] = []
    for world in worlds:
        shortest = min(world, key=lambda trace: trace.seconds)
        start_count = shortest.window_starts(window_s)
        world_draws = draws.fork("+".join(trace.name for trace in world))
        for _ in range(count if start_count else 0):
            at_s = world_draws.below(start_count) * shortest.interval_s
            starts.append(Start(world, at_s, optimum(job, zones_of(world, job, at_s))))
            if progress is not None:
                progress(len(starts))
    return starts


def too_short(traces: Sequence[Trace], job: SpotJob) -> tuple[str, ...]:
    """Return the names of the traces that are shorter than the deadline."""
    return tuple(trace.name for trace in traces if not trace.window_starts(job.deadline_h * 3600))


def backtest(
    traces: Sequence[Trace],
    job: SpotJob,
    policies: Mapping[str, Callable[[], Policy]],
    *,
    starts: int = 30,
    seed: int = 0,
    together: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> Backtest:
    """Return how these policies do, with the safety net, from random starts in each trace.

    `progress(what, done, of)` is called as it goes on. The same seed gives the same answer. Raises InvalidRequest where
    every trace is shorter than the deadline.
    """
    short = too_short(traces, job)
    worlds = (0 if short else 1) if together else len(traces) - len(short)
    if not worlds:
        raise _no_window(traces, job)
    draws, run_count = Draws(seed), worlds * starts
    report_optimum = None if progress is None else partial(_tell, progress, "optimum", run_count)
    all_starts = starts_of(traces, job, starts, draws, together=together, progress=report_optimum)
    policy_by_name = {name: make() for name, make in policies.items()}
    results = []
    for name, policy in policy_by_name.items():
        runs = runs_of(policy, job, all_starts, None if progress is None else partial(_tell, progress, name, run_count))
        results.append(summarised(name, job, all_starts, runs, draws.fork("bootstrap")))
    by_cost = sorted(zip(all_starts, results[-1].runs, strict=True), key=lambda start_and_run: start_and_run[1].cost)
    shown = by_cost[len(by_cost) // 2][0]
    timelines = tuple(run_of(policy, job, shown, timeline=True) for policy in policy_by_name.values())
    return Backtest(job, tuple(all_starts), tuple(results), shown, timelines, () if together else short, together)


def _tell(progress: Callable[[str, int, int], None], what: str, total: int, done: int) -> None:
    progress(what, done, total)


def run_of(policy: Policy, job: SpotJob, start: Start, *, timeline: bool = False) -> Run:
    """Return what a policy does from one start, inside the safety net."""
    return simulate(job, start.zones(job), policy, net=SafetyNet(job.changeover_h, job.tick_h), timeline=timeline)


def runs_of(
    policy: Policy, job: SpotJob, starts: Sequence[Start], progress: Callable[[int], None] | None = None
) -> list[Run]:
    """Return what one policy does from each start; `progress` is called with the number of runs so far."""
    runs = []
    for start in starts:
        runs.append(run_of(policy, job, start))
        if progress is not None:
            progress(len(runs))
    return runs


class _Sums(NamedTuple):
    """What is added up over the starts of one group of the bootstrap."""

    runs: int
    cost: float
    above: float  # cost minus optimum


def summarised(name: str, job: SpotJob, starts: Sequence[Start], runs: Sequence[Run], draws: Draws) -> PolicyResult:
    """Return the figures of one policy over these runs, one for each start."""
    on_demand_only = job.on_demand_only
    costs_above = [(run.cost - start.best.cost) / on_demand_only for run, start in zip(runs, starts, strict=True)]
    groups = _groups(starts, runs)
    total, resampled = _added(groups), [_added(draws.resample(groups)) for _ in range(RESAMPLES if groups[1:] else 0)]

    def interval(figure: Callable[[_Sums], float]) -> Interval:
        values = sorted(map(figure, resampled))
        tail = (1 - CONFIDENCE) / 2
        bounds = (percentile(values, tail), percentile(values, 1 - tail)) if values else (None, None)
        return Interval(figure(total), *bounds)

    return PolicyResult(
        policy=name,
        runs=tuple(runs),
        cost=interval(lambda sums: sums.cost / sums.runs),
        cost_p95=percentile(sorted(run.cost for run in runs), 0.95),
        above=interval(lambda sums: sums.above / sums.runs / on_demand_only),
        above_p95=percentile(sorted(costs_above), 0.95),
        on_demand_h=mean([run.on_demand_h for run in runs]),
        on_demand_work_h=mean([run.on_demand_work_h for run in runs]),
        spot_h=mean([run.spot_h for run in runs]),
        starts=mean([run.starts for run in runs]),
        losses=mean([run.losses for run in runs]),
        missed=sum(run.missed for run in runs),
    )


def _groups(starts: Sequence[Start], runs: Sequence[Run]) -> list[_Sums]:
    """Return sums by trace, which a bootstrap draws from; by start where all are of one trace."""
    by_trace = len({start.traces for start in starts}) > 1
    groups: dict[object, list[_Sums]] = {}
    for number, (start, run) in enumerate(zip(starts, runs, strict=True)):
        group = groups.setdefault(start.traces if by_trace else number, [])
        group.append(_Sums(1, run.cost, run.cost - start.best.cost))
    return list(map(_added, groups.values()))


def _added(groups: Sequence[_Sums]) -> _Sums:
    return _Sums._make(map(sum, zip(*groups, strict=True)))


def mean(values: Sequence[float]) -> float:
    """Return the mean of at least one value."""
    return sum(values) / len(values)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of the sorted values is, interpolated."""
    position = share * (len(values) - 1)
    below = int(position)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (position - below)


def _no_window(traces: Sequence[Trace], job: SpotJob) -> InvalidRequest:
    longest = max((trace.seconds for trace in traces), default=0) / 3600
    return InvalidRequest(
        f"No trace is as long as the deadline of {job.deadline_h:g} hours: the longest one has {longest:.1f} hours.",
        field="--deadline",
        value=f"{job.deadline_h:g}h",
        next="Use a shorter deadline, or longer traces.",
    )
