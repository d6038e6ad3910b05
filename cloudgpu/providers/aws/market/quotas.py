"""The account's limits on vCPUs: read, compared with what is wanted and what runs, a higher limit requested."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cloudgpu.catalog import instance_type, instance_types, listed_quotas, quota_of
from cloudgpu.core.catalog.catalog import ListedQuota
from cloudgpu.core.model.account import Quota
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import AuthFailed, InvalidRequest, ProviderUnavailable, QuotaExceeded
from cloudgpu.parallel import Pool
from cloudgpu.providers.aws.client import PROVIDER, Aws, describe_instances, pages
from cloudgpu.providers.aws.errors import code_of
from cloudgpu.providers.aws.market.availability import check_region
from cloudgpu.providers.shared.errors import Tolerating

SERVICE = "service-quotas"
_COUNTED_STATES = [
    {"Name": "instance-state-name", "Values": ["pending", "running"]}
]  # stopped machines count for no quota


def check(aws: Aws, region: str, name: str, market: Market, vcpus: int | None, machine_count: int = 1) -> str | None:
    """Check the quota of `name`, an instance type; return what could not be checked, for the plan, else None. One call.

    `vcpus` are those of all `machine_count` together.

    Raises QuotaExceeded where the limit is below `vcpus`. What runs already is not counted: that AWS does at launch.
    """
    quota = quota_of(PROVIDER, name, market)
    if quota is None or vcpus is None:
        return f"it is not known which quota of AWS counts {name}, so none was checked"
    try:
        limit = _limit(aws, region, quota.code)
    except (AuthFailed, ProviderUnavailable) as error:
        return f"the quota {quota.name} ({quota.code}) in {region} could not be read: {error.message}"
    if limit is not None and limit < vcpus:
        raise _too_small_error(quota, region, name if machine_count == 1 else f"{machine_count} x {name}", limit, vcpus)
    return None if limit is not None else f"AWS gives no limit for {quota.name} ({quota.code}) in {region}"


def _too_small_error(quota: ListedQuota, region: str, launch_text: str, limit: float, vcpus: int) -> QuotaExceeded:
    return QuotaExceeded(
        f"The quota {quota.name!r} ({quota.code}) in {region} allows {limit:g} vCPUs, and {launch_text} needs {vcpus}.",
        field="quota",
        value=quota.code,
        next=f"Run: cloudgpu quota --provider aws --region {region} --request {quota.code}={vcpus}",
    )


def _limit(aws: Aws, region: str, code: str) -> float | None:
    """Return a limit; None where AWS has none for this account."""
    with (
        Tolerating(code_of, "NoSuchResourceException"),
        aws.calling("servicequotas:GetServiceQuota", region, value=code),
    ):
        found = aws.client(SERVICE, region).get_service_quota(ServiceCode="ec2", QuotaCode=code)
        return float(found["Quota"]["Value"])
    return None


def quotas(aws: Aws, region: str) -> list[Quota]:
    """Return the limits on running GPU machines in a region, and the vCPUs used of each by anyone in the account.

    Two calls and their pages, side by side. Raises InvalidRequest for a region that the account does not use.
    """
    check_region(aws, region)
    with Pool(2) as pool:
        limits, vcpus_in_use = pool.submit(_limits, aws, region), pool.submit(_vcpus_in_use, aws, region)
        return [_quota(aws, region, one, limits.result().get(one.code), vcpus_in_use.result()) for one in _gpu_quotas()]


def _gpu_quotas() -> list[ListedQuota]:
    gpu_quotas = {quota_of(PROVIDER, one.name, market) for one in instance_types(PROVIDER) for market in Market}
    return [one for one in listed_quotas(PROVIDER) if one in gpu_quotas]


def _quota(aws: Aws, region: str, listed: ListedQuota, limit: float | None, vcpus_in_use: Mapping[str, int]) -> Quota:
    return Quota(
        PROVIDER,
        aws.account,
        region,
        listed.code,
        listed.name,
        listed.market,
        listed.unit,
        limit,
        float(vcpus_in_use.get(listed.code, 0)),
    )


def _limits(aws: Aws, region: str) -> dict[str, float]:
    with aws.calling("servicequotas:ListServiceQuotas", region):
        found = pages(aws.client(SERVICE, region), "list_service_quotas", ServiceCode="ec2")
        return {one["QuotaCode"]: float(one["Value"]) for page in found for one in page["Quotas"]}


def _vcpus_in_use(aws: Aws, region: str) -> dict[str, int]:
    """Return the vCPUs that run by the code of the quota that counts them."""
    gpu_quotas: dict[str, int] = {}
    for machine in describe_instances(aws, region, Filters=_COUNTED_STATES):
        market = Market.SPOT if machine.get("InstanceLifecycle") == "spot" else Market.ON_DEMAND
        quota = quota_of(PROVIDER, machine["InstanceType"], market)
        if quota is not None:
            gpu_quotas[quota.code] = gpu_quotas.get(quota.code, 0) + _vcpus(machine)
    return gpu_quotas


def _vcpus(machine: Mapping[str, Any]) -> int:
    """Return a machine's vCPUs: those of its type in the catalogue, or as DescribeInstances says for any other type."""
    try:
        return instance_type(PROVIDER, machine["InstanceType"]).vcpus
    except InvalidRequest:
        cpu = machine.get("CpuOptions", {})
        return int(cpu.get("CoreCount", 0)) * int(cpu.get("ThreadsPerCore", 1))


def quota_page(_aws: Aws, region: str, code: str) -> str:
    """Return the address of a quota's page; raise InvalidRequest for a region or a code that cannot be one."""
    if not re.fullmatch(r"[a-z0-9-]+/L-[0-9A-F]{8}", f"{region}/{code}"):
        raise InvalidRequest(
            f"{code!r} is not a quota of {region!r}.", field="--request", value=code, next="For example L-417A185B."
        )
    return f"https://{region}.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{code}"


def request(aws: Aws, region: str, code: str, limit: float) -> str:
    """Ask AWS for a higher limit; return the request's id.

    Raises InvalidRequest for an unknown code, a limit that is not higher, or a request that is open already.
    """
    check_region(aws, region)
    if code not in {one.code for one in listed_quotas(PROVIDER)}:
        codes_text = ", ".join(f"{one.code} ({one.name})" for one in _gpu_quotas())
        message = f"{code!r} is not a quota of AWS that cloudgpu knows."
        raise InvalidRequest(message, field="--request", value=code, next=f"Use one of: {codes_text}.")
    with aws.calling("servicequotas:RequestServiceQuotaIncrease", region, value=code):
        answer = aws.client(SERVICE, region).request_service_quota_increase(
            ServiceCode="ec2", QuotaCode=code, DesiredValue=float(limit)
        )
    return str(answer["RequestedQuota"]["Id"])
