"""How likely a spot launch is in each zone, by AWS's own word: the spot placement scores, from 1 to 10.

AWS names zones by their ids, which are the same in all accounts; their names are asked for once. For fewer than three
types its scores are low (EC2 user guide, Spot placement score), so they are good for a comparison only. It limits how
many different questions an account has in a day: an answer is remembered for an hour, and so is a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from cloudgpu.core.model.offers import Available, Market
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.aws.client import Aws, pages

REMEMBERED_FOR = timedelta(hours=1)
MAX_REGIONS = 10  # of one question (EC2 API Reference, GetSpotPlacementScores)


def placement_scores(aws: Aws, items: Sequence[Available]) -> list[int | None]:
    """Return the score of each spot item of the first one's type; None for others, and where AWS gives none.

    Raises nothing: an account that may not ask has no scores.
    """
    spot = [item for item in items if item.market is Market.SPOT]
    if not spot:
        return [None for _ in items]
    name = spot[0].instance_type
    regions = tuple(sorted({item.region for item in spot if item.instance_type == name})[:MAX_REGIONS])
    scores = _remembered(aws, name, regions)
    return [scores.get(item.zone) if item in spot and item.instance_type == name else None for item in items]


def _remembered(aws: Aws, name: str, regions: tuple[str, ...]) -> Mapping[str, int]:
    """Return the scores by zone, asked anew where the last answer is too old."""
    known, now = aws.scores.get((name, regions)), aws.clock()
    if known is None or now - known[0] >= REMEMBERED_FOR:
        found: Mapping[str, int] = {}
        with suppress(CloudgpuError):
            found = _query_scores(aws, name, regions)
        known = aws.scores[name, regions] = (now, found)
    return known[1]


def _query_scores(aws: Aws, name: str, regions: tuple[str, ...]) -> dict[str, int]:
    by_id: dict[str, int] = {}
    with aws.calling("GetSpotPlacementScores", regions[0]):
        asked = {"InstanceTypes": [name], "TargetCapacity": 1, "SingleAvailabilityZone": True}
        for page in pages(aws.ec2(regions[0]), "get_spot_placement_scores", **asked, RegionNames=list(regions)):
            by_id |= {one["AvailabilityZoneId"]: one["Score"] for one in page["SpotPlacementScores"]}
    return {zone: by_id[key] for region in regions for key, zone in _zones(aws, region).items() if key in by_id}


def _zones(aws: Aws, region: str) -> Mapping[str, str]:
    """Return the names of a region's zones by their ids. Asked once."""
    if region not in aws.zone_names:
        with aws.calling("DescribeAvailabilityZones", region):
            answer = aws.ec2(region).describe_availability_zones()
        aws.zone_names[region] = {one["ZoneId"]: one["ZoneName"] for one in answer["AvailabilityZones"]}
    return aws.zone_names[region]
