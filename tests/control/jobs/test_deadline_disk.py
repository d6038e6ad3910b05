"""A job with a deadline on a computer whose disk is full: it is managed all the same, and stays where it runs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgpu.access.jobs.checkpoints import StoredCheckpoint
from cloudgpu.control.jobs.deadline.choice import _copied_work_s, choice_of
from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.control.jobs.plan import plan_run, record_request
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.jobs.store import job_by_id
from cloudgpu.core.events import job_events as lines
from cloudgpu.core.jobs.job import Attempt
from cloudgpu.core.jobs.remote_state import Phase, RemoteState
from cloudgpu.errors import NoCapacity
from tests.control.conftest import Lab
from tests.control.jobs.test_capacity import ZONES


@pytest.fixture
def lab(tmp_path, monkeypatch):
    return Lab(tmp_path, monkeypatch)


@pytest.fixture
def job(lab, tmp_path):
    (tmp_path / "work").mkdir()
    words = {"gpu": "v100", "policy": "default", "name": "fox", "deadline": "60h", "work": "20h"}
    asked = parse_run(workdir=tmp_path / "work", argv=["true"], environ={}, **words)
    return record_request(lab.session, plan_run(lab.session, asked, {}))


@pytest.fixture
def directory(lab, job):
    return lab.home / "jobs" / job.id


def test_a_job_is_managed_though_how_it_was_watched_cannot_be_written(lab, job, directory):
    (directory / "rounds").mkdir(parents=True)
    for zone in ZONES:
        lab.cloud.exhaust(zone)
    with JobReconciler(lab.session, job.id, {}) as carrier:
        assert isinstance(carrier.reconcile().error, NoCapacity)


@pytest.fixture
def asked(lab, job, monkeypatch):
    """Ask where a job is to run whose command runs on spot; return how often prices of other places were asked for."""
    asked = []
    monkeypatch.setattr("cloudgpu.control.jobs.deadline.choice.reason_to_move", lambda *_: asked.append(1) and None)
    machine = lab.up(name="fox", policy="default").machine
    at = lab.clock()
    lab.session.ledger.append(
        [
            lines.job_placed(job.id, 1, at, key=machine.key, machine=None, market="spot"),
            lines.job_machine(job.id, 1, machine.id, at),
            lines.job_began(job.id, 1, None, at),
        ]
    )
    lab.later(hours=1)

    def choose(directory):
        seen = RemoteState(Phase.RUNNING, lab.clock().timestamp(), started_at=at.timestamp())
        choice_of(lab.session, job_by_id(lab.session, job.id), machine, seen, directory)
        return len(asked)

    return choose


def test_a_machine_is_left_for_a_cheaper_one_only_where_one_more_checkpoint_fits_here(lab, asked, directory):
    copy = directory / "checkpoints" / "7"
    copy.mkdir(parents=True)
    (copy / "checkpoint.json").write_text(json.dumps({"name": "7", "files": [{"path": "7", "size": 10**18}]}))
    assert asked(directory) == 0
    (copy / "checkpoint.json").write_text(json.dumps({"name": "7", "files": [{"path": "7", "size": 10}]}))
    assert asked(directory) == 1
    lab.later(minutes=14)
    assert asked(directory) == 1  # prices are asked for once in a quarter of an hour
    lab.later(minutes=1)
    assert asked(directory) == 2


def test_prices_are_not_asked_for_at_every_look_where_that_cannot_be_written(asked, directory):
    (directory / "rounds").mkdir(parents=True)
    assert asked(directory) == 0


def test_the_work_of_a_copy_counts_though_the_machine_named_no_checkpoint(lab, job, directory):
    tried = replace(job, attempts=(Attempt(1, None, "cg-1", lab.clock() - timedelta(hours=1)),))
    seen = RemoteState(Phase.RUNNING, 100.0, started_at=10.0, checkpointed_at=40.0)
    assert _copied_work_s(tried, seen, None, StoredCheckpoint(1, "step-1", 5, directory, {})) == 30
