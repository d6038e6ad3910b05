"""Ends, stops and starts machines, so that nothing of them is billed but what the user retains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from cloudgpu.core.model.instances import TAG_NAME, Instance
from cloudgpu.errors import AnswerTimeout, CloudgpuError, InstanceNotFound, InvalidRequest
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.client import (
    MAX_FILTER_VALUES,
    MAX_PARALLEL,
    Aws,
    batches,
    describe,
    describe_instances,
)
from cloudgpu.providers.aws.compute import interruption
from cloudgpu.providers.aws.compute.listing import describe_raw, instances
from cloudgpu.providers.aws.compute.translate import (
    ENDED_STATES,
    our_tags,
    root_disk,
    tag_list,
    tags_of,
    tags_of_machine,
)
from cloudgpu.providers.aws.storage.disks import is_shared
from cloudgpu.providers.shared.calls import by_item, call_in_halves, gather

READ_PAUSE_S, MAX_READS = 3.0, 40  # a machine that is just starting cannot be stopped: AWS refuses until it runs


def terminate(aws: Aws, id: str) -> None:  # noqa: A002
    """Ask to end the machine, its spot request and its system disk; an unknown id is no error.

    The disk is set to be deleted with the machine first: if cloudgpu fails in between, the machine is still listed.
    """
    _request_end(aws, *ids.split_machine_id(id), keep_disk=False)


def terminate_keeping_disk(aws: Aws, id: str) -> None:  # noqa: A002
    """Ask to end the machine and its spot request while its system disk stays; an unknown id is no error."""
    _request_end(aws, *ids.split_machine_id(id), keep_disk=True)


def _request_end(aws: Aws, region: str, instance_id: str, *, keep_disk: bool) -> None:
    """Ask to end a machine. One that a read does not find yet is ended all the same, unless its disk is to stay.

    "InvalidInstanceID.NotFound ... eventual consistency": a machine may be unknown for a while after its launch (EC2
    developer guide, Ensuring idempotency and Eventual consistency).
    """
    try:
        raw = describe_raw(aws, region, instance_id)
    except InstanceNotFound:
        raw = None
    with suppress(InstanceNotFound):
        if raw is not None:
            _end_described(aws, region, instance_id, raw, keep_disk=keep_disk)
        elif not keep_disk:
            _cancel_request_of(aws, region, instance_id)
            _terminate(aws, region, instance_id)


def _end_described(aws: Aws, region: str, instance_id: str, raw: Mapping[str, Any], *, keep_disk: bool) -> None:
    request_id = raw.get("SpotInstanceRequestId")  # a persistent request would launch the next machine
    if raw["State"]["Name"] in ENDED_STATES:
        _cancel_spot_request(aws, region, request_id)
        return
    _set_disk_deletion(aws, region, raw, keep=keep_disk)
    _cancel_spot_request(aws, region, request_id)
    _terminate(aws, region, instance_id)


def _terminate(aws: Aws, region: str, instance_id: str) -> None:
    with aws.calling("TerminateInstances", region, value=ids.join_id(region, instance_id)):
        aws.ec2(region).terminate_instances(InstanceIds=[instance_id])


def _set_disk_deletion(aws: Aws, region: str, raw: Mapping[str, Any], *, keep: bool) -> None:
    """Set whether the system disk is deleted with its machine; no call where it is set so already."""
    disk = root_disk(raw)
    if disk is None or disk["Ebs"]["DeleteOnTermination"] is not keep:
        return
    if keep and is_shared(tags_of(raw)):  # nobody could tell afterwards whose disk it is
        node_tags = our_tags(tags_of_machine(raw))
        _tag_resource(aws, region, disk["Ebs"]["VolumeId"], {"Name": node_tags[TAG_NAME], **node_tags})
    change = {"DeviceName": disk["DeviceName"], "Ebs": {"DeleteOnTermination": not keep}}
    with aws.calling("ModifyInstanceAttribute", region, value=ids.join_id(region, raw["InstanceId"])):
        aws.ec2(region).modify_instance_attribute(InstanceId=raw["InstanceId"], BlockDeviceMappings=[change])


def _cancel_spot_request(aws: Aws, region: str, request_id: str | None) -> None:
    """Cancel a machine's spot request. One that AWS does not know can launch nothing: it is no error."""
    if request_id is None:
        return
    with suppress(InvalidRequest), aws.calling("CancelSpotInstanceRequests", region, value=request_id):
        aws.ec2(region).cancel_spot_instance_requests(SpotInstanceRequestIds=[request_id])


