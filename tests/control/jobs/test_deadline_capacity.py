"""Jobs with a deadline that get no machine on demand: how long they go on trying, who hears of it, and what ends it."""

from __future__ import annotations

import pytest

from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.control.jobs.listing import job_document
from cloudgpu.control.jobs.plan import plan_run, record_request
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.jobs.store import job_by_id
from cloudgpu.core.events import job_events as lines
from cloudgpu.core.jobs.job import State
from cloudgpu.errors import NoCapacity
from tests.control.jobs.test_capacity import ZONES, alerts, carry, lab

__all__ = ["lab"]


@pytest.fixture
def job(lab, tmp_path):
    """A job that has to be on demand from the start; there is no capacity anywhere."""
    (tmp_path / "work").mkdir()
    words = {"gpu": "v100", "policy": "default", "name": "fox", "deadline": "8h", "work": "7h40m"}
    asked = parse_run(workdir=tmp_path / "work", argv=["true"], environ={}, **words)
    made = record_request(lab.session, plan_run(lab.session, asked, {}))
    for zone in ZONES:
        lab.cloud.exhaust(zone)
    return made


@pytest.fixture
def interrupted(lab, job):
    """The same, after it had a machine that was taken."""
    lab.cloud.refill(ZONES[0])
    machine = lab.up(name="fox", policy="default").machine
    lab.session.ledger.append(
        [
            lines.job_placed(job.id, 1, lab.clock(), key=machine.key, machine=None, market="spot"),
            lines.job_machine(job.id, 1, machine.id, lab.clock()),
            lines.job_began(job.id, 1, None, lab.clock()),
        ]
    )
    lab.cloud.exhaust(ZONES[0])
    return job, machine


def test_it_goes_on_trying_past_its_deadline_and_people_hear_of_that_once(lab, job):
    for hours in (0, 9, 22):
        lab.later(hours=hours)
        found = carry(lab, job)
        assert (found.job.is_open, isinstance(found.error, NoCapacity)) == (True, True)
    waits = job_document(lab.session, found.job)["waits"]
    assert (waits["since"][:16], waits["until"][:16]) == ("2026-11-20T11:00", "2026-11-21T19:00")
    assert alerts(lab).count("alert_raised") == 2  # late, and no machine
    (machine,) = [line for line in lab.session.ledger.events("alerts") if line.body["key"].endswith(":machine")]
    assert "until 2026-11-21 19:00 UTC" in str(machine.body)


@pytest.mark.soak
def test_a_day_after_the_deadline_it_is_given_up_with_a_clear_sentence(lab, job):
    carry(lab, job)
    lab.later(hours=31, minutes=59)
    assert carry(lab, job).job.is_open
    lab.later(minutes=2)
    with pytest.raises(NoCapacity):
        carry(lab, job)
    job = job_by_id(lab.session, job.id)
    assert (job.state, job.is_open) == (State.NOT_LAUNCHED, False)
    says = "it got no machine for 1d after its deadline, 2026-11-20 19:00 UTC, and is given up: "
    assert job.why.startswith(says)
    for zone in ZONES:
        lab.cloud.refill(zone)
    with JobReconciler(lab.session, job.id, {}) as carrier:
        carrier.reconcile()
    assert lab.machines() == []


@pytest.mark.soak
@pytest.mark.parametrize("hours", [3, 20, 72])
def test_a_machine_that_is_to_be_had_in_one_of_the_zones_ends_the_wait(lab, job, hours):
    carry(lab, job)
    lab.later(hours=hours)
    lab.cloud.refill(ZONES[-1])
    carry(lab, job)
    rows = [one for one in lab.session.ledger.machines() if one.launch_status == "made"]
    assert [(one.zone, one.market) for one in rows] == [(ZONES[-1], "on_demand")]


def test_a_job_that_lost_its_machine_after_the_deadline_has_a_day_from_then(lab, interrupted):
    job, machine = interrupted
    lab.later(hours=20)
    lab.cloud.terminate(machine.provider_id)
    assert carry(lab, job).job.is_open
    lab.later(hours=23, minutes=50)
    assert carry(lab, job).job.is_open
    lab.later(minutes=20)
    found = carry(lab, job)
    assert found.job.state is State.LOST
    assert found.job.why.startswith("it got no machine for 1d after its last machine ended and is given up: ")
    carry(lab, job)
    assert (job_by_id(lab.session, job.id).is_open, lab.machines()) == (False, [])
