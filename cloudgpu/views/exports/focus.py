"""Lines of the bill as rows of FOCUS 1.0, the FinOps Open Cost and Usage Specification.

It follows the specification at its tag v1.0 (columns/*.md, attributes/*.md); docs/focus.md says what each column holds,
and where the specification cannot be followed.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, timedelta
from fractions import Fraction

from cloudgpu.core.billing.line_items import LineItem
from cloudgpu.core.billing.rules import PARTS_PER_NANO, rule_for
from cloudgpu.core.model.instances import TAG_ID, TAG_NAME, TAG_OWNER, TAG_POLICY, TAG_PROJECT
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Per, Resource, Usage
from cloudgpu.core.values.money import NANOS_PER_USD, Money
from cloudgpu.core.values.naming import tag_value
from cloudgpu.views.cost import decimal_text, focus_time

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
_ISSUERS = {
    "aws": ("AWS", "Amazon Web Services, Inc."),
    "gcp": ("Google Cloud", "Google Cloud"),
    "azure": ("Microsoft", "Microsoft"),
    "runpod": ("RunPod", "RunPod"),
    "vast": ("Vast.ai", "Vast.ai"),
    "lambda": ("Lambda Cloud", "Lambda"),
}
# By provider and kind of resource; None: all other kinds.
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
_SERVICE_CATEGORIES = {
    Resource.INSTANCE: "Compute",
    Resource.ADDRESS: "Networking",
    Resource.TRAFFIC: "Networking",
    Resource.SLURM: "Compute",
}
_RESOURCE_TYPES = {
    Resource.INSTANCE: "Virtual machine",
    Resource.DISK: "Disk",
    Resource.SNAPSHOT: "Snapshot",
    Resource.IMAGE: "Image",
    Resource.ADDRESS: "IP address",
    Resource.TRAFFIC: "Virtual machine",
    Resource.SLURM: "Slurm job",
}
_AZURE_DISK_TIER = re.compile(
    r"(Premium|Standard)?_?[PES]\d{1,2}\b.*", re.IGNORECASE
)  # Azure bills such a disk by its tier, not by its size
TAG_JOB = "cloudgpu-job"  # only in exports, on no resource: one machine runs many jobs
_HOUR_US = 3_600_000_000  # microseconds
_GB_BYTES = 1_000_000_000  # bytes
_PARTS_PER_USD = PARTS_PER_NANO * NANOS_PER_USD


def focus_row(item: LineItem, ledger_id: str) -> dict[str, str]:
    """Return one line of the bill under `COLUMNS` and `OWN_COLUMNS`; an empty text is null, as CSV has no other."""
    cost = decimal_text(item.amount)
    row = dict.fromkeys((*COLUMNS, *OWN_COLUMNS), "")
    row |= dict.fromkeys(("BilledCost", "EffectiveCost", "ContractedCost"), cost)
    row["ListCost"] = _list_cost(item)
    row |= {"BillingCurrency": "USD", "ChargeCategory": "Usage", "ChargeFrequency": "Usage-Based"}
    return row | _account(item, ledger_id) | _period(item) | _quantity(item) | _resource(item) | _own_columns(item)


def sku_of(item: LineItem) -> str:
    """Return our SKU: provider, region, resource, the price list's kind, market, with slashes between them."""
    usage = item.charge.usage
    market = usage.market if usage.resource is Resource.INSTANCE else ""
    return "/".join(
        filter(None, (usage.provider, item.machine.region, str(usage.resource), usage.kind or usage.what, market))
    )


def provider_resource_id(usage: Usage) -> str:
    """Return the provider's id of a resource: on a cloud, our id of it has the location before it."""
    return usage.id.rpartition("/")[2] if usage.provider in _ISSUERS else usage.id


def _account(item: LineItem, ledger_id: str) -> dict[str, str]:
    machine, usage = item.machine, item.charge.usage
    provider, issuer = _ISSUERS.get(usage.provider, (f"cloudgpu {usage.provider}", f"cloudgpu {usage.provider}"))
    return {
        "BillingAccountId": f"{usage.provider}/{machine.account}",
        "BillingAccountName": str(machine.account),
        "ProviderName": provider,
        "PublisherName": issuer,
        "InvoiceIssuerName": issuer,
        "Tags": json.dumps(_tags(machine, ledger_id) | ({TAG_JOB: item.job} if item.job else {}), ensure_ascii=False),
    }


def _tags(machine: Machine, ledger_id: str) -> dict[str, str]:
    """Return the cost allocation tags of a resource."""
    tags = {TAG_ID: machine.id, TAG_NAME: machine.name, "cloudgpu-ledger": ledger_id, TAG_POLICY: machine.policy}
    tags |= {TAG_OWNER: machine.owner, TAG_PROJECT: machine.project}
    return {key: tag_value(value) for key, value in tags.items() if value}


