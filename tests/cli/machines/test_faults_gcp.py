"""What goes wrong at Google Cloud, by the command line on our model of it: exit code, one sentence, nothing left."""

from __future__ import annotations

import math
import re
from datetime import timedelta

import pytest

from tests.cli.gcp_line import Line
from tests.cli.line import on_time_of
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.faults.said import check_document

__all__ = ["gcp", "gcp_process"]
UP = "up --yes --no-wait --ssh-from 203.0.113.7 --gpu v100 --name otter"
ONE_KIND = UP.replace("--gpu v100", "--instance-type n1-standard-4+v100:1")
INSERT = "compute.instances.insert"
ZONES = {f"us-central1-{letter}" for letter in "abcf"} | {f"us-west1-{letter}" for letter in "ab"}  # with V100


@pytest.fixture
def waited(gcp, monkeypatch):
    return on_time_of(monkeypatch, gcp)


@pytest.fixture
def line(own_home, capsys, gcp, waited):
    return Line(own_home, capsys, gcp)


def refused(said, code):
    """Check that this was refused in one sentence with a way out; return the error."""
    assert len(said.err.split("Traceback")) == 1
    error = check_document(said, code)
    assert re.fullmatch(r"[^\n]+[.?]", error["message"]), error
    return error


def doors(gcp):
    """The rules that let somebody in to a machine."""
    return [name for name in gcp.firewalls() if not name.startswith("cloudgpu-shut-")]


def nothing_runs(line):
    """Nothing that is billed was left, no door is open, and the ledger has no machine, nor one that is not settled."""
    assert (line.gcp.billable(), doors(line.gcp)) == ([], [])
    assert line("ls -o json").json["machines"] == []


def zones_tried(gcp):
    return [call.where["zone"] for call in gcp.called(INSERT)]


@pytest.mark.soak
def test_no_capacity_anywhere_tries_every_zone_once_and_ends_with_4(line, gcp):
    gcp.stockout()
    error = refused(line(ONE_KIND, "--spot --or-on-demand -o json"), 4)
    assert f"None of the {2 * len(ZONES)} offers that fit" in error["message"]
    assert sorted(zones_tried(gcp)) == sorted([*ZONES, *ZONES]), "each zone once on spot and once on demand"
    nothing_runs(line)


def test_no_capacity_in_the_first_zone_is_told_and_the_next_is_launched(line, gcp):
    gcp.stockout(times=1)
    said = line(UP, "--spot")
    assert said.code == 0, said.err
    first, second = zones_tried(gcp)
    assert [one.partition("/")[0] for one in gcp.instances()] == [second]
    assert f"{first}: " in said.err
    assert len(doors(gcp)) == 1


@pytest.mark.soak
def test_spot_that_is_not_there_becomes_on_demand_only_where_that_was_allowed(line, gcp):
    gcp.stockout(market="spot", code="ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS")
    words = f"{ONE_KIND} --zone us-central1-a --spot"
    assert refused(line(words, "-o json"), 4)["kind"] == "no_capacity"
    nothing_runs(line)
    said = line(words, "--or-on-demand -o json")
    assert (said.code, said.json["machine"]["market"]) == (0, "on_demand")


@pytest.mark.parametrize(
    ("metric", "more", "limits"),
    [
        ("NVIDIA_V100_GPUS", "", {}),
        ("NVIDIA_V100_GPUS", "--spot", {"PREEMPTIBLE_NVIDIA_V100_GPUS": 0}),  # never raised: the usual one counts
        ("GPUS_ALL_REGIONS", "", {}),
    ],
)
def test_a_quota_of_nothing_is_named_before_the_launch_with_the_page_that_raises_it(line, gcp, metric, more, limits):
    for name, value in {metric: 0, **limits}.items():
        gcp.limit(name, value, "" if name == "GPUS_ALL_REGIONS" else "us-central1")
    error = refused(line(UP, "--region us-central1", *filter(None, [more]), "-o json"), 5)
    assert metric in error["message"]
    assert "console.cloud.google.com" in error["next"]
    assert gcp.called(INSERT) == []
    nothing_runs(line)


