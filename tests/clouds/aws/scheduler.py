"""EventBridge Scheduler as our model has it: schedules that fire on its clock, and call its own EC2 by their role.

moto stores schedules, ignores client tokens and prefixes, and never fires. What is refused and in which words is from
the API reference and the user guide; that a time that is over is refused, and what is retried how often, is belief.
"""

from __future__ import annotations

import itertools
import json
import re
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from moto.ec2.exceptions import EC2ClientError
from moto.iam.models import iam_backends

from tests.clouds.aws import ec2
from tests.clouds.aws.calls import Call
from tests.clouds.aws.errors import AwsError
from tests.clouds.aws.iam import Judge
from tests.clouds.aws.model import ACCOUNT, Model, fingerprint_of

PAGE = 100  # schedules in an answer, at most
RETRY_S = 60.0  # belief: the user guide says "exponential backoff", and not how long
ALL_DAY = {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185}  # where a target says nothing
_AT = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_TARGET = re.compile(r"arn:aws:scheduler:::aws-sdk:ec2:(stopInstances|terminateInstances)")
_NAME = re.compile(r"[0-9A-Za-z\-_.]{1,64}")
_CALLS = {"stopInstances": "StopInstances", "terminateInstances": "TerminateInstances"}
Schedule = dict[str, Any]


class Fired(NamedTuple):
    """One call that a schedule made: when on the model's clock, which, of what, and the error that came of it."""

    at: datetime
    name: str
    action: str
    ids: tuple[str, ...]
    error: str


def answer(model: Model, call: Call) -> dict[str, Any]:
    """Answer a call; raise AwsError for what AWS would refuse."""
    answers = {
        "CreateScheduleGroup": _create_group,
        "DeleteScheduleGroup": _delete_group,
        "CreateSchedule": _create,
        "UpdateSchedule": _update,
        "GetSchedule": _get,
        "DeleteSchedule": _delete,
        "ListSchedules": _list,
    }
    if call.action not in answers:
        raise NotImplementedError(call.action)
    return answers[call.action](model, call.region, call.parameters)


def next_due(model: Model) -> datetime | None:
    """Return when the next schedule of all regions fires."""
    return min((at for key, (at, _) in model.due.items() if key.startswith("schedule:")), default=None)


def _create_group(model: Model, region: str, asked: dict[str, Any]) -> dict[str, Any]:
    key = (region, asked["Name"])
    if key in model.schedule_groups:
        raise AwsError("ConflictException", f"Schedule group {asked['Name']} already exists.", 409)
    model.schedule_groups.add(key)
    return {"ScheduleGroupArn": _arn("schedule-group", region, asked["Name"])}


