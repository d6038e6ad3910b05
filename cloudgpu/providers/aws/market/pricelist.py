"""The whole price list of AWS, region by region: machines with GPUs, disks, snapshots, addresses, traffic, spot.

GetProducts of the Price List Query API (https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/price-changes.html)
and DescribeSpotPriceHistory of EC2. A part of the list is used only if all its pages were read.

`prices` prices offers as of now: spot machines by AWS's spot prices per zone, on-demand machines by the catalogue, or
by the price list for types that the catalogue lacks. `price_history` has every spot price since a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cloudgpu.catalog import instance_types, listed_price
from cloudgpu.core.catalog.pricelist import PER_HOUR, PartBuilder, PriceList, PricePart, RowKey
from cloudgpu.core.model.offers import Basis, MachineConfiguration, Market, Price
from cloudgpu.core.values.money import Money
from cloudgpu.errors import ProviderUnavailable
from cloudgpu.providers.aws.client import PROVIDER, Aws, pages
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.shared.calls import check_all_answered

Product = Mapping[str, Any]
PER_GB_MONTH, PER_GB = "usd_per_gb_month", "usd_per_gb"
UNIT_BY_AWS_UNIT = {"Hrs": PER_HOUR, "GB-Mo": PER_GB_MONTH, "GB-month": PER_GB_MONTH, "GB": PER_GB}
_KIND_BY_VOLUME_TYPE = {"gp2": "gp2", "gp3": "gp3", "io1": "io1", "io2": "io2", "sc1": "sc1", "st1": "st1"}
_KIND_BY_VOLUME_TYPE["standard"] = "standard(magnetic)"


def price_list(settings: ProviderSettings) -> PriceList:
    """Return the price list of an account's regions; every region has one part of list prices and one of spot prices.

    Raises AuthFailed, or ProviderUnavailable when no part answered.
    """
    aws = Aws(settings)
    reader_by_scope = {f"{region} list": (_list_part, region) for region in aws.regions()}
    reader_by_scope |= {f"{region} spot": (_spot_part, region) for region in aws.regions()}
    answers, unanswered = aws.ask_each(
        list(reader_by_scope), lambda scope: reader_by_scope[scope][0](aws, scope, reader_by_scope[scope][1])
    )
    return PriceList(PROVIDER, tuple(answers.values()), unanswered)


def _list_part(aws: Aws, scope: str, region: str) -> PricePart:
    part_builder = PartBuilder(scope, aws.clock(), region)
    machine_filters = {"regionCode": region, "instanceFamily": "GPU instance", **PLAIN_LINUX}
    for product in _products(aws, "AmazonEC2", machine_filters):
        if product.get("marketoption", "OnDemand") == "OnDemand":  # not a capacity block, which is bought in advance
            _add_price(part_builder, product, RowKey(product["instanceType"], region, Market.ON_DEMAND))
    for family in ("Storage", "Storage Snapshot"):
        for product in _products(aws, "AmazonEC2", {"regionCode": region, "productFamily": family}):
            _add_price(part_builder, product, RowKey(_storage_kind(product), region, None))
    address_filters = {"regionCode": region, "group": "VPCPublicIPv4Address"}
    for product in _products(aws, "AmazonVPC", address_filters):
        kind = "public_ipv4" if product["usagetype"].endswith("PublicIPv4:InUseAddress") else ""
        _add_price(part_builder, product, RowKey(kind, region, None))
    egress = {"fromRegionCode": region, "transferType": "AWS Outbound", "toLocation": "External"}
    for product in _products(aws, "AWSDataTransfer", egress):
        _add_price(part_builder, product, RowKey("egress_internet_first_10TB", region, None))
    return part_builder.part()


def _storage_kind(product: Product) -> str:
    """Return the catalogue's kind of a product of the family Storage or Storage Snapshot; empty where it has none."""
    usage = product["usagetype"]
    if usage.endswith("EBS:SnapshotUsage"):
        return "ebs_snapshot"
    return _KIND_BY_VOLUME_TYPE.get(product.get("volumeApiName", ""), "") if "EBS:VolumeUsage" in usage else ""


