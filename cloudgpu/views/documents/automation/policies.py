"""Documents of `policy`."""

from typing import Annotated, TypedDict

from cloudgpu.views.documents.automation.activity import ActivityIdle
from cloudgpu.views.documents.parts import RuleText, Time, Usd


class Publication(TypedDict):
    """Who published a text, and when."""

    by: str
    """Who published it: the database user in a team, else the owner."""
    at: Time
    """When."""
    unused: str | None
    """A file of this home, or of the directory, with the same name, which does not count; null: there is none."""


# A key that is a keyword of Python, which no class can declare.
_ScheduleKeywords = TypedDict(
    "_ScheduleKeywords",
    {
        "except": Annotated[list[str], "Local dates on which nothing is ended."],
    },
)


class Schedule(_ScheduleKeywords):
    """A time of day at which machines are ended."""

    off: str
    """The time of day at which machines are ended: `19:00`."""
    tz: str
    """Its time zone."""
    days: list[int]
    """Weekdays, 0 is Monday."""
    until: str | None
    """Until when machines stay off: `mon 07:00`; null: they are stopped once, and may be started again at once."""


class PolicyHead(TypedDict):
    """What a list of policies and one policy have in common; a part of documents, not one of its own."""

    name: str
    """Its name."""
    description: str
    """What it is for."""
    published: Publication | None
    """Who published it; null: it is not published."""
    chosen_by: list[str]
    """The keys of `config.toml` that name it."""
    allowed: bool
    """The limits allow a launch under it."""


class PolicySummary(PolicyHead):
    """A policy in a list."""

    source: str | None
    """Its file, `shipped`, or who published it in the ledger; null where it has a fault."""
    error: str | None
    """What is wrong with its file; the numbers are null then."""
    lease_s: float | None
    """The lease in seconds."""
    renew_until_s: float | None
    """The longest time for which use may renew it, in seconds."""
    idle_after_s: float | None
    """After how long without use it acts; null: never."""
    idle_do: str | None
    """`stop`, `warn` or `off`: idle time does nothing."""
    schedules: list[Schedule] | None
    """At which times of day machines are ended."""


class PolicyLimits(TypedDict):
    """The limits that no policy may exceed."""

    lease_s: float | None
    """The longest lease in seconds; null: no limit, here and below."""
    renew_until_s: float | None
    """The longest renew-until."""
    idle_after_s: float | None
    """The longest time without use."""
    policies: list[str] | None
    """The only policies that a launch may name."""
    payers: list[str]
    """Owners whose reaper may stop what other ledgers left 24 hours past its renew-until."""
    stop: str | None
    """`owner` or `members`: whose machines members of a team may stop; null: `owner`."""
    price_jump: float | None
    """The factor by which a price has to change to raise an alert, for everybody."""
    sources: list[str]
    """The files that say so, and who published the ledger's."""


class PoliciesDocument(TypedDict):
    """The policies that there are."""

    policies: list[PolicySummary]
    """All there are, by name."""
    limits: PolicyLimits | None
    """Those of the ledger, the project and the home together; null: none."""


class IdleRule(ActivityIdle):
    """When an idle machine is ended, and what counts as use."""

    uptime_s: float
    """For how long a start counts as use."""
    terminal_output_s: float
    """For how long terminal output without input counts as use."""
    gpu: float
    """The GPU utilization in percent that counts as use."""
    cpu: float
    """The busy cores above the machine's baseline that count as use."""
    network: float
    """Bytes a second of network traffic that count as use."""
    disk: float
    """Bytes a second read from and written to disks that count as use."""
    share: float
    """The share of the expected samples, up to 1, that has to exist before a machine counts as idle."""
    scratch: str
    """`warn` or `stop`, if a stop would erase scratch disks that are not empty."""


class MachineBudget(TypedDict):
    """What one machine may cost."""

    amount_usd: Usd
    """What one machine may cost in all."""
    do: str
    """`warn` or `stop`, once that is spent."""


class UnlabelledRule(TypedDict):
    """What happens to machines that do not say whose they are."""

    require: list[str]
    """The labels that each has to have: `owner`, `project`."""
    after_s: float
    """How long one may run without them, in seconds."""
    do: str
    """`warn` or `stop`."""


class RetentionRule(TypedDict):
    """What happens to what is retained for long."""

    after_s: float
    """How long one may stay, in seconds."""
    do: str
    """`warn`, `image` or `terminate` of machines, `warn` or `remove` of images."""


class PolicyDocument(PolicyHead):
    """What a policy says."""

    lease_s: float
    """The lease in seconds."""
    renew_until_s: float
    """The longest time for which use may renew it, in seconds."""
    unknown: str
    """`renew` or `end`: what happens at the end of a lease if it is not known whether the machine is used."""
    unpausable: str
    """`park`, `terminate` or `warn`: what happens to a machine that cannot be stopped."""
    idle: IdleRule
    """When an idle machine is ended, and what counts as use."""
    schedules: list[Schedule]
    """At which times of day machines are ended."""
    budget: MachineBudget | None
    """What one machine may cost."""
    unlabelled: UnlabelledRule | None
    """Machines that do not say whose they are."""
    stopped: RetentionRule | None
    """Machines that stay stopped."""
    images: RetentionRule | None
    """Images that were made of machines."""
    source: str
    """Its file, `shipped`, or who published it in the ledger, and when."""
    limited_by: list[str]
    """What the limits change; the other keys have the changed values."""
    rules: list[RuleText]
    """What it says, the strongest rule first."""


class PolicyOfMachineDocument(TypedDict):
    """Which policy holds for a machine, and what it says of it."""

    machine: str
    """Its name."""
    id: str
    """Its id."""
    state: str
    """As it was last seen."""
    policy: str
    """The policy's name."""
    source: str | None
    """Its file, `shipped`, who published it in the ledger, or that another home's text applies; null: it cannot be
    resolved.
    """
    why: str
    """Why it is that one."""
    error: str | None
    """Why it cannot be resolved: then only the lease counts."""
    limited_by: list[str]
    """What the limits change."""
    limits: PolicyLimits | None
    """Those of the ledger and of the launch together; null: none."""
    rules: list[RuleText]
    """Each rule as it applies to this machine now, the strongest first."""


class PolicyCheckDocument(TypedDict):
    """The files that were read."""

    checked: list[str]
    """The files that were read; a fault is exit code 2."""


class PublishedDocument(TypedDict):
    """A policy that was published."""

    published: str
    """The name of the policy, or `limits`."""
    file: str
    """The file that was read."""
    changed: bool
    """False: the same text was published already."""
    replaced: bool
    """Another text was published under this name before."""


class WithdrawnDocument(TypedDict):
    """A policy that is not published any more."""

    withdrawn: str
    """The name."""
