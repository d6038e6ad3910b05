"""What machines on our model of Google Cloud tell of themselves, and what Google tells of their end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.core.model.instances import State
from cloudgpu.errors import InstanceNotFound, InvalidRequest, ProviderUnavailable
from cloudgpu.providers.gcp.compute import interruption as ended
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.clouds.gcp.plain import ZONE, Plain
from tests.providers.gcp.accounts import account, calls, machine

__all__ = ["gcp", "gcp_process"]
GUEST, LOOK, OPERATIONS = (
    "compute.instances.getGuestAttributes",
    "compute.instances.get",
    "compute.globalOperations.aggregatedList",
)
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIAwYBUN7TkKsNOadM1bkZec8f1mxk+PHrlsSuuJtSusV"


@pytest.fixture
def cloud(gcp, tmp_path):
    return account(gcp, tmp_path)


def test_activity_is_the_machines_own_word_and_one_call_for_each(gcp, cloud):
    busy, silent = machine(gcp, "cg-1"), machine(gcp, "cg-2")
    gcp.say(busy, "cloudgpu/last-active", "1790000000")
    gcp.say(silent, "hostkeys/ssh-ed25519", KEY)
    with calls(gcp) as made:
        found = cloud.activity([busy, silent])
    assert found == {busy: datetime.fromtimestamp(1_790_000_000, UTC), silent: None}
    assert made.count(GUEST) == 2


@pytest.mark.parametrize("text", ["", "soon", "-1", "0", "1e9", "17900000000000", "1790000000.5"])
def test_what_is_no_time_is_no_activity(gcp, cloud, text):
    gcp.say(machine(gcp), "cloudgpu/last-active", text)
    assert list(cloud.activity(gcp.instances()).values()) == [None]


def test_a_machine_that_does_not_answer_keeps_no_other_from_being_heard(gcp, cloud):
    one, other = machine(gcp, "cg-1"), machine(gcp, "cg-2")
    gcp.say(other, "cloudgpu/last-active", "1790000000")
    gcp.faults.add(GUEST, status=503, times=99, instance="cg-1")
    found = cloud.activity([one, other, f"{ZONE}/cg-3"])
    assert isinstance(found[one], ProviderUnavailable)
    assert isinstance(found[f"{ZONE}/cg-3"], InstanceNotFound)
    assert found[other] is not None


def test_host_keys_are_told_once_the_machine_has_some(gcp, cloud):
    id_ = machine(gcp)
    assert cloud.host_keys(id_) == []
    gcp.say(id_, "hostkeys/ssh-ed25519", KEY)
    gcp.say(id_, "hostkeys/ecdsa-sha2-nistp256", f"ecdsa-sha2-nistp256 {KEY} root@box")
    gcp.say(id_, "hostkeys/ssh-rsa", "")
    gcp.say(id_, "hostkeys/note", "AAAA not a key")
    gcp.say(id_, "cloudgpu/last-active", "1790000000")
    assert cloud.host_keys(id_) == [f"ecdsa-sha2-nistp256 {KEY}", f"ssh-ed25519 {KEY}"]
    with pytest.raises(InstanceNotFound):
        cloud.host_keys(f"{ZONE}/cg-none")


def reason_of(cloud, id_):
    found = cloud.get(id_)
    assert found.state is State.STOPPED
    return found.reason


def test_a_preemption_is_an_interruption_by_one_more_call(gcp, cloud):
    id_ = machine(gcp, spot=True)
    gcp.interrupt(id_)
    with calls(gcp) as made:
        (found,) = cloud.list().instances
    assert (found.reason, found.billed) == ("interrupted", False)
    assert made == ["compute.instances.aggregatedList", OPERATIONS]


def test_a_shutdown_from_inside_is_told_from_a_stop_by_its_user(gcp, cloud):
    inside, asked, spot = machine(gcp, "cg-1"), machine(gcp, "cg-2"), machine(gcp, "cg-3", spot=True)
    gcp.shut_down(inside)
    gcp.shut_down(spot)
    Plain(gcp)("Instances", "stop_unary", instance="cg-2")
    with calls(gcp) as made:
        found = {one.id: one.reason for one in cloud.list().instances}
    assert found == {inside: "shut down from inside", asked: None, spot: "shut down from inside"}
    assert made.count(OPERATIONS) == 2  # one for spot machines, one for the others


def test_nothing_is_asked_while_all_machines_run(gcp, cloud):
    machine(gcp, spot=True)
    with calls(gcp) as made:
        assert [one.reason for one in cloud.list().instances] == [None]
    assert made == ["compute.instances.aggregatedList"]


def test_an_end_of_long_ago_is_not_asked_for_any_more(gcp, cloud):
    id_ = machine(gcp, spot=True)
    gcp.interrupt(id_)
    gcp.advance(15 * 86_400)
    with calls(gcp) as made:
        assert reason_of(cloud, id_) is None
    assert made == [LOOK]


def test_the_end_of_its_time_is_told_by_the_times_alone(gcp, cloud):
    scheduling = {"max_run_duration": {"seconds": 3600}, "instance_termination_action": "STOP"}
    id_ = machine(gcp, scheduling=scheduling)
    gcp.advance(3700)
    with calls(gcp) as made:
        assert reason_of(cloud, id_) == ended.TIMER_REASON
    assert made == [LOOK]


def test_operations_that_cannot_be_read_leave_the_reason_unknown(gcp, cloud):
    id_ = machine(gcp, spot=True)
    gcp.interrupt(id_)
    gcp.faults.deny(OPERATIONS)
    assert reason_of(cloud, id_) is None
    gcp.faults.clear()
    gcp.faults.add(OPERATIONS, status=503, times=9)
    gcp.faults.add("compute.zoneOperations.list", status=503, times=9)
    assert reason_of(cloud, id_) is None


def test_where_the_list_of_all_zones_fails_the_zone_itself_is_asked(gcp, cloud):
    id_ = machine(gcp, spot=True)
    gcp.interrupt(id_)
    gcp.faults.add(OPERATIONS, status=503)
    with calls(gcp) as made:
        assert reason_of(cloud, id_) == "interrupted"
    assert made == [LOOK, OPERATIONS, "compute.zoneOperations.list"]


def test_a_machine_that_was_started_again_is_not_told_of_the_preemption_before(gcp, cloud):
    id_ = machine(gcp, spot=True)
    gcp.interrupt(id_)
    gcp.advance(60)
    Plain(gcp)("Instances", "start_unary", instance=id_.partition("/")[2])
    gcp.advance(60)
    Plain(gcp)("Instances", "stop_unary", instance=id_.partition("/")[2])
    assert reason_of(cloud, id_) is None


START = datetime(2026, 11, 21, tzinfo=UTC)
BOX = {
    "id": "7",
    "name": "cg-1",
    "zone": f"https://www.googleapis.com/compute/v1/projects/p/zones/{ZONE}",
    "lastStartTimestamp": START.isoformat(),
    "lastStopTimestamp": (START + timedelta(hours=1)).isoformat(),
}


def event(kind=ended.PREEMPTED, after=60, **more):
    link = f"https://www.googleapis.com/compute/v1/projects/p/zones/{ZONE}/instances/cg-1"
    said = {"operationType": kind, "targetId": "7", "targetLink": link}
    return {**said, "endTime": (START + timedelta(minutes=after)).isoformat(), **more}


HOST = "compute.instances.hostError"


@pytest.mark.parametrize(
    ("events", "box", "why"),
    [
        ([event()], BOX, "interrupted"),
        ([event(after=59.5), event(HOST, after=61)], BOX, "interrupted"),  # the nearer one
        ([event(after=30)], BOX, None),  # half an hour before the end
        ([event(after=-1)], BOX, None),  # of the run before
        ([event(targetId="8")], BOX, None),  # another machine of that name
        ([event(targetId="")], BOX, "interrupted"),
        ([event(targetId="", targetLink="https://x/zones/us-central1-b/instances/cg-1")], BOX, None),
        ([event("stop")], BOX, None),
        ([event(endTime="", insertTime=(START + timedelta(hours=1)).isoformat())], BOX, "interrupted"),
        ([event(endTime="never")], BOX, None),
        ([event(after=5), event(HOST, after=30)], BOX | {"lastStopTimestamp": ""}, "its host at Google failed"),
        ([event()], {key: one for key, one in BOX.items() if not key.startswith("last")}, "interrupted"),
        ([], BOX, None),
    ],
)
def test_the_event_of_this_run_that_lies_nearest_to_the_end_tells_why(events, box, why):
    assert ended.reason_by_events(box, events) == why


def test_an_id_that_is_none_is_never_asked_for(gcp, cloud):
    with pytest.raises(InvalidRequest):
        cloud.host_keys("us-east-1/i-0123456789abcdef0")
    assert isinstance(cloud.activity(["nonsense"])["nonsense"], InvalidRequest)
    assert gcp.calls == []


def test_a_list_tells_the_place_of_what_does_not_name_its_own(gcp, cloud):
    id_ = machine(gcp)
    for one in gcp.model.resources.values():
        if one["kind"] in ("compute#instance", "compute#disk"):
            one.pop("zone")
    assert [one.id for one in cloud.list().instances] == [id_]
    assert [(one.zone, one.attached_to) for one in cloud.resources().items] == [(ZONE, id_)]
    assert cloud.get(id_).zone == ZONE
