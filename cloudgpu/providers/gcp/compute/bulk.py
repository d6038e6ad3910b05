"""Many machines: looked at in one listing, and asked to stop, a call for each, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from cloudgpu.core.model.instances import Instance
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.compute import power
from cloudgpu.providers.gcp.compute.listing import everything, instances, raw
from cloudgpu.providers.shared.calls import by_item, tried

if TYPE_CHECKING:
    from cloudgpu.providers.gcp.client import Gcp

AT_ONCE = 16
Raw = Mapping[str, Any]


def stop_many(gcp: Gcp, ids: Sequence[str]) -> dict[str, CloudgpuError]:
    """Ask to stop these machines; return why not, by id, for those that were not asked.

    A look at all of them (a machine with local SSD is stopped by other words), and a call for each that runs.
    """
    answers = _read_machines(gcp, ids)
    refused = {id_: found for id_, found in answers.items() if isinstance(found, CloudgpuError)}
    there = {id_: found for id_, found in answers.items() if not isinstance(found, CloudgpuError)}
    asked = by_item(there, lambda id_: _stopped(gcp, id_, there[id_]), AT_ONCE)
    return refused | {id_: fault for id_, fault in asked.items() if fault is not None}


def _stopped(gcp: Gcp, id: str, found: Raw) -> CloudgpuError | None:  # noqa: A002
    """Ask to stop one that runs; return why not. What is stopped already, or stopping, is fine."""
    status = found.get("status")
    if status in power.STARTING:
        return InvalidRequest(f"{id} is still starting.", field="instance", value=id, next="Try again in a minute.")
    if status in (*power.STOPPING, power.STOPPED):
        return None
    try:
        power.ask_to_stop(gcp, id, found)
    except CloudgpuError as error:
        return error
    return None


def get_many(gcp: Gcp, ids: Sequence[str]) -> dict[str, Instance | CloudgpuError]:
    """Return each machine now, or why not, by id: from one listing, and a call for each that it does not show."""
    answers = _read_machines(gcp, ids)
    found = [one for one in answers.values() if not isinstance(one, CloudgpuError)]
    seen = {one.id: one for one in instances(gcp, found)}
    return {id_: one if isinstance(one, CloudgpuError) else seen[id_] for id_, one in answers.items()}


def _read_machines(gcp: Gcp, ids: Sequence[str]) -> dict[str, Raw | CloudgpuError]:
    """Return what Google says of each, or why not. One alone is asked for itself."""
    answers: dict[str, Raw | CloudgpuError] = {}
    wanted = list(dict.fromkeys(ids))
    if len(wanted) > 1:
        answers |= _listed(gcp, wanted)
    missing = [id_ for id_ in wanted if id_ not in answers]
    return {id_: answers[id_] for id_ in wanted if id_ in answers} | by_item(missing, partial(tried, raw, gcp), AT_ONCE)


def _listed(gcp: Gcp, wanted: Sequence[str]) -> dict[str, Raw]:
    """Return those that the listing shows; none where it is not to be had: then each is asked for itself."""
    try:
        found, _ = everything(gcp)
    except CloudgpuError:
        return {}
    shown = {ids.joined(ids.last(one["zone"]), one["name"]): one for one in found}
    return {id_: shown[id_] for id_ in wanted if id_ in shown}
