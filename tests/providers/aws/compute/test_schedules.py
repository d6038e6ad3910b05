"""Timers on our model of EventBridge Scheduler: what is sent, what it costs in calls, what fires and what must not."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

from cloudgpu.core.model.instances import State
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import AuthFailed, InstanceNotFound, InvalidRequest, ProviderUnavailable
from cloudgpu.providers.abilities import TimerAction
from cloudgpu.providers.aws.account.roles import timer_trust
from cloudgpu.providers.aws.compute import schedules as timer
from cloudgpu.providers.aws.provider import AwsProvider
from cloudgpu.providers.base import ProviderSettings
from tests.clouds.aws.plain import client, launch, role_of_timers
from tests.providers.aws.accounts import calls, impatient, machine, own

HOUR = timedelta(hours=1)
LEDGER = "led-1"


def account(aws, home, *, ledger=LEDGER, **options):
    """Return the provider of an account on the model's clock, with the role of timers where no option says else."""
    table = {"regions": ["us-east-1", "us-west-2"], "timer_role": "made", **options}
    if table["timer_role"] == "made":
        table["timer_role"] = role_of_timers()
    table = {key: value for key, value in table.items() if value is not None}
    return AwsProvider(ProviderSettings("lab", table, home, aws.model.now, lambda _: None, ledger))


@pytest.fixture
def provider(aws, tmp_path):
    return account(aws, tmp_path)


@pytest.fixture
def at(aws):
    """An hour from now on the model's clock, to the second."""
    return aws.model.now().replace(microsecond=0) + HOUR


def schedules(region="us-east-1", group="cloudgpu"):
    scheduler = client("scheduler", region)
    found = scheduler.list_schedules(GroupName=group)["Schedules"]
    return [scheduler.get_schedule(GroupName=group, Name=one["Name"]) for one in found]


def state(aws, id):  # noqa: A002
    return aws.instance(own(id)).state


def asked(made):
    return [action for action, _ in made]


# What is sent


@pytest.mark.soak
def test_a_schedule_is_made_as_aws_documents_it(provider, at):
    id_ = machine()
    provider.set_timer(id_, at)
    (found,) = schedules()
    assert (found["Name"], found["GroupName"]) == (f"{LEDGER}.{own(id_)}", "cloudgpu")
    assert found["ScheduleExpression"] == f"at({at:%Y-%m-%dT%H:%M:%S})"
    assert found["ScheduleExpressionTimezone"] == "UTC"
    assert (found["FlexibleTimeWindow"], found["ActionAfterCompletion"]) == ({"Mode": "OFF"}, "DELETE")
    target = found["Target"]
    assert target["Arn"] == "arn:aws:scheduler:::aws-sdk:ec2:stopInstances"
    assert json.loads(target["Input"]) == {"InstanceIds": [own(id_)]}
    assert target["RoleArn"] == "arn:aws:iam::123456789012:role/cloudgpu-timer"
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185}


@pytest.mark.parametrize(
    ("how", "verb", "again"),
    [
        ({}, "stopInstances", False),
        ({"market": Market.SPOT}, "terminateInstances", False),
        ({"market": Market.SPOT, "persistent": True}, "stopInstances", True),
    ],
    ids=["on demand", "one-time spot", "persistent spot"],
)
def test_what_it_does_follows_from_what_the_machine_is(aws, provider, at, how, verb, again):
    provider.set_timer(machine(**how), at)
    (found,) = schedules()
    assert found["Target"]["Arn"].endswith(f":{verb}")
    assert found["ScheduleExpression"].startswith("rate(" if again else "at(")
    assert not again or found["StartDate"].astimezone(UTC) == at


def test_an_update_says_everything_again_for_it_replaces_all(aws, provider, at):
    id_ = machine()
    provider.set_timer(id_, at)
    before = schedules()
    provider.set_timer(id_, at + HOUR)
    (moved,) = schedules()
    assert moved["ActionAfterCompletion"] == "DELETE"
    assert moved["Target"] == before[0]["Target"]
    assert provider.timer(id_) == at + HOUR


