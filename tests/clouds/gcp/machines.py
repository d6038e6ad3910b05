"""Machines: how they are made, with their disks and addresses, and what their states mean.

A launch is accepted, then the machine is PROVISIONING until its operation ends: RUNNING, or gone again with the disks
that were made for it, with the error inside the operation (no capacity, a limit). What Google leaves behind of a
launch that failed is unverified; here it is nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tests.clouds.gcp import disks, machine_checks, operations, resources
from tests.clouds.gcp.errors import OperationFailed, is_inside, stockout
from tests.clouds.gcp.handlers import Asked, answers
from tests.clouds.gcp.model import Key, Model, Thing, key_of, linked, with_labels, with_metadata, written
from tests.clouds.gcp.stock import Type, region_of
from tests.clouds.rest import Refusal
from tests.clouds.rest_faults import Fault

LOCAL_SSD_GB = 375
LIVE = {"PROVISIONING", "STAGING", "RUNNING", "REPAIRING"}


@answers("compute.instances.insert")
def insert(asked: Asked) -> Thing:
    """Launch a machine."""
    model, body, project, zone = asked.model, asked.body, asked.where["project"], asked.where["zone"]
    resources.check_scope(f"zones/{zone}", project)
    kind = machine_checks.kind_of(body, project, zone)
    gpu, count = machine_checks.gpus_of(body, kind, project, zone)
    key = key_of(asked.call, "instances", body["name"])
    machine: Thing = {
        "machineType": Key("machineTypes", project, f"zones/{zone}", kind.name).link,
        "scheduling": machine_checks.scheduling(
            body.get("scheduling", {}), gpu=bool(count), local_ssd=_has_local_ssd(body, kind)
        ),
        "networkInterfaces": _interfaces(model, body, project, region_of(zone)),
        "status": "PROVISIONING",
        "tags": {
            "fingerprint": "AAAA",
            **({"items": body["tags"]["items"]} if body.get("tags", {}).get("items") else {}),
        },
        "_gpu": gpu,
        "_gpus": count,
        "_guest": {},
    }
    machine |= {name: body[name] for name in KEPT if name in body}
    with_labels(machine, body.get("labels"))
    with_metadata(machine, body.get("metadata"))
    made = model.add(key, machine)
    try:
        machine["disks"] = made["disks"] = _disks(model, key, body, kind)
    except Refusal:
        resources.delete(model, key)
        raise
    new = [
        linked(one["source"], "disks")
        for one, asked_for in zip(made["disks"], body["disks"], strict=False)
        if "initializeParams" in asked_for and "source" in one
    ]
    return operations.begin(model, asked.call, key, "insert", lambda: _made(model, key, made, new, asked.request.fault))


KEPT = ("canIpForward", "deletionProtection", "description", "guestAccelerators", "hostname", "minCpuPlatform")
KEPT += ("reservationAffinity", "serviceAccounts", "shieldedInstanceConfig", "confidentialInstanceConfig", "params")


def _made(model: Model, key: Key, machine: Thing, new: list[Key], fault: Fault | None) -> None:
    """End a launch: the machine runs, or all of it is gone."""
    if model.resources.get(key) is not machine:
        return  # it was deleted on the way
    try:
        _let(model, key, machine, fault)
    except OperationFailed:
        for one in [key, *new]:
            resources.delete(model, one)
        for one in machine["disks"]:
            _release(model, key, one)
        raise
    run(model, key, machine)


def _let(model: Model, key: Key, machine: Thing, fault: Fault | None) -> None:
    """Raise OperationFailed where a machine may not or cannot run."""
    if fault is not None and is_inside(fault.error):
        gpus = f"{machine['_gpu']}:{machine['_gpus']}" if machine["_gpus"] else ""
        usual = stockout(key.project, key.place, machine["machineType"].rpartition("/")[2], gpus)
        if fault.error == usual.code and not fault.message:
            raise usual
        raise OperationFailed(fault.error, fault.message)
    machine_checks.check_quota(model, key, machine)


def _interfaces(model: Model, body: Mapping[str, Any], project: str, region: str) -> list[dict[str, Any]]:
    given = body.get("networkInterfaces") or []
    if not given:
        raise Refusal("required", "At least one network interface is required.")
    return [_interface(model, one, f"nic{number}", project, region) for number, one in enumerate(given)]


def _interface(model: Model, given: Mapping[str, Any], name: str, project: str, region: str) -> dict[str, Any]:
    scope = f"regions/{region}"
    if "subnetwork" in given:
        part = linked(given["subnetwork"], "subnetworks", project, scope)
        network = linked(model.get(part)["network"], "networks")
    else:
        network = linked(given.get("network") or "global/networks/default", "networks")
        model.get(network)
        part = Key("subnetworks", network.project, scope, network.name)
    if part.scope != scope:
        raise Refusal("invalid", f"Invalid value for field 'networkInterfaces.subnetwork': '{part.path}'")
    model.get(part)
    made = {"kind": "compute#networkInterface", "name": name, "network": network.link, "subnetwork": part.link}
    made["networkIP"] = model.addresses()[1]
    configs = [
        {
            "kind": "compute#accessConfig",
            "type": "ONE_TO_ONE_NAT",
            "name": "External NAT",
            "networkTier": "PREMIUM",
            **one,
        }
        for one in given.get("accessConfigs", [])
    ]
    return {**made, "stackType": "IPV4_ONLY", **({"accessConfigs": configs} if configs else {})}


def _disks(model: Model, key: Key, body: Mapping[str, Any], kind: Type) -> list[dict[str, Any]]:
    """Return a machine's disks, made or attached; local SSDs that come with its type are added."""
    given = [dict(one) for one in body.get("disks", [])]
    if sum(bool(one.get("boot")) for one in given) != 1:
        raise Refusal("invalid", "Invalid value for field 'resource.disks': exactly one boot disk is needed")
    own = sum(one.get("type") == "SCRATCH" for one in given)
    given += [{"type": "SCRATCH", "initializeParams": {"diskType": "local-ssd"}}] * max(kind.local_ssds - own, 0)
    made: list[dict[str, Any]] = []
    try:
        for index, one in enumerate(given):
            made.append(_disk(model, key, one, index))
    except Refusal:
        for one in made:
            _release(model, key, one)
            if "_new" in one:
                resources.delete(model, one["_new"])
        raise
    return [{name: value for name, value in one.items() if name != "_new"} for one in made]


