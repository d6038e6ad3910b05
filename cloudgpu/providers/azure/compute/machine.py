"""A machine as Azure itself describes it: read, listed, and changed in part."""

from __future__ import annotations

from cloudgpu.errors import InstanceNotFound
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.calls import call_or_none, invoke, properties_of, read_list
from cloudgpu.providers.azure.client import Azure, Raw

READ, WRITE = "Microsoft.Compute/virtualMachines/read", "Microsoft.Compute/virtualMachines/write"
SPOT_PRIORITIES = ("spot", "low")


def read(azure: Azure, id: str) -> Raw:  # noqa: A002
    """Return a machine as Azure describes it; raise InstanceNotFound when it has none. One call."""
    region, group = ids.split_machine_id(id)
    machines = azure.compute.virtual_machines
    found: Raw | None = call_or_none(azure, READ, lambda: machines.get(group, group).as_dict(), region=region, value=id)
    if found is None:
        azure.launch_subscriptions.check(group, lambda: azure.subscription)
        raise InstanceNotFound(f"Azure {region} has no machine {group}.", field="instance", value=id)
    return found


def listed(azure: Azure) -> list[Raw]:
    """Return the machines of launches in the whole subscription, of any ledger. A call per page."""
    found = read_list(azure, READ, azure.compute.virtual_machines.list_all)
    return [one for one in found if ids.GROUP.fullmatch(str(one.get("name", "")).lower())]


def id_of(raw: Raw) -> str:
    """Return our id of a machine that Azure describes."""
    return ids.join_id(str(raw["location"]), str(raw["name"]).lower())


def change(azure: Azure, id: str, properties: Raw) -> None:  # noqa: A002
    """Change a part of a machine and leave the rest alone, its tags too. One call, not waited for."""
    region, group = ids.split_machine_id(id)
    machines, body = azure.compute.virtual_machines, {"properties": properties}
    invoke(azure, WRITE, lambda: machines.begin_update(group, group, body, polling=False), region=region, value=id)


def system_disk(raw: Raw) -> str:
    """Return Azure's id of a machine's system disk; empty while it has none."""
    disk = (properties_of(raw).get("storageProfile") or {}).get("osDisk") or {}
    return str((disk.get("managedDisk") or {}).get("id") or "")


def zone_of(raw: Raw) -> str:
    """Return the zone or region of a machine: `eastus-1` in a zone, `eastus` anywhere in its region."""
    zones = raw.get("zones") or ()
    return f"{raw['location']}-{zones[0]}" if zones else str(raw["location"])


def is_spot(raw: Raw) -> bool:
    """Say whether a machine is one on the spot market."""
    return str(properties_of(raw).get("priority") or "").lower() in SPOT_PRIORITIES
