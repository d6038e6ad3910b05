"""The account's limits on machines with GPUs, what is used of each, and what a GPU counts against which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cloudgpu.catalog import gpus, quotas_of, types
from cloudgpu.control.accounts import provider_with
from cloudgpu.control.session import Session
from cloudgpu.control.wishes import gpu_wish
from cloudgpu.core.catalog.catalog import InstanceType, ListedQuota, meant_by
from cloudgpu.core.catalog.matching import same_gpu
from cloudgpu.core.model.account import Quota
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import CloudgpuError, InvalidRequest, NoCapacity
from cloudgpu.parallel import Pool
from cloudgpu.providers.account_abilities import HasQuota, HasRegions

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Need:
    """What `count` machines of the smallest type with a GPU count against which quota."""

    shape: InstanceType
    market: Market
    quota: ListedQuota
    count: int

    @property
    def code(self) -> str:
        """The quota, as the provider names it."""
        return self.quota.code

    @property
    def amount(self) -> int:
        """How much they count, in the quota's unit: vCPUs at AWS and Azure, GPUs at Google."""
        return self.quota.counts(self.shape) * self.count


def quotas_value(
    session: Session,
    *,
    region: str | None = None,
    gpu: str | None = None,
    account: str | None = None,
    provider: str | None = None,
) -> Document:
    """Return the limits of a region, or of every region of the account, and what is used of each.

    With `gpu` only those that count it, and `needs` says how much the smallest machine with it counts. Regions
    that did not answer are named under `unanswered`. Raises InvalidRequest for a provider without limits, an unknown
    region or GPU; what the first region said when none answered.
    """
    one = provider_with(session, HasQuota, "limits that could be read", account=account, provider=provider)
    needs = [] if gpu is None else needs_of(one.kind, gpu)
    codes = {need.code for need in needs}
    found, gaps = _asked(one, _regions(one, region))
    shown = [quota for quota in found if not codes or quota.code in codes]
    return {
        "provider": one.kind,
        "account": one.account,
        "quotas": [quota_value(quota) for quota in shown],
        "needs": [_need_value(need) for need in needs],
        "unanswered": gaps,
    }


def _regions(one: Any, region: str | None) -> list[str]:
    if region is not None:
        return [region]
    if isinstance(one, HasRegions):
        return [place.name for place in one.regions()]
    raise InvalidRequest("Name a region.", field="--region", value=None, next="Add --region NAME.")


def _asked(one: HasQuota, regions: list[str]) -> tuple[list[Quota], list[Document]]:
    with Pool(16) as pool:
        answers = dict(zip(regions, pool.map(lambda region: _tried(one, region), regions), strict=True))
    faults = {region: answer for region, answer in answers.items() if isinstance(answer, CloudgpuError)}
    if len(faults) == len(answers) and faults:
        raise next(iter(faults.values()))
    found = [quota for answer in answers.values() if not isinstance(answer, CloudgpuError) for quota in answer]
    return found, [{"scope": region, "why": fault.message} for region, fault in faults.items()]


def _tried(one: HasQuota, region: str) -> list[Quota] | CloudgpuError:
    try:
        return list(one.quotas(region))
    except CloudgpuError as fault:
        return fault


def quota_value(quota: Quota) -> Document:
    """Return one limit; `limit` null where the provider did not say, `used` null where it is not known."""
    return {
        "region": quota.region,
        "code": quota.code,
        "name": quota.name,
        "market": str(quota.market),
        "used": quota.used,
        "limit": quota.limit,
        "unit": quota.unit,
    }


def _need_value(need: Need) -> Document:
    return {
        "instance_type": need.shape.name,
        "market": str(need.market),
        "code": need.code,
        "vcpus": need.shape.vcpus * need.count,
        "amount": need.amount,
        "unit": need.quota.unit,
    }


def needs_of(kind: str, gpu: str, count: int = 1) -> list[Need]:
    """Return what `count` of the smallest machine with this GPU count, against each quota that counts it, per market.

    Raises InvalidRequest for an unknown GPU, NoCapacity for one that this provider does not sell so many of.
    """
    model, number = gpu_wish(gpu)
    meant_by(model or "", gpus())  # raises for one that nobody has
    fitting = [
        one
        for one in types(kind)
        if same_gpu(one.gpu.name, model or "") and one.gpu.count == (number or 1) and one.gpu.share == 1
    ]
    if not fitting:
        raise NoCapacity(
            f"{kind} sells no machine with {number or 1} {model}.",
            field="--gpu",
            value=gpu,
            next=f"See what it sells: cloudgpu gpus --provider {kind} --all",
        )
    smallest = min(fitting, key=lambda one: (one.vcpus, one.name))
    return [
        Need(smallest, market, quota, count) for market in Market for quota in quotas_of(kind, smallest.name, market)
    ]
