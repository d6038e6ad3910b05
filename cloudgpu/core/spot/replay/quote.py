"""The quotation of a job with a deadline: what it will probably cost, from simulations over seen or usual availability.

`cloudgpu run` shows it before it asks. Usual availability is generated: the chance that spot comes or goes depends on
how long it has been there or away. `SHIPPED` was fitted by `benchmarks/spot/hazards.py` on the AWS traces of V100 and
K80 in us-west-2 that were published with "Can't Be Late" (NSDI 2024), three groups of zones by the share of time with
spot. It is small, old and of one region: good for a first estimate, until the ledger has seen more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, exp

from cloudgpu.core.spot.policies import POLICIES
from cloudgpu.core.spot.replay.backtest import mean, percentile, zones_of
from cloudgpu.core.spot.replay.draws import Draws
from cloudgpu.core.spot.replay.traces import Trace
from cloudgpu.core.spot.safety_net import SafetyNet
from cloudgpu.core.spot.simulate import SpotJob, simulate
from cloudgpu.core.spot.situation import Policy
from cloudgpu.core.values.naming import NUMBER_WORDS

RUNS = 96  # simulated runs of a quotation
ADAPTIVE_RUNS = 48  # of the adaptive policy, which takes longer to simulate
MAX_TICKS = 144  # of one simulated run: a quotation needs no finer ones
_DEFAULT_POLICY = "uniform-progress"
_CENTS_BELOW = 10  # dollars
_WARM_UP_H = 48.0  # generated availability begins so long before the job, so that its ages are realistic


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

    def sentence(self) -> str:
        """Return the quotation in words: `about $14 to $19; on demand $55; one run in twelve needs on demand ...`."""
        low, high = _dollars(self.low), _dollars(self.high)
        cost = low if low == high else f"{low} to {high}"
        return f"about {cost}; on demand {_dollars(self.on_demand)}; {_frequency_text(self.on_demand_share, self.runs)}"


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
    coarse_job = replace(job, tick_h=max(job.tick_h, job.deadline_h / MAX_TICKS))
    if coarse_job.work_h + coarse_job.changeover_h + coarse_job.tick_h > coarse_job.deadline_h:
        coarse_job = job  # so little slack that each tick counts
    draws = Draws(seed)
    usable = [trace for trace in traces if trace.window_starts(job.deadline_h * 3600)]
    chosen_policy = POLICIES[policy]() if isinstance(policy, str) else policy or POLICIES[_DEFAULT_POLICY]()
    net = SafetyNet(coarse_job.changeover_h, coarse_job.tick_h)
    count = runs or (ADAPTIVE_RUNS if policy == "adaptive" else RUNS)
    simulated = [
        simulate(coarse_job, _zones(coarse_job, usable, draws), chosen_policy, net=net, live=True) for _ in range(count)
    ]
    costs = sorted(run.cost for run in simulated)
    return Quote(
        low=percentile(costs, 0.1),
        high=percentile(costs, 0.9),
        mean=mean(costs),
        on_demand=job.on_demand_only,
        on_demand_share=mean([float(run.ended_on_demand) for run in simulated]),
        on_demand_h=mean([run.on_demand_h for run in simulated]),
        missed=sum(run.missed for run in simulated),
        runs=count,
    )


def _zones(job: SpotJob, traces: Sequence[Trace], draws: Draws) -> list[bytes]:
    if not traces:
        ticks = ceil(job.deadline_h / job.tick_h)
        return [make_trace(pick_model(draws), job.tick_h, ticks, draws, before_h=min(_WARM_UP_H, job.deadline_h))]
    trace = traces[draws.below(len(traces))]
    return zones_of([trace], job, draws.below(trace.window_starts(job.deadline_h * 3600)) * trace.interval_s)


def _frequency_text(share: float, runs: int) -> str:
    need_text = "on demand for the last hours"
    if share <= 0:
        return f"none of {runs} simulated runs needs {need_text}"
    if share >= 1:
        return f"every run needs {need_text}"
    if round(share * 10) == 5:  # noqa: PLR2004  (a half)
        return f"half of the runs need {need_text}"
    if share >= 0.4:  # noqa: PLR2004  (one run in two and a half, or more)
        return f"{NUMBER_WORDS[min(9, round(share * 10))]} runs in ten need {need_text}"
    number = round(1 / share)
    return f"one run in {NUMBER_WORDS[number] if number < len(NUMBER_WORDS) else number} needs {need_text}"


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount < _CENTS_BELOW else f"${amount:,.0f}"


EDGES_H = (0.0, 0.25, 1.0, 4.0)  # an age belongs to the last edge that it has reached


@dataclass(frozen=True, slots=True)
class AvailabilityModel:
    """Rates per hour, one for each age of `EDGES_H`: at which spot goes, and at which it comes back."""

    name: str
    weight: int  # the number of zones that it was fitted on
    share: float  # of the time with spot there
    loss_rates: tuple[float, ...]
    return_rates: tuple[float, ...]


SHIPPED = (
    AvailabilityModel("scarce", 2, 0.22, (1.1227, 0.8196, 0.5389, 0.2394), (1.5248, 0.6686, 0.3465, 0.0296)),
    AvailabilityModel("mixed", 3, 0.45, (2.1544, 1.1561, 0.5458, 0.1786), (2.3687, 0.9295, 0.3963, 0.1914)),
    AvailabilityModel("plenty", 6, 0.88, (1.0786, 0.5399, 0.2205, 0.0671), (1.7991, 1.5674, 0.4777, 0.4237)),
)


def make_trace(model: AvailabilityModel, tick_h: float, ticks: int, draws: Draws, *, before_h: float = 48.0) -> bytes:
    """Return availability at so many ticks; it has been going on for `before_h` hours, so that ages are realistic."""
    warm_up_ticks = round(before_h / tick_h)
    probabilities = {1: _probabilities(model.loss_rates, tick_h), 0: _probabilities(model.return_rates, tick_h)}
    age_edges = [round(edge / tick_h) for edge in EDGES_H[1:]]
    up, age, availability = int(draws.uniform() < model.share), 0, bytearray()
    for _ in range(warm_up_ticks + ticks):
        availability.append(up)
        if draws.uniform() < probabilities[up][sum(age >= edge for edge in age_edges)]:
            up, age = 1 - up, 0
        else:
            age += 1
    return bytes(availability[warm_up_ticks:])


def pick_model(draws: Draws, models: tuple[AvailabilityModel, ...] = SHIPPED) -> AvailabilityModel:
    """Return one of the models, as often as its weight says."""
    return models[draws.weighted([hazards.weight for hazards in models])]


def _probabilities(rates: tuple[float, ...], tick_h: float) -> list[float]:
    return [1 - exp(-rate * tick_h) for rate in rates]
