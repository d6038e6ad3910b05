"""A job is closed by a process that is killed before its last lines are in the ledger, and by another one then."""

from __future__ import annotations

import errno
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgpu.access.jobs.remote import RemoteJob
from cloudgpu.control.jobs.ending import close_job, fetch_results
from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.control.jobs.plan import plan_run, record_request
from cloudgpu.control.jobs.results import deliver, results_directory, sync
from cloudgpu.control.jobs.store import append
from cloudgpu.control.outage.opening import open_session
from cloudgpu.core.events.job_events import job_closed
from cloudgpu.errors import InvalidRequest
from tests.access.conftest import connection, server  # noqa: F401  (fixtures)
from tests.access.jobs.conftest import JOB, Bench
from tests.control.conftest import Lab


@pytest.fixture
def lab(tmp_path, monkeypatch):
    return Lab(tmp_path, monkeypatch)


@pytest.fixture
def job(lab, tmp_path):
    """A job whose machine is gone, and two of whose results were copied here before."""
    (tmp_path / "work").mkdir()
    asked = parse_run(workdir=tmp_path / "work", argv=["true"], environ={}, gpu="v100", policy="default", name="fox")
    made = record_request(lab.session, plan_run(lab.session, asked, {}))
    copies = lab.home / "jobs" / made.id / "results" / "run"
    copies.mkdir(parents=True)
    for name in ("one", "two"):
        (copies / name).write_text("12345")
    return made


def fetched(drafts):
    return [(one.body["files"], one.body["bytes"], one.body["directory"]) for one in drafts if "files" in one.body]


def test_it_still_says_where_the_results_are_that_were_delivered(lab, job, tmp_path):
    close_job(lab.session, job, None, "its machine is gone")
    again = close_job(lab.session, job, None, "its machine is gone")
    assert fetched(again) == [(2, 10, str(tmp_path / "work" / "results" / "fox"))]
    assert (tmp_path / "work" / "results" / "fox" / "run" / "two").read_text() == "12345"


def test_it_counts_what_was_delivered_before_the_rest(lab, job, tmp_path):
    deliver(lab.session, job, ["run/one"])
    closed = close_job(lab.session, job, None, "its machine is gone")
    assert fetched(closed) == [(2, 10, str(tmp_path / "work" / "results" / "fox"))]


def test_links_of_the_last_copy_are_delivered_too_and_count_as_no_files(lab, job, tmp_path):
    copies = lab.home / "jobs" / job.id / "results"
    (copies / "latest").symlink_to("run")
    (copies / "best").symlink_to("run/one")
    closed = close_job(lab.session, job, None, "its machine is gone")
    place = tmp_path / "work" / "results" / "fox"
    assert fetched(closed) == [(2, 10, str(place))]
    assert [str((place / name).readlink()) for name in ("latest", "best")] == ["run", "run/one"]


def test_a_link_whose_copy_to_another_disk_was_cut_off_is_delivered_all_the_same(lab, job, tmp_path, monkeypatch):
    copies, place = lab.home / "jobs" / job.id / "results", tmp_path / "work" / "results" / "fox"
    (copies / "best").symlink_to("run/one")
    target = results_directory(lab.session, job)
    target.mkdir(parents=True)
    (target / ".best.part").symlink_to("run/one")  # a copy gets its name when it is complete
    rename = Path.replace

    def of_two_disks(path, to):
        if path.is_relative_to(copies):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(path, to)

    monkeypatch.setattr(Path, "replace", of_two_disks)
    close_job(lab.session, job, None, "its machine is gone")
    assert sorted(one.name for one in place.iterdir()) == ["best", "run"]
    assert str((place / "best").readlink()) == "run/one"


