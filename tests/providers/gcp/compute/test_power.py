"""Machines on our model of Google Cloud stopped, started, tagged, timed, let in to and ended."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta

import pytest

from cloudgpu.core.model.instances import TAG_RENEW_UNTIL, State
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.times import epoch_text
from cloudgpu.errors import AuthFailed, InstanceNotFound, InvalidRequest, NoCapacity, ProviderUnavailable
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.providers.gcp.accounts import account, calls
from tests.providers.gcp.attempts import CALLER, ZONE, attempt_at, launched, offered, soon

__all__ = ["gcp", "gcp_process"]
OTHER = "198.51.100.0/24"


@pytest.fixture
def cloud(gcp, tmp_path):
    return account(gcp, tmp_path)


def nothing_left(gcp):
    """Nothing costs money, and no rule lets anybody in."""
    assert gcp.billable() == []
    assert [name for name in gcp.firewalls() if not name.startswith("cloudgpu-shut-")] == []


def seconds_of(gcp, id_):
    return int(gcp.instance(id_)["scheduling"]["maxRunDuration"]["seconds"])


# Ends


@pytest.mark.soak
def test_an_end_takes_the_disk_and_the_doors_with_it(gcp, cloud):
    made = launched(cloud)
    cloud.allow(made.id, "ada", OTHER)
    with calls(gcp) as asked:
        cloud.terminate(made.id)
    assert sorted(set(asked)) == [
        "compute.firewalls.delete",
        "compute.firewalls.list",
        "compute.instances.delete",
        "compute.instances.get",
    ]
    with pytest.raises(InstanceNotFound):
        cloud.get(made.id)
    nothing_left(gcp)


def test_an_end_is_asked_for_as_often_as_one_likes(gcp, cloud):
    made = launched(cloud)
    for _ in range(2):
        cloud.terminate(made.id)
    cloud.terminate(f"{ZONE}/cg-never")
    nothing_left(gcp)


def test_rules_that_outlived_their_machine_go_with_the_next_end(gcp, cloud):
    made = launched(cloud)
    gcp.faults.deny("compute.firewalls.list", times=1)
    cloud.terminate(made.id)
    assert len(gcp.firewalls()) == 2
    cloud.terminate(made.id)
    nothing_left(gcp)


def test_a_disk_that_was_told_to_stay_goes_all_the_same_when_the_machine_is_ended(gcp, cloud):
    made = launched(cloud)
    gcp.faults.deny("compute.instances.delete", times=1)
    with pytest.raises(AuthFailed):
        cloud.terminate_keeping_disk(made.id)
    cloud.terminate(made.id)
    nothing_left(gcp)


def test_no_machine_of_another_name_is_asked_for(gcp, cloud):
    for id_ in ("us-east-1/i-0123456789abcdef0", "us-central1-a", "us-central1-a/x/y", "us-central1/cg-1"):
        with pytest.raises(InvalidRequest):
            cloud.terminate(id_)
    assert gcp.calls == []


def test_a_machine_of_another_project_is_not_taken_for_gone(gcp, cloud, tmp_path):
    made = launched(cloud)
    with pytest.raises(AuthFailed) as refused:
        account(gcp, tmp_path, project="another-lab").get(made.id)
    assert refused.value.field == "project"


# Stops and starts


def test_a_stop_ends_the_bill_and_keeps_the_disk(gcp, cloud):
    made = launched(cloud)
    for _ in range(2):
        cloud.stop(made.id)
    found = cloud.get(made.id)
    assert (found.state, found.billed, found.address) == (State.STOPPED, False, None)
    assert found.since is not None
    assert [path.split("/")[-2] for path in gcp.billable()] == ["disks"]
    assert "discardLocalSsd" not in gcp.called("compute.instances.stop")[0].query


def test_a_machine_with_local_ssd_is_stopped_so_that_nothing_of_it_is_billed(gcp, cloud):
    made = launched(cloud, offered(cloud, "a2-ultragpu-1g"))
    cloud.stop(made.id)
    assert gcp.called("compute.instances.stop")[0].query["discardLocalSsd"] == "true"
    assert not any("local-ssd" in path for path in gcp.billable())


def test_a_machine_that_is_just_starting_is_stopped_once_it_runs(gcp, tmp_path):
    cloud = account(gcp, tmp_path)
    made = launched(cloud)
    gcp.instance(made.id)["status"] = "STAGING"
    cloud = account(gcp, tmp_path, pause=lambda _: gcp.instance(made.id).update(status="RUNNING"))
    cloud.stop(made.id)
    assert gcp.status(made.id) == "TERMINATED"


def test_a_start_sets_googles_timer_to_what_is_left(gcp, cloud):
    attempt = attempt_at(cloud)
    made = cloud.launch(attempt, deadline=soon(cloud))
    cloud.stop(made.id)
    gcp.advance(1200)
    until = gcp.clock.now() + timedelta(hours=9)
    cloud.tag(made.id, {TAG_RENEW_UNTIL: epoch_text(until)})
    cloud.start(made.id)
    assert abs(seconds_of(gcp, made.id) - 9 * 3600) < 60
    assert abs(cloud.timer(made.id) - until) < timedelta(minutes=1)
    assert gcp.instance(made.id)["scheduling"]["provisioningModel"] == "STANDARD"
    assert cloud.get(made.id).state is State.RUNNING


def test_an_operation_that_does_not_say_where_it_is_is_looked_for_where_it_was_begun(gcp, cloud):
    made = launched(cloud)
    cloud.stop(made.id)
    gcp.faults.add("compute.instances.start", status=200, body={"name": "op", "status": "RUNNING"})
    gcp.faults.add("compute.zoneOperations.get", status=200, body={"name": "op", "status": "PENDING"})
    gcp.faults.add("compute.zoneOperations.get", status=200, body={"name": "op", "status": "DONE"})
    with calls(gcp) as asked:
        cloud.start(made.id)
    assert asked[-3:] == ["compute.instances.start", *["compute.zoneOperations.get"] * 2]


def test_a_start_of_what_runs_changes_nothing(gcp, cloud):
    made = launched(cloud)
    with calls(gcp) as asked:
        cloud.start(made.id)
    assert asked == ["compute.instances.get"]


def test_a_start_without_capacity_says_so_and_leaves_it_stopped(gcp, cloud):
    made = launched(cloud)
    cloud.stop(made.id)
    gcp.stockout()
    with pytest.raises(NoCapacity):
        cloud.start(made.id)
    assert cloud.get(made.id).state is State.STOPPED


@pytest.mark.parametrize("status", ["STOPPING", "SUSPENDED"])
def test_what_is_not_stopped_yet_is_not_started(gcp, cloud, status):
    made = launched(cloud)
    gcp.instance(made.id)["status"] = status
    with pytest.raises(InvalidRequest) as refused:
        cloud.start(made.id)
    assert refused.value.field == "instance"


# Many


def test_many_are_stopped_by_one_look_and_a_call_for_each_that_runs(gcp, cloud):
    made = [gcp.make(f"cg-{number}", labels={"cloudgpu-id": f"cg-{number}"}) for number in range(4)]
    cloud.stop(made[0])
    gcp.instance(made[1])["status"] = "STAGING"
    with calls(gcp) as asked:
        refused = cloud.stop_many([*made, f"{ZONE}/cg-gone", "nonsense"])
    assert sorted(asked) == [
        "compute.instances.aggregatedList",
        "compute.instances.get",
        "compute.instances.stop",
        "compute.instances.stop",
    ]
    assert {id_: type(fault) for id_, fault in refused.items()} == {
        made[1]: InvalidRequest,
        f"{ZONE}/cg-gone": InstanceNotFound,
        "nonsense": InvalidRequest,
    }
    found = cloud.get_many(made)
    assert [found[id_].state for id_ in (made[0], *made[2:])] == [State.STOPPED] * 3


def test_one_that_may_not_be_stopped_keeps_no_other_one_running(gcp, cloud):
    made = [gcp.make(f"cg-{number}", labels={"cloudgpu-id": f"cg-{number}"}) for number in range(3)]
    gcp.faults.deny("compute.instances.stop", instance="cg-1")
    assert list(cloud.stop_many(made)) == [made[1]]
    assert [gcp.status(id_) for id_ in made] == ["TERMINATED", "RUNNING", "TERMINATED"]


def test_a_zone_that_is_silent_in_the_listing_is_asked_itself(gcp, cloud):
    made = gcp.make("cg-1", labels={"cloudgpu-id": "cg-1"})
    gcp.make("cg-2", "us-east1-c", labels={"cloudgpu-id": "cg-2"})
    gcp.faults.add("compute.instances.aggregatedList", error="forbidden", status=403)
    found = cloud.get_many([made, "us-east1-c/cg-2"])
    assert [one.state for one in found.values()] == [State.RUNNING] * 2


# Labels


def test_a_tag_reaches_the_machine_itself(gcp, cloud):
    made = launched(cloud)
    cloud.tag(made.id, {"cloudgpu-expires": "1790000000", "cloudgpu-hold-until": "1", "cloudgpu-name": "otter"})
    inside, labels = gcp.metadata(made.id), gcp.instance(made.id)["labels"]
    assert (inside["cloudgpu-expires"], inside["cloudgpu-hold-until"]) == ("1790000000", "1")
    assert "cloudgpu-name" not in inside
    assert inside["user-data"]
    assert (labels["cloudgpu-expires"], labels["cloudgpu-name"]) == ("1790000000", "otter")
    with calls(gcp) as asked:
        cloud.tag(made.id, {"cloudgpu-expires": "1790000000"})
    assert asked == ["compute.instances.get"]


@pytest.mark.parametrize("action", ["compute.instances.setLabels", "compute.instances.setMetadata"])
def test_somebody_elses_change_in_between_is_not_lost(gcp, cloud, action):
    made = launched(cloud)
    gcp.faults.add(action, error="conditionNotMet", status=412, times=2)
    cloud.tag(made.id, {"cloudgpu-expires": "1790000000"})
    assert gcp.metadata(made.id)["cloudgpu-expires"] == "1790000000"
    assert gcp.instance(made.id)["labels"]["cloudgpu-expires"] == "1790000000"


def test_a_change_that_always_comes_second_is_told(gcp, cloud):
    made = launched(cloud)
    gcp.faults.add("compute.instances.setLabels", error="conditionNotMet", status=412, times=99)
    with pytest.raises(InvalidRequest):
        cloud.tag(made.id, {"cloudgpu-name": "otter"})


# Google's timer


def test_googles_timer_stops_what_everybody_has_forgotten(gcp, cloud):
    attempt = attempt_at(cloud, lease=timedelta(minutes=5), renew=timedelta(minutes=10))
    made = cloud.launch(attempt, deadline=soon(cloud))
    assert abs(cloud.timer(made.id) - attempt.renew_until) < timedelta(minutes=1)
    gcp.advance(700)
    found = cloud.get(made.id)
    assert (found.state, found.reason) == (State.STOPPED, "stopped by its timer at Google")


def test_googles_timer_keeps_no_local_ssd_that_would_be_billed_on(gcp, cloud):
    made = launched(cloud, offered(cloud, "a2-ultragpu-1g"), lease=timedelta(minutes=5), renew=timedelta(minutes=10))
    assert gcp.instance(made.id)["scheduling"]["onInstanceStopAction"] == {"discardLocalSsd": True}
    gcp.advance(700)
    assert cloud.get(made.id).state is State.STOPPED
    assert not any("local-ssd" in path for path in gcp.billable())
    cloud.set_timer(made.id, gcp.clock.now() + timedelta(hours=9))
    assert gcp.instance(made.id)["scheduling"]["onInstanceStopAction"] == {"discardLocalSsd": True}


def test_a_timer_cannot_be_moved_while_the_machine_runs(gcp, cloud):
    made = launched(cloud)
    limit = cloud.timer_limit(made.id)
    cloud.set_timer(made.id, limit)
    with pytest.raises(InvalidRequest) as refused:
        cloud.set_timer(made.id, limit + timedelta(hours=1))
    assert f"{limit:%Y-%m-%d %H:%M}" in refused.value.message
    cloud.stop(made.id)
    assert cloud.timer_limit(made.id) is None
    cloud.set_timer(made.id, gcp.clock.now() + timedelta(hours=30))
    assert abs(seconds_of(gcp, made.id) - 30 * 3600) < 60


def test_a_label_in_milliseconds_hides_no_timer(gcp, cloud):
    """Somebody edits a label by hand: the reaper's full run ended with a traceback."""
    stopped, runs = launched(cloud, key="second"), launched(cloud)
    cloud.stop(stopped.id)
    cloud.tag(stopped.id, {TAG_RENEW_UNTIL: "1795000000000"})
    assert list(cloud.timers()) == [runs.id]
    cloud.start(stopped.id)
    assert cloud.timer(stopped.id) is not None