def _period(item: LineItem) -> dict[str, str]:
    last_moment = item.end - timedelta(microseconds=1)
    month = last_moment.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    begin, end = focus_time(item.begin), focus_time(item.end)
    return {
        "BillingPeriodStart": focus_time(month),
        "BillingPeriodEnd": focus_time((month + timedelta(days=32)).replace(day=1)),  # of the next month
        "ChargePeriodStart": begin,
        "ChargePeriodEnd": end if end > begin else focus_time(item.begin + timedelta(seconds=1)),
    }


def _quantity(item: LineItem) -> dict[str, str]:
    usage = item.charge.usage
    pricing_unit, consumed_unit = _units(usage)
    billed_hours = Fraction(usage.quantity if consumed_unit.startswith("GB-") else 1) * item.charge.billed_us / _HOUR_US
    quantities = {
        "ConsumedQuantity": decimal_text(item.units if usage.per is Per.GB else billed_hours),
        "ConsumedUnit": consumed_unit,
        "PricingQuantity": decimal_text(item.units),
        "PricingUnit": pricing_unit,
        "PricingCategory": "Dynamic" if usage.market == "spot" and usage.resource is Resource.INSTANCE else "Standard",
    }
    price, list_nanos = item.price_interval, _list_nanos(item)
    return quantities | {
        "ListUnitPrice": "" if list_nanos is None else decimal_text(Money(list_nanos)),
        "ContractedUnitPrice": "" if price is None else decimal_text(Money(price.nanos)),
    }


def _list_nanos(item: LineItem) -> int | None:
    """Return the public price of one unit, without what was negotiated; None where it is not known."""
    return None if item.price_interval is None else item.price_interval.list_nanos


def _list_cost(item: LineItem) -> str:
    """Return the cost at the public price. Where that is not known, it is the billed cost, as FOCUS requires."""
    list_nanos = _list_nanos(item)
    if item.price_interval is None or list_nanos is None or list_nanos == item.price_interval.nanos:
        return decimal_text(item.amount)
    return decimal_text(Money(round(item.units * list_nanos)))


def _units(usage: Usage) -> tuple[str, str]:
    """Return the units of the price and of what was used, in the words of attributes/unit_format.md."""
    if usage.per is Per.GB:
        return ("GB", "GB") if rule_for(usage).gb_bytes == _GB_BYTES else ("GiB", "GiB")
    is_priced_by_size = usage.resource in (
        Resource.DISK,
        Resource.SNAPSHOT,
        Resource.IMAGE,
    ) and not _AZURE_DISK_TIER.fullmatch(usage.kind)
    if usage.per is Per.HOUR:
        return ("GB-Hours", "GB-Hours") if is_priced_by_size else ("Hours", "Hours")
    return ("GB-Months", "GB-Hours") if is_priced_by_size else ("Unit-Months", "Hours")


def _resource(item: LineItem) -> dict[str, str]:
    machine, usage = item.machine, item.charge.usage
    sku = sku_of(item)
    services = _SERVICES.get(usage.provider) or {None: f"cloudgpu {usage.provider}"}
    resource_id = provider_resource_id(usage)
    return {
        "AvailabilityZone": machine.zone or "",
        "RegionId": machine.region or "",
        "RegionName": machine.region or "",
        "ResourceId": resource_id,
        "ResourceName": machine.name if resource_id and resource_id != machine.name and _is_named(item) else "",
        "ResourceType": _RESOURCE_TYPES[usage.resource] if resource_id else "",
        "ServiceCategory": _SERVICE_CATEGORIES.get(usage.resource, "Storage"),
        "ServiceName": services.get(usage.resource, services[None]),
        "SkuId": sku,
        "SkuPriceId": sku if (list_nanos := _list_nanos(item)) is None else f"{sku}@{decimal_text(Money(list_nanos))}",
        "ChargeDescription": _description(item),
    }


def _is_named(item: LineItem) -> bool:
    return item.machine.is_named_resource or item.charge.usage.resource in (Resource.INSTANCE, Resource.TRAFFIC)


def _description(item: LineItem) -> str:
    usage = item.charge.usage
    if item.price_interval is None:
        return f"{usage.what}: no price is known, the cost is missing and not zero"
    text = (
        f"{usage.what} at {Money(item.price_interval.nanos).text(6)} per {_units(usage)[0].lower().removesuffix('s')}"
    )
    return f"{text}: free" if not item.charge.high and item.price_interval.nanos else text


def _own_columns(item: LineItem) -> dict[str, str]:
    price, charge = item.price_interval, item.charge
    on_demand = "" if charge.list_cost is None else decimal_text(Fraction(charge.list_cost, _PARTS_PER_USD))
    reasons = [*charge.reasons, *(["it is still billed"] if item.is_running else [])]
    return {
        "x_Estimate": "true" if item.is_estimate else "false",
        "x_LowCost": decimal_text(item.low),
        "x_HighCost": decimal_text(item.high),
        "x_PriceMissing": "false" if price else "true",
        "x_PriceSource": price.source if price else "",
        "x_PriceBasis": price.basis if price else "",
        "x_PriceAsOf": price.as_of or "" if price else "",
        "x_OnDemandCost": on_demand,
        "x_Reason": "; ".join(reasons),
    }
