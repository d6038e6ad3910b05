"""Policies as values: how long a machine may live, what ends it before that, and what becomes of what it leaves.

A lab's limits say how far a policy and what is typed may go, whoever launches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any

from cloudgpu.core.activity.idle import IDLE, UNKNOWN, Thresholds
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import duration_text

if TYPE_CHECKING:
    from cloudgpu.core.policies.schedule import Schedule

NO_ACTIVITIES = "-"  # in place of the activities at which a lease ends: the agent neither ends nor renews it
MAX_OFFS = 60  # scheduled ends (`off` of a schedule) that an agent is told in advance
LEASE_MARGIN = timedelta(
    days=7
)  # an agent knows the scheduled ends until so long after renew-until, which `extend` may move


class ReaperAction(StrEnum):
    """What a decision of the reaper does with a machine, or with an image that is kept of it."""

    KEEP = "keep"
    WARN = "warn"
    RENEW = "renew"  # its lease
    STOP = "stop"
    PARK = "park"  # it cannot be stopped: it ends, and an image of its disk stays
    TERMINATE = "terminate"
    IMAGE = "image"  # keep a stopped machine as an image, then terminate it
    REMOVE = "remove"  # an image that is kept


class Rule(StrEnum):
    """The rule that explains a decision, in the order of precedence, the strongest first."""

    REQUESTED = "requested-end"  # a requested stop or end that is not done
    BUDGET = "budget"
    RENEW_UNTIL = "renew-until"
    PART = "part-of-cluster"  # the cluster is incomplete
    SCHEDULE = "schedule"
    HOLD = "hold"
    NODE_LOSS = "node-loss"
    LEASE = "lease"
    IDLE = "idle"
    UNLABELLED = "unlabelled"  # no owner or project
    STOPPED = "stopped"  # stopped for too long
    IMAGES = "images"  # an image kept for too long
    NONE = "none"  # no rule acts


class Unpausable(StrEnum):
    """What becomes of a machine that cannot be stopped (a one-time spot machine) where it would be.

    PARK: it ends and its system disk stays, to be started from. TERMINATE: nothing of it stays, and `stop` is refused.
    WARN: as PARK, but idle time and schedules only warn; its lease ends it all the same.
    """

    PARK = "park"
    TERMINATE = "terminate"
    WARN = "warn"


class RuleAction(StrEnum):
    """What a policy's key `do` says that a rule does once it applies. Each rule allows some of these."""

    STOP = "stop"
    WARN = "warn"
    DISABLED = "off"  # nothing at all
    IMAGE = "image"  # kept as an image, then terminated
    TERMINATE = "terminate"
    REMOVE = "remove"


class Unknown(StrEnum):
    """What the end of a lease does to a machine of which nobody knows whether it is used."""

    RENEW = "renew"  # as one in use, with an alert
    END = "end"


@dataclass(frozen=True, slots=True)
class Idle:
    """What ends a machine that nobody uses, and what counts as use.

    `after` is how long nothing may have happened, `grace` how long a warning is waited out, `uptime` how long a
    machine is up before it is judged. `gpu` is in percent, `cpu` in cores above the machine's own baseline, `network`
    and `disk` in bytes a second. `terminal_output`: for so long output alone counts. `share` of the window's samples
    have to be there. `scratch`: what an idle stop does where it would erase disks that are not empty.
    """

    after: timedelta = timedelta(hours=1)
    grace: timedelta = timedelta(minutes=10)
    do: RuleAction = RuleAction.STOP
    gpu: float = 3.0
    cpu: float = 0.25
    network: float = 100e3
    disk: float = 1e6
    terminal_output: timedelta = timedelta(hours=2)
    share: float = 0.9
    uptime: timedelta = timedelta(minutes=30)
    scratch: RuleAction = RuleAction.WARN


@dataclass(frozen=True, slots=True)
class MachineBudget:
    """What one machine may cost in all, with its disks, since its launch; `do` is STOP or WARN."""

    limit: Money
    do: RuleAction = RuleAction.WARN


@dataclass(frozen=True, slots=True)
class LabelRule:
    """What becomes of a machine that runs for `after` and bears none of what is required: STOP or WARN."""

    require: tuple[str, ...]  # of "owner", "project"
    after: timedelta
    do: RuleAction = RuleAction.WARN


@dataclass(frozen=True, slots=True)
class Retention:
    """What becomes of what is kept for `after`.

    A stopped machine: WARN, IMAGE (kept as one, then terminated) or TERMINATE. An image: WARN or REMOVE.
    """

    after: timedelta
    do: RuleAction = RuleAction.WARN