def _disk(model: Model, key: Key, given: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return one attached disk. Without `autoDelete` a disk outlives its machine (AttachedDisk, autoDelete)."""
    params = given.get("initializeParams") or {}
    one: dict[str, Any] = {
        "kind": "compute#attachedDisk",
        "index": index,
        "mode": given.get("mode", "READ_WRITE"),
        "boot": bool(given.get("boot")),
        "autoDelete": bool(given.get("autoDelete")),
    }
    if given.get("type") == "SCRATCH":
        if not params.get("diskType", "").endswith("local-ssd"):
            raise Refusal("invalid", "Invalid value for field 'disks.type': SCRATCH is for local SSD only")
        return {
            **one,
            "type": "SCRATCH",
            "interface": given.get("interface", "NVME"),
            "autoDelete": True,
            "deviceName": given.get("deviceName", f"local-ssd-{index}"),
            "diskSizeGb": str(LOCAL_SSD_GB),
        }
    if "source" in given:
        disk_key = linked(given["source"], "disks", key.project, key.scope)
        new = {}
    else:
        disk_key = Key("disks", key.project, key.scope, params.get("diskName") or _disk_name(key, given, index))
        _check_disk(model, key, params.get("diskType") or "pd-standard")
        disks.add(model, disk_key, params, params.get("labels"))
        new = {"_new": disk_key}
    disk = attach(model, key, disk_key, one["mode"])
    return {
        **one,
        **new,
        "type": "PERSISTENT",
        "interface": "SCSI",
        "source": disk_key.link,
        "deviceName": given.get("deviceName", f"persistent-disk-{index}"),
        "diskSizeGb": disk["sizeGb"],
    }


def _has_local_ssd(body: Mapping[str, Any], kind: Type) -> bool:
    return kind.local_ssds > 0 or any(one.get("type") == "SCRATCH" for one in body.get("disks", []))


def _disk_name(key: Key, given: Mapping[str, Any], index: int) -> str:
    return key.name if given.get("boot") else f"{key.name}-{index}"


def attach(model: Model, key: Key, disk_key: Key, mode: str) -> Thing:
    """Note that a machine uses a disk. Raises Refusal where that is elsewhere, or another writes to it."""
    disk = model.get(disk_key)
    if disk_key.scope != key.scope:
        raise Refusal("invalid", f"The disk '{disk_key.path}' must be in the same zone as the instance")
    if disk.get("users") and mode == "READ_WRITE":
        user = disk["users"][0].partition("/v1/")[2]
        said = f"The disk resource '{disk_key.path}' is already being used by '{user}'"
        raise Refusal("resourceInUseByAnotherResource", said)
    _check_disk(model, key, disk["type"])
    disk.setdefault("users", []).append(key.link)
    disk["lastAttachTimestamp"] = model.now()
    return disk


def _check_disk(model: Model, key: Key, disk_type: str) -> None:
    machine_checks.check_disk(model.get(key)["machineType"].rpartition("/")[2], disk_type.rpartition("/")[2])


def _release(model: Model, key: Key, one: Mapping[str, Any]) -> None:
    """Note that a machine uses a disk no more."""
    disk = model.resources.get(linked(one["source"], "disks")) if "source" in one else None
    if disk is not None and key.link in disk.get("users", []):
        disk["users"].remove(key.link)
        disk["lastDetachTimestamp"] = model.now()
        if not disk["users"]:
            del disk["users"]


def run(model: Model, key: Key, machine: Thing) -> None:
    """Let a machine run: it has its address, and its end if it is to have one."""
    machine.update(status="RUNNING", lastStartTimestamp=model.now())
    for interface in machine["networkInterfaces"]:
        for config in interface.get("accessConfigs", []):
            config.setdefault("natIP", model.addresses()[0])
    if limit := machine["scheduling"].get("maxRunDuration"):
        when = model.clock.now() + timedelta(seconds=int(limit["seconds"]))
        machine["resourceStatus"] = {"scheduling": {"terminationTimestamp": written(when)}}
        model.clock.at(f"end {key.path}", when, lambda: _end(model, key, machine))
    _tell(model, key, machine)


def halt(model: Model, key: Key, machine: Thing) -> None:
    """Let a machine be at rest: no charge for it, its address is gone, its disks are billed on."""
    machine.update(status="TERMINATED", lastStopTimestamp=model.now())
    machine.pop("resourceStatus", None)
    model.clock.cancel(f"end {key.path}")
    for interface in machine["networkInterfaces"]:
        for config in interface.get("accessConfigs", []):
            config.pop("natIP", None)
    _tell(model, key, machine)


def remove(model: Model, key: Key, machine: Thing) -> None:
    """Let a machine be gone, with the disks that go with it."""
    halt(model, key, machine)
    resources.delete(model, key)
    for one in machine["disks"]:
        _release(model, key, one)
        if one["autoDelete"] and "source" in one:
            resources.delete(model, linked(one["source"], "disks"))
    for watcher in model.watchers:
        watcher(key, {**machine, "status": "GONE"})


def _end(model: Model, key: Key, machine: Thing) -> None:
    """Do what was to be done at the end of a machine's run time. The operation's name is unverified."""
    operations.of_system(model, key, "compute.instances.scheduledTermination", "Instance run duration has ended.")
    if machine["scheduling"]["instanceTerminationAction"] == "DELETE":
        remove(model, key, machine)
    else:
        halt(model, key, machine)


def interrupt(model: Model, key: Key) -> None:
    """Take a Spot machine back: its half minute of notice is over (Spot VMs, Preemption process)."""
    machine = model.get(key)
    if not machine["scheduling"]["preemptible"] or machine["status"] not in LIVE:
        raise ValueError(f"{key.path} is no Spot machine that runs")
    operations.of_system(model, key, "compute.instances.preempted", "Instance was preempted.")
    if machine["scheduling"].get("instanceTerminationAction") == "DELETE":
        remove(model, key, machine)
    else:
        halt(model, key, machine)


def shut_down(model: Model, key: Key) -> None:
    """Shut a machine down from inside: it is TERMINATED, and billed no more but for its disks and addresses."""
    machine = model.get(key)
    if machine["status"] != "TERMINATED":
        operations.of_system(
            model, key, "compute.instances.guestTerminate", "Instance terminated by guest OS shutdown."
        )
        halt(model, key, machine)


def _tell(model: Model, key: Key, machine: Thing) -> None:
    for watcher in model.watchers:
        watcher(key, machine)


__all__ = ["attach", "halt", "insert", "interrupt", "remove", "run", "shut_down"]
