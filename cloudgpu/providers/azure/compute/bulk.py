"""Stops many machines side by side, reads them by the two listings, and rehearses an interruption.

A rehearsal is Azure's own simulation of an eviction, with its notice and its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from cloudgpu.core.model.instances import Instance
from cloudgpu.errors import CloudgpuError, InvalidRequest, Silent
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.calls import invoke
from cloudgpu.providers.azure.client import AT_ONCE
from cloudgpu.providers.azure.compute import listing, machine, power
from cloudgpu.providers.shared.calls import by_item, tried

if TYPE_CHECKING:
    from cloudgpu.providers.azure.client import Azure

FEW = 2  # so many are looked at one by one: two listings cost as many calls, and more of Azure's time
Found = dict[str, Instance | CloudgpuError]


def stop_many(azure: Azure, ids: Sequence[str]) -> dict[str, CloudgpuError]:
    """Ask to deallocate these machines; return why not, by id, for those that were not asked.

    One call each: Azure Resource Manager has none for many, so that one that is refused keeps no other one running.
    """
    asked = by_item(ids, partial(tried, power.stop, azure), AT_ONCE)
    return {id_: fault for id_, fault in asked.items() if isinstance(fault, CloudgpuError)}


def get_many(azure: Azure, ids: Sequence[str]) -> Found:
    """Return each machine now, or why not, by id: two calls and their pages, and one for each that is not listed.

    That one is missing in a listing is no proof that it is gone: it is asked by itself.
    """
    wanted = list(dict.fromkeys(ids))
    if len(wanted) <= FEW:
        return by_item(wanted, partial(tried, listing.get, azure), AT_ONCE)
    try:
        seen, _ = listing.both(azure)
    except Silent:  # each may answer by itself
        seen = {}
    except CloudgpuError as error:
        return {id_: _fault_of(id_, error) for id_ in wanted}
    found: Found = {id_: seen[id_] for id_ in wanted if id_ in seen}
    others = [id_ for id_ in wanted if id_ not in seen]
    return {**found, **by_item(others, partial(tried, listing.get, azure), AT_ONCE)}


def _fault_of(id_: str, error: CloudgpuError) -> CloudgpuError:
    """Return the error for what is no id at all, else the one of the listing."""
    try:
        ids.machine(id_)
    except InvalidRequest as wrong:
        return wrong
    return error


NOTICE = timedelta(seconds=30)  # "Azure will try to provide up to 30 seconds' notice" (Use Azure Spot VMs)
_ACTION = "Microsoft.Compute/virtualMachines/simulateEviction/action"


def interrupt(azure: Azure, id: str) -> datetime:  # noqa: A002
    """Simulate the eviction of a spot machine; return when it is taken at the earliest, aware UTC. Two calls.

    Azure does it within half an hour ("Simulate an eviction"), so the time may be later. Raises InstanceNotFound, and
    InvalidRequest for a machine on demand.
    """
    region, group = ids.machine(id)
    if not machine.is_spot(machine.raw(azure, id)):
        message = f"{id} cannot be interrupted: it is not a spot machine."
        raise InvalidRequest(message, field="instance", value=id, next="Launch one with --spot.")
    machines = azure.compute.virtual_machines
    invoke(azure, _ACTION, lambda: machines.simulate_eviction(group, group), region=region, value=id)
    return azure.clock() + NOTICE