def test_a_limit_on_preemptible_gpus_that_is_used_up_is_named(line, gcp):
    gcp.limit("PREEMPTIBLE_NVIDIA_V100_GPUS", 1, "us-central1")
    assert line(UP, "--region us-central1 --spot").code == 0
    error = refused(line(UP.replace("otter", "fox"), "--new --region us-central1 --spot -o json"), 5)
    assert "PREEMPTIBLE_NVIDIA_V100_GPUS" in error["message"]
    assert len(gcp.instances()) == 1


def test_a_quota_that_could_not_be_read_beforehand_is_named_by_the_launch(line, gcp):
    gcp.limit("NVIDIA_V100_GPUS", 0, "us-central1")
    gcp.faults.deny("compute.regions.get")
    error = refused(line(UP, "--region us-central1 -o json"), 5)
    assert "NVIDIA_V100_GPUS" in error["message"]
    nothing_runs(line)


@pytest.mark.parametrize("status", [429, 403])
def test_throttling_is_waited_out_as_long_as_google_says(line, gcp, waited, status):
    gcp.faults.add(INSERT, error="rateLimitExceeded", status=status, times=2, retry_after=11)
    said = line(UP)
    assert said.code == 0
    assert f"Google Cloud has not accepted {INSERT} in us-" in said.err
    sent = gcp.called(INSERT)
    assert (len(sent), len({call.query["requestId"] for call in sent}), len(gcp.instances())) == (3, 1, 1)
    assert waited.seconds >= 22


@pytest.mark.soak
def test_throttling_without_end_is_said_and_the_same_up_goes_on(line, gcp, waited):
    fault = gcp.faults.add(INSERT, error="rateLimitExceeded", times=10_000)
    said = line(UP, "-o json")
    refused(said, 8)
    told = re.findall(
        rf"has not accepted {INSERT} in \S+ after (\d+) tr.*\(.+\)\. Trying until [\d:]{{8}} UTC\.", said.err
    )
    assert told[0] == "1"
    assert 3 <= len(told) <= 8, "once in a while, and not at every try"
    assert waited.time > timedelta(minutes=2), "it gave up at once"
    assert gcp.instances() == []
    gcp.faults.remove(fault)
    assert line(UP).code == 0
    assert len(gcp.instances()) == 1


@pytest.mark.parametrize("action", [INSERT, "compute.zoneOperations.get", "compute.instances.get"])
def test_a_lost_reply_makes_no_second_machine(line, gcp, action):
    fault = gcp.faults.lose_reply(action)
    said = line(UP)
    assert (said.code, fault.hits) == (0, 1), said.err
    assert len(gcp.instances()) == 1
    assert line("ls --refresh -o json").json["machines"][0]["state"] == "running"
    assert line("down --yes").code == 0
    nothing_runs(line)


def test_an_internal_error_is_sent_again_with_the_same_id(line, gcp):
    gcp.faults.add(INSERT, error="backendError", times=2)
    assert line(UP).code == 0
    assert len({call.query["requestId"] for call in gcp.called(INSERT)}) == 1
    assert len(gcp.instances()) == 1


@pytest.mark.soak
def test_a_slow_operation_is_waited_for(line, gcp, waited):
    gcp.dwell(insert=20)
    assert line(UP, "--region us-central1").code == 0
    assert waited.seconds >= 20
    assert gcp.status(*gcp.instances()) == "RUNNING"


@pytest.mark.soak
def test_an_operation_that_does_not_end_is_not_called_a_failure_and_the_same_up_finds_its_machine(line, gcp):
    gcp.dwell(**{"instances.insert": math.inf})
    error = refused(line(UP, "--region us-central1 -o json"), 8)
    assert "same up again" in error["next"]
    (id_,) = gcp.instances()
    gcp.finish(id_)
    gcp.dwell(**{"instances.insert": 0})
    said = line(UP, "--region us-central1 -o json")
    assert said.code == 0, said.out
    assert gcp.instances() == [id_]
    assert line("down --yes").code == 0
    nothing_runs(line)


