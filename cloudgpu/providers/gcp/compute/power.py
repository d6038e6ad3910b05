"""Ends, stops and starts machines, and sets their labels and what they read of them in their metadata.

Nothing of a machine that is ended or stopped is billed but what is retained on purpose. A machine cannot read its own
labels from inside. Labels and metadata are replaced whole, under a fingerprint of what was read: who comes second has
to read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from cloudgpu.core.model.instances import TAG_EXPIRES, TAG_HOLD_UNTIL, TAG_RENEW_UNTIL, Instance
from cloudgpu.errors import AuthFailed, CloudgpuError, InstanceNotFound, InvalidRequest
from cloudgpu.providers.gcp import errors, ids
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.gcp.compute import schedules as timer
from cloudgpu.providers.gcp.compute.interruption import is_spot
from cloudgpu.providers.gcp.compute.listing import everything, instances, raw
from cloudgpu.providers.gcp.compute.translate import boot_disk, has_scratch, labels_of, metadata_of
from cloudgpu.providers.gcp.error_codes import STALE
from cloudgpu.providers.gcp.errors import code_of
from cloudgpu.providers.gcp.network import firewall as access
from cloudgpu.providers.gcp.storage.resources import changed
from cloudgpu.providers.shared.calls import by_item, result_or_error, retry

if TYPE_CHECKING:
    from cloudgpu.providers.gcp.client import Gcp


STOPPED = "TERMINATED"  # Google's word for a machine that can be started again
STARTING = ("PENDING", "PROVISIONING", "STAGING", "REPAIRING")
STOPPING = ("PENDING_STOP", "STOPPING", "SUSPENDING", "DEPROVISIONING")
SETTLES_S, LOOKS = 3.0, 40  # a machine that is just starting is stopped once it runs


def terminate(gcp: Gcp, id: str) -> None:  # noqa: A002
    """Ask to end the machine, its system disk and our firewall rules for it; an unknown id is no error.

    The disk is set to go with the machine before that is asked to end: what dies in between is found by its labels.
    The rules come last: they cost nothing, and what is left of them is found by its description.
    """
    end(gcp, id, keep_disk=False)


def end(gcp: Gcp, id: str, *, keep_disk: bool) -> None:  # noqa: A002
    """Ask to end the machine and our rules for it, its system disk with it or not; an unknown id is no error.

    A read that does not find the machine is no proof: the end is asked all the same, and only what Google answers to
    that counts. A disk that is to stay is the exception: it has to be seen before.
    """
    found = _seen(gcp, id)
    if found is None and keep_disk:
        return
    if found is not None and found.get("deletionProtection"):  # neither its disk nor its rules are touched
        raise errors.protected_from_deletion(gcp.context(errors.DELETE, ids.machine(id)[0], id))
    with suppress(InstanceNotFound):  # somebody else was faster
        if found is not None:
            _mark_disk(gcp, id, found, goes=not keep_disk)
        _ask(gcp, "delete", id)
    if found is None or access.is_ours(found):
        with suppress(AuthFailed):
            access.remove_all(gcp, id, access.network_of(found or {}))


def _seen(gcp: Gcp, id: str) -> Mapping[str, Any] | None:  # noqa: A002
    ids.machine(id)
    try:
        return raw(gcp, id)
    except InstanceNotFound:
        return None


def _mark_disk(gcp: Gcp, id: str, raw: Mapping[str, Any], *, goes: bool) -> None:  # noqa: A002
    """Let the system disk go with its machine or stay; no call where it is so already."""
    disk = boot_disk(raw)
    if disk is None or bool(disk.get("autoDelete")) is goes:
        return
    _change(gcp, id, "setDiskAutoDelete", deviceName=disk["deviceName"], autoDelete=goes)


def stop(gcp: Gcp, id: str) -> None:  # noqa: A002
    """Ask to stop the machine, once it has started; what is on its local SSD is lost. Idempotent.

    Raises InstanceNotFound.
    """
    for _ in range(LOOKS):
        found = raw(gcp, id)
        status = found.get("status")
        if status not in (*STARTING, *STOPPING, STOPPED):
            ask_to_stop(gcp, id, found)
        if status not in STARTING:
            return
        gcp.pause(SETTLES_S)
    message = f"{id} is still starting after {LOOKS * SETTLES_S:.0f} seconds, and only what runs is stopped."
    raise InvalidRequest(message, field="instance", value=id, next="Try again in a minute, or end it: cloudgpu down")


def ask_to_stop(gcp: Gcp, id: str, raw: Mapping[str, Any]) -> None:  # noqa: A002
    """Ask to stop a machine that runs.

    One with local SSD stops only where it is said what becomes of that: it goes on being billed otherwise, and the data
    are lost either way ("Local SSD data persistence").
    """
    _ask(gcp, "stop", id, **({"discardLocalSsd": True} if has_scratch(raw) else {}))


def start(gcp: Gcp, id: str) -> None:  # noqa: A002
    """Ask to start a stopped machine and wait until Google has said whether it has one; one that runs is left alone.

    Google's timer counts from the start, so it is set before to what is left until the machine's renew-until. Raises
    InstanceNotFound, NoCapacity, and InvalidRequest while it is just stopping.
    """
    found = raw(gcp, id)
    status = found.get("status")
    if status in STOPPING or status == "SUSPENDED":
        says = "just stopping" if status in STOPPING else "suspended, which cloudgpu never does"
        remedy = (
            "Try again when it has stopped." if status in STOPPING else "Resume it: gcloud compute instances resume"
        )
        message = f"{id} is {says}, and Google Cloud starts only what has stopped."
        raise InvalidRequest(message, field="instance", value=id, next=remedy)
    if status == STOPPED:
        timer.renew(gcp, id, found)
        _change(gcp, id, "start")


NOTICE = timedelta(seconds=30)  # "best effort, up to 30 seconds" (Spot VMs, Preemption process)


def interrupt(gcp: Gcp, id: str) -> datetime:  # noqa: A002
    """Simulate a maintenance event on a spot machine, which preempts it; return when it is taken, aware UTC.

    Google names that as the way to test how work handles a preemption ("Simulate a host maintenance event"). Whether a
    live machine gets its half minute of notice then is unverified. Raises InstanceNotFound, and InvalidRequest for a
    machine on demand: that would be moved, or restarted.
    """
    if not is_spot(raw(gcp, id)):
        message = f"{id} cannot be interrupted: it is not a spot machine."
        raise InvalidRequest(message, field="instance", value=id, next="Launch one with --spot.")
    _ask(gcp, "simulateMaintenanceEvent", id)
    return gcp.clock() + NOTICE


def _ask(gcp: Gcp, verb: str, id: str, **fields: Any) -> Mapping[str, Any]:  # noqa: A002
    zone, name = ids.machine(id)
    return gcp.call(f"compute.instances.{verb}", zone, value=id, zone=zone, instance=name, **fields)


READ_INSIDE = (TAG_EXPIRES, TAG_RENEW_UNTIL, TAG_HOLD_UNTIL)
TRIES, PAUSE_S = 6, 0.5


def tag(gcp: Gcp, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
    """Set these labels, and what the machine reads of them, and leave every other alone. Raises InstanceNotFound.

    The metadata first: a machine that hears of a longer lease late could end itself, a label that is late is only old.
    """
    if not tags:
        ids.machine(id)
        return
    retry(
        lambda: _set(gcp, id, raw(gcp, id), tags),
        TRIES,
        after=lambda error: code_of(error) == STALE,
        pause=lambda tries: gcp.pause(PAUSE_S * tries),
    )


def _set(gcp: Gcp, id: str, raw: Mapping[str, Any], tags: Mapping[str, str]) -> None:  # noqa: A002
    inside = {key: value for key, value in tags.items() if key in READ_INSIDE}
    held, labels = metadata_of(raw), labels_of(raw)
    if inside.items() - held.items():
        items = [{"key": key, "value": value} for key, value in {**held, **inside}.items()]
        fingerprint = raw.get("metadata", {}).get("fingerprint", "")
        _change(gcp, id, "setMetadata", metadataResource={"items": items, "fingerprint": fingerprint})
    if tags.items() - labels.items():
        wanted = {"labels": {**labels, **tags}, "labelFingerprint": raw.get("labelFingerprint", "")}
        _change(gcp, id, "setLabels", instancesSetLabelsRequestResource=wanted)


def _change(gcp: Gcp, id: str, verb: str, **fields: Any) -> None:  # noqa: A002
    """Make a change of a machine, and wait until it is done."""
    zone, name = ids.machine(id)
    changed(gcp, f"compute.instances.{verb}", zone, value=id, zone=zone, instance=name, **fields)


AT_ONCE = 16
Raw = Mapping[str, Any]


def stop_many(gcp: Gcp, many: Sequence[str]) -> dict[str, CloudgpuError]:
    """Ask to stop these machines; return why not, by id, for those that were not asked.

    A look at all of them (a machine with local SSD is stopped by other words), and a call for each that runs.
    """
    answers = _read_machines(gcp, many)
    refused = {id_: found for id_, found in answers.items() if isinstance(found, CloudgpuError)}
    there = {id_: found for id_, found in answers.items() if not isinstance(found, CloudgpuError)}
    asked = by_item(there, lambda id_: _stopped(gcp, id_, there[id_]), AT_ONCE)
    return refused | {id_: fault for id_, fault in asked.items() if fault is not None}


def _stopped(gcp: Gcp, id: str, raw: Raw) -> CloudgpuError | None:  # noqa: A002
    """Ask to stop one that runs; return why not. What is stopped already, or stopping, is fine."""
    status = raw.get("status")
    if status in STARTING:
        return InvalidRequest(f"{id} is still starting.", field="instance", value=id, next="Try again in a minute.")
    if status in (*STOPPING, STOPPED):
        return None
    try:
        ask_to_stop(gcp, id, raw)
    except CloudgpuError as error:
        return error
    return None


def get_many(gcp: Gcp, many: Sequence[str]) -> dict[str, Instance | CloudgpuError]:
    """Return each machine now, or why not, by id: from one listing, and a call for each that it does not show."""
    answers = _read_machines(gcp, many)
    found = [one for one in answers.values() if not isinstance(one, CloudgpuError)]
    seen = {one.id: one for one in instances(gcp, found)}
    return {id_: one if isinstance(one, CloudgpuError) else seen[id_] for id_, one in answers.items()}


def _read_machines(gcp: Gcp, many: Sequence[str]) -> dict[str, Raw | CloudgpuError]:
    """Return what Google says of each, or why not. One alone is asked for itself."""
    answers: dict[str, Raw | CloudgpuError] = {}
    wanted = list(dict.fromkeys(many))
    if len(wanted) > 1:
        answers |= _listed(gcp, wanted)
    missing = [id_ for id_ in wanted if id_ not in answers]
    found = {id_: answers[id_] for id_ in wanted if id_ in answers}
    return found | by_item(missing, partial(result_or_error, raw, gcp), AT_ONCE)


def _listed(gcp: Gcp, wanted: Sequence[str]) -> dict[str, Raw]:
    """Return those that the listing shows; none where it is not to be had: then each is asked for itself."""
    try:
        found, _ = everything(gcp)
    except CloudgpuError:
        return {}
    shown = {ids.joined(ids.last(one["zone"]), one["name"]): one for one in found}
    return {id_: shown[id_] for id_ in wanted if id_ in shown}
