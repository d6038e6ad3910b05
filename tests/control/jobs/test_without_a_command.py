"""What a watcher does by what earlier ones have written, on the fake cloud: no command of a job runs."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from datetime import timedelta
from threading import Event

import pytest

from cloudgpu.access.jobs.remote import RemoteJob
from cloudgpu.access.ssh.connection import connect
from cloudgpu.control.alerts.alerts import deliver
from cloudgpu.control.cost.cost import job_spent
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.jobs.cancel import request_cancel
from cloudgpu.control.jobs.deadline.choice import _usable_offers
from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.control.jobs.plan import plan_run, record_request
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.jobs.slurm.events import read_completion_log
from cloudgpu.control.jobs.store import job_by_id
from cloudgpu.control.jobs.watch import JobRounds, reconcile_all
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.launch.within_cost import lifetime_within_cost
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.session import guarding
from cloudgpu.core.clusters.layout import cluster_id, engine_paths
from cloudgpu.core.events import job_events as lines
from cloudgpu.core.jobs.job import State
from cloudgpu.core.jobs.remote_state import Phase as RemotePhase
from cloudgpu.core.jobs.steps import JobAction, Step
from cloudgpu.core.model.instances import State as Phase
from cloudgpu.core.model.launch import Setup
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso
from tests.access.sshserver import Server
from tests.control.conftest import Lab
from tests.control.jobs.test_capacity import ZONES, carry

LATE = {"deadline": "8h", "work": "1h", "spot_policy": "on-demand"}
TELLS = 'agent = "tells"\nlacks = ["HasTimer"]\n'


@pytest.fixture
def desk(make_lab, tmp_path):
    """Make labs, each for one job."""
    (tmp_path / "work").mkdir()
    return make_lab


@pytest.fixture
def connection(tmp_path):
    """A connection to a machine that has heard of no job."""
    made = Server(tmp_path / "machine")
    made.root.mkdir()
    (made.root / "connections").touch()
    with connect(made.start().pin().target, timeout=10) as opened:
        yield opened
    made.kill()


class Reached(JobReconciler):
    """A watcher whose job's machine is at the other end of this connection."""

    def __init__(self, opened, lab, job):
        super().__init__(lab.session, job.id, {})
        self.opened = opened

    def remote_job(self, job, machine):
        return RemoteJob(self.opened, job.id, 1)


def asked(lab: Lab, **options):
    words = {"gpu": "v100", "policy": "default", "name": "fox", **options}
    request = parse_run(workdir=lab.home.parent / "work", argv=["true"], environ={}, **words)
    return record_request(lab.session, plan_run(lab.session, request, {}))


def running(lab: Lab, *, up=(), market=None, **options):
    """A job whose command has begun on its machine; return both. `up` is what its launch asks for."""
    job = asked(lab, **options)
    machine = lab.up(name="fox", policy="default", **dict(up)).machine
    lab.session.ledger.append(
        [
            lines.job_placed(job.id, 1, lab.clock(), key=machine.key, machine=None, market=market),
            lines.job_machine(job.id, 1, machine.id, lab.clock()),
            lines.job_began(job.id, 1, None, lab.clock()),
        ]
    )
    return job, machine


def over(lab: Lab, job):
    """Write that its command has succeeded, and nobody has fetched its results."""
    lab.session.ledger.append(
        [lines.job_ended(job.id, 1, "succeeded", lab.clock(), status=0, is_machine_time=True, why="")]
    )


def test_a_budget_that_refuses_the_restart_ends_the_job_with_its_words(desk):
    lab = desk("")
    job, machine = running(lab)
    lab.later(minutes=5)
    lab.cloud.terminate(machine.provider_id)
    place = lab.home / "policies" / "budgets"
    place.mkdir(parents=True)
    (place / "lab.yaml").write_text("amount: 0.001\nperiod: month\n")
    lab.session = lab.opened()
    carry(lab, job)
    found = carry(lab, job)
    assert (found.job.is_open, found.job.state, lab.machines()) == (False, State.LOST, [])
    assert "Budget lab does not allow fox-2" in found.job.why


