"""A budget as a value: what it covers, how it folds, how it stands, what is told of it and what it would stop."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.billing.rates import time_until_limit
from cloudgpu.core.billing.rules import intervals_cost
from cloudgpu.core.budgets.admission import budget_sums
from cloudgpu.core.budgets.budget import Action, Budget, BudgetPeriod, Scope, budgets_of
from cloudgpu.core.budgets.commitments import Prices, SubstitutePrice
from cloudgpu.core.budgets.enforcement import budget_stops
from cloudgpu.core.budgets.status import findings, status_of
from cloudgpu.core.events.general_events import budget_removed, budget_set
from cloudgpu.core.events.log import Event
from cloudgpu.core.model.usage import Per, PriceInterval, Resource, Usage
from cloudgpu.core.policies.policy import ReaperAction
from cloudgpu.core.values.currency import Currency
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso
from cloudgpu.core.values.units import QuotedAmount
from tests.core.machines import hourly, machine as any_machine

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DOLLAR = 10**9
PRICES = Prices(lambda _row: None, lambda *_where: SubstitutePrice(DOLLAR, "month", "assumed"))


def line(draft, seq):
    return Event(seq, iso(NOW), "own", iso(NOW), "ada", draft.kind, draft.subject, draft.dedupe, "", draft.body)


def machine(name="m", **more):
    usual = {
        "id": f"cg-{name}", "name": name, "provider": "aws", "account": "lab", "region": "r", "owner": "ada",
        "project": "vision", "instance_type": "p3", "price": hourly(DOLLAR), "renew_until": iso(NOW + 8 * HOUR),
        "attached_costs": (), "state": "running", "billed": True, "launched_at": iso(NOW - 4 * HOUR),
        "intended_at": iso(NOW - 4 * HOUR), "stoppable": True, "open_usage": (run(NOW - 4 * HOUR),),
    }  # fmt: skip
    return any_machine(**usual | more)


def run(begin, end=None):
    segment = PriceInterval(iso(begin), DOLLAR, "", None, "")
    return Usage(
        Resource.INSTANCE, "i", "p3", "aws", "on_demand", "p3", quantity=1, per=Per.HOUR, begin=iso(begin),
        end=end and iso(end), segments=(segment,),
    )  # fmt: skip


def lab(dollars=10, span="month", *, days=0, **more):
    return Budget("lab", Money.usd(dollars), BudgetPeriod(span, days), **more)


def stands(budget, *rows, now=NOW):
    counted = budget_sums([budget], rows, lambda _since: (), PRICES, now, frozenset())
    today = budget_sums([budget], rows, lambda _since: (), replace(PRICES, at_spot_prices=True), now, frozenset())
    return status_of(counted[0], today[0], now)


def test_the_last_word_about_a_name_counts():
    lines = [
        budget_set(lab(1).body(), NOW, 1),
        budget_set(lab(2).body(), NOW, 2),
        budget_removed("lab", NOW, 3),
        budget_set(lab(3).body(), NOW, 4),
    ]
    events = [line(draft, seq) for seq, draft in enumerate(lines, 2)]
    assert [one.limit.dollars for one in budgets_of(events[::-1], lambda _name: UTC).values()] == [3]
    assert budgets_of(events[:3], lambda _name: UTC) == {}


@given(
    st.integers(1, 10**18), st.sampled_from(["day", "total"]), st.text(min_size=1, max_size=9),
    st.frozensets(st.sampled_from(list(Action)), min_size=1), st.none() | st.integers(1, 999), st.booleans(),
)  # fmt: skip
def test_a_budget_is_the_same_after_it_was_in_a_line(nanos, span, project, actions, forecast, allow):
    paid = QuotedAmount(Decimal("1.5"), Currency("KRW", Decimal("1385.2"), date(2026, 11, 20), "bank"))
    one = Budget(
        "lab",
        Money(nanos),
        BudgetPeriod(span),
        Scope(project=project),
        (1,),
        forecast,
        actions,
        "UTC",
        UTC,
        allow,
        paid,
    )
    assert list(budgets_of([line(budget_set(one.body(), NOW, 1), 2)], lambda _name: UTC).values()) == [one]


@pytest.mark.parametrize(
    ("scope", "covers"),
    [
        (Scope(), True),
        (Scope(project="vision", provider="aws", owner="ada", account="lab", instance="m"), True),
        (Scope(instance="cg-m"), True),
        (Scope(project="Vision"), True),  # as a tag says it
        (Scope(project="visions"), False),
        (Scope(provider="aws", account="other"), False),
        (Scope(instance="n"), False),
    ],
)
def test_a_scope_covers_what_is_as_all_its_words_say(scope, covers):
    assert scope.covers(machine()) is covers


def test_an_owner_known_from_a_tag_alone_is_covered():
    assert Scope(owner="ada@example.org").covers(machine(owner="ada-example-org"))


def test_a_name_that_no_tag_can_hold_covers_no_machine_without_an_owner():
    assert not Scope(owner="王").covers(machine(owner=""))
    assert Scope(owner="王").covers(machine(owner="王"))


def test_a_kept_thing_is_no_instance():
    assert not Scope(instance="m").covers(machine(is_named_resource=True))


def test_how_it_stands():
    one = stands(lab(10), machine())
    assert one.spent == Money.usd(4)
    assert one.left == Money.usd(6)
    assert one.percent(one.spent) == 40
    assert one.burn == Money.usd(1)
    assert float(one.committed.dollars) == pytest.approx(8, abs=0.001)
    assert float(one.forecast.dollars) == pytest.approx(12, abs=0.001)
    assert one.exhausted_in == 6 * HOUR
    assert not one.is_exceeded


def test_what_lasts_to_the_end_of_its_period_does_not_run_empty():
    assert stands(lab(1000), machine()).exhausted_in is None
    assert stands(lab(1000, "total"), machine()).exhausted_in == 996 * HOUR
    assert stands(lab(3), machine()).exhausted_in == timedelta(0)


def test_what_leaves_the_window_of_a_rolling_budget_makes_room_again():
    window = timedelta(days=2)
    assert stands(lab(49, "rolling", days=2), machine()).exhausted_in is None  # it never holds more than 48 hours at $1
    assert stands(lab(48, "rolling", days=2), machine()).exhausted_in == window - 4 * HOUR
    early = run(NOW - window, NOW - window + 3 * HOUR)
    later = machine(open_usage=(early, run(NOW - HOUR)))
    assert stands(lab(48, "rolling", days=2), later).exhausted_in == window - HOUR
    assert stands(lab(4, "rolling", days=2), machine()).exhausted_in == timedelta(0)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 9)), max_size=5),
    st.integers(0, 9), st.integers(1, 20), st.integers(1, 150),
)  # fmt: skip
def test_when_a_window_is_full_agrees_with_looking_at_every_moment(runs, rate, length, limit):
    found, now = [(begin, min(30, begin + lasts), each) for begin, lasts, each in runs], 30
    goes_on = [*found, (now, 99, rate)]
    full = [after for after in range(length + 1) if intervals_cost(goes_on, now + after - length, now + after) >= limit]
    assert time_until_limit(found, rate, length, now, limit) == (full[0] if full else None)


def test_a_forecast_takes_todays_spot_price_and_an_admission_never_does():
    spot = machine(market="spot", on_demand=hourly(3 * DOLLAR))
    one = stands(lab(100), spot)
    assert float(one.forecast.dollars) == pytest.approx(12, abs=0.001)
    assert float(one.committed.dollars) == pytest.approx(24, abs=0.001)
    assert (one.burn, one.counted_burn) == (Money.usd(1), Money.usd(3))


def test_the_worst_overshoot_is_the_interval_times_the_counted_burn_rate():
    spot = machine(market="spot", on_demand=hourly(3 * DOLLAR))
    assert stands(lab(), spot, machine("n")).overshoot(HOUR / 4) == Money.usd(1)


def keys(one):
    return [finding.key for finding in findings([one])]


def test_each_threshold_that_is_reached_is_a_finding_and_the_forecast_too():
    month = "2026-11-01"
    wanted = [f"budget:lab:threshold:50:{month}", f"budget:lab:forecast:100:{month}"]
    assert keys(stands(lab(8), machine())) == wanted
    assert keys(stands(lab(13), machine())) == []
    wanted = [f"budget:lab:threshold:{percent}:{month}" for percent in (50, 80, 100)]
    assert keys(stands(lab(4), machine()))[:3] == wanted
    assert keys(stands(lab(4, actions=frozenset({Action.REFUSE})), machine())) == []


def test_a_new_period_falls_back():
    later = datetime(2026, 12, 1, 1, tzinfo=UTC)
    over = machine(terminated_at=iso(NOW), open_usage=(run(NOW - 4 * HOUR, NOW),))
    assert keys(stands(lab(4), over, now=later)) == []


def stopping(one, *rows, warned=None):
    return [(found.name, found.action) for found in budget_stops([one], rows, warned or {}, NOW)]


STOP = frozenset({Action.STOP})


def test_the_newest_goes_first_what_cannot_stop_is_parked_and_a_held_one_is_warned_twice():
    rows = [
        machine("old", launched_at=iso(NOW - 9 * HOUR)),
        machine("new", launched_at=iso(NOW - HOUR)),
        machine("spot", launched_at=iso(NOW - 3 * HOUR), stoppable=False),
        machine("held", launched_at=iso(NOW - 2 * HOUR), hold_until=iso(NOW + HOUR)),
        machine("freed", launched_at=iso(NOW - 5 * HOUR), hold_until=iso(NOW - HOUR)),
    ]
    one = stands(lab(3, actions=STOP), *rows)
    wanted = [
        ("new", ReaperAction.STOP),
        ("held", ReaperAction.WARN),
        ("spot", ReaperAction.PARK),
        ("freed", ReaperAction.STOP),
        ("old", ReaperAction.STOP),
    ]
    assert stopping(one, *rows) == wanted
    assert stopping(one, *rows, warned={"cg-held": 1})[1] == ("held", ReaperAction.WARN)
    assert stopping(one, *rows, warned={"cg-held": 2})[1] == ("held", ReaperAction.STOP)


@pytest.mark.parametrize(
    "facts",
    [
        {"terminated_at": iso(NOW)},
        {"state": "stopped", "billed": False},
        {"launch_status": "open"},
        {"project": "other"},
        {"is_named_resource": True},
    ],
)
def test_what_does_not_run_or_is_not_covered_is_left_alone(facts):
    over = stands(lab(1, actions=STOP, scope=Scope(project="vision")), machine())
    assert over.is_exceeded
    assert stopping(over, machine(**facts)) == []


def test_a_stop_that_was_asked_and_is_not_proved_is_no_reason_to_let_it_run():
    over = stands(lab(1, actions=STOP), machine())
    assert stopping(over, machine(pending_action="stop")) == [("m", ReaperAction.STOP)]


def test_a_budget_that_is_not_passed_or_does_not_stop_stops_nothing():
    assert stopping(stands(lab(100, actions=STOP), machine()), machine()) == []
    assert stopping(stands(lab(1), machine()), machine()) == []
