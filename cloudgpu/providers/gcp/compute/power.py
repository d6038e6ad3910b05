"""Ends, stops and starts machines, and sets their labels and metadata.

A machine cannot read its own labels from inside, so the lease is also in its metadata. Labels and metadata are replaced
as a whole, with a fingerprint of what was read: whoever comes second has to read again.
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
from cloudgpu.providers.gcp.client import Gcp, Raw
from cloudgpu.providers.gcp.compute import schedules
from cloudgpu.providers.gcp.compute.listing import instances, list_ours, read_machine
from cloudgpu.providers.gcp.compute.translate import (
    STOPPED,
    boot_disk,
    has_scratch,
    id_of,
    is_spot,
    labels_of,
    metadata_of,
)
from cloudgpu.providers.gcp.error_codes import STALE
from cloudgpu.providers.gcp.errors import code_of
from cloudgpu.providers.gcp.network import firewall
from cloudgpu.providers.gcp.storage.resources import change_machine
from cloudgpu.providers.shared.calls import by_item, result_or_error, retry

STARTING = ("PENDING", "PROVISIONING", "STAGING", "REPAIRING")
STOPPING = ("PENDING_STOP", "STOPPING", "SUSPENDING", "DEPROVISIONING")
POLL_PAUSE_S, MAX_POLLS = 3.0, 40  # a machine that is just starting is stopped once it runs


def terminate(gcp: Gcp, id: str) -> None:  # noqa: A002
    """Ask to end the machine, its system disk and our firewall rules for it; an unknown id is no error.

    First the disk is set to be deleted with the machine: after a crash in between it is found by its labels. The rules
    come last: they cost nothing, and leftover ones are found by their description.
    """
    _terminate(gcp, id, keep_disk=False)


def terminate_keeping_disk(gcp: Gcp, id: str) -> None:  # noqa: A002
    """Ask to end the machine while its system disk stays; one that is gone is no error.

    First the disk is set to stay, then the machine is deleted: a failure in between leaves both. No verb uses it: every
    machine of Google's can be stopped, so none is parked, and the role documents do not grant it.
    """
    _terminate(gcp, id, keep_disk=True)


def _terminate(gcp: Gcp, id: str, *, keep_disk: bool) -> None:  # noqa: A002
    """Ask to end the machine and our rules for it, its system disk with it or not; an unknown id is no error.

    A read that does not find the machine is no proof: the deletion is requested all the same, and only its answer
    counts. With `keep_disk` nothing is requested: the disk has to be set first.
    """
    machine = _read_or_none(gcp, id)
    if machine is None and keep_disk:
        return
    if machine is not None and machine.get("deletionProtection"):  # neither its disk nor its rules are touched
        raise errors.protected_from_deletion(gcp.call_context(errors.DELETE_ACTION, ids.zone_and_name(id)[0], id))
    with suppress(InstanceNotFound):  # somebody else was faster
        if machine is not None:
            _set_disk_deletion(gcp, id, machine, keep=keep_disk)
        _send(gcp, "delete", id)
    if machine is None or firewall.is_ours(machine):
        with suppress(AuthFailed):
            firewall.remove_all(gcp, id, firewall.network_of(machine or {}))


def _read_or_none(gcp: Gcp, id: str) -> Mapping[str, Any] | None:  # noqa: A002
    with suppress(InstanceNotFound):
        return read_machine(gcp, id)
    return None


def _set_disk_deletion(gcp: Gcp, id: str, raw_machine: Mapping[str, Any], *, keep: bool) -> None:  # noqa: A002
    """Set whether the system disk is deleted with its machine; no call where it is set so already."""
    disk = boot_disk(raw_machine)
    if disk is not None and bool(disk.get("autoDelete")) is keep:
        change_machine(gcp, id, "setDiskAutoDelete", deviceName=disk["deviceName"], autoDelete=not keep)


def stop(gcp: Gcp, id: str) -> None:  # noqa: A002
    """Ask to stop the machine, once it has started; what is on its local SSD is lost. Idempotent.

    Raises InstanceNotFound.
    """
    for _ in range(MAX_POLLS):
        machine = read_machine(gcp, id)
        status = machine.get("status")
        if status not in (*STARTING, *STOPPING, STOPPED):
            ask_to_stop(gcp, id, machine)
        if status not in STARTING:
            return
        gcp.pause(POLL_PAUSE_S)
    message = f"{id} is still starting after {MAX_POLLS * POLL_PAUSE_S:.0f} seconds, and only what runs is stopped."
    raise InvalidRequest(message, field="instance", value=id, next="Try again in a minute, or end it: cloudgpu down")


def ask_to_stop(gcp: Gcp, id: str, raw_machine: Mapping[str, Any]) -> None:  # noqa: A002
    """Ask to stop a machine that runs.

    For local SSD the call has to say that its data is discarded: else it goes on being billed, and the data is lost
    either way ("Local SSD data persistence").
    """
    _send(gcp, "stop", id, **({"discardLocalSsd": True} if has_scratch(raw_machine) else {}))


def start(gcp: Gcp, id: str) -> None:  # noqa: A002
    """Ask to start a stopped machine and wait until Google has started it, or failed; one that runs is left alone.

    Google's timer counts from the start, so before it is set to the time left until the machine's renew-until. Raises
    InstanceNotFound, NoCapacity, and InvalidRequest while it is just stopping.
    """
    machine = read_machine(gcp, id)
    status = machine.get("status")
    if status in STOPPING or status == "SUSPENDED":
        state_text = "just stopping" if status in STOPPING else "suspended, which cloudgpu never does"
        remedy = (
            "Try again when it has stopped." if status in STOPPING else "Resume it: gcloud compute instances resume"
        )
        message = f"{id} is {state_text}, and Google Cloud starts only what has stopped."
        raise InvalidRequest(message, field="instance", value=id, next=remedy)
    if status == STOPPED:
        schedules.renew(gcp, id, machine)
        change_machine(gcp, id, "start")


PREEMPTION_NOTICE = timedelta(seconds=30)  # "best effort, up to 30 seconds" (Spot VMs, Preemption process)


def interrupt(gcp: Gcp, id: str) -> datetime:  # noqa: A002
    """Simulate a maintenance event on a spot machine, which preempts it; return when it is taken, aware UTC.

    Google names that as the way to test how work handles a preemption ("Simulate a host maintenance event"). Whether a
    live machine gets its half minute of notice then is unverified. Raises InstanceNotFound, and InvalidRequest for a
    machine on demand: that would be moved, or restarted.
    """
    if not is_spot(read_machine(gcp, id)):
        message = f"{id} cannot be interrupted: it is not a spot machine."
        raise InvalidRequest(message, field="instance", value=id, next="Launch one with --spot.")
    _send(gcp, "simulateMaintenanceEvent", id)
    return gcp.clock() + PREEMPTION_NOTICE


def _send(gcp: Gcp, verb: str, id: str, **fields: Any) -> Mapping[str, Any]:  # noqa: A002
    zone, name = ids.zone_and_name(id)
    return gcp.call(f"compute.instances.{verb}", zone, value=id, zone=zone, instance=name, **fields)


METADATA_TAGS = (TAG_EXPIRES, TAG_RENEW_UNTIL, TAG_HOLD_UNTIL)
TAG_TRIES, TAG_RETRY_PAUSE_S = 6, 0.5


def tag(gcp: Gcp, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
    """Set these labels, and METADATA_TAGS of them in the metadata; leave all others. Raises InstanceNotFound.

    The metadata first: a machine that learns of a longer lease too late could end itself.
    """
    if not tags:
        ids.zone_and_name(id)
        return
    retry(
        lambda: _set_tags(gcp, id, read_machine(gcp, id), tags),
        TAG_TRIES,
        after=lambda error: code_of(error) == STALE,
        pause=lambda tries: gcp.pause(TAG_RETRY_PAUSE_S * tries),
    )


def _set_tags(gcp: Gcp, id: str, raw_machine: Mapping[str, Any], tags: Mapping[str, str]) -> None:  # noqa: A002
    metadata_tags = {key: value for key, value in tags.items() if key in METADATA_TAGS}
    metadata, labels = metadata_of(raw_machine), labels_of(raw_machine)
    if metadata_tags.items() - metadata.items():
        items = [{"key": key, "value": value} for key, value in {**metadata, **metadata_tags}.items()]
        fingerprint = raw_machine.get("metadata", {}).get("fingerprint", "")
        change_machine(gcp, id, "setMetadata", metadataResource={"items": items, "fingerprint": fingerprint})
    if tags.items() - labels.items():
        request = {"labels": {**labels, **tags}, "labelFingerprint": raw_machine.get("labelFingerprint", "")}
        change_machine(gcp, id, "setLabels", instancesSetLabelsRequestResource=request)


MAX_PARALLEL = 16


def stop_many(gcp: Gcp, machine_ids: Sequence[str]) -> dict[str, CloudgpuError]:
    """Ask to stop these machines; return the errors of those that could not be asked, by id.

    Reads all of them first (local SSD changes the call), then one call for each that runs.
    """
    answers = _read_machines(gcp, machine_ids)
    refused = {id_: machine for id_, machine in answers.items() if isinstance(machine, CloudgpuError)}
    readable = {id_: machine for id_, machine in answers.items() if not isinstance(machine, CloudgpuError)}
    outcomes = by_item(readable, lambda id_: result_or_error(_stop_running, gcp, id_, readable[id_]), MAX_PARALLEL)
    return refused | {id_: error for id_, error in outcomes.items() if error is not None}


def _stop_running(gcp: Gcp, id: str, raw_machine: Raw) -> None:  # noqa: A002
    """Ask to stop a running machine; leave one that is stopped or stopping. InvalidRequest for a starting one."""
    status = raw_machine.get("status")
    if status in STARTING:
        raise InvalidRequest(f"{id} is still starting.", field="instance", value=id, next="Try again in a minute.")
    if status not in (*STOPPING, STOPPED):
        ask_to_stop(gcp, id, raw_machine)


def get_many(gcp: Gcp, machine_ids: Sequence[str]) -> dict[str, Instance | CloudgpuError]:
    """Return each machine now, or why not, by id: from one listing, and a call for each that it does not show."""
    answers = _read_machines(gcp, machine_ids)
    machines = [answer for answer in answers.values() if not isinstance(answer, CloudgpuError)]
    by_id = {instance.id: instance for instance in instances(gcp, machines)}
    return {id_: answer if isinstance(answer, CloudgpuError) else by_id[id_] for id_, answer in answers.items()}


def _read_machines(gcp: Gcp, machine_ids: Sequence[str]) -> dict[str, Raw | CloudgpuError]:
    """Return each machine in Google's format, or its error, by id. A single one is read by its id."""
    distinct = list(dict.fromkeys(machine_ids))
    listed_machines = _list_by_id(gcp) if len(distinct) > 1 else {}
    answers: dict[str, Raw | CloudgpuError] = {id_: listed_machines[id_] for id_ in distinct if id_ in listed_machines}
    missing = [id_ for id_ in distinct if id_ not in listed_machines]
    return answers | by_item(missing, partial(result_or_error, read_machine, gcp), MAX_PARALLEL)


def _list_by_id(gcp: Gcp) -> dict[str, Raw]:
    """Return the listed machines in Google's format, by our id; none where the listing fails: then each is read."""
    try:
        machines, _ = list_ours(gcp)
    except CloudgpuError:
        return {}
    return {id_of(machine): machine for machine in machines}
