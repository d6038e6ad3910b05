from __future__ import annotations

import itertools
import json
import random
from datetime import timedelta
from fractions import Fraction
from typing import Any

from hypothesis import assume, given, strategies as st

from cloudgpu.core.billing.charges import money, spent_until_now
from cloudgpu.core.events.log import Draft, Event
from cloudgpu.core.events.projection import machine_of, project, project_event
from cloudgpu.core.model.facts import HourlyPrice, record_of
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso
from tests.core.lives import (
    HOUR_NANOS,
    START,
    adopted,
    arrived,
    asked,
    at,
    gone,
    intent,
    line,
    price,
    priced,
    running,
    seen,
    settled,
    stopped,
)


def row_of(*lines: Event) -> Machine:
    row = machine_of(lines)
    assert row is not None
    return row


def total(row: Machine, second: float) -> int:
    return spent_until_now(row, START + timedelta(seconds=second)).nanos


def closed(row: Machine) -> int:
    """Return what the intervals that have ended cost."""
    return money(sum(sums[1] for sums in row.usage_totals.values())).nanos


# --- random lives of a machine -------------------------------------------------------------------------------------

steps = st.one_of(
    st.tuples(st.just("running"), st.one_of(st.none(), st.integers(0, 50))),
    st.tuples(st.just("stopped"), st.one_of(st.none(), st.integers(0, 50))),
    st.tuples(st.just("priced"), st.one_of(st.none(), st.integers(0, 10**12))),
    st.tuples(st.sampled_from(["gone", "stop", "start", "terminate", "made"]), st.none()),
)


@st.composite
def lives(draw: st.DrawFn) -> list[Event]:
    """Return the lines of one machine, at distinct times; a look tells when its state began, up to 50 s ago."""
    moments = draw(st.lists(st.integers(1, 400), unique=True, max_size=12).map(sorted))
    lines = [intent(0, draw(st.one_of(st.none(), st.integers(0, 10**12))))]
    for second, (what, number) in zip(
        moments, draw(st.lists(steps, min_size=len(moments), max_size=len(moments))), strict=True
    ):
        since = None if number is None else max(0, second - number)
        made = {
            "running": lambda s=second, b=since: running(s, b),
            "stopped": lambda s=second, b=since: stopped(s, b),
            "priced": lambda s=second, n=number: priced(s, n),
            "gone": lambda s=second: gone(s),
            "made": lambda s=second: settled(s, "made"),
        }
        lines.append(made[what]() if what in made else asked(second, what))
    return lines


