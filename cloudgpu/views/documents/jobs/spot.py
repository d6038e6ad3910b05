"""The document of `spot backtest`."""

from typing import Annotated, Literal, TypedDict

TickMode = Annotated[str, Literal["wait", "changeover", "spot", "on_demand"]]


class SpotInterval(TypedDict):
    """A mean over all runs, and the interval that it is in with 95% confidence."""

    mean: float
    """The mean."""
    low: float | None
    """The low end; null with a single run."""
    high: float | None
    """The high end; null with a single run."""


class SpotTrace(TypedDict):
    """A trace of availability."""

    name: str
    """Its name: the file's, or the zone that the ledger has observed."""
    hours: float
    """How long it is."""
    available_share: float
    """The share of samples with spot available, 0 to 1."""
    tested: bool
    """It is as long as the deadline, so that a run fits."""


class SpotOptimum(TypedDict):
    """The least that could be paid by somebody who knows the future."""

    cost: float
    """The mean cost of a job."""
    on_demand_hours: float
    """Mean hours on demand."""
    spot_hours: float
    """Mean hours on spot."""


class SpotPolicyResult(TypedDict):
    """The result of a policy."""

    policy: str
    """Its name."""
    cost: SpotInterval
    """The cost of a job."""
    cost_p95: float
    """The cost that 95 in 100 runs stay below."""
    above_optimum: SpotInterval
    """Cost minus optimum, as a share of the cost on demand only."""
    above_optimum_p95: float
    """The share that 95 in 100 runs stay below."""
    on_demand_hours: float
    """Mean hours on demand, changeovers included."""
    spot_hours: float
    """Mean hours on spot, changeovers included."""
    starts: float
    """Mean number of machines that a run started."""
    interruptions: float
    """Mean number of spot machines that were taken away."""
    missed: int
    """Runs that missed the deadline."""
    runs: int
    """All runs."""


class SpotStretch(TypedDict):
    """A time in which one machine ran, started, or none did."""

    mode: TickMode
    """What ran: `changeover` is a machine that does not work yet."""
    market: Annotated[str, Literal["spot", "on_demand"]] | None
    """How the machine was bought; null while there is none."""
    zone: str | None
    """The trace that the spot machine was in; null otherwise."""
    since_h: float
    """Hours from the start of the job."""
    until_h: float
    """Its end."""
    work_done: float
    """The share of the work that is done at its end, 0 to 1."""


class SpotPolicyTimeline(TypedDict):
    """What a policy did in the run that is shown."""

    policy: str
    """Its name."""
    cost: float
    """What the run cost."""
    finish_h: float
    """Hours from the start of the job to the end of its work."""
    starts: int
    """Machines that were started."""
    stretches: list[SpotStretch]
    """What it did, in order of time."""


class SpotTimeline(TypedDict):
    """One run, the same for each policy."""

    traces: list[str]
    """The traces that it is in: one, or all with `--together`."""
    at_h: float
    """Hours from the start of the traces to the start of the job."""
    optimum: float
    """The least that this run could cost."""
    available: list[list[bool]]
    """For each trace: whether spot could be had in each interval of `tick_h` hours."""
    policies: list[SpotPolicyTimeline]
    """What each policy did."""


class SpotBacktestDocument(TypedDict):
    """How spot policies do on recorded availability. Amounts are in the currency of the prices."""

    work_h: float
    """Hours of work."""
    deadline_h: float
    """Hours to the deadline."""
    changeover_h: float
    """Hours without progress after each start."""
    tick_h: float
    """Hours between two decisions."""
    price_spot: float
    """The price of an hour on spot."""
    price_on_demand: float
    """The price of an hour on demand."""
    priced: bool
    """A price was given. Otherwise an hour of spot costs 1 and one on demand 3."""
    from_ledger: bool
    """The availability is what this ledger has observed, not that of files."""
    traces: list[SpotTrace]
    """The traces."""
    together: bool
    """All traces are zones of one job."""
    runs: int
    """Simulated runs of the job in all traces together, each from a random time on."""
    seed: int
    """The seed of the random times at which runs begin."""
    on_demand_only: float
    """What the job costs on one on-demand machine."""
    optimum: SpotOptimum
    """The exact optimum."""
    policies: list[SpotPolicyResult]
    """Each policy."""
    timeline: SpotTimeline
    """One run: the one with the median cost under the last policy."""
