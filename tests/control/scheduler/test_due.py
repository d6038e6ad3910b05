"""What is due is what the ledger says: a crash, a night of sleep or a second watch change nothing about it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from cloudgpu.control.scheduler.due import (
    clocks_diverged,
    is_sweep_due,
    last_night_start,
    own_run_due_at,
    prices_due_at,
    run_due_at,
)
from cloudgpu.control.session.last_run import LastRun
from cloudgpu.core.events.log import Event
from cloudgpu.core.model.facts import LastDecision, SentWarning
from cloudgpu.core.values.times import iso
from tests.core.machines import machine

NOW = datetime(2026, 11, 20, 11, 0, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
EVERY = 10 * MINUTE


def last(at, **more):
    line = Event(1, iso(at), "own", iso(at), "ada", "reap_finished", "reaper", "x", "", {"ok": True})
    return LastRun(line, at, **more)


def row(*, ended=None, at=None, due=None):
    said = iso(NOW)
    warnings = {"idle": SentWarning(said, said, iso(due), 1, None)} if due else {}
    decision = LastDecision("nothing", "lease", "", "", iso(at), said, said) if at else None
    return machine(terminated_at=ended, decision=decision, warnings=warnings)


def heard(host, ago, *, battery=False, accounts=("scope:fake/1", "scope:fake/2"), swept_at=None):
    return {
        "home": host,
        "host": "ubuntu",
        "at": iso(NOW - ago),
        "every_s": 600.0,
        "battery": battery,
        "accounts": list(accounts),
        "swept_at": None if swept_at is None else iso(swept_at),
    }


def heard_run(*runs, **more):
    body = {"ok": True, "host": "ubuntu", "home": runs[0]["home"], "scheduled": list(runs)}
    at = iso(NOW - 3 * MINUTE)
    return LastRun(Event(1, at, "own", at, "ada", "reap_finished", "reaper", "x", "", body), NOW, **more)


@pytest.mark.parametrize(
    ("theirs", "due"),
    [
        ({}, NOW + 7 * MINUTE),  # as good as our own
        ({"battery": True}, NOW + MINUTE),
        ({"battery": None}, NOW + MINUTE),
        ({"accounts": ["scope:fake/1"]}, NOW + MINUTE),  # nobody checks the other one
    ],
)
def test_a_pass_of_another_computer_stands_for_our_own_only_where_it_guards_as_much(theirs, due):
    body = {"ok": True, "host": "ubuntu", "home": "laptop"}
    body["scheduled"] = [heard("server", 9 * MINUTE), heard("laptop", 3 * MINUTE, **theirs)]
    at = NOW - 3 * MINUTE
    before = LastRun(Event(1, iso(at), "own", iso(at), "ada", "reap_finished", "reaper", "x", "", body), at)
    by_all = run_due_at(before, [], EVERY, NOW)
    assert own_run_due_at(before, by_all, "server", EVERY, NOW) == due
    assert own_run_due_at(before, by_all, "laptop", EVERY, NOW) == by_all
    assert own_run_due_at(before, by_all, "newcomer", EVERY, NOW) == NOW


def test_a_computer_that_checks_only_hosts_of_its_own_makes_its_own_passes():
    """No other one reaches them, and a pass records only the cloud accounts that it checked."""
    runs = [heard("laptop", 3 * MINUTE), heard("server", 9 * MINUTE, accounts=())]
    before = heard_run(*runs)
    assert own_run_due_at(before, run_due_at(before, [], EVERY, NOW), "server", EVERY, NOW) == NOW + MINUTE


def test_the_first_pass_is_due_at_once():
    assert run_due_at(LastRun(), [], EVERY, NOW) == NOW


def test_a_pass_is_due_every_ten_minutes():
    assert run_due_at(last(NOW - 3 * MINUTE), [row()], EVERY, NOW) == NOW + 7 * MINUTE


def test_after_a_night_of_sleep_the_pass_is_overdue():
    assert run_due_at(last(NOW - 9 * HOUR), [row(at=NOW - 5 * HOUR)], EVERY, NOW) < NOW


def test_what_falls_due_in_between_is_not_left_to_the_next_round():
    rows = [row(at=NOW + 3 * MINUTE), row(due=NOW + 5 * MINUTE), row(at=NOW + HOUR)]
    assert run_due_at(last(NOW), rows, EVERY, NOW) == NOW + 3 * MINUTE
    assert run_due_at(last(NOW), rows[1:], EVERY, NOW) == NOW + 5 * MINUTE


def test_what_the_last_pass_has_seen_to_does_not_call_another():
    assert run_due_at(last(NOW), [row(at=NOW - MINUTE), row(due=NOW)], EVERY, NOW) == NOW + EVERY


def test_many_ends_one_after_the_other_are_a_pass_a_minute_at_most():
    rows = [row(at=NOW + timedelta(seconds=n)) for n in range(1, 60)]
    assert run_due_at(last(NOW), rows, EVERY, NOW) == NOW + MINUTE


def test_what_has_ended_calls_nobody():
    assert run_due_at(last(NOW), [row(ended=iso(NOW), at=NOW + MINUTE)], EVERY, NOW) == NOW + EVERY


def test_a_clock_that_was_set_back_does_not_put_the_pass_off():
    assert run_due_at(last(NOW + 5 * HOUR), [], EVERY, NOW) == NOW


@given(st.integers(-10_000, 10_000), st.lists(st.integers(-10_000, 10_000), max_size=5))
def test_a_pass_is_never_later_than_one_interval_after_the_last(ago, ends):
    found = run_due_at(last(NOW - ago * MINUTE), [row(at=NOW + end * MINUTE) for end in ends], EVERY, NOW)
    assert found <= max(NOW, NOW - ago * MINUTE + EVERY)


@pytest.mark.parametrize(
    ("zone", "now", "night"),
    [
        ("UTC", NOW, datetime(2026, 11, 20, 3, tzinfo=UTC)),
        ("UTC", datetime(2026, 11, 20, 2, 59, tzinfo=UTC), datetime(2026, 11, 19, 3, tzinfo=UTC)),
        ("Asia/Seoul", datetime(2026, 11, 20, 18, 30, tzinfo=UTC), datetime(2026, 11, 20, 18, tzinfo=UTC)),
        ("Europe/Paris", datetime(2026, 3, 29, 1, 30, tzinfo=UTC), datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ],
)
def test_the_night_begins_at_three_where_the_user_lives(zone, now, night):
    assert last_night_start(ZoneInfo(zone), now) == night


def test_a_sweep_is_made_once_a_night_and_made_up_for_in_the_morning():
    zone = ZoneInfo("UTC")
    swept = heard_run(heard("desk", 3 * MINUTE, swept_at=datetime(2026, 11, 20, 3, 5, tzinfo=UTC)))
    assert is_sweep_due(LastRun(), "desk", zone, NOW)
    assert not is_sweep_due(swept, "desk", zone, NOW)
    assert not is_sweep_due(swept, "desk", zone, datetime(2026, 11, 21, 2, 59, tzinfo=UTC))
    assert is_sweep_due(swept, "desk", zone, datetime(2026, 11, 21, 9, tzinfo=UTC))
    assert is_sweep_due(heard_run(heard("desk", 3 * MINUTE, swept_at=NOW + HOUR)), "desk", zone, NOW), "a wrong clock"


def test_a_sweep_of_another_computer_stands_only_for_that_of_a_newcomer():
    zone, night = ZoneInfo("UTC"), datetime(2026, 11, 20, 3, 5, tzinfo=UTC)
    swept = heard_run(heard("desk", 3 * MINUTE, swept_at=night), heard("lab", 9 * MINUTE), sweep_at=night)
    assert is_sweep_due(swept, "lab", zone, NOW)
    assert not is_sweep_due(swept, "a new container", zone, NOW)
    assert is_sweep_due(swept, "a new desk", zone, NOW, nightly=True), "it would never become a home that is known"


def test_prices_are_due_a_day_after_the_oldest_of_them():
    day = timedelta(days=1)
    assert prices_due_at([], day, NOW) == NOW
    assert prices_due_at([NOW, NOW - HOUR], day, NOW) == NOW - HOUR + day
    assert prices_due_at([NOW + HOUR], day, NOW) == NOW


def test_a_night_of_sleep_is_noticed_whatever_the_monotonic_clock_does():
    assert clocks_diverged((NOW, NOW + 8 * HOUR), (100.0, 101.0))
    assert clocks_diverged((NOW, NOW - HOUR), (100.0, 101.0))
    assert not clocks_diverged((NOW, NOW + timedelta(seconds=1.2)), (100.0, 101.0))
    assert not clocks_diverged((NOW, NOW + 2 * MINUTE), (100.0, 220.0))  # stopped and continued: both went on