def _delete_group(model: Model, region: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Delete a group with its schedules; AWS takes a while for those, which is not modelled."""
    for key in [key for key in model.schedules if key[:2] == (region, asked["Name"])]:
        _forget(model, key)
    model.schedule_groups.discard((region, asked["Name"]))
    return {}


def _create(model: Model, region: str, asked: dict[str, Any]) -> dict[str, Any]:
    key = _key(region, asked)
    _check_group(model, key)
    token, given = asked.get("ClientToken"), {name: one for name, one in asked.items() if name != "ClientToken"}
    there = model.schedules.get(key)
    if there is not None and token and (token, fingerprint_of(given)) == there["made_by"]:
        return {"ScheduleArn": there["Arn"]}
    if there is not None:
        raise AwsError("ConflictException", f"Schedule {asked['Name']} already exists.", 409)
    schedule = _checked(model, region, given) | {"made_by": (token, fingerprint_of(given))}
    schedule["CreationDate"] = schedule["LastModificationDate"]
    _keep(model, key, schedule)
    return {"ScheduleArn": schedule["Arn"]}


def _update(model: Model, region: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Replace all of it: what is left out takes its default again (API reference, UpdateSchedule)."""
    key = _key(region, asked)
    there = _known(model, key)
    given = {name: one for name, one in asked.items() if name != "ClientToken"}
    kept = {name: there[name] for name in ("CreationDate", "made_by")}
    _keep(model, key, _checked(model, region, given) | kept)
    return {"ScheduleArn": there["Arn"]}


def _get(model: Model, region: str, asked: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in _known(model, _key(region, asked)).items() if name != "made_by"}


def _delete(model: Model, region: str, asked: dict[str, Any]) -> dict[str, Any]:
    key = _key(region, asked)
    _known(model, key)
    _forget(model, key)
    return {}


def _list(model: Model, region: str, asked: dict[str, Any]) -> dict[str, Any]:
    group, prefix = asked.get("GroupName"), asked.get("NamePrefix", "")
    if group is not None and (region, group) not in model.schedule_groups:
        raise AwsError("ResourceNotFoundException", f"Schedule group {group} does not exist.", 404)
    meant = sorted(key for key in model.schedules if key[0] == region and group in (None, key[1]))
    found = [model.schedules[key] for key in meant if key[2].startswith(prefix)]
    begin, size = int(asked.get("NextToken") or 0), int(asked.get("MaxResults") or PAGE)
    shown = ("Arn", "Name", "GroupName", "State", "CreationDate", "LastModificationDate")
    page = [
        {name: one[name] for name in shown} | {"Target": {"Arn": one["Target"]["Arn"]}}
        for one in found[begin : begin + size]
    ]
    return {"Schedules": page} | ({"NextToken": str(begin + size)} if begin + size < len(found) else {})


def _checked(model: Model, region: str, asked: dict[str, Any]) -> Schedule:
    """Return the schedule as AWS keeps it; raise ValidationException for what it would not take."""
    name, group, target = asked["Name"], asked.get("GroupName", "default"), dict(asked["Target"])
    if not _NAME.fullmatch(name) or not _TARGET.fullmatch(target["Arn"]):
        raise AwsError("ValidationException", f"{name}, {target['Arn']}: not what this model knows.")
    if asked["FlexibleTimeWindow"] != {"Mode": "OFF"} or asked.get("ScheduleExpressionTimezone", "UTC") != "UTC":
        raise AwsError("ValidationException", "Only times to the minute in UTC are modelled.")
    if not _assumed(region, group, target["RoleArn"]):
        said = "The execution role you provide must allow AWS EventBridge Scheduler to assume the role."
        raise AwsError("ValidationException", said)
    json.loads(target["Input"])
    schedule = {"State": "ENABLED", "ActionAfterCompletion": "NONE", "ScheduleExpressionTimezone": "UTC", **asked}
    schedule |= {"Arn": _arn("schedule", region, f"{group}/{name}"), "GroupName": group}
    schedule |= {"LastModificationDate": model.now().timestamp(), "Target": {"RetryPolicy": ALL_DAY, **target}}
    first = _first(model, schedule)
    if first < model.now():
        raise AwsError("ValidationException", "Invalid Schedule Expression: the time is over.")
    return schedule


def _first(model: Model, schedule: Schedule) -> datetime:
    """Return when it fires first: a rate's start date is its first occurrence (user guide, Schedule types)."""
    once = _AT.fullmatch(schedule["ScheduleExpression"])
    if once:
        return datetime.fromisoformat(once[1]).replace(tzinfo=UTC)
    if not _RATE.fullmatch(schedule["ScheduleExpression"]):
        raise AwsError("ValidationException", f"Invalid Schedule Expression {schedule['ScheduleExpression']}.")
    start = schedule.get("StartDate")
    return model.now() if start is None else datetime.fromtimestamp(float(start), UTC)


def _keep(model: Model, key: tuple[str, str, str], schedule: Schedule) -> None:
    model.schedules[key] = schedule
    model.due.pop(_due(key), None)
    if schedule["State"] == "ENABLED":
        _plan(model, key, _first(model, schedule), begun=None, tries=0)


def _plan(model: Model, key: tuple[str, str, str], at: datetime, *, begun: datetime | None, tries: int) -> None:
    model.due[_due(key)] = (at, lambda: _fire(model, key, begun or at, tries))


def _fire(model: Model, key: tuple[str, str, str], begun: datetime, tries: int) -> None:
    """Make the call; when it is refused, again, as long as the retry policy says."""
    schedule = model.schedules[key]
    error, target = _called(key[0], schedule), schedule["Target"]
    action = _CALLS[_TARGET.fullmatch(target["Arn"])[1]]
    ids = tuple(json.loads(target["Input"])["InstanceIds"])
    model.fired.append(Fired(model.now(), key[2], action, ids, error))
    policy, soon = target["RetryPolicy"], model.now() + timedelta(seconds=RETRY_S)
    lasts = soon - begun <= timedelta(seconds=policy["MaximumEventAgeInSeconds"])
    if error and tries < policy["MaximumRetryAttempts"] and lasts:
        _plan(model, key, soon, begun=begun, tries=tries + 1)
        return
    every = _RATE.fullmatch(schedule["ScheduleExpression"])
    if every:
        span = timedelta(**{f"{every[2]}s": int(every[1])})
        later = next(at for at in (begun + span * turn for turn in itertools.count(1)) if at > model.now())
        _plan(model, key, later, begun=None, tries=0)
    elif schedule["ActionAfterCompletion"] == "DELETE":
        _forget(model, key)


def _called(region: str, schedule: Schedule) -> str:
    """Call EC2 as the schedule's role may; return the error's code, empty where it went well."""
    target = schedule["Target"]
    verb = _TARGET.fullmatch(target["Arn"])[1]
    asked = json.loads(target["Input"])
    call = Call(0, "ec2", _CALLS[verb], region, asked, "")
    if not _assumed(region, schedule["GroupName"], target["RoleArn"]) or not _allowed(target["RoleArn"], call):
        return "AccessDenied"
    made = ec2.Ec2()
    made.region, made.current_account, made.params, made.uri_match = region, ACCOUNT, asked, {}
    try:
        made.stop_instances() if verb == "stopInstances" else made.terminate_instances()
    except EC2ClientError as refused:
        return str(refused.code)
    return ""


def _assumed(region: str, group: str, arn: str) -> bool:
    """Say whether a role is there and lets this service in, on behalf of this account's schedules of this group."""
    role = _role(arn)
    if role is None:
        return False
    trust = json.loads(role.assume_role_policy_document)
    given = {"aws:SourceAccount": ACCOUNT, "aws:SourceArn": _arn("schedule-group", region, group)}
    return any(_trusts(statement, given) for statement in trust["Statement"])


def _trusts(statement: dict[str, Any], given: dict[str, str]) -> bool:
    if statement["Principal"].get("Service") != "scheduler.amazonaws.com":
        return False
    wanted = [pair for block in statement.get("Condition", {}).values() for pair in block.items()]
    return all(fnmatchcase(given[key], pattern) for key, pattern in wanted)


def _allowed(arn: str, call: Call) -> bool:
    documents = [json.loads(text) for text in _role(arn).policies.values()]
    judges = [Judge(document) for document in documents]
    for judge in judges:
        judge.see(call)
    return any(not judge.faults for judge in judges)


def _role(arn: str) -> Any:
    roles = iam_backends[ACCOUNT]["aws"].roles.values()
    return next((role for role in roles if role.arn == arn), None)


def _key(region: str, asked: dict[str, Any]) -> tuple[str, str, str]:
    return region, asked.get("GroupName", "default"), asked["Name"]


def _known(model: Model, key: tuple[str, str, str]) -> Schedule:
    if key not in model.schedules:
        raise AwsError("ResourceNotFoundException", f"Schedule {key[2]} does not exist.", 404)
    return model.schedules[key]


def _check_group(model: Model, key: tuple[str, str, str]) -> None:
    if key[:2] not in model.schedule_groups and key[1] != "default":
        raise AwsError("ResourceNotFoundException", f"Schedule group {key[1]} does not exist.", 404)


def _forget(model: Model, key: tuple[str, str, str]) -> None:
    model.schedules.pop(key, None)
    model.due.pop(_due(key), None)


def _due(key: tuple[str, str, str]) -> str:
    return "schedule:" + "/".join(key)


def _arn(kind: str, region: str, rest: str) -> str:
    return f"arn:aws:scheduler:{region}:{ACCOUNT}:{kind}/{rest}"