def _add_price(part_builder: PartBuilder, product: Product, key: RowKey) -> None:
    """Add a product's price, unless `key.configuration` is empty; of a tiered price, that of the first paid tier."""
    if not key.item:
        return
    name = f"{product['sku']} ({key.item})"
    rates = _first_paid_tier(product["rates"])
    units = {UNIT_BY_AWS_UNIT.get(str(rate.get("unit")), "") for rate in rates}
    if len(units) != 1 or units == {""}:
        part_builder.refuse(name, f"is not priced by one of: {', '.join(UNIT_BY_AWS_UNIT)}")
        return
    (unit,) = units
    for rate in rates:
        currency, amount = _price_of(rate)
        part_builder.add(
            key, unit, amount, currency=currency, source=LIST_SOURCE, name=name, note=_free_quantity(rate, unit)
        )


def _free_quantity(rate: Product, unit: str) -> str:
    """Return the free quantity before this tier of a price; for traffic without one in the list, an unverified one."""
    begins_at = _number_or_minus_infinity(str(rate.get("beginRange", "0")))
    if begins_at > 0:
        return f"first {begins_at:g} {rate['unit']} a month free"
    return "first 100 GB a month free (unverified)" if unit == PER_GB else ""


def _first_paid_tier(rates: Sequence[Product]) -> list[Product]:
    """Return the rates of the first step that costs something (the first gigabytes may be free), else of the first."""
    tiers: dict[float, list[Product]] = {}
    for rate in rates:
        tiers.setdefault(_number_or_minus_infinity(str(rate.get("beginRange", "0"))), []).append(rate)
    in_order = [tiers[begins_at] for begins_at in sorted(tiers)]
    paid_tiers = (tier for tier in in_order if any(_number_or_minus_infinity(str(_price_of(rate)[1])) for rate in tier))
    return next(paid_tiers, in_order[0] if in_order else [])


def _price_of(rate: Product) -> tuple[str, object]:
    by_currency = rate.get("pricePerUnit") or {}
    currency = "USD" if "USD" in by_currency else next(iter(by_currency), "no currency")
    return currency, by_currency.get(currency)


