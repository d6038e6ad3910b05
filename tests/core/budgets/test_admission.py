"""What is admitted never passes the budget, and what a refusal says would fit does; a minute more does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings, strategies as st

from cloudgpu.core.billing.charges import charge
from cloudgpu.core.billing.rules import PARTS_PER_NANO
from cloudgpu.core.budgets.admission import admission_request
from cloudgpu.core.budgets.budget import Action, Budget, BudgetPeriod, Scope
from cloudgpu.core.budgets.commitments import Prices, SubstitutePrice
from cloudgpu.core.budgets.enforcement import highest_admitted_price, longest_admitted
from cloudgpu.core.budgets.refusal import Remedy, refusal
from cloudgpu.core.model.facts import ClusterNode, MachineGuards, MachineSetup, record_of
from cloudgpu.core.model.launch import Setup, Volume, setup_to_json
from cloudgpu.core.model.usage import Per, PriceInterval, Resource, Usage, usage_of_record
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso, periods
from tests.core.machines import attached, hourly, machine, retained
from tests.examples import some

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DOLLAR = 1_000_000_000
HOUR = timedelta(hours=1)
PRICES = Prices(lambda _row: None, lambda *_where: SubstitutePrice(DOLLAR // 5, "month", "the dearest known times 1.5"))


def row(name="m", *, price=DOLLAR, until=NOW + 8 * HOUR, beside=(), **more):
    usual = {
        "id": f"cg-{name}", "name": name, "provider": "aws", "account": "lab", "region": "us-east-1", "owner": "ada",
        "project": "vision", "instance_type": "p3.2xlarge", "price": None if price is None else hourly(price),
        "renew_until": until and iso(until), "attached_costs": tuple(beside), "state": "running", "billed": True,
    }  # fmt: skip
    return machine(**usual | more)


def disk(nanos=DOLLAR // 10, size=100, **more):
    return attached(**{"resource": "disk", "stored_as": "gp3", "quantity": size, "per": "month", "nanos": nanos} | more)


def use(begin, end=None, *, price=DOLLAR, **more):
    segments = () if price is None else (PriceInterval(iso(begin), price, "", None, ""),)
    usual = {
        "resource": Resource.INSTANCE, "id": "i", "what": "p3", "provider": "aws", "market": "on_demand", "kind": "p3",
        "quantity": 1, "per": Per.HOUR, "begin": iso(begin), "end": end and iso(end), "segments": segments,
    }  # fmt: skip
    return Usage(**usual | more)


def budget(dollars=100, span="month", scope=None, **more):
    kind, _, days = span.partition(":")
    return Budget("lab", Money.usd(dollars), BudgetPeriod(kind, int(days or 0)), Scope(**(scope or {})), **more)


def ask(one, wanted, rows=(), ended=(), now=NOW, prices=PRICES):
    return admission_request([one], wanted, [*rows], lambda _since: ended, prices, now)


def admit(*args, **more):
    return ask(*args, **more).admission()


def sums(*args, **more):
    (verdict,) = admit(*args, **more).verdicts
    return [tuple(float(part.dollars) for part in (one.spent, one.running, one.requested)) for one in verdict.periods]


def test_a_launch_is_held_against_what_was_spent_and_what_runs_to_its_renew_until():
    rows = [row("a", open_usage=(use(NOW - 2 * HOUR),))]
    (share,) = sums(budget(), row("b"), rows)
    assert share == pytest.approx((2, 8, 8), abs=0.001)


@pytest.mark.parametrize(("dollars", "refused"), [(18.01, False), (17.99, True)])
def test_the_sum_of_all_three_is_what_counts(dollars, refused):
    rows = [row("a", open_usage=(use(NOW - 2 * HOUR),))]
    assert bool(admit(budget(dollars), row("b"), rows).refusals) is refused


def test_a_launch_over_midnight_is_in_both_days_with_its_parts():
    shares = sums(budget(span="day"), row(until=NOW + 20 * HOUR))
    assert shares == [pytest.approx((0, 0, 12)), pytest.approx((0, 0, 8), abs=0.001)]


def test_a_period_begins_in_the_zone_of_the_budget():
    shares = sums(budget(span="day", tz="Asia/Seoul", zone=ZoneInfo("Asia/Seoul")), row(until=NOW + 20 * HOUR))
    assert shares == [pytest.approx((0, 0, 3)), pytest.approx((0, 0, 17), abs=0.001)]


def test_a_disk_is_counted_to_the_end_of_the_last_period_that_the_launch_touches():
    (first,) = sums(budget(), row(price=0, beside=[disk()]))
    assert first[2] == pytest.approx(10 * 9.5 / 30)
    _, second = sums(budget(), row(price=0, until=NOW + timedelta(days=10), beside=[disk()]))
    assert second[2] == pytest.approx(10)


def test_a_stopped_machine_costs_what_stays_and_a_kept_image_too():
    stopped = row("s", state="stopped", billed=False, beside=[disk()])
    image = retained(
        "ami", "image", size_gb=100, region="us-east-1", stored_as="ebs_snapshot", nanos=DOLLAR // 20, per="month"
    )
    parked = row("p", terminated_at=iso(NOW - HOUR), retained=(image,))
    (share,) = sums(budget(), row(price=0), [stopped, parked])
    assert share[1] == pytest.approx(15 * 9.5 / 30)


def test_an_open_attempt_may_have_run_since_it_was_sent_and_past_its_renew_until():
    unsettled = {"state": "unknown", "billed": False, "launch_status": "open", "intended_at": iso(NOW - 5 * HOUR)}
    assert sums(budget(), row("b"), [row("a", until=NOW + HOUR, **unsettled)]) == [pytest.approx((0, 6, 8), abs=0.001)]
    assert sums(budget(), row("b"), [row("a", until=NOW - HOUR, **unsettled)]) == [pytest.approx((0, 6, 8), abs=0.001)]


def test_an_open_attempt_is_a_reservation():
    attempt = row("a", launch_status="open", state="unknown", billed=False)
    (share,) = sums(budget(), row("b"), [attempt])
    assert share == pytest.approx((0, 8, 8), abs=0.001)


@pytest.mark.parametrize(
    ("facts", "hourly"),
    [
        ({"max_price": 2 * DOLLAR, "on_demand": hourly(3 * DOLLAR)}, 2),
        ({"on_demand": hourly(3 * DOLLAR)}, 3),
    ],
)
def test_spot_is_counted_at_its_highest_price_else_on_demand_never_at_todays(facts, hourly):
    (share,) = sums(budget(), row(market="spot", **facts))
    assert share[2] == pytest.approx(8 * hourly, abs=0.01)


def test_a_missing_disk_price_is_counted_dearly_and_marked_and_refuses_nothing():
    (verdict,) = admit(budget(), row(price=0, beside=[disk(nanos=None)])).verdicts
    assert verdict.fits
    assert float(verdict.periods[0].requested.dollars) == pytest.approx(100 * 0.2 * 9.5 / 30)
    assert verdict.price_assumptions == ("m: disk: the dearest known times 1.5",)


def test_the_price_of_another_region_is_none_and_one_by_changed_blocks_is():
    """Both are `at most`: what stands in for a missing one is dearer, what the region's own list says is counted."""
    elsewhere = row(price=0, beside=[disk(why_maybe_less="no price is known in us-east-1: the dearest known")])
    (verdict,) = admit(budget(), elsewhere).verdicts
    assert float(verdict.periods[0].requested.dollars) == pytest.approx(100 * 0.2 * 9.5 / 30)
    assert verdict.price_assumptions == ("m: disk: the dearest known times 1.5",)
    own = replace(PRICES, attached_price=lambda *_where: SubstitutePrice(DOLLAR // 20, "month", ""))
    by_blocks = row(price=0, beside=[disk(why_maybe_less="billed for what was written")])
    (verdict,) = admission_request([budget()], by_blocks, [], lambda _since: (), own, NOW).admission().verdicts
    assert float(verdict.periods[0].requested.dollars) == pytest.approx(100 * 0.1 * 9.5 / 30)
    assert verdict.price_assumptions == ()


def test_a_stand_in_for_a_price_of_a_whole_disk_is_counted_once_and_not_for_each_gb():
    whole = replace(PRICES, attached_price=lambda *_where: SubstitutePrice(30 * DOLLAR, "month", "x", by_size=False))
    elsewhere = {"per": "month", "nanos": 20 * DOLLAR, "by_size": False, "why_maybe_less": "no price is known there"}
    thing = retained("vol", "volume", size_gb=128, region="brazilsouth", stored_as="P10 128 GiB", **elsewhere)
    volume = row("data", is_named_resource=True, price=None, billed=False, retained=(thing,))
    unpriced = stored(NOW - timedelta(days=15), 0, quantity=128)._replace(segments=(), provider="vendor")
    kept = row("k", terminated_at=iso(NOW), retained=(), open_usage=(unpriced,))
    beside = [disk(nanos=None, quantity=128)]
    (share,) = sums(budget(10**4), row("b", price=0, beside=beside), [volume, kept], prices=whole)
    part = 9.5 / 30
    assert share == pytest.approx((30 * 15 * 24 / 730, 30 * part, 30 * part), abs=0.01)


@pytest.mark.parametrize("wanted", [row("b"), row("b", price=None)])
def test_a_missing_compute_price_refuses(wanted):
    rows = [row("a", price=None if wanted.price else DOLLAR)]
    (verdict,) = admit(budget(10**6), wanted, rows).refusals
    assert verdict.machines_without_price == ("a" if wanted.price else "b",)


def test_a_refusal_for_missing_prices_names_the_command_that_ends_what_runs():
    running = [row("a", price=None), row("c", price=None)]
    error = refusal(ask(budget(), row("b"), running), Remedy(lambda _until: ""))
    assert "the price of a, c, which runs already, is not known" in error.message
    assert error.next.startswith("End it: cloudgpu down a c.")
    cluster = ClusterNode("train", "cg-train", 0, 2)
    running = [row(f"train-{node}", price=None, cluster=cluster._replace(node=node)) for node in (0, 1)]
    error = refusal(ask(budget(), row("b"), [*running, row("c", price=None)]), Remedy(lambda _until: ""))
    assert "the price of train-0, train-1, c," in error.message
    assert error.next.startswith("End it: cloudgpu down train c.")
    nodes = [row("n0", price=None), row("n1", price=None)]
    one = budget(scope={"instance": "n1"})
    asked = admission_request([one], nodes[0], (), lambda _since: (), PRICES, NOW, further_nodes=nodes[1:])
    assert refusal(asked, Remedy(lambda _until: "")).next.startswith("Give its highest price: --max-price.")


def test_what_costs_nothing_is_never_refused():
    rows = [row("a", open_usage=(use(NOW - 200 * HOUR),))]
    assert not admit(budget(), row("b", price=0), rows).refusals


def test_a_budget_that_only_notifies_refuses_nothing():
    assert not admit(budget(1, actions=frozenset({Action.NOTIFY})), row()).refusals
    assert admit(budget(1, actions=frozenset({Action.STOP})), row()).refusals


def test_what_a_budget_does_not_cover_does_not_count():
    rows = [row("a", project="other"), row("b", provider="gcp", open_usage=(use(NOW - 2 * HOUR),))]
    assert sums(budget(scope={"project": "vision", "provider": "aws"}), row("c"), rows) == [
        pytest.approx((0, 0, 8), abs=0.001)
    ]
    assert not admit(budget(1, scope={"project": "other"}), row("c"), rows).verdicts


def test_a_budget_of_one_node_counts_that_node_of_a_cluster_alone_whichever_it_is():
    nodes = [row(name, price=price) for name, price in (("n0", DOLLAR), ("n1", 2 * DOLLAR))]
    for node, requested in zip(nodes, (8, 16), strict=True):
        one = budget(scope={"instance": node.name})
        asked = admission_request([one], nodes[0], (), lambda _since: (), PRICES, NOW, further_nodes=nodes[1:])
        (verdict,) = asked.admission().verdicts
        assert float(verdict.periods[0].requested.dollars) == pytest.approx(requested, abs=0.001)


def test_a_machine_is_not_counted_beside_its_own_extension():
    running = row("a", open_usage=(use(NOW - HOUR),))
    (share,) = sums(budget(), running._replace(renew_until=iso(NOW + 9 * HOUR)), [running])
    assert share == pytest.approx((1, 0, 9), abs=0.001)


def test_a_machine_that_should_have_ended_is_counted_for_another_hour():
    (share,) = sums(budget(), row("b", price=0), [row("a", until=NOW - HOUR)])
    assert share[1] == pytest.approx(1, abs=0.001)


def test_a_machine_without_a_lease_is_counted_to_the_end_of_the_period():
    (share,) = sums(budget(1000), row("b", price=0), [row("a", until=None)])
    assert share[1] == pytest.approx(9.5 * 24, abs=0.001)


def test_a_named_volume_that_is_there_is_counted_once():
    thing = retained("vol", "volume", size_gb=100, region="us-east-1", nanos=DOLLAR // 10, per="month")
    volume = row("data", is_named_resource=True, state="volume", price=None, billed=False, retained=(thing,))
    setup = MachineSetup.of(setup_to_json(Setup(volume=Volume("data", None))))
    wanted = row("b", price=0, beside=[disk(named=True)], setup=setup)
    (share,) = sums(budget(), wanted, [volume])
    assert share == pytest.approx((0, 10 * 9.5 / 30, 0))
    (share,) = sums(budget(), wanted, [volume._replace(state="image")])
    assert share[2] == pytest.approx(10 * 9.5 / 30), "an image of that name is another resource"
    (share,) = sums(budget(), wanted)
    assert share == pytest.approx((0, 0, 10 * 9.5 / 30))


def test_the_worst_rolling_window_lies_ahead_or_behind():
    old = use(NOW - timedelta(days=29, hours=20), NOW - timedelta(days=29))  # $20, out of the window in a day
    rows = [row("a", terminated_at=iso(NOW), open_usage=())]
    (first,) = sums(budget(span="rolling:30"), row("b", until=NOW + 2 * HOUR), rows, [("cg-a", old)])
    assert sum(first) == pytest.approx(22, abs=0.001)
    (later,) = sums(budget(span="rolling:30"), row("b", until=NOW + timedelta(days=3)), rows, [("cg-a", old)])
    assert sum(later) == pytest.approx(72, abs=0.1)  # by then the old ones are out of it


def test_a_rolling_budget_that_is_passed_today_admits_nothing_though_it_gets_room_later():
    """The dearest window is then the one that ends now: what is wanted is in none as dear, and in all that follow."""
    spent = use(NOW - timedelta(days=7), NOW, price=DOLLAR * 9 // 10)  # 151 dollars, of 100
    wanted = row("b", price=DOLLAR * 6 // 10, until=NOW + timedelta(days=30))
    ask_it = (budget(100, span="rolling:7"), wanted, [row("a", terminated_at=iso(NOW))], [("cg-a", spent)])
    assert admit(*ask_it).refusals
    assert not admit(budget(152, span="rolling:7"), *ask_it[1:]).refusals


def test_a_total_budget_never_begins_anew():
    old = use(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 5, tzinfo=UTC))
    (share,) = sums(budget(span="total"), row("b"), [row("a", terminated_at=iso(NOW))], [("cg-a", old)])
    assert share == pytest.approx((5, 0, 8), abs=0.001)


@pytest.mark.parametrize("span", ["total", "rolling:30"])
def test_what_only_a_reaper_that_does_not_run_would_end_counts_to_its_renew_until_at_least(span):
    unguarded, no_runs = MachineGuards("none", "none", follows=True), replace(PRICES, reaper_runs=False)
    wanted = row("b", guards=unguarded)
    assert sums(budget(span=span), wanted, prices=no_runs) == [pytest.approx((0, 0, 8), abs=0.001)]
    assert admit(budget(7, span), wanted, prices=no_runs).refusals
    running = [row("a", until=NOW + 3 * HOUR, guards=unguarded), row("c", until=NOW - HOUR, guards=unguarded)]
    (share,) = sums(budget(span=span), row("b", until=NOW + HOUR), running, prices=no_runs)
    assert share == pytest.approx((0, 6, 1), abs=0.001)  # each until the last of them was to end


def test_a_past_run_without_a_price_is_counted_on_demand_or_named():
    old = use(NOW - 5 * HOUR, NOW - HOUR, price=None, on_demand=2 * DOLLAR)
    (verdict,) = admit(budget(), row("b"), [row("a", terminated_at=iso(NOW))], [("cg-a", old)]).verdicts
    assert float(verdict.periods[0].spent.dollars) == pytest.approx(8)
    assert "counted on demand" in verdict.price_assumptions[0]
    (verdict,) = admit(
        budget(), row("b"), [row("a", terminated_at=iso(NOW))], [("cg-a", old._replace(on_demand=None))]
    ).verdicts
    assert "in no sum" in verdict.price_assumptions[0]


hours = st.integers(1, 24 * 45)
machines = st.tuples(st.integers(0, 5 * DOLLAR), st.integers(0, 24 * 40), hours, st.booleans(), st.integers(0, 200))
spans = st.sampled_from(["day", "week", "month", "total", "rolling:1", "rolling:7", "rolling:30"])


def rows_of(drawn):
    made = []
    for number, (price, ago, ahead, runs, size) in enumerate(drawn):
        used = [use(NOW - ago * HOUR, price=price)] if runs and ago else []
        entry = disk(size=size)
        used += [stored(NOW - ago * HOUR, DOLLAR // 10, quantity=size)] if ago else []
        state = {"state": "running", "billed": True} if runs else {"state": "stopped", "billed": False}
        made.append(
            row(f"m{number}", price=price, until=NOW + ahead * HOUR, beside=[entry], open_usage=tuple(used), **state)
        )
    return made


def stored(begin, nanos, **more):
    return use(begin, price=nanos, per=Per.MONTH, resource=Resource.DISK, **more)


def bill(rows, until, since, end):
    """What the billing engine bills in a period if everything runs to its renew-until; disks go on to `until`."""
    total = 0
    for one in rows:
        ends = min(until, datetime.fromisoformat(one.renew_until))
        used = {use_.resource: use_ for use_ in one.open_usage}
        if one.billed:
            instance = used.get(Resource.INSTANCE, use(NOW, price=one.price.nanos_per_hour))._replace(end=iso(ends))
            total += charge(instance, until, since=since, until=end).high
        (entry,) = one.attached_costs
        kept = used.get(Resource.DISK, stored(NOW, entry.nanos))
        total += charge(kept._replace(quantity=entry.quantity), until, since=since, until=end).high
    return total


@settings(max_examples=some(60))
@given(st.lists(machines, max_size=4), machines, spans, st.integers(1, 5000))
def test_what_is_admitted_never_passes_the_budget(drawn, wish, span, dollars):
    assume(wish[0] or wish[4])  # what costs nothing is admitted by a budget that was passed before
    one, rows = budget(dollars, span), rows_of(drawn)
    wanted = rows_of([(wish[0], 0, wish[2], True, wish[4])])[0]._replace(id="cg-w", name="w")
    assume(not admit(one, wanted, rows).refusals)
    everything = [*rows, wanted]
    last = datetime.fromisoformat(wanted.renew_until)
    limit = one.limit.nanos * PARTS_PER_NANO
    if one.period.kind in ("day", "week", "month"):
        for each in periods(one.period.kind, NOW, last, UTC):
            assert bill(everything, each.end, each.begin, each.end) <= limit
    elif one.period.kind == "total":
        assert bill(everything, last, None, last) <= limit
    else:
        for ago in range(0, int((last - NOW) / HOUR), 7):
            end = NOW + ago * HOUR
            assert bill(everything, max(NOW, end), end - one.period.window, end) <= limit


def refused(drawn, wish, span, percent):
    """What is wanted, asked of a budget that carries it but for so many percent of it."""
    rows = rows_of(drawn)
    wanted = rows_of([(wish[0], 0, wish[2], True, wish[4])])[0]._replace(id="cg-w", name="w")
    (verdict,) = admit(budget(10**9, span), wanted, rows).verdicts
    tightest = verdict.tightest
    limit = tightest.total.nanos - 1000 - tightest.requested.nanos * percent // 100
    assume(tightest.requested.nanos > 10_000 and limit > 0)
    asked = ask(replace(budget(1, span), limit=Money(limit)), wanted, rows)
    assert asked.admission().refusals
    return asked, wanted


@settings(max_examples=some(60))
@given(st.lists(machines, max_size=3), machines, spans, st.integers(0, 110))
def test_the_longest_renew_until_fits_and_a_minute_more_does_not(drawn, wish, span, percent):
    asked, wanted = refused(drawn, wish, span, percent)
    until = longest_admitted(asked)
    minute = timedelta(minutes=1)
    if until is None:
        assert asked.admission(lambda _: wanted._replace(renew_until=iso(NOW + minute))).refusals
        return
    assert not asked.admission(lambda _: wanted._replace(renew_until=iso(until))).refusals
    assert asked.admission(lambda _: wanted._replace(renew_until=iso(until + minute))).refusals


@settings(max_examples=some(40))
@given(st.lists(machines, max_size=3), machines, spans, st.integers(0, 110))
def test_the_highest_price_that_is_named_fits(drawn, wish, span, percent):
    asked, wanted = refused(drawn, wish, span, percent)
    price = highest_admitted_price(asked)
    if price is not None:
        assert 0 < price.nanos < wanted.price.nanos_per_hour
        assert not asked.admission(lambda _: wanted._replace(price=hourly(price.nanos))).refusals
        assert asked.admission(lambda _: wanted._replace(price=hourly(price.nanos + 100_000))).refusals


def test_admitting_one_after_the_other_fills_the_budget_exactly():
    """Fifty launches of $8 each in a budget of $100: twelve fit, and what was admitted counts for the next."""
    rows, admitted = [], []
    for number in range(50):
        wanted = row(f"m{number}")
        fits = not admit(budget(), wanted, rows).refusals
        admitted.append(fits)
        rows += [row(f"m{number}", launch_status="open", state="unknown", billed=False)] if fits else []
    assert admitted == [True] * 12 + [False] * 38
    assert all(one >= other for one, other in pairwise(admitted))


def test_a_use_is_as_the_ledger_has_it():
    assert record_of(use(NOW)).keys() == set(Usage._fields)
    assert usage_of_record(record_of(use(NOW))) == use(NOW)
