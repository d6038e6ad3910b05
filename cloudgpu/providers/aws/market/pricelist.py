"""The whole price list of AWS, region by region: machines with GPUs, disks, snapshots, addresses, traffic, spot.

GetProducts of the Price List Query API (https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/price-changes.html)
and DescribeSpotPriceHistory of EC2. A part that did not answer to its last page is no part.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cloudgpu.catalog import types
from cloudgpu.core.catalog.pricelist import PER_HOUR, Gathering, PriceList, PricePart, RowKey
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import ProviderUnavailable
from cloudgpu.providers.aws.client import KIND, Aws, pages
from cloudgpu.providers.aws.market.prices import LIST_REGION, LIST_SOURCE, MEANT, PRODUCT, SPOT_SOURCE
from cloudgpu.providers.base import ProviderSettings

Product = Mapping[str, Any]
PER_GB_MONTH, PER_GB = "usd_per_gb_month", "usd_per_gb"
UNITS = {"Hrs": PER_HOUR, "GB-Mo": PER_GB_MONTH, "GB-month": PER_GB_MONTH, "GB": PER_GB}
_VOLUMES = {"gp2": "gp2", "gp3": "gp3", "io1": "io1", "io2": "io2", "sc1": "sc1", "st1": "st1"}
_VOLUMES["standard"] = "standard(magnetic)"


def price_list(settings: ProviderSettings) -> PriceList:
    """Return the price list of an account's regions; every region has a part for its list and one for spot.

    Raises AuthFailed, or ProviderUnavailable when no part answered.
    """
    aws = Aws(settings)
    ask = {f"{region} list": (_listed, region) for region in aws.regions()}
    ask |= {f"{region} spot": (_spot, region) for region in aws.regions()}
    answers, silent = aws.each(list(ask), lambda scope: ask[scope][0](aws, scope, ask[scope][1]))
    return PriceList(KIND, tuple(answers.values()), silent)


def _listed(aws: Aws, scope: str, region: str) -> PricePart:
    rows = Gathering(scope, aws.clock(), region)
    machines = {"regionCode": region, "instanceFamily": "GPU instance", **MEANT}
    for product in _products(aws, "AmazonEC2", machines):
        if product.get("marketoption", "OnDemand") == "OnDemand":  # not a block of capacity, bought ahead
            _take(rows, product, RowKey(product["instanceType"], region, Market.ON_DEMAND))
    for family in ("Storage", "Storage Snapshot"):
        for product in _products(aws, "AmazonEC2", {"regionCode": region, "productFamily": family}):
            _take(rows, product, RowKey(_storage_kind(product), region, None))
    addresses = {"regionCode": region, "group": "VPCPublicIPv4Address"}
    for product in _products(aws, "AmazonVPC", addresses):
        kind = "public_ipv4" if product["usagetype"].endswith("PublicIPv4:InUseAddress") else ""
        _take(rows, product, RowKey(kind, region, None))
    outward = {"fromRegionCode": region, "transferType": "AWS Outbound", "toLocation": "External"}
    for product in _products(aws, "AWSDataTransfer", outward):
        _take(rows, product, RowKey("egress_internet_first_10TB", region, None))
    return rows.part()


def _storage_kind(product: Product) -> str:
    """Return the catalogue's word for a product of the family Storage or Storage Snapshot; empty for none of ours."""
    usage = product["usagetype"]
    if usage.endswith("EBS:SnapshotUsage"):
        return "ebs_snapshot"
    return _VOLUMES.get(product.get("volumeApiName", ""), "") if "EBS:VolumeUsage" in usage else ""


def _take(rows: Gathering, product: Product, key: RowKey) -> None:
    """Take a product's price, where it is one of ours: of a price in steps, that of the first."""
    if not key.item:
        return
    name = f"{product['sku']} ({key.item})"
    rates = _first_paid(product["rates"])
    units = {UNITS.get(str(rate.get("unit")), "") for rate in rates}
    if len(units) != 1 or units == {""}:
        rows.refuse(name, f"is not priced by one of: {', '.join(UNITS)}")
        return
    (unit,) = units
    for rate in rates:
        currency, amount = _paid(rate)
        rows.add(key, unit, amount, currency=currency, source=LIST_SOURCE, name=name, note=_free(rate, unit))


