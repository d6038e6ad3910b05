"""Ends, stops and starts machines, so that nothing of them is billed but what is kept on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from cloudgpu.core.model.instances import TAG_NAME
from cloudgpu.errors import InstanceNotFound, InvalidRequest
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.client import Aws, describe
from cloudgpu.providers.aws.compute.listing import raw
from cloudgpu.providers.aws.compute.translate import TAG_PREFIX, root_disk, tags_of, tags_of_machine
from cloudgpu.providers.aws.storage.disks import is_shared

ENDED = ("shutting-down", "terminated")
READ_PAUSE_S, MAX_READS = 3.0, 40  # a machine that is just starting cannot be stopped: AWS refuses until it runs


def terminate(aws: Aws, id: str) -> None:  # noqa: A002
    """Ask to end the machine, its spot request and its system disk; an unknown id is no error.

    The disk is set to go with the machine before that is asked to end: what dies in between is found by its tags.
    """
    _end(aws, *ids.machine(id), keep_disk=False)


def end_keeping_disk(aws: Aws, id: str) -> None:  # noqa: A002
    """Ask to end the machine and its spot request while its system disk stays; an unknown id is no error."""
    _end(aws, *ids.machine(id), keep_disk=True)


def _end(aws: Aws, region: str, instance_id: str, *, keep_disk: bool) -> None:
    """Ask to end a machine. One that a read does not find yet is ended all the same, unless its disk is to stay.

    "InvalidInstanceID.NotFound ... eventual consistency": a machine may be unknown for a while after its launch (EC2
    developer guide, Ensuring idempotency and Eventual consistency).
    """
    try:
        found = raw(aws, region, instance_id)
    except InstanceNotFound:
        found = None
    with suppress(InstanceNotFound):
        if found is not None:
            _end_known(aws, region, instance_id, found, keep_disk=keep_disk)
        elif not keep_disk:
            _cancel_request_of(aws, region, instance_id)
            _terminate(aws, region, instance_id)


def _end_known(aws: Aws, region: str, instance_id: str, found: Mapping[str, Any], *, keep_disk: bool) -> None:
    request = found.get("SpotInstanceRequestId")  # a persistent one would launch the next machine
    if found["State"]["Name"] in ENDED:
        with suppress(InvalidRequest):  # AWS forgets requests that have ended
            _cancel(aws, region, request)
        return
    _set_disk_deletion(aws, region, found, keep=keep_disk)
    with suppress(InvalidRequest):  # a request that AWS does not know launches nothing, and keeps no machine on
        _cancel(aws, region, request)
    _terminate(aws, region, instance_id)


def _terminate(aws: Aws, region: str, instance_id: str) -> None:
    with aws.calling("TerminateInstances", region, value=ids.joined(region, instance_id)):
        aws.ec2(region).terminate_instances(InstanceIds=[instance_id])


def _set_disk_deletion(aws: Aws, region: str, found: Mapping[str, Any], *, keep: bool) -> None:
    """Let the system disk stay or go with its machine; no call where it is so already."""
    disk = root_disk(found)
    if disk is None or disk["Ebs"]["DeleteOnTermination"] is not keep:
        return
    if keep and is_shared(tags_of(found)):  # nobody could tell afterwards whose disk it is
        native_id = {key: value for key, value in tags_of_machine(found).items() if key.startswith(TAG_PREFIX)}
        _tag_resource(aws, region, disk["Ebs"]["VolumeId"], {"Name": native_id[TAG_NAME], **native_id})
    change = {"DeviceName": disk["DeviceName"], "Ebs": {"DeleteOnTermination": not keep}}
    with aws.calling("ModifyInstanceAttribute", region, value=ids.joined(region, found["InstanceId"])):
        aws.ec2(region).modify_instance_attribute(InstanceId=found["InstanceId"], BlockDeviceMappings=[change])


def _cancel(aws: Aws, region: str, request: str | None) -> None:
    if request is None:
        return
    with aws.calling("CancelSpotInstanceRequests", region, value=request):
        aws.ec2(region).cancel_spot_instance_requests(SpotInstanceRequestIds=[request])


def _cancel_request_of(aws: Aws, region: str, instance_id: str) -> None:
    """Cancel the spot request of a machine that a read did not find: a persistent one would launch the next machine."""
    of = [{"Name": "instance-id", "Values": [instance_id]}]
    for one in describe(aws, "DescribeSpotInstanceRequests", region, value=instance_id, Filters=of):
        with suppress(InvalidRequest):
            _cancel(aws, region, one["SpotInstanceRequestId"])


def stop(aws: Aws, id: str) -> None:  # noqa: A002
    """Ask to stop the machine, once it has started. Idempotent.

    Raises InstanceNotFound, also for one that has ended, and InvalidRequest for a one-time spot machine: AWS stops
    none of those.
    """
    region, native_id = ids.machine(id)
    for _ in range(MAX_READS):
        found = raw(aws, region, native_id)
        state = found["State"]["Name"]
        refuse_ended(id, state)
        if state == "running":
            _refuse_one_time(aws, region, found)
            with aws.calling("StopInstances", region, value=id):
                aws.ec2(region).stop_instances(InstanceIds=[native_id])
        if state != "pending":
            return
        aws.pause(READ_PAUSE_S)
    message = f"{id} is still starting after {MAX_READS * READ_PAUSE_S:.0f} seconds, and AWS stops only what runs."
    raise InvalidRequest(message, field="instance", value=id, next="Try again in a minute, or end it: cloudgpu down")


def _refuse_one_time(aws: Aws, region: str, found: Mapping[str, Any]) -> None:
    if not is_one_time(aws, region, found):
        return
    id_ = ids.joined(region, found["InstanceId"])
    message = f"{id_} is a one-time spot machine, which AWS cannot stop."
    raise InvalidRequest(message, field="instance", value=id_, next="Park it (cloudgpu stop NAME) or end it.")


def is_one_time(aws: Aws, region: str, found: Mapping[str, Any]) -> bool:
    """Say whether this is a spot machine that AWS cannot stop. One call for a machine on spot."""
    request = found.get("SpotInstanceRequestId")
    if request is None:
        return False
    requests = describe(aws, "DescribeSpotInstanceRequests", region, value=request, SpotInstanceRequestIds=[request])
    return all(one["Type"] != "persistent" for one in requests)


def start(aws: Aws, id: str) -> None:  # noqa: A002
    """Ask to start a stopped machine; one that runs is left alone.

    Raises InstanceNotFound, also for one that has ended, NoCapacity, and InvalidRequest while it is just stopping.
    """
    region, native_id = ids.machine(id)
    state = raw(aws, region, native_id)["State"]["Name"]
    refuse_ended(id, state)
    if state == "stopping":
        message = f"{id} is just stopping, and AWS starts only what has stopped."
        raise InvalidRequest(message, field="instance", value=id, next="Try again when it has stopped.")
    if state == "stopped":
        with aws.calling("StartInstances", region, value=id):
            aws.ec2(region).start_instances(InstanceIds=[native_id])


def refuse_ended(id: str, state: str) -> None:  # noqa: A002
    """Raise InstanceNotFound for a machine in a state in which it is no more."""
    if state in ENDED:
        raise InstanceNotFound(f"{id} has been terminated.", field="instance", value=id)


def tag(aws: Aws, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
    """Set these tags on the machine and leave every other alone. Raises InstanceNotFound."""
    region, native_id = ids.machine(id)
    if not tags:
        return
    _tag_resource(aws, region, native_id, tags)


def _tag_resource(aws: Aws, region: str, instance_id: str, tags: Mapping[str, str]) -> None:
    pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
    with aws.calling("CreateTags", region, value=ids.joined(region, instance_id)):
        aws.ec2(region).create_tags(Resources=[instance_id], Tags=pairs)
