"""What the fake cloud sells: two regions of two zones, a few machine types, both markets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from cloudgpu.core.catalog.matching import fits
from cloudgpu.core.model.offers import Accelerator, MachineConfiguration, Market, Requirements, Trust
from cloudgpu.core.values.money import Money

REGIONS: Mapping[str, tuple[str, ...]] = {"north": ("north-a", "north-b"), "south": ("south-a", "south-b")}
SPOT_SHARE = Decimal("0.3")  # made up: what a spot machine costs as a share of the same machine on demand

_STOPPABLE = "keeps its disk, which costs nothing in the fake cloud"
_ONE_TIME_SPOT = "a one-time spot machine cannot be stopped: it is ended, and its disk kept as an image"


@dataclass(frozen=True, slots=True)
class FakeType:
    """A machine type of the fake cloud; `usd` is its made-up price per hour on demand."""

    name: str
    accelerators: tuple[Accelerator, ...]
    vcpus: int
    memory_gib: float
    usd: str


MACHINE_TYPES: Mapping[str, FakeType] = {
    machine_type.name: machine_type
    for machine_type in (
        FakeType("fake.cpu", (), 2, 8, "0.10"),
        FakeType("fake.v100.1", (Accelerator("v100", 1, 16),), 8, 61, "3.00"),
        FakeType("fake.v100.4", (Accelerator("v100", 4, 16),), 32, 244, "12.00"),
        FakeType("fake.a100.1", (Accelerator("a100-40gb", 1, 40),), 12, 85, "3.60"),
        FakeType("fake.a100.8", (Accelerator("a100-80gb", 8, 80),), 96, 1360, "40.00"),
    )
}


def matching_offers(
    account: str, requirements: Requirements, trust: Mapping[str, Trust] | None = None
) -> list[MachineConfiguration]:
    """Return the offers that match the requirements, except for their trust, with or without capacity now.

    `trust` says, by machine type or by zone, whose computers the offers are.
    """
    trust_of, without_trust = trust or {}, replace(requirements, trust=Trust.COMMUNITY)
    all_offers = (
        _available(account, region, zone, machine_type, market, persistent=requirements.persistent)
        for region, zones in REGIONS.items()
        for zone in zones
        for machine_type in MACHINE_TYPES.values()
        for market in Market
    )
    trusted_offers = (
        replace(
            configuration,
            trust=trust_of.get(configuration.instance_type, trust_of.get(configuration.zone, configuration.trust)),
        )
        for configuration in all_offers
    )
    return [configuration for configuration in trusted_offers if fits(configuration, without_trust)]


def is_sold(configuration: MachineConfiguration) -> bool:
    """Say whether the cloud has this type in this zone on this market, with or without capacity now."""
    requirements = Requirements(
        instance_type=configuration.instance_type, zone=configuration.zone, market=configuration.market
    )
    return bool(matching_offers(configuration.account, requirements))


def usd_per_hour(configuration: MachineConfiguration, prices: Mapping[str, Decimal]) -> Money | None:
    """Return the price of an offer: `prices` (by type, on demand), else the usual one; None for an unknown type."""
    machine_type = MACHINE_TYPES.get(configuration.instance_type)
    amount = prices.get(configuration.instance_type, Decimal(machine_type.usd) if machine_type else None)
    if amount is None:
        return None
    return Money.usd(amount * SPOT_SHARE if configuration.market is Market.SPOT else amount)


def _available(
    account: str, region: str, zone: str, machine_type: FakeType, market: Market, *, persistent: bool
) -> MachineConfiguration:
    stoppable = persistent or market is Market.ON_DEMAND
    return MachineConfiguration(
        provider="fake",
        account=account,
        region=region,
        zone=zone,
        instance_type=machine_type.name,
        market=market,
        accelerators=machine_type.accelerators,
        vcpus=machine_type.vcpus,
        memory_gib=machine_type.memory_gib,
        stoppable=stoppable,
        stop_effect=_STOPPABLE if stoppable else _ONE_TIME_SPOT,
    )
