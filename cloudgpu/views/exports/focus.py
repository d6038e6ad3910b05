"""Lines of the bill as rows of FOCUS 1.0, the FinOps Open Cost and Usage Specification.

By the text of its tag v1.0 (columns/*.md, attributes/*.md); docs/focus.md says what each column holds, and where the
text cannot be followed.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from cloudgpu.core.billing.line_items import LineItem
from cloudgpu.core.billing.rules import PER_NANO, rule_for
from cloudgpu.core.model.instances import TAG_ID, TAG_NAME, TAG_OWNER, TAG_POLICY, TAG_PROJECT
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Per, Resource, Usage
from cloudgpu.core.values.money import NANO, Money
from cloudgpu.core.values.naming import tag_value
from cloudgpu.views.cost import decimal, second

COLUMNS = (
    "AvailabilityZone BilledCost BillingAccountId BillingAccountName BillingCurrency BillingPeriodEnd "
    "BillingPeriodStart ChargeCategory ChargeClass ChargeDescription ChargeFrequency ChargePeriodEnd "
    "ChargePeriodStart CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName "
    "CommitmentDiscountStatus CommitmentDiscountType ConsumedQuantity ConsumedUnit ContractedCost "
    "ContractedUnitPrice EffectiveCost InvoiceIssuerName ListCost ListUnitPrice PricingCategory PricingQuantity "
    "PricingUnit ProviderName PublisherName RegionId RegionName ResourceId ResourceName ResourceType "
    "ServiceCategory ServiceName SkuId SkuPriceId SubAccountId SubAccountName Tags"
).split()
OWN_COLUMNS = (
    "x_Estimate x_LowCost x_HighCost x_PriceMissing x_PriceSource x_PriceBasis x_PriceAsOf x_OnDemandCost x_Reason"
).split()

# Provider, publisher and who issues the invoice, as the clouds' own exports name them.
_NAMES = {
    "aws": ("AWS", "Amazon Web Services, Inc."),
    "gcp": ("Google Cloud", "Google Cloud"),
    "azure": ("Microsoft", "Microsoft"),
    "runpod": ("RunPod", "RunPod"),
    "vast": ("Vast.ai", "Vast.ai"),
    "lambda": ("Lambda Cloud", "Lambda"),
}
_SERVICES: dict[str, dict[Resource | None, str]] = {
    "aws": {
        Resource.ADDRESS: "Amazon Virtual Private Cloud",
        None: "Amazon Elastic Compute Cloud",
    },
    "gcp": {None: "Compute Engine"},
    "runpod": {None: "Pods"},
    "vast": {Resource.TRAFFIC: "Bandwidth", Resource.INSTANCE: "Instances", None: "Storage"},
    "lambda": {None: "On-Demand Cloud"},
    "azure": {
        Resource.INSTANCE: "Virtual Machines",
        Resource.ADDRESS: "Virtual Network",
        Resource.TRAFFIC: "Bandwidth",
        None: "Storage",
    },
}
_CATEGORIES = {
    Resource.INSTANCE: "Compute",
    Resource.ADDRESS: "Networking",
    Resource.TRAFFIC: "Networking",
    Resource.SLURM: "Compute",
}
_TYPES = {
    Resource.INSTANCE: "Virtual machine",
    Resource.DISK: "Disk",
    Resource.SNAPSHOT: "Snapshot",
    Resource.IMAGE: "Image",
    Resource.ADDRESS: "IP address",
    Resource.TRAFFIC: "Virtual machine",
    Resource.SLURM: "Slurm job",
}
_TIER = re.compile(r"(Premium|Standard)?_?[PES]\d{1,2}\b.*", re.IGNORECASE)  # Azure's disks are billed whole
TAG_JOB = "cloudgpu-job"  # on no resource: a machine that was there before is for one job after another
_HOUR = 3_600_000_000  # microseconds
_GB = 1_000_000_000  # bytes
_PER_DOLLAR = PER_NANO * NANO


def focus_row(item: LineItem, ledger: str) -> dict[str, str]:
    """Return one line of the bill under `COLUMNS` and `OWN_COLUMNS`; an empty text is null, as CSV has no other."""
    cost = decimal(item.amount)
    row = dict.fromkeys((*COLUMNS, *OWN_COLUMNS), "")
    row |= dict.fromkeys(("BilledCost", "EffectiveCost", "ContractedCost", "ListCost"), cost)
    row |= {"BillingCurrency": "USD", "ChargeCategory": "Usage", "ChargeFrequency": "Usage-Based"}
    return row | _account(item, ledger) | _period(item) | _quantity(item) | _resource(item) | _own_columns(item)


def sku_of(item: LineItem) -> str:
    """Return what is bought, in one word of ours: provider, region, resource, the price list's word, market."""
    use = item.charge.usage
    market = use.market if use.resource is Resource.INSTANCE else ""
    return "/".join(filter(None, (use.provider, item.machine.region, str(use.resource), use.kind or use.what, market)))


def own_id(usage: Usage) -> str:
    """Return the provider's own name of a resource: on a cloud, ours has the place before it."""
    return usage.id.rpartition("/")[2] if usage.provider in _NAMES else usage.id


