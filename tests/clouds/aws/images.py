"""Images: today's public ones in every region, with SSM parameters, and ours made from machines or snapshots."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.amis import Ami
from moto.ec2.responses import EC2Response
from moto.ec2.utils import convert_tag_spec, random_ami_id

from tests.clouds.aws.model import Model

AMAZON, CANONICAL = "898082745236", "099720109477"
RED_HAT, SUSE = "309956199498", "013907871322"
DLAMI = "/aws/service/deeplearning/ami/"
UBUNTU = "/aws/service/canonical/ubuntu/server/"


@dataclass(frozen=True, slots=True)
class Public:
    """A public image; `parameter` is its public SSM parameter, where it has one."""

    name: str
    parameter: str = ""
    architecture: str = "x86_64"
    root: str = "/dev/sda1"
    size_gb: int = 30
    owner: str = AMAZON
    made: str = "2026-10-06"
    platform: str = "Linux/UNIX"

    def id_in(self, region: str) -> str:
        """Return its id, another one in every region, as on AWS."""
        return f"ami-{hashlib.sha256(f'{self.name} {region}'.encode()).hexdigest()[:17]}"


_BASE = "Deep Learning Base OSS Nvidia Driver GPU AMI"
_TORCH = "Deep Learning OSS Nvidia Driver AMI GPU PyTorch"
_ARM = {"architecture": "arm64"}
_AL = {"root": "/dev/xvda"}
PUBLIC = (
    Public(f"{_BASE} (Ubuntu 22.04) 20261006", f"{DLAMI}x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04"),
    Public(f"{_BASE} (Ubuntu 24.04) 20261006", f"{DLAMI}x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04"),
    Public(
        f"{_BASE} (Amazon Linux 2023) 20261006", f"{DLAMI}x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023", **_AL
    ),
    Public(f"{_TORCH} 2.7 (Ubuntu 22.04) 20260907", f"{DLAMI}x86_64/oss-nvidia-driver-gpu-pytorch-2.7-ubuntu-22.04"),
    Public(f"{_TORCH} 2.8 (Ubuntu 24.04) 20260907", f"{DLAMI}x86_64/oss-nvidia-driver-gpu-pytorch-2.8-ubuntu-24.04"),
    Public(f"{_TORCH} 2.9 (Ubuntu 24.04) 20260317", f"{DLAMI}x86_64/oss-nvidia-driver-gpu-pytorch-2.9-ubuntu-24.04"),
    Public(
        f"{_BASE.replace('Base', 'ARM64 Base')} (Ubuntu 22.04) 20261006",
        f"{DLAMI}arm64/base-oss-nvidia-driver-gpu-ubuntu-22.04",
        **_ARM,
    ),
    Public(
        f"{_BASE.replace('Base', 'ARM64 Base')} (Amazon Linux 2023) 20261006",
        f"{DLAMI}arm64/base-oss-nvidia-driver-gpu-amazon-linux-2023",
        **_ARM,
        **_AL,
    ),
    Public(
        f"{_TORCH.replace('OSS', 'ARM64 OSS')} 2.7 (Ubuntu 22.04) 20260907",
        f"{DLAMI}arm64/oss-nvidia-driver-gpu-pytorch-2.7-ubuntu-22.04",
        **_ARM,
    ),
    # For GPUs before Turing: found by its name and owner only. The older one must not be chosen.
    Public("Deep Learning Base Proprietary Nvidia Driver AMI (Amazon Linux 2) Version 70.3", **_AL, made="2025-10-20"),
    Public("Deep Learning Base Proprietary Nvidia Driver AMI (Amazon Linux 2) Version 71.6", **_AL, made="2026-01-02"),
    *(
        Public(
            f"ubuntu/images/hvm-ssd{kind}/ubuntu-{word}-{version}-{short}-server-20260915",
            f"{UBUNTU}{version}/stable/current/{short}/hvm/ebs-{gp}",
            {"amd64": "x86_64"}.get(short, short),
            size_gb=8,
            owner=CANONICAL,
            made="2026-09-15",
        )
        for version, word, kind, gp in (("22.04", "jammy", "", "gp2"), ("24.04", "noble", "-gp3", "gp3"))
        for short in ("amd64", "arm64")
    ),
    Public(
        "RHEL-9.6.0_HVM-20260801-x86_64-0-Hourly2-GP3", owner=RED_HAT, size_gb=10, platform="Red Hat Enterprise Linux"
    ),
    Public("RHEL-9.6.0_HVM-20260801-x86_64-0-Access2-GP3", owner=RED_HAT, size_gb=10, platform="Red Hat BYOL Linux"),
    Public("suse-sles-15-sp7-v20260801-hvm-ssd-x86_64", owner=SUSE, size_gb=10, platform="SUSE Linux"),
)
OPERATIONS = {
    "Red Hat BYOL Linux": "RunInstances:00g0",
    "Red Hat Enterprise Linux": "RunInstances:0010",
    "SUSE Linux": "RunInstances:000g",
}


class Image(Ami):
    """An image that says what its disks are; moto's says 15 GB for all."""

    disks: list[dict[str, Any]]
    ena_support = True
    imds_support = "v2.0"
    platform_details = "Linux/UNIX"

    @property
    def usage_operation(self) -> str:
        return OPERATIONS.get(self.platform_details, "RunInstances")

    @property
    def block_device_mappings(self) -> list[dict[str, Any]]:
        return self.disks


def disk(device: str, snapshot: Any) -> dict[str, Any]:
    """Return a disk of an image, made from a snapshot."""
    ebs = {"SnapshotId": snapshot.id, "VolumeSize": snapshot.volume.size, "VolumeType": "gp3"}
    return {"DeviceName": device, "Ebs": {**ebs, "DeleteOnTermination": True, "Encrypted": snapshot.encrypted}}


