"""Ends a machine on Azure while its system disk stays, in its launch's group, with that group's tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloudgpu.errors import InstanceNotFound, ProviderUnavailable
from cloudgpu.providers.azure import groups, ids
from cloudgpu.providers.azure.calls import look
from cloudgpu.providers.azure.compute import machine

if TYPE_CHECKING:
    from cloudgpu.providers.azure.client import Azure

Raw = Mapping[str, Any]
SETTLES_S, LOOKS = 2.0, 60
_DELETE = "Microsoft.Compute/virtualMachines/delete"


def end_keeping_disk(azure: Azure, id: str) -> None:  # noqa: A002
    """Let the disk stay when the machine goes, see that it is so, then ask to delete the machine; no machine, no error.

    Its interface and its address go with it (`deleteOption`), and its group says by a tag that a disk in it is kept.
    Five calls, three where the disk stays already.
    """
    region, group = ids.machine(id)
    try:
        found = machine.raw(azure, id)
        groups.tag(azure, group, {groups.KEPT: "yes"})
        _let_stay(azure, id, found)
    except InstanceNotFound:
        return
    machines = azure.compute.virtual_machines
    look(azure, _DELETE, lambda: machines.begin_delete(group, group, polling=False), region=region, value=id)


def _let_stay(azure: Azure, id: str, found: Raw) -> None:  # noqa: A002
    if _stays(found):
        return
    disk = found["properties"]["storageProfile"]["osDisk"]
    kept = {key: disk[key] for key in ("createOption", "managedDisk") if key in disk}
    of = {"id": machine.system_disk(found)}
    machine.change(azure, id, {"storageProfile": {"osDisk": {**kept, "managedDisk": of, "deleteOption": "Detach"}}})
    for _ in range(LOOKS):
        if _stays(machine.raw(azure, id)):
            return
        azure.pause(SETTLES_S)
    message = f"Azure has not let go of the disk of {id}, so the machine was not ended."
    raise ProviderUnavailable(message, field="instance", value=id, next="Run it again.")


def _stays(found: Raw) -> bool:
    """Say whether the system disk stays when the machine goes: it does where nobody said otherwise."""
    disk = ((found.get("properties") or {}).get("storageProfile") or {}).get("osDisk") or {}
    return str(disk.get("deleteOption") or "Detach").lower() == "detach"
