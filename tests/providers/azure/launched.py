"""Machines as launches leave them at Azure, made by the SDK: for tests of what comes after a launch."""

from __future__ import annotations

from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER, TAG_OWNER

GROUP = "cloudgpu-0123456789abcdef0123"
OTHER = "cloudgpu-99999999999999999999"
ID = f"eastus/{GROUP}"
SPOT = {"priority": "Spot", "evictionPolicy": "Deallocate", "billingProfile": {"maxPrice": -1}}
IDENTITY = {"type": "SystemAssigned"}


def tags(name="cg-1", ledger="led-1"):
    """Return the tags of a launch."""
    return {TAG_ID: name, TAG_LEDGER: ledger, TAG_OWNER: "ada"}


def launch(sdk, group=GROUP, region="eastus", ledger="led-1", **more):
    """Make a machine in a group of its own, both with their tags; return its id, as ours are."""
    sdk.group(group, region, **tags(ledger=ledger))
    subnet = {"name": "inside", "properties": {"addressPrefix": "10.0.0.0/24"}}
    space = {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}, "subnets": [subnet]}
    sdk.network.virtual_networks.begin_create_or_update(
        group, group, {"location": region, "properties": space}
    ).result()
    rules = {"location": region, "properties": {"securityRules": []}}
    sdk.network.network_security_groups.begin_create_or_update(group, group, rules).result()
    sdk.launch(group, region, tags=tags(ledger=ledger), **more).result()
    return f"{region}/{group}"


def without_machine(server, sdk, ledger="led-1"):
    """Leave what a launch leaves whose machine was deleted by hand, and nothing else: interface, address, network."""
    launch(sdk, ledger=ledger)
    machines = sdk.compute.virtual_machines
    rows = machines.get(GROUP, GROUP).network_profile.network_interfaces
    kept = [{"id": row.id, "properties": {"deleteOption": "Detach"}} for row in rows]
    update = {"properties": {"networkProfile": {"networkInterfaces": kept}}}
    machines.begin_update(GROUP, GROUP, update).result()
    machines.begin_delete(GROUP, GROUP).result()
    server.advance(600)