def test_a_machine_that_does_not_answer_after_the_end_of_its_job_is_stopped_with_its_results(desk):
    lab = desk("")
    job, machine = running(lab)
    over(lab, job)
    found = carry(lab, job)
    assert (found.error is not None, len(lab.machines())) == (True, 1)
    lab.later(hours=2)
    found = carry(lab, job)
    assert (found.job.state, found.job.is_open, lab.machines()) == (State.SUCCEEDED, True, [])
    assert lab.session.ledger.machine(machine.id).state == "stopped"


def test_a_start_for_its_results_that_no_run_guards_counts_as_none(desk, tmp_path, monkeypatch):
    (tmp_path / "power").mkdir()
    monkeypatch.setattr(guarding, "POWER_SUPPLY", tmp_path / "power")
    lab = desk(TELLS)
    reap(lab.session, ReapOptions(cron=True, interval=timedelta(hours=2)))
    job, machine = running(lab)
    over(lab, job)
    lab.cloud.stop(machine.provider_id)
    lab.later(hours=5)  # who made those runs has left
    carry(lab, job)
    for _ in range(3):
        found = carry(lab, job)
        assert (found.error.field, found.job.resumes, lab.machines()) == ("--no-guard", 0, [])


def test_a_computer_without_the_files_launches_nothing_for_an_attempt_that_another_one_has_placed(desk):
    lab = desk("")
    job = asked(lab)
    lab.session.ledger.append([lines.job_placed(job.id, 1, lab.clock(), key=f"{job.id}-1", machine=None)])
    shutil.rmtree(lab.home / "jobs" / "snapshots")
    found = carry(lab, job)
    assert "are not on this computer" in found.why
    assert lab.session.ledger.machines() == []


def test_a_taken_machine_that_cannot_be_started_again_is_given_up_for_another_one(desk):
    lab = desk("")
    job, machine = running(lab, up={"spot": True, "setup": Setup(persistent=True)})
    lab.cloud._change_machine(
        machine.provider_id, requested=Phase.STOPPED, reason="interrupted"
    )  # as AWS does with such a one
    lab.later(minutes=10)
    for zone in ZONES:
        lab.cloud.exhaust(zone)
    found = carry(lab, job)
    assert (found.job.interruptions, found.job.attempt.number, found.job.resumes) == (1, 2, 0), found
    assert "cannot be started again now" in found.job.attempts[0].why


def test_what_a_taken_machine_has_left_goes_with_a_job_that_gets_no_other_one(desk):
    lab = desk("")
    job, machine = running(lab, up={"spot": True}, restarts=0)
    lab.cloud.interrupt(machine.provider_id)
    lab.later(minutes=10)
    assert lab.cloud.resources().items  # its disk
    found = carry(lab, job)
    assert (found.job.is_open, found.job.state) == (False, State.LOST)
    assert lab.cloud.resources().items == ()


def test_a_job_that_moves_takes_a_last_copy_along_before_its_machine_ends(desk, tmp_path, connection):
    lab = desk("")
    job, machine = running(lab, market="spot", up={"spot": True}, **LATE)
    written = tmp_path / "machine" / "home" / ".cloudgpu" / "jobs" / job.id / "1" / "work" / "results"
    written.mkdir(parents=True)
    (written / "answer").write_text("42")
    sync_all(lab.session)
    lab.session.ledger.append([lines.job_move_requested(job.id, 1, "on_demand", "it is late", lab.clock())])
    with Reached(connection, lab, job) as carrier:
        carrier.reconcile()
    assert lab.session.ledger.machine(machine.id).terminated_at is not None
    assert (lab.home / "jobs" / job.id / "results" / "answer").read_text() == "42"


def test_a_job_that_names_its_zone_is_offered_no_other_one_to_move_to(desk):
    lab = desk("")

    job, machine = running(lab, market="spot", up={"spot": True, "zone": "north-b"}, zone="north-b", **LATE)
    job = job_by_id(lab.session, job.id)
    assert {one.configuration.zone for one in _usable_offers(lab.session, job, job.attempt, machine)} == {"north-b"}


