"""Reads an account's quotas for machines with GPUs and their usage, and requests higher ones.

It also computes how much a machine with a GPU counts against which quota. A request is planned first, and is always
higher than the present limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudgpu.catalog import gpus, instance_types, quotas_of
from cloudgpu.config.files.user_files import shown
from cloudgpu.control.session.accounts import provider_with
from cloudgpu.control.session.session import Session
from cloudgpu.core.catalog.catalog import InstanceType, ListedQuota, matching_gpus
from cloudgpu.core.model.account import Quota
from cloudgpu.core.model.offers import Market, same_gpu
from cloudgpu.core.values.naming import closest_match, unknown_word
from cloudgpu.core.values.typed import parse_gpu
from cloudgpu.errors import CloudgpuError, InvalidRequest, NoCapacity
from cloudgpu.parallel import Pool
from cloudgpu.providers.account_abilities import HasQuota, HasRegions, RaisesQuota
from cloudgpu.providers.shared.calls import result_or_error

if TYPE_CHECKING:
    from cloudgpu.views.documents.market.market import (
        PlannedQuotaIncrease,
        QuotaDocument,
        QuotaLimit,
        QuotaNeed,
        QuotaRequestDocument,
    )
    from cloudgpu.views.documents.parts import UnansweredScope


@dataclass(frozen=True, slots=True)
class QuotaDemand:
    """How much `count` machines of a type count against a quota. `needs` in the documents."""

    machine_type: InstanceType
    market: Market
    quota: ListedQuota
    count: int

    @property
    def code(self) -> str:
        """The provider's code of the quota."""
        return self.quota.code

    @property
    def amount(self) -> int:
        """How much the machines count, in the quota's unit: vCPUs at AWS and Azure, GPUs at Google."""
        return self.quota.amount_of(self.machine_type) * self.count


def quotas_document(
    session: Session,
    *,
    region: str | None = None,
    gpu: str | None = None,
    account: str | None = None,
    provider: str | None = None,
) -> QuotaDocument:
    """Return the quotas of a region, or of every region of the account, and their usage.

    With `gpu` only those that apply to it, and `needs` says how much the smallest machine with it counts. Regions that
    did not answer are named under `unanswered`. Raises InvalidRequest for a provider without quotas, an unknown region
    or GPU; the error of the first region if none answered.
    """
    quota_provider = provider_with(session, HasQuota, "limits that could be read", account=account, provider=provider)
    demands = [] if gpu is None else demands_of(quota_provider.kind, gpu)
    codes = {demand.code for demand in demands}
    quotas, gaps = _query_regions(quota_provider, _regions(quota_provider, region))
    return {
        "provider": quota_provider.kind,
        "account": quota_provider.account,
        "quotas": [quota_document(quota) for quota in quotas if not codes or quota.code in codes],
        "needs": [_demand_document(demand) for demand in demands],
        "unanswered": gaps,
    }


def _regions(provider: Any, region: str | None) -> list[str]:
    if region is not None:
        return [region]
    if isinstance(provider, HasRegions):
        return [each.name for each in provider.regions()]
    raise InvalidRequest("Name a region.", field="--region", value=None, next="Add --region NAME.")


def _query_regions(provider: HasQuota, regions: list[str]) -> tuple[list[Quota], list[UnansweredScope]]:
    """Return the quotas of these regions, and the regions that did not answer. Raises if none did."""
    with Pool(16, "regions") as pool:
        answers = dict(
            zip(regions, pool.map(lambda region: result_or_error(provider.quotas, region), regions), strict=True)
        )
    errors = {region: answer for region, answer in answers.items() if isinstance(answer, CloudgpuError)}
    if len(errors) == len(answers) and errors:
        raise next(iter(errors.values()))
    quotas = [quota for answer in answers.values() if not isinstance(answer, CloudgpuError) for quota in answer]
    return quotas, [{"scope": region, "why": error.message} for region, error in errors.items()]


def quota_document(quota: Quota) -> QuotaLimit:
    """Return a quota as plain values; `limit` and `used` are None if not known."""
    return {
        "region": quota.region,
        "code": quota.code,
        "name": quota.name,
        "market": str(quota.market),
        "used": quota.used,
        "limit": quota.limit,
        "unit": quota.unit,
    }