def _free(rate: Product, unit: str) -> str:
    """Return the free quantity before this tier of a price; for traffic without one in the list, a recalled one."""
    begin = _figure(str(rate.get("beginRange", "0")))
    if begin > 0:
        return f"first {begin:g} {rate['unit']} a month free"
    return "first 100 GB a month free (recalled)" if unit == PER_GB else ""


def _first_paid(rates: Sequence[Product]) -> list[Product]:
    """Return the rates of the first step that costs something (the first gigabytes may be free), else of the first."""
    steps: dict[float, list[Product]] = {}
    for rate in rates:
        steps.setdefault(_figure(str(rate.get("beginRange", "0"))), []).append(rate)
    in_order = [steps[begin] for begin in sorted(steps)]
    paid = (step for step in in_order if any(_figure(str(_paid(rate)[1])) for rate in step))
    return next(paid, in_order[0] if in_order else [])


def _paid(rate: Product) -> tuple[str, object]:
    paid = rate.get("pricePerUnit") or {}
    currency = "USD" if "USD" in paid else next(iter(paid), "no currency")
    return currency, paid.get(currency)


def _products(aws: Aws, service: str, meant: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the attributes of the products that fit, each with its `sku` and the `rates` of its on-demand terms."""
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in meant.items()]
    value = meant.get("regionCode")
    with aws.calling("pricing:GetProducts", LIST_REGION, value=value):
        for page in pages(aws.client("pricing", LIST_REGION), "get_products", ServiceCode=service, Filters=filters):
            yield from map(_product, page["PriceList"])


def _product(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
        terms = value.get("terms", {}).get("OnDemand", {}).values()
        rates = [rate for term in terms for rate in term["priceDimensions"].values()]
        attributes = {"usagetype": "", "instanceType": "", **value["product"]["attributes"]}
        return {**attributes, "sku": value["product"]["sku"], "rates": rates}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"The AWS price list has a product that cannot be read ({type(error).__name__}): {text[:60]!r}."
        raise ProviderUnavailable(message, field="provider", value="pricing:GetProducts") from error


def _spot(aws: Aws, scope: str, region: str) -> PricePart:
    """Return the spot prices of now of today's types that the catalogue knows, each in its cheapest zone."""
    names = [one.name for one in types(KIND) if not one.legacy_reason]
    newest: dict[tuple[str, str], Mapping[str, Any]] = {}
    with aws.calling("DescribeSpotPriceHistory", region):
        asked = {
            "Filters": [{"Name": "instance-type", "Values": names}],
            "ProductDescriptions": [PRODUCT],
            "StartTime": aws.clock(),  # from now on: what is in force, and no history
        }
        for page in pages(aws.ec2(region), "describe_spot_price_history", **asked):
            for row in page["SpotPriceHistory"]:
                key = (row["InstanceType"], row["AvailabilityZone"])
                newest[key] = max(newest.get(key, row), row, key=lambda one: one["Timestamp"])
    return _cheapest_zones(Gathering(scope, aws.clock(), region), region, newest)


def _cheapest_zones(rows: Gathering, region: str, newest: Mapping[tuple[str, str], Mapping[str, Any]]) -> PricePart:
    by_type: dict[str, dict[str, str]] = {}
    for (name, zone), row in newest.items():
        by_type.setdefault(name, {})[zone] = row["SpotPrice"]
    for name, zones in by_type.items():
        zone = min(zones, key=lambda one: (_figure(zones[one]), one))
        note = f"the cheapest of {len(zones)} zones, {zone}"
        key = RowKey(name, region, Market.SPOT)
        rows.add(key, PER_HOUR, zones[zone], source=SPOT_SOURCE, name=f"{name} in {zone}", note=note)
    return rows.part()


def _figure(text: str) -> float:
    """Return a price to compare by; what is none comes first, so that it is refused by name."""
    try:
        return float(text)
    except ValueError:
        return float("-inf")