def test_timers_are_told_of_this_ledger_alone_and_a_silent_zone_is_named(gcp, tmp_path):
    cloud = account(gcp, tmp_path, ledger="led-of-another")
    launched(account(gcp, tmp_path))
    assert cloud.timers() == {}
    gcp.faults.offline(region="us-central1")
    with pytest.raises(ProviderUnavailable):
        cloud.timers("us-central1")


# Doors


def test_each_label_has_its_own_rule_on_its_own_machine(gcp, cloud):
    one, other = launched(cloud), launched(cloud, key="other")
    cloud.allow(one.id, "ada", OTHER)
    assert dict(cloud.allowed(one.id)) == {"caller": CALLER, "ada": OTHER}
    assert dict(cloud.allowed(other.id)) == {"caller": CALLER}
    assert gcp.allows(one.id, "198.51.100.9")
    assert not gcp.allows(other.id, "198.51.100.9")
    cloud.allow(one.id, "caller", "192.0.2.1/32")
    assert not gcp.allows(one.id, CALLER.partition("/")[0])
    cloud.allow(one.id, "ada", None)
    assert not gcp.allows(one.id, "198.51.100.9")


def test_a_door_that_somebody_else_is_just_making_is_waited_for(gcp, cloud):
    launched(cloud)
    gcp.faults.add("compute.firewalls.get", error="notFound", status=404)
    gcp.faults.add("compute.firewalls.patch", error="resourceNotReady", status=400, times=2)
    assert not gcp.allows(launched(cloud, key="other").id, "198.51.100.9")


