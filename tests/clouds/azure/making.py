"""What one PUT makes of a machine: its record, its system disk, its interfaces with their addresses, its identity."""

from __future__ import annotations

import base64
import copy
from typing import Any

from tests.clouds.azure import disks, market, networks
from tests.clouds.azure.model import ADDRESSES, INTERFACES, TENANT, Ask, Model, Thing, stamp
from tests.clouds.rest import Refusal


def make(model: Model, ask: Ask) -> Thing:
    """Make a machine of a body, with all that belongs to it; return its record, which says Creating."""
    body = copy.deepcopy(ask.body)
    facts = body["properties"]
    given = base64.b64decode((facts.get("osProfile") or {}).pop("customData", "") or "")
    (facts.get("osProfile") or {}).pop("adminPassword", None)
    facts.update(provisioningState="Creating", vmId=model.uuid("vm"), timeCreated=stamp(model.now()))
    facts.setdefault("priority", "Regular")
    network = facts.pop("networkProfile")
    if "identity" in body:
        identify(model, ask, body["identity"])
    machine = model.put(ask.id, body, asked=copy.deepcopy(ask.body), power="creating", custom_data=given)
    _make_network(model, machine, network)
    _make_disk(model, machine)
    return machine


def identify(model: Model, ask: Ask, identity: dict[str, Any]) -> None:
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
    networks.refresh_those_of(model, [model.get(row["id"]) for row in rows])


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
