"""Virtual machines: the PUT that makes one with its disk, interfaces and addresses, what is shown of it, its end.

What is checked is from the REST reference and public reports. Belief, and named so in README.md: that interfaces and
addresses get the names that the body gives them; that a repeated PUT of the same body changes nothing; what a failed
create leaves; when exactly a machine is billed.
"""

from __future__ import annotations

import copy
from typing import Any

from tests.clouds.azure import disks, networks
from tests.clouds.azure.checks import check
from tests.clouds.azure.handlers import answers, check_tags, merge, pages, patch
from tests.clouds.azure.making import identify, make
from tests.clouds.azure.model import MACHINES, Ask, Model, Thing, stamp
from tests.clouds.azure.operations import begin
from tests.clouds.rest import Refusal, Reply

WORDS = {
    "creating": "Creating",
    "starting": "VM starting",
    "running": "VM running",
    "stopping": "VM stopping",
    "stopped": "VM stopped",
    "deallocating": "VM deallocating",
    "deallocated": "VM deallocated",
}
MOVABLE = {"tags", "identity"}  # what a PUT of a machine that is there may change here; size and disks too, at Azure


@answers("VirtualMachines.CreateOrUpdate")
def put_machine(model: Model, ask: Ask) -> Reply:
    """Make a machine, or answer the one that is there when the body is the same."""
    model.living_group(ask.id)
    check_tags(ask.body.get("tags"))
    there = model.resources.get(ask.id.lower())
    if there is not None and not _failed(there):
        return _again(model, ask, there)
    check(model, ask)
    if there is not None:
        _clear(model, there)
    machine = make(model, ask)
    shown = _shown(machine)

    def fail(code: str) -> None:
        machine.facts["provisioningState"] = "Failed"
        machine.hidden.update(power="", failure=code)
        if "disk" not in model.leaves:
            _drop_disk(model, machine)
        if "nic" not in model.leaves:
            _drop_network(model, machine)

    return begin(model, ask, "creating", lambda: _runs(model, machine), status=201, body=shown, fail=fail)


def _failed(machine: Thing) -> bool:
    """Say whether it was never made; one that failed to start has a state of power."""
    return bool(machine.facts["provisioningState"] == "Failed" and not machine.hidden["power"])


def _again(model: Model, ask: Ask, there: Thing) -> Reply:
    """Answer a PUT of a machine that is there: nothing new, or a change of what can be changed."""
    if there.facts["provisioningState"] == "Deleting":
        raise Refusal("OperationNotAllowed", f"Operation is not allowed on VM '{there.name}' as it is being deleted.")
    old, new = there.hidden["asked"], ask.body
    for name in sorted(set(old) | set(new)):
        if name not in MOVABLE and old.get(name) != new.get(name):
            raise Refusal("PropertyChangeNotAllowed", f"Changing property '{_where(old, new, name)}' is not allowed.")
    there.body["tags"] = dict(new.get("tags") or {})
    if there.facts["provisioningState"] == "Creating":
        return Reply(200, _shown(there))
    return begin(model, ask, "updating", lambda: None, status=200, body=_shown(there))


def _where(old: dict[str, Any], new: dict[str, Any], name: str) -> str:
    """Return the path of the first thing that differs."""
    one, two = old.get(name), new.get(name)
    while isinstance(one, dict) and isinstance(two, dict):
        inner = next(key for key in sorted(set(one) | set(two)) if one.get(key) != two.get(key))
        name, one, two = f"{name}.{inner}", one.get(inner), two.get(inner)
    return name.removeprefix("properties.")


def _runs(model: Model, machine: Thing) -> None:
    machine.facts["provisioningState"] = "Succeeded"
    set_power(model, machine, "running")


def set_power(model: Model, machine: Thing, state: str) -> None:
    """Write a state of power, and tell whoever watches."""
    machine.hidden["power"], machine.hidden["since"] = state, model.now()
    model.tell(machine)


# What is shown.


def _shown(machine: Thing, *, view: bool = False, tags: bool = True) -> dict[str, Any]:
    found = copy.deepcopy(machine.body)
    if view:
        found["properties"]["instanceView"] = view_of(machine)
    if not tags:
        found.pop("tags", None)
    return found


def view_of(machine: Thing) -> dict[str, Any]:
    """Return what a machine does: how its making went, and its power."""
    state, power = machine.facts["provisioningState"], machine.hidden["power"]
    rows = [{"code": f"ProvisioningState/{state.lower()}", "level": "Info", "displayStatus": f"Provisioning {state}"}]
    if state == "Failed":
        rows[0] |= {
            "level": "Error",
            "code": f"ProvisioningState/failed/{machine.hidden.get('failure', '')}".rstrip("/"),
        }
    if power and power != "creating":
        rows.append({"code": f"PowerState/{power}", "level": "Info", "displayStatus": WORDS[power]})
    if "since" in machine.hidden:
        rows[0]["time"] = stamp(machine.hidden["since"])
    disk = machine.facts["storageProfile"]["osDisk"].get("name", "")
    return {"disks": [{"name": disk, "statuses": rows[:1]}], "statuses": rows}