def test_a_rule_that_is_going_already_keeps_no_machine_from_its_end(gcp, cloud):
    made = launched(cloud)
    gcp.faults.add("compute.firewalls.delete", error="resourceNotReady", status=400)
    cloud.terminate(made.id)
    assert gcp.billable() == []


def test_a_label_that_cannot_be_one_is_refused(cloud):
    made = launched(cloud)
    with pytest.raises(InvalidRequest) as refused:
        cloud.allow(made.id, "Ada Lovelace", OTHER)
    assert refused.value.field == "label"


# What a listing says


def test_a_listing_is_one_call_and_names_the_zones_that_were_silent(gcp, cloud):
    launched(cloud, offered(cloud, market=Market.SPOT))
    gcp.make("someone-elses", labels={"team": "x"})
    gcp.faults.offline(zone="us-east1-c")
    with calls(gcp) as asked:
        found = cloud.list()
    assert asked == ["compute.instances.aggregatedList"]
    assert [(one.market, one.state) for one in found.instances] == [(Market.SPOT, State.RUNNING)]
    assert [one.scope for one in found.unanswered] == ["us-east1-c"]


@pytest.mark.parametrize("code", ["UNREACHABLE", "PARTIAL_SUCCESS", "LIST_OVERHEAD_QUOTA_EXCEED"])
def test_a_listing_that_lacks_something_says_so_whichever_way_google_does(gcp, cloud, code):
    warning = {"warning": {"code": code, "message": "something is missing"}}
    gcp.faults.add("compute.instances.aggregatedList", status=200, body={"items": {"zones/us-east1-c": warning}})
    assert [one.scope for one in cloud.list().unanswered] == ["us-east1-c"]
    gcp.faults.add("compute.instances.aggregatedList", status=200, body={"items": {}, **warning})
    assert [one.scope for one in cloud.list().unanswered] == ["lab"]


@pytest.mark.parametrize(
    ("gap", "raises"),
    [
        ({"warning": {"code": "PARTIAL_SUCCESS", "message": "some"}}, True),  # of the whole list
        ({"unreachables": ["zones/europe-west1-b"]}, True),
        ({"unreachables": ["zones/europe-west12-a"]}, False),  # whose name begins as the other region's
    ],
)
def test_timers_of_a_region_are_incomplete_only_where_that_may_lack_some(gcp, cloud, gap, raises):
    gcp.faults.add("compute.instances.aggregatedList", status=200, body={"items": {}, **gap})
    with pytest.raises(ProviderUnavailable, match="did not say which timers") if raises else nullcontext():
        assert cloud.timers("europe-west1") == {}


def test_a_preempted_machine_is_stopped_and_says_why(gcp, cloud):
    made = launched(cloud, offered(cloud, market=Market.SPOT))
    gcp.interrupt(made.id)
    found = cloud.get(made.id)
    assert (found.state, found.billed, found.reason) == (State.STOPPED, False, "interrupted")
