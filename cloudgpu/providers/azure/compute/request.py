"""Makes the bodies of an attempt's calls. Pure, so that a replay in another process sends the same calls.

The machine, its interface, its address and its system disk are made by one PUT, which also says what is
deleted with the machine (`deleteOption`). Source: REST reference, "Virtual Machines - Create Or Update".
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.model.cluster import node_of_tags
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Market
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.compute.translate import TAG_GROUP_MARKET, TAG_GROUP_SIZE
from cloudgpu.providers.machine.files import USER, BootOptions

Body = dict[str, Any]
NETWORK_CIDR, SUBNET_CIDR = "10.77.0.0/16", "10.77.0.0/24"  # the address ranges of a machine's own network
NETWORK_VERSION = "2022-11-01"  # of Microsoft.Network, for what the machine's PUT makes there
_NETWORKS = "Microsoft.Network/virtualNetworks"
_SECURITY = "Microsoft.Network/networkSecurityGroups"
TRUSTED_LAUNCH = "TrustedLaunch"


@dataclass(frozen=True, slots=True)
class Call:
    """What was looked up for one launch, as it is saved with the attempt.

    `image` is an imageReference, `plan` the purchase plan of an image of the marketplace. `disk_sku` is the storage
    type of the system disk (`Premium_LRS`). `subnet` and `group` are Azure's ids of a subnet and a security group of
    somebody else's (None: the launch's own, which admit `callers`, CIDR per label). `number` is the number of the zone
    (None: anywhere in the region). `role`: the machine gets an identity with a role. `extension` is installed on the
    machine after the launch. `host_at`: its disks are encrypted at the host, too. `trusted`: it has Trusted Launch.
    """

    region: str
    image: Mapping[str, Any]
    disk_gb: int
    disk_sku: str
    callers: Mapping[str, str]
    ssh_port: int
    number: str | None = None
    plan: Mapping[str, str] | None = None
    subnet: str | None = None
    security_group: str | None = None
    trusted: bool = False
    secure_boot: bool = False
    role: bool = False
    host_at: bool = False
    extension: Mapping[str, Any] | None = None


def boot_options(attempt: Attempt, call: Call) -> BootOptions:
    """Return the options of the machine's boot data. A data volume is named by its LUN, which is 0."""
    volume = "0" if attempt.request.setup.volume is not None else ""
    return BootOptions("azure", ssh_port=call.ssh_port, reports=call.role, volume=volume, can_deallocate=call.role)


def group(attempt: Attempt, call: Call) -> Body:
    """Return the resource group, with all tags, and the machine's size and market: it outlives the machine."""
    configuration = attempt.offer.configuration
    return {
        "location": call.region,
        "tags": {
            **attempt.tags,
            TAG_GROUP_SIZE: configuration.instance_type,
            TAG_GROUP_MARKET: str(configuration.market),
        },
    }


def network(attempt: Attempt, call: Call, name: str) -> Body:
    """Return the machine's own network with one subnet."""
    subnet = {"name": name, "properties": {"addressPrefix": SUBNET_CIDR}}
    properties = {"addressSpace": {"addressPrefixes": [NETWORK_CIDR]}, "subnets": [subnet]}
    return {"location": call.region, "tags": dict(attempt.tags), "properties": properties}


def network_group(attempt: Attempt, call: Call) -> str:
    """Return the name of the group with a machine's network, and of that network: its own, or its cluster's.

    It is not used where the user named a subnet.
    """
    node = node_of_tags(attempt.tags)
    if node is None or node.nodes == 1 or call.subnet is not None:
        return ids.group_of(attempt.token)
    return ids.cluster_group(node.id, attempt.number)