def test_a_partition_of_its_own_has_targets_of_its_own(aws, tmp_path, at):
    role = "arn:aws-cn:iam::123456789012:role/cloudgpu-timer"
    provider = account(aws, tmp_path, timer_role=role)
    with pytest.raises(InvalidRequest):  # our model knows one partition
        provider.set_timer(machine(), at, action=TimerAction.STOP)
    *_, call = (one for one in aws.called("CreateSchedule") if "arn:aws-cn" in one.parameters["Target"]["Arn"])
    assert call.parameters["Target"]["Arn"] == "arn:aws-cn:scheduler:::aws-sdk:ec2:stopInstances"


def test_calls_are_counted(aws, provider, at):
    one, other = machine(), machine()
    for id_, when, wanted in (
        (one, at, ["CreateSchedule", "CreateScheduleGroup", "CreateSchedule"]),  # the first of a region
        (other, at, ["CreateSchedule"]),
        (other, at + HOUR, ["CreateSchedule", "UpdateSchedule"]),
    ):
        with calls(aws) as made:
            provider.set_timer(id_, when, action=TimerAction.STOP)
        assert asked(made) == wanted
    with calls(aws) as made:
        provider.set_timer(one, at)
    assert asked(made) == ["DescribeInstances", "CreateSchedule", "UpdateSchedule"]
    with calls(aws) as made:
        provider.drop_timer(one)
        provider.drop_timer(one)
    assert asked(made) == ["DeleteSchedule"] * 2
    with calls(aws) as made:
        assert provider.timer(other) == at + HOUR
    assert asked(made) == ["GetSchedule"]
    with calls(aws) as made:
        assert provider.timer(one) is None
    assert asked(made) == ["GetSchedule", "DescribeInstances"]


def test_a_lost_reply_makes_no_second_schedule_and_no_fault(aws, provider, at, monkeypatch):
    impatient(monkeypatch)
    id_ = machine()
    aws.faults.lose_reply("CreateSchedule", service="scheduler")
    provider.set_timer(id_, at)
    assert [one["Name"] for one in schedules()] == [f"{LEDGER}.{own(id_)}"]


@pytest.mark.soak
def test_a_schedule_that_was_moved_away_and_back_is_where_it_was_set_last(provider, at):
    id_ = machine()
    for when in (at, at + HOUR, at):
        provider.set_timer(id_, when)
    assert provider.timer(id_) == at


# What fires


def test_it_fires_at_its_time_and_aws_deletes_it_then(aws, provider, at):
    id_ = machine()
    provider.set_timer(id_, at)
    aws.advance(3_500)
    assert state(aws, id_) == "running"
    aws.advance(200)
    assert state(aws, id_) == "stopped"
    (fired,) = aws.model.fired
    assert timedelta() <= fired.at - at < timedelta(minutes=1)
    assert schedules() == []
    assert provider.timer(id_) is None


def test_a_time_that_is_over_fires_within_minutes(aws, provider):
    id_ = machine()
    provider.set_timer(id_, aws.model.now() - HOUR)
    aws.advance(180)
    assert state(aws, id_) == "stopped"


def test_a_machine_that_is_just_starting_at_that_minute_is_stopped_by_a_later_try(aws, provider, at):
    id_ = machine()
    provider.set_timer(id_, at)
    provider.stop(id_)
    aws.advance(3_590)
    aws.dwell(pending=150)
    client().start_instances(InstanceIds=[own(id_)])
    aws.advance(400)
    assert [one.error for one in aws.model.fired] == ["IncorrectInstanceState"] * 3 + [""]
    assert state(aws, id_) == "stopped"


def test_a_dropped_timer_does_not_fire(aws, provider, at):
    id_ = machine()
    provider.set_timer(id_, at)
    provider.drop_timer(id_)
    aws.advance(7_200)
    assert (state(aws, id_), aws.model.fired) == ("running", [])


