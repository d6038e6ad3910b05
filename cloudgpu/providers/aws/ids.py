"""Makes and reads our ids on AWS, and defines the options of an aws account in config.toml.

An id is the region and AWS's own id, `us-east-1/i-0123456789abcdef0`, so that no request has to search.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudgpu.providers.registry import read_table, setting_error
from cloudgpu.providers.shared.errors import invalid_id_error
from cloudgpu.providers.shared.options import matching, port, several, text

REGION = re.compile(r"[a-z]{2,3}(-[a-z]+)+-\d{1,2}")
ZONE = re.compile(r"([a-z]{2,3}(?:-[a-z]+)+-\d{1,2})[a-z]")
_OUR_ID = re.compile(r"([a-z]{2,3}(?:-[a-z]+)+-\d{1,2})/((i|vol|snap|ami)-[0-9a-f]{8,17})")


def join_id(region: str, native_id: str) -> str:
    """Return our id of what AWS calls `native_id` in a region."""
    return f"{region}/{native_id}"


def split_id(id: str, kind: str) -> tuple[str, str] | None:  # noqa: A002
    """Return the region and AWS's id of one of ours, of this kind (`i`, `vol`, `snap`, `ami`); None for any other."""
    found = _OUR_ID.fullmatch(id)
    return (found[1], found[2]) if found and found[3] == kind else None


def split_machine_id(id: str) -> tuple[str, str]:  # noqa: A002
    """Return the region and AWS's id of a machine.

    Raises InvalidRequest for any other text, not InstanceNotFound: AWS was not asked, so no machine is proved gone.
    """
    region_and_id = split_id(id, "i")
    if region_and_id is None:
        raise invalid_id_error(id, "a machine on AWS", "It looks like us-east-1/i-0123456789abcdef0.", field="instance")
    return region_and_id


def region_of(zone: str) -> str | None:
    """Return the region of an availability zone, None for any other text (a local zone has a longer name)."""
    found = ZONE.fullmatch(zone)
    return found[1] if found else None


# The beginnings of regions in partitions of their own, whose accounts have no region of another partition.
_PARTITIONS = ("cn-", "us-gov-", "us-iso", "eu-isoe-", "eusc-")


def is_same_partition(home_region: str, name: str) -> bool:
    """Say whether a region is in the partition (AWS, China, GovCloud) of the account with this home region."""
    return bool(REGION.fullmatch(name)) and _partition(home_region) == _partition(name)


def _partition(name: str) -> str:
    return next((one for one in _PARTITIONS if name.startswith(one)), "")


HOME_REGION = "us-east-1"
SSH_PORT = 22
_ROLE_ARN = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+")


@dataclass(frozen=True, slots=True)
class AwsOptions:
    """The options of an account. `home_region` answers what belongs to no region; `regions` empty: all enabled ones.

    `instance_profile` is the profile that machines get, `timer_role` the ARN of the role of their timers; None: none.
    """

    profile: str | None = None
    home_region: str = HOME_REGION
    regions: tuple[str, ...] = ()
    exclude_regions: tuple[str, ...] = ()
    ssh_port: int = SSH_PORT
    instance_profile: str | None = None
    timer_role: str | None = None


def aws_options(account: str, table: Mapping[str, Any]) -> AwsOptions:
    """Return the options of an account's table; raise InvalidRequest for the first that is unknown or invalid."""
    return AwsOptions(**read_table("aws", account, table, _READERS))


def _read_role_arn(account: str, key: str, value: object) -> str:
    if isinstance(value, str) and _ROLE_ARN.fullmatch(value):
        return value
    remedy = f'Write it like {key} = "arn:aws:iam::123456789012:role/cloudgpu-timer": cloudgpu init aws does.'
    raise setting_error(account, key, value, "has to be the ARN of an IAM role.", remedy)


_region = matching(REGION, "a region", "us-east-1")
_regions = several(_region, "regions", "us-east-1")
_READERS = {
    "profile": text,
    "home_region": _region,
    "regions": _regions,
    "exclude_regions": _regions,
    "ssh_port": port,
    "instance_profile": text,
    "timer_role": _read_role_arn,
}
