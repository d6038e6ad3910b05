"""What spot machines cost since a moment: every price with the time from which it held."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cloudgpu.core.model.offers import Available, Market, Price
from cloudgpu.errors import ProviderUnavailable
from cloudgpu.providers.aws.client import Aws, pages
from cloudgpu.providers.aws.prices import PRODUCT, Place, spot_price


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
    found = {place: prices for answer in answers.values() for place, prices in answer.items()}
    return [_since(found.get((item.instance_type, item.zone), []), since) if item in spot else [] for item in items]


def _in(aws: Aws, region: str, items: Sequence[Available], since: datetime) -> dict[Place, list[Price]]:
    here = [item for item in items if item.region == region]
    found: dict[Place, list[Price]] = {}
    with aws.said("DescribeSpotPriceHistory", region):
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
