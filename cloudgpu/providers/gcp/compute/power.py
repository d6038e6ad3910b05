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
from typing import Any

from cloudgpu.core.model.instances import TAG_EXPIRES, TAG_HOLD_UNTIL, TAG_RENEW_UNTIL, Instance
from cloudgpu.errors import AuthFailed, CloudgpuError, InstanceNotFound, InvalidRequest
from cloudgpu.providers.gcp import errors, ids
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.gcp.compute import schedules
from cloudgpu.providers.gcp.compute.interruption import is_spot
from cloudgpu.providers.gcp.compute.listing import instances, list_ours, raw
from cloudgpu.providers.gcp.compute.translate import boot_disk, has_scratch, id_of, labels_of, metadata_of
from cloudgpu.providers.gcp.error_codes import STALE
from cloudgpu.providers.gcp.errors import code_of
from cloudgpu.providers.gcp.network import firewall
from cloudgpu.providers.gcp.storage.resources import change_and_wait
from cloudgpu.providers.shared.calls import by_item, result_or_error, retry

STOPPED = "TERMINATED"  # Google's word for a machine that can be started again
STARTING = ("PENDING", "PROVISIONING", "STAGING", "REPAIRING")
STOPPING = ("PENDING_STOP", "STOPPING", "SUSPENDING", "DEPROVISIONING")
POLL_PAUSE_S, MAX_POLLS = 3.0, 40  # a machine that is just starting is stopped once it runs


def terminate(gcp: Gcp, id: str) -> None:  # noqa: A002
    """Ask to end the machine, its system disk and our firewall rules for it; an unknown id is no error.

    The disk is set to go with the machine before that is asked to end: what dies in between is found by its labels.
    The rules come last: they cost nothing, and what is left of them is found by its description.
    """
    _end(gcp, id, keep_disk=False)


def terminate_keeping_disk(gcp: Gcp, id: str) -> None:  # noqa: A002
    """Ask to end the machine while its system disk stays; one that is gone is no error.

    First the disk is told to stay, and only then the machine to go: a fault between the two leaves both. No verb asks
    for it: every machine of Google's can be stopped, so none is parked, and the documents do not grant it.
    """
    _end(gcp, id, keep_disk=True)


def _end(gcp: Gcp, id: str, *, keep_disk: bool) -> None:  # noqa: A002
    """Ask to end the machine and our rules for it, its system disk with it or not; an unknown id is no error.

    A read that does not find the machine is no proof: the end is asked all the same, and only what Google answers to
    that counts. A disk that is to stay is the exception: it has to be seen before.
    """
    found = _read_or_none(gcp, id)
    if found is None and keep_disk:
        return
    if found is not None and found.get("deletionProtection"):  # neither its disk nor its rules are touched
        raise errors.protected_from_deletion(gcp.context(errors.DELETE, ids.machine(id)[0], id))
    with suppress(InstanceNotFound):  # somebody else was faster
        if found is not None:
            _set_disk_deletion(gcp, id, found, keep=keep_disk)
        _ask(gcp, "delete", id)
    if found is None or firewall.is_ours(found):
        with suppress(AuthFailed):
            firewall.remove_all(gcp, id, firewall.network_of(found or {}))


def _read_or_none(gcp: Gcp, id: str) -> Mapping[str, Any] | None:  # noqa: A002
    with suppress(InstanceNotFound):
        return raw(gcp, id)
    return None


def _set_disk_deletion(gcp: Gcp, id: str, raw: Mapping[str, Any], *, keep: bool) -> None:  # noqa: A002
    """Let the system disk go with its machine or stay; no call where it is so already."""
    disk = boot_disk(raw)
    if disk is not None and bool(disk.get("autoDelete")) is keep:
        _change(gcp, id, "setDiskAutoDelete", deviceName=disk["deviceName"], autoDelete=not keep)


def stop(gcp: Gcp, id: str) -> None:  # noqa: A002
    """Ask to stop the machine, once it has started; what is on its local SSD is lost. Idempotent.

    Raises InstanceNotFound.
    """
    for _ in range(MAX_POLLS):
        found = raw(gcp, id)
        status = found.get("status")
        if status not in (*STARTING, *STOPPING, STOPPED):
            ask_to_stop(gcp, id, found)
        if status not in STARTING:
            return
        gcp.pause(POLL_PAUSE_S)
    message = f"{id} is still starting after {MAX_POLLS * POLL_PAUSE_S:.0f} seconds, and only what runs is stopped."
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
        schedules.renew(gcp, id, found)
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
    change_and_wait(gcp, f"compute.instances.{verb}", zone, value=id, zone=zone, instance=name, **fields)


AT_ONCE = 16
Raw = Mapping[str, Any]


def stop_many(gcp: Gcp, machine_ids: Sequence[str]) -> dict[str, CloudgpuError]:
    """Ask to stop these machines; return why not, by id, for those that were not asked.

    A look at all of them (a machine with local SSD is stopped by other words), and a call for each that runs.
    """
    answers = _read_machines(gcp, machine_ids)
    refused = {id_: found for id_, found in answers.items() if isinstance(found, CloudgpuError)}
    there = {id_: found for id_, found in answers.items() if not isinstance(found, CloudgpuError)}
    outcomes = by_item(there, lambda id_: result_or_error(_stop_running, gcp, id_, there[id_]), AT_ONCE)
    return refused | {id_: fault for id_, fault in outcomes.items() if fault is not None}


def _stop_running(gcp: Gcp, id: str, raw: Raw) -> None:  # noqa: A002
    """Ask to stop one that runs. What is stopped already, or stopping, is fine; what is starting is refused."""
    status = raw.get("status")
    if status in STARTING:
        raise InvalidRequest(f"{id} is still starting.", field="instance", value=id, next="Try again in a minute.")
    if status not in (*STOPPING, STOPPED):
        ask_to_stop(gcp, id, raw)


def get_many(gcp: Gcp, machine_ids: Sequence[str]) -> dict[str, Instance | CloudgpuError]:
    """Return each machine now, or why not, by id: from one listing, and a call for each that it does not show."""
    answers = _read_machines(gcp, machine_ids)
    found = [one for one in answers.values() if not isinstance(one, CloudgpuError)]
    by_id = {one.id: one for one in instances(gcp, found)}
    return {id_: one if isinstance(one, CloudgpuError) else by_id[id_] for id_, one in answers.items()}


def _read_machines(gcp: Gcp, machine_ids: Sequence[str]) -> dict[str, Raw | CloudgpuError]:
    """Return what Google says of each, or why not. One alone is asked for itself."""
    wanted = list(dict.fromkeys(machine_ids))
    listed = _listed(gcp) if len(wanted) > 1 else {}
    found: dict[str, Raw | CloudgpuError] = {id_: listed[id_] for id_ in wanted if id_ in listed}
    missing = [id_ for id_ in wanted if id_ not in listed]
    return found | by_item(missing, partial(result_or_error, raw, gcp), AT_ONCE)


def _listed(gcp: Gcp) -> dict[str, Raw]:
    """Return what the listing shows, by our id; none where it is not to be had: then each is asked for itself."""
    try:
        found, _ = list_ours(gcp)
    except CloudgpuError:
        return {}
    return {id_of(one): one for one in found}
