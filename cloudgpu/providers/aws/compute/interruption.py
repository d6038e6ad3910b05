"""When EC2 took a spot machine, by the status of its request, where the machine's own record bears no time or cause.

EC2 user guide, "Spot request status": `instance-terminated-no-capacity` is "Your instance was terminated due to
standard capacity management processes", `...-by-price` "the Spot price exceeded your maximum price", `...-by-user` was
the user, or a shutdown from inside. Each has its time, `UpdateTime`. "State changes for a Spot request" says of
`instance-terminated-no-capacity` that it is set at once, and that "the instance remains in the running state for 2
minutes to reflect the 2-minute period when the instance receives the Spot Instance interruption notice": it ended then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cloudgpu.core.model.instances import TAG_ID, Instance
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.aws.client import Aws, describe_all
from cloudgpu.providers.aws.compute import translate

Raw = Mapping[str, Any]
NOTICE = timedelta(minutes=2)
MAX_FILTER_VALUES = 200  # values of a filter: the most that EC2 takes
_NOTICED = "instance-terminated-no-capacity"
_TAKEN = {  # codes of an interruption, and the states of a machine in which they are about its end
    _NOTICED: ("shutting-down", "terminated"),
    "instance-terminated-by-price": ("shutting-down", "terminated"),
    "instance-terminated-launch-group-constraint": ("shutting-down", "terminated"),
    "instance-stopped-no-capacity": ("stopping", "stopped"),
    "instance-stopped-by-price": ("stopping", "stopped"),
}
_BY_USER = {
    "instance-terminated-by-user": ("shutting-down", "terminated"),
    "spot-instance-terminated-by-user": ("shutting-down", "terminated"),
    "instance-stopped-by-user": ("stopping", "stopped"),
}
# Not `instance-terminated-by-service`: that one had stopped before, and nothing says when.
_ENDS = _TAKEN | _BY_USER
_OVER = frozenset(state for states in _ENDS.values() for state in states)


def with_causes(aws: Aws, region: str, seen: Sequence[tuple[Raw, Instance]]) -> list[Instance]:
    """Return these machines of a region; those on spot that are over, without a time or a cause, by their requests.

    One call for all of these (by 200), none where there are none. What a request does not say, or was not answered,
    stays as it was: how a machine is, matters more than since when.
    """
    request_ids = [found["SpotInstanceRequestId"] for found, known in seen if _has_no_cause(found, known)]
    requests = _requests(aws, region, "spot-instance-request-id", request_ids)
    now = aws.clock()
    return [by_request(found, known, requests.get(found["InstanceId"]), now) for found, known in seen]


def remembered(aws: Aws, region: str, native_ids: Sequence[str]) -> dict[str, Instance]:
    """Return spot machines of ours that AWS shows no more, by AWS's id, as far as their requests remember them.

    AWS shows an ended machine for about an hour, and "Spot Instance requests are deleted four hours after they are
    canceled and their instances are terminated" (EC2 API reference, DescribeSpotInstanceRequests). One call.
    """
    requests = _requests(aws, region, "instance-id", native_ids)
    ended = {one: _from_request(aws, region, one, request) for one, request in requests.items()}
    return {one: found for one, found in ended.items() if found is not None}


def _from_request(aws: Aws, region: str, native_id: str, request: Raw) -> Instance | None:
    if TAG_ID not in translate.tags_of(request):
        return None
    found = {
        "InstanceId": native_id,
        "InstanceType": request.get("LaunchSpecification", {}).get("InstanceType", ""),
        "InstanceLifecycle": "spot",
        "State": {"Name": "terminated"},
        "LaunchTime": request["CreateTime"],
        "Placement": {"AvailabilityZone": request.get("LaunchedAvailabilityZone", "")},
        "Tags": request["Tags"],
    }
    known = translate.instance(found, account=aws.account, region=region, ssh_port=aws.options.ssh_port)
    ended = by_request(found, known, request, aws.clock())
    return None if ended.since is None else ended


def _has_no_cause(raw: Raw, instance: Instance) -> bool:
    over = raw.get("SpotInstanceRequestId") and raw.get("State", {}).get("Name") in _OVER
    return bool(over) and (instance.since is None or not _cause(raw))


def _requests(aws: Aws, region: str, name: str, ids: Sequence[str]) -> dict[str, Raw]:
    """Return spot requests by the machine that they have now; none where AWS does not answer.

    `name` is a filter, since an id that AWS has forgotten would fail the whole call.
    """
    try:
        return {
            one["InstanceId"]: one
            for one in _describe_requests(aws, region, name, sorted(set(ids)))
            if "InstanceId" in one
        }
    except CloudgpuError:
        return {}


def _describe_requests(aws: Aws, region: str, name: str, ids: Sequence[str]) -> Iterator[Raw]:
    for begin in range(0, len(ids), MAX_FILTER_VALUES):
        meant = [{"Name": name, "Values": list(ids[begin : begin + MAX_FILTER_VALUES])}]
        yield from describe_all(aws, "DescribeSpotInstanceRequests", region, Filters=meant)


def by_request(raw: Raw, instance: Instance, request: Raw | None, now: datetime) -> Instance:
    """Return a machine with the cause of its end from its spot request; unchanged if that has none.

    `raw` is what AWS says of the machine itself, `instance` what that comes to.
    """
    status = (request or {}).get("Status", {})
    code = status.get("Code", "")
    at = _ended_at(raw, code, status.get("UpdateTime"), now)
    if at is None:
        return instance
    return replace(instance, since=instance.since or at, reason="interrupted" if code in _TAKEN else instance.reason)


def _ended_at(raw: Raw, code: str, at: datetime | None, now: datetime) -> datetime | None:
    """Return when the machine ended by this status; None where that is about something else, or cannot be."""
    if at is None or raw["State"]["Name"] not in _ENDS.get(code, ()):
        return None
    if code in _TAKEN and _cause(raw).startswith("Client."):
        return None  # its user was quicker, in the two minutes before EC2 would have ended it
    began = raw.get("LaunchTime", at).replace(microsecond=0)
    if not began <= at <= now:
        return None  # it is about an earlier run, or by another clock
    noticed = code == _NOTICED
    return (min(at + NOTICE, now) if noticed else at).astimezone(UTC)


def _cause(raw: Raw) -> str:
    return str(raw.get("StateReason", {}).get("Code", ""))
