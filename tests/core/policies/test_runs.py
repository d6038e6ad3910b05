"""A scheduled run guards while it is no older than twice its interval, saw the account, and its computer stays on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.policies.guards import MAX_HOMES, ScheduledRun, guarding_run, is_recent, missing_for_guard, with_run

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
LAMBDA, OTHER = "scope:lambda/acc", "scope:aws/1"
TEN = timedelta(minutes=10)


def run(host="tower", ago=timedelta(), every=TEN, *, home=None, battery=False, accounts=(LAMBDA,)):
    return ScheduledRun(home or f"home of {host}", host, NOW - ago, every, battery, frozenset(accounts))


runs = st.builds(
    run,
    home=st.sampled_from([f"home-{n}" for n in range(24)]),
    host=st.sampled_from(["ubuntu", "tower"]),
    ago=st.integers(-3000, 200_000).map(lambda s: timedelta(seconds=s)),
    every=st.integers(1, 86_400).map(lambda s: timedelta(seconds=s)),
    battery=st.sampled_from([True, False, None]),
    accounts=st.sets(st.sampled_from([LAMBDA, OTHER])),
)


@pytest.mark.parametrize(("ago", "guards"), [(0, True), (20 * 60, True), (20 * 60 + 1, False), (-20 * 60 - 1, False)])
def test_a_run_guards_for_twice_its_interval_and_not_from_a_wrong_clock(ago, guards):
    found = guarding_run([run(ago=timedelta(seconds=ago))], LAMBDA, NOW)
    assert (found is not None) == guards


def test_of_several_runs_the_most_frequent_is_relied_on():
    night, tower = run("nas", timedelta(hours=9), timedelta(days=1)), run()
    assert guarding_run([night, tower], LAMBDA, NOW) == tower
    assert guarding_run([night], LAMBDA, NOW) == night


@pytest.mark.parametrize(
    ("known", "says"),
    [
        ([], "none has been heard yet"),
        ([run(accounts=(OTHER,))], "those that were heard (on tower) do not check this account"),
        ([run(ago=timedelta(hours=3))], "the last one, on tower, was 3h ago and should come every 10m"),
        ([run("laptop", battery=True)], "laptop runs on a battery, and sleeps when it is closed"),
        ([run("mac", battery=None)], "it is not known whether mac runs on a battery"),
        ([run(ago=timedelta(days=-1))], "the last one, on tower, is of a time that is still to come"),
    ],
)
def test_what_is_missing_is_named(known, says):
    assert missing_for_guard(known, LAMBDA, NOW).startswith(says)


@given(st.lists(runs, max_size=20))
def test_a_run_is_relied_on_only_where_nothing_is_missing_of_it(known):
    found = guarding_run(known, LAMBDA, NOW)
    fit = [one for one in known if LAMBDA in one.accounts and one.battery is False and is_recent(one, NOW)]
    assert (found is None) == (not fit)
    assert found is None or (found in fit and found.every == min(one.every for one in fit))


@given(st.lists(runs, max_size=30, unique_by=lambda one: one.home), runs)
def test_a_line_carries_few_homes_the_own_one_once_and_never_drops_a_recent_for_a_silent_one(before, own):
    own = own._replace(at=NOW)
    found = with_run(before, own, NOW)
    assert len(found) <= MAX_HOMES
    assert [one for one in found if one.home == own.home] == [own]
    left = [one for one in before if one not in found and one.home != own.home]
    if any(is_recent(one, NOW) for one in left):
        assert all(is_recent(one, NOW) for one in found)


def test_computers_of_the_same_name_and_homes_of_one_computer_do_not_hide_each_other():
    server, laptop = run("ubuntu", home="a"), run("ubuntu", home="b", battery=True)
    assert set(with_run([server], laptop, NOW)) == {server, laptop}
    assert guarding_run(with_run([server], laptop, NOW), LAMBDA, NOW) == server
    assert missing_for_guard([laptop, laptop._replace(home="c")], LAMBDA, NOW).startswith("ubuntu runs on a battery")


def test_the_only_run_that_guards_an_account_is_not_crowded_out_by_newer_ones_of_others():
    night = run("nas", timedelta(hours=20), timedelta(days=1))
    crowd = [run(home=f"container-{n}", accounts=(OTHER,)) for n in range(2 * MAX_HOMES)]
    assert guarding_run(with_run([night, *crowd[1:]], crowd[0], NOW), LAMBDA, NOW) == night


@given(runs)
def test_a_run_is_read_back_as_it_was_written(one):
    assert ScheduledRun.of(one.record()) == one