def _products(aws: Aws, service: str, attribute_filters: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the attributes of the products that fit, each with its `sku` and the `rates` of its on-demand terms."""
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in attribute_filters.items()]
    value = attribute_filters.get("instanceType") or attribute_filters.get("regionCode")
    with aws.calling("pricing:GetProducts", LIST_REGION, value=value):
        for page in pages(aws.client("pricing", LIST_REGION), "get_products", ServiceCode=service, Filters=filters):
            yield from map(_product, page["PriceList"])


def _product(product_json: str) -> dict[str, Any]:
    try:
        product = json.loads(product_json)
        terms = product.get("terms", {}).get("OnDemand", {}).values()
        rates = [rate for term in terms for rate in term["priceDimensions"].values()]
        attributes = {"usagetype": "", "instanceType": "", **product["product"]["attributes"]}
        return {**attributes, "sku": product["product"]["sku"], "rates": rates}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = (
            f"The AWS price list has a product that cannot be read ({type(error).__name__}): {product_json[:60]!r}."
        )
        raise ProviderUnavailable(message, field="provider", value="pricing:GetProducts") from error


def _spot_part(aws: Aws, scope: str, region: str) -> PricePart:
    """Return the spot prices of now of today's types that the catalogue knows, each in its cheapest zone."""
    names = [one.name for one in instance_types(PROVIDER) if not one.legacy_reason]
    newest_records: dict[PriceKey, Mapping[str, Any]] = {}
    for record in _spot_price_records(aws, region, aws.clock(), Filters=[{"Name": "instance-type", "Values": names}]):
        key = (record["InstanceType"], record["AvailabilityZone"])
        newest_records[key] = max(newest_records.get(key, record), record, key=lambda one: one["Timestamp"])
    return _cheapest_zones_part(PartBuilder(scope, aws.clock(), region), region, newest_records)


def _cheapest_zones_part(
    part_builder: PartBuilder, region: str, newest_records: Mapping[PriceKey, Mapping[str, Any]]
) -> PricePart:
    by_type: dict[str, dict[str, str]] = {}
    for (name, zone), record in newest_records.items():
        by_type.setdefault(name, {})[zone] = record["SpotPrice"]
    for name, zones in by_type.items():
        zone = min(zones, key=lambda one: (_number_or_minus_infinity(zones[one]), one))
        note = f"the cheapest of {len(zones)} zones, {zone}"
        key = RowKey(name, region, Market.SPOT)
        part_builder.add(key, PER_HOUR, zones[zone], source=SPOT_SOURCE, name=f"{name} in {zone}", note=note)
    return part_builder.part()


def _number_or_minus_infinity(text: str) -> float:
    """Return the text as a number to compare by; a text that is none sorts first, so that `add` refuses it by name."""
    try:
        return float(text)
    except ValueError:
        return float("-inf")


SPOT_PRODUCT = "Linux/UNIX"
SPOT_SOURCE = "EC2 DescribeSpotPriceHistory"
LIST_SOURCE = "AWS Price List (GetProducts)"
LIST_REGION = "us-east-1"  # the Price List API has endpoints in few regions; each has the prices of all
PLAIN_LINUX = {  # attributes in the Price List of a machine without a paid licence
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "licenseModel": "No License required",
}
PriceKey = tuple[str, str]  # type and zone, or type and region


def prices(aws: Aws, offers: Sequence[MachineConfiguration]) -> list[Price | None]:
    """Return one price per offer, in order; None where there is none: a spot price is never estimated.

    One call per region with spot offers, one per type that the catalogue lacks and region. Raises ProviderUnavailable
    naming a region that did not answer: the cheapest of the rest is not known to be the cheapest.
    """
    spot = _query_spot_prices(aws, [configuration for configuration in offers if configuration.market is Market.SPOT])
    listed = _query_list_prices(
        aws, [configuration for configuration in offers if configuration.market is Market.ON_DEMAND]
    )
    return [
        spot.get((configuration.instance_type, configuration.zone))
        if configuration.market is Market.SPOT
        else _on_demand(configuration, listed)
        for configuration in offers
    ]


def _on_demand(configuration: MachineConfiguration, queried: Mapping[PriceKey, Price | None]) -> Price | None:
    key = (configuration.instance_type, configuration.region)
    return queried[key] if key in queried else listed_price(PROVIDER, *key, Market.ON_DEMAND)


def _query_spot_prices(aws: Aws, offers: Sequence[MachineConfiguration]) -> dict[PriceKey, Price]:
    """Return the spot price of now by type and zone."""
    names = {
        configuration.region: sorted({one.instance_type for one in offers if one.region == configuration.region})
        for configuration in offers
    }
    if not names:
        return {}
    answers, unanswered = aws.ask_each(sorted(names), lambda region: _spot_prices_in(aws, region, names[region]))
    sentence = "The spot prices of {scope} are not known, so the cheapest is not"
    check_all_answered(unanswered, sentence, field="--region", remedy="Name another --region.")
    return {key: price for found in answers.values() for key, price in found.items()}


def _spot_prices_in(aws: Aws, region: str, names: Sequence[str]) -> dict[PriceKey, Price]:
    price_by_key: dict[PriceKey, Price] = {}
    for record in _spot_price_records(aws, region, aws.clock(), InstanceTypes=list(names)):
        key, price = (record["InstanceType"], record["AvailabilityZone"]), spot_price(record)
        if key not in price_by_key or price_by_key[key].as_of < price.as_of:
            price_by_key[key] = price
    return price_by_key


def _spot_price_records(aws: Aws, region: str, since: datetime, **query: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the records of spot prices since then; since now: the prices that hold now. A call per page."""
    parameters = {"ProductDescriptions": [SPOT_PRODUCT], "StartTime": since}
    with aws.calling("DescribeSpotPriceHistory", region):
        for page in pages(aws.ec2(region), "describe_spot_price_history", **query, **parameters):
            yield from page["SpotPriceHistory"]


def spot_price(record: Mapping[str, Any]) -> Price:
    """Return the price in a record of DescribeSpotPriceHistory, as of when it began to hold."""
    return Price(Money.usd(record["SpotPrice"]), SPOT_SOURCE, record["Timestamp"].astimezone(UTC), Basis.QUOTED)


def _query_list_prices(aws: Aws, offers: Sequence[MachineConfiguration]) -> dict[PriceKey, Price | None]:
    """Return the list price of each type that the catalogue lacks, by type and region, asked now."""
    catalogue_types = {one.name for one in instance_types(PROVIDER)}
    keys = sorted(
        {
            (configuration.instance_type, configuration.region)
            for configuration in offers
            if configuration.instance_type not in catalogue_types
        }
    )
    if not keys:
        return {}
    now = aws.clock()
    names = {" ".join(key): key for key in keys}
    answers, unanswered = aws.ask_each(list(names), lambda name: _list_price(aws, *names[name], now))
    check_all_answered(unanswered, "The price of {scope} is not known")
    return {names[name]: price for name, price in answers.items()}


def _list_price(aws: Aws, name: str, region: str, now: datetime) -> Price | None:
    fields = {"instanceType": name, "regionCode": region, **PLAIN_LINUX}
    hourly_usd = {text for product in _products(aws, "AmazonEC2", fields) for text in _hourly_usd(product["rates"])}
    # several prices match: which one holds is not known
    return Price(Money.usd(hourly_usd.pop()), LIST_SOURCE, now, Basis.QUOTED) if len(hourly_usd) == 1 else None


def _hourly_usd(rates: Sequence[Product]) -> list[str]:
    """Return the prices per hour that are not zero."""
    found = [
        rate["pricePerUnit"]["USD"] for rate in rates if rate.get("unit") == "Hrs" and "USD" in rate["pricePerUnit"]
    ]
    return [hourly_usd for hourly_usd in found if float(hourly_usd) > 0]


def price_history(aws: Aws, configurations: Sequence[MachineConfiguration], since: datetime) -> list[list[Price]]:
    """Return the prices of each spot item since then, oldest first, by one call per region and page.

    The first held at `since`: EC2 returns the last change before StartTime, too (EC2 API Reference,
    DescribeSpotPriceHistory: "the effective price as of the start time"), for up to 90 days. Raises
    ProviderUnavailable naming a region that did not answer.
    """
    spot = [configuration for configuration in configurations if configuration.market is Market.SPOT]
    regions = sorted({configuration.region for configuration in spot})
    answers, unanswered = aws.ask_each(regions, lambda region: _spot_history(aws, region, spot, since))
    sentence = f"The spot prices of {{scope}} since {since:%Y-%m-%d %H:%M} are not known"
    check_all_answered(unanswered, sentence, field="--region", remedy="Run: cloudgpu ls --refresh")
    prices_by_key = {key: prices for answer in answers.values() for key, prices in answer.items()}
    return [
        _prices_since(prices_by_key.get((configuration.instance_type, configuration.zone), []), since)
        if configuration in spot
        else []
        for configuration in configurations
    ]


def _spot_history(
    aws: Aws, region: str, configurations: Sequence[MachineConfiguration], since: datetime
) -> dict[PriceKey, list[Price]]:
    in_region = [configuration for configuration in configurations if configuration.region == region]
    query = {
        "InstanceTypes": sorted({configuration.instance_type for configuration in in_region}),
        "Filters": [
            {"Name": "availability-zone", "Values": sorted({configuration.zone for configuration in in_region})}
        ],
    }
    prices_by_key: dict[PriceKey, list[Price]] = {}
    for record in _spot_price_records(aws, region, since, **query):
        prices_by_key.setdefault((record["InstanceType"], record["AvailabilityZone"]), []).append(spot_price(record))
    return prices_by_key


def _prices_since(prices: list[Price], since: datetime) -> list[Price]:
    """Return them oldest first, from the one that held at `since`; of two with one time, the later in the list."""
    by_time = {price.as_of: price for price in prices}
    times = sorted(by_time)
    last_before = [at for at in times if at <= since][-1:]
    return [by_time[at] for at in (*last_before, *(at for at in times if at > since))]
