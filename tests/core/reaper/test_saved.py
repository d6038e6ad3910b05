"""What ends by rules saved at most: a person's end saves nothing, and nothing counts twice or beyond its bound."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.core.billing.rules import PARTS_PER_NANO
from cloudgpu.core.events.log import EventSummary
from cloudgpu.core.reaper.savings import Stop, policy_stops
from cloudgpu.providers.azure.compute.translate import SHUT_DOWN
from tests.core.costing import NOW, START, at, row, segment, use

HOUR = 3600
DOLLAR = 10**9 * PARTS_PER_NANO


def line(kind, second, **body):
    return EventSummary(int(second) + 10, at(second), kind, "cg-1", "", body)


def decided(second, rule="idle", do="stop", why="idle for 1h (limit 1h): GPU, 3601 s ago", **more):
    return line("decision_made", second, do=do, rule=rule, why=why, activity="IDLE", **({"at": at(second)} | more))


def leased(second, until, expires=None):
    return line("lease_set", second, expires=at(until if expires is None else expires), renew_until=at(until), why="up")


def asked(second, why="idle for 1h (limit 1h): GPU, 3601 s ago", what="stop"):
    return line(f"{what}_requested", second, why=why, host="tower")


def found(*uses, lines=(), now=NOW, row_of=None, **period):
    made, ended = row(*uses, **(row_of or {}))
    return policy_stops([made], ended, lines, now, **period)


def one(*uses, lines=(), **more):
    (only,) = found(*uses, lines=lines, **more)
    return only


def test_a_pass_that_stops_saves_until_renew_until():
    """A run of two hours at $1, ended for idleness; its renew-until is eight hours after its begin: six are saved."""
    lines = [leased(0, 8 * HOUR), decided(2 * HOUR - 9), asked(2 * HOUR - 8)]
    assert one(use(0, 2 * HOUR), lines=lines) == Stop(
        "cg-1",
        "name of cg-1",
        "idle",
        START + timedelta(hours=2),
        START + timedelta(hours=8),
        6 * DOLLAR,
    )


def test_the_next_start_ends_what_is_saved_and_so_does_now():
    lines = [leased(0, 80 * HOUR), decided(HOUR - 9), asked(HOUR - 8)]
    again = one(use(0, HOUR), use(3 * HOUR, None), lines=lines)
    assert (again.saved_time, again.exact_avoided_cost) == (timedelta(hours=2), 2 * DOLLAR)
    soon = one(use(0, HOUR), lines=lines, now=START + timedelta(hours=1, minutes=30))
    assert soon.saved_time == timedelta(minutes=30)
    cut = one(use(0, HOUR), lines=lines, until=START + timedelta(hours=5))
    assert cut.saved_time == timedelta(hours=4)


def test_the_price_is_the_last_of_the_run():
    lines = [leased(0, 3 * HOUR), decided(HOUR - 9), asked(HOUR - 8)]
    run = use(0, HOUR, segments=(segment(1_000_000_000), segment(3_000_000_000, 1800)))
    assert one(run, lines=lines).exact_avoided_cost == 2 * 3 * DOLLAR
    assert one(use(0, HOUR, segments=()), lines=lines).exact_avoided_cost is None


@pytest.mark.parametrize("rule", ["idle", "schedule", "lease", "budget", "unlabelled"])
def test_each_rule_counts_by_its_name(rule):
    lines = [leased(0, 3 * HOUR), decided(HOUR - 9, rule, why="its rule says so"), asked(HOUR - 8, "its rule says so")]
    assert one(use(0, HOUR), lines=lines).rule == rule


@pytest.mark.parametrize("what", ["stop", "park", "terminate"])
def test_an_end_that_a_person_asked_for_saves_nothing(what):
    lines = [leased(0, 9 * HOUR), asked(HOUR - 8, "asked by the user", what)]
    assert found(use(0, HOUR), lines=lines) == []
    early = [leased(0, 9 * HOUR), decided(HOUR - 60), asked(HOUR - 8, "asked by the user", what)]
    assert found(use(0, HOUR), lines=early) == []  # a pass had decided it, and a person was first


def test_a_decision_of_long_ago_is_not_why_it_was_asked():
    lines = [leased(0, 9 * HOUR), decided(HOUR), asked(2 * HOUR - 8)]
    assert found(use(0, 2 * HOUR), lines=lines) == []


def test_the_reason_that_a_last_look_told_anew_is_the_same():
    anew = "idle for 1h 2m (limit 1h): CPU, 3729 s ago"
    lines = [leased(0, 9 * HOUR), decided(HOUR - 99), asked(HOUR - 8, anew)]
    assert one(use(0, HOUR), lines=lines).rule == "idle"


def test_a_decision_to_keep_it_ends_nothing():
    lines = [leased(0, 9 * HOUR), decided(HOUR - 99, do="keep"), asked(HOUR - 8)]
    assert found(use(0, HOUR), lines=lines) == []


def test_renew_until_saves_nothing_for_there_was_no_more_to_come():
    lines = [leased(0, HOUR), decided(HOUR - 9, "renew-until"), asked(HOUR - 8)]
    assert found(use(0, HOUR), lines=lines) == []


def test_what_its_own_agent_ended_is_known_by_its_word():
    lines = [leased(0, 4 * HOUR)]
    assert one(use(0, HOUR, reason="idle"), lines=lines).saved_time == timedelta(hours=3)
    assert found(use(0, HOUR, reason="interrupted"), lines=lines) == []
    assert found(use(0, HOUR), lines=lines) == []  # nobody asked, and nobody says why


INSIDE = "shut down from inside"


@pytest.mark.parametrize("reason", [INSIDE, SHUT_DOWN])
def test_a_shutdown_from_inside_counts_where_its_lease_had_ended(reason):
    lines = [leased(0, 4 * HOUR, expires=HOUR - 120)]
    assert one(use(0, HOUR, reason=reason), lines=lines).rule == "lease"
    assert found(use(0, HOUR, reason=reason), lines=[leased(0, 4 * HOUR, expires=2 * HOUR)]) == []


def test_a_shutdown_from_inside_counts_where_people_were_warned_of_it():
    warned = line("warning_sent", HOUR - 600, rule="idle", due=at(HOUR - 60), why="idle", how=[])
    assert one(use(0, HOUR, reason=INSIDE), lines=[leased(0, 4 * HOUR), warned]).rule == "idle"
    foreseen = decided(HOUR - 600, do="keep", rule="schedule", at=at(HOUR))
    assert one(use(0, HOUR, reason=INSIDE), lines=[leased(0, 4 * HOUR), foreseen]).rule == "schedule"


def test_a_shutdown_from_inside_counts_where_nobody_had_used_it_for_long():
    lines, run = [leased(0, 4 * HOUR)], use(0, HOUR, reason=INSIDE)
    assert one(run, lines=lines, row_of={"last_active": at(HOUR - 1000)}).rule == "idle"
    assert found(run, lines=lines, row_of={"last_active": at(HOUR - 60)}) == []  # a person who typed shutdown
    later = use(2 * HOUR, 3 * HOUR)
    assert found(run, later, lines=lines, row_of={"last_active": at(HOUR - 1000)}) == []  # a word of another run


def test_ends_before_the_period_are_of_another_one():
    lines = [leased(0, 9 * HOUR), decided(HOUR - 9), asked(HOUR - 8)]
    assert found(use(0, HOUR), lines=lines, since=START + timedelta(hours=2)) == []
    assert len(found(use(0, HOUR), lines=lines, since=START)) == 1


def test_without_a_known_renew_until_now_is_the_bound():
    lines = [decided(HOUR - 9), asked(HOUR - 8)]
    assert one(use(0, HOUR), lines=lines).until == NOW


def test_no_machine_and_no_line_save_nothing():
    assert policy_stops([], [], [], NOW) == []
    assert found(use(0, HOUR)) == []


def test_what_is_removed_after_a_stop_saves_no_more_from_then_on():
    """Stopped for idleness after one hour, ended by a person at three; its renew-until is at eighty."""
    lines = [
        leased(0, 80 * HOUR),
        decided(HOUR - 9),
        asked(HOUR - 8),
        asked(3 * HOUR, "asked by the user", "terminate"),
    ]
    assert one(use(0, HOUR), lines=lines).saved_time == timedelta(hours=2)
    elsewhere = one(use(0, HOUR), lines=lines[:3], row_of={"terminated_at": at(4 * HOUR), "state": "terminated"})
    assert elsewhere.saved_time == timedelta(hours=3)  # in the cloud's console
    at_once = one(use(0, HOUR), lines=lines[:3], row_of={"terminated_at": at(HOUR + 60), "state": "terminated"})
    assert at_once.saved_time == timedelta(hours=79)  # the rule's own end, seen a minute later


def test_a_machine_that_is_launched_anew_for_the_same_request_ends_what_is_saved():
    lines, key = [leased(0, 80 * HOUR), decided(HOUR - 9), asked(HOUR - 8)], "auto-" + 20 * "0" + "-"
    first, ended = row(use(0, HOUR), key=f"{key}1")
    for again, span in ((f"{key}2", 4), ("auto-" + 20 * "1" + "-1", 79)):
        second, _ = row(use(5 * HOUR, None), id="cg-2", key=again)
        (found_,) = policy_stops([first, second], ended, lines, NOW)
        assert found_.saved_time == timedelta(hours=span)


def test_the_end_of_what_is_free_saves_nothing():
    lines = [leased(0, 9 * HOUR), decided(HOUR - 9), asked(HOUR - 8)]
    assert found(use(0, HOUR, segments=(segment(0),)), lines=lines) == []
