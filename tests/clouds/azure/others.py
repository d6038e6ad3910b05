"""Machines that somebody has made without the program, straight in the model: fast, for tests with many of them."""

from __future__ import annotations

from typing import Any

from tests.clouds.azure.groups import furnish
from tests.clouds.azure.handlers import HANDLERS
from tests.clouds.azure.model import LAUNCHER, Ask, machine_id
from tests.clouds.azure.sdk import machine, security
from tests.clouds.azure.server import AzureServer


def made(server: AzureServer, group: str, region: str = "eastus", **more: Any) -> str:
    """Make a machine that runs, in a group of its own and called like it; return our id of it."""
    with server.lock:
        home = furnish(server.model, group, region).id
        network = f"{home}/providers/Microsoft.Network"
        subnet = {"name": "inside", "properties": {"addressPrefix": "10.0.0.0/24"}}
        space = {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}, "subnets": [subnet]}
        body = {"location": region, "properties": space}
        _call(server, "VirtualNetworks.CreateOrUpdate", f"{network}/virtualNetworks/{group}", body)
        guard = f"{network}/networkSecurityGroups/{group}"
        _call(server, "NetworkSecurityGroups.CreateOrUpdate", guard, security(region))
        _call(server, "VirtualMachines.CreateOrUpdate", machine_id(group), machine(group, region, **more))
        server.clock.settle()
    return f"{region}/{group}"


def _call(server: AzureServer, action: str, id_: str, body: dict[str, Any]) -> None:
    HANDLERS[action](server.model, Ask(action, id_, {}, {}, body, LAUNCHER, None, server.url, id_))
