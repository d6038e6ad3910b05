"""What a watcher does with a job's place in a bucket, step by step: real boto3, and no command that runs."""

from __future__ import annotations

import hashlib
import json
import shutil
from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.access.jobs.remote import RemoteJob
from cloudgpu.control.alerts.alerts import deliver
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.jobs.attempt import _restore
from cloudgpu.control.jobs.buckets.data import data_transfers
from cloudgpu.control.jobs.buckets.results import MIN_VALIDITY_S, job_bucket, remove_all_but_results
from cloudgpu.control.jobs.reconcile import JobReconciler
from cloudgpu.control.jobs.remote_results import (
    bucket_results_fetched,
    ensure_uploads,
    remote_results_fetched,
    sync_if_due,
)
from cloudgpu.control.jobs.store import directory_of, job_by_id, last_sync, record_sync
from cloudgpu.core.events import job_events as lines
from cloudgpu.core.jobs.job import State
from cloudgpu.core.jobs.remote_state import Phase, RemoteState, Uploads
from cloudgpu.core.jobs.steps import JobAction, Step
from cloudgpu.core.jobs.stored import read_results
from cloudgpu.errors import AuthFailed, ProviderUnavailable, Unreachable
from tests.clouds.aws.s3 import KEY, SECRET, s3, server
from tests.control.jobs.test_buckets import TO, in_bucket, put
from tests.control.jobs.test_capacity import carry
from tests.control.jobs.test_without_a_command import Reached, asked, connection, desk, running

__all__ = ["connection", "desk", "s3", "server"]


@pytest.fixture
def lab(s3, desk):
    return desk("")


def file(path, *keys):
    parts = [[key, 1] for key in keys]
    return {"path": path, "size": len(keys), "mode": 0o644, "sha256": hashlib.sha256(b"x").hexdigest(), "parts": parts}


def state(s3, job, attempt, *copies, checkpoint="19"):
    """Put what an attempt has written in so many copies: the newest list names the last one alone."""
    at = f"runs/fox-{job.id.removeprefix('job-')}/"
    keys = [f"state/{attempt}-{number:06}/a" for number in copies]
    put(s3, **{at + key: "x" for key in keys})
    held = {
        "name": checkpoint,
        "files": [file(f"{checkpoint}/a", keys[-1])],
        "links": [],
        "attempt": attempt,
        "work_s": 60.0,
    }
    listed = {"version": 1, "results": {"files": [], "links": []}, "checkpoints": [held]}
    put(s3, **{f"{at}state/{attempt}.json": json.dumps(listed)})
    return keys


def test_copies_that_a_newer_one_has_replaced_are_removed_while_the_command_runs(lab, s3, connection):
    job, _ = running(lab, results_to=TO, every="10m")
    *old, newest = state(s3, job, 1, 1, 2, 3)
    lab.later(minutes=11)
    now = lab.clock().timestamp()
    seen = RemoteState(Phase.RUNNING, now, uploads=Uploads(True, now + MIN_VALIDITY_S + 1, now, False, ""))
    sync_if_due(lab.session, job_by_id(lab.session, job.id), lambda: RemoteJob(connection, job.id, 1), seen)
    assert [one for one in in_bucket(s3, job) if one in (*old, newest)] == [newest]


