"""The timer in the cloud: an EventBridge schedule per machine, which calls EC2 even if nothing of cloudgpu runs.

A schedule's name has the ledger's and the machine's id. `at(...)` fires once and AWS deletes it then. A machine of a
persistent spot request is stopped every ten minutes from then on instead: "Only
Amazon EC2 can restart an interrupted stopped Spot Instance" (EC2 user guide, Behavior of Spot Instance interruptions),
and a single stop of one that AWS has interrupted at that minute would not keep AWS from starting it later. Once this
timer has stopped it while it ran, its request is disabled and launches nothing. Cancelling the request would end the
machine, and its disk: "If you cancel a Spot Instance request, Amazon EC2 terminates any associated Spot Instances that
are stopped" (there).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.abilities import TimerAction
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.client import Aws, call_tolerating, pages
from cloudgpu.providers.aws.compute.listing import describe_raw
from cloudgpu.providers.aws.compute.power import is_one_time, raise_if_ended
from cloudgpu.providers.aws.errors import code_of
from cloudgpu.providers.shared.calls import by_item, check_all_answered
from cloudgpu.providers.shared.errors import Tolerating

SCHEDULE_GROUP = "cloudgpu"
MIN_DELAY = timedelta(minutes=2)  # "schedules invoke their targets with 60 second precision" (user guide)
STOP_AGAIN_RATE = "rate(10 minutes)"
MAX_PARALLEL = 8  # schedules that are read at the same time
PAGE_SIZE = 100  # schedules in an answer: the most that AWS gives
# A call that failed is repeated by AWS for a day, at most 185 times: the most that it can be told.
RETRY_POLICY = {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185}
ALREADY_EXISTS, NOT_FOUND = "ConflictException", "ResourceNotFoundException"
_AT_EXPRESSION = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")


def why_no_timer(aws: Aws) -> str:
    """Return why this account has no timers; empty where it names their role."""
    if aws.options.timer_role:
        return ""
    return (
        "no timer in the cloud ends it if its agent and the reaper both fail. cloudgpu init aws makes its role "
        f"(accounts.{aws.account}.timer_role)"
    )


def set_timer(aws: Aws, id: str, at: datetime, action: TimerAction | None) -> None:  # noqa: A002
    """Create the machine's schedule, or replace it.

    One call; two where there is one already, three for the first of a region. Up to two more where `action` is None.
    """
    region, native_id = ids.split_machine_id(id)
    if why_no_timer(aws):
        field = f"accounts.{aws.account}.timer_role"
        raise InvalidRequest(f"{id} gets none: {why_no_timer(aws)}.", field=field, next="Run: cloudgpu init aws")
    parameters = _schedule(aws, region, native_id, at, action or _default_action(aws, id))
    answer = _call_scheduler(aws, region, "CreateSchedule", tolerated=(ALREADY_EXISTS, NOT_FOUND), **parameters)
    if answer == NOT_FOUND:
        _call_scheduler(aws, region, "CreateScheduleGroup", tolerated=(ALREADY_EXISTS,), Name=SCHEDULE_GROUP)
        answer = _call_scheduler(aws, region, "CreateSchedule", tolerated=(ALREADY_EXISTS,), **parameters)
    if answer == ALREADY_EXISTS:
        _call_scheduler(aws, region, "UpdateSchedule", **parameters)


def drop_timer(aws: Aws, id: str) -> None:  # noqa: A002
    """Delete the machine's schedule; none is no error. One call. None without the role: an older schedule stays."""
    region, native_id = ids.split_machine_id(id)
    if not why_no_timer(aws):
        _call_scheduler(
            aws,
            region,
            "DeleteSchedule",
            tolerated=(NOT_FOUND,),
            GroupName=SCHEDULE_GROUP,
            Name=_schedule_name(aws, native_id),
        )


def timer(aws: Aws, id: str) -> datetime | None:  # noqa: A002
    """Return when the machine's schedule fires; None for none. One call, two where there is none."""
    region, native_id = ids.split_machine_id(id)
    found = None if why_no_timer(aws) else _start_time(aws, region, _schedule_name(aws, native_id))
    if found is None:
        describe_raw(aws, region, native_id)  # raises InstanceNotFound
    return found


def timers(aws: Aws, region: str | None = None, machine_ids: Collection[str] | None = None) -> dict[str, datetime]:
    """Return when each schedule of this ledger fires: a call per region and hundred, and one per schedule.

    ListSchedules names them, and not when they fire. `machine_ids`: only the schedules of these machines are read.
    """
    if why_no_timer(aws) or (machine_ids is not None and not machine_ids):
        return {}
    regions = (region,) if region else aws.regions()
    machines = None if machine_ids is None else {ids.split_machine_id(one) for one in machine_ids}
    if machines is not None:
        regions = tuple(sorted({machine_region for machine_region, _ in machines if region in (None, machine_region)}))
    answers, unanswered = aws.ask_each(regions, lambda one: _timers_of_region(aws, one, machines))
    check_all_answered(unanswered, "{scope} did not say which timers it has")
    return {
        ids.join_id(one, native_id): fires_at for one, found in answers.items() for native_id, fires_at in found.items()
    }


