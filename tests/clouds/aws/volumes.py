"""Disks and snapshots: tokens for volumes, zones that must fit, snapshots that take time, ours told from Amazon's."""

from __future__ import annotations

from copy import copy
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.elastic_block_store import Volume
from moto.ec2.responses import EC2Response

from tests.clouds.aws.model import Model


class Disk(Volume):
    """A disk that takes its time to be made."""

    making = False
    deleting = False
    unseen = False
    unseen_attachment = False

    @property
    def status(self) -> str:
        if self.deleting:
            return "deleting"
        return "creating" if self.making else super().status


class Volumes(EC2Response):
    """The calls about disks."""

    model: Model

    def create_volume(self) -> ActionResult:
        """Make a disk; the same token with the same parameters is answered with the same one."""
        asked = dict(self.params)
        key = (self.region, "CreateVolume", str(asked.pop("ClientToken", "") or ""))
        asked.pop("DryRun", None)
        if key[2] and (made := self.model.once(key, asked)):
            return ActionResult(self.ec2_backend.get_volume(made))
        self._check_source()
        if not str(self._get_param("AvailabilityZone")).startswith(self.region):
            said = f"The zone '{self._get_param('AvailabilityZone')}' does not exist."
            raise EC2ClientError("InvalidZone.NotFound", said)
        result = super().create_volume()
        volume = result._result
        volume.create_time, volume.__class__, volume.making = self.model.naive(), Disk, True
        self.model.later(volume.id, "creating", lambda: setattr(volume, "making", False))
        volume.unseen = bool(self.model.dwell_s.get("unseen"))
        self.model.later(f"{volume.id} is seen", "unseen", lambda: setattr(volume, "unseen", False))
        if key[2]:
            self.model.made(key, asked, volume.id)
        return result

    def delete_volume(self) -> ActionResult:
        """Delete a free disk; it is shown in state `deleting` for as long as the server says.

        Belief: until it is gone, CreateVolume with its token answers it, as it does for any disk that the token made.
        """
        volume = self.ec2_backend.volumes.get(self._get_param("VolumeId"))
        result = super().delete_volume()
        if self.model.dwell_s.get("deleting"):
            self.ec2_backend.volumes[volume.id], volume.deleting = volume, True
            self.model.later(volume.id, "deleting", lambda: self.ec2_backend.volumes.pop(volume.id))
        return result

    def describe_volumes(self) -> ActionResult:
        """Return disks, without what is so new that not every server of EC2 knows it: a disk, or an attachment."""
        result = super().describe_volumes()
        seen = [one for one in result._result["Volumes"] if not getattr(one, "unseen", False)]
        return ActionResult({**result._result, "Volumes": [_as_seen(one) for one in seen]})

    def _check_source(self) -> None:
        source = self._get_param("SnapshotId")
        if not source:
            return
        snapshot = self.ec2_backend.get_snapshot(source)
        if snapshot.status != "completed":
            raise EC2ClientError("IncorrectState", f"Snapshot is in invalid state - {snapshot.status}")

    def attach_volume(self) -> ActionResult:
        """Attach a free disk to a machine that runs or is stopped, in the same zone."""
        self.error_on_dryrun()
        volume = self.ec2_backend.get_volume(self._get_param("VolumeId"))
        instance = self.ec2_backend.get_instance(self._get_param("InstanceId"))
        if volume.status == "creating":
            raise EC2ClientError("IncorrectState", f"{volume.id} is not 'available'.")
        if volume.attachment:
            said = f"{volume.id} is already attached to an instance"
            raise EC2ClientError("VolumeInUse", said)
        if volume.zone.name != instance.availability_zone:
            said = f"The volume '{volume.id}' is not in the same availability zone as instance '{instance.id}'"
            raise EC2ClientError("InvalidVolume.ZoneMismatch", said)
        if instance.state not in {"running", "stopped"}:
            raise EC2ClientError("IncorrectState", f"Instance '{instance.id}' is not 'running'.")
        volume.unseen_attachment = bool(self.model.dwell_s.get("attachment"))
        show = lambda: setattr(volume, "unseen_attachment", False)  # noqa: E731
        self.model.later(f"{volume.id} is seen as attached", "attachment", show)
        return super().attach_volume()

    def create_snapshot(self) -> ActionResult:
        """Begin a snapshot: it is pending for as long as the server says."""
        result = super().create_snapshot()
        snapshot: Any = result._result
        snapshot.status, snapshot.start_time = "pending", self.model.naive()
        self.model.later(snapshot.id, "snapshot", lambda: setattr(snapshot, "status", "completed"))
        return result

    def describe_snapshots(self) -> ActionResult:
        """Return snapshots; `self` among the owners means ours."""
        owners = [self.current_account if one == "self" else one for one in self._get_param("OwnerIds", [])]
        found = super().describe_snapshots()._result["Snapshots"]
        return ActionResult({"Snapshots": [one for one in found if not owners or one.owner_id in owners]})


def _as_seen(volume: Any) -> Any:
    """Return a disk as a server of EC2 describes it that does not know of its attachment yet."""
    if not getattr(volume, "unseen_attachment", False):
        return volume
    seen = copy(volume)
    seen.attachment = None
    return seen
