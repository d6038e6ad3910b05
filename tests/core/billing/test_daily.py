"""A day's costs by project are what the billing engine says of that day; the quick way is the exact one."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given, settings, strategies as st

from cloudgpu.core.billing.charges import charge, cost_timeline
from cloudgpu.core.billing.cost_groups import CostQuery, Grouping, costs
from cloudgpu.core.billing.daily import CostRange, daily, timeline_of
from cloudgpu.core.billing.rules import PARTS_PER_NANO, intervals_cost, to_us
from cloudgpu.core.model.usage import Per, Resource
from cloudgpu.core.values.times import from_iso
from tests.core.billing.test_rate_timeline import uses as any_uses
from tests.core.costing import NOW, START, ledgers, row, use, uses as costing_uses
from tests.examples import some

ZONES = ["UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia"]
zones = st.sampled_from(ZONES).map(ZoneInfo)
moments = st.one_of(st.none(), st.integers(-86_400, 41 * 86_400).map(lambda second: START + timedelta(seconds=second)))
DOLLAR = 10**9 * PARTS_PER_NANO
every_use = st.one_of(costing_uses(), any_uses())


@settings(max_examples=some(100), deadline=None)
@given(every_use, moments, moments)
def test_what_is_laid_out_is_what_is_charged_in_any_period(one, since, until):
    now = max([NOW, *([from_iso(one.end)] if one.end else [])])
    charged = charge(one, now, since=since, until=until)
    begin = 0 if since is None else to_us(since)
    end = 2**62 if until is None else to_us(until)
    for found in (cost_timeline(one, to_us(now)), timeline_of(one, to_us(now))):
        sides = [intervals_cost(side, begin, end) for side in (found.low, found.amount, found.high)]
        assert sides == [charged.low, charged.amount, charged.high]
        billed = found.is_unpriced and max(found.begin, begin) < min(found.end, end)
        assert billed == bool(charged.unpriced_us)


@settings(max_examples=some(60), deadline=None)
@given(ledgers(), zones, moments, moments)
def test_days_add_up_to_the_total_of_cost_and_each_is_that_day(ledger, zone, since, until):
    rows, ended = ledger
    found = daily(rows, ended, NOW, zone, since=since, until=until)
    by_project = costs(rows, ended, NOW, CostQuery(Grouping.PROJECT, zone, since, until))
    by_day = costs(rows, ended, NOW, CostQuery(Grouping.DAY, zone, since, until))
    total = by_day.total
    assert found.total == (total.low, total.amount, total.high)
    assert set(found.without_price) == set(total.unpriced)
    projects: dict[str, int] = {}
    for sums in found.days.values():
        for project, one in sums.items():
            projects[project] = projects.get(project, 0) + one.amount
    assert projects == {key: tally.amount for key, tally in by_project.groups.items() if tally.high}
    days = {from_iso(key).astimezone(zone).date(): tally for key, tally in by_day.groups.items() if tally.high}
    assert list(found.days) == sorted(days)
    for day, tally in days.items():
        assert sum(one.amount for one in found.days[day].values()) == tally.amount
        assert sum(one.low for one in found.days[day].values()) == tally.low
        assert sum(one.high for one in found.days[day].values()) == tally.high


def test_a_run_over_midnight_is_of_both_days():
    parts = [row(use(82_800, 90_000)), row(use(0, 1800), id="cg-2", project=None)]
    rows, ended = [one for one, _ in parts], [one for _, some in parts for one in some]
    found = daily(rows, ended, NOW, UTC)
    assert found.days == {
        date(2026, 10, 20): {"": CostRange(*(DOLLAR // 2,) * 3), "thesis": CostRange(*(DOLLAR,) * 3)},
        date(2026, 10, 21): {"thesis": CostRange(*(DOLLAR,) * 3)},
    }
    berlin = daily(rows, ended, NOW, ZoneInfo("Europe/Berlin"))  # two hours ahead: all of it is the same night there
    assert {day: sorted(sums) for day, sums in berlin.days.items()} == {
        date(2026, 10, 20): [""],
        date(2026, 10, 21): ["thesis"],
    }


def test_what_has_no_price_is_named_and_in_no_day():
    (one, ended) = row(use(segments=()), use(0, None, resource=Resource.DISK, per=Per.MONTH, segments=()))
    found = daily([one], ended, NOW, UTC)
    assert found.days == {}
    assert found.without_price == ("name of cg-1 (instance)", "name of cg-1 (disk)")
    assert daily([one], [], NOW, UTC, until=START).without_price == ()


def test_nothing_costs_nothing():
    assert daily([], [], NOW, UTC).days == {}
    assert daily([], [], NOW, UTC).total == (0, 0, 0)


def test_a_project_of_a_tag_is_the_one_that_launches_named():
    parts = [
        row(use(), id="cg-1", project="My Thesis", template="jupyter"),
        row(use(7200, 10_800), id="resource:data", project="my-thesis", is_named_resource=True),
    ]
    rows, ended = [one for one, _ in parts], [one for _, some in parts for one in some]
    assert {name for sums in daily(rows, ended, NOW, UTC).days.values() for name in sums} == {"My Thesis"}


def test_a_year_of_days_is_one_pass_over_a_disk():
    """A disk of 744 GB-months at a dollar: in a month of 31 days a dollar an hour, in February 31/28 of it."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    seconds = (begin - START).total_seconds()
    one = use(seconds, seconds + 365 * 86_400, resource=Resource.DISK, provider="aws", per=Per.MONTH, quantity=744)
    (found, ended) = row(one)
    days = daily([found], ended, begin + timedelta(days=365), UTC).days
    assert len(days) == 365
    assert days[date(2026, 1, 31)]["thesis"].amount == 24 * DOLLAR
    assert days[date(2026, 2, 1)]["thesis"].amount * 28 == 24 * 31 * DOLLAR
