"""The defects of peers that concern idle machines and stopping them, each as a test under its name.

What was found in cloud-custodian 0.9.53, SkyPilot, dstack, spotty, swm and APScheduler 3.11 must not be found here.
"""

from __future__ import annotations

import ast
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.lifecycle.start import start
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.errors import InvalidRequest
from tests.control.conftest import Fleet

ROOT = Path(__file__).parents[3]

# Those that no pass can show are held where they belong; each of these tests is there.
ELSEWHERE = {
    "one instance in the wrong state makes the whole stop batch fail (cloud-custodian, on EC2)": (
        "tests/providers/aws/compute/test_bulk.py::test_one_instance_in_the_wrong_state_does_not_fail_the_whole_batch"
    ),
    "off-hours: the spring hour never fires (cloud-custodian)": (
        "tests/core/policies/test_schedule.py::test_an_hour_that_does_not_exist_is_the_first_moment_after_the_gap"
    ),
    "off-hours: the autumn hour fires twice (cloud-custodian)": (
        "tests/core/policies/test_schedule.py::test_an_hour_that_comes_twice_fires_the_first_time_only"
    ),
    "an Azure machine that was shut down from inside counts as free while it is billed (SkyPilot, swm)": (
        "tests/core/events/test_metering.py::"
        "test_an_azure_machine_that_was_shut_down_from_inside_is_billed_until_it_is_deallocated"
    ),
    "cost reports re-price the past at today's price (SkyPilot)": (
        "tests/core/events/test_metering.py::test_a_price_that_is_told_late_is_that_of_its_time"
    ),
    "cost reports leave out disks (SkyPilot)": (
        "tests/core/events/test_metering.py::test_a_disk_is_billed_while_its_machine_is_stopped_and_an_automatic_address_is_not"
    ),
    "cost reports print $0.00 where a price is missing (SkyPilot)": (
        "tests/core/billing/test_cost_groups.py::test_what_has_no_price_is_named_and_counted_once"
    ),
    "a catalogue whose fetch failed but whose date was renewed (SkyPilot)": (
        "tests/cli/market/test_catalog.py::test_a_failed_refresh_leaves_the_old_data_and_its_old_date"
    ),
    "host keys never verified (SkyPilot, dstack, spotty, swm)": (
        "tests/access/ssh/test_connection.py::test_another_host_key_is_refused_at_once_however_long_one_would_wait"
    ),
    "SSH open to the world (SkyPilot, dstack, spotty, swm)": (
        "tests/providers/aws/network/test_security_group.py::test_a_launch_names_who_may_open_ssh_or_the_network_itself"
    ),
    "an overdue job dropped with only a warning (APScheduler)": (
        "tests/control/scheduler/test_watch_scheduler.py::test_an_overdue_job_is_run_once_and_not_dropped_with_a_warning"
    ),
}


