"""Machines are ended, stopped and started on our model of AWS, and nothing of them is left that was not to be kept."""

from __future__ import annotations

import math

import pytest

from cloudgpu.core.model.instances import State
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import InstanceNotFound, InvalidRequest, NoCapacity
from tests.clouds.aws.plain import client
from tests.providers.aws.accounts import account, calls, machine, own

UNKNOWN = "us-east-1/i-0123456789abcdef0"


@pytest.fixture
def provider(aws, tmp_path):
    return account(tmp_path)


def disks():
    return client().describe_volumes()["Volumes"]


def requests():
    return [one["State"] for one in client().describe_spot_instance_requests()["SpotInstanceRequests"]]


def test_a_terminated_machine_leaves_no_disk_even_where_it_was_to_stay(aws, provider):
    made = machine(market=Market.SPOT, keep=True)
    provider.terminate(made)
    assert provider.get(made).state is State.TERMINATED
    assert disks() == []


def test_the_disk_is_set_to_go_before_the_machine_is_asked_to_end(aws, provider):
    made = machine(keep=True)
    with calls(aws) as sent:
        provider.terminate(made)
    assert [action for action, _ in sent] == ["DescribeInstances", "ModifyInstanceAttribute", "TerminateInstances"]


def test_a_disk_that_goes_anyway_costs_no_call(aws, provider):
    made = machine()
    with calls(aws) as sent:
        provider.terminate(made)
    assert [action for action, _ in sent] == ["DescribeInstances", "TerminateInstances"]


def test_a_machine_that_a_read_does_not_find_yet_is_ended_all_the_same_with_its_spot_request(aws, provider):
    made = machine(market=Market.SPOT)
    aws.faults.add("DescribeInstances", error="InvalidInstanceID.NotFound")
    with calls(aws) as sent:
        provider.terminate(made)
    assert [action for action, _ in sent] == [
        "DescribeInstances",
        "DescribeSpotInstanceRequests",
        "CancelSpotInstanceRequests",
        "TerminateInstances",
    ]
    assert provider.get(made).state is State.TERMINATED


def test_a_machine_whose_disk_is_to_stay_is_not_ended_before_it_was_seen(aws, provider):
    made = machine()
    aws.faults.add("DescribeInstances", error="InvalidInstanceID.NotFound")
    provider.terminate_keeping_disk(made)
    assert provider.get(made).state is State.RUNNING


@pytest.mark.parametrize("keep", [True, False])
def test_a_machine_is_ended_while_its_disk_stays_with_its_tags(aws, provider, keep):
    made = machine(market=Market.SPOT, keep=keep)
    provider.terminate_keeping_disk(made)
    assert provider.get(made).state is State.TERMINATED
    (disk,) = disks()
    assert disk["State"] == "available"
    assert {"Key": "cloudgpu-id", "Value": "cg-1"} in disk["Tags"]
    provider.terminate_keeping_disk(made)
    assert len(disks()) == 1


def test_a_disk_that_cannot_be_kept_keeps_the_machine_alive(aws, provider):
    made = machine()
    aws.faults.deny("ModifyInstanceAttribute")
    with pytest.raises(Exception, match="ec2:ModifyInstanceAttribute"):
        provider.terminate_keeping_disk(made)
    assert provider.get(made).state is State.RUNNING


def test_a_persistent_request_is_cancelled_before_its_machine_ends(aws, provider):
    made = machine(market=Market.SPOT, persistent=True)
    provider.terminate(made)
    assert requests() == ["cancelled"]
    assert provider.get(made).state is State.TERMINATED
    assert aws.instances(live=True) == []


def test_a_persistent_request_of_a_machine_that_others_ended_is_cancelled_too(aws, provider):
    aws.dwell(shutting_down=math.inf)
    made = machine(market=Market.SPOT, persistent=True)
    client().terminate_instances(InstanceIds=[own(made)])
    provider.terminate(made)
    aws.finish(own(made))
    assert requests() == ["cancelled"]
    assert aws.instances(live=True) == []


