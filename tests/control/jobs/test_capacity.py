"""Jobs that wait for a machine: how long they do, who hears of it, and what ends the wait."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.cli.jobs.jobs import table_text
from cloudgpu.cli.jobs.planned import plan_text
from cloudgpu.cli.jobs.text import job_text
from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.control.jobs.listing import job_document, list_jobs
from cloudgpu.control.jobs.plan import plan_run, record_request
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.jobs.store import job_by_id, record_measured
from cloudgpu.core.events import job_events as lines
from cloudgpu.core.jobs.job import State
from cloudgpu.core.jobs.notice import NOTICES, MeasuredCopies, SpotNotice
from cloudgpu.errors import NoCapacity, ProviderUnavailable
from cloudgpu.views.plans import plan_document
from tests.control.conftest import Lab

ZONES = ("north-a", "north-b", "south-a", "south-b")


@pytest.fixture
def lab(tmp_path, monkeypatch):
    return Lab(tmp_path, monkeypatch)


@pytest.fixture
def job(lab, tmp_path):
    (tmp_path / "work").mkdir()
    asked = parse_run(workdir=tmp_path / "work", argv=["true"], environ={}, gpu="v100", policy="default", name="fox")
    return record_request(lab.session, plan_run(lab.session, asked, {}))


def carry(lab, job):
    with JobReconciler(lab.session, job.id, {}) as carrier:
        return carrier.reconcile()


@pytest.fixture
def interrupted(lab, job):
    """A job whose machine was taken, while there is none to be had."""
    machine = lab.up(name="fox", policy="default").machine
    lab.session.ledger.append(
        [
            lines.job_placed(job.id, 1, lab.clock(), key=machine.key, machine=None),
            lines.job_machine(job.id, 1, machine.id, lab.clock()),
            lines.job_began(job.id, 1, None, lab.clock()),
        ]
    )
    lab.later(minutes=5)
    lab.cloud.terminate(machine.provider_id)
    for zone in ZONES:
        lab.cloud.exhaust(zone)
    return job


def alerts(lab):
    """What was told of the wait, in order."""
    found = lab.session.ledger.events("alerts")
    return [line.kind for line in found if line.body["key"].startswith("job-waits:")]


def test_it_says_since_when_and_until_when_it_waits_and_tells_people_once(lab, interrupted):
    for _ in range(3):
        found = carry(lab, interrupted)
        lab.later(minutes=30)
    assert (found.job.state, found.job.attempt.number) == (State.PENDING, 2)
    waits = job_document(lab.session, found.job)["waits"]
    since, now = found.job.waits[0], lab.clock()
    assert (waits["until"][:16], now - since) == (
        (since + timedelta(hours=24)).isoformat()[:16],
        timedelta(minutes=90),
    )
    said = f"waits for capacity since {since:%Y-%m-%d %H:%M} UTC (1h 30m ago)"
    assert said.removeprefix("waits ") in job_text(job_document(lab.session, found.job), now)
    assert f"fox {said}" in table_text(list_jobs(lab.session), now, ended=False)
    assert alerts(lab) == ["alert_raised"]


@pytest.mark.soak
def test_a_machine_that_is_to_be_had_again_ends_the_wait(lab, interrupted):
    carry(lab, interrupted)
    for zone in ZONES:
        lab.cloud.refill(zone)
    found = carry(lab, interrupted)
    assert (found.job.waits, found.job.attempt.machine is not None) == (None, True)
    assert job_document(lab.session, found.job)["waits"] is None
    assert alerts(lab) == ["alert_raised", "alert_cleared"]


def test_after_a_day_of_waiting_the_job_is_lost_and_nothing_is_launched_for_it_any_more(lab, interrupted):
    carry(lab, interrupted)
    lab.later(hours=23, minutes=59)
    assert carry(lab, interrupted).job.is_open
    lab.later(minutes=2)
    found = carry(lab, interrupted)
    assert found.job.state is State.LOST
    assert "; it got no other machine in 1d: " in found.job.why
    for zone in ZONES:
        lab.cloud.refill(zone)
    carry(lab, interrupted)
    assert (job_by_id(lab.session, interrupted.id).is_open, lab.machines()) == (False, [])


def test_who_comes_back_after_days_tries_once_more_before_the_job_is_lost(lab, interrupted):
    carry(lab, interrupted)
    lab.later(hours=72)
    for zone in ZONES:
        lab.cloud.refill(zone)
    assert carry(lab, interrupted).job.attempt.machine is not None


def test_the_plan_of_a_spot_machine_goes_by_what_was_copied_from_its_type_and_by_the_last_checkpoint(
    lab, job, tmp_path, monkeypatch
):
    monkeypatch.setitem(NOTICES, "fake", SpotNotice(120, 35))
    words = {"argv": ["true"], "environ": {}, "gpu": "v100", "policy": "default", "workdir": tmp_path / "work"}

    def planned(**more):
        return plan_run(lab.session, parse_run(**words, **more), {})

    assert planned(name="fox-2").notice_fit is None
    assert (planned(spot=True).notice_fit.measured_on, planned(spot=True).notice_fit.previous_bytes) == (None, None)
    machine = lab.up(name="fox", policy="default").machine
    place = lines.job_placed(job.id, 1, lab.clock(), key="k", machine=machine.id)
    lab.session.ledger.append([place])
    record_measured(lab.home / "jobs" / job.id, MeasuredCopies(20e6, 3_000_000_000, None))
    record_measured(lab.home / "jobs" / job.id, MeasuredCopies(None, None, 7))
    fit = planned(name="other", spot=True).notice_fit
    assert (fit.measured_on, fit.bytes_per_s, fit.copyable_bytes) == (machine.instance_type, 20e6, 80 * 20_000_000)
    assert (fit.previous_bytes, fit.previous_job, fit.previous_fits) == (3_000_000_000, "fox", False)
    text = plan_text(planned(spot=True), {**plan_of(lab), "market": "spot"}, lab.clock(), verbose=False)
    assert "up to 5 times when its machine is taken, and waits at most 1d for another" in " ".join(text.split())


def plan_of(lab):
    return plan_document(lab.prepare(policy="default").plan)


def test_without_capacity_the_first_machine_is_not_waited_for(lab, job):
    for zone in ZONES:
        lab.cloud.exhaust(zone)
    with pytest.raises(NoCapacity):
        carry(lab, job)
    assert (job_by_id(lab.session, job.id).state, job_by_id(lab.session, job.id).is_open) == (
        State.NOT_LAUNCHED,
        False,
    )


def test_a_cloud_that_is_away_is_waited_for_a_day_too(lab, job):
    lab.cloud.fail_next("available", ProviderUnavailable("the fake cloud is away"), times=9)
    assert carry(lab, job).job.waits[1] == "the fake cloud is away"
    lab.later(hours=24)
    with pytest.raises(ProviderUnavailable):
        carry(lab, job)
    assert (job_by_id(lab.session, job.id).state, lab.machines()) == (State.NOT_LAUNCHED, [])
