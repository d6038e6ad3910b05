"""Prices AWS offers now, and spot machines since a moment.

Spot is asked per zone. On demand goes by the dated list, and is asked for what that lacks. The past of spot is every
price with the time from which it held.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cloudgpu.catalog import listed_price, types
from cloudgpu.core.model.offers import Available, Basis, Market, Price
from cloudgpu.core.values.money import Money
from cloudgpu.errors import ProviderUnavailable
from cloudgpu.providers.aws.client import KIND, Aws, pages

PRODUCT = "Linux/UNIX"
SPOT_SOURCE = "EC2 DescribeSpotPriceHistory"
LIST_SOURCE = "AWS Price List (GetProducts)"
LIST_REGION = "us-east-1"  # the Price List answers in few regions, for all
MEANT = {  # what a plain Linux machine is, in the Price List's words
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "licenseModel": "No License required",
}
PriceKey = tuple[str, str]  # type and zone, or type and region


def prices(aws: Aws, offers: Sequence[Available]) -> list[Price | None]:
    """Return one price per offer, in order; None where there is none: no estimate stands in for a spot price.

    One call per region with spot offers, one per type that the catalogue lacks and region. Raises ProviderUnavailable
    naming a region that did not answer: the cheapest of the rest is not known to be the cheapest.
    """
    spot = _spot(aws, [item for item in offers if item.market is Market.SPOT])
    listed = _asked(aws, [item for item in offers if item.market is Market.ON_DEMAND])
    return [
        spot.get((item.instance_type, item.zone)) if item.market is Market.SPOT else _on_demand(item, listed)
        for item in offers
    ]


def _on_demand(item: Available, asked: Mapping[PriceKey, Price | None]) -> Price | None:
    key = (item.instance_type, item.region)
    return asked[key] if key in asked else listed_price(KIND, *key, Market.ON_DEMAND)


def _spot(aws: Aws, offers: Sequence[Available]) -> dict[PriceKey, Price]:
    """Return the spot price of now by type and zone."""
    names = {item.region: sorted({one.instance_type for one in offers if one.region == item.region}) for item in offers}
    if not names:
        return {}
    answers, silent = aws.each(sorted(names), lambda region: _spot_in(aws, region, names[region]))
    if silent:
        message = f"The spot prices of {silent[0].scope} are not known, so the cheapest is not: {silent[0].why}"
        raise ProviderUnavailable(message, field="--region", value=silent[0].scope, next="Name another --region.")
    return {key: price for found in answers.values() for key, price in found.items()}


def _spot_in(aws: Aws, region: str, names: Sequence[str]) -> dict[PriceKey, Price]:
    found: dict[PriceKey, Price] = {}
    with aws.calling("DescribeSpotPriceHistory", region):
        answers = pages(
            aws.ec2(region),
            "describe_spot_price_history",
            InstanceTypes=list(names),
            ProductDescriptions=[PRODUCT],
            StartTime=aws.clock(),  # from now on: the price that is in force, and no history
        )
        for row in (row for page in answers for row in page["SpotPriceHistory"]):
            key, price = (row["InstanceType"], row["AvailabilityZone"]), spot_price(row)
            if key not in found or found[key].as_of < price.as_of:
                found[key] = price
    return found


def spot_price(row: Mapping[str, Any]) -> Price:
    """Return the price that a row of DescribeSpotPriceHistory tells, as of when it began to hold."""
    return Price(Money.usd(row["SpotPrice"]), SPOT_SOURCE, row["Timestamp"].astimezone(UTC), Basis.ASKED)


def _asked(aws: Aws, offers: Sequence[Available]) -> dict[PriceKey, Price | None]:
    """Return the list price of each type that the catalogue lacks, by type and region, asked now."""
    known = {one.name for one in types(KIND)}
    keys = sorted({(item.instance_type, item.region) for item in offers if item.instance_type not in known})
    if not keys:
        return {}
    now = aws.clock()
    names = {" ".join(key): key for key in keys}
    answers, silent = aws.each(list(names), lambda name: _list_price(aws, *names[name], now))
    if silent:
        raise ProviderUnavailable(f"The price of {silent[0].scope} is not known: {silent[0].why}", field="provider")
    return {names[name]: price for name, price in answers.items()}


def _list_price(aws: Aws, name: str, region: str, now: datetime) -> Price | None:
    meant = {"instanceType": name, "regionCode": region, **MEANT}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in meant.items()]
    with aws.calling("pricing:GetProducts", LIST_REGION, value=name):
        answer = aws.client("pricing", LIST_REGION).get_products(ServiceCode="AmazonEC2", Filters=filters)
    usd = {text for product in answer["PriceList"] for text in _hourly(json.loads(product))}
    # two prices for one question: none of them is known to be the one
    return Price(Money.usd(usd.pop()), LIST_SOURCE, now, Basis.ASKED) if len(usd) == 1 else None


def _hourly(product: Mapping[str, Any]) -> list[str]:
    terms = product.get("terms", {}).get("OnDemand", {}).values()
    rates = [rate for term in terms for rate in term.get("priceDimensions", {}).values()]
    found = [
        rate["pricePerUnit"]["USD"] for rate in rates if rate.get("unit") == "Hrs" and "USD" in rate["pricePerUnit"]
    ]
    return [usd for usd in found if float(usd) > 0]


def price_history(aws: Aws, items: Sequence[Available], since: datetime) -> list[list[Price]]:
    """Return the prices of each spot item since then, oldest first, by one call per region and page.

    The first held at `since`: EC2 tells the last change before StartTime, too (EC2 API Reference,
    DescribeSpotPriceHistory: "the effective price as of the start time"), for up to 90 days. Raises
    ProviderUnavailable naming a region that did not answer.
    """
    spot = [item for item in items if item.market is Market.SPOT]
    regions = sorted({item.region for item in spot})
    answers, silent = aws.each(regions, lambda region: _in(aws, region, spot, since))
    if silent:
        message = f"The spot prices of {silent[0].scope} since {since:%Y-%m-%d %H:%M} are not known: {silent[0].why}"
        raise ProviderUnavailable(message, field="--region", value=silent[0].scope, next="Run: cloudgpu ls --refresh")
    found = {key: prices for answer in answers.values() for key, prices in answer.items()}
    return [_since(found.get((item.instance_type, item.zone), []), since) if item in spot else [] for item in items]


def _in(aws: Aws, region: str, items: Sequence[Available], since: datetime) -> dict[PriceKey, list[Price]]:
    here = [item for item in items if item.region == region]
    found: dict[PriceKey, list[Price]] = {}
    with aws.calling("DescribeSpotPriceHistory", region):
        answers = pages(
            aws.ec2(region),
            "describe_spot_price_history",
            InstanceTypes=sorted({item.instance_type for item in here}),
            ProductDescriptions=[PRODUCT],
            StartTime=since,
            Filters=[{"Name": "availability-zone", "Values": sorted({item.zone for item in here})}],
        )
        for row in (row for page in answers for row in page["SpotPriceHistory"]):
            found.setdefault((row["InstanceType"], row["AvailabilityZone"]), []).append(spot_price(row))
    return found


def _since(prices: list[Price], since: datetime) -> list[Price]:
    """Return them oldest first, from the one that held at `since`; where two begin at one time, the later told one."""
    by_time = {price.as_of: price for price in prices}
    times = sorted(by_time)
    before = [at for at in times if at <= since][-1:]
    return [by_time[at] for at in (*before, *(at for at in times if at > since))]
