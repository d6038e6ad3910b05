"""Many machines in one call per region on our model of AWS, which fails a call whole for one machine as AWS does."""

from __future__ import annotations

import math
from math import ceil, log2

import pytest

from cloudgpu.core.model.instances import Instance, State
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import AuthFailed, InstanceNotFound, InvalidRequest, ProviderUnavailable
from tests.clouds.aws.plain import client, image
from tests.clouds.aws.quotas import QUOTAS
from tests.providers.aws.accounts import TAGS, account, calls, impatient, machine, own

UNKNOWN = "us-east-1/i-0123456789abcdef0"


@pytest.fixture
def provider(aws, tmp_path):
    aws.model.quotas.update({("", code): 1e6 for code in QUOTAS})
    return account(tmp_path, regions=["us-east-1", "us-west-2"])


def machines(many, region="us-east-1"):
    """Launch so many with one call and return their ids as ours."""
    pairs = [{"Key": key, "Value": value} for key, value in TAGS.items()]
    asked = {"ImageId": image(region), "InstanceType": "g4dn.xlarge", "MinCount": many, "MaxCount": many}
    tagged = [{"ResourceType": "instance", "Tags": pairs}]
    made = client(region=region).run_instances(**asked, TagSpecifications=tagged)["Instances"]
    return [f"{region}/{one['InstanceId']}" for one in made]


def states(aws, ids):
    return {aws.instance(own(one)).state for one in ids}


def test_a_stop_and_a_look_are_one_call_per_region(aws, provider):
    made = [*machines(3), *machines(2, "us-west-2")]
    with calls(aws) as sent:
        assert provider.stop_many(made) == {}
        seen = provider.get_many(made)
    both = ["us-east-1", "us-west-2"]
    assert sorted(sent[:2]) == [("StopInstances", region) for region in both]
    assert sorted(sent[2:]) == [("DescribeInstances", region) for region in both]
    assert {seen[one].state for one in made} == {State.STOPPED}
    assert not any(seen[one].billed for one in made)


@pytest.mark.soak
@pytest.mark.parametrize("place", [0, 23, 39])
def test_one_instance_in_the_wrong_state_does_not_fail_the_whole_batch(aws, provider, place):
    """cloud-custodian 0.9.53, `Stop`: one that had ended, and none of the others was stopped."""
    made = machines(40)
    client().terminate_instances(InstanceIds=[own(made[place])])
    with calls(aws) as sent:
        refused = provider.stop_many(made)
    assert {one: type(fault) for one, fault in refused.items()} == {made[place]: InvalidRequest}
    assert states(aws, [one for one in made if one not in refused]) == {"stopped"}
    assert len(sent) - 1 <= 2 * ceil(log2(40))


def test_one_that_is_just_starting_and_a_one_time_spot_machine_are_refused_alone(aws, provider):
    made, once = machines(4), machine(market=Market.SPOT)
    aws.dwell(pending=math.inf)
    (starting,) = machines(1)
    refused = provider.stop_many([*made, once, starting])
    assert {one: type(fault) for one, fault in refused.items()} == {once: InvalidRequest, starting: InvalidRequest}
    assert states(aws, made) == {"stopped"}


def test_a_region_that_does_not_answer_keeps_no_other_one_running(aws, provider, monkeypatch):
    impatient(monkeypatch)
    here, there = machines(2), machines(2, "us-west-2")
    aws.faults.offline("us-west-2")
    refused = provider.stop_many([*here, *there])
    assert {one: type(fault) for one, fault in refused.items()} == dict.fromkeys(there, ProviderUnavailable)
    seen = provider.get_many([*here, *there])
    assert {seen[one].state for one in here} == {State.STOPPED}
    assert {type(seen[one]) for one in there} == {ProviderUnavailable}


def test_a_missing_permission_is_said_of_each_that_was_not_stopped(aws, provider):
    made = machines(3)
    aws.faults.deny("StopInstances")
    refused = provider.stop_many(made)
    assert {type(refused[one]) for one in made} == {AuthFailed}
    assert states(aws, made) == {"running"}


def test_one_that_is_gone_is_not_found_and_the_others_are_seen_by_a_second_call(aws, provider):
    made = machines(3)
    with calls(aws) as sent:
        seen = provider.get_many([made[0], UNKNOWN, *made[1:]])
    assert isinstance(seen[UNKNOWN], InstanceNotFound)
    assert {seen[one].id for one in made} == set(made)
    assert [action for action, _ in sent] == ["DescribeInstances", "DescribeInstances", "DescribeSpotInstanceRequests"]


@pytest.mark.parametrize("written", [b"999999999999\n", b"\xe9\x00"])  # the second: a damaged file
def test_machines_of_another_account_are_not_found_to_be_gone(aws, provider, tmp_path, written):
    (tmp_path / "owners").mkdir()
    (tmp_path / "owners" / own(UNKNOWN)).write_bytes(written)
    assert isinstance(provider.get_many([UNKNOWN])[UNKNOWN], AuthFailed)


def test_a_spot_machine_that_is_shown_no_more_is_told_by_its_request(aws, provider):
    made = machine(market=Market.SPOT)
    aws.interrupt(own(made))
    aws.model.shows_terminated = False
    aws.advance(3 * 3600)
    alone, found = provider.get(made), provider.get_many([made])[made]
    assert isinstance(found, Instance)
    assert (found.state, found.since, found.reason) == (State.TERMINATED, alone.since, alone.reason)
