"""Results in a bucket: what a list may say, when results are whole, and what comes next for a job that has them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgpu.core.events import job_events as lines
from cloudgpu.core.jobs.deadline import END_S, last_upload_s, reservation_of, stored_work
from cloudgpu.core.jobs.job import State
from cloudgpu.core.jobs.remote_state import Exit, Uploads
from cloudgpu.core.jobs.steps import JobAction, next_step
from cloudgpu.core.jobs.stored import (
    StoredFiles,
    StoredResults,
    bucket_of,
    missing_objects,
    newest_copy,
    read_results,
    read_state,
    unneeded_objects,
    volume_of,
)
from cloudgpu.core.model.buckets import bucket_address
from cloudgpu.core.values.times import iso
from tests.core.jobs.spot_worlds import deadline_spec
from tests.core.jobs.worlds import START, World, spec

TO = {"results_to": "s3://lab/runs"}


def file(path, size, *parts):
    return {"path": path, "size": size, "mode": 0o644, "sha256": "0" * 64, "parts": [list(one) for one in parts]}


def results(*files, links=(), output=(), **more):
    ended = {"status": 0, "signal": None, "reason": "exited", "ended": 1.0, "why": ""}
    usual = {"version": 1, "attempt": 1, "exit": ended, "started": 0.5, "setup_s": None}
    return json.dumps({**usual, "files": files, "links": links, "output": output, **more}).encode()


def state(results=(), **checkpoints):
    made = [{"name": name, "files": files, "links": []} for name, files in checkpoints.items()]
    return json.dumps({"version": 1, "results": {"files": results, "links": []}, "checkpoints": made}).encode()


def test_a_list_of_results_says_how_the_command_ended_and_what_is_there():
    found = read_results(results(file("a/b", 5, ("results/a/b.part-0000", 3), ("results/a/b.part-0001", 2))))
    assert (found.attempt, found.exit.status, found.bytes) == (1, 0, 5)
    sizes = {"results/a/b.part-0000": 3, "results/a/b.part-0001": 2}
    assert missing_objects(found.results.files, sizes) == []
    assert missing_objects(found.results.files, {**sizes, "results/a/b.part-0001": 1}) == ["results/a/b.part-0001"]
    assert missing_objects(found.results.files, {}) == list(sizes)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"version": 2}',
        results(file("../a", 1, ("results/a", 1))),
        results(file("/a", 1, ("results/a", 1))),
        results(file("a", 1, ("state/1-1/0", 1))),
        results(file("a", 1, ("results/../../other/a", 1))),
        results(file("a", 2, ("results/a", 1))),
        results(file("a", -1, ("results/a", -1))),
        results(links=[["a", "../../etc/passwd"]]),
        results(links=[["a", "/etc/passwd"]]),
        results(output=[file("../../x", 1, ("output/1/x", 1))]),
        results(exit=None),
        results(attempt="one"),
    ],
)
def test_a_list_that_leads_elsewhere_or_is_cut_short_is_none(text):
    assert read_results(text) is None


def test_copies_that_the_newest_list_does_not_name_are_not_needed_but_later_ones_are_on_their_way():
    found = read_state(state([file("log", 1, ("state/1-000003/0", 1))], step=[file("w", 2, ("state/1-000001/4", 2))]))
    assert [one.name for one in found.checkpoints] == ["step"]
    assert newest_copy(found) == "1-000003"
    keys = ["state/1-000001/4", "state/1-000001/5", "state/1-000002/0", "state/1-000003/0", "state/1-000004/0",
            "state/1.json", "state/2-000001/0"]  # fmt: skip
    assert unneeded_objects(found, "1-000003", keys) == ["state/1-000001/5", "state/1-000002/0"]
    assert read_state(state([file("log", 1, ("results/log", 1))])) is None
    assert newest_copy(read_state(state())) is None


def worked(**more):
    """A list with one checkpoint, of which it says this."""
    one = {"name": "step", "files": [file("w", 2, ("state/1-000001/4", 2))], "links": [], **more}
    return json.dumps({"version": 1, "results": {"files": [], "links": []}, "checkpoints": [one]}).encode()


@pytest.mark.parametrize(("said", "known"), [({"attempt": 2, "work_s": 1.5}, (2, 1.5)), ({}, (0, None))])
def test_a_list_tells_how_long_which_attempt_had_run_for_a_checkpoint(said, known):
    (one,) = read_state(worked(**said)).checkpoints
    assert (one.name, one.attempt, one.work_s) == ("step", *known)


@pytest.mark.parametrize("said", [-1, float("nan"), float("inf"), "long", [1]])
def test_a_list_with_a_time_that_cannot_be_is_none(said):
    assert read_state(worked(attempt=1, work_s=said)) is None


def test_the_work_in_a_bucket_is_no_more_than_the_attempt_had_time_for():
    world = World(spec(**TO))
    while world.step().action is not JobAction.START:
        pass
    begin = world.now
    world.write(lines.job_began("job-1", 1, None, begin))
    now = begin + timedelta(minutes=10)
    told = [stored_work(world.job, read_state(worked(attempt=1, work_s=said)), now) for said in (60, 1e9)]
    assert told == [("step", 60.0, begin + timedelta(minutes=1)), ("step", 600.0, now)]
    for unknown in ({"attempt": 7, "work_s": 60}, {"attempt": 1}):
        assert stored_work(world.job, read_state(worked(**unknown)), now) is None
    assert stored_work(world.job, read_state(state()), now) is None


def test_a_destination_is_a_bucket_or_a_volume():
    assert (bucket_of("s3://lab/a/b").prefix, volume_of("s3://lab/a/b")) == ("a/b", None)
    assert (bucket_of("volume:data"), volume_of("volume:data")) == (None, "data")
    assert (bucket_of(None), volume_of(None)) == (None, None)
    assert bucket_address("s3://lab/a/../b") is None
    assert bucket_address("ftp://lab/a") is None
    assert bucket_address("s3://lab/").joined("x").text == "s3://lab/x"


# -- what comes next


def whole(attempt=1, status=0, reason="exited"):
    ended = Exit(status, None, reason, START.timestamp())
    return StoredResults(attempt, ended, START.timestamp(), None, StoredFiles((), ()), ())


def gone(world):
    """The world after its machine went away under a running command, and what is seen of it."""
    while world.step().action is not JobAction.START:
        pass
    there = world.machine_of(world.job)
    world.machines[there.id] = there._replace(state="terminated", terminated_at=iso(world.now))
    return world.seen(world.job)


def test_a_bucket_tells_how_a_command_ended_whose_machine_is_gone():
    world = World(spec(**TO))
    seen = replace(gone(world), stored=whole(status=7))
    step = next_step(world.job, seen, world.now)
    assert (step.action, step.outcome, step.exit.status) == (JobAction.END, State.FAILED, 7)
    older = next_step(world.job, replace(seen, stored=whole(attempt=2)), world.now)
    assert (older.action, older.interrupted) == (JobAction.RETRY, True)


def test_a_failed_command_is_tried_again_though_only_its_bucket_says_so():
    world = World(spec(retries=1, **TO))
    seen = replace(gone(world), stored=whole(status=7))
    step = next_step(world.job, seen, world.now)
    assert (step.action, step.interrupted) == (JobAction.RETRY, False)


def test_while_a_bucket_is_silent_a_command_is_not_run_again():
    world = World(spec(**TO))
    seen = replace(gone(world), why_bucket_unread="it is silent")
    assert next_step(world.job, seen, world.now).action is JobAction.WAIT
    world.write(lines.job_cancel_requested("job-1", "cancelled", "enough", "desk", world.now))
    assert next_step(world.job, seen, world.now).action is JobAction.END


def test_results_that_are_whole_in_a_bucket_end_the_machine_without_a_fetch():
    world = World(spec(**TO))
    while world.step().action is not JobAction.START:
        pass
    world.ends(1, status=0)
    world.step()
    assert next_step(world.job, world.seen(world.job), world.now).action is JobAction.FETCH
    assert (
        next_step(world.job, replace(world.seen(world.job), stored=whole()), world.now).action
        is JobAction.RECORD_STORED
    )
    world.write(lines.job_results_fetched("job-1", 1, 1, "s3://lab/runs/otter-1/results", "", world.now, whole=True))
    assert next_step(world.job, world.seen(world.job), world.now).action is JobAction.TERMINATE


def test_a_command_that_ended_on_a_silent_machine_which_was_left_is_not_run_again():
    world = World(spec(**TO))
    seen = gone(world)
    world.write(lines.job_move_requested("job-1", 1, "on_demand", "it is silent", world.now))
    assert next_step(world.job, seen, world.now).action is JobAction.RETRY
    step = next_step(world.job, replace(seen, stored=whole()), world.now)
    assert (step.action, step.outcome) == (JobAction.END, State.SUCCEEDED)
    assert next_step(world.job, replace(seen, why_bucket_unread="it is silent"), world.now).action is JobAction.WAIT


def test_data_that_does_not_come_is_tried_again_and_in_the_end_the_job_has_not_begun():
    world = World(spec(restarts=1))
    for expected in (JobAction.RETRY, JobAction.END):
        while world.step().action is not JobAction.START:
            pass
        world.ends(len(world.job.attempts), reason="data")
        step = world.step()
        assert step.action is expected
    assert world.job.outcome is State.SETUP_FAILED


def test_a_form_is_good_while_a_process_uploads_with_it_for_long_enough():
    storing = Uploads(alive=True, until=100.0, at=None, final=False, error="")
    assert [storing.is_good(now, 20) for now in (79, 80, 101)] == [True, False, False]
    assert not replace(storing, alive=False).is_good(0, 20)


def test_a_last_upload_is_waited_for_no_longer_than_the_net_of_a_deadline_keeps():
    assert last_upload_s(World(spec(results_wait_s=7200)).job) == 7200
    assert last_upload_s(World(deadline_spec(1, 8)).job) == END_S == 180


def test_what_is_kept_for_a_job_with_a_deadline_is_what_budgets_count_for_an_hour():
    asked = deadline_spec(1, 8)
    for more, hourly in (({}, asked["deadline"]["on_demand"]), ({"budget_per_hour": 7}, 7)):
        job = World({**asked, "deadline": {**asked["deadline"], **more}}).job
        assert reservation_of(job, START).items[0][0] == hourly