def test_a_persistent_machine_that_aws_held_at_that_minute_and_starts_later_is_stopped_then_for_good(aws, provider, at):
    id_ = machine(market=Market.SPOT, persistent=True)
    provider.set_timer(id_, at)
    aws.advance(3_000)
    aws.interrupt(own(id_))
    assert state(aws, id_) == "stopped"
    aws.advance(3_000)  # the timer has fired, on a machine that was stopped
    client().start_instances(InstanceIds=[own(id_)])  # as EC2 does by itself when there is capacity again
    assert state(aws, id_) == "running"
    aws.advance(600)
    assert state(aws, id_) == "stopped"
    (request,) = client().describe_spot_instance_requests()["SpotInstanceRequests"]
    assert request["State"] == "disabled"  # so it launches nothing any more


def test_the_role_lets_no_schedule_touch_a_machine_without_our_tag(aws, provider, at):
    ours, others = machine(), f"us-east-1/{launch(client())['InstanceId']}"
    for id_ in (ours, others):
        provider.set_timer(id_, at)
    aws.advance(3_700)
    assert (state(aws, ours), state(aws, others)) == ("stopped", "running")
    assert {one.error for one in aws.model.fired if own(others) in one.ids} == {"AccessDenied"}


def test_a_role_that_is_taken_away_makes_every_timer_harmless(aws, provider, at):
    id_ = machine()
    provider.set_timer(id_, at)
    provider.remove_timer_role()  # not tagged by init: left alone
    client("iam").delete_role_policy(RoleName="cloudgpu-timer", PolicyName="cloudgpu-timer")
    client("iam").delete_role(RoleName="cloudgpu-timer")
    aws.advance(3_700)
    assert state(aws, id_) == "running"


# What is refused


def test_without_a_role_nothing_is_asked_and_the_way_out_is_said(aws, tmp_path, at):
    provider = account(aws, tmp_path, timer_role=None)
    id_ = machine()
    assert "cloudgpu init aws" in provider.why_no_timer()
    with calls(aws) as made:
        provider.drop_timer(id_)
        assert provider.timers() == {}
        with pytest.raises(InvalidRequest) as refused:
            provider.set_timer(id_, at)
    assert asked(made) == []
    assert refused.value.field == "accounts.lab.timer_role"
    assert provider.timer(id_) is None


def test_a_role_that_is_no_arn_is_refused_before_anything(aws, tmp_path):
    with pytest.raises(InvalidRequest) as refused:
        account(aws, tmp_path, timer_role="cloudgpu-timer")
    assert "ARN" in refused.value.message


@pytest.mark.parametrize("trusts", [timer_trust("999999999999", "aws"), {"Version": "2012-10-17", "Statement": []}])
def test_a_role_that_schedules_of_this_account_may_not_take_is_refused(aws, tmp_path, at, trusts):
    if not trusts["Statement"]:
        service = {"Service": "ec2.amazonaws.com"}
        trusts = {**trusts, "Statement": [{"Effect": "Allow", "Principal": service, "Action": "sts:AssumeRole"}]}
    provider = account(aws, tmp_path, timer_role=role_of_timers(trust=trusts))
    with pytest.raises(InvalidRequest) as refused:
        provider.set_timer(machine(), at)
    assert "must allow AWS EventBridge Scheduler to assume the role" in refused.value.message


def test_a_missing_permission_is_named(aws, provider, at):
    id_ = machine()
    aws.faults.deny("CreateSchedule", service="scheduler")
    with pytest.raises(AuthFailed) as denied:
        provider.set_timer(id_, at)
    assert denied.value.value == "scheduler:CreateSchedule"


def test_a_machine_that_has_ended_gets_no_timer(aws, provider, at):
    id_ = machine()
    provider.terminate(id_)
    with pytest.raises(InstanceNotFound):
        provider.set_timer(id_, at)


# Which there are