def test_the_end_of_what_aws_has_not_is_asked_once_and_is_no_error(aws, provider):
    provider.terminate(UNKNOWN)
    provider.terminate_keeping_disk(UNKNOWN)
    assert [call.error for call in aws.called("TerminateInstances")] == ["InvalidInstanceID.NotFound"]


def test_nothing_is_sent_for_an_id_that_is_none(aws, provider):
    for wrong in ("i-0123456789abcdef0", "us-east-1/i-*", "evil.example/i-0123456789abcdef0", f"{UNKNOWN}\n", ""):
        for ask in (provider.get, provider.stop, provider.start, provider.terminate_keeping_disk, provider.terminate):
            with pytest.raises(InvalidRequest):  # not "not found": AWS was not asked
                ask(wrong)
    assert aws.calls == []


def test_a_one_time_spot_machine_is_not_stopped(aws, provider):
    made = machine(market=Market.SPOT)
    with pytest.raises(InvalidRequest, match="one-time spot") as refused:
        provider.stop(made)
    assert refused.value.field == "instance"
    assert aws.called("StopInstances") == []
    assert provider.get(made).state is State.RUNNING


def test_a_persistent_spot_machine_is_stopped_and_started(aws, provider):
    made = machine(market=Market.SPOT, persistent=True)
    provider.stop(made)
    assert provider.get(made).state is State.STOPPED
    provider.start(made)
    assert provider.get(made).state is State.RUNNING


def test_a_machine_that_is_just_starting_is_stopped_once_it_runs(aws, tmp_path):
    aws.dwell(pending=10)
    waits = []
    provider = account(tmp_path, pause=lambda seconds: (waits.append(seconds), aws.advance(seconds)))
    made = machine()
    provider.stop(made)
    assert len(waits) > 1  # the model's clock goes on by itself, too: a slow call is part of the wait
    assert provider.get(made).state is State.STOPPED


@pytest.mark.soak
def test_a_machine_that_never_comes_up_is_said_so(aws, provider):
    aws.dwell(pending=math.inf)
    with pytest.raises(InvalidRequest, match="still starting"):
        provider.stop(machine())


def test_starting_while_it_stops_is_refused_with_the_way_out(aws, provider):
    made = machine()
    aws.dwell(stopping=math.inf)
    provider.stop(made)
    provider.stop(made)
    with pytest.raises(InvalidRequest, match="just stopping"):
        provider.start(made)


@pytest.mark.parametrize("status", [400, 500])
def test_a_start_without_capacity_says_so_and_keeps_the_machine(aws, provider, status, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    made = machine()
    provider.stop(made)
    aws.faults.add("StartInstances", error="InsufficientInstanceCapacity", status=status)
    with pytest.raises(NoCapacity):
        provider.start(made)
    assert provider.get(made).state is State.STOPPED


def test_what_has_ended_can_neither_be_stopped_nor_started(aws, provider):
    made = machine()
    provider.terminate(made)
    for ask in (provider.stop, provider.start):
        with pytest.raises(InstanceNotFound, match="terminated"):
            ask(made)


def test_a_tag_is_set_in_one_call_and_none_for_none(aws, provider):
    made = machine()
    with calls(aws) as sent:
        provider.tag(made, {})
        provider.tag(made, {"cloudgpu-hold-until": "1800000000", "cloudgpu-expires": "1"})
    assert [action for action, _ in sent] == ["CreateTags"]
    assert provider.get(made).tags == {
        "cloudgpu-id": "cg-1",
        "cloudgpu-ledger": "led-1",
        "cloudgpu-hold-until": "1800000000",
        "cloudgpu-expires": "1",
    }
    with pytest.raises(InstanceNotFound):
        provider.tag(UNKNOWN, {"cloudgpu-expires": "1"})


def test_a_request_that_aws_does_not_know_keeps_no_machine_on(aws, provider):
    made = machine(market=Market.SPOT)
    aws.faults.add("CancelSpotInstanceRequests", error="InvalidSpotInstanceRequestID.NotFound")
    provider.terminate(made)
    assert provider.get(made).state is State.TERMINATED
