"""Whether the subscription's limits leave room for a machine: read before the launch, which Azure would refuse late."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cloudgpu.core.model.offers import Market
from cloudgpu.errors import CloudgpuError, QuotaExceeded
from cloudgpu.providers.azure.market import quotas

if TYPE_CHECKING:
    from cloudgpu.providers.azure.client import Azure
    from cloudgpu.providers.azure.ids import Sku

Raw = Mapping[str, Any]


def check(azure: Azure, region: str, sku: Sku, market: Market, machines: int = 1) -> str | None:
    """Return what could not be checked, as a remark for the plan; None where there is room for so many. One call.

    A machine counts for its family and for the region's total, one on spot for `lowPriorityCores` alone ("Check vCPU
    quotas", Azure Virtual Machines). Raises QuotaExceeded, with the page where a person asks for more.
    """
    if sku.vcpus is None:
        return f"it is not known how many vCPUs {sku.name} counts, so no limit was checked"
    try:
        found = {_name(one).lower(): one for one in quotas.usages(azure, region)}
    except CloudgpuError as error:
        return f"the limits on vCPUs in {region} could not be read: {error.message}"
    codes = (quotas.SPOT,) if market is Market.SPOT else (sku.family, quotas.TOTAL)
    missing = [code for code in codes if code.lower() not in found]
    for one in _of(found, codes):
        _refuse_full(azure, region, one, sku, machines)
    return f"Azure tells no limit {' or '.join(missing)} in {region}, so that was not checked" if missing else None


def _of(found: Mapping[str, Raw], codes: Iterable[str]) -> list[Raw]:
    return [found[code.lower()] for code in codes if code.lower() in found]


def _refuse_full(azure: Azure, region: str, one: Raw, sku: Sku, machines: int) -> None:
    used, needed = int(one.get("currentValue") or 0), machines * (sku.vcpus or 0)
    what = f"{sku.name} needs" if machines == 1 else f"{machines} x {sku.name} need"
    limit = one.get("limit")
    if limit is None or used + needed <= int(limit):
        return
    name, words = _name(one), (one.get("name") or {}).get("localizedValue") or _name(one)
    page = quotas.page(region, name)
    raise QuotaExceeded(
        f"The limit {words!r} ({name}) in {region} allows {limit} vCPUs, of which {used} are used, and {what} "
        f"{needed}.",
        field="quota",
        value=name,
        next=f"Run: cloudgpu quota --provider azure --account {azure.account} --region {region} "
        f"--request '{name}={used + needed}'; or ask at {page}",
    )


def _name(one: Raw) -> str:
    return str((one.get("name") or {}).get("value") or "")
