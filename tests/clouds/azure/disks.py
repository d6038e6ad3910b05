"""Disks, snapshots, images and galleries: what goes on costing money when the machine is gone."""

from __future__ import annotations

import copy
from typing import Any

from tests.clouds.azure.groups import REGIONS
from tests.clouds.azure.handlers import answers, check_tags, settled, used_by
from tests.clouds.azure.model import Ask, Model, Thing, stamp
from tests.clouds.azure.operations import begin
from tests.clouds.rest import Refusal, Reply


@answers("Disks.CreateOrUpdate")
def put_disk(model: Model, ask: Ask) -> Reply:
    """Make one: 202, as the notes of who ran it say (not 201)."""
    model.living_group(ask.id)
    check_tags(ask.body.get("tags"))
    _check_region(ask.body["location"])
    facts = ask.body["properties"]
    gb = facts.get("diskSizeGB") or _size_of_source(model, facts["creationData"])
    there = model.resources.get(ask.id.lower())
    if there is not None and there.facts["diskSizeGB"] > gb:
        raise Refusal("OperationNotAllowed", "Shrinking a disk is not supported.")
    owned = {"managedBy": there.body["managedBy"]} if there and there.body.get("managedBy") else {}
    body = {"sku": {"name": "Standard_LRS"}, **settled(ask.body, model.now(), **_new(model, gb)), **owned}
    body["sku"]["tier"] = body["sku"]["name"].partition("_")[0]
    if there is not None:
        body["properties"]["diskState"] = there.facts["diskState"]
    return _begun(model, ask, body)


def _new(model: Model, gb: int) -> dict[str, Any]:
    size = {"diskSizeGB": gb, "diskSizeBytes": gb << 30, "uniqueId": model.uuid("disk")}
    encryption = {"type": "EncryptionAtRestWithPlatformKey"}
    return {**size, "diskState": "Unattached", "timeCreated": stamp(model.now()), "encryption": encryption}


def make_disk(model: Model, id_: str, machine: Thing, gb: int, sku: str) -> Thing:
    """Make the disk that comes with a machine: it takes no tags there."""
    creation = {"createOption": "FromImage", "imageReference": {"id": "of the machine's image"}}
    facts = {**_new(model, gb), "provisioningState": "Succeeded", "osType": "Linux", "creationData": creation}
    body = {"location": machine.region, "sku": {"name": sku, "tier": sku.partition("_")[0]}, "properties": facts}
    if machine.body.get("zones"):
        body["zones"] = machine.body["zones"]
    disk = model.put(id_, body)
    hold(disk, machine)
    return disk


def hold(disk: Thing, machine: Thing | None) -> None:
    """Let a machine have a disk, or nobody."""
    if machine is None:
        disk.body.pop("managedBy", None)
        disk.facts["diskState"] = "Unattached"
        return
    disk.body["managedBy"] = machine.id
    disk.facts["diskState"] = "Attached"


def _size_of_source(model: Model, creation: dict[str, Any]) -> int:
    if id_ := creation.get("sourceResourceId"):
        return int(model.get(id_).facts["diskSizeGB"])
    if creation["createOption"] in {"FromImage", "Import"}:
        return 64
    raise Refusal("InvalidParameter", "Required parameter 'diskSizeGB' is missing (null).")


def _check_region(name: str) -> None:
    if name.lower().replace(" ", "") not in REGIONS:
        raise Refusal("LocationNotAvailableForResourceType", f"The provided location '{name}' is not available.")


def _begun(model: Model, ask: Ask, body: dict[str, Any]) -> Reply:
    there = model.resources.get(ask.id.lower())
    thing = model.put(ask.id, body)
    if there is None and model.clock.dwell_s.get("disk"):
        thing.facts["provisioningState"] = "Creating"
    return begin(model, ask, "disk", lambda: _succeed(thing), body=copy.deepcopy(thing.body), status=202)


