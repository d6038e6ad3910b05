"""The calls about machines that are there: stop, start, delete, disks on and off, metadata, schedules, what they say.

Stopping a machine with local SSD needs to be told whether its data are to be discarded (the words are from public
reports, SkyPilot #2586); starting one that is not at rest, or stopping one that is, changes nothing (unverified).
"""

from __future__ import annotations

from tests.clouds.gcp import machine_checks, machines, operations, resources
from tests.clouds.gcp.errors import OperationFailed
from tests.clouds.gcp.handlers import Asked, answers
from tests.clouds.gcp.machines import _let, _release, attach, halt, remove, run
from tests.clouds.gcp.model import (
    Thing,
    check_fingerprint,
    linked,
    metadata_of,
    shown,
    with_metadata,
)
from tests.clouds.gcp.stock import TYPES
from tests.clouds.rest import Refusal

UNDEFINED = (
    "VM has a Local SSD attached but an undefined value for `discard-local-ssd`. If using gcloud, please add "
    "`--discard-local-ssd=false` or `--discard-local-ssd=true` to your command."
)


@answers("compute.instances.stop")
def stop(asked: Asked) -> Thing:
    """Stop a machine."""
    key, machine = resources.own(asked, "instances")
    model, discards = asked.model, asked.call.query.get("discardLocalSsd")
    if machine["status"] == "TERMINATED":
        return operations.begin(model, asked.call, key, "stop")
    if any(one["type"] == "SCRATCH" for one in machine["disks"]) and discards is None:
        raise Refusal("badRequest", UNDEFINED)
    machine["status"] = "STOPPING"
    machine["_keeps_local_ssd"] = discards == "false"
    return operations.begin(model, asked.call, key, "stop", lambda: _unless_gone(asked, key, machine, halt))


@answers("compute.instances.simulateMaintenanceEvent")
def simulate(asked: Asked) -> Thing:
    """Preempt a Spot machine, as Google's page on simulated maintenance says; others are left (they would be moved)."""
    key, machine = resources.own(asked, "instances")
    takes = machine["scheduling"].get("preemptible") and machine["status"] == "RUNNING"
    end = (lambda: machines.interrupt(asked.model, key)) if takes else None
    return operations.begin(asked.model, asked.call, key, "simulateMaintenanceEvent", end)


@answers("compute.instances.start")
def start(asked: Asked) -> Thing:
    """Start a machine that is at rest; where there is no capacity, it is at rest again."""
    key, machine = resources.own(asked, "instances")
    if machine["status"] in {"RUNNING", "PROVISIONING", "STAGING"}:
        return operations.begin(asked.model, asked.call, key, "start")
    if machine["status"] != "TERMINATED":
        raise Refusal("resourceNotReady", f"The resource '{key.path}' is not ready")
    machine["status"] = "PROVISIONING"
    return operations.begin(asked.model, asked.call, key, "start", lambda: _started(asked, key, machine))


def _started(asked: Asked, key, machine) -> None:
    if asked.model.resources.get(key) is not machine or machine["status"] != "PROVISIONING":
        return
    try:
        _let(asked.model, key, machine, asked.request.fault)
    except OperationFailed:
        machine["status"] = "TERMINATED"
        raise
    machine["_keeps_local_ssd"] = False
    run(asked.model, key, machine)


@answers("compute.instances.delete")
def delete(asked: Asked) -> Thing:
    """Delete a machine, and the disks that go with it."""
    key, machine = resources.own(asked, "instances")
    if machine.get("deletionProtection"):
        said = f"Invalid resource usage: 'Resource cannot be deleted if it's protected against deletion: {key.path}'."
        raise Refusal("invalidResourceUsage", said)
    machine["status"] = "STOPPING"
    return operations.begin(asked.model, asked.call, key, "delete", lambda: _unless_gone(asked, key, machine, remove))


def _unless_gone(asked: Asked, key, machine, does) -> None:
    if asked.model.resources.get(key) is machine:
        does(asked.model, key, machine)


@answers("compute.instances.attachDisk")
def attach_disk(asked: Asked) -> Thing:
    """Attach a disk that there is."""
    key, machine = resources.own(asked, "instances")
    disk_key, mode = linked(asked.body["source"], "disks", key.project, key.scope), asked.body.get("mode", "READ_WRITE")
    index = 1 + max(one["index"] for one in machine["disks"])
    name = asked.body.get("deviceName", f"persistent-disk-{index}")
    if any(name == one["deviceName"] for one in machine["disks"]):
        raise Refusal("invalid", f"Invalid value for field 'resource.deviceName': '{name}' is in use.")
    disk = attach(asked.model, key, disk_key, mode)
    one = {"kind": "compute#attachedDisk", "index": index, "mode": mode, "type": "PERSISTENT", "interface": "SCSI"}
    one |= {"boot": False, "autoDelete": bool(asked.body.get("autoDelete")), "source": disk_key.link}
    machine["disks"].append({**one, "deviceName": name, "diskSizeGb": disk["sizeGb"]})
    return operations.begin(asked.model, asked.call, key, "attachDisk")


