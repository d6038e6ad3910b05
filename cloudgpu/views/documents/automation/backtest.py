"""The document of `policy backtest`."""

from typing import TypedDict

from cloudgpu.views.documents.parts import MachineAction, MachineReference, MaybePriced, Time, Usd


class Amount(MaybePriced):
    """An amount with its range."""

    unpriced: bool
    """A part has no known price and is in no sum."""


class ActualEnd(TypedDict):
    """A stop or end of a machine that really happened."""

    at: Time
    """When."""
    why: str
    """Why."""


class ReplayedMachine(MachineReference):
    """What a policy would have done with a machine."""

    hours: float
    """How long it ran."""
    unsampled_share: float | None
    """How much of that has no samples, 0 to 1; null: it did not run."""
    cost: Amount
    """What it cost."""
    savings: Amount
    """What the policy would have saved."""
    ends: int
    """How often it would have ended it."""
    actual_ends: list[ActualEnd]
    """The ends that really happened: `at`, `why`."""


class ReplayedWork(TypedDict):
    """Use of a machine after the policy would have ended it."""

    since: Time
    """Its start."""
    until: Time
    """Its end."""
    seconds: int
    """For how many of its seconds samples show use."""
    what: list[str]
    """The signals that showed it, like `GPU`."""
    under_way: bool
    """It was going on when the machine would have been ended: it would have been killed."""


class ReplayedStop(MachineAction):
    """A machine that a policy would have ended, at one time: `stop`, `park` or `terminate`, why as `reap` would say."""

    at: Time
    """When."""
    until: Time
    """When somebody used it again, or its run really ended."""
    off_s: float
    """Seconds from `at` to `until`, in which it would have been off."""
    unsampled_s: float
    """How many of them have no samples."""
    savings: Amount
    """What that would have saved."""
    restart_usd: Usd | None
    """What the next start is billed at least; null: nobody came back."""
    work: ReplayedWork | None
    """The use that followed; null: none was seen."""


class BacktestDocument(TypedDict):
    """What a policy would have done."""

    policy: str
    """The policy's name."""
    file: str
    """Its file."""
    since: Time
    """The begin of the period that was replayed."""
    until: Time
    """Its end: now."""
    every_s: float
    """The time between two runs in seconds."""
    hours: float
    """How long machines ran in that time."""
    unsampled_share: float | None
    """How much of that has no samples, 0 to 1: nothing is known of it; null when nothing ran."""
    cost: Amount
    """What the machines cost while they ran, with attached costs that are paid only while they run."""
    savings: Amount
    """What of it the policy would have saved."""
    would_have_cost: Amount
    """`cost` minus `savings`."""
    ends: int
    """How often it would have ended a machine."""
    off_hours: float
    """Hours for which machines that ran would have been off."""
    restarts: int
    """How often somebody used a machine afterwards, and would have had to start it."""
    restarts_usd: Usd | None
    """What these starts are billed at least, in all; in the sums above."""
    killed: int
    """How often work was under way when it would have ended the machine."""
    killed_hours: float
    """How long that work went on."""
    machines: list[ReplayedMachine]
    """Each machine that ran in that time."""
    stops: list[ReplayedStop]
    """Each end that it would have made, by time."""
    notes: list[str]
    """What the lab's limits changed of the policy, and what is not replayed."""