def _demand_document(demand: QuotaDemand) -> QuotaNeed:
    return {
        "instance_type": demand.machine_type.name,
        "market": str(demand.market),
        "code": demand.code,
        "vcpus": demand.machine_type.vcpus * demand.count,
        "amount": demand.amount,
        "unit": demand.quota.unit,
    }


def demands_of(provider: str, gpu: str, count: int = 1) -> list[QuotaDemand]:
    """Return how much `count` of the smallest machines with this GPU count against each quota, for each market.

    Raises InvalidRequest for an unknown GPU, NoCapacity if this provider sells no machine with so many of it.
    """
    model, gpu_count = parse_gpu(gpu)
    matching_gpus(model or "", gpus())  # raises for an unknown GPU
    fitting = [
        instance_type
        for instance_type in instance_types(provider)
        if same_gpu(instance_type.gpu.name, model or "")
        and instance_type.gpu.count == (gpu_count or 1)
        and instance_type.gpu.share == 1
    ]
    if not fitting:
        raise NoCapacity(
            f"{provider} sells no machine with {gpu_count or 1} {model}.",
            field="--gpu",
            value=gpu,
            next=f"See what it sells: cloudgpu gpus --provider {provider} --all",
        )
    smallest = min(fitting, key=lambda machine_type: (machine_type.vcpus, machine_type.name))
    return [
        QuotaDemand(smallest, market, quota, count)
        for market in Market
        for quota in quotas_of(provider, smallest.name, market)
    ]


ENOUGH = "enough"  # requests as much as `count` machines with the GPU need
MAX_LIMIT = 100_000  # vCPUs or GPUs: no cloud grants more at once
MAX_MACHINES = 1000
_EXAMPLE = f"For example --request L-417A185B=8, or --request {ENOUGH} --gpu v100."


@dataclass(frozen=True, slots=True)
class QuotaOptions:
    """The options of `quota --request`. `request` is CODE=VALUE, or `enough` for `count` machines with `gpu`."""

    request: str
    region: str | None = None
    gpu: str | None = None
    count: int | None = None
    market: Market = Market.ON_DEMAND


@dataclass(frozen=True, slots=True)
class QuotaIncrease:
    """A planned request for a higher limit. `quota` is the present one, None if it is not known.

    `limit` is the requested one, in the quota's unit; `demand` is what it is for, None for a limit that the user typed.

    `further_limits` are further limits that are too small for the same machines, and how high they would have to be.
    """

    provider: Any
    region: str
    code: str
    limit: float
    quota: Quota | None
    demand: QuotaDemand | None = None
    further_limits: Mapping[str, float] = field(default_factory=dict[str, float])

    def document(self) -> PlannedQuotaIncrease:
        """Return it as plain values, as `quota --request` shows it before it is sent."""
        return {
            "provider": self.provider.kind,
            "account": self.provider.account,
            "region": self.region,
            "code": self.code,
            "requested": self.limit,
            "current": None if self.quota is None else quota_document(self.quota),
        }


def plan_quota_increase(
    session: Session, options: QuotaOptions, *, account: str | None, provider: str | None
) -> QuotaIncrease:
    """Return the request that would be sent. Reads the present limits and changes nothing.

    Raises InvalidRequest for invalid options, a limit that is not above the present one, or a provider that accepts
    such a request only on its web page.
    """
    _check_options(options)
    quota_provider = provider_with(session, HasQuota, "limits that could be raised", account=account, provider=provider)
    region = str(options.region)
    if options.request == ENOUGH:
        demands = _demands(quota_provider.kind, options)
        quotas = {quota.code: quota for quota in quota_provider.quotas(region)}
        insufficient = [demand for demand in demands if _falls_short(quotas.get(demand.code), demand)]
        limits = {demand.code: _needed_limit(quotas.get(demand.code), demand) for demand in insufficient or demands[:1]}
        demand = (insufficient or demands)[0]
        limit, quota = limits.pop(demand.code), quotas.get(demand.code)
        increase = QuotaIncrease(quota_provider, region, demand.code, limit, quota, demand, limits)
    else:
        code, limit = _parse_limit(options.request)
        increase = QuotaIncrease(quota_provider, region, code, limit, _present_quota(quota_provider, region, code))
    _check_higher(increase)
    if not isinstance(quota_provider, RaisesQuota):
        raise _only_on_page_error(quota_provider, increase)
    return increase


