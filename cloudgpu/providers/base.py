"""The protocol that every provider implements; `providers.abilities` has one more for each further ability.

A provider is made by a factory `(ProviderSettings) -> Provider` found under the entry-point group
`cloudgpu.providers`. Making one sends nothing over the network; SDKs are imported inside methods.
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

ENTRY_POINT_GROUP = "cloudgpu.providers"


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """What a factory gets: `account` is the configured name, `options` its table of config.toml.

    `home` is a directory for files of this provider and account alone. `clock` returns aware UTC. `pause` sleeps so
    many seconds. `ledger` is the ledger's id: only volumes of this ledger match a name; empty means any. A new ledger
    has no id yet; `current_ledger_id` returns it once it has. `notify` shows the user a warning if a call succeeded but
    a side task failed. `patience` is how many seconds a read may go unanswered.
    `regions_in_use` returns the regions in which the ledger has machines of this kind of provider: a listing then
    covers these and the regions it found within the last day; None: it asks the provider which regions there are.
    `renamed_hosts` maps the old name of each of your own hosts that was renamed to its new one.
    `clock_ahead` returns by how much this computer's own clock is ahead of `clock`, if it is known to be wrong.
    """

    account: str
    options: Mapping[str, Any]
    home: Path
    clock: Callable[[], datetime]
    pause: Callable[[float], None] = time.sleep
    ledger: str = ""
    current_ledger_id: Callable[[], str] = str  # str() is "": no ledger
    notify: Callable[[str], object] = str  # shows nothing
    patience: float = field(default_factory=patience_s)
    renamed_hosts: Mapping[str, str] = field(default_factory=dict)
    regions_in_use: Callable[[], Collection[str] | None] = lambda: None
    clock_ahead: Callable[[], timedelta] = timedelta  # timedelta() is zero


@dataclass(frozen=True, slots=True)
class TokenRule:
    """How the provider treats the idempotency token of a launch (`Attempt.token`).

    Within `lifetime` of the first call, the same token with the same parameters never makes a second machine.
    `listing_proves_after`: this long after the call, a complete listing without the machine proves that it was not
    made. `gone_proves_after`: this long after the call, a 404 from `get` proves that a machine seen before has ended.
    If `get` has returned it in between, a 404 proves it at once. None: use `listing_proves_after`. `source` names the
    document in which the provider promises this.
    """

    lifetime: timedelta
    listing_proves_after: timedelta  # when a listing without the machine proves that none was made
    source: str
    gone_proves_after: timedelta | None = None  # when a 404 by its id proves the end of a machine that was seen

    @property
    def not_found_proves_end_after(self) -> timedelta:
        """How long after the launch call a 404 for a machine that was seen before proves that it has ended."""
        return self.listing_proves_after if self.gone_proves_after is None else self.gone_proves_after


class Provider(Protocol):
    """What every provider can do."""

    kind: str  # "local", "aws", ...
    account: str
    token_rule: TokenRule
    supported_parts: frozenset[str]  # kinds of a template's parts (`packages`, ...) that it runs; a plan names others

    @property
    def guards(self) -> Safeguards:
        """What can end its machines, apart from runs of `reap`, in this account as it is set up. Sends nothing.

        A launch may have less: `Resolved.agent` says so.
        """

    def identity(self, region: str | None = None) -> AccountIdentity:
        """Return which account this is, as the provider identifies it: an account number, a project, this computer.

        Two accounts with one name have two identities; one account has the same for everybody who may use it. Where an
        account's regions are separate computers, `region` says which is meant. Fetched once, then cached.
        Raises AuthFailed or ProviderUnavailable where it cannot be known, NotReachableHere where there is no
        such region.
        """

    def available(self, requirements: Requirements) -> Availability:
        """Return what could satisfy the requirements, without prices, in no order; no items when nothing can.

        A region that did not answer is named; when none did, the error of one is raised.
        """

    def launch(self, attempt: Attempt, *, deadline: datetime) -> Instance:
        """Request the machine and return once the cloud has accepted it.

        Idempotent on the idempotency token `attempt.token`. Raises NoCapacity, QuotaExceeded, AuthFailed,
        InvalidRequest when it was surely not made; LaunchUncertain (or any other ProviderUnavailable) when that is not
        known.
        """

    def get(self, id: str) -> Instance:  # noqa: A002
        """Return the machine as it is now; raise InstanceNotFound only when the provider answers that it has none."""

    def list(self) -> Listing:
        """Return every machine that carries a cloudgpu-id tag, of any ledger."""

    def terminate(self, id: str) -> None:  # noqa: A002
        """Request the end of the machine and all that was made with it. Idempotent; an unknown id is no error.

        A later `get` proves the end: InstanceNotFound or `terminated`. Raises EndRefused, with the command that lifts
        it, where something protects the machine from termination: it is stopped instead, if it can be.
        """


Factory = Callable[[ProviderSettings], Provider]  # makes the provider of one configured account


# Returns a provider's price list for the catalogue. It is no method of `Provider`: a price list can be read for a
# provider where no machine can be launched. Raises when no part of the list answered.
PriceLister = Callable[[ProviderSettings], PriceList]