def test_the_files_of_a_job_of_another_ledger_stay_until_it_is_closed(lab, job, tmp_path):
    """A shell may name another ledger for the same home (CLOUDGPU_LEDGER); its job could not be restarted."""
    (tmp_path / "work" / "train.py").write_text("print(1)")
    environ = {"CLOUDGPU_HOME": str(lab.home), "USER": "ada", "CLOUDGPU_LEDGER": f"sqlite:///{tmp_path / 'other.db'}"}
    other = open_session(environ, clock=lab.clock, tell=lab.said.append)
    with closing(other.ledger):
        asked = parse_run(workdir=tmp_path / "work", argv=["true"], environ={}, gpu="v100", policy="default")
        owl = record_request(other, plan_run(other, asked, {}))
        manifest = lab.session.home.snapshots / f"{owl.spec['snapshot']}.json"
        os.utime(manifest, (0, 0))
        close_job(lab.session, job, None, "its machine is gone")
        assert manifest.exists()
        journal = lab.home / "jobs" / owl.id / "ledger.jsonl"
        journal.rename(tmp_path / "moved")
        journal.mkdir()  # nothing can be read there: whether the job is closed is not known
        close_job(lab.session, job, None, "its machine is gone")
        assert manifest.exists()
        journal.rmdir()
        (tmp_path / "moved").rename(journal)
        append(other, owl.id, [job_closed(owl.id, "", lab.clock())])
        close_job(lab.session, job, None, "its machine is gone")
        assert not manifest.exists()


def test_a_directory_of_that_name_that_another_job_has_filled_is_left_alone(lab, job, tmp_path):
    there = tmp_path / "work" / "results" / "fox"
    there.mkdir(parents=True)
    (there / "other").touch()
    place, files, _ = deliver(lab.session, job, ["run/one"])
    assert (place, files) == (there.with_name(f"fox-{job.id.removeprefix('job-')}"), 1)
    assert [one.name for one in there.iterdir()] == ["other"]


@pytest.mark.parametrize("obstacle", ["directory", "place"])
def test_a_machine_is_stopped_though_this_computer_refuses_the_directory_of_its_results(
    lab, job, server, connection, tmp_path, obstacle  # noqa: F811
):  # fmt: skip
    machine = lab.up().machine
    own = lab.home / "jobs" / job.id
    if obstacle == "place":
        (own / "place").mkdir()  # where the file belongs that says where the results go
    else:
        own.rename(tmp_path / "moved")
        own.write_text("a file in its place")
    bench = Bench(connection, server.home, tmp_path)
    bench.file("work/results").mkdir(parents=True)
    with pytest.raises(InvalidRequest, match=f"{own}.*: (File exists|Is a directory)") as caught:
        fetch_results(lab.session, job, machine, bench.job)
    remedy, then = caught.value.next.split(". ", 1)
    assert "permissions" in remedy  # room is not what is missing
    assert then.endswith(f"Once it runs again (cloudgpu start {machine.name}), its results are fetched, and it ends.")
    assert lab.machines() == []
    assert lab.session.ledger.machine(machine.id).state == "stopped"


def test_a_place_of_results_that_this_computer_refuses_to_look_at_is_named(lab, job):
    asked_for = replace(job, spec={**job.spec, "results": "x" * 300})
    with pytest.raises(InvalidRequest, match="x/fox cannot be written: file name too long"):
        deliver(lab.session, asked_for, ["run/one"])
    assert (lab.home / "jobs" / job.id / "results" / "run" / "one").exists()


def test_results_that_a_killed_delivery_moved_are_not_sent_again(server, connection, tmp_path):  # noqa: F811
    bench = Bench(connection, server.home, tmp_path)
    bench.file("work/results").mkdir(parents=True)
    bench.file("work/results/one").write_text("12345")
    remote, own, place = RemoteJob(bench.connection, JOB, 1), tmp_path / "own", tmp_path / "fox"
    assert sync(remote, own, 0).sent == 5
    place.mkdir()
    (own / "results" / "one").rename(place / "one")
    (own / "place").write_text(str(place))
    assert sync(remote, own, 0).sent == 0
