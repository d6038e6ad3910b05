"""Offers that were refused while a launch looks for one, and the further ones that need not be tried for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudgpu.core.model.offers import Offer
from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    InvalidRequest,
    LedgerUnavailable,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudgpu.core.catalog.catalog import ListedQuota
    from cloudgpu.core.model.offers import Available

Faults = tuple[type[CloudgpuError], ...]
_OF_OFFERS: Faults = (NoCapacity, QuotaExceeded)
_OF_ACCOUNTS: Faults = (AuthFailed, InvalidRequest, ProviderUnavailable)


@dataclass
class Refused:
    """The refusals so far, in order. `anywhere`: offers of several accounts are tried, and one's fault is its own."""

    anywhere: bool
    each: list[tuple[Offer, CloudgpuError]] = field(default_factory=list)
    _full: set[tuple[str, str, str]] = field(default_factory=set)  # account, region and market whose quota is used up

    @property
    def unsent(self) -> Faults:
        """The faults of a look-up after which the next offer is tried: nothing was asked for yet."""
        return _OF_OFFERS + _OF_ACCOUNTS if self.anywhere else _OF_OFFERS

    @property
    def sent(self) -> Faults:
        """The faults of a launch after which the next offer is tried: nothing was made, and that is known for sure."""
        return (NoCapacity, QuotaExceeded, AuthFailed) if self.anywhere else (NoCapacity,)

    def add(self, offer: Offer, fault: CloudgpuError, *, sent: bool = False) -> str:
        """Remember a refusal, and return the sentence that says it. Raises what says nothing about an offer."""
        if isinstance(fault, LedgerUnavailable):
            raise fault
        self.each.append((offer, fault))
        item = offer.available
        if sent and isinstance(fault, QuotaExceeded):
            self._full.add((item.account, item.region, str(item.market)))
        place = f"{item.account}, {item.zone or item.region}" if self.anywhere else item.zone
        return f"{place}: {fault.message}"

    def bars(self, offer: Offer) -> bool:
        """Say whether what was refused rules this offer out too: a limit of the account, or the account itself."""
        item = offer.available
        if self.anywhere and (item.account, item.region, str(item.market)) in self._full:
            return True
        return item.account in self.accounts or is_limited(offer, self.each)

    @property
    def accounts(self) -> set[str]:
        """The accounts of which no offer can be launched."""
        return {stopped.available.account for stopped, fault in self.each if isinstance(fault, _OF_ACCOUNTS)}

    @property
    def first(self) -> CloudgpuError | None:
        """The first refusal, of the kinds that say most: a quota can be raised, capacity comes back."""
        faults = [fault for _, fault in self.each]
        return next((fault for fault in faults if isinstance(fault, _OF_OFFERS)), next(iter(faults), None))


def is_limited(offer: Offer, refusals: Sequence[tuple[Offer, CloudgpuError]]) -> bool:
    """Say whether a limit that stopped an offer in the same region stops this one: it needs no less of the same."""
    return any(isinstance(fault, QuotaExceeded) and _stops(fault, stopped, offer) for stopped, fault in refusals)


def _stops(fault: QuotaExceeded, stopped: Offer, offer: Offer) -> bool:
    from cloudgpu.catalog import quotas_of  # reads the whole catalogue

    before, now = stopped.available, offer.available
    if (before.provider, before.account) != (now.provider, now.account):
        return False
    limits = [one for one in quotas_of(now.provider, now.instance_type, now.market) if one.code == fault.value]
    limits = [one for one in limits if one.is_overall or before.region == now.region]
    return any(_counted(one, now) >= _counted(one, before) for one in limits)


def _counted(quota: ListedQuota, item: Available) -> int:
    """Return how much of a limit an offer takes, in its unit."""
    return sum(gpu.count for gpu in item.accelerators) if quota.unit == "GPU" else item.vcpus or 0
