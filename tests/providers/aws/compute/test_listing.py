"""Looks at machines: one call per region, silent regions by name, states and times in AWS's own words."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.core.model.instances import Address, State
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import AuthFailed, InstanceNotFound, ProviderUnavailable
from cloudgpu.providers.aws.compute.translate import instance
from tests.clouds.aws.plain import client
from tests.providers.aws.accounts import TAGS, account, calls, impatient, machine, own

TWO = ["us-east-1", "us-west-2"]
AT = datetime(2026, 11, 20, 11, 0, 1, tzinfo=UTC)


def test_a_listing_is_one_call_per_region(aws, tmp_path):
    made = {machine(), machine("us-west-2")}
    machine(tags={"Name": "somebody-else"})
    with calls(aws) as sent:
        listing = account(tmp_path, regions=TWO).list()
    assert {one.id for one in listing.instances} == made
    assert listing.unanswered == ()
    assert sorted(sent) == [("DescribeInstances", one) for one in TWO]


def test_the_regions_are_asked_for_once_where_the_settings_name_none(aws, tmp_path):
    provider = account(tmp_path, regions=[], exclude_regions=["eu-west-1"])
    named = provider._aws.regions()
    assert {"us-east-1", "us-west-2"} <= set(named)
    assert "eu-west-1" not in named
    assert provider._aws.regions() == named
    assert len(aws.called("DescribeRegions")) == 1


def test_pages_are_read_to_the_end(aws, tmp_path, monkeypatch):
    monkeypatch.setattr("cloudgpu.providers.aws.compute.listing.PAGE_SIZE", 5)
    made = {machine(tags={**TAGS, "cloudgpu-id": f"cg-{number}"}) for number in range(7)}
    with calls(aws) as sent:
        assert {one.id for one in account(tmp_path).list().instances} == made
    assert len(sent) == 2


def test_a_silent_region_is_named_and_the_others_are_listed(aws, tmp_path, monkeypatch):
    impatient(monkeypatch)
    made = machine()
    aws.faults.offline("us-west-2")
    listing = account(tmp_path, regions=TWO).list()
    assert [one.id for one in listing.instances] == [made]
    assert [gap.scope for gap in listing.unanswered] == ["us-west-2"]
    assert "did not answer DescribeInstances" in listing.unanswered[0].why


def test_nothing_is_known_where_no_region_answers(aws, tmp_path, monkeypatch):
    impatient(monkeypatch)
    for region in TWO:
        aws.faults.offline(region)
    with pytest.raises(ProviderUnavailable):
        account(tmp_path, regions=TWO).list()


def test_a_region_that_denies_is_a_gap_and_all_that_deny_are_an_error(aws, tmp_path):
    denied = "UnauthorizedOperation"
    aws.faults.add("DescribeInstances", error=denied, region="us-west-2")
    listing = account(tmp_path, regions=TWO).list()
    assert [gap.scope for gap in listing.unanswered] == ["us-west-2"]
    aws.faults.deny("DescribeInstances")
    with pytest.raises(AuthFailed, match="ec2:DescribeInstances"):
        account(tmp_path, regions=TWO).list()


def test_a_look_is_one_call_to_the_region_of_the_id(aws, tmp_path):
    made = machine("us-west-2")
    with calls(aws) as sent:
        seen = account(tmp_path).get(made)
    assert sent == [("DescribeInstances", "us-west-2")]
    assert (seen.region, seen.zone[:-1], seen.instance_type) == ("us-west-2", "us-west-2", "g4dn.xlarge")
    assert seen.accelerators[0].name == "T4"
    assert dict(seen.tags) == {"cloudgpu-id": "cg-1", "cloudgpu-ledger": "led-1"}


def test_what_aws_has_not_is_not_found(aws, tmp_path):
    with pytest.raises(InstanceNotFound) as missing:
        account(tmp_path).get("us-east-1/i-0123456789abcdef0")
    assert missing.value.value == "us-east-1/i-0123456789abcdef0"


def test_the_age_stays_and_the_uptime_starts_anew_at_each_start(aws, tmp_path):
    provider = account(tmp_path)
    made = machine()
    first = provider.get(made)
    provider.stop(made)
    aws.advance(3600)
    provider.start(made)
    again = provider.get(made)
    assert again.launched_at == first.launched_at
    assert again.since - first.since >= timedelta(hours=1)


def test_a_stop_from_inside_and_an_interruption_have_their_reason_and_time(aws, tmp_path):
    provider = account(tmp_path)
    stopped, taken, ended = machine(), machine(market=Market.SPOT), machine()
    aws.shut_down(own(stopped))
    aws.interrupt(own(taken))
    provider.terminate(ended)
    seen = provider.get(stopped)
    assert (seen.state, seen.billed, seen.reason) == (State.STOPPED, False, "shut down from inside")
    seen = provider.get(taken)
    assert (seen.state, seen.billed, seen.reason) == (State.TERMINATED, False, "interrupted")
    assert abs(seen.since - datetime.now(UTC)) < timedelta(minutes=1)
    assert provider.get(ended).reason is None


def test_what_is_on_its_way_out_is_stopping_and_not_billed(aws, tmp_path):
    aws.dwell(shutting_down=math.inf, pending=math.inf)
    provider = account(tmp_path)
    made = machine()
    assert (provider.get(made).state, provider.get(made).billed) == (State.PENDING, True)
    client().terminate_instances(InstanceIds=[own(made)])
    assert (provider.get(made).state, provider.get(made).billed) == (State.STOPPING, False)


def raw(**more):
    disk = {"DeviceName": "/dev/sda1", "Ebs": {"AttachTime": AT, "VolumeId": "vol-1"}}
    return {
        "InstanceId": "i-0123456789abcdef0",
        "InstanceType": "p3.2xlarge",
        "State": {"Name": "running"},
        "LaunchTime": AT - timedelta(seconds=1),
        "RootDeviceName": "/dev/sda1",
        "BlockDeviceMappings": [disk],
        "Placement": {"AvailabilityZone": "us-east-1b"},
        "Tags": [{"Key": key, "Value": value} for key, value in TAGS.items()],
        **more,
    }


def translated(**more):
    return instance(raw(**more), account="lab", region="us-east-1", ssh_port=2222)


def test_the_public_address_comes_before_the_private_one():
    private = {"PrivateIpAddress": "10.0.0.5"}
    assert translated(**private, PublicIpAddress="203.0.113.9").address == Address("203.0.113.9", 2222, "cloudgpu")
    assert translated(**private).address == Address("10.0.0.5", 2222, "cloudgpu")
    assert translated().address is None
    assert translated(**private, State={"Name": "stopped"}).address is None


def test_a_state_that_nobody_knows_is_unknown_and_counts_as_billed():
    seen = translated(State={"Name": "hovering"})
    assert (seen.state, seen.billed) == (State.UNKNOWN, True)


def test_a_machine_that_ran_once_is_as_old_as_its_disk():
    assert translated().launched_at == AT
    assert translated(LaunchTime=AT + timedelta(days=2)).launched_at == AT
    assert translated(LaunchTime=AT + timedelta(days=2)).since == AT + timedelta(days=2)


def test_an_age_that_aws_has_forgotten_is_not_made_up():
    assert translated(State={"Name": "terminated"}, BlockDeviceMappings=[]).launched_at is None


def test_an_end_within_the_second_of_the_start_is_not_before_it():
    late = AT + timedelta(milliseconds=700)
    said = f"User initiated ({AT:%Y-%m-%d %H:%M:%S} GMT)"
    assert translated(State={"Name": "stopped"}, LaunchTime=late, StateTransitionReason=said).since == late


def test_a_time_that_aws_does_not_say_is_not_made_up():
    assert translated(State={"Name": "stopped"}, StateTransitionReason="").since is None


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("Client.UserInitiatedShutdown", None),
        ("Server.SpotInstanceShutdown", "interrupted"),
        ("Server.ScheduledStop", "stopped by AWS for maintenance"),
        ("Client.VolumeLimitExceeded", "Volume limit exceeded"),
    ],
)
def test_a_reason_is_said_in_our_words_or_in_those_of_aws(code, reason):
    said = {"Code": code, "Message": "Volume limit exceeded"}
    assert translated(State={"Name": "terminated"}, StateReason=said).reason == reason


@pytest.mark.parametrize(
    ("text", "at"),
    [("1800000000", datetime.fromtimestamp(1800000000, UTC)), ("soon", None), ("", None), ("9" * 20, None)],
)
def test_the_last_activity_is_a_tag_that_may_hold_anything(text, at):
    assert translated(Tags=[{"Key": "cloudgpu-last-active", "Value": text}]).last_active == at