def _succeed(thing: Thing) -> None:
    thing.facts["provisioningState"] = "Succeeded"


@answers("Snapshots.CreateOrUpdate")
def put_snapshot(model: Model, ask: Ask) -> Reply:
    model.living_group(ask.id)
    check_tags(ask.body.get("tags"))
    source = ask.body["properties"]["creationData"].get("sourceResourceId")
    if not source:
        raise Refusal("InvalidParameter", "Required parameter 'creationData.sourceResourceId' is missing (null).")
    disk = model.get(source)
    if disk.region != ask.body["location"]:
        raise Refusal("InvalidParameter", "A snapshot and its source have to be in the same region.")
    system = {"osType": disk.facts["osType"]} if "osType" in disk.facts else {}
    new = {**_new(model, disk.facts["diskSizeGB"]), **system, "diskState": "Unattached"}
    if "hyperVGeneration" in disk.facts:
        new["hyperVGeneration"] = disk.facts["hyperVGeneration"]
    body = {"sku": {"name": "Standard_LRS", "tier": "Standard"}, **settled(ask.body, model.now(), **new)}
    return _begun(model, ask, body)


@answers("Images.CreateOrUpdate")
def put_image(model: Model, ask: Ask) -> Reply:
    """Make an image of a generalized machine, or of a disk or snapshot with `osState` Generalized."""
    model.living_group(ask.id)
    check_tags(ask.body.get("tags"))
    facts = ask.body.get("properties") or {}
    profile = facts.get("storageProfile") or {}
    if source := (facts.get("sourceVirtualMachine") or {}).get("id"):
        machine = model.get(source)
        if not machine.hidden.get("generalized"):
            sentence = f"The operation 'Capture' requires the virtual machine '{machine.name}' to be Generalized."
            raise Refusal("OperationNotAllowed", sentence)
        disk = machine.facts["storageProfile"]["osDisk"]
        gb = model.get(disk["managedDisk"]["id"]).facts["diskSizeGB"]
        profile = {"osDisk": {"osType": "Linux", "osState": "Generalized", "diskSizeGB": gb}}
        profile["osDisk"]["managedDisk"] = {"id": disk["managedDisk"]["id"]}
    elif "osDisk" in profile:
        kept = {name: profile["osDisk"][name] for name in ("managedDisk", "snapshot") if name in profile["osDisk"]}
        gb = model.get(next(iter(kept.values()))["id"]).facts["diskSizeGB"]
        profile = {**profile, "osDisk": {"diskSizeGB": gb, **profile["osDisk"]}}
    else:
        raise Refusal("InvalidParameter", "Required parameter 'storageProfile' is missing (null).")
    thing = model.put(ask.id, settled(ask.body, model.now(), storageProfile=profile))
    if model.clock.dwell_s.get("image"):
        thing.facts["provisioningState"] = "Creating"
    return begin(model, ask, "image", lambda: _succeed(thing), status=201, body=copy.deepcopy(thing.body))


@answers("Galleries.CreateOrUpdate", "GalleryImages.CreateOrUpdate", "GalleryImageVersions.CreateOrUpdate")
def put_in_gallery(model: Model, ask: Ask) -> Reply:
    """Make a gallery, an image in it, or a version of one; a version's source has to be there."""
    model.living_group(ask.id)
    check_tags(ask.body.get("tags"))
    if ask.action != "Galleries.CreateOrUpdate":
        model.get("/".join(ask.id.split("/")[:-2]))
    if ask.action == "GalleryImageVersions.CreateOrUpdate":
        _check_source(model, ask.body["properties"]["storageProfile"])
    thing = model.put(ask.id, settled(ask.body, model.now()))
    dwell = "version" if "Versions" in ask.action else "gallery"
    if model.clock.dwell_s.get(dwell):
        thing.facts["provisioningState"] = "Creating"
    return begin(model, ask, dwell, lambda: _succeed(thing), status=201, body=copy.deepcopy(thing.body))


