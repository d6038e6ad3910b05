"""The project's limits on GPUs: in a region by kind and market, and in all regions together. Read, never raised here.

Google returns them with the region and with the project ("Allocation quotas", Compute Engine's guide). The limits on
newer GPUs (H100 and after) are only in the Cloud Quotas API, which is not used: they are listed without a value.
Google's discovery documents have no API that raises limits: a person requests more on a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from cloudgpu.catalog import instance_type, listed_quotas, quotas_of
from cloudgpu.core.catalog.catalog import ListedQuota
from cloudgpu.core.model.account import Quota
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import CloudgpuError, InvalidRequest, QuotaExceeded
from cloudgpu.parallel import Pool
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import PROVIDER, Gcp
from cloudgpu.providers.gcp.market.availability import check_region

ALL_REGIONS = "GPUS_ALL_REGIONS"  # Google's metric of all GPUs of the project, whatever the region
QUOTA_PAGE = "https://console.cloud.google.com/iam-admin/quotas"
_SPOT_PREFIX = "PREEMPTIBLE_"
_GPU_METRIC = re.compile(rf"(?:{_SPOT_PREFIX})?NVIDIA_[A-Z0-9_]+_GPUS")
_WORKSTATION_SUFFIX = "_VWS_GPUS"  # GPUs with a licence for displays, which are not launched here
_QUOTA_CODE = re.compile(r"[A-Za-z0-9_-]+(?::[A-Z0-9_]+)?")
Limits = Mapping[str, tuple[float, float]]  # the limit and the usage of each metric


def check_quotas(gcp: Gcp, region: str, type_name: str, market: Market, machines: int = 1) -> list[str]:
    """Check the quotas for so many machines of a type; return what could not be checked, as remarks for the plan.

    Two calls: the region's limits, and the project's. Raises QuotaExceeded, with the page to request more, where a
    limit is too low. Running machines are not counted: Google does that at the launch.
    """
    catalogue_quotas = quotas_of(PROVIDER, type_name, market)
    if not catalogue_quotas:
        return [f"it is not known which quota of Google's counts {type_name}, so none was checked"]
    try:
        limits = _limits_of(gcp, region)
    except CloudgpuError as error:  # Google checks them itself when it launches
        return [f"the quotas of GPUs in {region} could not be read: {error.message}"]
    return [
        problem
        for catalogue_quota in catalogue_quotas
        if (problem := _check_quota(gcp, catalogue_quota, region, type_name, limits, machines)) is not None
    ]


def _check_quota(
    gcp: Gcp, quota: ListedQuota, region: str, type_name: str, limits: Limits, machines: int
) -> str | None:
    """Return what could not be checked of one limit; raise QuotaExceeded where it is too small."""
    limit = _limit_and_usage(quota, limits)
    if limit is None:
        scope_text = "in all regions together" if quota.is_overall else f"in {region}"
        return f"Google does not tell here how many {quota.name} may run {scope_text} ({quota.code}): not checked"
    on_demand_code = quota.code.removeprefix(_SPOT_PREFIX)
    if limit[0] == 0 and on_demand_code != quota.code and limits.get(on_demand_code, (0.0, 0.0))[0]:
        # Without a limit of its own a spot machine counts as any other ("Preemptible quotas", Compute Engine's guide).
        problem = _check_quota(gcp, replace(quota, code=on_demand_code), region, type_name, limits, machines)
        return problem or f"{quota.code} in {region} is 0: Google counts spot machines by {on_demand_code} then"
    if limit[0] < machines * quota.amount_of(instance_type(PROVIDER, type_name)):
        raise _too_small_error(gcp, quota, region, type_name, limit[0], machines)
    return None


def _too_small_error(
    gcp: Gcp, quota: ListedQuota, region: str, type_name: str, limit: float, machines: int
) -> QuotaExceeded:
    scope_text = "in all regions together" if quota.is_overall else f"in {region}"
    needed = machines * quota.amount_of(instance_type(PROVIDER, type_name))
    machines_text = f"{type_name} has" if machines == 1 else f"{machines} x {type_name} have"
    return QuotaExceeded(
        f"The quota {quota.name!r} ({quota.code}) allows {limit:g} {scope_text}, and {machines_text} {needed}.",
        field="quota",
        value=quota.code,
        next=f"Request more: {quota_page(gcp, region, quota.code)}",
    )


def _limit_and_usage(quota: ListedQuota, limits: Limits) -> tuple[float, float] | None:
    """Return limit and usage of a quota; one with a code of Cloud Quotas is looked up by its old metric name."""
    family = quota.code.partition(":")[2]
    metric = f"{_SPOT_PREFIX if quota.market is Market.SPOT else ''}{family}_GPUS" if family else quota.code
    return limits.get(metric)


def quotas(gcp: Gcp, region: str) -> list[Quota]:
    """Return the limits on GPUs in a region, and how many of each the project uses. Two calls.

    Raises InvalidRequest for a region that the account does not use.
    """
    check_region(gcp, region)
    limits = _limits_of(gcp, region)
    catalogue_quotas = {
        listed_quota.code: listed_quota for listed_quota in reversed(listed_quotas(PROVIDER))
    }  # one of both markets once, as on demand
    from_catalogue = [
        _quota(gcp, region, catalogue_quota, _limit_and_usage(catalogue_quota, limits))
        for catalogue_quota in reversed(catalogue_quotas.values())
    ]
    other_codes = (code for code in limits if code not in catalogue_quotas and _is_gpu_metric(code))
    return [*from_catalogue, *(_quota(gcp, region, _quota_of_metric(code), limits[code]) for code in other_codes)]


def _is_gpu_metric(code: str) -> bool:
    return bool(_GPU_METRIC.fullmatch(code)) and not code.endswith(_WORKSTATION_SUFFIX)


def _quota_of_metric(code: str) -> ListedQuota:
    """Return a quota for a metric of Google's that the catalogue does not have."""
    market = Market.SPOT if code.startswith(_SPOT_PREFIX) else Market.ON_DEMAND
    kind = code.removeprefix(_SPOT_PREFIX).removeprefix("NVIDIA_").removesuffix("_GPUS")
    name = f"{'Spot' if market is Market.SPOT else 'Running'} {kind} GPUs"
    return ListedQuota(PROVIDER, code, name, market, "GPU", (), "the region", "")


