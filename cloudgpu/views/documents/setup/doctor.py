"""Documents of `doctor` and `demo`."""

from typing import Annotated, TypedDict

from cloudgpu.core.model.checks import Verdict as _Verdict
from cloudgpu.views.documents.parts import DesktopLine, Usd

CheckVerdict = Annotated[str, _Verdict]


class StepResult(TypedDict):
    """How one step of a check ended; a part of documents, not one of its own."""

    name: str
    """What was checked or done."""
    message: str
    """What was found, or how it went."""
    next: str | None
    """What to do."""
    exit_code: int
    """The exit code of its error; 0 when it did not fail."""


class Check(StepResult):
    """What a check found."""

    verdict: CheckVerdict
    """`ok`; `note`: something that could be set up; `warn`: something that may cost or lose money or work; `fail`."""


class DoctorDocument(TypedDict):
    """What was checked."""

    checks: list[Check]
    """The checks, in the order in which a fault would matter."""
    ok: bool
    """No check failed."""


class LiveStage(StepResult):
    """A stage of a trial."""

    seconds: float
    """How long it took."""
    ok: bool
    """It succeeded."""


class LiveTrial(TypedDict):
    """A machine of the live check."""

    name: str | None
    """The machine's name; null where nothing was launched."""
    instance_type: str
    """What was planned."""
    region: str
    """The region in which it was planned."""
    zone: str
    """The zone in which it was planned."""
    stages: list[LiveStage]
    """In the order in which they were done."""
    cost_usd: Usd | None
    """What the machine cost with its disks and addresses; null if nothing was launched or no price is known."""
    remaining: list[str]
    """What may still be billed, each with the command that ends it."""
    ok: bool
    """Every stage succeeded and nothing is left that is billed."""


class LiveCheck(TypedDict):
    """What was launched for a check."""

    at_most_usd: Usd
    """The cost that was agreed to: all machines for their whole leases, with disks and addresses."""
    at_most_is_whole: bool
    """Every price in `at_most_usd` is known."""
    machines: list[LiveTrial]
    """In the order of trying; none after one that failed."""
    ok: bool
    """Every stage succeeded and nothing is left that is billed."""


class LiveDoctorDocument(DoctorDocument):
    """The answer of `doctor --live`, if no check has failed."""

    live: LiveCheck
    """What was launched, and how it went."""


class DemoRemains(TypedDict):
    """How many things the demonstration has left behind, counted."""

    machines: int
    """Machines."""
    files: int
    """Files."""
    processes: int
    """Processes."""
    ledger_lines: int
    """Lines of its ledger."""


class DemoDocument(TypedDict):
    """What the demonstration did."""

    machine: str
    """Its name."""
    cell_output: str
    """What the notebook cell printed."""
    activity: str
    """`ACTIVE`, `IDLE` or `UNKNOWN`, as the agent saw it."""
    spent_usd: Usd
    """What it cost."""
    desktop: DesktopLine | None
    """The same on an owned desktop; null: it cannot be read."""
    remaining: DemoRemains
    """What is left, counted: `machines`, `files`, `processes`; and `ledger_lines`."""
