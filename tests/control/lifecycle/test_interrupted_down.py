"""A `down` of a machine of its own that is killed at any of its calls: the next run of the reaper finishes it."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from cloudgpu import underway
from cloudgpu.cli.machines.listing import _text
from cloudgpu.control.inventory.listing import list_machines
from cloudgpu.control.lifecycle import lease
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.errors import AuthFailed, CloudgpuError, EndRefused, InvalidRequest


class Killed(BaseException):
    """The computer is switched off: no program can do anything about it."""


def killed_at(lab, monkeypatch, turn):
    """End the machine until the n-th call of the cloud or line in the ledger; return whether it came to that."""
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
        for name in ("get", "stop", "tag", "terminate"):
            patched.setattr(type(lab.cloud), name, counted(getattr(type(lab.cloud), name)))
        patched.setattr(type(lab.session.ledger), "append", counted(type(lab.session.ledger).append))
        with suppress(Killed):
            terminate_one(lab.session, lab.rows()[0], why="asked by the user")
    return made > turn


def cut_off(lab, monkeypatch):
    """Kill the `down` between its line in the ledger and its call."""
    lab.up(name="fox")
    assert killed_at(lab, monkeypatch, 2)
    assert (lab.rows()[0].pending_action, len(lab.machines())) == ("terminate", 1)


def table(lab):
    """Return the text of `ls`, its lines joined."""
    return " ".join(_text(list_machines(lab.session, refresh=False, ended=False), lab.clock(), lambda: True).split())


def run(lab):
    lab.later(minutes=1)
    return reap(lab.session, ReapOptions())


@pytest.mark.parametrize("turn", range(8))
def test_the_next_run_finishes_an_end_that_was_killed(lab, monkeypatch, turn):
    lab.up(name="fox")
    if not killed_at(lab, monkeypatch, turn):
        assert lab.machines() == []
        return
    kinds = [line.kind for row in lab.rows() for line in lab.session.ledger.events(row.id)]
    before, requested = len(lab.machines()), "terminate_requested" in kinds
    found = run(lab)
    assert len(lab.machines()) == (0 if requested or not before else 1)
    done = requested and before
    assert {(one.do, one.rule) for one in found.ended} == (
        {(ReaperAction.TERMINATE, Rule.REQUESTED)} if done else set()
    )


def test_an_end_of_a_held_machine_that_was_killed_is_finished(lab, monkeypatch):
    lab.up(name="fox")
    lease.set_hold(lab.session, lab.rows()[0], lab.clock() + timedelta(hours=2))
    assert killed_at(lab, monkeypatch, 2)
    assert (len(run(lab).ended), lab.machines()) == (1, [])


def test_an_end_of_a_stopped_machine_that_was_killed_is_finished(lab, monkeypatch):
    lab.up(name="fox")
    stop(lab.session, lab.rows()[0], why="asked")
    assert killed_at(lab, monkeypatch, 2)
    assert (len(run(lab).ended), lab.rows()) == (1, [])


def test_ls_says_that_an_end_was_requested_until_it_is_done_or_taken_back(lab, monkeypatch):
    cut_off(lab, monkeypatch)
    says = "fox: its end was requested and is not done; cloudgpu down fox or the next run of cloudgpu reap finishes it."
    assert says in table(lab)
    hold(lab, lab.rows()[0])
    assert "requested" not in table(lab)


def test_ls_says_that_a_stop_was_requested_and_which_command_finishes_it(lab, monkeypatch):
    stop_cut_off(lab, monkeypatch)
    says = "fox: its stop was requested and is not done; cloudgpu stop fox or the next run of cloudgpu reap finishes it"
    assert says in table(lab)


def killed(*_args):
    raise Killed


def stop_cut_off(lab, monkeypatch):
    """Kill a `stop` between its line in the ledger and its call."""
    lab.up(name="fox")
    with monkeypatch.context() as patched:
        patched.setattr(type(lab.cloud), "stop", killed)
        with suppress(Killed):
            stop(lab.session, lab.rows()[0], why="asked")
    assert lab.rows()[0].pending_action == "stop"


def test_the_next_run_finishes_a_stop_that_was_killed_also_of_a_held_machine(lab, monkeypatch):
    stop_cut_off(lab, monkeypatch)
    lease.set_hold(lab.session, lab.rows()[0], lab.clock() + timedelta(hours=2), is_by_user=False)
    assert {(one.do, one.rule) for one in run(lab).ended} == {(ReaperAction.STOP, Rule.REQUESTED)}
    assert (lab.rows()[0].state, lab.rows()[0].pending_action) == ("stopped", None)
    assert run(lab).ended == ()


def test_a_stop_without_an_answer_is_kept_for_the_next_run(lab):
    lab.up(name="fox")
    lab.cloud.deny("get")
    with pytest.raises(CloudgpuError) as caught:
        stop(lab.session, lab.rows()[0], why="asked")
    assert "Its stop is requested: the first run of cloudgpu reap that reaches fox finishes it" in str(
        caught.value.next
    )
    lab.cloud.permit("get")
    assert (len(run(lab).ended), lab.rows()[0].state) == (1, "stopped")


def test_a_stop_that_a_cloud_cannot_do_is_not_tried_by_every_run(lab, monkeypatch):
    """It would outrank the rules that end the machine by its renew-until or a budget."""
    lab.up(name="fox")

    def refuse(*_args):
        raise InvalidRequest("It cannot be stopped.", field="instance", value="fox", next="End it.")

    monkeypatch.setattr(type(lab.cloud), "stop", refuse)
    with pytest.raises(InvalidRequest):
        stop(lab.session, lab.rows()[0], why="asked")
    assert (lab.rows()[0].state, lab.rows()[0].pending_action) == ("running", None)
    assert (run(lab).ended, run(lab).unconfirmed) == ((), ())


def test_a_run_that_hears_that_a_machine_cannot_be_stopped_tries_that_no_more(lab, monkeypatch):
    stop_cut_off(lab, monkeypatch)
    refusal = InvalidRequest("It cannot be stopped.", field="instance", value="fox", next="End it.")
    monkeypatch.setattr(type(lab.cloud), "stop_many", lambda _self, ids: dict.fromkeys(ids, refusal))
    assert len(run(lab).unconfirmed) == 1
    assert (lab.rows()[0].state, lab.rows()[0].pending_action) == ("running", None)
    assert (run(lab).ended, run(lab).unconfirmed) == ((), ())


def test_a_stop_that_a_run_decided_and_could_not_do_is_no_promise(lab):
    policy = lab.session.home.policies / "own.yaml"
    policy.parent.mkdir()
    policy.write_text("lease: 1h\nrenew_until: 4h\nunknown: end\n")
    lab.up(name="fox", policy="own")
    lab.later(minutes=61)
    lab.cloud.deny("stop_many")
    assert len(run(lab).unconfirmed) == 1
    lab.cloud.permit("stop_many")
    assert (lab.rows()[0].pending_action, lab.rows()[0].last_request.judged) == ("stop", True)
    lease.set_hold(lab.session, lab.rows()[0], lab.clock() + timedelta(hours=1), is_by_user=False)
    assert (run(lab).ended, lab.rows()[0].state) == ((), "running")


def test_who_interrupts_an_end_hears_that_the_reaper_finishes_it(lab, monkeypatch):
    lab.up(name="fox")
    heard = []
    underway._abort_messages.clear()  # of what other tests have killed
    end_of_cloud = type(lab.cloud).terminate
    monkeypatch.setattr(
        type(lab.cloud), "terminate", lambda *args: heard.append(underway.abort_message()) or end_of_cloud(*args)
    )
    terminate_one(lab.session, lab.rows()[0], why="asked")
    assert "may still be billed. Run the same command again to finish it." in heard[0]
    assert "The next run of cloudgpu reap finishes the end of fox; cloudgpu start fox cancels it." in heard[0]


def up(lab, row):
    assert lab.up(name="fox").already_existed


def begin(lab, row):
    start(lab.session, row, new_lease(lab.session, row, timedelta(hours=2)))


def hold(lab, row):
    lease.set_hold(lab.session, row, lab.clock() + timedelta(hours=1))


def extend(lab, row):
    lease.extend(lab.session, lease.plan_extension(lab.session, row, timedelta(hours=1)))


@pytest.mark.parametrize("newer", [up, begin, hold, extend])
def test_who_wants_the_machine_after_all_takes_back_an_end_that_was_killed(lab, monkeypatch, newer):
    cut_off(lab, monkeypatch)
    lab.later(minutes=1)
    newer(lab, lab.rows()[0])
    assert (run(lab).ended, len(lab.machines())) == ((), 1)
    assert (lab.rows()[0].pending_action, lab.rows()[0].discard) == (None, False)


@pytest.mark.parametrize("newer", [begin, hold])
def test_who_wants_a_stopped_machine_after_all_takes_back_an_end_that_was_killed(lab, monkeypatch, newer):
    lab.up(name="fox")
    stop(lab.session, lab.rows()[0], why="asked")
    assert killed_at(lab, monkeypatch, 2)
    lab.later(minutes=1)
    newer(lab, lab.rows()[0])
    assert (run(lab).ended, len(lab.rows())) == ((), 1)


@pytest.mark.parametrize("newer", [up, begin, hold, extend])
def test_who_wants_the_machine_after_all_takes_back_a_stop_that_was_killed_and_hears_it(lab, monkeypatch, newer):
    stop_cut_off(lab, monkeypatch)
    lab.later(minutes=1)
    heard = []
    monkeypatch.setattr(lab.session, "report", heard.append)
    newer(lab, lab.rows()[0])
    assert "fox: its requested stop is taken back" in heard
    assert (run(lab).ended, lab.rows()[0].state) == ((), "running")
    assert lab.rows()[0].pending_action is None


def test_a_hold_of_a_job_and_the_release_of_a_hold_take_no_end_back(lab, monkeypatch):
    cut_off(lab, monkeypatch)
    lease.set_hold(lab.session, lab.rows()[0], lab.clock() + timedelta(hours=1), is_by_user=False)
    lease.set_hold(lab.session, lab.rows()[0], None)
    assert (len(run(lab).ended), lab.machines()) == (1, [])


def test_an_end_that_a_run_decided_and_could_not_do_is_decided_anew_and_no_promise(lab):
    policy = lab.session.home.policies / "own.yaml"
    policy.parent.mkdir()
    policy.write_text("lease: 1h\nrenew_until: 4h\nunknown: end\nspot:\n  unpausable: terminate\n")
    lab.up(name="fox", policy="own", spot=True)
    lab.later(minutes=61)
    lab.cloud.deny("terminate")
    assert len(run(lab).unconfirmed) == 1
    lab.cloud.permit("terminate")
    assert lab.rows()[0].last_request.judged
    row = lab.rows()[0]
    lease.set_hold(lab.session, row, lab.clock() + timedelta(hours=1), is_by_user=False)
    assert (run(lab).ended, len(lab.machines())) == ((), 1)


def test_a_promise_that_a_run_could_not_keep_is_kept_by_the_next(lab, monkeypatch):
    cut_off(lab, monkeypatch)
    lab.cloud.deny("terminate")
    assert len(run(lab).unconfirmed) == 1
    lab.cloud.permit("terminate")
    assert (len(run(lab).ended), lab.machines()) == (1, [])


def test_an_end_whose_key_was_refused_is_finished_once_there_is_one(lab):
    lab.up(name="fox")
    lab.cloud.deny("terminate")
    with pytest.raises(AuthFailed):
        terminate_one(lab.session, lab.rows()[0], why="asked")
    lab.cloud.permit("terminate")
    assert (len(run(lab).ended), lab.machines()) == (1, [])


def test_what_protects_a_machine_from_its_end_takes_the_request_back(lab):
    lab.up(name="fox")
    for verb in ("terminate", "stop"):
        lab.cloud.fail_next(verb, EndRefused("it is protected.", lifts="unlock"))
    with pytest.raises(CloudgpuError):
        terminate_one(lab.session, lab.rows()[0], why="asked")
    assert (run(lab).ended, len(lab.machines())) == ((), 1)


def test_a_protection_that_names_no_way_out_is_to_be_lifted_before_the_next_down(lab):
    lab.up(name="fox")
    lab.cloud.fail_next("terminate", EndRefused("it is protected."))
    with pytest.raises(EndRefused) as refused:
        terminate_one(lab.session, lab.rows()[0], why="asked")
    assert refused.value.next == "Lift that at its provider; then: cloudgpu down fox"