def _check_source(model: Model, profile: dict[str, Any]) -> None:
    whole = profile.get("source") or {}
    disk = ((profile.get("osDiskImage") or {}).get("source")) or {}
    for id_ in (whole.get("id"), whole.get("virtualMachineId"), disk.get("id")):
        if id_:
            model.get(id_)


@answers(
    "Disks.Delete",
    "Snapshots.Delete",
    "Images.Delete",
    "Galleries.Delete",
    "GalleryImages.Delete",
    "GalleryImageVersions.Delete",
)
def delete(model: Model, ask: Ask) -> Reply:
    thing = model.resources.get(ask.id.lower())
    if thing is None:
        return Reply(204)
    if owner := used_by(model, thing):
        sentence = f"Disk {thing.name} is attached to VM {owner}."
        raise Refusal("OperationNotAllowed", sentence)
    below = [one for key, one in model.resources.items() if key.startswith(f"{ask.id.lower()}/")]
    if below:
        raise Refusal(
            "CannotDeleteResource", f"Cannot delete resource while nested resources exist: {below[0].id}", 409
        )
    return begin(model, ask, "disk", lambda: model.drop(ask.id))


@answers("VirtualMachines.AttachDetachDataDisks")
def attach(model: Model, ask: Ask) -> Reply:
    machine = model.get(ask.id)
    profile = machine.facts["storageProfile"]
    for one in ask.body.get("dataDisksToDetach") or []:
        _detach(model, profile, one["diskId"])
    for one in ask.body.get("dataDisksToAttach") or []:
        _attach(model, machine, profile, one)
    return begin(model, ask, "attaching", lambda: None, body=copy.deepcopy(profile))


def relist(model: Model, machine: Thing, rows: list[dict[str, Any]]) -> None:
    """Let exactly these data disks hang on a machine, as a PATCH of its list says."""
    profile = machine.facts["storageProfile"]
    wanted = {one["managedDisk"]["id"].lower() for one in rows}
    for one in list(profile["dataDisks"]):
        if one["managedDisk"]["id"].lower() not in wanted:
            _detach(model, profile, one["managedDisk"]["id"])
    for one in rows:
        _attach(model, machine, profile, {**one, "diskId": one["managedDisk"]["id"]})


def _detach(model: Model, profile: dict[str, Any], id_: str) -> None:
    profile["dataDisks"] = [one for one in profile["dataDisks"] if one["managedDisk"]["id"].lower() != id_.lower()]
    hold(model.get(id_), None)


def _attach(model: Model, machine: Thing, profile: dict[str, Any], one: dict[str, Any]) -> None:
    disk = model.get(one["diskId"])
    if (owner := disk.body.get("managedBy")) and owner.lower() != machine.id.lower():
        sentence = f"Disk '{disk.name}' is already attached to another VM."
        raise Refusal("AttachDiskWhileBeingDetached" if not owner else "ConflictingUserInput", sentence, 409)
    if disk.region != machine.region or (disk.body.get("zones") or []) != (machine.body.get("zones") or []):
        raise Refusal("BadRequest", f"Disk '{disk.name}' is in another region or zone than the VM '{machine.name}'.")
    others = [row for row in profile["dataDisks"] if row["managedDisk"]["id"].lower() != disk.id.lower()]
    used = {row["lun"] for row in others}
    lun = one.get("lun", next(number for number in range(64) if number not in used))
    if lun in used:
        raise Refusal("InvalidParameter", f"A disk at LUN {lun} already exists.")
    row = {"lun": lun, "name": disk.name, "createOption": "Attach", "managedDisk": {"id": disk.id}}
    row |= {"caching": one.get("caching", "None"), "diskSizeGB": disk.facts["diskSizeGB"]}
    row |= {"deleteOption": one.get("deleteOption", "Detach"), "toBeDetached": False}
    profile["dataDisks"] = [*others, row]
    hold(disk, machine)
