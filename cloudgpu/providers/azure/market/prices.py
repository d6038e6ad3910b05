"""What offers cost now: by the dated list, and asked of the retail price list where that says nothing, or is old."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.catalog import listed_price
from cloudgpu.core.model.offers import Available, Market, Price
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.azure.client import KIND
from cloudgpu.providers.azure.market.pricelist import AT_ONCE, part_from
from cloudgpu.providers.azure.market.retail import Retail
from cloudgpu.providers.shared.calls import by_item

if TYPE_CHECKING:
    from cloudgpu.providers.azure.client import Azure

OLD = timedelta(days=90)  # of a spot price in the dated list
PriceKey = tuple[str, str]  # size and region


def prices(azure: Azure, offers: Sequence[Available]) -> list[Price | None]:
    """Return one price per offer, in order; None where nobody knows one: no estimate stands in for a spot price.

    One call per size and region that the dated list lacks, or of which it has a spot price that is older than `OLD`:
    those move from month to month (Microsoft Learn, "Use Azure Spot Virtual Machines"). A price list that does not
    answer is no fault of an offer: the dated price stands, where there is one.
    """
    listed = [listed_price(KIND, one.instance_type, one.region, one.market) for one in offers]
    since = azure.clock() - OLD
    to_ask = sorted({_key(one) for one, price in zip(offers, listed, strict=True) if _is_to_ask(price, one, since)})
    asked = _asked(azure, to_ask) if to_ask else {}
    return [
        (asked.get(_key(one), {}).get(one.market) or price) if _is_to_ask(price, one, since) else price
        for one, price in zip(offers, listed, strict=True)
    ]


def _is_to_ask(price: Price | None, item: Available, since: datetime) -> bool:
    return price is None or (item.market is Market.SPOT and price.as_of < since)


def _key(item: Available) -> PriceKey:
    return item.instance_type, item.region


def _asked(azure: Azure, type_regions: Sequence[PriceKey]) -> dict[PriceKey, Mapping[Market, Price]]:
    try:
        server = Retail(azure.patience.read_s)
    except CloudgpuError:
        return {}
    return by_item(type_regions, lambda type_region: _of(azure, server, type_region), AT_ONCE)


def _of(azure: Azure, server: Retail, type_region: PriceKey) -> Mapping[Market, Price]:
    """Return what the price list tells of a size in a region, by market."""
    name, region = type_region
    meant = (
        f"serviceName eq 'Virtual Machines' and armRegionName eq '{region}' and armSkuName eq '{name}' "
        "and priceType eq 'Consumption'"
    )
    try:
        part = part_from(server.items(meant), region, azure.clock())
    except CloudgpuError:
        return {}
    return {
        machine.key.market: machine.per_hour()
        for machine in part.rows
        if machine.key.market is not None and machine.key.item == name
    }