@answers("VirtualMachines.Get")
def get_machine(model: Model, ask: Ask) -> Reply:
    return Reply(200, _shown(model.get(ask.id), view=ask.query.get("$expand", "").lower() == "instanceview"))


@answers("VirtualMachines.InstanceView")
def get_view(model: Model, ask: Ask) -> Reply:
    return Reply(200, view_of(model.get(ask.id)))


@answers("VirtualMachines.ListAll", "VirtualMachines.List", "VirtualMachines.ListByLocation")
def list_machines(model: Model, ask: Ask) -> Reply:
    """List machines. With `statusOnly` power is told and tags are not: that it lacks them is undocumented silence."""
    status = ask.query.get("statusOnly", "").lower() == "true"
    group, region = ask.where.get("resourceGroupName"), ask.where.get("location")
    if group:
        model.get("/".join(ask.id.split("/")[:5]))
    found = [one for one in model.of_kind(MACHINES, group) if region is None or one.region == region.lower()]
    view = status or ask.query.get("$expand", "").lower() == "instanceview"
    return pages(model, ask, (_status_of(one) if status else _shown(one, view=view) for one in found))


def _status_of(machine: Thing) -> dict[str, Any]:
    facts = {name: machine.facts[name] for name in ("vmId", "provisioningState", "hardwareProfile")}
    shown = {name: machine.body[name] for name in ("id", "name", "type", "location")}
    return {**shown, "properties": {**copy.deepcopy(facts), "instanceView": view_of(machine)}}


@answers("VirtualMachines.Update")
def update_machine(model: Model, ask: Ask) -> Reply:
    """PATCH: tags are replaced, which would erase a hold; `deleteOption` and an identity can be changed."""
    machine = model.get(ask.id)
    body = copy.deepcopy(ask.body)
    network = (body.get("properties") or {}).pop("networkProfile", None)
    rows = ((body.get("properties") or {}).get("storageProfile") or {}).pop("dataDisks", None)
    if "identity" in body:
        identify(model, ask, body["identity"])
    patch(model, machine, body)
    if rows is not None:
        disks.relist(model, machine, rows)
    if network is not None:
        for one in network["networkInterfaces"]:
            mine = next(row for row in machine.facts["networkProfile"]["networkInterfaces"] if row["id"] == one["id"])
            merge(mine, one)
    return begin(model, ask, "updating", lambda: None, status=200, body=_shown(machine))


# Its end.


@answers("VirtualMachines.Delete")
def delete_machine(model: Model, ask: Ask) -> Reply:
    machine = model.resources.get(ask.id.lower())
    if machine is None:
        return Reply(204)
    machine.facts["provisioningState"] = "Deleting"
    return begin(model, ask, "deleting", lambda: vanish(model, machine))


def vanish(model: Model, machine: Thing) -> None:
    """Let a machine be gone: its `deleteOption`s say what goes with it."""
    disk = machine.facts["storageProfile"]["osDisk"]
    if disk.get("deleteOption") == "Delete":
        _drop_disk(model, machine)
    for one in _disks_of(model, machine):
        rows = machine.facts["storageProfile"]["dataDisks"]
        goes = any(row["managedDisk"]["id"] == one.id and row.get("deleteOption") == "Delete" for row in rows)
        model.drop(one.id) if goes else disks.hold(one, None)
    _drop_network(model, machine)
    machine.hidden["power"] = "gone"
    model.drop(machine.id)
    model.tell(machine)


def _disks_of(model: Model, machine: Thing) -> list[Thing]:
    mine = machine.id.lower()
    return [one for one in list(model.resources.values()) if str(one.body.get("managedBy", "")).lower() == mine]


def _drop_disk(model: Model, machine: Thing) -> None:
    disk = machine.facts["storageProfile"]["osDisk"].get("managedDisk") or {}
    if "id" in disk:
        model.drop(disk["id"])


def _drop_network(model: Model, machine: Thing) -> None:
    rows = machine.facts["networkProfile"]["networkInterfaces"]
    known = [(row, model.resources[row["id"].lower()]) for row in rows if row["id"].lower() in model.resources]
    for row, interface in known:
        interface.facts.pop("virtualMachine", None)
        if (row.get("properties") or {}).get("deleteOption") == "Delete":
            _drop_interface(model, interface)
    networks.refresh_those_of(model, [interface for _, interface in known])


def _drop_interface(model: Model, interface: Thing) -> None:
    model.drop(interface.id)
    for one in interface.facts["ipConfigurations"]:
        address = one["properties"].get("publicIPAddress") or {}
        if (address.get("properties") or {}).get("deleteOption") == "Delete":
            model.drop(address["id"])


def _clear(model: Model, failed: Thing) -> None:
    """Take away what a failed create left, where the next PUT makes it anew: unverified."""
    _drop_disk(model, failed)
    _drop_network(model, failed)
    model.drop(failed.id)
