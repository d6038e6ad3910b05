"""What offers on vast.ai's market cost, and contracts: each what it was made at, whatever its host asks now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloudgpu.core.model.offers import Available, Basis, Market, Price
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InstanceNotFound
from cloudgpu.providers.vast import machines, market

if TYPE_CHECKING:
    from cloudgpu.providers.vast.client import Vast


def prices(vast: Vast, items: Sequence[Available]) -> list[Price | None]:
    """Return one price an hour per item, without its storage: of a contract its own, of an offer what is asked.

    One call per contract that was not looked at yet, and one per market for offers that were not seen.
    """
    for item in items:
        if item.machine is not None and item.machine not in vast.paid:
            _look_at(vast, item.machine)
    missing = [item for item in items if _paid(vast, item) is None and _key(item) not in vast.asked]
    for where in dict.fromkeys(item.market for item in missing):
        hosts = sorted({market.machine_of(item.zone) for item in missing if item.market is where})
        market.search(vast, where, {"machine_id": {"in": hosts}})
    return [_price(vast, item) for item in items]


def _look_at(vast: Vast, contract: str) -> None:
    """Look at a contract, so that its price is known; one that is gone has none."""
    try:
        machines.get(vast, contract)
    except InstanceNotFound:
        return


def _key(item: Available) -> tuple[str, str, str]:
    return item.zone, item.instance_type, str(item.market)


def _paid(vast: Vast, item: Available) -> str | None:
    """Return what the contract of an item costs; None for an offer, and for another market than the contract's."""
    found = vast.paid.get(item.machine or "")
    return None if found is None or found.market is not item.market else found.per_hour


def _price(vast: Vast, item: Available) -> Price | None:
    paid = _paid(vast, item)
    found = paid or vast.asked.get(_key(item))
    if found is None:
        return None
    whose = "offer" if paid is None else "contract"
    says = "what is bid for it" if item.market is Market.SPOT else "dph_base"
    source = f"vast.ai's own {whose} ({says}), without storage and traffic"
    return Price(Money.usd(found), source, vast.clock(), Basis.ASKED)
