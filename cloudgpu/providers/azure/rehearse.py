"""Rehearses an interruption: Azure's own simulation of an eviction, with its notice and its end."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.azure import ids, machine
from cloudgpu.providers.azure.ask import ask

if TYPE_CHECKING:
    from cloudgpu.providers.azure.client import Azure

NOTICE = timedelta(seconds=30)  # "Azure will try to provide up to 30 seconds' notice" (Use Azure Spot VMs)
_ACTION = "Microsoft.Compute/virtualMachines/simulateEviction/action"


def interrupt(azure: Azure, id: str) -> datetime:  # noqa: A002
    """Simulate the eviction of a spot machine; return when it is taken at the earliest, aware UTC. Two calls.

    Azure does it within half an hour ("Simulate an eviction"), so the time may be later. Raises InstanceNotFound, and
    InvalidRequest for a machine on demand.
    """
    region, group = ids.machine(id)
    if not machine.is_spot(machine.raw(azure, id)):
        message = f"{id} cannot be interrupted: it is no spot machine."
        raise InvalidRequest(message, field="instance", value=id, next="Launch one with --spot.")
    machines = azure.compute.virtual_machines
    ask(azure, _ACTION, lambda: machines.simulate_eviction(group, group), region=region, value=id)
    return azure.clock() + NOTICE
