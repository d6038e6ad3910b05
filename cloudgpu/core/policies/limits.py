"""A lab's limits: how far a policy and what is typed may go, whoever launches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum

from cloudgpu.core.policies.policy import Act, Lifetime, Origin, Policy
from cloudgpu.core.values.times import duration_text

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
    everybody. `places` are the files, or the publication, that say so.
    """

    lease: timedelta | None = None
    renew_until: timedelta | None = None
    idle_after: timedelta | None = None
    policies: tuple[str, ...] | None = None
    payers: tuple[str, ...] = ()
    stop: Stoppers | None = None
    price_jump: Decimal | None = None
    places: tuple[str, ...] = ()

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
    """A policy or its spans as the limits leave them; `cuts` says in a sentence each what was taken away."""

    policy: Policy
    cuts: tuple[str, ...] = ()


def narrowest_limits(every: Iterable[Limits]) -> Limits:
    """Return the limits that hold where several files say some: the narrowest of each, so that none loosens another."""
    found = [limits for limits in every if limits != NO_LIMITS]
    named = [one.policies for one in found if one.policies is not None]
    payers = [one.payers for one in found if one.payers]
    stops = [one.stop for one in found if one.stop is not None]
    return Limits(
        _least(one.lease for one in found),
        _least(one.renew_until for one in found),
        _least(one.idle_after for one in found),
        _common(named) if named else None,
        _common(payers) if payers else (),
        (Stoppers.OWNER if Stoppers.OWNER in stops else Stoppers.MEMBERS) if stops else None,
        min((one.price_jump for one in found if one.price_jump is not None), default=None),
        tuple(place for one in found for place in one.places),
    )


def limit_policy(policy: Policy, limits: Limits) -> LimitedPolicy:
    """Return the policy inside the limits, with a sentence for each rule that they changed.

    A limit on idle time makes a rule that only warns, or none, one that stops: else it would be no limit.
    """
    idle, sentences = policy.idle, []
    most = limits.idle_after
    if most is not None and (idle.after > most or idle.do is not Act.STOP):
        was = duration_text(idle.after) if idle.do is Act.STOP else f"do: {idle.do}"
        after = min(idle.after, most)
        idle = replace(idle, after=after, grace=min(idle.grace, after), do=Act.STOP)
        sentences.append(f"the limits stop it after {duration_text(after)} of idle time (policy {policy.name}: {was})")
    lease, renew = _within(policy.lease, limits.lease), _within(policy.renew_until, limits.renew_until)
    return LimitedPolicy(replace(policy, idle=idle, lease=min(lease, renew), renew_until=renew), tuple(sentences))


def cut_lifetime(lifetime: Lifetime, limits: Limits) -> tuple[Lifetime, tuple[str, ...]]:
    """Return how long a machine may live inside the limits, with a sentence for each end that they brought nearer.

    What was typed is left as it is: that is refused, and not shortened behind the back of whoever typed it.
    """
    renew = _within(lifetime.renew_until, None if lifetime.renew_from is Origin.TYPED else limits.renew_until)
    lease = _within(lifetime.lease, None if lifetime.lease_from is Origin.TYPED else limits.longest_lease)
    if lifetime.lease_from is not Origin.TYPED:
        lease = min(lease, renew)
    pairs = (("lease", lifetime.lease, lease), ("renew-until", lifetime.renew_until, renew))
    notes = tuple(
        f"the limits cut the {what} from {duration_text(was)} to {duration_text(now)}" for what, was, now in pairs
        if now < was
    )  # fmt: skip
    return replace(lifetime, lease=lease, renew_until=renew), notes


def _within(span: timedelta, most: timedelta | None) -> timedelta:
    return span if most is None else min(span, most)


def _least(spans: Iterable[timedelta | None]) -> timedelta | None:
    return min((span for span in spans if span is not None), default=None)


def _common(lists: list[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(one for one in lists[0] if all(one in other for other in lists))
