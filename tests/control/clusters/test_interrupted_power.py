"""A command about a cluster that is killed at any of its calls: the next run of the reaper finishes stops and ends."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from cloudgpu.control.clusters.lease import extend_all, hold_all, plan_extension_of_all
from cloudgpu.control.clusters.power import end_all, stop_all
from cloudgpu.control.clusters.start import start_all
from cloudgpu.control.lifecycle import lifecycle, start as lifecycle_start
from cloudgpu.control.lifecycle.start import new_lease
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.errors import AuthFailed, EndRefused, NoCapacity
from cloudgpu.parallel import join_abandoned

FULL = NoCapacity("the zone is full.")


def turns(count, *quick):
    """All turns up to a number; only `quick` ones outside of `make soak`."""
    return [turn if turn in quick else pytest.param(turn, marks=pytest.mark.soak) for turn in range(count)]


class Killed(BaseException):
    """The computer is switched off: no program can do anything about it."""


def stop(lab):
    return stop_all(lab.session, lab.session.find_all_nodes("train", "stop"), why="asked")


def start(lab):
    rows = lab.session.find_all_nodes("train", "start")
    return start_all(lab.session, rows, new_lease(lab.session, rows[0], timedelta(hours=2)), wait=False)


def down(lab):
    return end_all(lab.session, lab.session.find_all_nodes("train", "down"), why="asked")


def killed_at(lab, monkeypatch, verb, turn):
    """Do this until its n-th call of the cloud or line in the ledger, before or after which all is over."""
    made = 0

    def counted(call):
        def called(*args, **more):
            nonlocal made
            made += 1
            if made > turn:
                raise Killed
            return call(*args, **more)

        return called

    with monkeypatch.context() as patched:
        for name in ("get", "stop", "start", "tag", "terminate"):
            patched.setattr(type(lab.cloud), name, counted(getattr(type(lab.cloud), name)))
        patched.setattr(type(lab.session.ledger), "append", counted(type(lab.session.ledger).append))
        patched.setattr("cloudgpu.control.clusters.together.MAX_PARALLEL", 1)  # else chance says whose turn it is
        with suppress(Killed, NoCapacity):
            verb(lab)
        join_abandoned(5)
    return made > turn


def run(lab):
    lab.later(minutes=1)
    return reap(lab.session, ReapOptions())


def was_requested(lab, kind):
    return any(line.kind == kind for row in lab.rows() for line in lab.session.ledger.events(row.id))


@pytest.mark.parametrize("turn", range(13))
def test_the_next_run_finishes_a_stop_of_a_cluster_that_was_killed(lab, monkeypatch, turn):
    lab.gang(2)
    if not killed_at(lab, monkeypatch, stop, turn):
        assert lab.machines() == []
        return
    before, requested = len(lab.machines()), was_requested(lab, "stop_requested")
    found = run(lab)
    assert len(lab.machines()) == (0 if requested else 2)
    assert {(one.do, one.rule) for one in found.ended} == (
        {(ReaperAction.STOP, Rule.PART)} if requested and before else set()
    )


def test_no_run_stops_what_was_started_by_hand_after_a_stop_that_was_killed(lab, monkeypatch):
    _, second = lab.gang(2)
    killed_at(lab, monkeypatch, stop, 4)
    assert lab.states()["train-1"] != "running"
    lab.later(minutes=5)
    lab.cloud.start(second.provider_id)
    lab.later(minutes=5)
    assert (run(lab).ended, len(lab.machines())) == ((), 2)
    stop(lab)
    assert lab.machines() == []


def test_no_run_stops_a_node_that_was_started_by_hand_after_its_own_stop_was_done(lab, monkeypatch):
    *_, last = lab.gang(2)
    killed_at(lab, monkeypatch, stop, 6)
    assert lab.session.ledger.machine(last.id).state == "stopped"
    lab.later(minutes=5)
    lab.cloud.start(last.provider_id)
    lab.later(minutes=5)
    assert (run(lab).ended, len(lab.machines())) == ((), 2)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_no_run_stops_what_was_started_after_a_part_of_it_had_ended(lab, monkeypatch, is_stopped):
    lab.gang(2)
    killed_at(lab, monkeypatch, down, 6)
    assert len(lab.machines()) == 1
    if is_stopped:
        stop(lab)
    start(lab)
    for _ in range(2):
        lab.later(minutes=10)
        assert (run(lab).ended, len(lab.machines())) == ((), 1)


def test_a_node_that_was_started_right_before_its_stop_is_stopped_by_the_next_run(lab, monkeypatch):
    for row in lab.gang(2):
        lab.cloud.stop(row.provider_id)
        lab.later(minutes=1)
        lab.cloud.start(row.provider_id)
    killed_at(lab, monkeypatch, stop, 1)
    assert len(run(lab).ended) == 2
    assert lab.machines() == []


@pytest.mark.parametrize("turn", range(13))
def test_a_start_takes_back_a_stop_that_was_killed_and_no_run_undoes_it(lab, monkeypatch, turn):
    lab.gang(2)
    killed_at(lab, monkeypatch, stop, turn)
    start(lab)
    assert (run(lab).ended, len(lab.machines())) == ((), 2)
    assert {row.pending_action for row in lab.rows()} == {None}


@pytest.mark.parametrize("turn", range(20))
def test_no_run_undoes_a_start_that_was_killed_on_its_way_back_from_a_stop(lab, monkeypatch, turn):
    lab.gang(2)
    killed_at(lab, monkeypatch, stop, 6)
    killed_at(lab, monkeypatch, start, turn)
    asked, there = was_requested(lab, "start_requested"), len(lab.machines())
    for _ in range(2):
        assert len(run(lab).ended) == (0 if asked else there)
        assert len(lab.machines()) == (there if asked else 0)
        lab.later(hours=1)
        there = len(lab.machines())


@pytest.mark.parametrize("turn", range(30))
def test_what_a_killed_start_was_stopping_again_is_stopped(lab, monkeypatch, turn):
    lab.gang(2)
    stop(lab)
    before = {line.seq for row in lab.rows() for line in lab.session.ledger.events(row.id)}
    lab.cloud.fail_next("start", FULL)
    killed_at(lab, monkeypatch, start, turn)
    lines = [line for row in lab.rows() for line in lab.session.ledger.events(row.id) if line.seq not in before]
    there = len(lab.machines())
    run(lab)
    begun = any(line.kind == "stop_requested" for line in lines)
    assert len(lab.machines()) == (0 if begun else there)


@pytest.mark.parametrize("turn", turns(16, 0, 1, 4, 7))
def test_the_next_run_finishes_an_end_of_a_cluster_that_was_killed(lab, monkeypatch, turn):
    lab.gang(2)
    if not killed_at(lab, monkeypatch, down, turn):
        assert lab.states() == {}
        return
    before, requested = len(lab.machines()), was_requested(lab, "terminate_requested")
    found = run(lab)
    assert len(lab.machines()) == (0 if requested else 2)
    assert {(one.do, one.rule) for one in found.ended} == (
        {(ReaperAction.TERMINATE, Rule.PART)} if requested and before else set()
    )


def test_an_end_that_was_killed_is_finished_though_the_clusters_renew_until_has_come_meanwhile(lab, monkeypatch):
    lab.gang(2)
    killed_at(lab, monkeypatch, down, 2)
    assert len(lab.machines()) == 2
    lab.later(days=30)
    run(lab)
    assert (lab.machines(), lab.rows()) == ([], [])


def test_the_next_run_finishes_an_end_of_a_stopped_cluster(lab, monkeypatch):
    lab.gang(2)
    stop(lab)
    killed_at(lab, monkeypatch, down, 2)
    assert len(lab.states()) == 2
    run(lab)
    assert lab.states() == {}


@pytest.mark.parametrize("turn", [1, 2])
def test_a_start_takes_back_an_end_that_was_killed(lab, monkeypatch, turn):
    lab.gang(2)
    killed_at(lab, monkeypatch, down, turn)
    assert len(lab.machines()) == 2
    start(lab)
    for _ in range(2):
        assert (run(lab).ended, len(lab.machines())) == ((), 2)
    assert {(row.pending_action, row.discard) for row in lab.rows()} == {(None, False)}


def up(lab):
    lab.gang(2)


def hold(lab):
    hold_all(lab.session, lab.rows(), lab.clock() + timedelta(hours=1))


def extend(lab):
    extend_all(lab.session, plan_extension_of_all(lab.session, lab.rows(), timedelta(hours=1)))


@pytest.mark.parametrize("verb", [stop, down])
@pytest.mark.parametrize("newer", [up, hold, extend])
def test_who_wants_a_cluster_whose_nodes_all_run_takes_back_what_was_killed(lab, monkeypatch, verb, newer):
    lab.gang(2)
    killed_at(lab, monkeypatch, verb, 1)
    newer(lab)
    assert (run(lab).ended, len(lab.machines())) == ((), 2)
    stop(lab)
    assert lab.machines() == []


@pytest.mark.parametrize("verb", ["stop", "terminate"])
def test_a_single_machine_with_a_queue_is_no_cluster_to_be_finished(lab, verb):
    lab.up(name="fox", nodes=1, engine="slurm")
    (row,) = lab.rows()
    lab.cloud.deny(verb)
    with pytest.raises(AuthFailed):
        (lifecycle.stop if verb == "stop" else lifecycle.terminate_one)(lab.session, row, why="asked")
    lab.cloud.permit(verb)
    lifecycle_start.start(lab.session, row, new_lease(lab.session, row, timedelta(hours=2)))
    assert (run(lab).ended, len(lab.machines())) == ((), 1)


def test_what_protects_a_cluster_from_its_end_takes_the_request_back(lab):
    lab.gang(2)
    lab.cloud.fail_next("terminate", EndRefused("it is protected.", lifts="unlock"), times=2)
    lab.cloud.fail_next("stop", EndRefused("it is protected.", lifts="unlock"), times=2)
    down(lab)
    assert (run(lab).ended, len(lab.machines())) == ((), 2)


@pytest.mark.parametrize(("stoppable", "verb"), [(True, "stop"), (False, "terminate")])
def test_what_a_run_decided_and_could_not_do_is_decided_anew_and_no_promise(lab, stoppable, verb):
    own = lab.session.home.policies / "own.yaml"
    own.parent.mkdir()
    own.write_text("lease: 8h\nrenew_until: 72h\nspot:\n  unpausable: terminate\n")
    rows = lab.gang(3, on_node_loss="stop", policy="own", spot=not stoppable)
    run(lab)
    (lab.cloud.die if stoppable else lab.cloud.take)(rows[2].provider_id)
    lab.later(minutes=5)
    for call in (verb, "stop_many"):
        lab.cloud.deny(call)
    assert len(run(lab).unconfirmed) == 2
    for call in (verb, "stop_many"):
        lab.cloud.permit(call)
    hold_all(lab.session, rows[:2], lab.clock() + timedelta(hours=1))
    assert (run(lab).ended, len(lab.machines())) == ((), 2)


def test_a_promise_that_a_run_could_not_keep_is_kept_by_the_next(lab, monkeypatch):
    lab.gang(2)
    hold_all(lab.session, lab.rows(), lab.clock() + timedelta(hours=1))
    killed_at(lab, monkeypatch, stop, 1)
    for call in ("stop", "stop_many"):
        lab.cloud.deny(call)
    assert len(run(lab).unconfirmed) == 2
    for call in ("stop", "stop_many"):
        lab.cloud.permit(call)
    assert (len(run(lab).ended), lab.machines()) == (2, [])


def told_of_parts(lab):
    lines = [line.body for line in lab.session.ledger.events("alerts") if line.kind == "alert_raised"]
    return [one["title"] for one in lines if one["key"].startswith("part:")]


@pytest.mark.parametrize("engine", ["slurm", "none"])
@pytest.mark.parametrize("turn", turns(20, 1, 8, 10))
def test_what_a_killed_start_has_started_is_told_of_and_stopped_where_it_has_a_queue(lab, monkeypatch, turn, engine):
    lab.gang(2, engine=engine)
    stop(lab)
    killed_at(lab, monkeypatch, start, turn)
    half, queue = len(lab.machines()) == 1, engine == "slurm"
    assert told_of_parts(lab) == []
    if not lab.machines():
        return
    lab.later(minutes=2)
    found = run(lab)
    assert (found.ended, len(told_of_parts(lab))) == ((), half)
    assert {(one.rule, one.due is not None) for one in found.warned} == ({(Rule.PART, queue)} if half else set())
    lab.later(minutes=10)
    stopped = half and queue
    assert {(one.do, one.rule) for one in run(lab).ended} == ({(ReaperAction.STOP, Rule.PART)} if stopped else set())
    assert len(lab.machines()) == (0 if stopped else 1 if half else 2)


@pytest.mark.parametrize(("nodes", "turn"), [(1, 2), (2, 4)])
def test_a_killed_start_that_started_nothing_is_said_to_be_that(lab, monkeypatch, nodes, turn):
    lab.up(name="train", nodes=nodes, engine="none")
    for row in lab.rows():
        lifecycle.stop(lab.session, row, why="asked")
    killed_at(lab, monkeypatch, start_one if nodes == 1 else start, turn)
    assert ({row.pending_action for row in lab.rows()}, lab.machines()) == ({"start"}, [])
    lab.later(minutes=20)
    told = [one.why for one in run(lab).ended]
    assert (len(told), {"its start was requested and did not happen" in one for one in told}) == (nodes, {True})
    assert {row.pending_action for row in lab.rows()} == {None}
    lab.later(minutes=20)
    assert run(lab).ended == ()
    assert [line for line in lab.session.ledger.events("alerts") if line.kind == "alert_raised"] == []


def start_one(lab):
    (row,) = lab.rows()
    lifecycle_start.start(lab.session, row, new_lease(lab.session, row, timedelta(hours=2)))


def half_started(lab, monkeypatch, engine="slurm"):
    """A cluster of which train-1 has started when its start was killed."""
    lab.gang(2, engine=engine)
    stop(lab)
    killed_at(lab, monkeypatch, start, 8)
    assert list(lab.states().values()).count("stopped") == 1


def test_a_second_start_finishes_one_that_was_killed(lab, monkeypatch):
    half_started(lab, monkeypatch)
    run(lab)
    start(lab)
    for _ in range(2):
        lab.later(minutes=20)
        assert (run(lab).ended, len(lab.machines())) == ((), 2)


def test_a_second_start_that_is_killed_too_is_stopped_as_the_first(lab, monkeypatch):
    half_started(lab, monkeypatch)
    lab.later(minutes=2)
    killed_at(lab, monkeypatch, start, 3)
    assert len(lab.machines()) == 1
    lab.later(minutes=2)
    assert len(run(lab).warned) == 1
    lab.later(minutes=10)
    run(lab)
    assert lab.machines() == []


def test_a_hold_keeps_what_a_killed_start_has_started(lab, monkeypatch):
    half_started(lab, monkeypatch)
    lab.later(minutes=2)
    run(lab)
    hold_all(lab.session, lab.rows(), lab.clock() + timedelta(hours=1))
    lab.later(minutes=10)
    assert (run(lab).ended, len(lab.machines())) == ((), 1)


def test_nodes_that_ran_before_a_start_that_was_killed_run_on(lab, monkeypatch):
    rows = lab.gang(3, engine="slurm")
    run(lab)
    for row in rows[1:]:
        lab.cloud.die(row.provider_id)
    lab.later(minutes=5)
    run(lab)
    turn = 4
    while len(lab.machines()) != 2:
        killed_at(lab, monkeypatch, start, turn := turn + 1)
    lab.later(minutes=2)
    run(lab)
    assert len(told_of_parts(lab)) == 1
    for _ in range(3):
        lab.later(minutes=10)
        assert (run(lab).ended, len(lab.machines())) == ((), 2)