@given(lives(), st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(lines: list[Event], chance: random.Random) -> None:
    order = list(range(1, len(lines) + 1))
    told = machine_of(arrived(lines, order))
    chance.shuffle(order)
    late = arrived(lines, order)
    chance.shuffle(late)
    assert machine_of(late) == told


@given(lives(), st.data())
def test_a_replay_does_not_matter(lines: list[Event], data: st.DataObject) -> None:
    again = data.draw(st.lists(st.sampled_from(lines)))
    assert machine_of(arrived(lines + again, list(range(1, len(lines + again) + 1)))) == machine_of(lines)


@given(lives())
def test_a_row_is_plain_json(lines: list[Event]) -> None:
    found = project(lines)
    assert found is not None
    row = found.state["row"]
    assert json.loads(json.dumps(row)) == row
    assert Machine.of(json.loads(json.dumps(record_of(Machine.of(row))))) == Machine.of(row) == machine_of(lines)


def _end_told(look: Event, moment: str, billed_at: str) -> str:
    told = look.body.get("since") is not None and not look.body["billed"]
    return max(moment, billed_at) if told else moment


def _second(moment: str) -> float:
    return (from_iso(moment) - START).total_seconds()


def slow_total(lines: list[Event], end: float) -> Fraction:
    """Price a life second by second: billed from `since` on, at the price in force, the first one before that.

    One that vanished was billed until it was last seen; where its end had been asked, until that was found.
    One that had stopped when it was first seen had run since its launch, or since an earlier look; so too one that
    runs then, of which nobody says since when, but for a minute. An end that is told does not lie before a look that
    saw it billed.
    No second is billed twice: what is seen again goes on from where it ended.
    """
    prices = [item for item in lines if item.kind in ("launch_intended", "price_observed") and item.body["price"]]
    spans, begun, asked_for, seen_at, billed_at, over = [], None, None, at(0), "", False
    for look in lines:
        if look.kind.endswith("_requested") and not over:
            asked_for = look.kind
        if look.kind not in ("instance_observed", "instance_vanished"):
            continue
        moment = look.body.get("since") or look.occurred_at
        if look.kind == "instance_vanished":
            moment = look.occurred_at if asked_for == "terminate_requested" else seen_at
            asked_for, over, billed_at = None, True, ""
        else:
            over = False
            moment = _end_told(look, moment, billed_at)
            billed_at = look.occurred_at if look.body["billed"] else ""
            done = {"running": "start_requested", "stopped": "stop_requested"}[look.body["state"]]
            asked_for = None if asked_for == done else asked_for
            begun = begun or (None if look.body["billed"] or spans or seen_at >= moment else seen_at)
        unsaid = look.body.get("since") is None and not spans and moment > at(60 + _second(seen_at))
        before, seen_at = seen_at, look.occurred_at
        if look.kind == "instance_observed" and look.body["billed"]:
            begun = begun or max(before if unsaid else moment, spans[-1][1] if spans else "")
        elif begun:
            spans.append((begun, moment))
            begun = None
    if begun:
        spans.append((begun, at(end)))
    cost = Fraction(0)
    for second in range(int(end)):
        now = at(second)
        inside = any(begin <= now < stop for begin, stop in spans)
        known = [item for item in prices if item.occurred_at <= now] or prices[:1]
        if inside and known:
            cost += Fraction(known[-1].body["price"]["nanos_per_hour"], 3600)
    return cost


@given(lives())
def test_the_cost_is_that_of_a_slow_reference(lines: list[Event]) -> None:
    assert abs(total(row_of(*lines), 500) - slow_total(lines, 500)) <= 1  # closed and open part, each rounded once


@given(lives(), st.integers(400, 1000), st.integers(0, 1000))
def test_cost_is_never_negative_and_never_falls(lines: list[Event], now: int, later: int) -> None:
    row = row_of(*lines)
    assert 0 <= closed(row) <= total(row, now) <= total(row, now + later)


@given(lives())
def test_a_machine_without_a_price_says_so(lines: list[Event]) -> None:
    known = any(item.body["price"] for item in lines if item.kind in ("launch_intended", "price_observed"))
    row = row_of(*lines)
    assert row.unpriced == (not known)
    assert (row.price is None) == (not known)


@given(lives())
def test_what_a_machine_is_told_is_what_is_folded_of_it_but_for_what_it_has_used(lines: list[Event]) -> None:
    assume(len(lines) > 1)
    before, whole, last = row_of(*lines[:-1]), row_of(*lines), lines[-1]
    told = project_event(before, Draft(last.kind, last.subject, last.body, from_iso(last.occurred_at), last.dedupe))
    assert (told.open_usage, told.usage_totals) == (before.open_usage, before.usage_totals)
    used = {name: getattr(whole, name) for name in ("open_usage", "usage_totals", "charge_notes", "unpriced")}
    assert told._replace(**used) == whole


# --- single facts --------------------------------------------------------------------------------------------------


def test_no_line_of_a_machine_is_no_machine() -> None:
    assert machine_of([]) is None
    assert machine_of([line(0, "ledger_opened", {"ledger": "x"}), line(1, "account_synced", {"machines": 0})]) is None


def test_an_intent_alone_is_open_and_costs_nothing() -> None:
    row = row_of(intent(0))
    assert (row.launch_status, row.state, row.billed, row.terminated_at) == ("open", "unknown", False, None)
    assert total(row, 10**6) == 0


def test_a_refused_attempt_costs_nothing_and_has_ended() -> None:
    row = row_of(intent(0), settled(1, "refused"))
    assert (row.launch_status, row.state, row.terminated_at) == ("refused", "terminated", at(1))
    assert total(row, 10**6) == 0


def test_the_second_attempt_forgets_the_refusal_of_the_first() -> None:
    row = row_of(intent(0), settled(1, "refused"), intent(2, 7 * HOUR_NANOS, attempt=2), running(4, since=3))
    assert (row.launch_status, row.state, row.terminated_at, row.attempt_number) == ("made", "running", None, 2)
    assert total(row, 5) == 7 * 2_000_000


def test_a_late_word_about_the_first_attempt_does_not_touch_the_second() -> None:
    row = row_of(intent(0), intent(2, attempt=2), settled(3, "refused", attempt=1))
    assert row.launch_status == "open"


def test_the_second_attempt_is_billed_at_its_own_price_even_when_the_clocks_differ() -> None:
    lines = (
        intent(0, 1 * HOUR_NANOS),
        settled(1, "refused"),
        intent(10, 5 * HOUR_NANOS, attempt=2),
        running(12, since=8),
    )
    assert total(row_of(*lines), 20) == 5 * 12_000_000


def test_the_clouds_word_begins_and_ends_an_interval() -> None:
    row = row_of(intent(0, HOUR_NANOS), running(10, since=4), stopped(100, since=24))
    assert closed(row) == 20_000_000
    assert row.open_usage == ()


def test_a_price_changes_in_the_middle_of_a_run() -> None:
    row = row_of(intent(0, HOUR_NANOS), running(0), priced(10, 3 * HOUR_NANOS))
    assert total(row, 20) == 10_000_000 + 30_000_000
    assert [segment.nanos for segment in row.open_usage[0].segments] == [HOUR_NANOS, 3 * HOUR_NANOS]


def test_a_price_that_changed_after_the_stop_does_not_touch_the_run() -> None:
    lines = (intent(0, HOUR_NANOS), running(0), priced(60, 9 * HOUR_NANOS), stopped(90, since=30))
    assert total(row_of(*lines), 1000) == 30_000_000


def test_a_price_learned_late_covers_the_time_before() -> None:
    row = row_of(intent(0, None), running(0), stopped(10), priced(50, HOUR_NANOS))
    assert total(row, 100) == 10_000_000
    assert not row.unpriced


def test_a_price_nobody_knows_is_not_a_price_of_zero() -> None:
    row = row_of(intent(0, HOUR_NANOS), running(0), priced(5, None))
    assert row.price == HourlyPrice.of(price(HOUR_NANOS))
    assert total(row, 10) == 10_000_000


def test_a_run_whose_price_was_never_known_stays_unpriced_when_the_next_has_one() -> None:
    row = row_of(intent(0, None), running(0), stopped(10), intent(20, HOUR_NANOS, attempt=2), running(20))
    assert row.unpriced


def test_a_machine_that_has_ended_was_made_whatever_is_said_of_its_launch_later() -> None:
    life = (intent(0, HOUR_NANOS), settled(0.5, "made"), running(1), gone(10))
    assert row_of(*life, settled(20, "void")) == row_of(*life)


def test_an_adoption_does_not_overwrite_what_the_launch_knew() -> None:
    row = row_of(intent(0, HOUR_NANOS), running(0), adopted(5, 9 * HOUR_NANOS))
    assert row.price == HourlyPrice.of(price(HOUR_NANOS))
    assert total(row, 10) == 10_000_000


def test_an_adopted_stray_is_billed() -> None:
    row = row_of(adopted(0, HOUR_NANOS), running(1, since=0))
    assert row.launch_status == "made"
    assert total(row, 10) == 10_000_000


def test_what_vanished_has_ended_and_is_billed_until_it_was_seen_to_be_gone() -> None:
    row = row_of(intent(0, HOUR_NANOS), running(0), asked(5, "terminate"), gone(9))
    assert (row.state, row.billed, row.terminated_at, row.pending_action, row.address) == (
        "terminated",
        False,
        at(9),
        None,
        None,
    )
    assert total(row, 1000) == 9_000_000


def test_what_was_asked_stands_until_it_is_seen() -> None:
    for what, state in (("stop", "stopped"), ("start", "running"), ("terminate", "terminated")):
        open_ask = row_of(intent(0), running(1), asked(2, what), seen(3, "pending", billed=True))
        assert (open_ask.pending_action, open_ask.action_reason) == (what, "the test")
        done = row_of(intent(0), running(1), asked(2, what), seen(3, state, billed=False))
        assert done.pending_action is None


def test_a_machine_that_runs_does_not_prove_a_stop() -> None:
    assert row_of(intent(0), asked(1, "stop"), running(2)).pending_action == "stop"


def test_a_hold_is_set_and_released() -> None:
    held, free = line(1, "hold_set", {"until": at(99)}), line(2, "hold_set", {"until": None})
    assert row_of(intent(0), held).hold_until == at(99)
    assert row_of(intent(0), held, free).hold_until is None


def test_a_lease_moves_and_a_look_without_one_leaves_it() -> None:
    lease = line(1, "lease_set", {"expires": at(50), "renew_until": at(60), "why": "extend"})
    row = row_of(intent(0), lease, running(2))
    assert (row.expires, row.renew_until) == (at(50), at(60))
    assert row_of(intent(0), lease, seen(2, "running", billed=True, expires=at(70))).expires == at(70)


def test_every_order_of_a_short_life_tells_the_same() -> None:
    life = [
        intent(0, HOUR_NANOS),
        running(2, since=1),
        priced(4, 2 * HOUR_NANOS),
        asked(5, "stop"),
        stopped(7, since=6),
    ]
    rows = [machine_of(order) for order in itertools.permutations(life)]
    assert all(row == rows[0] for row in rows)
    assert rows[0] is not None
    assert Money(closed(rows[0])) == Money(3_000_000 + 2 * 2_000_000)


def _entry(kind: str) -> dict[str, Any]:
    """Return something that stays of a machine and has no known price."""
    body = {"id": f"{kind}-1", "kind": kind, "ready": True, "size_gb": 8, "stored_as": kind, "made_at": None}
    return body | {"region": "r", "zone": None, "nanos_per_month": None}


def kept(second: float, *kinds: str) -> Event:
    return line(second, "resources_retained", {"retained": [_entry(kind) for kind in kinds]})


def ended(second: float) -> Event:
    return seen(second, "terminated", billed=False)


def test_a_parked_machine_is_parked_until_it_is_started_again() -> None:
    park = [intent(0), settled(0.5, "made"), running(1), asked(2, "park"), ended(3), kept(4, "disk"), kept(5, "image")]
    row = row_of(*park)
    assert (row.parked, row.pending_action, [one.kind for one in row.retained]) == (True, None, ["image"])
    refused = row_of(*park, intent(6, attempt=2), settled(7, "refused", attempt=2))
    assert (refused.parked, refused.terminated_at, len(refused.retained)) == (True, at(7), 1)
    back = row_of(*park, intent(6, attempt=2), settled(7, "made", attempt=2), running(8))
    assert (back.parked, back.terminated_at, len(back.retained)) == (False, None, 1)
    assert row_of(*park, intent(6, attempt=2), settled(7, "made", attempt=2), running(8), kept(9)).retained == ()


def test_a_new_launch_knows_nothing_of_the_life_before() -> None:
    row = row_of(intent(0, seq=3), running(1), asked(2, "park"), ended(3), intent(6, attempt=2, seq=9))
    assert (row.provider_id, row.address, row.seq, row.launch_status) == (None, None, 9, "open")


def test_an_end_that_was_asked_keeps_nothing_and_a_park_takes_that_back() -> None:
    life = [intent(0), running(1), ended(2), kept(3, "disk")]
    assert not row_of(*life).discard
    assert row_of(*life, asked(4, "terminate")).discard
    assert row_of(*life, asked(4, "terminate")).pending_action is None
    assert (row_of(*life, asked(4, "park")).parked, row_of(*life, asked(4, "park")).pending_action) == (True, None)


def test_a_machine_of_which_nothing_is_there_is_not_parked() -> None:
    row = row_of(intent(0), running(1), asked(2, "park"), kept(2.5), ended(3))
    assert row.parked  # it was not gone yet when nothing was there
    assert not row_of(intent(0), running(1), asked(2, "park"), ended(3), kept(4)).parked


def test_a_line_of_an_earlier_version_is_still_read() -> None:
    old = intent(0)
    body = {key: value for key, value in old.body.items() if key not in ("setup", "seq")}
    assert row_of(line(0, "launch_intended", body), running(1)).setup is None