def _quota(gcp: Gcp, region: str, quota: ListedQuota, limits: tuple[float, float] | None) -> Quota:
    limit, usage = limits or (None, None)
    return Quota(PROVIDER, gcp.account, region, quota.code, quota.name, quota.market, quota.unit, limit, usage)


def _limits_of(gcp: Gcp, region: str) -> Limits:
    """Return the limits of the region and of the project, read in parallel."""
    with Pool(2) as pool:
        region_answer = pool.submit(gcp.call, "compute.regions.get", region, value=region, region=region)
        project_answer = pool.submit(gcp.call, "compute.projects.get")
        return dict([*quota_metrics(region_answer.result()), *quota_metrics(project_answer.result())])


def quota_metrics(answer: Mapping[str, Any]) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield the metrics of a region's or a project's answer, each with its limit and its usage."""
    quota_entries: Iterable[Mapping[str, Any]] = answer.get("quotas", ())
    return (
        (entry["metric"], (float(entry.get("limit", 0)), float(entry.get("usage", 0))))
        for entry in quota_entries
        if "metric" in entry
    )


def quota_page(gcp: Gcp, region: str, code: str) -> str:
    """Return the URL of the console's page of quotas, for the project and this metric. Sends no request.

    That the page takes the metric from its address is unverified: else it shows all of them. Raises InvalidRequest for
    an invalid region or code.
    """
    if not ids.REGION.fullmatch(region) or not _QUOTA_CODE.fullmatch(code):
        remedy = "For example NVIDIA_T4_GPUS in us-central1."
        raise InvalidRequest(f"{code!r} is not a quota of {region!r}.", field="--request", value=code, next=remedy)
    region_parameter = {} if code == ALL_REGIONS else {"region": region}
    parameters = {"project": gcp.project, "service": "compute.googleapis.com", "metric": code, **region_parameter}
    return f"{QUOTA_PAGE}?{urlencode(parameters, safe=':')}"