def test_a_login_that_ends_soon_signs_one_form_and_uploads_do_not_begin_anew_at_each_look(
    lab, s3, connection, tmp_path, monkeypatch
):
    """Each new form ends the process that uploads, and what it has uploaded of a copy is uploaded once more."""
    lab.later(seconds=(datetime.now(UTC) - lab.clock()).total_seconds())
    job, _ = running(lab, results_to=TO, every="10m")
    login_ends = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=50)
    keys = {"Version": 1, "AccessKeyId": KEY, "SecretAccessKey": SECRET, "SessionToken": "x"}
    (tmp_path / "keys").write_text(json.dumps({**keys, "Expiration": login_ends.isoformat()}))
    (tmp_path / "config").write_text(f"[default]\ncredential_process = cat {tmp_path / 'keys'}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)

    def look(form_ends, *, is_alive=True):
        uploads = Uploads(is_alive, form_ends.timestamp(), None, False, "")
        seen = RemoteState(Phase.RUNNING, lab.clock().timestamp(), uploads=uploads)
        ensure_uploads(lab.session, job_by_id(lab.session, job.id), RemoteJob(connection, job.id, 1), seen)

    look(login_ends)
    for worse in ({"form_ends": login_ends - timedelta(minutes=40)}, {"form_ends": login_ends, "is_alive": False}):
        with pytest.raises(Unreachable, match="there is no such attempt"):  # a new form is sent
            look(**worse)


def test_a_copy_that_was_made_by_a_clock_that_was_ahead_does_not_delay_the_next_one(lab, s3, connection):
    """Until that clock's time comes, a day of work would be lost with the machine."""
    job, _ = running(lab, results_to=TO, every="10m")
    *_, newest = state(s3, job, 1, 1, 2)
    now, directory = lab.clock().timestamp(), directory_of(lab.session, job)
    record_sync(directory, now + timedelta(days=1).total_seconds())
    seen = RemoteState(Phase.RUNNING, now, uploads=Uploads(True, now + MIN_VALIDITY_S + 1, now, False, ""))
    sync_if_due(lab.session, job_by_id(lab.session, job.id), lambda: RemoteJob(connection, job.id, 1), seen)
    assert [key for key in in_bucket(s3, job) if key.startswith("state/1-")] == [newest]
    assert last_sync(directory) == now


def test_what_is_not_of_the_results_is_removed_and_their_list_stays(lab, s3):
    job, _ = running(lab, results_to=TO)
    at = f"runs/fox-{job.id.removeprefix('job-')}/"
    ended = {"status": 0, "signal": None, "reason": "exited", "ended": 1.0, "why": ""}
    usual = {"version": 1, "attempt": 1, "exit": ended, "started": 0.5, "setup_s": None, "links": [], "output": []}
    text = json.dumps({**usual, "files": [file("answer", "results/answer")]})
    state(s3, job, 1, 1)
    put(s3, **{f"{at}results/answer": "x", f"{at}results/torn": "x", f"{at}results.json": text})
    remove_all_but_results(job_bucket(lab.session, job), read_results(text.encode()), pytest.fail)
    assert set(in_bucket(s3, job)) == {"results/answer", "results.json"}


def test_results_are_sent_to_their_bucket_although_this_computer_cannot_take_the_output(lab, s3, connection):
    job, _ = running(lab, results_to=TO)
    (directory_of(lab.session, job) / "out-1").mkdir(parents=True)
    remote = RemoteJob(connection, job.id, 1)
    with pytest.raises(Unreachable, match="there is no such attempt"):  # the machine is told to send them
        remote_results_fetched(lab.session, job_by_id(lab.session, job.id), remote)


@pytest.mark.parametrize("lacks", ["room here", "its directory", "an object"])
def test_output_that_cannot_be_copied_here_keeps_no_machine_of_whole_results(lab, s3, lacks):
    """The machine would be billed for it, and the bucket has the output."""
    job, _ = running(lab, results_to=TO)
    at = f"runs/fox-{job.id.removeprefix('job-')}/"
    ended = {"status": 0, "signal": None, "reason": "exited", "ended": 1.0, "why": ""}
    usual = {"version": 1, "attempt": 1, "exit": ended, "started": 0.5, "setup_s": None, "links": []}
    output = file("out", "output/1/out") | {"size": 9999, "parts": [["output/1/out", 9999]]}
    text = json.dumps({**usual, "files": [file("answer", "results/answer")], "output": [output]})
    put(s3, **{f"{at}results/answer": "x", f"{at}results.json": text})
    if lacks == "room here":
        put(s3, **{f"{at}output/1/out": "x" * 9999})
        (directory_of(lab.session, job) / "out-1").mkdir(parents=True)
    if lacks == "its directory":
        put(s3, **{f"{at}output/1/out": "x" * 9999})
        directory = directory_of(lab.session, job)
        directory.rename(directory.with_name("elsewhere"))
        directory.write_text("in its place")
    found = job_bucket(lab.session, job).results(1)
    (line,) = bucket_results_fetched(lab.session, job_by_id(lab.session, job.id), found, None)
    assert (line.body["whole"], line.body["files"]) == (True, 1)
    assert any("output of fox" in said for said in lab.said)
    assert ("output/1/out" in in_bucket(s3, job)) is (lacks != "an object")


@pytest.mark.parametrize("lacks", ["a credential", "an answer"])
def test_a_machine_whose_data_this_computer_cannot_read_ends_after_an_hour(lab, s3, connection, monkeypatch, lacks):
    """It was billed for ever, and nobody was told: cron may lack the credential that the shell has."""
    put(s3, **{"set/rows.csv": "1,2\n"})
    job = asked(lab, data=["s3://lab/set:in"])
    machine = lab.up(name="fox", policy="default").machine
    placed = lines.job_placed(job.id, 1, lab.clock(), key=machine.key, machine=None)
    lab.session.ledger.append([placed, lines.job_machine(job.id, 1, machine.id, lab.clock())])
    sync_all(lab.session)
    if lacks == "a credential":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    else:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")  # refuses connections
    with Reached(connection, lab, job) as carrier:
        error = carrier.reconcile().error
        lab.later(minutes=59)
        assert carrier.reconcile().job.is_open
        lab.later(minutes=1)
        found = carrier.reconcile()
    assert isinstance(error, AuthFailed if lacks == "a credential" else ProviderUnavailable)
    assert (found.job.state, found.job.is_open, lab.machines()) == (State.SETUP_FAILED, False, [])
    assert error.message in found.job.why


def test_the_next_attempt_begins_with_what_the_one_before_it_has_in_the_bucket(lab, s3):
    job, _ = running(lab, results_to=TO)
    state(s3, job, 1, 1, checkpoint="7")
    ended = lines.job_try_ended(job.id, 1, lab.clock(), interrupted=True, status=None, why="it was taken")
    lab.session.ledger.append([ended, lines.job_placed(job.id, 2, lab.clock(), key="k", machine=None)])
    restored, brought = _restore(lab.session, job_by_id(lab.session, job.id), None)
    assert [one.path for one in restored.checkpoint] == ["7/a"]
    assert len(brought.downloads) == 1


def test_what_is_on_a_volume_is_not_sent_to_the_next_machine(lab):
    job = asked(lab, volume="data:10", results_to="volume:data")
    restored, brought = _restore(lab.session, job, None)
    assert (restored, brought.downloads) == (None, ())


def test_data_is_fetched_as_the_content_that_was_listed(lab, s3):
    put(s3, **{"set/rows.csv": "1,2\n"})
    job = asked(lab, data=["s3://lab/set:in"])
    (one,) = data_transfers(lab.session, job).downloads
    assert one.etag == s3.head_object(Bucket="lab", Key="set/rows.csv")["ETag"].strip('"')
    put(s3, **{"set/rows.csv": "3,4\n"})
    (other,) = data_transfers(lab.session, job).downloads
    assert (other.name != one.name, other.etag != one.etag) == (True, True)


def test_no_machine_is_launched_for_data_that_this_computer_cannot_read(lab, s3):
    put(s3, **{"set/rows.csv": "1,2\n"})
    job, machine = running(lab, data=["s3://lab/set:in"])
    lab.later(minutes=5)
    lab.cloud.terminate(machine.provider_id)
    sync_all(lab.session)
    s3.delete_object(Bucket="lab", Key="set/rows.csv")
    for _ in range(2):
        found = carry(lab, job)
        assert "The data of fox cannot be read from here: s3://lab/set holds nothing." in found.error.message
        assert (found.job.is_open, lab.machines()) == (True, [])
    assert "fox waits for a machine" in deliver(lab.session, []).active[0]
    lab.later(hours=25)
    assert carry(lab, job).job.state is State.LOST
    assert lab.machines() == []


def test_a_machine_is_launched_once_the_data_can_be_read_again(lab, s3):
    put(s3, **{"set/rows.csv": "1,2\n"})
    job, machine = running(lab, data=["s3://lab/set:in"])
    lab.cloud.terminate(machine.provider_id)
    lab.later(minutes=5)
    sync_all(lab.session)
    s3.delete_object(Bucket="lab", Key="set/rows.csv")
    carry(lab, job)
    put(s3, **{"set/rows.csv": "1,2\n"})
    carry(lab, job)
    assert [row.name for row in lab.session.ledger.machines()] == ["fox", "fox-2"]
    assert deliver(lab.session, []).active == ()


def test_a_job_stays_on_its_machine_while_its_data_could_not_be_read_for_another_one(lab, s3):
    put(s3, **{"set/rows.csv": "1,2\n"})
    late = {"deadline": "8h", "work": "1h", "spot_policy": "on-demand"}
    job, machine = running(lab, market="spot", up={"spot": True}, data=["s3://lab/set:in"], **late)
    job = job_by_id(lab.session, job.id)
    with JobReconciler(lab.session, job.id, {}) as carrier:
        assert carrier._placement_choice(job, machine).mode == "on_demand"
        s3.delete_object(Bucket="lab", Key="set/rows.csv")
        assert carrier._placement_choice(job, machine) is None


def test_the_work_that_the_bucket_of_a_taken_machine_holds_is_noted(lab, s3):
    job, machine = running(
        lab, market="spot", up={"spot": True}, results_to=TO, deadline="8h", work="1h", spot_policy="on-demand"
    )
    state(s3, job, 1, 1)
    lab.later(minutes=20)
    lab.cloud.take(machine.provider_id)
    shutil.rmtree(lab.home / "jobs" / "snapshots")  # no other machine is launched here
    with JobReconciler(lab.session, job.id, {}) as carrier:
        carrier.reconcile()
    job = job_by_id(lab.session, job.id)
    assert (job.saved.checkpoint, job.saved.work_s) == ("19", 60.0)
    assert job.attempts[0].ended_at - job.attempts[0].began_at >= timedelta(minutes=20)


def test_what_was_uploaded_while_the_command_runs_is_noted(lab, s3, connection):
    job, _ = running(
        lab, market="spot", up={"spot": True}, results_to=TO, deadline="8h", work="1h", spot_policy="on-demand"
    )
    state(s3, job, 1, 1)
    lab.later(minutes=20)
    now = lab.clock().timestamp()
    with Reached(connection, lab, job) as carrier:
        carrier.remote = RemoteState(
            Phase.RUNNING, now, uploads=Uploads(True, now + MIN_VALIDITY_S + 1, now, False, "")
        )
        carrier._execute_watch(job_by_id(lab.session, job.id), Step(JobAction.WATCH))
    saved = job_by_id(lab.session, job.id).saved
    assert (saved.checkpoint, saved.work_s) == ("19", 60.0)
