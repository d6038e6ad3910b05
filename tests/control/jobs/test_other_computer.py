"""A job of one computer, carried on by another one with the same ledger in PostgreSQL: never twice, and never half."""

from __future__ import annotations

import copy
import os
import shutil

import pytest

from cloudgpu.access.ssh.authorized_keys import parse_public_key
from cloudgpu.access.ssh.client_files import client_key
from cloudgpu.control.access.share import share
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.core.events.job_events import job_placed
from cloudgpu.core.jobs.job import State
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.control.jobs import models
from tests.control.jobs.bench import Bench
from tests.control.jobs.models import OnGcp
from tests.forked import fork
from tests.postgres import Server

__all__ = ["gcp", "gcp_process"]


@pytest.fixture
def ada(tmp_path, monkeypatch, gcp, postgres: Server):
    """Whoever asks for the job, on the first computer."""
    monkeypatch.setenv("CLOUDGPU_LEDGER", postgres.schema())
    made = OnGcp(tmp_path / "desk", gcp)
    yield made
    made.end()


@pytest.fixture
def lab(ada):
    """The second computer: another home, the same cloud and ledger."""
    made = copy.copy(ada)
    made.home = ada.root / "lab"
    made.home.mkdir()
    shutil.copy(ada.home / "config.toml", made.home)
    made.environ = {**ada.environ, "CLOUDGPU_HOME": str(made.home)}
    made.said = []
    made.session = made.opened()
    yield made
    made.session.ledger.close()


def runs(found):
    attempt = found.job.attempt
    return attempt is not None and attempt.began_at is not None


def let_in(ada, lab, job):
    """Let the second computer log in to the job's machine."""
    key = parse_public_key(client_key(lab.session.home.keys).public_line)
    share(ada.session, ada.machine_of(job), key, from_="198.51.100.9/32")


def once(world, job):
    with JobReconciler(world.session, job.id, world.environ) as carrier:
        return carrier.reconcile()


def delivered(world, job):
    """The results that this computer has taken for a job of another one."""
    return world.home / "jobs" / job.id / "delivered" / "answer"


@pytest.mark.soak
def test_another_computer_brings_a_job_to_its_end_where_the_first_one_has_gone(ada, lab, monkeypatch):
    job = ada.asked(pause=3)
    ada.child(job, until=runs)
    let_in(ada, lab, job)
    here = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((here.sysname, "lab.example.org", *here[2:])))
    lab.child(job)
    done = lab.now(job)
    assert (done.state, done.is_open, done.fetched.whole) == (State.SUCCEEDED, False, True), done.why
    assert done.fetched.directory == str(delivered(lab, job).parent)
    assert delivered(lab, job).read_bytes() == b"42\n" * 10_000
    assert lab.events() == {"begin": 1, "end": 1}
    lab.nothing_left()


@pytest.mark.soak
def test_two_computers_that_follow_a_job_at_once_do_nothing_twice(ada, lab):
    job = ada.asked(pause=3)
    ada.child(job, until=runs)
    let_in(ada, lab, job)
    number = fork()
    if number == 0:
        models._child(lab, job, None, models.MOST_S)
    ada.child(job)
    _, status = os.waitpid(number, 0)
    done = ada.now(job)
    assert (status, done.state, done.is_open, done.fetched.whole) == (0, State.SUCCEEDED, False, True), done.why
    assert ada.events() == {"begin": 1, "end": 1}
    ada.nothing_left()


@pytest.mark.soak
def test_a_restart_waits_for_the_computer_that_has_the_files(ada, lab):
    job = ada.asked(pause=3)
    ada.child(job, until=runs)
    let_in(ada, lab, job)
    ada.begins(job)
    Bench.takes(ada, job)  # somebody deletes it in the console
    for _ in range(2):
        found = once(lab, job)
        assert "are not on this computer" in found.why
        assert (found.job.is_open, lab.billed()) == (True, [])
    ada.ends(job, begun=2)


@pytest.mark.soak
def test_a_computer_without_the_files_launches_nothing_for_an_attempt_that_another_one_has_placed(ada, lab):
    job = ada.asked()
    line = job_placed(job.id, 1, ada.clock(), key=f"{job.id}-1", machine=None)
    ada.session.ledger.append([line])  # and then it was killed
    found = once(lab, job)
    assert "are not on this computer" in found.why
    assert lab.machines_made() == []
    ada.ends(job)
