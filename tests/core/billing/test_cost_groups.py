"""Groups of costs: they add up to the total whatever they are, and calendar days are those of the zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.billing.cost_groups import CALENDAR, CostQuery, Grouping, costs
from cloudgpu.core.billing.rules import PARTS_PER_NANO
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Resource
from cloudgpu.views.cost import group_names, groups_document, total_document
from tests.core.costing import NOW, START, at, ledgers, row, segment, use
from tests.examples import some

ZONES = [
    "UTC", "Europe/Berlin", "America/New_York", "Asia/Seoul", "Africa/Cairo", "Australia/Lord_Howe",
    "America/Sao_Paulo", "Pacific/Apia",
]  # fmt: skip
zones = st.sampled_from(ZONES).map(ZoneInfo)
moments = st.one_of(st.none(), st.integers(-86_400, 41 * 86_400).map(lambda second: START + timedelta(seconds=second)))
DOLLAR = 10**9 * PARTS_PER_NANO
BY_MACHINE = CostQuery(Grouping.INSTANCE, UTC)
SUMS = ("low", "amount", "high", "billed_us", "all_billed_us", "list_cost", "cost_of_runs_with_list_price")


def sums(tally):
    return {name: getattr(tally, name) for name in SUMS}


def added(groups):
    return {name: sum(getattr(tally, name) for tally in groups.values()) for name in SUMS}


@settings(max_examples=some(60), deadline=None)
@given(ledgers(), st.sampled_from(list(Grouping)), zones, moments, moments)
def test_groups_of_any_kind_add_up_to_the_same_total(ledger, by, zone, since, until):
    rows, ended = ledger
    found = costs(rows, ended, NOW, CostQuery(by, zone, since, until))
    plain = costs(rows, ended, NOW, CostQuery(Grouping.MARKET, UTC, since, until))  # from every use, none of them cut
    assert added(found.groups) == sums(found.total) == sums(plain.total)
    for name in ("without_price", "runs_without_list_price", "interrupted", "failed", "price_marks"):
        assert getattr(found.total, name) == getattr(plain.total, name), name
    assert set(found.total.unpriced) == set(plain.total.unpriced)


def test_what_was_read_from_tags_is_of_the_owner_who_was_named_in_full():
    parts = [
        row(use(), id="cg-1", owner="ada@example.org", template="jupyter"),
        row(use(), id="resource:data", owner="ada-example-org", is_named_resource=True),
        row(use(), id="cg-2", owner="b@x", template="jupyter"),
        row(use(), id="cg-3", owner="b.x", template="jupyter"),
        row(use(), id="resource:two", owner="b-x", is_named_resource=True),
    ]
    rows, ended = [one for one, _ in parts], [use for _, uses in parts for use in uses]
    for since in (None, START):
        found = costs(rows, ended, NOW, CostQuery(Grouping.OWNER, UTC, since)).groups
        assert {key: tally.amount // DOLLAR for key, tally in found.items()} == {
            "ada@example.org": 2, "b@x": 1, "b.x": 1, "b-x": 1,
        }  # fmt: skip


@settings(max_examples=some(40), deadline=None)
@given(ledgers(), st.sampled_from([by for by in Grouping if by not in CALENDAR]))
def test_the_totals_of_a_row_say_what_its_uses_say(ledger, by):
    rows, ended = ledger
    short = (
        costs(rows, [], NOW, CostQuery(by, UTC))
        if CostQuery(by, UTC).totals_suffice
        else costs(rows, ended, NOW, CostQuery(by, UTC))
    )
    long = costs(rows, ended, NOW, CostQuery(by, UTC, since=START - timedelta(days=400)))
    assert {key: sums(tally) for key, tally in short.groups.items() if any(sums(tally).values())} == {
        key: sums(tally) for key, tally in long.groups.items() if any(sums(tally).values())
    }
    assert short.total.interrupted == long.total.interrupted
    assert short.total.failed == long.total.failed
    assert (short.total.without_price, short.total.price_marks) == (long.total.without_price, long.total.price_marks)


@settings(max_examples=some(40), deadline=None)
@given(ledgers(), st.sampled_from(list(Grouping)), zones)
def test_printed_amounts_add_up_to_the_printed_total_to_the_last_digit(ledger, by, zone):
    rows, ended = ledger
    found = costs(rows, ended, NOW, CostQuery(by, zone))
    names = {key: {} for key in found.groups}
    groups, total = groups_document(found, names, by, None), total_document(found.total, by, None)
    for name in ("usd", "on_demand_usd", "savings_usd"):
        assert sum(Decimal(group[name] or 0) for group in groups) == Decimal(total[name] or 0)
    for group in groups:
        if group["usd"] is not None:
            assert Decimal(group["low_usd"]) - Decimal("1e-9") <= Decimal(group["usd"])
            assert Decimal(group["usd"]) <= Decimal(group["high_usd"]) + Decimal("1e-9")


@settings(max_examples=some(40), deadline=None)
@given(ledgers(), st.integers(0, 40 * 86_400))
def test_two_periods_that_meet_are_the_whole(ledger, second):
    rows, ended = ledger
    cut = START + timedelta(seconds=second)
    before = costs(rows, ended, NOW, CostQuery(Grouping.PROJECT, UTC, until=cut)).total
    after = costs(rows, ended, NOW, CostQuery(Grouping.PROJECT, UTC, since=cut)).total
    whole = costs(rows, ended, NOW, CostQuery(Grouping.PROJECT, UTC, since=START - timedelta(days=99))).total
    assert {name: getattr(before, name) + getattr(after, name) for name in SUMS} == sums(whole)


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", "2026-10-25", 25),
        ("America/New_York", "2026-11-01", 25),
        ("America/New_York", "2026-11-02", 24),
        ("Asia/Seoul", "2026-10-25", 24),
        ("Australia/Lord_Howe", "2026-10-25", 24),
    ],
)
def test_a_day_on_which_clocks_move_has_its_own_hours(zone, day, hours):
    made, ended = row(use(0, 30 * 86_400))
    found = costs([made], ended, NOW, CostQuery(Grouping.DAY, ZoneInfo(zone)))
    begin = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    tally = found.groups[begin.strftime("%Y-%m-%dT%H:%M:%S.000000Z")]
    assert (tally.billed_us, tally.amount) == (hours * 3_600_000_000, hours * DOLLAR)


def test_a_day_without_its_hour_has_23():
    first = datetime(2027, 3, 27, 23, tzinfo=UTC)  # midnight in Berlin; clocks go on by an hour that night
    made, _ = row(use(0, None))
    found = costs([made], [], first + timedelta(days=3), CostQuery(Grouping.DAY, ZoneInfo("Europe/Berlin")))
    assert found.groups["2027-03-27T23:00:00.000000Z"].billed_us == 23 * 3_600_000_000


def test_what_runs_over_a_months_end_is_cut_there():
    made, ended = row(use(11 * 86_400, 13 * 86_400))  # from 31 October to 2 November, UTC
    found = costs([made], ended, NOW, CostQuery(Grouping.MONTH, UTC))
    amounts = {key[:7]: tally.amount // DOLLAR for key, tally in found.groups.items()}
    assert amounts == {"2026-10": 24, "2026-11": 24}
    weeks = costs([made], ended, NOW, CostQuery(Grouping.WEEK, UTC))
    assert [key[:10] for key in weeks.groups] == ["2026-10-26"]  # a Monday


def test_what_has_no_price_is_named_and_counted_once():
    made, ended = row(use(0, 3 * 86_400, segments=()), use(0, 3600))
    found = costs([made], ended, NOW, CostQuery(Grouping.DAY, UTC))
    assert found.total.without_price == 1
    assert list(found.total.unpriced) == ["name of cg-1 (instance)"]
    names = {key: {} for key in found.groups}
    first, second, _ = groups_document(found, names, Grouping.DAY, None)
    assert (first["usd"], second["usd"]) == ("1", None)  # never 0 for want of a price


def test_saved_is_what_the_compared_runs_would_have_cost_less_what_they_did():
    spot = use(0, 3600, market="spot", segments=(segment(300_000_000),))
    unknown = use(3600, 7200, market="spot", on_demand=None)
    made, ended = row(spot, unknown, use(0, 3600, resource=Resource.DISK, on_demand=None))
    total = costs([made], ended, NOW, CostQuery(Grouping.INSTANCE, UTC)).total
    assert (total.list_cost, total.cost_of_runs_with_list_price, total.runs_without_list_price) == (
        DOLLAR,
        3 * DOLLAR // 10,
        1,
    )
    shown = total_document(total, Grouping.INSTANCE, None)
    assert (shown["savings_usd"], shown["usd"], shown["without_on_demand"]) == ("0.7", "2.3", 1)


def test_interrupted_and_failed_have_their_own_sums():
    taken = use(0, 7200, reason="interrupted", market="spot", provider="aws")
    made, ended = row(taken)
    broken, more = row(use(0, 1800), id="cg-2", launch_status="void")
    rows = [made, broken]
    for by in (Grouping.PROJECT, Grouping.DAY):
        total = costs(rows, [*ended, *more], NOW, CostQuery(by, UTC)).total
        assert (total.interrupted[1], total.interrupted[4]) == (2 * DOLLAR, 1)
        assert (total.failed[1], total.failed[4]) == (DOLLAR // 2, 1)


def test_marks_follow_the_prices_that_were_paid():
    old = segment(basis="unverified", as_of="2025 (undated)")
    made, ended = row(use(segments=(segment(basis="derived"), segment(seconds=1800))), use(segments=(old,)))
    assert costs([made], ended, NOW, CostQuery(Grouping.PROJECT, UTC)).total.price_marks == "~?!"


def test_a_reason_stands_beside_a_range():
    made, ended = row(use(0, 3600, maybe_until=at(7200)))
    for by in (Grouping.INSTANCE, Grouping.DAY):
        total = costs([made], ended, NOW, CostQuery(by, UTC)).total
        (reason,) = total.reasons
        assert reason.startswith("name of cg-1 (instance): it ended between")
        assert (total.low, total.amount, total.high) == (DOLLAR, DOLLAR, 2 * DOLLAR)


def test_the_reason_with_the_widest_range_is_told_first():
    lives = (("cg-1", 3660), ("cg-2", 9000), ("cg-3", 7200))
    parts = [row(use(0, 3600, maybe_until=at(until)), id=name) for name, until in lives]
    ended = [use for _, uses in parts for use in uses]
    for by in (Grouping.PROJECT, Grouping.DAY):
        found = costs([one for one, _ in parts], ended, NOW, CostQuery(by, UTC)).total
        reasons = total_document(found, by, None)["reasons"]
        assert [reason.split()[2] for reason in reasons] == ["cg-2", "cg-3", "cg-1"]


class _CountedRow(Machine):
    """A machine that counts how often its id is read."""

    reads = 0

    @property
    def id(self):
        _CountedRow.reads += 1
        return self[0]


def test_ten_times_as_many_machines_are_ten_times_the_reads():
    def reads(machines):
        _CountedRow.reads = 0
        rows = [_CountedRow(*row(use(), id=f"cg-{number}")[0]) for number in range(machines)]
        found = costs(rows, (), NOW, BY_MACHINE)
        names = group_names(found.groups, rows, BY_MACHINE)
        assert [names[key]["name"] for key in found.groups] == [f"name of {key}" for key in found.groups]
        assert _CountedRow.reads >= machines
        return _CountedRow.reads

    assert reads(200) == 10 * reads(20)
