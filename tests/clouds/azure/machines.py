"""Virtual machines: the PUT that makes one with its disk, interfaces and addresses, what is shown of it, its end.

What is checked is from the REST reference and public reports. Belief, and named so in README.md: that interfaces and
addresses get the names that the body gives them; that a repeated PUT of the same body changes nothing; what a failed
create leaves; when exactly a machine is billed.
"""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

from tests.clouds.azure import disks, market, networks, skus
from tests.clouds.azure.handlers import answers, check_tags, merge, pages, patch
from tests.clouds.azure.model import (
    ADDRESSES,
    INTERFACES,
    MACHINES,
    SECURITY,
    TENANT,
    Ask,
    Model,
    Thing,
    stamp,
)
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
CUSTOM_DATA = 65535  # bytes, after decoding (REST reference)


@answers("VirtualMachines.CreateOrUpdate")
def put_machine(model: Model, ask: Ask) -> Reply:
    """Make a machine, or answer the one that is there when the body is the same."""
    group = model.living_group(ask.id)
    check_tags(ask.body.get("tags"))
    there = model.things.get(ask.id.lower())
    if there is not None and not _failed(there):
        return _again(model, ask, there)
    _check(model, ask)
    if there is not None:
        _clear(model, there)
    machine = _make(model, ask, group)
    shown = _shown(machine)

    def fail() -> None:
        machine.facts["provisioningState"] = "Failed"
        machine.hidden["power"] = ""
        if "disk" not in model.leaves:
            _drop_disk(model, machine)
        if "nic" not in model.leaves:
            _drop_network(model, machine)

    return begin(model, ask, "creating", lambda: _runs(model, machine), status=201, body=shown, fail=fail)


def _failed(machine: Thing) -> bool:
    return bool(machine.facts["provisioningState"] == "Failed")


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


def _check(model: Model, ask: Ask) -> None:
    """Refuse what Azure would refuse at once."""
    body, facts = ask.body, ask.body.get("properties") or {}
    region, zones = body["location"].lower(), body.get("zones") or []
    size = skus.size_of((facts.get("hardwareProfile") or {}).get("vmSize", ""))
    name = (facts.get("hardwareProfile") or {}).get("vmSize")
    if size is None:
        raise Refusal("InvalidParameter", f"The value {name} provided for the VM size is not valid.")
    if not skus.offered(model, size, region, zones[0] if zones else ""):
        at = f"in location '{region}'" + (f" zones '{zones[0]}'" if zones else "")
        sentence = f"The requested size for resource '{ask.id}' is currently not available {at} for subscription."
        raise Refusal("SkuNotAvailable", f"{sentence} Please try another size or deploy to a different location.")
    _check_spot(facts)
    _check_system(ask, facts)
    _check_image(model, facts, size, region)
    _check_network(model, facts, region)
    skus.charge(model, size, region, spot=facts.get("priority") == "Spot")


def _check_spot(facts: dict[str, Any]) -> None:
    spot = facts.get("priority") == "Spot"
    if not spot and ("evictionPolicy" in facts or "billingProfile" in facts):
        sentence = "Eviction policy and billing profile can be set only on Azure Spot Virtual Machines."
        raise Refusal("InvalidParameter", sentence)
    price = (facts.get("billingProfile") or {}).get("maxPrice", -1)
    if price != -1 and price <= 0:
        raise Refusal("InvalidParameter", f"The value {price} of parameter 'billingProfile.maxPrice' is invalid.")


def _check_system(ask: Ask, facts: dict[str, Any]) -> None:
    profile = facts.get("osProfile")
    if profile is None:
        return
    name = ask.id.rpartition("/")[2]
    if not 1 <= len(name) <= 64 or not 1 <= len(profile.get("computerName", name)) <= 64:
        raise Refusal("InvalidParameter", "Linux host name cannot exceed 64 characters in length.")
    given = base64.b64decode(profile.get("customData", ""), validate=True)
    if len(given) > CUSTOM_DATA:
        raise Refusal("InvalidParameter", f"Custom data in OSProfile must be at most {CUSTOM_DATA} bytes.")
    linux = profile.get("linuxConfiguration") or {}
    keys = (linux.get("ssh") or {}).get("publicKeys") or []
    user = profile.get("adminUsername")
    if not user or (not keys and "adminPassword" not in profile):
        raise Refusal("InvalidParameter", "Authentication using either SSH or by user name and password is required.")
    for key in keys:
        if key.get("path") != f"/home/{user}/.ssh/authorized_keys":
            raise Refusal("InvalidParameter", f"Destination path for SSH public keys is limited to /home/{user}/.ssh.")