def _cancel_request_of(aws: Aws, region: str, instance_id: str) -> None:
    """Cancel the spot request of a machine that a read did not find: a persistent one would launch the next machine."""
    filters = [{"Name": "instance-id", "Values": [instance_id]}]
    for one in describe(aws, "DescribeSpotInstanceRequests", region, value=instance_id, Filters=filters):
        _cancel_spot_request(aws, region, one["SpotInstanceRequestId"])


def stop(aws: Aws, id: str) -> None:  # noqa: A002
    """Ask to stop the machine, once it has started. Idempotent.

    Raises InstanceNotFound, also for one that has ended, and InvalidRequest for a one-time spot machine: AWS stops
    none of those.
    """
    region, native_id = ids.split_machine_id(id)
    for _ in range(MAX_READS):
        raw = describe_raw(aws, region, native_id)
        state = raw["State"]["Name"]
        raise_if_ended(id, state)
        if state == "running":
            _raise_if_one_time(aws, region, raw)
            with aws.calling("StopInstances", region, value=id):
                aws.ec2(region).stop_instances(InstanceIds=[native_id])
        if state != "pending":
            return
        aws.pause(READ_PAUSE_S)
    message = f"{id} is still starting after {MAX_READS * READ_PAUSE_S:.0f} seconds, and AWS stops only what runs."
    raise InvalidRequest(message, field="instance", value=id, next="Try again in a minute, or end it: cloudgpu down")


def _raise_if_one_time(aws: Aws, region: str, raw: Mapping[str, Any]) -> None:
    if not is_one_time(aws, region, raw):
        return
    id_ = ids.join_id(region, raw["InstanceId"])
    message = f"{id_} is a one-time spot machine, which AWS cannot stop."
    raise InvalidRequest(message, field="instance", value=id_, next="Park it (cloudgpu stop NAME) or end it.")


def is_one_time(aws: Aws, region: str, raw: Mapping[str, Any]) -> bool:
    """Say whether this is a spot machine that AWS cannot stop. One call for a machine on spot."""
    request_id = raw.get("SpotInstanceRequestId")
    if request_id is None:
        return False
    requests = describe(
        aws, "DescribeSpotInstanceRequests", region, value=request_id, SpotInstanceRequestIds=[request_id]
    )
    return all(one["Type"] != "persistent" for one in requests)


def start(aws: Aws, id: str) -> None:  # noqa: A002
    """Ask to start a stopped machine; one that runs is left alone.

    Raises InstanceNotFound, also for one that has ended, NoCapacity, and InvalidRequest while it is just stopping.
    """
    region, native_id = ids.split_machine_id(id)
    state = describe_raw(aws, region, native_id)["State"]["Name"]
    raise_if_ended(id, state)
    if state == "stopping":
        message = f"{id} is just stopping, and AWS starts only what has stopped."
        raise InvalidRequest(message, field="instance", value=id, next="Try again when it has stopped.")
    if state == "stopped":
        with aws.calling("StartInstances", region, value=id):
            aws.ec2(region).start_instances(InstanceIds=[native_id])


def raise_if_ended(id: str, state: str) -> None:  # noqa: A002
    """Raise InstanceNotFound for a machine whose state says that it has been terminated."""
    if state in ENDED_STATES:
        raise InstanceNotFound(f"{id} has been terminated.", field="instance", value=id)