@dataclass(frozen=True, slots=True)
class Policy:
    """What a machine is launched under; `renew_until` is never shorter than `lease`, both counted from the launch.

    A rule that is None does not hold.
    """

    name: str
    lease: timedelta
    renew_until: timedelta
    unpausable: Unpausable = Unpausable.PARK
    description: str = ""
    idle: Idle = Idle()
    schedules: tuple[Schedule, ...] = ()
    unknown: Unknown = Unknown.RENEW
    budget: MachineBudget | None = None
    unlabelled: LabelRule | None = None
    stopped: Retention | None = None
    images: Retention | None = None

    def only_warned(self, *, stoppable: bool) -> bool:
        """Say whether idle time and schedules only warn, as the machine cannot be stopped and is not to be parked."""
        return not stoppable and self.unpausable is Unpausable.WARN


def thresholds(policy: Policy) -> Thresholds:
    """Return what counts as use under this policy, as `core.activity.idle.judge` takes it: spans in seconds."""
    idle = policy.idle
    return Thresholds(
        after=idle.after.total_seconds(),
        gpu=idle.gpu,
        cpu=idle.cpu,
        network=idle.network,
        disk=idle.disk,
        terminal_output=idle.terminal_output.total_seconds(),
        share=idle.share,
        uptime=idle.uptime.total_seconds(),
    )


def agent_policy(
    policy: Policy,
    begin: datetime,
    end: datetime,
    *,
    stoppable: bool = True,
    keeps_disk: bool = False,
    is_node: bool = False,
) -> dict[str, Any]:
    """Return what the agent is told of a policy, for a machine that begins at `begin` and may live until `end`.

    `keeps_disk`: only renew-until ends it, as its disk is to stay and it could only be terminated. `is_node`: it is a
    node of a cluster, of which a single node knows too little: only renew-until ends it, and runs of the reaper renew
    or end the lease of all nodes. Spans are in seconds. `ends` names the activities at which a lease ends. `off` is
    every off of the schedules from `begin` on as epoch seconds, at most 60 of them and none later than a week after
    `end`: the machine knows no time zones.
    """
    idle, only_renew_until = policy.idle, keeps_disk or is_node or policy.only_warned(stoppable=stoppable)
    ends = (IDLE, UNKNOWN) if policy.unknown is Unknown.END else (IDLE,)
    offs: Iterable[datetime] = ()
    if not only_renew_until and policy.schedules:
        from cloudgpu.core.policies.schedule import offs_between  # `ls` shows policies that have none

        offs = islice(offs_between(policy.schedules, begin, end + LEASE_MARGIN), MAX_OFFS)
    return {
        **thresholds(policy)._asdict(),
        "grace": idle.grace.total_seconds(),
        "stop": idle.do is RuleAction.STOP and not only_renew_until,
        "off": [int(off.timestamp()) for off in offs],
        "ends": NO_ACTIVITIES if is_node else "" if keeps_disk else " ".join(ends),
        "scratch": str(idle.scratch),
    }


class Origin(StrEnum):
    """Where a duration was set; an earlier one takes precedence."""

    TYPED = "option"
    SETTINGS = "config.toml"
    POLICY = "policy"


@dataclass(frozen=True, slots=True)
class LifetimeOverride:
    """The lifetime that options or settings give; None: not given."""

    lease: timedelta | None = None
    renew_until: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long a machine may live, and where each was set; contradictory where `renew_until` is the shorter one."""

    lease: timedelta
    renew_until: timedelta
    lease_origin: Origin
    renew_origin: Origin

    @property
    def is_contradictory(self) -> bool:
        """Whether a machine could not live to the end of its lease."""
        return self.renew_until < self.lease


def lifetime(policy: Policy, typed: LifetimeOverride, settings: LifetimeOverride) -> Lifetime:
    """Return how long a machine of this policy may live: what was typed, else the settings', else the policy's.

    A lease that was typed takes `renew_until` along where that was not typed too: who types a longer one means it.
    """
    lease, lease_origin = _first_given(typed.lease, settings.lease, policy.lease)
    renew, renew_origin = _first_given(typed.renew_until, settings.renew_until, policy.renew_until)
    if renew < lease and lease_origin is Origin.TYPED and renew_origin is not Origin.TYPED:
        renew, renew_origin = lease, lease_origin
    return Lifetime(lease, renew, lease_origin, renew_origin)


def _first_given(typed: timedelta | None, settings: timedelta | None, policy: timedelta) -> tuple[timedelta, Origin]:
    if typed is not None:
        return typed, Origin.TYPED
    return (policy, Origin.POLICY) if settings is None else (settings, Origin.SETTINGS)


PAYERS_WAIT = timedelta(hours=24)  # past its renew-until, before a payer's reaper may stop another ledger's machine


class Stoppers(StrEnum):
    """Who may stop a machine, beside payers: its owner alone, or every member."""

    OWNER = "owner"
    MEMBERS = "members"


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that is allowed; None: no limit. `policies` are the only ones that a launch may name.

    `payers` are the owners whose reaper may stop machines of other ledgers that are 24 hours past their renew-until.
    `stop` says who may stop whose machine in a team. `price_jump` is by what factor a price has to move to be news, for
    everybody. `sources` are the files, or the publication, that say so.
    """

    lease: timedelta | None = None
    renew_until: timedelta | None = None
    idle_after: timedelta | None = None
    policies: tuple[str, ...] | None = None
    payers: tuple[str, ...] = ()
    stop: Stoppers | None = None
    price_jump: Decimal | None = None
    sources: tuple[str, ...] = ()

    @property
    def longest_lease(self) -> timedelta | None:
        """The longest lease: no longer than the longest renew-until, which another file may have made the shorter."""
        return _least((self.lease, self.renew_until))

    def allows(self, policy: str) -> bool:
        """Say whether a launch may name this policy."""
        return self.policies is None or policy in self.policies


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class LimitedPolicy:
    """A policy within the limits; `cuts` are sentences, one for each rule that the limits changed."""

    policy: Policy
    cuts: tuple[str, ...] = ()