def _check_image(model: Model, facts: dict[str, Any], size: skus.Size, region: str) -> None:
    profile = facts["storageProfile"]
    if profile["osDisk"]["createOption"] != "FromImage":
        return
    image = market.booted(model, profile.get("imageReference") or {}, region)
    if image.generation not in size.generations.split(","):
        sentence = f"The selected VM size '{size.name}' cannot boot Hypervisor Generation '{image.generation[1]}'."
        raise Refusal("BadRequest", sentence)
    if image.generalized != ("osProfile" in facts):
        sentence = (
            "Parameter 'osProfile' is not allowed." if "osProfile" in facts else "Parameter 'osProfile' required."
        )
        raise Refusal("InvalidParameter", sentence)
    if (facts.get("securityProfile") or {}).get("securityType") == "TrustedLaunch" and image.generation != "V2":
        raise Refusal("BadRequest", "Security type 'TrustedLaunch' needs an image of generation 2.")


def _check_network(model: Model, facts: dict[str, Any], region: str) -> None:
    profile = facts.get("networkProfile") or {}
    made, there = profile.get("networkInterfaceConfigurations"), profile.get("networkInterfaces")
    if not made and not there:
        raise Refusal("InvalidParameter", "Required parameter 'networkProfile' is missing (null).")
    if made and not profile.get("networkApiVersion"):
        sentence = "Required parameter 'networkProfile.networkApiVersion' is missing (null)."
        raise Refusal("InvalidParameter", sentence)
    for one in there or []:
        model.get(one["id"])
    for one in made or []:
        _check_interface(model, one, region)


def _check_interface(model: Model, asked: dict[str, Any], region: str) -> None:
    facts = asked["properties"]
    subnets = [one["properties"].get("subnet", {}).get("id", "") for one in facts["ipConfigurations"]]
    named = [*subnets, (facts.get("networkSecurityGroup") or {}).get("id", "")]
    for id_ in filter(None, named):
        found = model.things.get(id_.lower())
        if found is None:
            raise Refusal("InvalidResourceReference", f"Resource {id_} referenced by resource was not found.")
        home = model.get(found.id.rpartition("/subnets/")[0]) if "/subnets/" in id_.lower() else found
        if home.region != region:
            raise Refusal("InvalidResourceReference", f"Resource {id_} is not in region {region}.")
    if not all(subnets):
        raise Refusal("SubnetIsRequired", "Subnet reference is required for ipconfiguration.")


def _make(model: Model, ask: Ask, group: Thing) -> Thing:
    body = copy.deepcopy(ask.body)
    facts = body["properties"]
    given = base64.b64decode((facts.get("osProfile") or {}).pop("customData", "") or "")
    (facts.get("osProfile") or {}).pop("adminPassword", None)
    facts.update(provisioningState="Creating", vmId=model.uuid("vm"), timeCreated=stamp(model.now()))
    facts.setdefault("priority", "Regular")
    network = facts.pop("networkProfile")
    if "identity" in body:
        _identify(model, ask, body["identity"])
    machine = model.put(ask.id, body, asked=copy.deepcopy(ask.body), power="creating", custom_data=given)
    machine.hidden["group"] = group.name
    _make_network(model, machine, network)
    _make_disk(model, machine)
    return machine


def _identify(model: Model, ask: Ask, identity: dict[str, Any]) -> None:
    """Give a machine its own principal: a new one with each machine, also of the same name (documentation)."""
    if "SystemAssigned" in identity.get("type", ""):
        identity.update(principalId=model.uuid("principal", ask.id), tenantId=TENANT)


def _make_disk(model: Model, machine: Thing) -> None:
    profile = machine.facts["storageProfile"]
    disk = profile["osDisk"]
    profile.setdefault("dataDisks", [])
    disk.setdefault("name", f"{machine.name}_OsDisk_1_{model.uuid('osdisk').replace('-', '')}")
    disk.setdefault("osType", "Linux")
    disk.setdefault("deleteOption", "Detach")
    sku = (disk.get("managedDisk") or {}).get("storageAccountType", "Premium_LRS")
    if disk["createOption"] == "Attach":
        disks.hold(model.get(disk["managedDisk"]["id"]), machine)
        return
    image = market.booted(model, profile["imageReference"], machine.region)
    gb = max(disk.get("diskSizeGB", 0), image.gb)
    if 0 < disk.get("diskSizeGB", gb) < image.gb:
        sentence = (
            f"The specified disk size {disk['diskSizeGB']} GB is smaller than the size of the image {image.gb} GB."
        )
        model.drop(machine.id)
        raise Refusal("InvalidParameter", sentence)
    id_ = f"{_home(machine)}/providers/Microsoft.Compute/disks/{disk['name']}"
    made = disks.make_disk(model, id_, machine, gb, sku)
    made.facts["hyperVGeneration"] = image.generation
    disk.update(diskSizeGB=gb, managedDisk={"id": id_, "storageAccountType": sku})
    if profile["imageReference"].get("version") == "latest":
        found = market.sold(*(profile["imageReference"][one] for one in ("publisher", "offer", "sku")))
        profile["imageReference"]["exactVersion"] = found.versions[-1]


