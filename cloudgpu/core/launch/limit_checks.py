"""Refuses policies, leases and holds beyond the lab's limits, and says what the limits are."""

from __future__ import annotations

from datetime import datetime, timedelta

from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.policies.description import BY_OPTION, Chosen
from cloudgpu.core.policies.policy import Lifetime, Limits, Origin, cut_lifetime
from cloudgpu.core.values.times import duration_text
from cloudgpu.errors import InvalidRequest


def check_policy_allowed(chosen: Chosen, limits: Limits) -> None:
    """Raise InvalidRequest for a policy that no launch may name."""
    if limits.allows(chosen.name):
        return
    is_typed = chosen.why == BY_OPTION
    raise InvalidRequest(
        f"The limits do not allow policy {chosen.name}" + ("." if is_typed else f" ({chosen.why})."),
        field=BY_OPTION if is_typed else f"config.toml: {chosen.why.removesuffix(' of config.toml')}",
        value=chosen.name,
        next=f"Use one of: {', '.join(limits.policies or ()) or 'none is allowed'} ({_limit_sources(limits)}).",
    )


def check_typed_limits(lifetime: Lifetime, limits: Limits) -> None:
    """Raise InvalidRequest for a lease or a renew-until that was typed and goes beyond the limits."""
    longest = limits.longest_lease
    if lifetime.lease_origin is Origin.TYPED and longest is not None and lifetime.lease > longest:
        raise _limit_exceeded("--lease", lifetime.lease, longest, limits)
    if (
        lifetime.renew_origin is Origin.TYPED
        and limits.renew_until is not None
        and lifetime.renew_until > limits.renew_until
    ):
        raise _limit_exceeded("--renew-until", lifetime.renew_until, limits.renew_until, limits)


def lease_within_limits(lease: Lease, now: datetime, limits: Limits, *, typed: tuple[bool, bool]) -> Lease:
    """Return the lease of a start at `now` inside the limits; `typed`: whether its length, and how far it renews, was.

    Raises InvalidRequest for what was typed beyond them.
    """
    origins = [Origin.TYPED if was_typed else Origin.POLICY for was_typed in typed]
    lifetime, _ = cut_lifetime(Lifetime(lease.expires - now, lease.renew_until - now, *origins), limits)
    check_typed_limits(lifetime, limits)
    return Lease(now + lifetime.lease, now + lifetime.renew_until)


def check_extended(name: str, lease: Lease, now: datetime, limits: Limits) -> None:
    """Raise InvalidRequest where an extended lease would end further ahead than the limits let anybody agree to.

    Where renew-until moves, it moves to the end of the lease: no more needs to be checked.
    """
    longest, ahead = limits.longest_lease, lease.expires - now
    if longest is None or ahead <= longest:
        return
    raise InvalidRequest(
        f"The lease of {name} would end {duration_text(ahead)} from now, beyond the limit of {duration_text(longest)}.",
        field="BY",
        value=duration_text(ahead),
        next=f"Extend it by less, or later. The limits are in {_limit_sources(limits)}.",
    )


def check_hold_length(name: str, until: datetime, now: datetime, limits: Limits) -> None:
    """Raise InvalidRequest for a hold that goes further ahead than the longest lease, whose end it would keep off."""
    longest = limits.longest_lease
    if longest is None or until - now <= longest:
        return
    length_text = duration_text(timedelta(minutes=round((until - now) / timedelta(minutes=1))))  # as typed, not 9h 59m
    raise InvalidRequest(
        f"The hold of {name} would last {length_text}, beyond the limit of {duration_text(longest)}.",
        field="UNTIL",
        value=length_text,
        next=f"Hold it for at most {duration_text(longest)}. The limits are in {_limit_sources(limits)}.",
    )


def _limit_exceeded(option: str, typed: timedelta, longest: timedelta, limits: Limits) -> InvalidRequest:
    return InvalidRequest(
        f"{option} is {duration_text(typed)}, beyond the limit of {duration_text(longest)}.",
        field=option,
        value=duration_text(typed),
        next=f"Ask for at most {duration_text(longest)}. The limits are in {_limit_sources(limits)}.",
    )


def _limit_sources(limits: Limits) -> str:
    return " and ".join(limits.sources)