def _account(item: LineItem, ledger: str) -> dict[str, str]:
    machine, use = item.machine, item.charge.usage
    provider, issuer = _NAMES.get(use.provider, (f"cloudgpu {use.provider}", f"cloudgpu {use.provider}"))
    return {
        "BillingAccountId": f"{use.provider}/{machine.account}",
        "BillingAccountName": str(machine.account),
        "ProviderName": provider,
        "PublisherName": issuer,
        "InvoiceIssuerName": issuer,
        "Tags": json.dumps(_tags(machine, ledger) | ({TAG_JOB: item.job} if item.job else {}), ensure_ascii=False),
    }


def _tags(machine: Machine, ledger: str) -> dict[str, str]:
    """Return the cost allocation tags of a resource."""
    known = {TAG_ID: machine.id, TAG_NAME: machine.name, "cloudgpu-ledger": ledger, TAG_POLICY: machine.policy}
    known |= {TAG_OWNER: machine.owner, TAG_PROJECT: machine.project}
    return {key: tag_value(value) for key, value in known.items() if value}


def _period(item: LineItem) -> dict[str, str]:
    last = item.end - timedelta(microseconds=1)
    month = last.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    begin, end = second(item.begin), second(item.end)
    return {
        "BillingPeriodStart": second(month),
        "BillingPeriodEnd": second(_next_month(month)),
        "ChargePeriodStart": begin,
        "ChargePeriodEnd": end if end > begin else second(item.begin + timedelta(seconds=1)),
    }


def _next_month(month: datetime) -> datetime:
    return (month + timedelta(days=32)).replace(day=1)


def _quantity(item: LineItem) -> dict[str, str]:
    use = item.charge.usage
    pricing, consumed = _units(use)
    length = Fraction(use.quantity if consumed.startswith("GB-") else 1) * item.charge.billed_us / _HOUR
    quantities = {
        "ConsumedQuantity": decimal(item.units if use.per is Per.GB else length),
        "ConsumedUnit": consumed,
        "PricingQuantity": decimal(item.units),
        "PricingUnit": pricing,
        "PricingCategory": "Dynamic" if use.market == "spot" and use.resource is Resource.INSTANCE else "Standard",
    }
    price = "" if item.segment is None else decimal(Money(item.segment.nanos))
    return quantities | {"ListUnitPrice": price, "ContractedUnitPrice": price}


def _units(usage: Usage) -> tuple[str, str]:
    """Return the units of the price and of what was used, in the words of attributes/unit_format.md."""
    if usage.per is Per.GB:
        return ("GB", "GB") if rule_for(usage).gb_bytes == _GB else ("GiB", "GiB")
    by_size = usage.resource in (Resource.DISK, Resource.SNAPSHOT, Resource.IMAGE) and not _TIER.fullmatch(usage.kind)
    if usage.per is Per.HOUR:
        return ("GB-Hours", "GB-Hours") if by_size else ("Hours", "Hours")
    return ("GB-Months", "GB-Hours") if by_size else ("Unit-Months", "Hours")


def _resource(item: LineItem) -> dict[str, str]:
    machine, use = item.machine, item.charge.usage
    sku = sku_of(item)
    services = _SERVICES.get(use.provider) or {None: f"cloudgpu {use.provider}"}
    own = own_id(use)
    return {
        "AvailabilityZone": machine.zone or "",
        "RegionId": machine.region or "",
        "RegionName": machine.region or "",
        "ResourceId": own,
        "ResourceName": machine.name if own and own != machine.name and _is_named(item) else "",
        "ResourceType": _TYPES[use.resource] if own else "",
        "ServiceCategory": _CATEGORIES.get(use.resource, "Storage"),
        "ServiceName": services.get(use.resource, services[None]),
        "SkuId": sku,
        "SkuPriceId": sku if item.segment is None else f"{sku}@{decimal(Money(item.segment.nanos))}",
        "ChargeDescription": _description(item),
    }


def _is_named(item: LineItem) -> bool:
    return item.machine.is_named_resource or item.charge.usage.resource in (Resource.INSTANCE, Resource.TRAFFIC)


def _description(item: LineItem) -> str:
    use = item.charge.usage
    if item.segment is None:
        return f"{use.what}: no price is known, the cost is missing and not zero"
    text = f"{use.what} at {Money(item.segment.nanos).text(6)} per {_units(use)[0].lower().removesuffix('s')}"
    return f"{text}: free" if not item.charge.high and item.segment.nanos else text


def _own_columns(item: LineItem) -> dict[str, str]:
    price, found = item.segment, item.charge
    on_demand = "" if found.list_cost is None else decimal(Fraction(found.list_cost, _PER_DOLLAR))
    reasons = [*found.reasons, *(["it is billed still"] if item.running else [])]
    return {
        "x_Estimate": "true" if item.estimate else "false",
        "x_LowCost": decimal(item.low),
        "x_HighCost": decimal(item.high),
        "x_PriceMissing": "false" if price else "true",
        "x_PriceSource": price.source if price else "",
        "x_PriceBasis": price.basis if price else "",
        "x_PriceAsOf": price.as_of or "" if price else "",
        "x_OnDemandCost": on_demand,
        "x_Reason": "; ".join(reasons),
    }
