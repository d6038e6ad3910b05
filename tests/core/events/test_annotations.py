from __future__ import annotations

from typing import Any

from cloudgpu.core.events.annotations import not_before_last
from cloudgpu.core.events.log import Event
from cloudgpu.core.events.projection import machine_of, project
from cloudgpu.core.model.facts import SentWarning
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.times import iso
from tests.core.lives import START, arrived, asked, at, gone, intent, line, running, stopped


def row_of(*lines: Event) -> Machine:
    row = machine_of(arrived(list(lines), list(range(1, len(lines) + 1))))
    assert row is not None
    return row


def stored(*lines: Event) -> dict[str, Any]:
    """Return the record of the machine, after holding that the machine itself says as much of what it lacks."""
    found, machine = project(arrived(list(lines), list(range(1, len(lines) + 1)))), row_of(*lines)
    assert found is not None
    row = found.state["row"]
    assert all((name in row) == bool(getattr(machine, name)) for name in Machine._field_defaults)
    return row


def warned(second: float, rule: str = "idle", due: float | None = 700) -> Event:
    body = {"rule": rule, "due": None if due is None else at(due), "why": f"{rule} since", "how": ["ledger"]}
    return line(second, "warning_sent", body)


def lifted(second: float, rule: str = "idle") -> Event:
    return line(second, "warning_cleared", {"rule": rule, "why": "ACTIVE"})


def decided(second: float, do: str = "keep", rule: str = "none", activity: str = "ACTIVE") -> Event:
    body = {"do": do, "rule": rule, "why": "so", "activity": activity, "at": None, "host": "here"}
    return line(second, "decision_made", body)


def test_a_row_of_which_nothing_was_said_has_no_such_field() -> None:
    row = row_of(intent(0), running(1))
    assert (row.warnings, row.decision, row.timer) == ({}, None, None)
    assert stored(intent(0), running(1)).keys().isdisjoint({"warnings", "decision", "timer"})


def test_warnings_of_one_end_are_counted_and_one_of_another_end_begins_anew() -> None:
    row = row_of(intent(0), running(1), warned(10), warned(20), warned(15, "lease", None))
    assert row.warnings == {
        "idle": SentWarning(at=at(10), last=at(20), due=at(700), times=2, why="idle since"),
        "lease": SentWarning(at=at(15), last=at(15), due=None, times=1, why="lease since"),
    }
    row = row_of(intent(0), running(1), warned(10), warned(20, due=800))
    assert (row.warnings["idle"].at, row.warnings["idle"].times) == (at(20), 1)


def test_a_lifted_warning_is_gone_and_the_others_stay() -> None:
    row = row_of(intent(0), running(1), warned(10), warned(11, "lease"), lifted(20))
    assert list(row.warnings) == ["lease"]
    assert "warnings" not in stored(intent(0), running(1), warned(10), lifted(20))


def test_a_stop_a_start_and_an_end_forget_what_was_warned() -> None:
    for forgets in (stopped(20), asked(20, "start"), gone(20), intent(20, attempt=2)):
        assert "warnings" not in stored(intent(0), running(1), warned(10), forgets), forgets.kind
    assert "warnings" in stored(intent(0), running(1), warned(10), running(20))
    assert "warnings" in stored(intent(0), running(1), stopped(5), warned(10, "stopped"), stopped(20))


def test_a_new_life_forgets_what_was_decided_of_the_last() -> None:
    row = row_of(intent(0), running(1), decided(10), line(11, "timer_set", {"at": at(900), "why": "launch"}))
    assert (row.decision.do, row.timer) == ("keep", at(900))
    again = (
        intent(0),
        running(1),
        decided(10),
        line(11, "timer_set", {"at": at(900), "why": "launch"}),
        intent(20, attempt=2),
    )
    assert (row_of(*again).decision, row_of(*again).timer) == (None, None)
    assert stored(*again).keys().isdisjoint({"decision", "timer"})


def test_a_decision_says_since_when_it_is_that_and_since_when_that_use_is_known() -> None:
    row = row_of(intent(0), running(1), decided(10), decided(20), decided(30, "renew", "lease"), decided(40))
    assert (row.decision.since, row.decision.activity_since) == (at(40), at(10))
    row = row_of(intent(0), running(1), decided(10), decided(20), decided(30, activity="UNKNOWN"))
    assert (row.decision.since, row.decision.activity_since) == (at(30), at(30))


def test_a_timer_that_was_dropped_is_none() -> None:
    lines = [line(second, "timer_set", {"at": when, "why": "so"}) for second, when in ((10, at(900)), (20, None))]
    assert "timer" not in stored(intent(0), running(1), *lines)


def test_what_a_pass_says_of_an_unknown_machine_makes_no_row() -> None:
    assert machine_of([decided(1), warned(2), lifted(3)]) is None


def test_a_clock_that_was_set_back_says_nothing_before_what_was_said() -> None:
    row = row_of(intent(0), running(1), warned(3000), decided(2900))
    assert iso(not_before_last(row, START)) == at(3000)
    assert not_before_last(None, START) == START
    assert not_before_last(row_of(intent(0), running(1)), START) == START
