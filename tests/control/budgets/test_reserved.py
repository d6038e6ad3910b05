"""What budgets keep for a job with a deadline while it has no machine, and when that is free again."""

from __future__ import annotations

import pytest

from cloudgpu.control.budgets.store import budget_states, find_budgets
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.control.jobs.plan import plan_run, record_request
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.jobs.store import job_by_id
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.core.events import job_events as lines
from cloudgpu.core.jobs.deadline import launch_options_of
from cloudgpu.errors import BudgetRefused
from tests.control.budgets.test_admission import budget, up

ZONES = ("north-a", "north-b", "south-a", "south-b")
HOURS = 10 + 1 + 2  # to the deadline, for a job that is late, for its results


@pytest.fixture
def asked(lab, tmp_path):
    (tmp_path / "work").mkdir()

    def begun(**options):
        words = {"gpu": "v100", "policy": "default", "name": "fox", "deadline": "10h", "work": "1h", **options}
        request = parse_run(workdir=tmp_path / "work", argv=["true"], environ={}, **words)
        return record_request(lab.session, plan_run(lab.session, request, {}))

    return begun


def carry(lab, job):
    with JobReconciler(lab.session, job.id, {}) as carrier:
        return carrier.reconcile()


def launch_for(lab, job, market):
    """Launch the next machine of a job as a watcher does that dies before it has written which one it is."""
    number = len(job_by_id(lab.session, job.id).attempts) + 1
    key = f"{job.id}-{number}"
    lab.session.ledger.append([lines.job_placed(job.id, number, lab.clock(), key=key, machine=None, market=market)])
    job = job_by_id(lab.session, job.id)
    words = launch_options_of(job, job.attempts[-1], lab.clock())
    request = parse_request(**words, name=job.name, key=key)
    return launch(lab.session, prepare(lab.session, request), wait=False).machine


def promised(lab):
    (found,) = budget_states(lab.opened(), find_budgets(lab.session, None))
    return found.committed.nanos / 1e9


def waits(lab, job):
    """Let the job wait for spot that cannot be had; afterwards there is capacity again."""
    for zone in ZONES:
        lab.cloud.exhaust(zone)
    found = carry(lab, job)
    assert (found.job.is_open, lab.machines()) == (True, [])
    for zone in ZONES:
        lab.cloud.refill(zone)


def test_another_launch_cannot_take_what_a_waiting_job_relies_on_and_the_job_can(lab, asked):
    budget(lab, 3 * HOURS + 5)
    job = asked(spot_policy="greedy")
    waits(lab, job)
    assert 3 * HOURS <= promised(lab) <= 3 * HOURS + 1
    with pytest.raises(BudgetRefused) as refused:
        up(lab, name="owl")
    assert float(refused.value.sums["running"]) >= 3 * HOURS
    up(lab, name="wren", lease="1h", renew_until="1h")  # what is left over
    assert launch_for(lab, job, "on_demand").market == "on_demand"


@pytest.mark.soak
def test_a_machine_that_runs_is_not_counted_beside_the_reservation(lab, asked):
    budget(lab, 1000)
    job = asked()
    before = promised(lab)
    machine = launch_for(lab, job, "spot")
    assert promised(lab) == pytest.approx(before, abs=0.2)
    lab.session.ledger.append([lines.job_machine(job.id, 1, machine.id, lab.clock())])
    assert promised(lab) == pytest.approx(before, abs=0.2)


@pytest.mark.soak
def test_the_money_stays_reserved_when_a_machine_is_taken_and_nobody_watches(lab, asked):
    budget(lab, 3 * HOURS + 5)
    job = asked()
    machine = launch_for(lab, job, "spot")
    lab.session.ledger.append([lines.job_machine(job.id, 1, machine.id, lab.clock())])
    lab.later(minutes=30)
    lab.cloud.terminate(machine.provider_id)
    sync_all(lab.session)
    assert lab.rows() == []
    with pytest.raises(BudgetRefused):
        up(lab, name="owl")
    hourly = job.spec["deadline"]["budget_per_hour"] / 1e9  # with its disk
    assert hourly > 3
    assert promised(lab) == pytest.approx(hourly * (HOURS - 0.5), abs=0.1)


def test_it_shrinks_with_the_time_that_is_left_and_lasts_while_a_late_job_waits(lab, asked):
    budget(lab, 1000)
    job = asked(spot_policy="greedy")
    waits(lab, job)
    lab.later(hours=6)
    assert promised(lab) == pytest.approx(3 * (HOURS - 6), abs=0.5)
    lab.later(hours=10)
    assert promised(lab) == pytest.approx(3 * 3, abs=0.5)


def test_it_is_free_again_once_somebody_cancels_the_job_whoever_watches(lab, asked):
    budget(lab, 3 * HOURS + 5)
    job = asked(spot_policy="greedy")
    waits(lab, job)
    lab.session.ledger.append(
        [lines.job_cancel_requested(job.id, "cancelled", "enough", "elsewhere", lab.clock())]  # by another computer
    )
    assert promised(lab) == 0
    up(lab, name="owl")


def test_it_is_free_again_when_the_job_is_over(lab, asked):
    budget(lab, 1000)
    job = asked(spot_policy="greedy")
    waits(lab, job)
    assert promised(lab) > 0
    lab.session.ledger.append([lines.job_ended(job.id, 1, "lost", lab.clock())])
    assert promised(lab) == 0


def test_a_job_without_a_deadline_reserves_nothing_of_its_own(lab, asked):
    budget(lab, 1000)
    asked(deadline=None, work=None)
    assert promised(lab) == 0


def test_only_budgets_that_cover_the_job_reserve_for_it(lab, asked):
    budget(lab, 1000, scope="owner=bob")
    asked(spot_policy="greedy")
    assert promised(lab) == 0


def test_of_two_jobs_each_sees_what_the_other_relies_on(lab, asked):
    budget(lab, 3 * HOURS * 1.5)
    first, second = asked(spot_policy="greedy"), asked(spot_policy="greedy", name="owl")
    with pytest.raises(BudgetRefused):
        carry(lab, first)
    assert not job_by_id(lab.session, first.id).is_open
    assert launch_for(lab, second, "spot").name == "owl"