def tag(aws: Aws, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
    """Set these tags on the machine and leave every other alone. Raises InstanceNotFound."""
    region, native_id = ids.split_machine_id(id)
    if tags:
        _tag_resource(aws, region, native_id, tags)


def _tag_resource(aws: Aws, region: str, native_id: str, tags: Mapping[str, str]) -> None:
    with aws.calling("CreateTags", region, value=ids.join_id(region, native_id)):
        aws.ec2(region).create_tags(Resources=[native_id], Tags=tag_list(tags))


MAX_IDS = 1000  # machines in a call: as many as an answer of DescribeInstances has
MachinesById = dict[str, Instance | CloudgpuError]


def stop_many(aws: Aws, machine_ids: Sequence[str]) -> dict[str, CloudgpuError]:
    """Ask to stop these machines, a call per region; return the error, by id, of those that surely were not.

    One that is pending, has ended, or is a one-time spot machine is refused by AWS, and with it the whole call: the
    call is halved then. No machine is read before.
    """
    regions, refused = _by_region(machine_ids)
    for region_answer in by_item(regions, lambda region: _stop_in_region(aws, region, regions[region])).values():
        refused |= region_answer
    return refused


def _stop_in_region(aws: Aws, region: str, native_ids: Sequence[str]) -> dict[str, CloudgpuError]:
    def stop_batch(batch: Sequence[str]) -> None:
        value = ids.join_id(region, batch[0]) if len(batch) == 1 else None
        with aws.calling("StopInstances", region, value=value):
            aws.ec2(region).stop_instances(InstanceIds=list(batch))

    error_by_id: dict[str, CloudgpuError] = {}
    for batch in batches(native_ids, MAX_IDS):
        error_by_id |= call_in_halves(batch, stop_batch)
    return {ids.join_id(region, one): error for one, error in error_by_id.items()}


def get_many(aws: Aws, machine_ids: Sequence[str]) -> MachinesById:
    """Return each machine now, or its error, by id: a call per region where all of them exist.

    A region that does not answer delays no other one's answer. AWS refuses the whole call where one of its ids does not
    exist any more: the ids are put into a filter then, 200 a call.
    """
    ids_by_region, invalid_ids = _by_region(machine_ids)
    by_id: MachinesById = dict(invalid_ids)
    by_region = gather(
        list(ids_by_region),
        lambda region: _read_instances(aws, region, ids_by_region[region]),
        MAX_PARALLEL,
        answer_timeout_s=aws.timeouts.read_s,
    )
    for (region, native_ids), region_answer in zip(ids_by_region.items(), by_region, strict=True):
        if isinstance(region_answer, AnswerTimeout):
            by_id.update(dict.fromkeys((ids.join_id(region, one) for one in native_ids), region_answer))
        else:
            by_id |= region_answer
    return by_id


def _read_instances(aws: Aws, region: str, native_ids: Sequence[str]) -> MachinesById:
    try:
        found = {one.id: one for one in instances(aws, region, _describe_by_ids(aws, region, native_ids))}
    except CloudgpuError as error:
        return dict.fromkeys((ids.join_id(region, one) for one in native_ids), error)
    return {
        **found,
        **_find_vanished(aws, region, [one for one in native_ids if ids.join_id(region, one) not in found]),
    }


def _describe_by_ids(aws: Aws, region: str, native_ids: Sequence[str]) -> list[dict[str, Any]]:
    try:
        return [
            one for batch in batches(native_ids, MAX_IDS) for one in describe_instances(aws, region, InstanceIds=batch)
        ]
    except InstanceNotFound:
        filters = ({"Name": "instance-id", "Values": batch} for batch in batches(native_ids, MAX_FILTER_VALUES))
        return [one for batch_filter in filters for one in describe_instances(aws, region, Filters=[batch_filter])]


def _find_vanished(aws: Aws, region: str, native_ids: Sequence[str]) -> MachinesById:
    """Return machines that AWS does not list any more, as their spot requests describe them, or the error of each."""
    ended_spot = interruption.from_spot_requests(aws, region, native_ids) if native_ids else {}
    return {ids.join_id(region, one): ended_spot.get(one) or _not_found_error(aws, region, one) for one in native_ids}


def _not_found_error(aws: Aws, region: str, id_: str) -> CloudgpuError:
    try:
        aws.launch_accounts.check(id_, aws.account_id)  # credentials of another account prove nothing about an end
    except CloudgpuError as error:
        return error
    return InstanceNotFound(f"AWS {region} has no machine {id_}.", field="instance", value=ids.join_id(region, id_))


def _by_region(machine_ids: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, CloudgpuError]]:
    """Return AWS's own ids by region, each once, and the errors of those that are not valid ids."""
    by_region: dict[str, list[str]] = {}
    invalid: dict[str, CloudgpuError] = {}
    for id_ in dict.fromkeys(machine_ids):
        try:
            region, native_id = ids.split_machine_id(id_)
        except InvalidRequest as error:
            invalid[id_] = error
        else:
            by_region.setdefault(region, []).append(native_id)
    return by_region, invalid
