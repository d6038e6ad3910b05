"""The provider seam: one small protocol that all implement, and one small protocol per further ability.

A provider is made by a factory `(ProviderSettings) -> Provider` found under the entry-point group
`cloudgpu.providers`. Making one reads no network; SDKs are imported inside methods.
Every method may raise the classes of `cloudgpu.errors` and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from cloudgpu.core.facts import Attempt, Available, Instance, Listing, Price, Want

GROUP = "cloudgpu.providers"


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """What a factory gets: the account's configured name, its table of config.toml, where files may be kept.

    `home` belongs to this provider and account alone. `clock` returns aware UTC.
    """

    account: str
    options: Mapping[str, Any]
    home: Path
    clock: Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class TokenRule:
    """How the provider treats a launch token.

    Within `lifetime` of the first call, the same token with the same parameters never makes a second machine.
    `listing_proves_after` the call was sent, a complete listing without the machine proves that it was not made.
    `source` says who says so.
    """

    lifetime: timedelta
    listing_proves_after: timedelta
    source: str


class Provider(Protocol):
    """What every provider can do."""

    kind: str  # "local", "aws", ...
    account: str
    token_rule: TokenRule
    runs_parts: frozenset[str]  # kinds of template parts that it runs; the others are named as left out

    def available(self, want: Want) -> Sequence[Available]:
        """Return what could satisfy `want` here, unpriced, in no order; empty when nothing can."""
        ...

    def launch(self, attempt: Attempt, *, deadline: datetime) -> Instance:
        """Ask for the machine and return once the cloud has accepted it.

        Idempotent on `attempt.token`. Raises NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest when it was
        surely not made; LaunchUncertain (or any other ProviderUnavailable) when that is not known.
        """
        ...

    def get(self, id: str) -> Instance:  # noqa: A002
        """Return the machine now; raise InstanceNotFound only when the provider answered that it has none."""
        ...

    def list(self) -> Listing:
        """Return every machine that carries a cloudgpu-id tag, of any ledger."""
        ...

    def terminate(self, id: str) -> None:  # noqa: A002
        """Ask to end the machine and all that was made with it. Idempotent; an unknown id is no error.

        The proof is a later `get`: InstanceNotFound or `terminated`.
        """
        ...


@runtime_checkable
class Pausable(Protocol):
    """Machines that can be stopped and started again."""

    def stop(self, id: str) -> None:  # noqa: A002
        """Ask to stop, in the way that ends billing. Idempotent. Raises InstanceNotFound."""
        ...

    def start(self, id: str) -> None:  # noqa: A002
        """Ask to start a stopped machine. Idempotent. Raises InstanceNotFound, NoCapacity, InvalidRequest."""
        ...


@runtime_checkable
class Taggable(Protocol):
    """Tags can be changed after the launch."""

    def tag(self, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
        """Set these tags and leave every other alone. Raises InstanceNotFound."""
        ...


@runtime_checkable
class HasPrices(Protocol):
    """The provider knows what its own offers cost now."""

    def prices(self, offers: Sequence[Available]) -> Sequence[Price | None]:
        """Return one price per item, in order; None where it has none."""
        ...


@runtime_checkable
class HasTimer(Protocol):
    """A timer on the provider's side ends a machine at `renew-until`, whatever else has died."""

    def timer(self, id: str) -> datetime | None:  # noqa: A002
        """Return when the timer fires, aware UTC; None when none is set. Raises InstanceNotFound."""
        ...


@runtime_checkable
class CanRehearseInterruption(Protocol):
    """A spot interruption can be rehearsed."""

    def interrupt(self, id: str) -> datetime:  # noqa: A002
        """Give the machine its notice and return when it will be taken, aware UTC. Raises InstanceNotFound."""
        ...


@runtime_checkable
class KnowsHostKeys(Protocol):
    """Machines that have a host key already when they are launched: the user's own, say."""

    def host_key(self, item: Available) -> str | None:
        """Return the OpenSSH public line to pin for this offer; None: the launch gives the machine a new key.

        Raises InvalidRequest when the key is needed and nobody has confirmed it yet.
        """
        ...


Factory = Callable[[ProviderSettings], Provider]
