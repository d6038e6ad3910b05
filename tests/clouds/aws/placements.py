"""Placement groups, which moto lacks, and how many machines of a type a zone has left.

Groups: EC2 API Reference (CreatePlacementGroup, DescribePlacementGroups, DeletePlacementGroup) and user guide,
"Placement groups". Belief: the sentences, and that a group is in use until its last machine is terminated, which users
report.
"""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.responses import EC2Response
from moto.ec2.utils import convert_tag_spec, generic_filter, random_id

from tests.clouds.aws.errors import AwsError
from tests.clouds.aws.model import ACCOUNT, Model

LONGEST_NAME = 255
STRATEGIES = ("cluster", "partition", "spread")
ASKED_OF_A_PLACE = {"AvailabilityZone", "GroupName", "Tenancy"}
TAKES_ROOM = {"pending", "running", "stopping", "shutting-down"}


class PlacementGroup(TaggedEC2Resource):
    """One placement group, as DescribePlacementGroups shows it."""

    state = "available"

    def __init__(self, backend: Any, region: str, name: str, strategy: str) -> None:
        self.ec2_backend = backend
        self.id = self.group_id = random_id(prefix="pg")
        self.group_name, self.strategy = name, strategy
        self.group_arn = f"arn:aws:ec2:{region}:{ACCOUNT}:placement-group/{name}"

    @property
    def tags(self) -> list[dict[str, str]]:
        return self.get_tags()

    def get_filter_value(self, filter_name: str, method_name: str | None = None) -> Any:
        known = {"group-name": self.group_name, "state": self.state, "strategy": self.strategy}
        if filter_name in known:
            return known[filter_name]
        return super().get_filter_value(filter_name, "DescribePlacementGroups")


class Placements(EC2Response):
    """The calls about placement groups."""

    model: Model

    def create_placement_group(self) -> ActionResult:
        """Make a group of a name that is free in its region."""
        name, strategy = self._get_param("GroupName"), self._get_param("Strategy")
        if not name or not strategy:
            missing = "strategy" if name else "groupName"
            raise EC2ClientError("MissingParameter", f"The request must contain the parameter {missing}")
        if strategy not in STRATEGIES or len(name) > LONGEST_NAME or not name.isascii():
            raise EC2ClientError("InvalidParameterValue", f"Value ({strategy}, {name}) is invalid.")
        specified = self._get_param("TagSpecifications", [])
        if any(one.get("ResourceType") != "placement-group" for one in specified):
            said = f"'{specified[0].get('ResourceType')}' is not a valid taggable resource type for this operation."
            raise EC2ClientError("InvalidParameterValue", said)
        self.error_on_dryrun()
        if (self.region, name) in self.model.placement_groups:
            raise EC2ClientError("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
        made = PlacementGroup(self.ec2_backend, self.region, name, strategy)
        made.add_tags(convert_tag_spec(specified).get("placement-group", {}))
        self.model.placement_groups[(self.region, name)] = made
        return ActionResult({"PlacementGroup": made})

    def describe_placement_groups(self) -> ActionResult:
        """Return groups; one that is named and not there fails the whole call."""
        own = {name: one for (region, name), one in self.model.placement_groups.items() if region == self.region}
        named = self._get_param("GroupNames", []), self._get_param("GroupIds", [])
        known = {*own, *(one.group_id for one in own.values())}
        for name in (*named[0], *named[1]):
            if name not in known:
                raise _unknown(name)
        wanted = {*named[0], *named[1]}
        found = [one for one in own.values() if not wanted or wanted & {one.group_name, one.group_id}]
        return ActionResult({"PlacementGroups": generic_filter(self._filters_from_querystring(), found)})

    def delete_placement_group(self) -> ActionResult:
        """Delete a group by its name; one with a machine that is not terminated yet is in use."""
        self.error_on_dryrun()
        name = self._get_param("GroupName")
        if (self.region, name) not in self.model.placement_groups:
            raise _unknown(name)
        if users(self.ec2_backend, name):
            raise EC2ClientError(
                "InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use and may not be deleted."
            )
        del self.model.placement_groups[(self.region, name)]
        return ActionResult({})


def users(backend: Any, name: str) -> list[Any]:
    """Return the machines in a placement group that are not terminated."""
    return [one for one in backend.all_instances() if one.placement.group_name == name and one.state != "terminated"]


def check(model: Model, backend: Any, params: Any, zone: str) -> None:
    """Raise what AWS says to a launch into a placement group that cannot be; the codes but Unknown are belief."""
    place = params.get("Placement") or {}
    if set(place) - ASKED_OF_A_PLACE:
        raise NotImplementedError(f"Placement with {sorted(set(place) - ASKED_OF_A_PLACE)}")
    name = place.get("GroupName")
    if not name:
        return
    group = model.placement_groups.get((backend.region_name, name))
    if group is None:
        raise _unknown(name)
    kind = params.get("InstanceType") or "m1.small"
    strategies = (INSTANCE_TYPES[kind].get("PlacementGroupInfo") or {}).get("SupportedStrategies", [])
    if group.strategy not in strategies:
        said = f"{group.strategy.title()} placement groups are not supported by the '{kind}' instance type."
        raise EC2ClientError("InvalidParameterCombination", said)
    if group.strategy == "cluster" and any(one.availability_zone != zone for one in users(backend, name)):
        raise EC2ClientError("InvalidParameterValue", f"The placement group '{name}' is in another Availability Zone.")


def room(model: Model, backend: Any, name: str, zone: str, least: int, most: int) -> int:
    """Return how many of between `least` and `most` machines a zone has; raise InsufficientInstanceCapacity for fewer.

    "A value that is more capacity than EC2 can provide in the target Availability Zone: does not launch any".
    """
    limit = model.room.get((name, zone))
    if limit is None:
        return most
    left = limit - live(backend, name, zone)
    if left < least:
        raise AwsError("InsufficientInstanceCapacity")
    return min(left, most)


def live(backend: Any, name: str, zone: str) -> int:
    """Return how many machines of a type take room in a zone now."""
    mine = (one for one in backend.all_instances() if (one.instance_type, one.availability_zone) == (name, zone))
    return sum(one.state in TAKES_ROOM for one in mine)


def _unknown(name: str) -> EC2ClientError:
    return EC2ClientError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