@pytest.mark.parametrize("defect", ELSEWHERE)
def test_what_is_held_elsewhere_is_held_there(defect):
    file, _, name = ELSEWHERE[defect].partition("::")
    tree = ast.parse((ROOT / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def ends(found):
    return [(one.name, one.do, one.rule) for one in found.ended]


@pytest.mark.soak
def test_one_instance_in_the_wrong_state_makes_the_whole_stop_batch_fail(fleet):
    """cloud-custodian, `Stop`: nothing was stopped then."""
    for name in ("fox", "owl", "hen"):
        fleet.up(name=name, key=name)
    fleet.idle(hours=2)
    fleet.later(minutes=10)
    fleet.agents.says(fleet.clock())
    fleet.cloud.fail_next("stop_many", lambda: fleet.cloud.terminate(fleet.machine("owl").provider_id))
    assert {name for name, _, _ in ends(fleet.pass_())} == {"fox", "owl", "hen"}
    assert fleet.machines() == []


def test_an_unknown_time_zone_becomes_the_hosts_zone(fleet):
    """cloud-custodian, `mark-for-op`."""
    fleet.policy("evening", "lease: 8h\nrenew_until: 72h\nschedule:\n  - off: '19:00'\n    tz: Europe/Pariss\n")
    with pytest.raises(InvalidRequest, match="Europe/Pariss") as refused:
        fleet.pass_(policy="evening")
    assert "evening.yaml:5" in refused.value.message


@pytest.mark.soak
def test_a_metric_call_that_was_denied_makes_regions_report_nothing_idle(fleet):
    """cloud-custodian: two regions reported nothing, exit code 0."""
    fleet.up(name="fox")
    fleet.idle(hours=2)
    fleet.later(minutes=10)
    fleet.agents.says(fleet.clock())
    fleet.cloud.deny("list")
    found = fleet.pass_()
    assert found.exit_code == 8
    assert [(one.name, one.activity) for one in found.decisions] == [("fox", "UNKNOWN")]
    assert "may not call fake:list" in found.unanswered[0].why


def test_a_machine_that_denies_its_samples_is_unknown_and_its_owner_is_told(fleet, agents):
    """The same, of the machine itself: no answer over SSH is no word that nothing happens there."""
    fleet.up(name="fox")
    agents.runs("echo denied >&2; exit 1")
    fleet.idle(hours=2)
    found = fleet.idle(hours=2)
    assert {one.activity for one in found.decisions} == {"UNKNOWN"}
    assert found.ended == ()
    assert "warning_sent" in fleet.kinds()


def evening(fleet, hour=19):
    text = f"lease: 20h\nrenew_until: 9d\nidle:\n  do: off\nschedule:\n  - off: '{hour}:00'\n    tz: UTC\n"
    fleet.policy("evening", text)
    fleet.up(name="fox", policy="evening")


def used(fleet, hour, day=20):
    """Make a pass at this hour; somebody works on the machine."""
    moment = datetime(2026, 11, day, hour, tzinfo=UTC)
    fleet.clock.advance((moment - fleet.clock()).total_seconds())
    fleet.agents.says(moment, gpu=90)
    return fleet.pass_()


@pytest.mark.soak
def test_off_hours_match_only_when_now_hour_is_the_hour(fleet):
    """cloud-custodian: a run that was missed meant no stop that day. The first one after it catches up."""
    evening(fleet)
    assert used(fleet, 18).ended == ()
    assert [(one.name, one.rule) for one in used(fleet, 21).warned] == [("fox", Rule.SCHEDULE)]
    fleet.later(minutes=10)
    assert ends(fleet.pass_()) == [("fox", ReaperAction.STOP, Rule.SCHEDULE)]


@pytest.mark.soak
def test_a_manual_start_after_the_off_survives_until_the_next_off(fleet):
    """AWS instance-scheduler keeps what it did last; here the latest start says it."""
    evening(fleet)
    used(fleet, 21)
    fleet.later(minutes=10)
    assert ends(fleet.pass_())
    until = fleet.clock() + timedelta(hours=30)
    start(fleet.session, fleet.machine(), Lease(until, until))
    assert used(fleet, 23).ended == ()
    assert used(fleet, 15, day=21).ended == ()
    used(fleet, 19, day=21)
    fleet.later(minutes=10)
    assert ends(fleet.pass_()) == [("fox", ReaperAction.STOP, Rule.SCHEDULE)]


@pytest.mark.soak
def test_missing_metrics_read_as_zero_so_that_a_dead_agent_looks_idle(fleet, agents):
    """cloud-custodian, `missing-value: 0`."""
    fleet.up(name="fox")
    agents.runs("exit 127")
    told = []
    for _ in range(12):
        found = fleet.idle(minutes=30)
        assert found.ended == ()
        assert {one.activity for one in found.decisions} == {"UNKNOWN"}
        told += [(one.rule, one.due) for one in found.warned]
    assert len(fleet.machines()) == 1
    assert (Rule.NONE, None) in told, "its owner is told that nothing is known of it"


@pytest.mark.soak
def test_a_box_stopped_while_its_owner_typed_in_it(fleet, agents):
    """SkyPilot #9524: the list of terminals was cached. The samples are read again right before the stop."""
    fleet.up(name="fox")
    fleet.idle(hours=2)
    fleet.later(minutes=10)
    agents.says(fleet.clock())
    answer = agents.home / ".cloudgpu" / "answer"
    said = json.loads(answer.read_text())
    said["samples"][-1]["in"] = 1
    (agents.home / "typed").write_text(json.dumps(said))
    agents.runs(f"cat {answer}; cp ~/typed {answer}")  # the first look sees nothing, the second a key that was pressed
    found = fleet.pass_()
    assert [(one.name, one.do) for one in found.skipped] == [("fox", ReaperAction.KEEP)]
    assert (found.ended, found.exit_code) == ((), 0)
    assert "stop_requested" not in fleet.kinds()
    assert fleet.kinds().count("warning_cleared") == 1
    assert len(fleet.machines()) == 1


class OnAzure(Fleet):
    """A fleet whose machines stay allocated when they are shut down from inside."""

    cloud_kind = "tests.control.allocated:AllocatedProvider"


def test_a_machine_that_was_shut_down_from_inside_counts_as_stopped_and_free(tmp_path, monkeypatch, agents):
    """SkyPilot, swm, of Azure: it is billed on. It is shown so, and a pass stops it."""
    fleet = OnAzure(tmp_path, monkeypatch, f'{agents.options}timer = "moves"\n', agents)
    fleet.up(name="fox")
    fleet.later(minutes=5)
    fleet.cloud.die(fleet.machine().provider_id)
    sync_all(fleet.session)
    assert (fleet.machine().state, fleet.machine().billed) == ("stopped", True)
    assert ends(fleet.pass_()) == [("fox", ReaperAction.STOP, Rule.IDLE)]
    assert (fleet.machine().state, fleet.machine().billed) == ("stopped", False)


def test_a_scheduler_store_shared_by_two_processes_runs_every_job_twice(fleet):
    """APScheduler: here the ledger and one lock say what is due; the second pass finds it done."""
    fleet.up(name="fox")
    fleet.idle(hours=2)
    fleet.later(minutes=10)
    fleet.agents.says(fleet.clock())
    other = fleet.opened()
    first, second = fleet.pass_(), reap(other, ReapOptions())
    assert (len(first.ended), len(second.ended)) == (1, 0)
    assert fleet.kinds().count("stop_requested") == 1
