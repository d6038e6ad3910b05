"""Why a machine counts as in use, idle or unknown: what `show --why` and `reap --explain` say."""

from typing import Annotated, Literal, TypedDict

from cloudgpu.views.documents.parts import MachineReference, ReapAction, Time


class ActivitySource(TypedDict):
    """How and when a machine's activity was read."""

    how: Annotated[str, Literal["live", "samples", "none"]]
    """`live`: over SSH; `samples`: from those stored here; `none`: it was not queried."""
    at: Time | None
    """As of when; null: nothing is known."""
    error: str
    """Why nothing is known; empty where something is."""
    signals_at: Time | None
    """The time of the signals; older ones if it was queried and did not answer."""


class ActivitySignal(TypedDict):
    """One signal that was checked."""

    what: str
    """`GPU`, `CPU`, `network`, `disk`, `terminal input`, `terminal output`, `kernel` (a Jupyter kernel did something),
    `busy kernel`, `start` (of the machine, not long ago), or `running job` while one runs.
    """
    unit: str
    """`percent`, `cores`, `bytes_per_s`, `kernels`, `jobs`, or `seconds`: how long ago."""
    value: float | None
    """The highest reading of the window, or the age; null: none."""
    names: list[str]
    """The kernels that are busy, or the jobs that run."""
    limit: float | None
    """What a reading must reach, or an age must stay under; null: any counts. For `terminal output`: how long after
    the last input it counts at all.
    """
    ago_s: float | None
    """Seconds since it last showed activity; null: never."""
    active: bool
    """It makes the machine count as ACTIVE now."""


class ReapVerdict(TypedDict):
    """What a run of the reaper would do."""

    do: ReapAction
    """`keep`, `warn`, `renew` (its lease), `stop`, `park` (end it, and keep an image of its disk), `terminate`, `image`
    (keep a stopped machine as an image, then terminate it) or `remove` (an image that is kept).
    """
    rule: str
    """By which rule: `budget`, `renew-until`, `schedule`, `hold`, `lease`, `idle`, ... or `none`."""
    why: str
    """The reason, a sentence."""
    at: Time | None
    """When it would be ended if nothing changes; of `renew`, the lease's new end."""
    after: Time | None
    """Until when the grace period of a warning lasts."""
    urgent: bool
    """The owner should be notified now."""


class RuleEnds(TypedDict):
    """When each rule by itself would end a machine."""

    idle: Time | None
    """At the earliest, if it is not used any more; null: idle time does not end it, or its activity is not known."""
    lease: Time | None
    """The lease's end."""
    renew_until: Time | None
    """The end of its renewals."""
    schedule: Time | None
    """When its schedule next ends it."""
    held_until: Time | None
    """Until when a hold keeps it from the lease and from idle time."""


class ScratchDisk(TypedDict):
    """A disk that a stop erases and that is not empty."""

    path: str
    """Where it is mounted."""
    bytes: int
    """What is on it."""


class ActivityIdle(TypedDict):
    """When idle time ends a machine."""

    do: str
    """`stop`, `warn` or `off`: idle time does nothing."""
    after_s: float
    """How long it has to be idle, in seconds."""
    grace_s: float
    """How long after a warning the machine is ended, in seconds."""


class ActivityPolicy(TypedDict):
    """The policy of a machine."""

    name: str
    """Its name."""
    why: str
    """Why it is that one."""
    idle: ActivityIdle | None
    """Its rule for idle time; null where the policy cannot be resolved."""


class GivenWarning(TypedDict):
    """A warning that was sent and still applies."""

    rule: str
    """Which rule warns."""
    at: Time
    """When it was first sent."""
    due: Time | None
    """When the machine will end; null: this is only a notice."""
    count: int
    """How often it was sent."""


class WhyDocument(MachineReference):
    """Why a machine counts as in use, idle or unknown."""

    running: bool
    """It runs or may run; the use of another one is not checked, and `why` says what it is."""
    activity: Annotated[str, Literal["ACTIVE", "IDLE", "UNKNOWN"]]
    """`ACTIVE`, `IDLE` or `UNKNOWN`."""
    why: str
    """Why, in a few words."""
    quiet_s: float | None
    """Seconds since the last sign of activity; null: none was seen."""
    source: ActivitySource
    """How and when that was read."""
    signals: list[ActivitySignal]
    """Each signal that was checked; empty when nothing is known."""
    last_active_at: Time | None
    """When its agent last reported that it is in use."""
    up_since: Time
    """Its latest start."""
    scratch: list[ScratchDisk]
    """Disks that a stop erases and that are not empty: `path`, `bytes`."""
    policy: ActivityPolicy
    """`name`, `why` it is that one, and `idle`: `do`, `after_s`, `grace_s`; null where it cannot be resolved."""
    decision: ReapVerdict
    """What a run would do now."""
    warnings: list[GivenWarning]
    """Those that were sent and still apply: `rule`, `at`, `due`, `count`."""
    ends: RuleEnds
    """When each rule by itself would end it."""
