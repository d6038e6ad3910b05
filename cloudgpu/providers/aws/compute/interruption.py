"""Finds when and why a spot machine ended by the status of its spot request, where DescribeInstances does not say.

EC2 user guide, "Spot request status": `instance-terminated-no-capacity` is "Your instance was terminated due to
standard capacity management processes", `...-by-price` "the Spot price exceeded your maximum price", `...-by-user` was
the user, or a shutdown from inside. Each has its time, `UpdateTime`. "State changes for a Spot request" says of
`instance-terminated-no-capacity` that it is set at once, and that "the instance remains in the running state for 2
minutes to reflect the 2-minute period when the instance receives the Spot Instance interruption notice": it ended then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from cloudgpu.core.model.instances import TAG_ID, Instance
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.aws.client import MAX_FILTER_VALUES, Aws, Raw, batches, describe_all
from cloudgpu.providers.aws.compute import translate
from cloudgpu.providers.aws.compute.translate import ENDED_STATES

INTERRUPTION_NOTICE = timedelta(minutes=2)  # from the interruption notice to the end of the machine
_STOPPED_STATES = ("stopping", "stopped")
_NO_CAPACITY = "instance-terminated-no-capacity"
_INTERRUPTIONS = {  # codes of a request's status, and the states of its machine in which they are about its end
    _NO_CAPACITY: ENDED_STATES,
    "instance-terminated-by-price": ENDED_STATES,
    "instance-terminated-launch-group-constraint": ENDED_STATES,
    "instance-stopped-no-capacity": _STOPPED_STATES,
    "instance-stopped-by-price": _STOPPED_STATES,
}
_ENDS_BY_USER = {
    "instance-terminated-by-user": ENDED_STATES,
    "spot-instance-terminated-by-user": ENDED_STATES,
    "instance-stopped-by-user": _STOPPED_STATES,
}
# Not `instance-terminated-by-service`: that one had stopped before, and nothing says when.
_END_CODES = _INTERRUPTIONS | _ENDS_BY_USER


def with_end_causes(aws: Aws, region: str, machines: Sequence[tuple[Raw, Instance]]) -> list[Instance]:
    """Return these machines of a region, spot machines that stopped or ended with its time and cause where it is known.

    One call per 200 machines that lack one; none where none does. A request that is unknown, or a call that is not
    answered, is no error: the state of a machine matters more than the time of its end.
    """
    request_ids = [raw["SpotInstanceRequestId"] for raw, instance in machines if _lacks_cause(raw, instance)]
    requests = _spot_requests(aws, region, "spot-instance-request-id", request_ids)
    now = aws.clock()
    return [with_end_cause(raw, instance, requests.get(raw["InstanceId"]), now) for raw, instance in machines]


def from_spot_requests(aws: Aws, region: str, native_ids: Sequence[str]) -> dict[str, Instance]:
    """Return spot machines of ours that AWS does not list any more, by AWS's id, as their spot requests describe them.

    AWS lists an ended machine for about an hour, and "Spot Instance requests are deleted four hours after they are
    canceled and their instances are terminated" (EC2 API reference, DescribeSpotInstanceRequests). One call.
    """
    requests = _spot_requests(aws, region, "instance-id", native_ids)
    ended_machines = {one: _from_request(aws, region, one, request) for one, request in requests.items()}
    return {one: found for one, found in ended_machines.items() if found is not None}


def _from_request(aws: Aws, region: str, native_id: str, request: Raw) -> Instance | None:
    if TAG_ID not in translate.tags_of(request):
        return None
    raw = {
        "InstanceId": native_id,
        "InstanceType": request.get("LaunchSpecification", {}).get("InstanceType", ""),
        "InstanceLifecycle": "spot",
        "State": {"Name": "terminated"},
        "LaunchTime": request["CreateTime"],
        "Placement": {"AvailabilityZone": request.get("LaunchedAvailabilityZone", "")},
        "Tags": request["Tags"],
    }
    instance = translate.instance(raw, account=aws.account, region=region, ssh_port=aws.options.ssh_port)
    ended_machines = with_end_cause(raw, instance, request, aws.clock())
    return None if ended_machines.since is None else ended_machines


def _lacks_cause(raw: Raw, instance: Instance) -> bool:
    is_ended = raw.get("SpotInstanceRequestId") and raw.get("State", {}).get("Name") in (
        *ENDED_STATES,
        *_STOPPED_STATES,
    )
    return bool(is_ended) and (instance.since is None or not _cause(raw))


def _spot_requests(aws: Aws, region: str, filter_name: str, ids: Sequence[str]) -> dict[str, Raw]:
    """Return spot requests by the id of their present machine; none where AWS does not answer.

    `filter_name` is that of the filter: by ids, one that AWS does not know any more would fail the whole call.
    """
    filters = ([{"Name": filter_name, "Values": batch}] for batch in batches(sorted(set(ids)), MAX_FILTER_VALUES))
    action = "DescribeSpotInstanceRequests"
    try:
        requests = [one for batch_filter in filters for one in describe_all(aws, action, region, Filters=batch_filter)]
    except CloudgpuError:
        return {}
    return {one["InstanceId"]: one for one in requests if "InstanceId" in one}


def with_end_cause(raw: Raw, instance: Instance, request: Raw | None, now: datetime) -> Instance:
    """Return a machine with the cause of its end from its spot request; unchanged if that has none.

    `raw` is the machine as AWS describes it, `instance` the same as cloudgpu does.
    """
    status = (request or {}).get("Status", {})
    code = status.get("Code", "")
    ended_at = _ended_at(raw, code, status.get("UpdateTime"), now)
    if ended_at is None:
        return instance
    return replace(
        instance, since=instance.since or ended_at, reason="interrupted" if code in _INTERRUPTIONS else instance.reason
    )


def _ended_at(raw: Raw, code: str, status_set_at: datetime | None, now: datetime) -> datetime | None:
    """Return when the machine ended by a status of its request, set at that time; None if it is about another event."""
    if status_set_at is None or raw["State"]["Name"] not in _END_CODES.get(code, ()):
        return None
    if code in _INTERRUPTIONS and _cause(raw).startswith("Client."):
        return None  # the user ended it within the two minutes of the notice
    launched_at = raw.get("LaunchTime", status_set_at).replace(microsecond=0)
    if not launched_at <= status_set_at <= now:
        return None  # the status is about an earlier start, or from a clock that differs
    return (min(status_set_at + INTERRUPTION_NOTICE, now) if code == _NO_CAPACITY else status_set_at).astimezone(UTC)


def _cause(raw: Raw) -> str:
    return str(raw.get("StateReason", {}).get("Code", ""))