def machine(attempt: Attempt, call: Call, subscription: str, custom_data: bytes) -> Body:
    """Return the machine's body; `custom_data` are its boot data, which Azure calls custom data."""
    name = ids.group_of(attempt.token)
    configuration = attempt.offer.configuration
    properties: Body = {
        "hardwareProfile": {"vmSize": configuration.instance_type},
        "storageProfile": {"imageReference": dict(call.image), "osDisk": _disk(call, name)},
        "osProfile": _os_profile(attempt, name, custom_data),
        "networkProfile": {
            "networkApiVersion": NETWORK_VERSION,
            "networkInterfaceConfigurations": [_interface(attempt, call, subscription, name)],
        },
    }
    properties |= _security_profile(call) | (_spot_properties(attempt) if configuration.market is Market.SPOT else {})
    body: Body = {"location": call.region, "tags": dict(attempt.tags), "properties": properties}
    if call.number is not None:
        body["zones"] = [call.number]
    if call.plan is not None:
        body["plan"] = dict(call.plan)
    if call.role:
        body["identity"] = {"type": "SystemAssigned"}
    return body


def disk_name(name: str) -> str:
    """Return the name of a launch's system disk, by which it is found: the call that makes it cannot set tags."""
    return f"{name}-os"


def is_system_disk(disk: str, group: str) -> bool:
    """Say whether a disk has the name of a launch's system disk, whether cloudgpu or Azure has chosen it.

    The portal names a user's own data disk `MACHINE_DataDisk_0`, which begins with the group's name, too.
    """
    return disk.lower() == disk_name(group) or disk.lower().startswith(f"{group}_osdisk_")


def _disk(call: Call, name: str) -> Body:
    """Return the system disk. Every managed disk is encrypted at rest, with keys of the platform."""
    return {
        "name": disk_name(name),
        "createOption": "FromImage",
        "deleteOption": "Delete",
        "diskSizeGB": call.disk_gb,
        "caching": "ReadWrite",
        "managedDisk": {"storageAccountType": call.disk_sku},
    }


def _os_profile(attempt: Attempt, name: str, custom_data: bytes) -> Body:
    path = f"/home/{USER}/.ssh/authorized_keys"
    keys = [{"path": path, "keyData": line.strip()} for line in attempt.boot.client_public_keys]
    return {
        "computerName": name,
        "adminUsername": USER,
        "customData": base64.b64encode(custom_data).decode("ascii"),
        "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {"publicKeys": keys}},
    }


def _interface(attempt: Attempt, call: Call, subscription: str, name: str) -> Body:
    network = network_group(attempt, call)
    network_id = ids.resource_id(subscription, network, _NETWORKS, network)
    security_group_id = call.security_group or ids.resource_id(subscription, name, _SECURITY, name)
    ip_configuration: Body = {"primary": True, "subnet": {"id": call.subnet or f"{network_id}/subnets/{network}"}}
    if attempt.request.setup.network.public_ip:
        ip_configuration["publicIPAddressConfiguration"] = _address(attempt, name)
    properties = {
        "primary": True,
        "deleteOption": "Delete",
        "networkSecurityGroup": {"id": security_group_id},
        "ipConfigurations": [{"name": name, "properties": ip_configuration}],
    }
    return {"name": name, "tags": dict(attempt.tags), "properties": properties}


def _address(attempt: Attempt, name: str) -> Body:
    """Return the public address: one of the SKU Standard, to which nobody can connect without a security group."""
    return {
        "name": name,
        "tags": dict(attempt.tags),
        "sku": {"name": "Standard", "tier": "Regional"},
        "properties": {"deleteOption": "Delete", "publicIPAllocationMethod": "Static"},
    }


def _security_profile(call: Call) -> Body:
    profile: Body = {"encryptionAtHost": True} if call.host_at else {}
    if call.trusted:
        profile["securityType"] = TRUSTED_LAUNCH
        profile["uefiSettings"] = {"secureBootEnabled": call.secure_boot, "vTpmEnabled": True}
    return {"securityProfile": profile} if profile else {}


def _spot_properties(attempt: Attempt) -> Body:
    """Return the properties of a spot machine. maxPrice -1: up to the on-demand price (REST reference)."""
    max_price = attempt.request.requirements.max_price
    price = -1 if max_price is None else float(max_price.dollars)
    return {"priority": "Spot", "evictionPolicy": "Deallocate", "billingProfile": {"maxPrice": price}}