def _made_of(disk: dict[str, Any]) -> str:
    return str(disk["Ebs"]["SnapshotId"])


def furnish(backend: Any) -> None:
    """Put the public images into a region."""
    for one in PUBLIC:
        image = Image(
            backend,
            one.id_in(backend.region_name),
            name=one.name,
            owner_id=one.owner,
            owner_alias="amazon",
            public=True,
            virtualization_type="hvm",
            architecture=one.architecture,
            creation_date=datetime.fromisoformat(one.made),
            hypervisor="xen",
            root_device_type="ebs",
            root_device_name=one.root,
            region_name=f"{backend.region_name}a",
        )
        image.platform_details = one.platform
        image.ebs_snapshot.volume.size = one.size_gb
        image.disks = [disk(one.root, image.ebs_snapshot)]
        backend.amis[image.id] = image


def furnish_parameters(backend: Any) -> None:
    """Put the public parameters into a region's SSM."""
    from moto.ssm.models import Parameter

    for one in PUBLIC:
        if one.parameter:
            name = f"{one.parameter}/latest/ami-id" if one.owner == AMAZON else f"{one.parameter}/ami-id"
            backend._parameters[name].append(
                Parameter(
                    backend.account_id,
                    name,
                    one.id_in(backend.region_name),
                    "String",
                    None,
                    None,
                    None,
                    datetime.fromisoformat(one.made),
                    1,
                    "aws:ec2:image",
                )
            )


class Images(EC2Response):
    """The calls that make and find images."""

    model: Model

    def describe_images(self) -> ActionResult:
        """Return images, also by a snapshot that they are made of."""
        asked = self.params.get("Filter", self.params.get("Filters", []))
        wanted = [one for one in asked if one["Name"] == "block-device-mapping.snapshot-id"]
        for one in wanted:
            asked.remove(one)
        result = super().describe_images()
        values = {value for one in wanted for value in one["Values"]}
        if wanted:
            found = [one for one in result._result["Images"] if {_made_of(disk) for disk in one.disks} & values]
            return ActionResult({"Images": found})
        return result

    def create_image(self) -> ActionResult:
        """Image a machine: a snapshot of each disk, tagged as asked; available when all of them are complete."""
        self.error_on_dryrun()
        instance = self.ec2_backend.get_instance(self._get_param("InstanceId"))
        if instance.state not in {"running", "stopped"}:
            said = f"Instance '{instance.id}' is not 'running' or 'stopped'."
            raise EC2ClientError("IncorrectState", said)
        snapshots = {}
        asked = self._get_param("BlockDeviceMappings", [])
        left_out = {one["DeviceName"] for one in asked if "NoDevice" in one}
        for device, mapping in instance.get_block_device_mapping:
            if device in left_out:
                continue
            snapshots[device] = self.ec2_backend.create_snapshot(
                mapping.volume_id, f"Created by CreateImage({instance.id})"
            )
        return self._made(snapshots, instance.root_device_name, instance=instance)

    def register_image(self) -> ActionResult:
        """Make an image of complete snapshots."""
        self.error_on_dryrun()
        snapshots = {}
        for one in self._get_param("BlockDeviceMappings", []):
            snapshot = self.ec2_backend.get_snapshot(one["Ebs"]["SnapshotId"])
            if snapshot.status != "completed":
                raise EC2ClientError("IncorrectState", f"Snapshot is in invalid state - {snapshot.status}")
            snapshots[one["DeviceName"]] = snapshot
        root = self._get_param("RootDeviceName")
        if root not in snapshots:
            raise EC2ClientError(
                "InvalidBlockDeviceMapping", f"No root snapshot specified in device mapping for {root}"
            )
        return self._made(snapshots, root, architecture=self._get_param("Architecture") or "i386")

    def _made(self, snapshots: dict[str, Any], root: str, **how: Any) -> ActionResult:
        name, backend = self._get_param("Name"), self.ec2_backend
        if any(one.name == name and one.owner_id == backend.account_id for one in backend.amis.values()):
            holder = next(one.id for one in backend.amis.values() if one.name == name)
            said = f"AMI name {name} is already in use by AMI {holder}"
            raise EC2ClientError("InvalidAMIName.Duplicate", said)
        tags = convert_tag_spec(self._get_param("TagSpecifications", []))
        shared = {
            "description": self._get_param("Description", ""),
            "root_device_name": root,
            "root_device_type": "ebs",
        }
        image = Image(
            backend,
            random_ami_id(),
            name=name,
            region_name=f"{self.region}a",
            virtualization_type="hvm",
            **shared,
            **how,
        )
        backend.snapshots.pop(image.ebs_snapshot.id)
        image.ebs_snapshot = snapshots[root]
        image.creation_date = self.model.naive()
        image.disks = [disk(device, one) for device, one in snapshots.items()]
        if "instance" in how:  # an image of a machine bears the billing code of the one that this was made from
            made_from = backend.amis.get(how["instance"].image_id)
            image.platform_details = getattr(made_from, "platform_details", Image.platform_details)
        backend.amis[image.id] = image
        image.add_tags(tags.get("image", {}))
        for snapshot in snapshots.values():
            snapshot.from_ami = image.id
            snapshot.add_tags(tags.get("snapshot", {}))
            if "instance" in how:
                self._pend(snapshot)
        if "instance" in how:
            image.state = "pending"
            self.model.later(image.id, "snapshot", lambda: setattr(image, "state", "available"))
        return ActionResult({"ImageId": image.id})

    def _pend(self, snapshot: Any) -> None:
        snapshot.status, snapshot.start_time = "pending", self.model.naive()
        self.model.later(snapshot.id, "snapshot", lambda: setattr(snapshot, "status", "completed"))