@pytest.mark.soak
def test_the_timers_of_all_regions_are_listed_page_by_page_and_nobody_elses(aws, provider, tmp_path, at, monkeypatch):
    monkeypatch.setattr(timer, "PAGE_SIZE", 2)
    ours = [machine() for _ in range(3)] + [machine("us-west-2")]
    for id_ in ours:
        provider.set_timer(id_, at)
    other = account(aws, tmp_path, ledger="led-2", timer_role="arn:aws:iam::123456789012:role/cloudgpu-timer")
    other.set_timer(machine(), at)
    with calls(aws) as made:
        assert provider.timers() == dict.fromkeys(ours, at)
    assert sorted(made) == sorted(
        [("ListSchedules", "us-east-1")] * 2
        + [("ListSchedules", "us-west-2")]
        + [("GetSchedule", id_.partition("/")[0]) for id_ in ours]
    )
    assert provider.timers("us-west-2") == {ours[-1]: at}


def test_the_timers_of_another_ledger_are_not_listed(aws, provider, tmp_path, at):
    ours, theirs = machine(), machine()
    provider.set_timer(ours, at)
    other = account(aws, tmp_path, ledger="led-2", timer_role="arn:aws:iam::123456789012:role/cloudgpu-timer")
    other.set_timer(theirs, at)
    assert provider.timers("us-east-1") == {ours: at}


@pytest.mark.soak
def test_of_some_machines_only_their_own_timers_are_read_in_their_own_regions(aws, provider, at):
    ours = [machine() for _ in range(3)] + [machine("us-west-2")]
    for id_ in ours:
        provider.set_timer(id_, at)
    bare = machine()
    with calls(aws) as made:
        assert provider.timers(ids=[*ours[:2], bare]) == dict.fromkeys(ours[:2], at)
    assert sorted(made) == [*[("GetSchedule", "us-east-1")] * 2, ("ListSchedules", "us-east-1")]
    with calls(aws) as made:
        assert provider.timers(ids=[]) == {}
    assert made == []


def test_a_region_that_does_not_answer_is_named_and_no_part_is_given_out(aws, provider, at, monkeypatch):
    impatient(monkeypatch)
    provider.set_timer(machine(), at)
    aws.faults.offline("us-west-2")
    with pytest.raises(ProviderUnavailable) as silent:
        provider.timers()
    assert silent.value.value == "us-west-2"
    assert list(provider.timers("us-east-1").values()) == [at]


# The model itself


def test_the_model_knows_a_client_token_and_no_name_twice(provider, at):
    provider.set_timer(machine(), at)
    scheduler, (known,) = client("scheduler"), schedules()
    asked_for = {name: known[name] for name in ("GroupName", "ScheduleExpression", "FlexibleTimeWindow", "Target")}
    twice = {**asked_for, "Name": "another", "ClientToken": "t" * 20}
    assert scheduler.create_schedule(**twice) == scheduler.create_schedule(**twice) | {}
    with pytest.raises(ClientError, match="ConflictException"):
        scheduler.create_schedule(**{**twice, "ClientToken": "u" * 20})


def test_a_schedule_that_somebody_disabled_is_none_and_is_enabled_when_it_is_set_again(aws, provider, at):
    """AWS's console has a button for that; the schedule stays in the lists, and calls nothing at its time."""
    id_ = machine()
    provider.set_timer(id_, at)
    scheduler, (known,) = client("scheduler"), schedules()
    names = ("GroupName", "Name", "ScheduleExpression", "FlexibleTimeWindow", "Target")
    scheduler.update_schedule(**{name: known[name] for name in names}, State="DISABLED")
    assert provider.timer(id_) is None
    assert provider.timers("us-east-1") == {}
    provider.set_timer(id_, at)
    assert provider.timer(id_) == at
    aws.advance(3_700)
    assert state(aws, id_) == "stopped"


def test_a_time_is_read_back_as_it_was_set(provider, at):
    later = datetime(2027, 3, 28, 1, 30, tzinfo=UTC)  # an hour that some time zones do not have
    id_ = machine()
    provider.set_timer(id_, later)
    assert provider.timer(id_) == later
    assert provider.get(id_).state is State.RUNNING
