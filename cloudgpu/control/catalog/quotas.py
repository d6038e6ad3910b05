"""Reads the account's limits on machines with GPUs and what is used of each, and asks for higher ones.

It also says what a GPU counts against which limit. What will be asked is a value first, and never less than the limit
is now.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudgpu.catalog import gpus, quotas_of, types
from cloudgpu.config.files.user_files import shown
from cloudgpu.control.session.accounts import provider_with
from cloudgpu.control.session.session import Session
from cloudgpu.core.catalog.catalog import InstanceType, ListedQuota, matching_gpus
from cloudgpu.core.model.account import Quota
from cloudgpu.core.model.offers import Market, same_gpu
from cloudgpu.core.values.naming import near, unknown_word
from cloudgpu.core.values.typed import parse_gpu
from cloudgpu.errors import CloudgpuError, InvalidRequest, NoCapacity
from cloudgpu.parallel import Pool
from cloudgpu.providers.account_abilities import HasQuota, HasRegions, RaisesQuota

if TYPE_CHECKING:
    from cloudgpu.views.documents.market.market import (
        QuotaDocument,
        QuotaLimit,
        QuotaNeed,
        QuotaRequestDocument,
        RaiseValue,
    )
    from cloudgpu.views.documents.parts import Gap


@dataclass(frozen=True, slots=True)
class QuotaDemand:
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
) -> QuotaDocument:
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
        return [found.name for found in one.regions()]
    raise InvalidRequest("Name a region.", field="--region", value=None, next="Add --region NAME.")


def _asked(provider: HasQuota, regions: list[str]) -> tuple[list[Quota], list[Gap]]:
    with Pool(16, "regions") as pool:
        answers = dict(zip(regions, pool.map(lambda region: _tried(provider, region), regions), strict=True))
    faults = {region: answer for region, answer in answers.items() if isinstance(answer, CloudgpuError)}
    if len(faults) == len(answers) and faults:
        raise next(iter(faults.values()))
    found = [quota for answer in answers.values() if not isinstance(answer, CloudgpuError) for quota in answer]
    return found, [{"scope": region, "why": fault.message} for region, fault in faults.items()]


def _tried(provider: HasQuota, region: str) -> list[Quota] | CloudgpuError:
    try:
        return list(provider.quotas(region))
    except CloudgpuError as error:
        return error


def quota_value(quota: Quota) -> QuotaLimit:
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


def _need_value(need: QuotaDemand) -> QuotaNeed:
    return {
        "instance_type": need.shape.name,
        "market": str(need.market),
        "code": need.code,
        "vcpus": need.shape.vcpus * need.count,
        "amount": need.amount,
        "unit": need.quota.unit,
    }


def needs_of(kind: str, gpu: str, count: int = 1) -> list[QuotaDemand]:
    """Return what `count` of the smallest machine with this GPU count, against each quota that counts it, per market.

    Raises InvalidRequest for an unknown GPU, NoCapacity for one that this provider does not sell so many of.
    """
    model, number = parse_gpu(gpu)
    matching_gpus(model or "", gpus())  # raises for one that nobody has
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
        QuotaDemand(smallest, market, quota, count)
        for market in Market
        for quota in quotas_of(kind, smallest.name, market)
    ]


ENOUGH = "enough"
MAX = 100_000  # more vCPUs, or GPUs, than anybody is given at once
MAX_MACHINES = 1000
_SYNTAX = f"For example --request L-417A185B=8, or --request {ENOUGH} --gpu v100."


@dataclass(frozen=True, slots=True)
class QuotaOptions:
    """What `quota --request` was asked, word by word."""

    request: str
    region: str | None = None
    gpu: str | None = None
    count: int | None = None
    market: Market = Market.ON_DEMAND


@dataclass(frozen=True, slots=True)
class QuotaIncrease:
    """A higher limit that is about to be asked for; `quota` is what it is now, None where that is not known."""

    provider: Any
    region: str
    code: str
    limit: float
    quota: Quota | None
    need: QuotaDemand | None = None

    def value(self) -> RaiseValue:
        """Return it as what `quota --request` shows before it asks."""
        return {
            "provider": self.provider.kind,
            "account": self.provider.account,
            "region": self.region,
            "code": self.code,
            "requested": self.limit,
            "current": None if self.quota is None else quota_value(self.quota),
        }


def plan_raise(session: Session, asking: QuotaOptions, *, account: str | None, provider: str | None) -> QuotaIncrease:
    """Return what would be asked for. Reads the present limits and changes nothing.

    Raises InvalidRequest for words that cannot be meant, a limit that is not above the present one, or a provider that
    takes such a request on its own page alone.
    """
    _check(asking)
    one = provider_with(session, HasQuota, "limits that could be raised", account=account, provider=provider)
    region = str(asking.region)
    if asking.request == ENOUGH:
        needs = _needs(one.kind, asking)
        quotas = {quota.code: quota for quota in one.quotas(region)}
        need = next((need for need in needs if _falls_short(quotas.get(need.code), need)), needs[0])
        quota = quotas.get(need.code)
        limit = ((quota.used if quota else 0) or 0) + need.amount
        found = QuotaIncrease(one, region, need.code, limit, quota, need)
    else:
        code, limit = _named(asking.request)
        found = QuotaIncrease(one, region, code, limit, _found(one, region, code))
    _check_higher(found)
    if not isinstance(one, RaisesQuota):
        raise _at_the_page(one, found)
    return found


def request_quota(increase: QuotaIncrease) -> QuotaRequestDocument:
    """Ask the provider, and return what was asked with the id of the request. Raises InvalidRequest."""
    return {**increase.value(), "id": increase.provider.request_quota(increase.region, increase.code, increase.limit)}


def _check(asking: QuotaOptions) -> None:
    if asking.region is None:
        raise _refused("--region", None, "A limit is a region's, and none is named.", "Add --region NAME.")
    if asking.count is not None and not 1 <= asking.count <= MAX_MACHINES:
        message = f"--count is {asking.count}: it is how many machines are to run, 1 to {MAX_MACHINES:,}."
        raise _refused("--count", str(asking.count), message, "For example --count 2.")
    if asking.request == ENOUGH and asking.gpu is None:
        raise _refused("--gpu", None, f"--request {ENOUGH} has to know for what.", "Add --gpu NAME.")
    for option, given in (("--gpu", asking.gpu), ("--count", asking.count)):
        if given is not None and asking.request != ENOUGH:
            message = f"{option} goes with --request {ENOUGH}, not with a limit that is named."
            raise _refused(option, str(given), message, f"Leave {option} out, or write --request {ENOUGH}.")


def _needs(kind: str, asking: QuotaOptions) -> list[QuotaDemand]:
    found = [one for one in needs_of(kind, str(asking.gpu), asking.count or 1) if one.market is asking.market]
    if found:
        return found
    message = f"It is not known which limit of {kind} counts {asking.gpu} on this market."
    raise _refused("--gpu", asking.gpu, message, "Name the limit: --request CODE=VALUE.")


def _falls_short(quota: Quota | None, need: QuotaDemand) -> bool:
    """Say whether a limit is known to be too small for what is to be launched beside what is used."""
    return quota is not None and quota.limit is not None and (quota.used or 0) + need.amount > quota.limit


def _named(request: str) -> tuple[str, float]:
    found = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9 _:-]{0,79})=([0-9]{1,7})", request, re.ASCII)
    if found and 1 <= int(found[2]) <= MAX:
        return found[1], float(found[2])
    message = (
        f"{shown(request)!r} is not a valid limit: write CODE=VALUE with a whole number up to {MAX:,}, or {ENOUGH}."
    )
    raise _refused("--request", shown(request), message, _SYNTAX)


def _found(provider: HasQuota, region: str, code: str) -> Quota | None:
    """Return the present limit; None for one that is not about GPUs, which the provider may raise all the same."""
    quotas = {quota.code: quota for quota in provider.quotas(region)}
    if code not in quotas and near(code, quotas):
        raise unknown_word(f"There is no limit {code}", code, quotas, field="--request", use="Use {}.")
    return quotas.get(code)


def _check_higher(increase: QuotaIncrease) -> None:
    quota = increase.quota
    if quota is None or quota.limit is None or increase.limit > quota.limit:
        return
    used = "" if quota.used is None else f", of which {quota.used:g} are used"
    raise _refused(
        "--request",
        f"{increase.limit:g}",
        f"{quota.name} ({quota.code}) in {increase.region} allows {quota.limit:g} {quota.unit}{used}: "
        f"{increase.limit:g} is no more.",
        f"Ask for more than {quota.limit:g}, or leave it as it is.",
    )


def _at_the_page(one: Any, increase: QuotaIncrease) -> InvalidRequest:
    message = f"{one.kind} takes no request for a higher limit from here: a person asks for it on its own page."
    way = f"Ask there for {increase.limit:g}: {one.quota_page(increase.region, increase.code)}"
    return _refused("--request", increase.code, message, way)


def _refused(field: str, value: str | None, message: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(message, field=field, value=value, next=remedy)
