"""The network of a launch: the subnet that is used, and our key pair and security group, created if missing."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.model.instances import TAG_LEDGER, TAG_OWNER
from cloudgpu.core.model.launch import Attempt, Network
from cloudgpu.core.values.naming import digest, tag_value
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.aws.client import Aws, Raw, describe
from cloudgpu.providers.aws.compute.request import Call
from cloudgpu.providers.aws.errors import code_of
from cloudgpu.providers.aws.network import security_group
from cloudgpu.providers.aws.storage.disks import tag_specifications
from cloudgpu.providers.shared.calls import retry
from cloudgpu.providers.shared.errors import Tolerating
from cloudgpu.providers.shared.rules import OpenRule, ssh_sources as shared_ssh_sources

KEY_PREFIX = "cloudgpu-"
EVENTUAL_PAUSES_S = (1.0, 2.0, 4.0)  # between tries: EC2 may not find yet what was just created
_MAX_TRIES = 2  # the second finds what another process created at the same moment


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet, by its id, the id of its VPC, and its zone."""

    id: str
    vpc_id: str
    zone: str


def subnet(aws: Aws, region: str, zone: str, network: Network) -> Subnet:
    """Return the subnet of `network`, else the default one of the zone. Reads only.

    Raises InvalidRequest for one that is not there or lies in another zone, and where there is no default VPC.
    """
    parameters: dict[str, Any] = (
        {"SubnetIds": [network.subnet]} if network.subnet else {"Filters": _default_subnet_filters(zone)}
    )
    subnets = describe(aws, "DescribeSubnets", region, value=network.subnet, **parameters)
    if not subnets:
        raise _no_default_subnet_error(region, zone)
    chosen = Subnet(subnets[0]["SubnetId"], subnets[0]["VpcId"], subnets[0]["AvailabilityZone"])
    if chosen.zone != zone:
        raise InvalidRequest(
            f"The subnet {chosen.id} is in {chosen.zone}, not in {zone}.",
            field="--subnet",
            value=chosen.id,
            next=f"Launch in its zone (--zone {chosen.zone}), or name a subnet of {zone}.",
        )
    return chosen


def ssh_sources(aws: Aws, region: str, subnet: Subnet, network: Network) -> Mapping[str, str]:
    """Return the CIDRs that may reach SSH, by label; where the user named none, all of the VPC's, by one call."""
    if network.ssh_from:
        return shared_ssh_sources(network)
    (vpc,) = describe(aws, "DescribeVpcs", region, VpcIds=[subnet.vpc_id])
    return shared_ssh_sources(network, *_ipv4_cidrs(vpc))


def _ipv4_cidrs(vpc: Mapping[str, Any]) -> list[str]:
    """Return the IPv4 ranges of a VPC, the first one first, without those that are not associated any more."""
    others = [
        str(one["CidrBlock"])
        for one in vpc.get("CidrBlockAssociationSet", ())
        if one["CidrBlockState"]["State"] == "associated" and one["CidrBlock"] != vpc["CidrBlock"]
    ]
    return [str(vpc["CidrBlock"]), *others]


def _default_subnet_filters(zone: str) -> list[dict[str, Any]]:
    return [{"Name": "availability-zone", "Values": [zone]}, {"Name": "default-for-az", "Values": ["true"]}]


def _no_default_subnet_error(region: str, zone: str) -> InvalidRequest:
    return InvalidRequest(
        f"This account has no default VPC with a subnet in {zone}.",
        field="--subnet",
        value=None,
        next=f"Name one: --subnet subnet-...; or make one: aws ec2 create-default-vpc --region {region} "
        f"(where there is a VPC already: aws ec2 create-default-subnet --availability-zone {zone})",
    )


# The key pair


def key_name(public_key_line: str) -> str:
    """Return the name of a key pair on AWS: a hash of the key, so that equal names mean equal keys."""
    return KEY_PREFIX + hashlib.sha256(_key_bytes(public_key_line)).hexdigest()[:20]


def ensure_key_pair(aws: Aws, region: str, public_key_line: str, owner: str, ledger: str) -> str:
    """Create the key pair where the region lacks it, and return its name.

    It has the tag of the ledger that created it, which may delete it once it has no machine any more.
    Raises InvalidRequest where the name is taken by another key.
    """
    name, ec2, tags = key_name(public_key_line), aws.ec2(region), {TAG_OWNER: owner, TAG_LEDGER: ledger}
    for _ in range(_MAX_TRIES):
        with aws.calling("DescribeKeyPairs", region, value=name):
            parameters = [{"Name": "key-name", "Values": [name]}]
            key_pairs = ec2.describe_key_pairs(Filters=parameters, IncludePublicKey=True)["KeyPairs"]
        if key_pairs:
            return _check_same_key(key_pairs[0], name, public_key_line, region)
        with (
            Tolerating(code_of, "InvalidKeyPair.Duplicate"),  # another process created one: the next try checks its key
            aws.calling("ImportKeyPair", region, value=name),
        ):
            ec2.import_key_pair(
                KeyName=name,
                PublicKeyMaterial=public_key_line.strip().encode(),
                TagSpecifications=tag_specifications(("key-pair",), tags, name),
            )
            return name
    return name


def _check_same_key(raw: Mapping[str, Any], name: str, public_key_line: str, region: str) -> str:
    stored_key = raw.get("PublicKey")
    if stored_key is not None and _key_bytes(stored_key) != _key_bytes(public_key_line):
        raise InvalidRequest(
            f"The key pair {name} in {region} holds another key than the one that cloudgpu made.",
            field="key pair",
            value=name,
            next=f"Remove it: aws ec2 delete-key-pair --region {region} --key-name {name}",
        )
    return name


