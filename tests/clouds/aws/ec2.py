"""EC2 as our model has it: moto's, with our parts in front; and what moto itself must be told, once in a process."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from moto.ec2 import urls, utils as ec2_utils
from moto.ec2.models import ec2_backends
from moto.ec2.responses import EC2Response

from tests.clouds.aws import types
from tests.clouds.aws.images import Images
from tests.clouds.aws.machines import Machines
from tests.clouds.aws.model import ACCOUNT, Model
from tests.clouds.aws.moto_state import hasten
from tests.clouds.aws.networks import Networks
from tests.clouds.aws.placements import Placements
from tests.clouds.aws.spot import Spot
from tests.clouds.aws.types import Types
from tests.clouds.aws.volumes import Volumes

FILTERS = {
    "instance-lifecycle": "lifecycle",
    "client-token": "client_token",
    "spot-instance-request-id": "spot_instance_request_id",
    "placement-group-name": "placement.group_name",
    "launch-index": "ami_launch_index",
}


class Ec2(Machines, Spot, Images, Volumes, Networks, Placements, Types, EC2Response):
    """All of it; the server sets `model` at each reset."""

    # moto calls every launch pending, a replay of an old one too
    RESPONSE_KEY_PATH_TO_TRANSFORMER = {  # noqa: RUF012
        path: made
        for path, made in EC2Response.RESPONSE_KEY_PATH_TO_TRANSFORMER.items()
        if not path.startswith("RunInstances.")
    }
    model = Model()


def install() -> None:
    """Let moto's server answer EC2 with the class above."""
    hasten()
    ec2_utils.filter_dict_attribute_mapping.update(FILTERS)
    ec2_utils.instance_value_in_filter_values = _matches
    urls.url_paths["{0}/"] = Ec2.dispatch
    types.extend()


def backend(region: str) -> Any:
    """Return moto's EC2 of a region."""
    return ec2_backends[ACCOUNT][region]


def _matches(value: Any, wanted: list[str]) -> bool:
    """Compare as AWS does: any of several values, each with wildcards."""
    values = [str(one).lower() if isinstance(one, bool) else str(one) for one in _listed(value)]
    return any(fnmatchcase(one, pattern) for one in values for pattern in wanted)


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]
