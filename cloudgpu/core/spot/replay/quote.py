"""The quotation of a job with a deadline: what it will probably cost, from simulations over seen or usual availability.

`cloudgpu run` shows it before it asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from cloudgpu.core.spot.policies import POLICIES
from cloudgpu.core.spot.replay.backtest import mean, percentile, zones_of
from cloudgpu.core.spot.replay.draws import Draws
from cloudgpu.core.spot.replay.generated import make_trace, pick_model
from cloudgpu.core.spot.replay.traces import Trace
from cloudgpu.core.spot.safety_net import SafetyNet
from cloudgpu.core.spot.simulate import Run, SpotJob, simulate
from cloudgpu.core.spot.situation import Policy

RUNS = 96
SLOW_RUNS = 48  # of the adaptive policy, which takes longer to simulate
MAX_TICKS = 144  # of one simulated run: a quotation needs no finer ones
_FEW = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_QUICK = "uniform-progress"
_CENTS_BELOW = 10  # dollars
_BEFORE_H = 48.0  # so long has generated availability been going on when the job begins


@dataclass(frozen=True, slots=True)
class Quote:
    """What the job costs in simulated runs, in the currency of its prices."""

    low: float  # one run in ten costs less
    high: float  # one run in ten costs more
    mean: float
    on_demand: float  # the whole job on demand
    on_demand_share: float  # of the runs, those that finish on demand
    on_demand_h: float  # mean hours on demand
    missed: int
    runs: int
    from_history: bool  # from availability that was seen, not from the shipped model

    def sentence(self) -> str:
        """Return the quotation in words: `about $14 to $19; on demand $55; one run in twelve needs on demand ...`."""
        low, high = _dollars(self.low), _dollars(self.high)
        span = low if low == high else f"{low} to {high}"
        return f"about {span}; on demand {_dollars(self.on_demand)}; {_often(self.on_demand_share, self.runs)}"


def quote(
    job: SpotJob,
    traces: Sequence[Trace] = (),
    *,
    policy: str | Policy | None = None,
    runs: int | None = None,
    seed: int = 0,
) -> Quote:
    """Return what the job will probably cost: prices are per hour.

    Uses the traces that are as long as the deadline (the availability that the ledger has seen, say), else the shipped
    model. The same arguments give the same answer. `policy` is a name or a policy, uniform progress without one. It is
    told no more of spot than in a live job. A quotation takes about a third of a second, one of `adaptive` about one.
    """
    coarse = replace(job, tick_h=max(job.tick_h, job.deadline_h / MAX_TICKS))
    if coarse.work_h + coarse.changeover_h + coarse.tick_h > coarse.deadline_h:
        coarse = job  # so little slack that each tick counts
    draws = Draws(seed)
    usable = [trace for trace in traces if trace.lasting(job.deadline_h * 3600)]
    decider = _decider(policy)
    net = SafetyNet(coarse.changeover_h, coarse.tick_h)
    count = runs or (SLOW_RUNS if policy == "adaptive" else RUNS)
    found = [simulate(coarse, _zones(coarse, usable, draws), decider, net=net, live=True) for _ in range(count)]
    return _quoted(job, found, from_history=bool(usable))


def _decider(policy: str | Policy | None) -> Policy:
    if isinstance(policy, str):
        return POLICIES[policy]()
    return policy or POLICIES[_QUICK]()


def _zones(job: SpotJob, traces: Sequence[Trace], draws: Draws) -> list[bytes]:
    if not traces:
        ticks = ceil(job.deadline_h / job.tick_h)
        return [make_trace(pick_model(draws), job.tick_h, ticks, draws, before_h=min(_BEFORE_H, job.deadline_h))]
    trace = traces[draws.below(len(traces))]
    return zones_of([trace], job, draws.below(trace.lasting(job.deadline_h * 3600)) * trace.gap_s)


def _quoted(job: SpotJob, runs: Sequence[Run], *, from_history: bool) -> Quote:
    costs = sorted(run.cost for run in runs)
    return Quote(
        low=percentile(costs, 0.1),
        high=percentile(costs, 0.9),
        mean=mean(costs),
        on_demand=job.on_demand_only,
        on_demand_share=mean([float(run.ended_on_demand) for run in runs]),
        on_demand_h=mean([run.on_demand_h for run in runs]),
        missed=sum(run.missed for run in runs),
        runs=len(runs),
        from_history=from_history,
    )


def _often(share: float, runs: int) -> str:
    needs = "on demand for the last hours"
    if share <= 0:
        return f"none of {runs} simulated runs needs {needs}"
    if share >= 1:
        return f"every run needs {needs}"
    if round(share * 10) == 5:  # noqa: PLR2004  (a half)
        return f"half of the runs need {needs}"
    if share > 0.4:  # noqa: PLR2004  (more than one run in two and a half)
        return f"{_FEW[min(9, round(share * 10))]} runs in ten need {needs}"
    return f"one run in {_number(round(1 / share))} needs {needs}"


def _number(value: int) -> str:
    return _FEW[value] if value < len(_FEW) else str(value)


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount < _CENTS_BELOW else f"${amount:,.0f}"