@answers("compute.instances.detachDisk")
def detach_disk(asked: Asked) -> Thing:
    """Detach a disk by the name of its device."""
    key, machine = resources.own(asked, "instances")
    one = _device(asked, machine)
    machine["disks"].remove(one)
    _release(asked.model, key, one)
    return operations.begin(asked.model, asked.call, key, "detachDisk")


@answers("compute.instances.setDiskAutoDelete")
def set_disk_auto_delete(asked: Asked) -> Thing:
    """Say whether a disk goes with the machine."""
    key, machine = resources.own(asked, "instances")
    _device(asked, machine)["autoDelete"] = asked.call.query["autoDelete"] == "true"
    return operations.begin(asked.model, asked.call, key, "setDiskAutoDelete")


def _device(asked: Asked, machine: Thing) -> Thing:
    name = asked.call.query["deviceName"]
    found = next((one for one in machine["disks"] if one["deviceName"] == name), None)
    if found is None:
        raise Refusal("invalid", f"No attached disk found with device name '{name}'")
    return found


@answers("compute.instances.setMetadata")
def set_metadata(asked: Asked) -> Thing:
    """Set all of a machine's metadata, by the fingerprint of what was read."""
    key, machine = resources.own(asked, "instances")
    check_fingerprint(asked.body.get("fingerprint"), machine["metadata"]["fingerprint"], "metadata")
    with_metadata(machine, asked.body)
    return operations.begin(asked.model, asked.call, key, "setMetadata")


@answers("compute.instances.setScheduling")
def set_scheduling(asked: Asked) -> Thing:
    """Set a machine's schedule, while it is at rest ("you can only call this method on a stopped instance")."""
    key, machine = resources.own(asked, "instances")
    if machine["status"] != "TERMINATED":
        raise Refusal("resourceNotReady", f"The resource '{key.path}' is not ready: its status must be TERMINATED")
    machine["scheduling"] = machine_checks.scheduling(
        {"provisioningModel": machine["scheduling"]["provisioningModel"], **asked.body},
        gpu=bool(machine["_gpus"]),
        local_ssd=any(one["type"] == "SCRATCH" for one in machine["disks"]),
    )
    return operations.begin(asked.model, asked.call, key, "setScheduling")


@answers("compute.instances.setMachineType")
def set_machine_type(asked: Asked) -> Thing:
    """Make another machine of one that is at rest."""
    key, machine = resources.own(asked, "instances")
    if machine["status"] != "TERMINATED":
        raise Refusal("resourceNotReady", f"The resource '{key.path}' is not ready: its status must be TERMINATED")
    kind = machine_checks.kind_of(asked.body, key.project, key.place)
    machine["_gpu"], machine["_gpus"] = machine_checks.gpus_of(machine, TYPES[kind.name], key.project, key.place)
    machine["machineType"] = linked(asked.body["machineType"], "machineTypes", key.project, key.scope).link
    return operations.begin(asked.model, asked.call, key, "setMachineType")


@answers("compute.instances.setTags")
def set_tags(asked: Asked) -> Thing:
    """Set a machine's network tags."""
    key, machine = resources.own(asked, "instances")
    check_fingerprint(asked.body.get("fingerprint"), machine["tags"]["fingerprint"], "tags")
    machine["tags"]["items"] = asked.body.get("items", [])
    return operations.begin(asked.model, asked.call, key, "setTags")


@answers("compute.instances.setDeletionProtection")
def set_deletion_protection(asked: Asked) -> Thing:
    """Protect a machine from deletion, or not."""
    key, machine = resources.own(asked, "instances")
    machine["deletionProtection"] = asked.call.query.get("deletionProtection", "true") == "true"
    return operations.begin(asked.model, asked.call, key, "setDeletionProtection")


@answers("compute.instances.getSerialPortOutput")
def serial_port(asked: Asked) -> Thing:
    """Return what a machine wrote to its console."""
    key, machine = resources.own(asked, "instances")
    said = machine.get("_console", "")
    return {
        "kind": "compute#serialPortOutput",
        "selfLink": f"{key.link}/serialPort",
        "contents": said,
        "start": "0",
        "next": str(len(said)),
    }


@answers("compute.instances.getGuestAttributes")
def guest_attributes(asked: Asked) -> Thing:
    """Return what a machine has written into its guest attributes, if it may (`enable-guest-attributes`)."""
    key, machine = resources.own(asked, "instances")
    asked_for = asked.call.query.get("queryPath") or asked.call.query.get("variableKey") or ""
    path = asked_for.strip("/")
    allowed = {**asked.model.project_metadata, **metadata_of(machine)}.get("enable-guest-attributes", "").upper()
    found = {
        name: one for name, one in machine["_guest"].items() if not path or name == path or name.startswith(f"{path}/")
    }
    if allowed != "TRUE" or not found:
        said = f"The resource '{asked_for}' of type 'Guest Attribute' was not found."
        raise Refusal("notFound", said)
    items = [
        dict(zip(("namespace", "key", "value"), (*name.split("/", 1), one), strict=True)) for name, one in found.items()
    ]
    made = {"kind": "compute#guestAttributes", "queryPath": path, "queryValue": {"items": items}}
    return {**made, "selfLink": f"{key.link}/guestAttributes/{path}"}


__all__ = ["machines", "shown"]
