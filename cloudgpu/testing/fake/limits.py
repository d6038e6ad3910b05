"""Sets the fake cloud's limits and the prices of its spot machines.

Limits are how many GPUs an account may run, and what its credential may not do. Spot prices, now and in the past, are
as a test tells them, else always the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from cloudgpu.core.model.account import Permission, Quota
from cloudgpu.core.model.offers import Available, Basis, Market, Price
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import QuotaExceeded
from cloudgpu.testing.fake.cloud import refused
from cloudgpu.testing.fake.machines import FakeMachine
from cloudgpu.testing.fake.market import REGIONS, usd_per_hour
from cloudgpu.testing.fake.store import Cloud

CODES: Mapping[Market, str] = {Market.ON_DEMAND: "fake-gpus-on-demand", Market.SPOT: "fake-gpus-spot"}
DEFAULT = 10_000.0  # GPUs
USES: Mapping[str, str] = {
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
_NOT_NEEDED = frozenset({"attach", "quotas", "request_quota"})


def quotas(cloud: Cloud, account: str, region: str, living: Iterable[FakeMachine]) -> list[Quota]:
    """Return the limits of a region; raise InvalidRequest for one that is none."""
    check_region(region)
    machines = [machine for machine in living if machine.region == region]
    return [_quota(cloud, account, region, market, machines) for market in Market]


def check_quota(cloud: Cloud, account: str, region: str, market: Market, more: int, living: list[FakeMachine]) -> None:
    """Raise QuotaExceeded where so many GPUs more are not allowed."""
    if not more:
        return
    quota = next(one for one in quotas(cloud, account, region, living) if one.market is market)
    limit, used = quota.limit or 0, quota.used or 0
    if used + more <= limit:
        return
    raise QuotaExceeded(
        f"{region} allows {limit:.0f} GPUs {'on spot' if market is Market.SPOT else 'on demand'}, {used:.0f} are used, "
        f"and this machine needs {more}",
        field="quota",
        value=quota.code,
        next=f"ask for more: cloudgpu quota --provider fake --region {region} --request {quota.code}={used + more:.0f}",
    )


def page(region: str, code: str) -> str:
    """Return where a person would ask for a higher limit; raise InvalidRequest for a region or a limit that is none."""
    check_region(region)
    _check_code(code)
    return f"https://fake.invalid/quotas/{region}/{code}"


def request(cloud: Cloud, region: str, code: str, limit: float) -> str:
    """Keep a request for a higher limit and return its id; raise InvalidRequest for what nobody could grant."""
    check_region(region)
    _check_code(code)
    now = cloud.quotas.get(f"{region}/{code}", DEFAULT)
    if not limit > now:
        raise refused("--request", f"{limit:g}", f"{code} is {now:g} already in {region}", "ask for more than that")
    cloud.requests.append(f"{region}/{code}={limit:g}")
    return f"request-{len(cloud.requests)}"


def permissions(cloud: Cloud) -> list[Permission]:
    """Return each method that acts on the cloud, and whether the credential may call it."""
    return [
        Permission(f"fake:{method}", method not in cloud.denied, use, needed=method not in _NOT_NEEDED)
        for method, use in USES.items()
    ]


def _check_code(code: str) -> None:
    if code not in CODES.values():
        raise refused(
            "--request", code, f"{code} is not a quota of the fake cloud", f"use {' or '.join(CODES.values())}"
        )


def check_region(region: str) -> None:
    """Raise InvalidRequest for a region that the fake cloud does not have."""
    if region not in REGIONS:
        raise refused("--region", region, f"{region} is not a region of the fake cloud", f"use {' or '.join(REGIONS)}")


def _quota(cloud: Cloud, account: str, region: str, market: Market, machines: Iterable[FakeMachine]) -> Quota:
    code = CODES[market]
    used = sum(gpu.count for machine in machines if machine.market is market for gpu in machine.accelerators)
    limit = cloud.quotas.get(f"{region}/{code}", DEFAULT)
    name = f"GPUs of machines {'on spot' if market is Market.SPOT else 'on demand'}"
    return Quota("fake", account, region, code, name, market, "GPU", limit, used)


SINCE_EVER = datetime(2020, 1, 1, tzinfo=UTC)
_SOURCE = "the fake cloud's made-up spot prices"


def set_price(cloud: Cloud, instance_type: str, zone: str, usd: str, at: datetime) -> None:
    """Keep a price with the time from which it holds."""
    cloud.spot.setdefault(f"{instance_type}/{zone}", []).append([iso(at), usd])


def has_price(cloud: Cloud, item: Available) -> bool:
    """Say whether a test has told what this costs."""
    return item.market is Market.SPOT and _key(item) in cloud.spot


def history(cloud: Cloud, item: Available, prices: Mapping[str, Decimal], now: datetime) -> list[Price]:
    """Return all prices of a spot item until now, oldest first; none for what is no spot item, or not sold here."""
    usual = usd_per_hour(item, prices) if item.market is Market.SPOT else None
    if usual is None:
        return []
    told = sorted((from_iso(at), usd) for at, usd in cloud.spot.get(_key(item), ()))
    every = [(SINCE_EVER, usual), *((at, Money.usd(usd)) for at, usd in told if at <= now)]
    return [Price(amount, _SOURCE, at, Basis.ASKED) for at, amount in every]


def since(prices: Sequence[Price], moment: datetime) -> list[Price]:
    """Return those from the one that held at `moment` on."""
    before = [price for price in prices if price.as_of <= moment][-1:]
    return [*before, *(price for price in prices if price.as_of > moment)]


def _key(item: Available) -> str:
    return f"{item.instance_type}/{item.zone}"
