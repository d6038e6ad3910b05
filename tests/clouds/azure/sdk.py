"""The unmodified SDKs as clients of our model: for its own tests, and for what tests do as somebody else would."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

from azure.identity import ClientSecretCredential

from tests.clouds.azure.model import SUBSCRIPTION, TENANT
from tests.clouds.azure.server import AzureServer
from tests.clouds.azure.tokens import CLIENT, SECRET

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFakeFakeFakeFakeFakeFakeFakeFakeFakeFake test"


class Sdk:
    """A client per service, with the credential of the tests."""

    def __init__(self, server: AzureServer) -> None:
        self.server = server
        self.credential = ClientSecretCredential(
            TENANT,
            CLIENT,
            SECRET,
            authority=server.url,
            disable_instance_discovery=True,
            connection_verify=os.fspath(server.authority),
        )

    def _made(self, maker: Any) -> Any:
        return maker(
            self.credential,
            SUBSCRIPTION,
            base_url=self.server.url,
            credential_scopes=[f"{self.server.url}/.default"],
            connection_verify=os.fspath(self.server.authority),
            polling_interval=0,
            retry_total=0,
        )

    @cached_property
    def compute(self) -> Any:
        from azure.mgmt.compute import ComputeManagementClient

        return self._made(ComputeManagementClient)

    @cached_property
    def network(self) -> Any:
        from azure.mgmt.network import NetworkManagementClient

        return self._made(NetworkManagementClient)

    @cached_property
    def resources(self) -> Any:
        from azure.mgmt.resource.resources import ResourceManagementClient

        return self._made(ResourceManagementClient)

    @cached_property
    def authorization(self) -> Any:
        from azure.mgmt.authorization import AuthorizationManagementClient

        return self._made(AuthorizationManagementClient)

    @cached_property
    def schedule(self) -> Any:
        from azure.mgmt.computeschedule import ComputeScheduleMgmtClient

        return self._made(ComputeScheduleMgmtClient)

    @cached_property
    def quota(self) -> Any:
        from azure.mgmt.quota import QuotaMgmtClient

        return self._made(QuotaMgmtClient)

    @cached_property
    def consumption(self) -> Any:
        from azure.mgmt.consumption import ConsumptionManagementClient

        return self._made(ConsumptionManagementClient)

    def group(self, name: str, region: str = "eastus", **tags: str) -> None:
        self.resources.resource_groups.create_or_update(name, {"location": region, "tags": tags})

    def launch(self, name: str, region: str = "eastus", **more: Any) -> Any:
        """Make a group with a network and a machine in it; return the machine's poller."""
        if not self.resources.resource_groups.check_existence(name):
            self.group(name, region)
            subnet = {"name": "inside", "properties": {"addressPrefix": "10.0.0.0/24"}}
            space = {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}, "subnets": [subnet]}
            network = {"location": region, "properties": space}
            self.network.virtual_networks.begin_create_or_update(name, name, network).result()
            self.network.network_security_groups.begin_create_or_update(name, name, security(region)).result()
        body = machine(name, region, **more)
        return self.compute.virtual_machines.begin_create_or_update(name, name, body)


def security(region: str, *cidrs: str) -> dict[str, Any]:
    """Return the body of a security group that lets these in to SSH."""
    rules = [
        {
            "name": f"in-{number}",
            "properties": {
                "protocol": "Tcp",
                "sourceAddressPrefix": cidr,
                "sourcePortRange": "*",
                "destinationAddressPrefix": "*",
                "destinationPortRange": "22",
                "access": "Allow",
                "direction": "Inbound",
                "priority": 100 + number,
            },
        }
        for number, cidr in enumerate(cidrs)
    ]
    return {"location": region, "properties": {"securityRules": rules}}


def machine(name: str, region: str = "eastus", *, size: str = "Standard_NC4as_T4_v3", **more: Any) -> dict[str, Any]:
    """Return the body of a machine that is called as its group; `more` are properties of it, or whole top fields."""
    base = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{name}/providers/Microsoft.Network"
    address = {"name": f"{name}-ip", "sku": {"name": "Standard"}}
    address["properties"] = {"publicIPAllocationMethod": "Static", "deleteOption": "Delete"}
    subnet = {"id": f"{base}/virtualNetworks/{name}/subnets/inside"}
    configuration = {"name": "first", "properties": {"subnet": subnet, "publicIPAddressConfiguration": address}}
    interface = {"ipConfigurations": [configuration], "primary": True, "deleteOption": "Delete"}
    interface["networkSecurityGroup"] = {"id": f"{base}/networkSecurityGroups/{name}"}
    network = {"networkApiVersion": "2022-11-01"}
    network["networkInterfaceConfigurations"] = [{"name": f"{name}-nic", "properties": interface}]
    image = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204", "version": "latest"}
    disk = {"name": f"{name}-os", "createOption": "FromImage", "deleteOption": "Delete"}
    key = {"path": "/home/cloudgpu/.ssh/authorized_keys", "keyData": KEY}
    system = {"computerName": name, "adminUsername": "cloudgpu"}
    system["linuxConfiguration"] = {"disablePasswordAuthentication": True, "ssh": {"publicKeys": [key]}}
    top = {one: more.pop(one) for one in ("tags", "zones", "identity") if one in more}
    facts = {"hardwareProfile": {"vmSize": size}, "storageProfile": {"imageReference": image, "osDisk": disk}}
    facts |= {"osProfile": system, "networkProfile": network, **more}
    return {"location": region, **top, "properties": facts}