def _timers_of_region(aws: Aws, region: str, machines: Collection[tuple[str, str]] | None) -> dict[str, datetime]:
    """Return when the schedules of a region fire, by AWS's id of the machine; `machines`: (region, id); None: all."""
    names = [
        one for one in _schedule_names(aws, region) if machines is None or (region, one.rpartition(".")[2]) in machines
    ]
    times = by_item(names, lambda name: _start_time(aws, region, name), MAX_PARALLEL)
    return {name.rpartition(".")[2]: fires_at for name, fires_at in times.items() if fires_at is not None}


def _schedule_names(aws: Aws, region: str) -> Iterator[str]:
    client = aws.client("scheduler", region)
    filters = {"GroupName": SCHEDULE_GROUP, "NamePrefix": f"{_name_prefix(aws)}."}
    # it has no group in a region in which no timer was ever set
    with Tolerating(code_of, NOT_FOUND), aws.calling("scheduler:ListSchedules", region):
        for page in pages(client, "list_schedules", PaginationConfig={"PageSize": PAGE_SIZE}, **filters):
            yield from (one["Name"] for one in page["Schedules"])


def _start_time(aws: Aws, region: str, name: str) -> datetime | None:
    found = _call_scheduler(aws, region, "GetSchedule", tolerated=(NOT_FOUND,), GroupName=SCHEDULE_GROUP, Name=name)
    if not isinstance(found, dict) or found.get("State") == "DISABLED":  # by somebody, in AWS's console: it never fires
        return None
    one_time_at = _AT_EXPRESSION.fullmatch(found["ScheduleExpression"])
    if one_time_at:
        return datetime.fromisoformat(one_time_at[1]).replace(tzinfo=UTC)
    started: datetime | None = found.get("StartDate")
    return started and started.astimezone(UTC)


def _schedule(aws: Aws, region: str, native_id: str, at: datetime, action: TimerAction) -> dict[str, Any]:
    """Return the parameters of CreateSchedule and of UpdateSchedule, which replaces all of a schedule.

    The SDK gives each call a client token of its own. One derived from the time would make AWS ignore the
    call that moves a schedule back to an earlier time: it would look like a repeated call.
    """
    role = aws.options.timer_role or ""
    verb = "terminateInstances" if action is TimerAction.TERMINATE else "stopInstances"
    fires_at = max(at, aws.clock() + MIN_DELAY).astimezone(UTC).replace(microsecond=0, tzinfo=None)
    is_repeated = action is TimerAction.STOP_AGAIN
    recurrence = (
        {"ScheduleExpression": STOP_AGAIN_RATE, "StartDate": fires_at.replace(tzinfo=UTC)} if is_repeated else {}
    )
    return {
        "GroupName": SCHEDULE_GROUP,
        "Name": _schedule_name(aws, native_id),
        # what AWS's console shows; "here": the schedule acts where none of cloudgpu's own processes has
        "Description": f"cloudgpu ends {ids.join_id(region, native_id)} here when nothing else has",
        "ScheduleExpression": f"at({fires_at.isoformat()})",
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "NONE" if is_repeated else "DELETE",
        "Target": {
            "Arn": f"arn:{role.split(':')[1]}:scheduler:::aws-sdk:ec2:{verb}",
            "RoleArn": role,
            "Input": json.dumps({"InstanceIds": [native_id]}),
            "RetryPolicy": RETRY_POLICY,
        },
    } | recurrence


def _default_action(aws: Aws, id: str) -> TimerAction:  # noqa: A002
    """Return what a timer does with a machine where the caller does not say it. One call, two for one on spot."""
    region, native_id = ids.split_machine_id(id)
    raw: Mapping[str, Any] = describe_raw(aws, region, native_id)
    raise_if_ended(id, raw["State"]["Name"])
    if raw.get("SpotInstanceRequestId") is None:
        return TimerAction.STOP
    return TimerAction.TERMINATE if is_one_time(aws, region, raw) else TimerAction.STOP_AGAIN


def _schedule_name(aws: Aws, native_id: str) -> str:
    return f"{_name_prefix(aws)}.{native_id}"


def _name_prefix(aws: Aws) -> str:
    return aws.ledger or "any"


def _call_scheduler(aws: Aws, region: str, action: str, *, tolerated: tuple[str, ...] = (), **parameters: Any) -> Any:
    """Call EventBridge Scheduler; return its answer (a dict), or, as text, the code of an error in `tolerated`."""
    client, name = aws.client("scheduler", region), str(parameters["Name"])
    return call_tolerating(aws, client, action, region, f"scheduler:{action}", name, tolerated, **parameters)
