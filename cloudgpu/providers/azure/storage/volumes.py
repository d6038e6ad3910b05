"""Data disks on Azure that outlive machines: found by name in the group `cloudgpu`, made once, attached.

A disk's name follows from the ledger, the volume's name and the place, and a PUT of what is there makes no second one:
no token is needed. A disk lies in a zone as its machine does, or in none where that lies in none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cloudgpu.core.model.instances import TAG_LEDGER, TAG_VOLUME
from cloudgpu.core.model.launch import Volume
from cloudgpu.core.model.resources import ProviderResource
from cloudgpu.core.values.naming import digest
from cloudgpu.errors import CloudgpuError, ProviderUnavailable
from cloudgpu.providers.azure import groups, ids
from cloudgpu.providers.azure.calls import find, invoke
from cloudgpu.providers.azure.compute import machine
from cloudgpu.providers.azure.storage import disks as storage
from cloudgpu.providers.azure.storage import resources as refs
from cloudgpu.providers.shared.named_volumes import pick_in_zone, size_to_make, volume_in_use_error

if TYPE_CHECKING:
    from cloudgpu.providers.azure.client import Azure

Raw = Mapping[str, Any]
LUN = 0  # on the machine it is /dev/disk/azure/scsi1/lun0 (udev rules of Azure's images)
SKU = "StandardSSD_LRS"  # what every size takes; Premium SSD needs one that says so
SETTLES_S, LOOKS = 2.0, 120
_READ, _WRITE = "Microsoft.Compute/disks/read", "Microsoft.Compute/disks/write"
_UNHEARD_OF = (404, 405, 501)
_ATTACH = "Microsoft.Compute/virtualMachines/attachDetachDataDisks/action"


def attach(azure: Azure, id: str, volume: Volume, tags: Mapping[str, str]) -> ProviderResource:  # noqa: A002
    """Find or make the volume where the machine lies, and attach it; return it as it is then.

    Raises InvalidRequest where another machine uses it, it lies in another zone, or its size has to be said.
    """
    found = machine.raw(azure, id)
    named = {**tags, TAG_VOLUME: volume.name}
    disk = _found(azure, machine.zone_of(found), volume, named) or _made(azure, found, volume, named)
    send = False
    for _ in range(LOOKS):
        at = storage.holder(disk)
        if at == id:
            return storage.disk(azure, disk, disk.get("tags") or {})
        if at is not None:
            raise volume_in_use_error(volume, at)
        if storage.state(disk) == "succeeded" and not send:
            _hang(azure, id, str(disk["id"]))
            send = True
        else:
            azure.pause(SETTLES_S)
        disk = _read_disk(azure, disk, volume)
    message = f"The volume {volume.name} is not attached after {LOOKS * SETTLES_S:.0f} seconds."
    raise ProviderUnavailable(message, field="--volume", value=volume.name, next="Run the same up again.")


def named_disks(azure: Azure, ledger: str) -> list[Raw]:
    """Return the data disks with a name of the user's, of this ledger; empty: of any. A call per page."""
    listed = azure.compute.disks.list_by_resource_group
    send = find(azure, _READ, lambda: [one.as_dict() for one in listed(ids.SHARED_GROUP)], value=ids.SHARED_GROUP)
    found: Sequence[Raw] = send or ()
    named = (one for one in found if TAG_VOLUME in (one.get("tags") or {}) and storage.state(one) != "deleting")
    return [one for one in named if ledger in ("", one["tags"].get(TAG_LEDGER))]


def name_of(volume: str, ledger: str, zone: str) -> str:
    """Return what Azure calls a volume: the same for the same name of a ledger in a place."""
    return f"volume-{digest('volume', ledger, volume, zone)[:20]}"


def _found(azure: Azure, zone: str, volume: Volume, tags: Mapping[str, str]) -> Raw | None:
    """Return the ledger's volume of this name; one that lies elsewhere alone is refused."""
    found = [one for one in named_disks(azure, "") if _is(one, volume.name, tags)]
    return pick_in_zone(zone, found, machine.zone_of, "name", volume)


def _is(found: Raw, name: str, tags: Mapping[str, str]) -> bool:
    disk_tags = found["tags"]
    return (disk_tags.get(TAG_VOLUME), disk_tags.get(TAG_LEDGER, "")) == (name, tags.get(TAG_LEDGER, ""))


def _made(azure: Azure, at: Raw, volume: Volume, tags: Mapping[str, str]) -> Raw:
    """Make the volume where a machine lies, and return what there is of it. Encrypted, as every managed disk is."""
    zone, region = machine.zone_of(at), str(at["location"])
    size_gb = size_to_make(volume, zone)
    groups.need_shared(azure, region)
    body: dict[str, Any] = {
        "location": region,
        "tags": dict(tags),
        "sku": {"name": SKU},
        "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": size_gb},
    }
    body |= {"zones": list(at["zones"])} if at.get("zones") else {}
    name, disks = name_of(volume.name, tags.get(TAG_LEDGER, ""), zone), azure.compute.disks
    invoke(
        azure,
        _WRITE,
        lambda: disks.begin_create_or_update(ids.SHARED_GROUP, name, body, polling=False),
        region=region,
        value=volume.name,
    )
    return _read(azure, refs.ResourceRef(region, ids.SHARED_GROUP, "disks", name), volume)


def _read_disk(azure: Azure, disk: Raw, volume: Volume) -> Raw:
    of = refs.of(str(disk["location"]), str(disk["id"]))
    return disk if of is None else _read(azure, of, volume)


def _read(azure: Azure, thing: refs.ResourceRef, volume: Volume) -> Raw:
    found = storage.read(azure, thing)
    if found is None or storage.state(found) == "failed":
        message = f"Azure {thing.region} did not make the volume {volume.name}."
        raise ProviderUnavailable(message, field="--volume", value=volume.name, next="Run the same up again.")
    return found


def _hang(azure: Azure, id: str, disk: str) -> None:  # noqa: A002
    """Ask for it, and leave what else hangs on the machine alone. Not waited for: the disk says when it is so.

    A cloud of Azure's kind that does not know this call (it is of 2024) is asked to change the machine's list of disks.
    """
    region, group = ids.machine(id)
    send = azure.compute.virtual_machines.begin_attach_detach_data_disks
    body = {"dataDisksToAttach": [{"diskId": disk, "lun": LUN, "deleteOption": "Detach"}]}
    try:
        invoke(azure, _ATTACH, lambda: send(group, group, body, polling=False), region=region, value=id)
    except CloudgpuError as error:
        if getattr(error.__cause__, "status_code", None) not in _UNHEARD_OF:
            raise
        _list(azure, id, disk)


def _list(azure: Azure, id: str, disk: str) -> None:  # noqa: A002
    """Write the disk into the machine's list of data disks: a change of it names all that are to hang there."""
    storage_ = (machine.raw(azure, id).get("properties") or {}).get("storageProfile") or {}
    others = [_as_asked(one) for one in storage_.get("dataDisks") or ()]
    new = {"lun": LUN, "createOption": "Attach", "deleteOption": "Detach", "managedDisk": {"id": disk}}
    machine.change(azure, id, {"storageProfile": {"dataDisks": [*others, new]}})


def _as_asked(found: Raw) -> Raw:
    """Return a data disk that hangs on a machine already as a change has to name it."""
    kept = {key: found[key] for key in ("lun", "name", "createOption", "caching", "deleteOption") if key in found}
    return {**kept, "managedDisk": {"id": (found.get("managedDisk") or {}).get("id")}}