def _home(machine: Thing) -> str:
    return "/".join(machine.id.split("/")[:5])


def _make_network(model: Model, machine: Thing, profile: dict[str, Any]) -> None:
    rows = [copy.deepcopy(one) for one in profile.get("networkInterfaces") or []]
    for one in rows:
        model.get(one["id"]).facts["virtualMachine"] = {"id": machine.id}
    for asked in profile.get("networkInterfaceConfigurations") or []:
        interface = _make_interface(model, machine, asked)
        facts = {"primary": asked["properties"].get("primary", True)}
        facts["deleteOption"] = asked["properties"].get("deleteOption", "Delete")
        rows.append({"id": interface.id, "properties": facts})
    machine.facts["networkProfile"] = {"networkInterfaces": rows}
    for one in model.of_kind(SECURITY):
        networks.refresh(model, one.id)


def _make_interface(model: Model, machine: Thing, asked: dict[str, Any]) -> Thing:
    id_ = f"{_home(machine)}/providers/{INTERFACES}/{asked['name']}"
    wanted = asked["properties"]
    shown = {name: wanted[name] for name in ("networkSecurityGroup", "enableAcceleratedNetworking") if name in wanted}
    configurations = [_configuration(model, machine, id_, one) for one in wanted["ipConfigurations"]]
    facts = {**shown, "ipConfigurations": configurations, "primary": wanted.get("primary", True)}
    facts |= {"provisioningState": "Succeeded", "virtualMachine": {"id": machine.id}}
    body = {"location": machine.region, "tags": asked.get("tags") or {}, "properties": facts}
    return model.put(id_, body)


def _configuration(model: Model, machine: Thing, interface: str, asked: dict[str, Any]) -> dict[str, Any]:
    wanted = asked["properties"]
    private = model.address().replace("127.24.", "127.25.")
    facts = {"subnet": wanted["subnet"], "privateIPAddress": private, "privateIPAllocationMethod": "Dynamic"}
    facts |= {"primary": wanted.get("primary", True), "privateIPAddressVersion": "IPv4"}
    if "publicIPAddressConfiguration" in wanted:
        facts["publicIPAddress"] = _make_address(model, machine, wanted["publicIPAddressConfiguration"])
    return {"id": f"{interface}/ipConfigurations/{asked['name']}", "name": asked["name"], "properties": facts}


def _make_address(model: Model, machine: Thing, asked: dict[str, Any]) -> dict[str, Any]:
    id_ = f"{_home(machine)}/providers/{ADDRESSES}/{asked['name']}"
    wanted = asked.get("properties") or {}
    keep = wanted.get("deleteOption", "Delete")
    facts = {"ipAddress": model.address(), "provisioningState": "Succeeded", "publicIPAddressVersion": "IPv4"}
    facts |= {"publicIPAllocationMethod": wanted.get("publicIPAllocationMethod", "Static"), "deleteOption": keep}
    body = {"location": machine.region, "tags": asked.get("tags") or {}, "properties": facts}
    body["sku"] = asked.get("sku") or {"name": "Basic", "tier": "Regional"}
    model.put(id_, body)
    return {"id": id_, "properties": {"deleteOption": keep}}


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
        rows[0]["level"] = "Error"
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
    if "identity" in body:
        _identify(model, ask, body["identity"])
    patch(model, machine, body)
    if network is not None:
        for one in network["networkInterfaces"]:
            mine = next(row for row in machine.facts["networkProfile"]["networkInterfaces"] if row["id"] == one["id"])
            merge(mine, one)
    return begin(model, ask, "updating", lambda: None, status=200, body=_shown(machine))


# Its end.


@answers("VirtualMachines.Delete")
def delete_machine(model: Model, ask: Ask) -> Reply:
    machine = model.things.get(ask.id.lower())
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
    return [one for one in list(model.things.values()) if str(one.body.get("managedBy", "")).lower() == mine]


def _drop_disk(model: Model, machine: Thing) -> None:
    disk = machine.facts["storageProfile"]["osDisk"].get("managedDisk") or {}
    if "id" in disk:
        model.drop(disk["id"])


def _drop_network(model: Model, machine: Thing) -> None:
    for row in machine.facts["networkProfile"]["networkInterfaces"]:
        interface = model.things.get(row["id"].lower())
        if interface is None:
            continue
        interface.facts.pop("virtualMachine", None)
        if (row.get("properties") or {}).get("deleteOption") == "Delete":
            _drop_interface(model, interface)
    for one in model.of_kind(SECURITY):
        networks.refresh(model, one.id)


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


def fingerprint(body: Any) -> str:
    """Return a body as one text."""
    return json.dumps(body, sort_keys=True)
