"""Ends, stops, starts and tags machines, so that nothing of them is billed but what the user retains.

A system disk that is retained stays in its launch's group, with that group's tags. The rehearsal of an interruption is
Azure's own simulation of an eviction, with its notice and its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from cloudgpu.core.model.instances import TAG_ID, Instance
from cloudgpu.errors import AnswerTimeout, CloudgpuError, InstanceNotFound, InvalidRequest, ProviderUnavailable
from cloudgpu.providers.azure import groups, ids
from cloudgpu.providers.azure.account import identity
from cloudgpu.providers.azure.calls import (
    OperationPending,
    call_or_none,
    complete,
    invoke,
    properties_of,
    provisioning_state,
)
from cloudgpu.providers.azure.client import MAX_PARALLEL, Azure, Raw
from cloudgpu.providers.azure.compute import listing, machine, translate
from cloudgpu.providers.azure.compute.request import is_system_disk
from cloudgpu.providers.azure.error_codes import BUSY_CODES
from cloudgpu.providers.azure.errors import code_of
from cloudgpu.providers.shared.calls import by_item, result_or_error, retry

START_TIMEOUT = timedelta(minutes=10)
_UNSUPPORTED_STATUSES = (405, 501)  # HTTP statuses of a server in Azure's place that does not have this call
RETRY_PAUSE_S, MAX_RETRIES = 3.0, 20  # while another operation on the machine goes on, Azure refuses the next
POLL_PAUSE_S, MAX_POLLS = 2.0, 60  # until Azure has recorded that a system disk is to stay
_MACHINE = "Microsoft.Compute/virtualMachines"
_LAUNCH_RESOURCE_TYPES = {  # the types of resources that a launch makes in its group
    "microsoft.compute/virtualmachines",
    "microsoft.compute/virtualmachines/extensions",
    "microsoft.compute/disks",
    "microsoft.network/networkinterfaces",
    "microsoft.network/networksecuritygroups",
    "microsoft.network/publicipaddresses",
    "microsoft.network/virtualnetworks",
}


def terminate(azure: Azure, id: str) -> None:  # noqa: A002
    """Ask to delete the machine with its whole group; an unknown id is no error. Two calls, not waited for.

    Two more where the settings name a role of machines: its assignment is deleted, which Azure would leave behind.

    Where somebody has put a resource of their own into the group, only the machine is deleted with what goes with it;
    the group stays, and `orphans` lists it. Raises EndRefused where a lock forbids it.
    """
    assignment_id = identity.assignment_of(azure, id)
    _delete(azure, id)
    # only now: a machine that could not be deleted needs its role to deallocate itself
    identity.remove_machine_assignment(azure, assignment_id)


def _delete(azure: Azure, id: str) -> None:  # noqa: A002
    region, group = ids.split_machine_id(id)
    if all(is_ours(one, group) for one in _resources_in_group(azure, id)):
        groups.delete(azure, region, group)
        return
    machines = azure.compute.virtual_machines
    call_or_none(azure, f"{_MACHINE}/delete", lambda: machines.begin_delete(group, group, polling=False), region=region)


def _resources_in_group(azure: Azure, id: str) -> list[Raw]:  # noqa: A002
    """Return the resources in a machine's group; none where there is no group, or it cannot be listed."""
    region, group = ids.split_machine_id(id)
    try:
        return groups.resources_in(azure, region, group, value=id) or []
    except CloudgpuError as error:
        if getattr(error.__cause__, "status_code", None) not in _UNSUPPORTED_STATUSES:
            raise
        return []


def is_ours(resource: Raw, group: str) -> bool:
    """Say whether a resource in a launch's group was made by that launch: of its types, with its name or our tags.

    Of disks, only the machine's system disk was.
    """
    resource_type, name = str(resource.get("type") or "").lower(), str(resource.get("name") or "").lower()
    if resource_type == "microsoft.compute/disks":
        return is_system_disk(name, group)
    return resource_type in _LAUNCH_RESOURCE_TYPES and (
        name.startswith(group) or TAG_ID in (resource.get("tags") or {})
    )


def terminate_keeping_disk(azure: Azure, id: str) -> None:  # noqa: A002
    """Set the disk to outlive the machine, wait until it does, then request the machine's deletion; none is no error.

    Its interface and its address are deleted with it (`deleteOption`); its group gets the tag TAG_DISK_RETAINED.
    Five calls, three where the disk is set so already.
    """
    region, group = ids.split_machine_id(id)
    try:
        raw = machine.read(azure, id)
        groups.tag(azure, group, {groups.TAG_DISK_RETAINED: "yes"})
        _let_disk_outlive(azure, id, raw)
    except InstanceNotFound:
        return
    call_or_none(
        azure,
        f"{_MACHINE}/delete",
        lambda: azure.compute.virtual_machines.begin_delete(group, group, polling=False),
        region=region,
        value=id,
    )


def _let_disk_outlive(azure: Azure, id: str, raw: Raw) -> None:  # noqa: A002
    if _disk_outlives_machine(raw):
        return
    disk = raw["properties"]["storageProfile"]["osDisk"]
    new_disk = {"managedDisk": {"id": machine.system_disk(raw)}, "deleteOption": "Detach"}
    if "createOption" in disk:
        new_disk["createOption"] = disk["createOption"]
    machine.change(azure, id, {"storageProfile": {"osDisk": new_disk}})
    for _ in range(MAX_POLLS):
        if _disk_outlives_machine(machine.read(azure, id)):
            return
        azure.pause(POLL_PAUSE_S)
    message = f"Azure has not let go of the disk of {id}, so the machine was not ended."
    raise ProviderUnavailable(message, field="instance", value=id, next="Run it again.")