def request_quota(increase: QuotaIncrease) -> QuotaRequestDocument:
    """Send the request to the provider, and return it with its id. Raises InvalidRequest."""
    return {
        **increase.document(),
        "id": increase.provider.request_quota(increase.region, increase.code, increase.limit),
    }


def _check_options(options: QuotaOptions) -> None:
    if options.region is None:
        raise _invalid_option("--region", None, "A limit is a region's, and none is named.", "Add --region NAME.")
    if options.count is not None and not 1 <= options.count <= MAX_MACHINES:
        message = f"--count is {options.count}: it is how many machines are to run, 1 to {MAX_MACHINES:,}."
        raise _invalid_option("--count", str(options.count), message, "For example --count 2.")
    if options.request == ENOUGH and options.gpu is None:
        raise _invalid_option("--gpu", None, f"--request {ENOUGH} has to know for what.", "Add --gpu NAME.")
    for option, value in (("--gpu", options.gpu), ("--count", options.count)):
        if value is not None and options.request != ENOUGH:
            message = f"{option} goes with --request {ENOUGH}, not with a limit that is named."
            raise _invalid_option(option, str(value), message, f"Leave {option} out, or write --request {ENOUGH}.")


def _demands(provider: str, options: QuotaOptions) -> list[QuotaDemand]:
    """Return how much the machines count against each quota of their market. Raises InvalidRequest if not known."""
    demands = [
        demand
        for demand in demands_of(provider, str(options.gpu), options.count or 1)
        if demand.market is options.market
    ]
    if demands:
        return demands
    message = f"It is not known which limit of {provider} counts {options.gpu} on this market."
    raise _invalid_option("--gpu", options.gpu, message, "Name the limit: --request CODE=VALUE.")


def _falls_short(quota: Quota | None, demand: QuotaDemand) -> bool:
    """Return whether the quota is known to be too small for its usage and this need."""
    return quota is not None and quota.limit is not None and _needed_limit(quota, demand) > quota.limit


def _needed_limit(quota: Quota | None, demand: QuotaDemand) -> float:
    """Return the limit under which the present usage and the demand fit together."""
    return ((quota.used if quota else 0) or 0) + demand.amount


def _parse_limit(request: str) -> tuple[str, float]:
    match = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9 _:-]{0,79})=([0-9]{1,7})", request, re.ASCII)
    if match and 1 <= int(match[2]) <= MAX_LIMIT:
        return match[1], float(match[2])
    raise _invalid_option(
        "--request",
        shown(request),
        f"{shown(request)!r} is not a valid limit: write CODE=VALUE with a whole number up to {MAX_LIMIT:,}, or "
        f"{ENOUGH}.",
        _EXAMPLE,
    )


def _present_quota(provider: HasQuota, region: str, code: str) -> Quota | None:
    """Return the present quota; None for one that is not about GPUs, which the provider may raise all the same."""
    quotas = {quota.code: quota for quota in provider.quotas(region)}
    if code not in quotas and closest_match(code, quotas):
        raise unknown_word(f"There is no limit {code}", code, quotas, field="--request", use="Use {}.")
    return quotas.get(code)


def _check_higher(increase: QuotaIncrease) -> None:
    quota = increase.quota
    if quota is None or quota.limit is None or increase.limit > quota.limit:
        return
    used = "" if quota.used is None else f", of which {quota.used:g} are used"
    raise _invalid_option(
        "--request",
        f"{increase.limit:g}",
        f"{quota.name} ({quota.code}) in {increase.region} allows {quota.limit:g} {quota.unit}{used}: "
        f"{increase.limit:g} is no more.",
        f"Ask for more than {quota.limit:g}, or leave it as it is.",
    )


def _only_on_page_error(provider: Any, increase: QuotaIncrease) -> InvalidRequest:
    message = f"{provider.kind} takes no request for a higher limit from here: a person asks for it on its own page."
    remedy = f"Ask there for {increase.limit:g}: {provider.quota_page(increase.region, increase.code)}"
    for code, limit in increase.further_limits.items():
        remedy += f" {code} is too small, too: ask for {limit:g}: {provider.quota_page(increase.region, code)}"
    return _invalid_option("--request", increase.code, message, remedy)


def _invalid_option(field: str, value: str | None, message: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(message, field=field, value=value, next=remedy)
