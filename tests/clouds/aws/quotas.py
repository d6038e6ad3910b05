"""Service quotas: vCPU limits per family and market, enforced at launch, read and raised through the API."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPES

from tests.clouds.aws.errors import AwsError
from tests.clouds.aws.model import Model

# By code: the name, the families (first letters; "p5" before "p"), the market, and how many vCPUs unless told.
QUOTAS = {
    "L-417A185B": ("Running On-Demand P instances", "p", "on-demand", 64.0),
    "L-7212CCBC": ("All P4, P3 and P2 Spot Instance Requests", "p", "spot", 64.0),
    "L-C4BD4855": ("All P5 Spot Instance Requests", "p5", "spot", 64.0),
    "L-DB2E81BA": ("Running On-Demand G and VT instances", "g", "on-demand", 64.0),
    "L-3819A6DF": ("All G and VT Spot Instance Requests", "g", "spot", 64.0),
    "L-1216C47A": ("Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", "std", "on-demand", 256.0),
    "L-34B43A08": ("All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", "std", "spot", 256.0),
}
COUNTED = {"pending", "running"}


def code_of(type_name: str, market: str) -> str:
    """Return the code of the quota that a type counts against in a market (`on-demand` or `spot`)."""
    family = {"p": "p", "g": "g", "v": "g"}.get(type_name[0], "std")
    if market == "spot" and type_name.startswith(("p5", "p6")):
        family = "p5"
    return next(code for code, (_, one, kind, _) in QUOTAS.items() if (one, kind) == (family, market))


def limit(model: Model, region: str, code: str) -> float:
    """Return the vCPUs that a region allows."""
    return model.quotas.get((region, code), model.quotas.get(("", code), QUOTAS[code][3]))


def check(model: Model, backend: Any, params: Any) -> None:
    """Raise what AWS says when a launch goes over its quota."""
    name = params.get("InstanceType") or "m1.small"
    spot = (params.get("InstanceMarketOptions") or {}).get("MarketType") == "spot"
    code = code_of(name, "spot" if spot else "on-demand")
    used = sum(_vcpus(one.instance_type) for one in backend.all_instances() if _counts(one, code))
    allowed = limit(model, backend.region_name, code)
    if used + _vcpus(name) * int(params.get("MinCount") or 1) <= allowed:
        return
    if spot:
        raise EC2ClientError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    said = (
        f"You have requested more vCPU capacity than your current vCPU limit of {allowed:.0f} allows for the instance "
        "bucket that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request "
        "to request an adjustment to this limit."
    )
    raise EC2ClientError("VcpuLimitExceeded", said)


def _counts(instance: Any, code: str) -> bool:
    return instance.state in COUNTED and code_of(instance.instance_type, instance.lifecycle or "on-demand") == code


def _vcpus(type_name: str) -> int:
    found: int = INSTANCE_TYPES[type_name]["VCpuInfo"]["DefaultVCpus"]
    return found


def answer(model: Model, region: str, action: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Answer a call to service-quotas; only the quotas of EC2 above exist."""
    if asked.get("ServiceCode", "ec2") != "ec2":
        raise AwsError("NoSuchResourceException", "The request failed because the specified service does not exist.")
    code = asked.get("QuotaCode")
    if code is not None and code not in QUOTAS:
        raise AwsError("NoSuchResourceException", "The request failed because the specified quota does not exist.")
    if action == "RequestServiceQuotaIncrease":
        return {"RequestedQuota": _request(model, region, asked)}
    if action.startswith("ListRequestedServiceQuotaChangeHistory"):
        found = [one for one in model.quota_requests if code in {None, one["QuotaCode"]} and one["_region"] == region]
        return {"RequestedQuotas": [{k: v for k, v in one.items() if k != "_region"} for one in found]}
    if action == "ListServiceQuotas":
        return {"Quotas": [_shown(one, limit(model, region, one)) for one in QUOTAS]}
    if action == "ListAWSDefaultServiceQuotas":
        return {"Quotas": [_shown(one, 0.0) for one in QUOTAS]}
    if action in {"GetServiceQuota", "GetAWSDefaultServiceQuota"}:
        value = limit(model, region, asked["QuotaCode"]) if action == "GetServiceQuota" else 0.0
        return {"Quota": _shown(asked["QuotaCode"], value)}
    raise NotImplementedError(action)


def _shown(code: str, value: float) -> dict[str, Any]:
    shared = {"ServiceCode": "ec2", "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)", "QuotaCode": code}
    return {**shared, "QuotaName": QUOTAS[code][0], "Value": value, "Unit": "None", "Adjustable": True}


def _request(model: Model, region: str, asked: dict[str, Any]) -> dict[str, Any]:
    code, wanted = asked["QuotaCode"], float(asked["DesiredValue"])
    if any(one["QuotaCode"] == code and one["_region"] == region for one in model.quota_requests):
        raise AwsError("ResourceAlreadyExistsException", "A quota increase request is already open for this quota.")
    if wanted <= limit(model, region, code):
        said = "You must provide a quota value greater than the current quota value."
        raise AwsError("IllegalArgumentException", said)
    made = {"Id": uuid4().hex, "ServiceCode": "ec2", "QuotaCode": code, "QuotaName": QUOTAS[code][0]}
    made |= {"DesiredValue": wanted, "Status": "PENDING", "Created": model.now().timestamp()}
    model.quota_requests.append({**made, "_region": region})
    return made