def test_a_stockout_after_a_long_wait_leaves_nothing(line, gcp):
    gcp.dwell(insert=20)
    gcp.stockout(zone="us-central1-a")
    error = refused(line(ONE_KIND, "--zone us-central1-a -o json"), 4)
    assert "us-central1-a" in error["message"]
    nothing_runs(line)


@pytest.mark.parametrize("nth", [1, 2])
def test_a_rule_that_cannot_be_made_leaves_no_machine_open_or_unseen(line, gcp, nth):
    """The first makes the network's own rule, the second that of the machine."""
    if nth == 2:
        assert line(UP).code == 0
        assert line("down --yes").code == 0
    begun = len(gcp.called(INSERT))
    gcp.faults.deny("compute.firewalls.insert", times=1)
    error = refused(line(UP, "-o json"), 6)
    assert "compute.firewalls.create" in error["message"]
    assert len(gcp.called(INSERT)) == begun, "it was launched before its door was shut"
    nothing_runs(line)


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [("authError", 401, "credential"), ("accessNotConfigured", 403, "compute.googleapis.com")],
)
def test_what_is_wrong_with_the_account_is_named_and_nothing_was_made(line, gcp, error, status, words):
    gcp.faults.add(error=error, status=status, times=99)
    found = refused(line(UP, "-o json"), 6)
    assert words in found["message"] + (found["next"] or "")
    nothing_runs(line)


@pytest.mark.parametrize("action", [INSERT, "compute.networks.get"])
def test_a_denied_action_is_named_and_nothing_was_made(line, gcp, action):
    gcp.faults.deny(action)
    error = refused(line(UP, "-o json"), 6)
    permission = action.replace(".insert", ".create")
    assert permission in error["message"]
    nothing_runs(line)


@pytest.mark.soak
def test_an_end_that_is_denied_is_no_end(line, gcp):
    assert line(UP).code == 0
    gcp.faults.deny("compute.instances.delete")
    error = refused(line("down --all --yes -o json"), 6)
    assert "compute.instances.delete" in error["message"]
    assert len(line("ls --refresh -o json").json["machines"]) == len(gcp.instances(live=True)) == 1
    gcp.faults.clear()
    assert line("down --all --yes").code == 0
    nothing_runs(line)


@pytest.mark.soak
def test_an_end_in_a_zone_that_is_silent_is_not_called_one(line, gcp, monkeypatch):
    monkeypatch.setattr("cloudgpu.control.inventory.stop_proof.STOP_TIMEOUT", timedelta(seconds=20))
    assert line(UP, "--zone us-central1-a").code == 0
    gcp.faults.offline(zone="us-central1-a")
    said = line("down --all --yes -o json")
    assert said.code == 9, said.out
    gcp.faults.clear()
    assert line("down --all --yes").code == 0
    nothing_runs(line)


@pytest.mark.soak
def test_a_silent_zone_is_named_and_the_others_are_used(line, gcp):
    assert line(UP, "--zone us-west1-a").code == 0
    gcp.faults.offline(zone="us-central1-a")
    said = line(UP.replace("otter", "fox"), "--new --region us-central1")
    assert said.code == 0, said.err
    listed = line("ls --refresh -o json")
    assert (listed.code, [gap["scope"] for gap in listed.json["unanswered"]]) == (8, ["us-central1-a"])
    assert len(listed.json["machines"]) == 2


@pytest.mark.soak
def test_a_machine_that_is_slow_to_stop_is_waited_for_and_proved(line, gcp, waited):
    assert line(UP).code == 0
    gcp.dwell(stop=20)
    assert line("stop --yes").code == 0
    assert waited.seconds >= 20
    assert gcp.status(*gcp.instances()) == "TERMINATED"


@pytest.mark.soak
def test_a_start_without_capacity_says_so_and_the_machine_stays_stopped(line, gcp):
    assert line(UP).code == 0
    assert line("stop --yes").code == 0
    gcp.stockout()
    error = refused(line("start --yes --no-wait -o json"), 4)
    assert error["kind"] == "no_capacity"
    assert gcp.status(*gcp.instances()) == "TERMINATED"
    assert line("ls --refresh -o json").json["machines"][0]["state"] == "stopped"
    gcp.faults.clear()
    assert line("start --yes --no-wait").code == 0