def _key_bytes(public_key_line: str) -> bytes:
    """Return the key itself, from an OpenSSH line without its type and comment; empty for any other text."""
    try:
        return base64.b64decode(public_key_line.split()[1], validate=True)
    except (IndexError, binascii.Error):
        return b""


# The security group


def check_group(aws: Aws, region: str, subnet: Subnet, id: str) -> None:  # noqa: A002
    """Raise InvalidRequest for somebody else's group that is not there, or lies in another VPC than the subnet."""
    groups = describe(aws, "DescribeSecurityGroups", region, value=id, GroupIds=[id])
    if groups and groups[0]["VpcId"] != subnet.vpc_id:
        raise InvalidRequest(
            f"The security group {id} belongs to {groups[0]['VpcId']}, the subnet {subnet.id} to {subnet.vpc_id}.",
            field="--security-group",
            value=id,
            next="Name a group and a subnet of one VPC.",
        )


def group_name(attempt: Attempt) -> str:
    """Return the name of our security group in a VPC: one per owner and ledger.

    So two people with the same login name, or one at two computers, do not change each other's rules.
    """
    return owner_group_name(attempt.tags[TAG_OWNER], attempt.ledger)


def owner_group_name(owner: str, ledger: str) -> str:
    """Return the name of the security group of an owner (as the tag has it) and a ledger."""
    return f"cloudgpu-{owner[:40] or 'nobody'}-{digest(owner, ledger)[:10]}"


def open_rules(aws: Aws, region: str, vpc: str, owner: str) -> tuple[OpenRule, ...]:
    """Return the rules, made by hand, that let everybody in to the group that a launch will use. One call.

    None while the ledger is new: there is no group yet.
    """
    if not aws.ledger:
        return ()
    name = owner_group_name(tag_value(owner), aws.ledger)
    return tuple(
        one for found in _groups_named(aws, region, vpc, name) for one in security_group.open_rules(found, region)
    )


def _groups_named(aws: Aws, region: str, vpc: str, name: str) -> Sequence[Raw]:
    parameters = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": [name]}]
    return describe(aws, "DescribeSecurityGroups", region, value=name, Filters=parameters)


def ensure_group(aws: Aws, attempt: Attempt, call: Call) -> str:
    """Return the id of a launch's security group: another's as it is, ours created and open to the callers only.

    Raises InvalidRequest where the name of ours is taken by a group that is not ours.
    """
    if call.group is not None:
        return call.group
    name = group_name(attempt)
    tags = {TAG_OWNER: attempt.tags[TAG_OWNER], TAG_LEDGER: attempt.ledger}
    group = find_or_create_group(
        aws, call, name, tags, "cloudgpu: SSH from the caller only", check=lambda raw: _check_ours(raw, attempt, call)
    )
    if group is None:
        raise InvalidRequest(
            f"The security group {name} in {call.vpc} is there and cannot be seen.",
            field="--security-group",
            value=name,
            next="Run it again, or name a group with --security-group.",
        )
    change_new_group(aws, lambda: security_group.admit(aws, call.region, group, dict(call.callers)))
    return str(group["GroupId"])


def _check_ours(raw: Raw, attempt: Attempt, call: Call) -> None:
    if not security_group.is_ours(raw, attempt.tags[TAG_OWNER]):
        name = group_name(attempt)
        raise InvalidRequest(
            f"The security group {name} in {call.vpc} does not have cloudgpu's tag: it is somebody else's.",
            field="--security-group",
            value=name,
            next="Remove or rename it, or name another with --security-group.",
        )


def find_or_create_group(
    aws: Aws, call: Call, name: str, tags: Mapping[str, str], description: str, *, check: Callable[[Raw], None]
) -> Raw | None:
    """Return a security group of ours in a launch's VPC, created where it is missing; None where it cannot be seen.

    `check` raises for a group of that name that is not ours. One call where it exists, up to three where not.
    """
    group = _find_group(aws, call, name, check)
    return group or _create_group(aws, call, name, tags, description) or _find_group(aws, call, name, check)


def _find_group(aws: Aws, call: Call, name: str, check: Callable[[Raw], None]) -> Raw | None:
    groups = _groups_named(aws, call.region, call.vpc, name)
    if not groups:
        return None
    check(groups[0])
    return groups[0]


def _create_group(aws: Aws, call: Call, name: str, tags: Mapping[str, str], description: str) -> Raw | None:
    """Make the group, tagged in the same call; None where another process was first."""
    with Tolerating(code_of, "InvalidGroup.Duplicate"), aws.calling("CreateSecurityGroup", call.region, value=name):
        answer = aws.ec2(call.region).create_security_group(
            GroupName=name,
            Description=description,
            VpcId=call.vpc,
            TagSpecifications=tag_specifications(("security-group",), tags, name),
        )
        return {"GroupId": answer["GroupId"]}
    return None


def change_new_group(aws: Aws, change: Callable[[], None]) -> None:
    """Change a security group, in several tries: EC2 may not find yet one that was just created."""
    retry(
        change,
        len(EVENTUAL_PAUSES_S) + 1,
        after=lambda error: code_of(error) == "InvalidGroup.NotFound",
        pause=lambda tries: aws.pause(EVENTUAL_PAUSES_S[tries - 1]),
    )
