"""Policies: how long a machine may live, and what becomes of one that cannot be stopped. Values, not YAML."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class Unpausable(StrEnum):
    """What becomes of a machine that cannot be stopped (a one-time spot machine) where it would be.

    PARK: it ends and its system disk stays, to be started from. TERMINATE: nothing of it stays, and `stop` is refused.
    WARN: as PARK, but idle time and schedules only warn; its lease ends it all the same.
    """

    PARK = "park"
    TERMINATE = "terminate"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class Policy:
    """What a machine is launched under; `renew_until` is never shorter than `lease`, both counted from the launch."""

    name: str
    lease: timedelta
    renew_until: timedelta
    unpausable: Unpausable = Unpausable.PARK
    description: str = ""


class Origin(StrEnum):
    """Who said how long, the nearest first."""

    TYPED = "option"
    SETTINGS = "config.toml"
    POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Said:
    """What one of them said; None: nothing."""

    lease: timedelta | None = None
    renew_until: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Spans:
    """How long a machine may live, and who said so. Where `renew_until` is the shorter one, they contradict."""

    lease: timedelta
    renew_until: timedelta
    lease_from: Origin
    renew_from: Origin

    @property
    def contradict(self) -> bool:
        """Whether a machine could not live to the end of its lease."""
        return self.renew_until < self.lease


def spans(policy: Policy, typed: Said, settings: Said) -> Spans:
    """Return how long a machine of this policy may live: what was typed, else the settings', else the policy's.

    A lease that was typed takes `renew_until` along where that was not typed too: who types a longer one means it.
    """
    lease, lease_from = _first(typed.lease, settings.lease, policy.lease)
    renew, renew_from = _first(typed.renew_until, settings.renew_until, policy.renew_until)
    if renew < lease and lease_from is Origin.TYPED and renew_from is not Origin.TYPED:
        renew, renew_from = lease, lease_from
    return Spans(lease, renew, lease_from, renew_from)


def _first(typed: timedelta | None, settings: timedelta | None, policy: timedelta) -> tuple[timedelta, Origin]:
    if typed is not None:
        return typed, Origin.TYPED
    return (policy, Origin.POLICY) if settings is None else (settings, Origin.SETTINGS)