def test_what_a_taken_machine_has_left_does_not_wait_for_the_next_one_of_a_job_with_a_deadline(desk):
    lab = desk("")
    job, machine = running(lab, market="spot", up={"spot": True}, **LATE)
    lab.cloud.interrupt(machine.provider_id)
    lab.later(minutes=10)
    shutil.rmtree(lab.home / "jobs" / "snapshots")  # nobody here can launch the next one
    found = carry(lab, job)
    assert (found.job.is_open, found.job.attempts[0].interrupted) == (True, True)
    assert lab.cloud.resources().items == ()


def test_what_a_shell_prints_by_itself_is_no_part_of_slurms_log(desk, tmp_path, monkeypatch):
    machine, tools = desk("").up().machine, tmp_path / "tools"
    tools.mkdir()
    # As a ~/.bashrc that greets: Debian's bash reads it for a command over SSH, too.
    (tools / "sh").write_text('#!/bin/sh\necho Welcome\nexec /bin/sh "$@"\n')
    (tools / "sh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    server = Server(tmp_path / "cluster")
    server.root.mkdir()
    (server.root / "connections").touch()
    (tools / "date").write_text("#!/bin/sh\necho -0330\n")
    (tools / "date").chmod(0o755)
    behind = -timedelta(hours=3, minutes=30)
    try:
        with connect(server.start().pin().target, timeout=10) as connection:
            assert read_completion_log(connection, machine) == ("", behind)
            log = server.home / engine_paths(cluster_id(machine)).records
            log.parent.mkdir(parents=True)
            log.write_text("JobId=1 UserId=ada(1000)\n")
            assert read_completion_log(connection, machine) == ("JobId=1 UserId=ada(1000)\n", behind)
            (tools / "date").write_text("#!/bin/sh\n")  # times without a zone say nothing
            assert read_completion_log(connection, machine)[0] == ""
    finally:
        server.kill()


def test_a_defect_in_one_job_keeps_no_other_one_from_its_end(desk):
    """Else the machines of all jobs were billed until somebody had found it."""
    lab = desk("")
    jobs = {name: asked(lab, name=name) for name in ("owl", "fox")}
    (lab.home / "jobs" / jobs["owl"].id / "place").write_bytes(b"\xff")  # no text, as a failing disk leaves one
    for job in jobs.values():
        request_cancel(lab.session, job)
    for _ in range(2):
        results = {before.name: result for before, result in reconcile_all(lab.session, {})}
    assert "Internal error: UnicodeDecodeError" in results["owl"].error.message
    assert (results["owl"].job.is_open, job_by_id(lab.session, jobs["fox"].id).is_open) == (True, False)


def test_a_job_whose_step_takes_long_delays_no_other_one_of_a_watch(desk):
    lab = desk("")
    owl, fox = asked(lab, name="owl"), asked(lab, name="fox")
    machine = lab.up(name="fox", policy="default").machine
    placed = lines.job_placed(fox.id, 1, lab.clock(), key=machine.key, machine=None)
    lab.session.ledger.append([placed, lines.job_machine(fox.id, 1, machine.id, lab.clock())])
    for job in (owl, fox):
        request_cancel(lab.session, job)
    there, go = Event(), Event()

    def report(sentence):
        if "fox: ending" in sentence:
            there.set()
            go.wait(60)

    rounds, seen = JobRounds(timedelta(milliseconds=100)), []
    session = replace(lab.session, report=report)
    while "owl" not in seen or not there.is_set():
        seen += [result.job.name for _, result in rounds.reconcile(session, {}) if not result.job.is_open]
    assert seen == ["owl"]
    go.set()
    while "fox" not in seen:
        seen += [result.job.name for _, result in rounds.reconcile(session, {}) if not result.job.is_open]
    assert lab.machines() == []


def test_a_job_over_its_cost_is_ended_although_its_machine_does_not_answer(desk):
    lab = desk("")
    job, _ = running(lab, max_cost="5", results_wait="10m")
    lab.later(hours=2)
    assert job_spent(lab.session, job_by_id(lab.session, job.id)).nanos > Money.usd(5).nanos
    carry(lab, job)
    assert job_by_id(lab.session, job.id).cancel[0] == "over_cost"
    for _ in range(3):
        lab.later(minutes=11)
        found = carry(lab, job)
    assert (found.job.state, lab.machines()) == (State.OVER_COST, [])


@pytest.mark.parametrize("spent", [False, True])
def test_a_further_machine_of_a_job_lives_as_long_as_the_rest_of_its_cost_allows(desk, spent):
    """Where nobody watches, only that ends it."""
    lab = desk("")
    job, machine = running(lab, max_cost="20", timeout="30d")
    lab.later(hours=4 if spent else 0)
    lab.cloud.terminate(machine.provider_id)
    sync_all(lab.session)
    left = Money.usd(20).nanos - job_spent(lab.session, job_by_id(lab.session, job.id)).nanos
    carry(lab, job)
    carry(lab, job)
    fox = next(row for row in lab.session.ledger.machines() if row.name == "fox-2")
    hours = (from_iso(fox.renew_until) - from_iso(fox.intended_at)) / timedelta(hours=1)
    assert fox.price.nanos_per_hour * (hours - 0.25) <= left
    assert fox.price.nanos_per_hour * (hours + 0.1) > left


def test_a_machine_of_a_job_with_a_deadline_lives_as_long_as_its_cost_allows_if_nobody_watches(desk, tmp_path):
    lab = desk("")
    words = {"gpu": "v100", "policy": "default", "name": "owl", "deadline": "40h", "work": "2h", "max_cost": "20"}
    asked = parse_run(workdir=tmp_path / "work", argv=["true"], environ={}, spot_policy="on-demand", **words)
    planned = plan_run(lab.session, asked, {})
    job = record_request(lab.session, planned)
    carry(lab, job)
    owl = next(row for row in lab.session.ledger.machines() if row.name == "owl")
    hours = (from_iso(owl.renew_until) - from_iso(owl.intended_at)) / timedelta(hours=1)
    assert owl.price.nanos_per_hour * (hours - 0.25) <= Money.usd(20).nanos < owl.price.nanos_per_hour * (hours + 0.1)
    assert abs(planned.planned_max.nanos - owl.price.nanos_per_hour * hours) < Money.usd("0.5").nanos


def test_a_free_machine_is_not_limited_by_a_cost_that_is_used_up(desk):
    lab = desk("")
    prepared = prepare(lab.session, parse_request(gpu="v100", policy="default"))
    cost = prepared.plan.to_renew_until
    free = replace(prepared, plan=replace(prepared.plan, to_renew_until=replace(cost, amount=Money(0))))
    assert lifetime_within_cost(free, Money.usd(-1)) is None
    assert lifetime_within_cost(prepared, Money.usd(-1)) is not None


@pytest.fixture
def guarded(desk, tmp_path):
    """A lab with a job whose machine is gone, and the environment and the file that have its secrets."""
    lab, environ, file = desk(""), {"HF_TOKEN": "x"}, tmp_path / "job.env"
    file.write_text("PIN=1\n")
    words = {"gpu": "v100", "policy": "default", "name": "fox", "secret": ["HF_TOKEN"], "env_file": str(file)}
    request = parse_run(workdir=tmp_path / "work", argv=["true"], environ=environ, **words)
    job = record_request(lab.session, plan_run(lab.session, request, environ))
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
    sync_all(lab.session)
    return lab, job, environ, file


def launched(lab):
    return [machine.name for machine in lab.session.ledger.machines()]


def once(lab, job, environ):
    with JobReconciler(lab.session, job.id, environ) as carrier:
        return carrier.reconcile()


@pytest.mark.parametrize("lacks", ["HF_TOKEN", "the files"])
def test_a_retry_where_the_machine_still_runs_is_begun_within_an_hour_or_ends_it(desk, tmp_path, connection, lacks):
    """Nothing ended the machine while no computer that has the secret, or the files, came."""
    lab = desk("")
    words = {"gpu": "v100", "policy": "default", "name": "fox", "secret": ["HF_TOKEN"], "retries": 1}
    request = parse_run(workdir=tmp_path / "work", argv=["false"], environ={"HF_TOKEN": "x"}, **words)
    job = record_request(lab.session, plan_run(lab.session, request, {"HF_TOKEN": "x"}))
    machine = lab.up(name="fox", policy="default").machine
    lab.session.ledger.append(
        [
            lines.job_placed(job.id, 1, lab.clock(), key=machine.key, machine=None),
            lines.job_machine(job.id, 1, machine.id, lab.clock()),
            lines.job_began(job.id, 1, None, lab.clock()),
            lines.job_try_ended(job.id, 1, lab.clock(), interrupted=False, status=1, why="exit status 1"),
        ]
    )
    sync_all(lab.session)
    if lacks == "the files":
        shutil.rmtree(lab.home / "jobs" / "snapshots")
    with Reached(connection, lab, job) as carrier:
        carrier.environ = {} if lacks == "HF_TOKEN" else {"HF_TOKEN": "x"}
        found = carrier.reconcile()
        assert [attempt.machine for attempt in found.job.attempts] == [machine.id, machine.id]
        assert "HF_TOKEN" in found.why if lacks == "HF_TOKEN" else "not on this computer" in found.why
        for minutes, is_open in ((40, True), (40, False)):
            lab.later(minutes=minutes)
            found = carrier.reconcile()
            assert found.job.is_open is is_open
    assert (found.job.state, lab.machines()) == (State.SETUP_FAILED, [])
    assert deliver(lab.session, []).active == ()


def test_a_job_that_waited_for_its_secret_is_begun_by_a_computer_that_has_it(desk, tmp_path, connection):
    lab = desk("")
    words = {"gpu": "v100", "policy": "default", "name": "fox", "secret": ["HF_TOKEN"]}
    request = parse_run(workdir=tmp_path / "work", argv=["true"], environ={"HF_TOKEN": "x"}, **words)
    job = record_request(lab.session, plan_run(lab.session, request, {"HF_TOKEN": "x"}))
    machine = lab.up(name="fox", policy="default").machine
    placed = lines.job_placed(job.id, 1, lab.clock(), key=machine.key, machine=None)
    lab.session.ledger.append([placed, lines.job_machine(job.id, 1, machine.id, lab.clock())])
    sync_all(lab.session)
    with Reached(connection, lab, job) as carrier:
        for _ in range(3):
            carrier.reconcile()
        told = [line.kind for line in lab.session.ledger.events("alerts") if line.body["key"].endswith(":secret")]
        assert told == ["alert_raised"]
        assert "HF_TOKEN" in job_by_id(lab.session, job.id).waits[1]
        assert "HF_TOKEN" in deliver(lab.session, []).active[0]
        lab.later(minutes=50)
        carrier.environ = {"HF_TOKEN": "x"}
        carrier._execute_start(job_by_id(lab.session, job.id), Step(JobAction.START))
        assert carrier.remote.phase is not RemotePhase.ABSENT
        carrier.remote_job(job, machine).cancel("cancelled", grace_s=0)
    assert deliver(lab.session, []).active == ()


def test_a_job_that_could_not_be_begun_is_tried_once_more_by_a_watcher_that_slept_for_hours(desk, tmp_path, connection):
    lab = desk("")
    words = {"gpu": "v100", "policy": "default", "name": "fox", "secret": ["HF_TOKEN"]}
    request = parse_run(workdir=tmp_path / "work", argv=["true"], environ={"HF_TOKEN": "x"}, **words)
    job = record_request(lab.session, plan_run(lab.session, request, {"HF_TOKEN": "x"}))
    machine = lab.up(name="fox", policy="default").machine
    placed = lines.job_placed(job.id, 1, lab.clock(), key=machine.key, machine=None)
    lab.session.ledger.append([placed, lines.job_machine(job.id, 1, machine.id, lab.clock())])
    sync_all(lab.session)
    with Reached(connection, lab, job) as carrier:
        assert "HF_TOKEN" in carrier.reconcile().why
        lab.later(hours=3)
        carrier.environ = {"HF_TOKEN": "x"}
        found = carrier.reconcile()
        assert (found.error, found.job.outcome) == (None, None)
        assert carrier.remote.phase is not RemotePhase.ABSENT
        carrier.remote_job(job, machine).cancel("cancelled", grace_s=0)


def test_launches_that_made_nothing_days_ago_make_no_first_try_to_begin_the_last_one(desk, tmp_path, connection):
    lab = desk("")
    words = {"gpu": "v100", "policy": "default", "name": "fox", "secret": ["HF_TOKEN"]}
    request = parse_run(workdir=tmp_path / "work", argv=["true"], environ={"HF_TOKEN": "x"}, **words)
    job = record_request(lab.session, plan_run(lab.session, request, {"HF_TOKEN": "x"}))
    void = lines.job_try_ended(job.id, 1, lab.clock(), interrupted=True, status=None, why="void", also="nothing_made")
    lab.session.ledger.append([lines.job_placed(job.id, 1, lab.clock(), key=f"{job.id}-1", machine=None), void])
    lab.later(days=2)
    machine = lab.up(name="fox", policy="default").machine
    placed = lines.job_placed(job.id, 2, lab.clock(), key=machine.key, machine=None)
    lab.session.ledger.append([placed, lines.job_machine(job.id, 2, machine.id, lab.clock())])
    sync_all(lab.session)
    with Reached(connection, lab, job) as carrier:
        assert "HF_TOKEN" in carrier.reconcile().why
        assert not carrier.start_failed  # it would have been tried again at once


@pytest.mark.parametrize("is_placed", [False, True])
@pytest.mark.parametrize("lacks", ["HF_TOKEN", "job.env"])
def test_a_computer_without_a_jobs_secrets_launches_no_machine_for_it(guarded, lacks, is_placed):
    """It would be billed, and could not begin the command."""
    lab, job, environ, file = guarded
    if is_placed:
        ended = lines.job_try_ended(job.id, 1, lab.clock(), interrupted=True, status=None, why="it is gone")
        placed = lines.job_placed(job.id, 2, lab.clock(), key=f"{job.id}-2", machine=None)
        lab.session.ledger.append([ended, placed])
    if lacks == "job.env":
        file.rename(file.with_name("elsewhere"))
    found = once(lab, job, {} if lacks == "HF_TOKEN" else environ)
    assert lacks in found.error.message
    assert (found.job.is_open, launched(lab)) == (True, ["fox"])
    assert lacks in deliver(lab.session, []).active[0]
    if lacks == "job.env":
        file.with_name("elsewhere").rename(file)
    once(lab, job, environ)
    assert "fox-2" in launched(lab)
    assert deliver(lab.session, []).active == ()


def test_a_file_that_this_computer_refuses_is_named_and_is_no_defect_of_cloudgpu(desk):
    lab = desk("")
    job = asked(lab, name="owl")
    place = lab.home / "jobs" / job.id / "synced"
    place.mkdir()  # where a file belongs: it cannot be removed
    request_cancel(lab.session, job)
    for _ in range(2):
        ((_, result),) = reconcile_all(lab.session, {})
    assert result.error.message == f"This computer's operating system refused: Is a directory ({place})."
    assert (result.job.is_open, result.error.next) == (
        True,
        "Free space or correct the permissions: the next run continues the job.",
    )
    place.rmdir()
    for _ in range(2):
        reconcile_all(lab.session, {})
    assert not job_by_id(lab.session, job.id).is_open


def test_a_secret_that_one_of_two_computers_has_raises_its_alert_once_while_there_is_no_capacity(guarded):
    lab, job, environ, _ = guarded
    for zone in ZONES:
        lab.cloud.exhaust(zone)
    for has_secret in (False, True, False, True):
        once(lab, job, environ if has_secret else {})
        lab.later(minutes=1)
    told = [line.kind for line in lab.session.ledger.events("alerts") if line.body["key"].endswith(":secret")]
    assert told == ["alert_raised"]
