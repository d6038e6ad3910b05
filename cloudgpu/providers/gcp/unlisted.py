"""Machine types that the catalogue lacks, those without a GPU above all: found where they are named, by one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.offers import Available, Basis, Market, Price
from cloudgpu.core.values.money import Money
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.things import aggregated

if TYPE_CHECKING:
    from cloudgpu.providers.gcp.client import Gcp

_ARM = ("a4x-", "c4a-", "n4a-", "t2a-")  # "Arm-based machine types"
# What the smallest machines cost on demand, for a check of an account: from memory, and marked so where it is shown.
_RECALLED_REGIONS = ("us-central1", "us-east1", "us-west1")
_RECALLED = {"e2-micro": "0.008376", "e2-small": "0.016751", "e2-medium": "0.033503"}
_AS_OF = datetime(2025, 1, 1, tzinfo=UTC)


def places(gcp: Gcp, name: str) -> tuple[list[Mapping[str, Any]], tuple[Unanswered, ...]]:
    """Return what Google says of a machine type in each zone that has it, and who did not answer. A call per page.

    One that has GPUs is left out: what they are called is the catalogue's to say.
    """
    found, silent = aggregated(gcp, "machineTypes", filter=f"name={name}")
    return [one for one in found if one["name"] == name and not one.get("accelerators")], silent


def items(
    account: str, found: Sequence[Mapping[str, Any]], markets: Sequence[Market], stop_means: str
) -> tuple[Available, ...]:
    """Return these as offers, one for each zone and market."""
    return tuple(
        Available(
            provider="gcp",
            account=account,
            region=ids.region_of(zone) or "",
            zone=zone,
            instance_type=one["name"],
            market=market,
            vcpus=one.get("guestCpus"),
            memory_gib=one["memoryMb"] / 1024 if one.get("memoryMb") else None,
            stop_means=stop_means,
        )
        for one in found
        for zone in [ids.last(one["zone"])]
        for market in markets
    )


def architecture(name: str) -> str:
    """Return the processor of a machine type that the catalogue lacks, by its series."""
    return "arm64" if name.startswith(_ARM) else "x86_64"


def recalled_price(item: Available) -> Price | None:
    """Return what a small machine costs on demand, recalled; None for any other."""
    amount = _RECALLED.get(item.instance_type) if item.market is Market.ON_DEMAND else None
    if amount is None or item.region not in _RECALLED_REGIONS:
        return None
    return Price(Money.usd(Decimal(amount)), "Compute Engine pricing, from memory", _AS_OF, Basis.RECALLED)
