"""Sets the fake cloud's limits and the prices of its spot machines.

Limits are how many GPUs an account may run, and which methods its credential may not call. Spot prices are those that
a test has set, each from its own time on; without them they never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from cloudgpu.core.model.account import Permission, Quota
from cloudgpu.core.model.offers import Basis, MachineConfiguration, Market, Price
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import QuotaExceeded
from cloudgpu.testing.fake.cloud import invalid_request
from cloudgpu.testing.fake.market import REGIONS, usd_per_hour
from cloudgpu.testing.fake.store import Cloud, FakeMachine

QUOTA_CODES: Mapping[Market, str] = {Market.ON_DEMAND: "fake-gpus-on-demand", Market.SPOT: "fake-gpus-spot"}
DEFAULT_QUOTA = 10_000.0  # GPUs
METHOD_PURPOSES: Mapping[str, str] = {
    "launch": "launch machines",
    "get": "look at machines",
    "list": "list machines",
    "terminate": "end machines",
    "stop": "stop machines",
    "start": "start machines",
    "tag": "extend leases",
    "resources": "list disks and images",
    "remove": "remove disks and images",
    "save_image": "make images",
    "terminate_keeping_disk": "park machines",
    "attach": "attach volumes",
    "quotas": "read quotas",
    "request_quota": "ask for a higher quota",
}
_OPTIONAL_METHODS = frozenset({"attach", "quotas", "request_quota"})


def quotas(cloud: Cloud, account: str, region: str, active_machines: Iterable[FakeMachine]) -> list[Quota]:
    """Return the quotas of a region; raise InvalidRequest for an unknown region."""
    check_region(region)
    machines = [machine for machine in active_machines if machine.region == region]
    return [_quota(cloud, account, region, market, machines) for market in Market]


def check_quota(
    cloud: Cloud, account: str, region: str, market: Market, gpus: int, active_machines: list[FakeMachine]
) -> None:
    """Raise QuotaExceeded if the quota does not allow so many more GPUs."""
    if not gpus:
        return
    quota = next(quota for quota in quotas(cloud, account, region, active_machines) if quota.market is market)
    limit, used = quota.limit or 0, quota.used or 0
    if used + gpus <= limit:
        return
    raise QuotaExceeded(
        f"{region} allows {limit:.0f} GPUs {'on spot' if market is Market.SPOT else 'on demand'}, {used:.0f} are used, "
        f"and this machine needs {gpus}",
        field="quota",
        value=quota.code,
        next=f"ask for more: cloudgpu quota --provider fake --region {region} --request {quota.code}={used + gpus:.0f}",
    )


def quota_page(region: str, code: str) -> str:
    """Return the page for a higher quota; raise InvalidRequest for an unknown region or quota code."""
    check_region(region)
    _check_code(code)
    return f"https://fake.invalid/quotas/{region}/{code}"


def request_quota(cloud: Cloud, region: str, code: str, limit: float) -> str:
    """Store a request for a higher quota and return its id; raise InvalidRequest if it is not higher than now."""
    check_region(region)
    _check_code(code)
    current = cloud.quotas.get(f"{region}/{code}", DEFAULT_QUOTA)
    if not limit > current:
        raise invalid_request(
            "--request", f"{limit:g}", f"{code} is {current:g} already in {region}", "ask for more than that"
        )
    cloud.requests.append(f"{region}/{code}={limit:g}")
    return f"request-{len(cloud.requests)}"


def permissions(cloud: Cloud) -> list[Permission]:
    """Return each method that acts on the cloud, and whether the credential may call it."""
    return [
        Permission(f"fake:{method}", method not in cloud.denied, purpose, needed=method not in _OPTIONAL_METHODS)
        for method, purpose in METHOD_PURPOSES.items()
    ]


def _check_code(code: str) -> None:
    if code not in QUOTA_CODES.values():
        raise invalid_request(
            "--request", code, f"{code} is not a quota of the fake cloud", f"use {' or '.join(QUOTA_CODES.values())}"
        )


def check_region(region: str) -> None:
    """Raise InvalidRequest for a region that the fake cloud does not have."""
    if region not in REGIONS:
        raise invalid_request(
            "--region", region, f"{region} is not a region of the fake cloud", f"use {' or '.join(REGIONS)}"
        )


def _quota(cloud: Cloud, account: str, region: str, market: Market, machines: Iterable[FakeMachine]) -> Quota:
    code = QUOTA_CODES[market]
    used = sum(gpu.count for machine in machines if machine.market is market for gpu in machine.accelerators)
    limit = cloud.quotas.get(f"{region}/{code}", DEFAULT_QUOTA)
    name = f"GPUs of machines {'on spot' if market is Market.SPOT else 'on demand'}"
    return Quota("fake", account, region, code, name, market, "GPU", limit, used)


FIRST_PRICE_AT = datetime(2020, 1, 1, tzinfo=UTC)
_PRICE_SOURCE = "the fake cloud's made-up spot prices"


def set_spot_price(cloud: Cloud, instance_type: str, zone: str, usd: str, at: datetime) -> None:
    """Set the price of a spot machine from the time `at` on."""
    cloud.spot.setdefault(f"{instance_type}/{zone}", []).append([iso(at), usd])


def has_set_price(cloud: Cloud, configuration: MachineConfiguration) -> bool:
    """Say whether a test has set a spot price for this offer."""
    return configuration.market is Market.SPOT and _price_key(configuration) in cloud.spot


def price_history(
    cloud: Cloud, configuration: MachineConfiguration, prices: Mapping[str, Decimal], now: datetime
) -> list[Price]:
    """Return all prices of a spot offer until now, oldest first; none for other offers, or an unknown machine type."""
    list_price = usd_per_hour(configuration, prices) if configuration.market is Market.SPOT else None
    if list_price is None:
        return []
    set_prices = sorted((from_iso(at), usd) for at, usd in cloud.spot.get(_price_key(configuration), ()))
    timeline = [(FIRST_PRICE_AT, list_price), *((at, Money.usd(usd)) for at, usd in set_prices if at <= now)]
    return [Price(amount, _PRICE_SOURCE, at, Basis.QUOTED) for at, amount in timeline]


def prices_since(prices: Sequence[Price], moment: datetime) -> list[Price]:
    """Return the price that held at `moment`, and all later ones."""
    price_in_force = [price for price in prices if price.as_of <= moment][-1:]
    return [*price_in_force, *(price for price in prices if price.as_of > moment)]


def _price_key(configuration: MachineConfiguration) -> str:
    return f"{configuration.instance_type}/{configuration.zone}"