def narrowest_limits(all_limits: Iterable[Limits]) -> Limits:
    """Return the limits that hold where several files say some: the narrowest of each, so that none loosens another."""
    given = [limits for limits in all_limits if limits != NO_LIMITS]
    allowed = [limits.policies for limits in given if limits.policies is not None]
    payers = [limits.payers for limits in given if limits.payers]
    stops = [limits.stop for limits in given if limits.stop is not None]
    return Limits(
        _least(limits.lease for limits in given),
        _least(limits.renew_until for limits in given),
        _least(limits.idle_after for limits in given),
        _common(allowed) if allowed else None,
        _common(payers) if payers else (),
        (Stoppers.OWNER if Stoppers.OWNER in stops else Stoppers.MEMBERS) if stops else None,
        min((limits.price_jump for limits in given if limits.price_jump is not None), default=None),
        tuple(source for limits in given for source in limits.sources),
    )


def limit_policy(policy: Policy, limits: Limits) -> LimitedPolicy:
    """Return the policy inside the limits, with a sentence for each rule that they changed.

    A limit on idle time makes a rule that only warns, or none, one that stops: else it would be no limit.
    """
    idle, sentences = policy.idle, []
    limit = limits.idle_after
    if limit is not None and (idle.after > limit or idle.do is not RuleAction.STOP):
        was = duration_text(idle.after) if idle.do is RuleAction.STOP else f"do: {idle.do}"
        after = min(idle.after, limit)
        idle = replace(idle, after=after, grace=min(idle.grace, after), do=RuleAction.STOP)
        sentences.append(f"the limits stop it after {duration_text(after)} of idle time (policy {policy.name}: {was})")
    lease, renew = _at_most(policy.lease, limits.lease), _at_most(policy.renew_until, limits.renew_until)
    return LimitedPolicy(replace(policy, idle=idle, lease=min(lease, renew), renew_until=renew), tuple(sentences))


def cut_lifetime(lifetime: Lifetime, limits: Limits) -> tuple[Lifetime, tuple[str, ...]]:
    """Return how long a machine may live inside the limits, with a sentence for each end that they brought nearer.

    What was typed is left as it is: that is refused, and not shortened behind the back of whoever typed it.
    """
    renew = _at_most(lifetime.renew_until, None if lifetime.renew_origin is Origin.TYPED else limits.renew_until)
    lease = _at_most(lifetime.lease, None if lifetime.lease_origin is Origin.TYPED else limits.longest_lease)
    if lifetime.lease_origin is not Origin.TYPED:
        lease = min(lease, renew)
    pairs = (("lease", lifetime.lease, lease), ("renew-until", lifetime.renew_until, renew))
    notes = tuple(
        f"the limits cut the {what} from {duration_text(before)} to {duration_text(cut)}" for what, before, cut in pairs
        if cut < before
    )  # fmt: skip
    return replace(lifetime, lease=lease, renew_until=renew), notes


def _at_most(duration: timedelta, limit: timedelta | None) -> timedelta:
    return duration if limit is None else min(duration, limit)


def _least(durations: Iterable[timedelta | None]) -> timedelta | None:
    return min((duration for duration in durations if duration is not None), default=None)


def _common(lists: list[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(name for name in lists[0] if all(name in names for names in lists))
