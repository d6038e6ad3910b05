"""What AWS refuses at a launch and moto lets pass, in AWS's words."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPES

from tests.clouds.aws import quotas, types
from tests.clouds.aws.errors import AwsError
from tests.clouds.aws.model import Model

USER_DATA_BYTES = 16_384
LARGEST_GB = 16_384
FILTER_VALUES = 200


def launch(model: Model, backend: Any, params: Any) -> None:
    """Raise what AWS says to a launch that cannot be; the order of its refusals is belief."""
    _counts(params)
    _key(backend, params)
    _user_data(params)
    image = _image(backend, params)
    _offered(backend, params)
    _architecture(image, params)
    _disks(image, params)
    quotas.check(model, backend, params)


def filters(params: Any) -> None:
    """Raise what EC2 says to a filter with too many values (EC2 API Reference, "Filtering": 200 in one call)."""
    values = sum(len(one.get("Values") or ()) for one in params.get("Filters") or ())
    if values > FILTER_VALUES:
        said = f"The maximum number of filter values specified on a single call is {FILTER_VALUES}"
        raise AwsError("FilterLimitExceeded", said)


def zone_of(backend: Any, params: Any) -> str | None:
    """Return the zone that a launch names, by itself or by its subnet."""
    named = (params.get("Placement") or {}).get("AvailabilityZone")
    interfaces = params.get("NetworkInterfaces") or [{}]
    subnet = params.get("SubnetId") or interfaces[0].get("SubnetId")
    if named or not subnet:
        return named
    return next((one[subnet].availability_zone for one in backend.subnets.values() if subnet in one), None)


def _counts(params: Any) -> None:
    least, most = int(params.get("MinCount") or 1), int(params.get("MaxCount") or 1)
    if not 0 < least <= most:
        said = f"Value ({least}) for parameter minCount is invalid."  # the words are belief
        raise EC2ClientError("InvalidParameterValue", said)


def _key(backend: Any, params: Any) -> None:
    name = params.get("KeyName")
    if name and name not in backend.key_pairs:
        raise EC2ClientError("InvalidKeyPair.NotFound", f"The key pair '{name}' does not exist")


def _user_data(params: Any) -> None:
    try:
        raw = base64.b64decode(params.get("UserData") or "", validate=True)
    except binascii.Error:
        raise EC2ClientError("InvalidParameterValue", "Invalid BASE64 encoding of user data") from None
    if len(raw) > USER_DATA_BYTES:
        raise EC2ClientError("InvalidParameterValue", f"User data is limited to {USER_DATA_BYTES} bytes")


def _image(backend: Any, params: Any) -> Any:
    (image,) = backend.describe_images(ami_ids=[params.get("ImageId") or "ami-none"]) or [None]
    if image is None or image.state != "available":
        said = f"The image id '[{params.get('ImageId')}]' is not available"
        raise EC2ClientError("InvalidAMIID.Unavailable", said)
    return image


def _offered(backend: Any, params: Any) -> None:
    name, region = params.get("InstanceType") or "m1.small", backend.region_name
    if name not in INSTANCE_TYPES:
        raise EC2ClientError("InvalidParameterValue", f"Invalid value '{name}' for InstanceType.")
    zones = sorted(one["Location"] for one in types.by_type("availability-zone", region).get(name, []))
    if not zones:
        said = "The requested configuration is currently not supported. Please check the documentation for supported "
        raise EC2ClientError("Unsupported", f"{said}configurations.")
    zone = zone_of(backend, params)
    if zone and not zone.startswith(region):
        raise EC2ClientError("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
    if zone and zone not in zones:
        said = (
            f"Your requested instance type ({name}) is not supported in your requested Availability Zone ({zone}). "
            f"Please retry your request by not specifying an Availability Zone or choosing {', '.join(zones)}."
        )
        raise EC2ClientError("Unsupported", said)


def _architecture(image: Any, params: Any) -> None:
    runs = INSTANCE_TYPES[params.get("InstanceType") or "m1.small"]["ProcessorInfo"]["SupportedArchitectures"]
    if image.architecture not in runs:
        said = (
            f"The architecture '{runs[0]}' of the specified instance type does not match the architecture "
            f"'{image.architecture}' of the specified AMI. Specify an instance type and an AMI that have matching "
            "architectures, and try again."
        )
        raise EC2ClientError("InvalidParameterValue", said)


def _disks(image: Any, params: Any) -> None:
    least = {one["DeviceName"]: one["Ebs"] for one in image.block_device_mappings}
    for one in params.get("BlockDeviceMappings") or []:
        size, needs = (one.get("Ebs") or {}).get("VolumeSize"), least.get(one["DeviceName"])
        if size and needs and int(size) < needs["VolumeSize"]:
            said = f"Volume of size {size}GB is smaller than snapshot '{needs['SnapshotId']}'"
            raise EC2ClientError("InvalidBlockDeviceMapping", f"{said}, expect size >= {needs['VolumeSize']}GB")
        if size and int(size) > LARGEST_GB:
            said = f"Volume size must be between 1 and {LARGEST_GB} GiB for gp3"  # the words are belief
            raise EC2ClientError("InvalidBlockDeviceMapping", said)
