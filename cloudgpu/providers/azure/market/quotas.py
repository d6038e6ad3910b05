"""The subscription's limits on vCPUs of machines with GPUs: read with what is used, checked, and raised on request.

A size counts for its family and for the region's total; a spot machine of whatever size counts for `lowPriorityCores`
alone ("Check vCPU quotas", Azure Virtual Machines).
"""

from __future__ import annotations

import re
from typing import Any

from cloudgpu.core.model.account import Quota
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.naming import closest_match, did_you_mean
from cloudgpu.errors import CloudgpuError, InvalidRequest, QuotaExceeded
from cloudgpu.providers.azure.calls import read_list
from cloudgpu.providers.azure.client import Azure, Raw
from cloudgpu.providers.azure.ids import Sku
from cloudgpu.providers.azure.market.availability import check_region

SPOT_CODE, TOTAL_CODE = "lowPriorityCores", "cores"
_GPU_FAMILY = re.compile(r"standard\s*N[CDGV]", re.IGNORECASE)  # families of sizes with GPUs: NC, ND, NG, NV
QUOTA_PAGE = "https://portal.azure.com/#view/Microsoft_Azure_Capacity/QuotaMenuBlade/~/myQuotas"


def quotas(azure: Azure, region: str) -> list[Quota]:
    """Return the limits on GPU machines in a region, and the vCPUs used of each by anyone. One call per page.

    Raises InvalidRequest for a region that the account does not use.
    """
    check_region(azure, region)
    return [_quota(azure, region, one) for one in usages(azure, region) if _is_relevant(str(one["name"]["value"]))]


def usages(azure: Azure, region: str) -> list[Raw]:
    """Return every limit of a region as Azure returns it: `name.value`, `limit`, `currentValue`. One call per page."""
    action, list_usages = "Microsoft.Compute/locations/usages/read", azure.compute.usage.list
    return read_list(azure, action, lambda: list_usages(region), region=region)


def quota_page(_azure: Azure, _region: str, _code: str) -> str:
    """Return where a person asks for a higher limit: the portal's page of quotas, which has to be filtered there."""
    return QUOTA_PAGE


def request(azure: Azure, region: str, code: str, limit: float) -> str:
    """Ask Azure for a higher limit; return the request's id. Two calls, and it is not waited for.

    Raises InvalidRequest for an unknown code, or a limit that is not higher.
    """
    check_region(azure, region)
    usage_by_code = {str(one["name"]["value"]): one for one in usages(azure, region)}
    if code not in usage_by_code:
        message = f"{code!r} is not a limit of Azure in {region}" + did_you_mean(
            closest_match(code, [name for name in usage_by_code if _is_relevant(name)]), "."
        )
        remedy = f"See them: cloudgpu quota --provider azure --region {region}"
        raise InvalidRequest(message, field="--request", value=code, next=remedy)
    current_limit = float(usage_by_code[code]["limit"])
    if limit <= current_limit:
        message = f"The limit {code} in {region} is {current_limit:g} already."
        raise InvalidRequest(message, field="--request", value=f"{code}={limit:g}", next="Ask for more than that.")
    return _request_limit(azure, region, code, limit)


def _request_limit(azure: Azure, region: str, code: str, limit: float) -> str:
    scope = f"subscriptions/{azure.subscription}/providers/Microsoft.Compute/locations/{region}"
    properties = {
        "limit": {"limitObjectType": "LimitValue", "value": round(limit)},
        "name": {"value": code},
        "resourceType": "lowPriority" if code == SPOT_CODE else "dedicated",
    }
    headers: dict[str, str] = {}

    def keep_headers(response: Any) -> None:
        headers.update({key.lower(): value for key, value in response.http_response.headers.items()})

    with azure.calling("Microsoft.Quota/quotas/write", region, value=code):
        azure.client("quota").quota.begin_create_or_update(
            code, scope, {"properties": properties}, polling=False, raw_response_hook=keep_headers
        )
    operation_url = headers.get("location") or headers.get("azure-asyncoperation") or f"{scope}/{code}"
    return operation_url.partition("?")[0].rstrip("/").rpartition("/")[2]


def _is_relevant(code: str) -> bool:
    return code in (SPOT_CODE, TOTAL_CODE) or _GPU_FAMILY.match(code) is not None


def _quota(azure: Azure, region: str, raw: Raw) -> Quota:
    code, name = str(raw["name"]["value"]), str(raw["name"].get("localizedValue") or raw["name"]["value"])
    market = Market.SPOT if code == SPOT_CODE else Market.ON_DEMAND
    limit, used = float(raw["limit"]), float(raw["currentValue"])
    return Quota("azure", azure.account, region, code, name, market, "vCPU", limit, used)


def check(azure: Azure, region: str, sku: Sku, market: Market, machine_count: int = 1) -> str | None:
    """Return what could not be checked, as a remark for the plan; None where the limits are large enough. One call.

    A machine counts for its family and for the region's total, one on spot for `lowPriorityCores` alone ("Check vCPU
    quotas", Azure Virtual Machines). Raises QuotaExceeded, with the page where a person asks for more.
    """
    if sku.vcpus is None:
        return f"it is not known how many vCPUs {sku.name} counts, so no limit was checked"
    try:
        usage_by_code = {_name(one).lower(): one for one in usages(azure, region)}
    except CloudgpuError as error:
        return f"the limits on vCPUs in {region} could not be read: {error.message}"
    codes = (SPOT_CODE,) if market is Market.SPOT else (sku.family, TOTAL_CODE)
    missing = [code for code in codes if code.lower() not in usage_by_code]
    for code in codes:
        if code.lower() in usage_by_code:
            _check_limit(azure, region, usage_by_code[code.lower()], sku, machine_count)
    return f"Azure tells no limit {' or '.join(missing)} in {region}, so that was not checked" if missing else None


def _check_limit(azure: Azure, region: str, raw: Raw, sku: Sku, machine_count: int) -> None:
    used_vcpus, needed_vcpus = int(raw.get("currentValue") or 0), machine_count * (sku.vcpus or 0)
    launch_text = f"{sku.name} needs" if machine_count == 1 else f"{machine_count} x {sku.name} need"
    limit = raw.get("limit")
    if limit is None or used_vcpus + needed_vcpus <= int(limit):
        return
    name, display_name = _name(raw), (raw.get("name") or {}).get("localizedValue") or _name(raw)
    raise QuotaExceeded(
        f"The limit {display_name!r} ({name}) in {region} allows {limit} vCPUs, of which {used_vcpus} are used, and "
        f"{launch_text} {needed_vcpus}.",
        field="quota",
        value=name,
        next=f"Run: cloudgpu quota --provider azure --account {azure.account} --region {region} "
        f"--request '{name}={used_vcpus + needed_vcpus}'; or ask at {QUOTA_PAGE}",
    )


def _name(raw: Raw) -> str:
    return str((raw.get("name") or {}).get("value") or "")
