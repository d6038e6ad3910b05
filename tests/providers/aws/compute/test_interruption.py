"""When EC2 took a spot machine that its own record does not date: by the status of its request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.core.model.instances import State
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import InstanceNotFound
from cloudgpu.providers.aws.compute import interruption
from cloudgpu.providers.aws.compute.translate import instance
from tests.clouds.aws.plain import client, launch, spot as plain_spot
from tests.providers.aws.accounts import TAGS, account, calls, impatient, machine, own

INSIDE = "Client.InstanceInitiatedShutdown"
ASK = "DescribeSpotInstanceRequests"
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
BEGAN, SAID = NOW - timedelta(hours=3), NOW - timedelta(hours=1)


@pytest.fixture(autouse=True)
def undated(aws):
    aws.model.dates_interruptions = False


def spot(number=1, region="us-east-1", **more):
    tags = {**TAGS, "cloudgpu-id": f"cg-{number}"}
    return machine(region, tags=tags, market=Market.SPOT, **more)


def later(tmp_path, aws, **options):
    """Return an account whose clock goes with that of our model of AWS."""
    return account(tmp_path, clock=lambda: datetime.now(UTC) + aws.model.ahead, **options)


def status(made):
    (request,) = [
        one
        for one in client(region=made.partition("/")[0]).describe_spot_instance_requests()["SpotInstanceRequests"]
        if one["InstanceId"] == own(made)
    ]
    return request["Status"]


def taken(aws, made, after):
    """Let AWS end a machine, and an hour go by."""
    aws.advance(after)
    ended = aws.model.now()
    aws.interrupt(own(made))
    aws.advance(1800)
    return ended


def forgotten(aws, made):
    """Let AWS end a machine, and show it no more two hours later."""
    aws.interrupt(own(made))
    aws.advance(1)
    aws.advance(2 * 3600)


def test_an_interruption_without_a_time_has_that_of_its_request_and_the_two_minutes_of_the_notice(aws, tmp_path):
    made = spot()
    ended = taken(aws, made, 5000)
    with calls(aws) as sent:
        seen = later(tmp_path, aws).get(made)
    assert sent == [("DescribeInstances", "us-east-1"), (ASK, "us-east-1")]
    assert (seen.state, seen.reason) == (State.TERMINATED, "interrupted")
    assert abs(seen.since - ended) < timedelta(seconds=1)
    assert seen.since == status(made)["UpdateTime"] + interruption.INTERRUPTION_NOTICE


def test_a_listing_asks_once_per_region_for_all_such_machines_and_only_where_there_are_any(aws, tmp_path):
    ended = [spot(1), spot(2), spot(3, "us-west-2")]
    spot(4, "eu-central-1")
    aws.advance(600)
    for one in ended:
        aws.interrupt(own(one))
    regions = ["us-east-1", "us-west-2", "eu-central-1"]
    with calls(aws) as sent:
        listing = later(tmp_path, aws, regions=regions).list()
    assert sorted(sent) == sorted([("DescribeInstances", one) for one in regions] + [(ASK, one) for one in regions[:2]])
    assert [one.since is not None for one in listing.instances] == [True] * 4


def test_nothing_is_asked_where_the_machine_says_it_itself(aws, tmp_path):
    aws.model.dates_interruptions = True
    taken_, ended, lasting = spot(1), spot(2), spot(3, persistent=True)
    provider = later(tmp_path, aws)
    aws.advance(600)
    aws.interrupt(own(taken_))
    provider.terminate(ended)
    provider.stop(lasting)
    machine(tags={**TAGS, "cloudgpu-id": "cg-4"})
    with calls(aws) as sent:
        assert len(provider.list().instances) == 4
    assert sent == [("DescribeInstances", "us-east-1")]


def test_a_machine_that_aws_stopped_has_the_time_of_that(aws, tmp_path):
    made = spot(persistent=True)
    ended = taken(aws, made, 5000)
    seen = later(tmp_path, aws).get(made)
    assert (seen.state, seen.reason) == (State.STOPPED, "interrupted")
    assert abs(seen.since - ended) < timedelta(seconds=1)


def test_a_spot_machine_shut_down_from_inside_has_a_time_too_and_was_not_taken(aws, tmp_path):
    made = spot(persistent=True)
    aws.advance(5000)
    ended = aws.model.now()
    aws.shut_down(own(made))
    aws.advance(600)
    seen = later(tmp_path, aws).get(made)
    assert (seen.state, seen.reason) == (State.STOPPED, "shut down from inside")
    assert abs(seen.since - ended) < timedelta(seconds=1)


def test_a_question_that_was_throttled_is_sent_again(aws, tmp_path, monkeypatch):
    impatient(monkeypatch)
    made = spot()
    taken(aws, made, 5000)
    aws.faults.add(ASK, error="RequestLimitExceeded", times=2)
    assert later(tmp_path, aws).get(made).since is not None
    assert len(aws.called(ASK)) == 3


@pytest.mark.parametrize("error", ["RequestLimitExceeded", "UnauthorizedOperation", "InternalError"])
def test_a_question_without_an_answer_costs_the_time_and_never_the_machine(aws, tmp_path, monkeypatch, error):
    impatient(monkeypatch)
    made, other = spot(1), spot(2)
    taken(aws, made, 5000)
    aws.faults.add(ASK, error=error, times=99)
    listing = later(tmp_path, aws).list()
    known = {one.id: one for one in listing.instances}
    assert listing.unanswered == ()
    assert (known[made].state, known[made].since, known[made].reason) == (State.TERMINATED, None, "interrupted")
    assert known[other].state is State.RUNNING


def test_a_request_that_aws_has_forgotten_takes_nothing_from_the_others(aws, tmp_path):
    gone, there = spot(1), spot(2)
    taken(aws, gone, 5000)
    aws.interrupt(own(there))
    backend = aws.instance(own(gone)).ec2_backend
    del backend.spot_instance_requests[aws.instance(own(gone)).spot_instance_request_id]
    aws.advance(600)
    known = {one.id: one for one in later(tmp_path, aws).list().instances}
    assert known[gone].since is None
    assert known[there].since is not None


def test_a_request_that_has_launched_another_machine_says_nothing_of_the_one_before(aws, tmp_path):
    lasting = {"SpotInstanceType": "persistent", "InstanceInterruptionBehavior": "terminate"}
    tags = [{"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in TAGS.items()]}]
    launched = launch(client(), InstanceMarketOptions=plain_spot(**lasting), TagSpecifications=tags)
    made = f"us-east-1/{launched['InstanceId']}"
    taken(aws, made, 5000)
    (request,) = client().describe_spot_instance_requests()["SpotInstanceRequests"]
    assert request["InstanceId"] != own(made)
    assert later(tmp_path, aws).get(made).since is None


def test_a_machine_that_aws_shows_no_more_is_remembered_by_its_request_for_some_hours(aws, tmp_path):
    made = spot()
    aws.advance(5000)
    ended = aws.model.now()
    forgotten(aws, made)
    provider = later(tmp_path, aws)
    assert provider.list().instances == ()
    with calls(aws) as sent:
        seen = provider.get(made)
    assert sent == [("DescribeInstances", "us-east-1"), (ASK, "us-east-1")]
    assert (seen.id, seen.state, seen.billed, seen.reason) == (made, State.TERMINATED, False, "interrupted")
    assert (seen.instance_type, seen.market, dict(seen.tags)["cloudgpu-id"]) == ("g4dn.xlarge", Market.SPOT, "cg-1")
    assert abs(seen.since - ended) < timedelta(seconds=1)
    aws.advance(2 * 3600)  # four hours after its end
    with pytest.raises(InstanceNotFound):
        provider.get(made)


def test_a_machine_whose_request_says_nothing_of_its_end_is_not_found(aws, tmp_path):
    made = spot()
    (request,) = client().describe_spot_instance_requests()["SpotInstanceRequests"]
    client().cancel_spot_instance_requests(SpotInstanceRequestIds=[request["SpotInstanceRequestId"]])
    forgotten(aws, made)
    with pytest.raises(InstanceNotFound):
        later(tmp_path, aws).get(made)


def test_a_machine_that_somebody_elses_request_launched_is_not_found(aws, tmp_path):
    made = spot()
    (request,) = client().describe_spot_instance_requests()["SpotInstanceRequests"]
    client().delete_tags(Resources=[request["SpotInstanceRequestId"]], Tags=[{"Key": "cloudgpu-id"}])
    forgotten(aws, made)
    with pytest.raises(InstanceNotFound):
        later(tmp_path, aws).get(made)


def test_many_requests_are_asked_for_by_as_many_as_a_filter_takes(aws, tmp_path, monkeypatch):
    monkeypatch.setattr(interruption, "MAX_FILTER_VALUES", 2)
    made = [spot(number) for number in range(3)]
    aws.advance(600)
    for one in made:
        aws.interrupt(own(one))
    listing = later(tmp_path, aws).list()
    assert all(one.since for one in listing.instances)
    assert len(aws.called(ASK)) == 2


def seen(code, *, state="terminated", cause="Server.SpotInstanceTermination", at=SAID):
    """Return what we make of a machine in this state whose request has this status."""
    found = {
        "InstanceId": "i-1", "InstanceType": "p3.2xlarge", "InstanceLifecycle": "spot", "State": {"Name": state},
        "LaunchTime": BEGAN, "StateReason": {"Code": cause}, "SpotInstanceRequestId": "sir-1",
        "Placement": {"AvailabilityZone": "us-east-1b"},
    }  # fmt: skip
    known = instance(found, account="lab", region="us-east-1", ssh_port=22)
    request = {"InstanceId": "i-1", "Status": {"Code": code, "UpdateTime": at}}
    return interruption.with_end_cause(found, known, request, NOW)


@pytest.mark.parametrize(
    ("code", "state", "cause", "since", "reason"),
    [
        ("instance-terminated-no-capacity", "terminated", "", SAID + timedelta(minutes=2), "interrupted"),
        ("instance-terminated-by-price", "shutting-down", "", SAID, "interrupted"),
        ("instance-stopped-no-capacity", "stopped", "", SAID, "interrupted"),
        ("instance-stopped-by-price", "stopping", "Server.SpotInstanceShutdown", SAID, "interrupted"),
        ("instance-terminated-by-user", "terminated", INSIDE, SAID, "shut down from inside"),
        ("spot-instance-terminated-by-user", "terminated", "Client.UserInitiatedShutdown", SAID, None),
    ],
)
def test_each_code_says_when_and_whether_it_was_aws(code, state, cause, since, reason):
    found = seen(code, state=state, cause=cause)
    assert (found.since, found.reason) == (since, reason)


@pytest.mark.parametrize(
    ("code", "more"),
    [
        ("fulfilled", {}),  # a persistent request that launched again
        ("pending-evaluation", {}),
        ("request-canceled-and-instance-running", {}),
        ("marked-for-termination", {}),
        ("instance-terminated-by-service", {}),  # it had stopped before
        ("instance-stopped-no-capacity", {}),  # about the stop before this end
        ("instance-terminated-no-capacity", {"state": "stopped"}),
        ("instance-terminated-no-capacity", {"at": BEGAN - timedelta(seconds=1)}),  # about the run before
        ("instance-terminated-by-price", {"at": NOW + timedelta(seconds=1)}),  # by another clock
        ("instance-terminated-by-price", {"at": None}),
        ("instance-terminated-no-capacity", {"cause": INSIDE}),  # in the two minutes
    ],
)
def test_a_status_that_does_not_say_when_this_machine_ended_is_not_taken_for_it(code, more):
    assert seen(code, **more).since is None


def test_a_machine_that_was_not_given_its_two_minutes_did_not_end_in_the_future():
    found = seen("instance-terminated-no-capacity", at=NOW - timedelta(seconds=30))
    assert (found.since, found.reason) == (NOW, "interrupted")
