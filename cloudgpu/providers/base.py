"""The provider seam: the one small protocol that all implement; `providers.abilities` has one per further ability.

A provider is made by a factory `(ProviderSettings) -> Provider` found under the entry-point group
`cloudgpu.providers`. Making one reads no network; SDKs are imported inside methods.
Every method may raise the classes of `cloudgpu.errors` and no others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from cloudgpu.core.catalog.pricelist import PriceList
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import Instance, Listing
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Availability, Requirements
from cloudgpu.core.policies.guards import Safeguards
from cloudgpu.providers.patience import patience_s

GROUP = "cloudgpu.providers"


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """What a factory gets: the account's configured name, its table of config.toml, where files may be kept.

    `home` is a directory for this provider and account alone. `clock` returns aware UTC. `pause` waits so many seconds.
    `ledger`: only volumes of this ledger match a name; empty means any. A new ledger has no id yet; `ledger_now`
    returns it once it has. `notify` shows the user a warning if a call succeeded but a side task failed. `patience` is
    how many seconds a read may be without an answer.
    `regions_in_use` names the regions in which the ledger has machines of this kind of provider, where a listing may go
    by what regions it found within the last day, and by these; None: it asks which there are.
    `renamed_hosts`: where regions are your own hosts, the old name of a host that was renamed, and its new one.
    `clock_ahead` is by how much this computer's own clock is ahead of `clock`, where that one is known to be wrong.
    """

    account: str
    options: Mapping[str, Any]
    home: Path
    clock: Callable[[], datetime]
    pause: Callable[[float], None] = time.sleep
    ledger: str = ""
    ledger_now: Callable[[], str] = str  # nothing: the usual value of a text
    notify: Callable[[str], object] = str  # nobody: no more than the text itself
    patience: float = field(default_factory=patience_s)
    renamed_hosts: Mapping[str, str] = field(default_factory=dict)
    regions_in_use: Callable[[], Collection[str] | None] = lambda: None
    clock_ahead: Callable[[], timedelta] = timedelta  # nothing: the usual value of a duration


@dataclass(frozen=True, slots=True)
class TokenRule:
    """How the provider treats a launch token.

    Within `lifetime` of the first call, the same token with the same parameters never makes a second machine.
    `listing_proves_after`: this long after the call, a complete listing without the machine proves that it was not
    made. `gone_proves_after`: this long after the call, a 404 from `get` proves that a machine seen before has ended.
    If `get` has returned it in between, a 404 proves it at once. None: use `listing_proves_after`. `source` says who
    says so.
    """

    lifetime: timedelta
    listing_proves_after: timedelta
    source: str
    gone_proves_after: timedelta | None = None

    @property
    def not_found_ends_after(self) -> timedelta:
        """How long after the call an unknown machine that was seen before is one that has ended."""
        return self.listing_proves_after if self.gone_proves_after is None else self.gone_proves_after


class Provider(Protocol):
    """What every provider can do."""

    kind: str  # "local", "aws", ...
    account: str
    token_rule: TokenRule
    runs_parts: frozenset[str]  # kinds of template parts that it runs; the others are named as left out

    @property
    def guards(self) -> Safeguards:
        """What can end its machines, apart from runs of `reap`, in this account as it is set up. Asks nothing.

        A launch may have less: `Resolved.agent` says so.
        """

    def identity(self, region: str | None = None) -> AccountIdentity:
        """Return which account this is by the provider's own word: its number, its project, this computer.

        Two accounts with one name have two identities; one account has the same for everybody who may use it. Where an
        account's regions are separate computers, `region` says which is meant. Asked over the network once, and kept.
        Raises AuthFailed or ProviderUnavailable where it cannot be known, NotReachableHere where there is no
        such region.
        """

    def available(self, requirements: Requirements) -> Availability:
        """Return what could satisfy the requirements, unpriced, in no order; no items when nothing can.

        A part (a region) that did not answer is named; when none did, its error is raised.
        """

    def launch(self, attempt: Attempt, *, deadline: datetime) -> Instance:
        """Ask for the machine and return once the cloud has accepted it.

        Idempotent on `attempt.token`. Raises NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest when it was
        surely not made; LaunchUncertain (or any other ProviderUnavailable) when that is not known.
        """

    def get(self, id: str) -> Instance:  # noqa: A002
        """Return the machine now; raise InstanceNotFound only when the provider answered that it has none."""

    def list(self) -> Listing:
        """Return every machine that carries a cloudgpu-id tag, of any ledger."""

    def terminate(self, id: str) -> None:  # noqa: A002
        """Ask to end the machine and all that was made with it. Idempotent; an unknown id is no error.

        The proof is a later `get`: InstanceNotFound or `terminated`. Raises EndRefused, with the command that lifts it,
        where something protects the machine from its end: it is stopped instead, where that can be.
        """


Factory = Callable[[ProviderSettings], Provider]


# What a provider sells at what price, for the catalogue. Apart from the protocols above: the list of a provider can be
# read before machines can be launched there. Raises when no part of the list answered.
PriceLister = Callable[[ProviderSettings], PriceList]
