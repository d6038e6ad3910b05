"""Data disks at Google that outlive machines: found by name in a zone, made once, attached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloudgpu.catalog.disktypes import disk_type
from cloudgpu.core.model.instances import TAG_LEDGER, TAG_VOLUME
from cloudgpu.core.model.launch import Volume
from cloudgpu.core.model.resources import ProviderResource
from cloudgpu.core.values.naming import digest
from cloudgpu.errors import CloudgpuError, ProviderUnavailable
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.error_codes import ALREADY_EXISTS
from cloudgpu.providers.gcp.errors import code_of
from cloudgpu.providers.gcp.storage.disks import DISKS, OURS, disk
from cloudgpu.providers.gcp.storage.resources import aggregated, changed, machine_of, missed, our_tags
from cloudgpu.providers.shared.named_volumes import check_volume_size, pick_in_zone, size_to_make, volume_in_use_error

if TYPE_CHECKING:
    from cloudgpu.providers.gcp.client import Gcp

Raw = Mapping[str, Any]
DEVICE = "cloudgpu-data"  # on the machine: /dev/disk/by-id/google-cloudgpu-data
SMALLEST_GB, LARGEST_GB = 10, 65_536  # of a balanced persistent disk (Compute Engine's guide, "Persistent Disk")


def attach(gcp: Gcp, id: str, volume: Volume, tags: Mapping[str, str]) -> ProviderResource:  # noqa: A002
    """Find or make the volume in the machine's zone, and attach it; return it as it is then.

    Raises InstanceNotFound, and InvalidRequest where another machine uses it, it lies in another zone, or its size has
    to be said.
    """
    zone, name = ids.machine(id)
    machine = gcp.call("compute.instances.get", zone, value=id, zone=zone, instance=name)
    named = {**tags, TAG_VOLUME: volume.name}
    found = _found(gcp, zone, volume, named) or _made(
        gcp, zone, volume, named, disk_type(ids.last(machine["machineType"]))
    )
    user = machine_of(found.get("users", ()))
    if user not in (None, id):
        raise volume_in_use_error(volume, str(user))
    if user is None:
        _attach(gcp, id, found, volume)
        found = _read_disk(gcp, zone, found["name"])
    return disk(gcp, found)


def listed(gcp: Gcp, ledger: str) -> list[Raw]:
    """Return the data disks of a ledger in all zones; of anybody for no ledger.

    Raises ProviderUnavailable for a zone that did not answer: nobody would find a second volume of the same name.
    """
    found, gaps = aggregated(gcp, DISKS, filter=OURS)
    silent = missed(gcp, gaps)
    if silent:
        message = f"{silent[0].scope} did not say which volumes it has: {silent[0].why}"
        raise ProviderUnavailable(message, field="--volume", value=silent[0].scope, next="Run it again.")
    there = (one for one in found if TAG_VOLUME in our_tags(one) and one.get("status") not in ("DELETING", "FAILED"))
    return [one for one in there if ledger in ("", our_tags(one).get(TAG_LEDGER))]


def _found(gcp: Gcp, zone: str, volume: Volume, tags: Mapping[str, str]) -> Raw | None:
    """Return the ledger's volume of this name; one that lies in another zone alone is refused."""
    there = [one for one in listed(gcp, tags.get(TAG_LEDGER, "")) if our_tags(one)[TAG_VOLUME] == volume.name]
    return pick_in_zone(zone, there, lambda one: ids.last(one["zone"]), "name", volume)


def _made(gcp: Gcp, zone: str, volume: Volume, tags: Mapping[str, str], kind: str) -> Raw:
    """Make the volume under a name that follows from its own: a zone has one disk of a name."""
    name = own_name(tags.get(TAG_LEDGER, ""), volume.name)
    request = {
        "name": name,
        "sizeGb": str(size_to_make(volume, zone)),
        "type": f"projects/{gcp.project}/zones/{zone}/diskTypes/{kind}",
        "labels": dict(tags),
    }
    try:
        changed(gcp, "compute.disks.insert", zone, value=volume.name, zone=zone, diskResource=request)
    except CloudgpuError as error:
        if code_of(error) not in ALREADY_EXISTS:
            raise
    return _read_disk(gcp, zone, name)


def own_name(ledger: str, volume: str) -> str:
    """Return how the disk of a volume is called at Google: its name, and what tells ledgers apart."""
    return f"cg-{volume}-{digest('volume', ledger, volume)[:12]}"


def _read_disk(gcp: Gcp, zone: str, name: str) -> Raw:
    return gcp.call("compute.disks.get", zone, value=name, zone=zone, disk=name)


def _attach(gcp: Gcp, id: str, found: Raw, volume: Volume) -> None:  # noqa: A002
    """Attach it under the name by which the machine looks for it; it stays when the machine goes."""
    zone, name = ids.machine(id)
    source = f"projects/{gcp.project}/zones/{zone}/disks/{found['name']}"
    parameters = {
        "source": source,
        "deviceName": DEVICE,
        "mode": "READ_WRITE",
        "type": "PERSISTENT",
        "autoDelete": False,
    }
    where = {"zone": zone, "instance": name, "attachedDiskResource": parameters}
    changed(gcp, "compute.instances.attachDisk", zone, value=volume.name, **where)


def check_size(wanted: Volume) -> None:
    """Raise InvalidRequest for a size that Google would refuse only when the machine runs already."""
    check_volume_size(wanted, SMALLEST_GB, LARGEST_GB, f"Google has {SMALLEST_GB} to {LARGEST_GB:,} GB")