def _disk_outlives_machine(raw: Raw) -> bool:
    """Say whether the system disk outlives the machine: by default it does."""
    disk = (properties_of(raw).get("storageProfile") or {}).get("osDisk") or {}
    return str(disk.get("deleteOption") or "Detach").lower() == "detach"


def stop(azure: Azure, id: str) -> None:  # noqa: A002
    """Ask to deallocate the machine. Idempotent; one call, again while another operation on it goes on. Not waited for.

    Raises InstanceNotFound.
    """
    region, group = ids.split_machine_id(id)
    retry(
        lambda: invoke(
            azure,
            f"{_MACHINE}/deallocate/action",
            lambda: azure.compute.virtual_machines.begin_deallocate(group, group, polling=False),
            region=region,
            value=id,
        ),
        MAX_RETRIES + 1,
        after=lambda error: code_of(error) in BUSY_CODES,
        pause=lambda _tries: azure.pause(RETRY_PAUSE_S),
    )


def start(azure: Azure, id: str) -> None:  # noqa: A002
    """Start a stopped machine, and wait until Azure has the capacity; one that runs is left alone.

    Raises InstanceNotFound, NoCapacity, QuotaExceeded, and InvalidRequest while it is just stopping.
    """
    region, group = ids.split_machine_id(id)
    raw = listing.read_with_view(azure, region, group)
    if raw is None or provisioning_state(raw) == "deleting":
        message = f"Azure {region} has no machine {group}."
        raise InstanceNotFound(message, field="instance", value=id)
    power_state = translate.power_of(translate.statuses_of(raw))
    if power_state in ("deallocating", "stopping"):
        message = f"{id} is just stopping, and Azure starts only what has stopped."
        raise InvalidRequest(message, field="instance", value=id, next="Try again when it has stopped.")
    if power_state not in ("running", "starting"):
        _start(azure, region, group)


def _start(azure: Azure, region: str, group: str) -> None:
    machines, id_ = azure.compute.virtual_machines, ids.join_id(region, group)
    try:
        complete(
            azure,
            f"{_MACHINE}/start/action",
            lambda polling: machines.begin_start(group, group, polling=polling),
            deadline=azure.clock() + START_TIMEOUT,
            region=region,
            value=id_,
        )
    except OperationPending:  # it is requested; the next sync has the outcome
        return


def tag(azure: Azure, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
    """Set these tags on the machine and leave every other alone, by the Tags API's Merge. One call.

    A change of the machine itself would replace its tags, and erase a hold. Raises InstanceNotFound.
    """
    region, group = ids.split_machine_id(id)
    if tags:
        groups.merge_tags(azure, ids.machine_id(azure.subscription, group), tags, region=region, value=id)


MAX_READ_SINGLY = 2  # machines: two listings cost as many calls, and more of Azure's time
MachinesById = dict[str, Instance | CloudgpuError]


def stop_many(azure: Azure, machine_ids: Sequence[str]) -> dict[str, CloudgpuError]:
    """Ask to deallocate these machines; return the error, by id, of those that surely were not.

    One call each: Azure has none for many, so one that is refused keeps no other one running.
    """
    answers = by_item(machine_ids, partial(result_or_error, stop, azure), MAX_PARALLEL)
    return {id_: answer for id_, answer in answers.items() if isinstance(answer, CloudgpuError)}


def get_many(azure: Azure, machine_ids: Sequence[str]) -> MachinesById:
    """Return each machine now, or its error, by id: two calls and their pages, and one for each that is not listed.

    A machine that is missing in a listing is not proved to be gone: it is read by itself.
    """
    requested_ids = list(dict.fromkeys(machine_ids))
    if len(requested_ids) <= MAX_READ_SINGLY:
        return by_item(requested_ids, partial(result_or_error, listing.get, azure), MAX_PARALLEL)
    try:
        listed, _ = listing.list_ours(azure)
    except AnswerTimeout:  # each may answer by itself
        listed = {}
    except CloudgpuError as error:
        return {id_: _error_of_id(id_, error) for id_ in requested_ids}
    listed_instances: MachinesById = {id_: listed[id_] for id_ in requested_ids if id_ in listed}
    unlisted_ids = [id_ for id_ in requested_ids if id_ not in listed]
    return {**listed_instances, **by_item(unlisted_ids, partial(result_or_error, listing.get, azure), MAX_PARALLEL)}


def _error_of_id(id_: str, error: CloudgpuError) -> CloudgpuError:
    """Return the error of an invalid id, else the one of the listing."""
    try:
        ids.split_machine_id(id_)
    except InvalidRequest as id_error:
        return id_error
    return error


EVICTION_NOTICE = timedelta(seconds=30)  # "Azure will try to provide up to 30 seconds' notice" (Use Azure Spot VMs)


def interrupt(azure: Azure, id: str) -> datetime:  # noqa: A002
    """Simulate the eviction of a spot machine; return when it is evicted at the earliest, aware UTC. Two calls.

    Azure does it within half an hour ("Simulate an eviction"), so the time may be later. Raises InstanceNotFound, and
    InvalidRequest for a machine on demand.
    """
    region, group = ids.split_machine_id(id)
    if not machine.is_spot(machine.read(azure, id)):
        message = f"{id} cannot be interrupted: it is not a spot machine."
        raise InvalidRequest(message, field="instance", value=id, next="Launch one with --spot.")
    machines = azure.compute.virtual_machines
    action = f"{_MACHINE}/simulateEviction/action"
    invoke(azure, action, lambda: machines.simulate_eviction(group, group), region=region, value=id)
    return azure.clock() + EVICTION_NOTICE
