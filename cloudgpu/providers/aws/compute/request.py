"""Makes the parameters of RunInstances from an attempt, with user data and the tag that says how an image boots.

Pure, so that a replay in another process sends the same call. User data is the machine's boot data, compressed: EC2
limits its size. A system disk has the boot tag, since it may outlive the image that it was made from.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.money import Money
from cloudgpu.providers.aws.compute.translate import SSH_USER, tag_list
from cloudgpu.providers.machine import user_data as boot_data

TAG_BOOT = "cloudgpu-boot"
_BOOT_TAG_VALUE = re.compile(r"(x86_64|arm64|i386)_([a-z0-9]+)_(none|legacy-bios|uefi|uefi-preferred)")


def boot_tag(image: Mapping[str, Any]) -> str:
    """Return the value of TAG_BOOT for an image, from which one like it can be registered: how its system boots."""
    device = (image.get("RootDeviceName") or "/dev/sda1").removeprefix("/dev/")
    return f"{image['Architecture']}_{device}_{image.get('BootMode', 'none')}"


def registration_parameters(tag: str) -> dict[str, Any] | None:
    """Return the parameters of RegisterImage that a value of TAG_BOOT stands for; None for any other text."""
    match = _BOOT_TAG_VALUE.fullmatch(tag)
    if match is None:
        return None
    boot_mode = {} if match[3] == "none" else {"BootMode": match[3]}
    return {
        "Architecture": match[1],
        "RootDeviceName": f"/dev/{match[2]}",
        "VirtualizationType": "hvm",
        "EnaSupport": True,  # every type that is on offer needs it, and every image since 2016 has the driver
        **boot_mode,
    }


ROOT_VOLUME_TYPE = "gp3"
BURSTABLE = ("t2.", "t3.", "t3a.", "t4g.")


@dataclass(frozen=True, slots=True)
class Call:
    """What was looked up for one call of RunInstances, as it is saved with the attempt.

    `image`, `subnet` and `vpc` are AWS's ids; `root_device` is the device of the system disk, which has `disk_gb`.
    `group` is the id of somebody else's security group; None: the one of ours in `vpc`, which admits `callers` (CIDR
    per label). `boot` is the value of TAG_BOOT: how the image boots. `volume` is the id of a data disk that exists
    already. `profile` is an instance profile's name. `placement`: the nodes of a cluster share a placement group.
    """

    region: str
    zone: str
    image: str
    root_device: str
    disk_gb: int
    subnet: str
    vpc: str
    group: str | None
    callers: Mapping[str, str]
    profile: str | None
    ssh_port: int
    volume: str | None = None
    boot: str = ""
    placement: bool = False


def launch_parameters(attempt: Attempt, *, key_name: str, group: str, user_data: bytes) -> dict[str, Any]:
    """Return the parameters of RunInstances, the same for the same attempt, whenever they are made.

    IMDSv2 is required, with a hop limit of 1, so that no container reads the machine's credentials; tags can
    be read there. Source: the EC2 API reference, RunInstances.
    """
    call, configuration = Call(**attempt.call), attempt.offer.configuration
    parameters: dict[str, Any] = {
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": attempt.token,
        "ImageId": call.image,
        "InstanceType": configuration.instance_type,
        "KeyName": key_name,
        "UserData": user_data,
        "BlockDeviceMappings": [_root_disk(attempt, call)],
        "NetworkInterfaces": [_interface(attempt, call, group)],
        "InstanceInitiatedShutdownBehavior": "terminate" if is_one_time(attempt) else "stop",
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "InstanceMetadataTags": "enabled",
        },
        "TagSpecifications": tag_specifications(attempt),
    }
    if call.profile:
        parameters["IamInstanceProfile"] = {"Name": call.profile}
    if configuration.market is Market.SPOT:
        parameters["InstanceMarketOptions"] = _spot_market_options(attempt)
    if configuration.instance_type.startswith(
        BURSTABLE
    ):  # unlimited credits cost extra, beyond the price that was agreed
        parameters["CreditSpecification"] = {"CpuCredits": "standard"}
    return parameters


def is_one_time(attempt: Attempt) -> bool:
    """Say whether this is a spot machine that cannot be stopped, only ended."""
    return attempt.offer.configuration.market is Market.SPOT and not attempt.request.setup.persistent


def tag_specifications(attempt: Attempt) -> list[dict[str, Any]]:
    """Return the tags of everything that the call makes; `Name` is what AWS's console shows."""
    tags = {"Name": attempt.request.name, **attempt.tags}
    kinds = ["instance", "volume", "network-interface"]
    if attempt.offer.configuration.market is Market.SPOT:
        kinds.append("spot-instances-request")
    volume_tags = {**tags, TAG_BOOT: attempt.call.get("boot", "")}
    return [{"ResourceType": kind, "Tags": tag_list(volume_tags if kind == "volume" else tags)} for kind in kinds]


def _root_disk(attempt: Attempt, call: Call) -> dict[str, Any]:
    """Return the root disk; that of a one-time spot machine is retained at its end, so that it can be parked.

    Unless its setup says not to keep the disk.
    """
    disk = {
        "VolumeSize": call.disk_gb,
        "VolumeType": ROOT_VOLUME_TYPE,
        "Encrypted": True,
        "DeleteOnTermination": not (is_one_time(attempt) and attempt.request.setup.keep_disk),
    }
    return {"DeviceName": call.root_device, "Ebs": disk}


def _interface(attempt: Attempt, call: Call, group: str) -> dict[str, Any]:
    return {
        "DeviceIndex": 0,
        "SubnetId": call.subnet,
        "Groups": [group],
        "AssociatePublicIpAddress": attempt.request.setup.network.public_ip,
        "DeleteOnTermination": True,
    }


def _spot_market_options(attempt: Attempt) -> dict[str, Any]:
    """Return the market options. Without --max-price, AWS limits the spot price to the on-demand price."""
    options: dict[str, Any] = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    if attempt.request.setup.persistent:
        options = {"SpotInstanceType": "persistent", "InstanceInterruptionBehavior": "stop"}
    max_price: Money | None = attempt.request.requirements.max_price
    if max_price is not None:
        options["MaxPrice"] = f"{max_price.dollars:f}"
    return {"MarketType": "spot", "SpotOptions": options}


MAX_USER_DATA = (
    16_384  # bytes before they are encoded: EC2's user guide, "Run commands when you launch an EC2 instance"
)


def boot_options(attempt: Attempt) -> boot_data.BootOptions:
    """Return the boot options on EC2; the machine reports its activity only with an instance profile."""
    call = Call(**attempt.call)
    return boot_data.BootOptions(
        "aws", ssh_port=call.ssh_port, reports=bool(call.profile), volume=call.volume or "", user=SSH_USER
    )


def user_data(attempt: Attempt) -> bytes:
    """Return the user data, the same bytes for the same attempt; raise InvalidRequest when they are too large."""
    text = boot_data.user_data(attempt, boot_options(attempt))
    compressed = gzip.compress(text.encode("ascii"), compresslevel=9, mtime=0)
    if len(compressed) <= MAX_USER_DATA:
        return compressed
    raise boot_data.too_large_error(attempt, len(compressed), MAX_USER_DATA, "EC2")
