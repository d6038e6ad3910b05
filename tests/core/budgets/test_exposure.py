"""What the ledger stores for budgets says the same as whole machines and uses: in every budget, at every time."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings, strategies as st

from cloudgpu.core.billing.charges import billed_until, max_cost_intervals
from cloudgpu.core.billing.rates import billed_intervals, ended_intervals, flow_intervals, rate_intervals, unit_of
from cloudgpu.core.billing.rules import intervals_cost, rule_of, to_us
from cloudgpu.core.budgets.admission import BudgetSums, admission_request, budget_sums
from cloudgpu.core.budgets.budget import Budget, BudgetPeriod, Scope
from cloudgpu.core.budgets.commitments import Prices, SubstitutePrice
from cloudgpu.core.budgets.exposure import Exposure, exact_cost, exposure_of
from cloudgpu.core.budgets.status import status_of
from cloudgpu.core.events.log import Event
from cloudgpu.core.events.projection import machine_of, project
from cloudgpu.core.model.facts import record_of
from cloudgpu.core.model.launch import Setup, Volume, setup_to_json
from cloudgpu.core.model.machine import Machine, existing_volumes
from cloudgpu.core.model.usage import Usage, usage_of_record
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso, iso
from tests.core.billing.test_rate_timeline import BEGIN, uses as any_use
from tests.core.events.test_metering import ADDRESS, DAY, DISK, HOUR, USD, down, kept, launch, thing, up
from tests.core.lives import START, asked, at, gone, line, price, priced, seen, settled
from tests.examples import some

PRICES = Prices(lambda _row: 3 * USD, lambda *_where: SubstitutePrice(USD // 5, "month", "the dearest known"))
FOR_EVER = 140 * DAY  # over a change of the year, of months of 28 days, and of the clock here and there
ZONES = ["UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe"]
SPANS = [
    BudgetPeriod("total"),
    BudgetPeriod("month"),
    BudgetPeriod("week"),
    BudgetPeriod("day"),
    BudgetPeriod("rolling", 1),
    BudgetPeriod("rolling", 7),
]
SPANS += [BudgetPeriod("rolling", 30)]
OWNERS, PROJECTS = ["ada", "Bob Smith"], ["", "vision"]
SCOPES = [Scope(), Scope(owner="ada"), Scope(owner="bob-smith"), Scope(project="vision"), Scope(provider="aws")]
SCOPES += [Scope(instance="cg-1"), Scope(instance="name 0", owner="ada"), Scope(account="lab")]
NAMED = setup_to_json(Setup(disk_gb=100, volume=Volume("data", 100)))
moments = st.lists(st.integers(1, FOR_EVER), unique=True, max_size=9).map(sorted)
later = st.none() | st.integers(0, 3 * DAY)
doings = st.sampled_from(
    "up up down down pending again gone end price doubt late kept launch made unknown bytes lease".split()
)


def doing(what: str, second: int, ago: int | None, number: int, first: Event) -> Event:
    since = None if ago is None else max(0, second - ago)
    more = dict(first.body) | {"attempt": number + 1, "token": f"t{number + 1}", "price": price(10**8 * (number + 1))}
    told = {} if since is None else {"alive_at": at(since), "pending_at": at((since + second) // 2)}
    end = at(second + number * 2 * DAY)
    found = {
        "up": lambda: up(second, None if number == 3 else since, **(told if number == 2 else {})),
        "again": lambda: up(second, 0, launched_at=at(0)),
        "pending": lambda: seen(second, "pending", billed=True, since=since),
        "down": lambda: down(
            second, "stopped deallocated terminated stopped".split()[number], since,
            reason="interrupted" if number == 1 else None,
        ),
        "gone": lambda: gone(second),
        "end": lambda: asked(second, ["end", "park", "stop", "start"][number]),
        "price": lambda: priced(second, None if number == 0 else 10**8 * number + 7),
        "doubt": lambda: line(
            second, "price_observed", {"price": price(number), "maybe_from": at(since or 0), "on_demand": price(USD)}
        ),
        "late": lambda: line(second, "price_observed", {"price": price(USD), "on_demand": price(2 * USD)}),
        "kept": lambda: kept(
            second, *[thing("disk" if one else "image", f"t-{one}", since, nanos=one * 10**7 + 1 if one else None)
                      for one in range(number)]
        ),
        "launch": lambda: line(second, "launch_intended", more),
        "made": lambda: settled(second, ["made", "refused", "void", "made"][number], attempt=number % 2 + 1),
        "unknown": lambda: seen(second, "unknown", billed=False),
        "lease": lambda: line(second, "lease_set", {"expires": end, "renew_until": end if number else None}),
        "bytes": lambda: line(
            second,
            "traffic_observed",
            {"bytes_out": 10**6, "since": at(since or 0), "until": at(second), "stored_as": "egress",
             "nanos": 10**8 if number else None},
        ),
    }  # fmt: skip
    return found[what]()


@st.composite
def lives(draw: st.DrawFn, name: str) -> list[Event]:
    """Return the lines of a machine of any provider, market, licence and system: launched, or found by its tags."""
    facts: dict[str, Any] = {
        "provider": draw(st.sampled_from(["aws", "gcp", "azure", "local", "plug-in"])),
        "market": draw(st.sampled_from(["spot", "on_demand", "on_demand"])),
        "attached_costs": draw(st.sampled_from([[], [DISK], [DISK, ADDRESS], [DISK | {"named": True}, ADDRESS]])),
        "owner": draw(st.sampled_from(OWNERS)),
        "project": draw(st.sampled_from(PROJECTS)),
        "account": draw(st.sampled_from(["lab", "own"])),
        "licence": draw(st.sampled_from(["", "", "suse", "rhel"])),
        "max_price": draw(st.sampled_from([None, None, 2 * USD])),
        "on_demand": draw(st.sampled_from([None, price(2 * USD)])),
        "renew_until": draw(st.sampled_from([None, at(DAY), at(FOR_EVER // 2), at(2 * FOR_EVER)])),
        "guards": draw(st.sampled_from([None, {"agent": "none", "timer": "none", "follows": True}])),
        "setup": draw(st.sampled_from([None, NAMED])),
    }
    first = launch(0, usd="1", **facts)
    if draw(st.booleans()):
        first = replace(first, body=dict(first.body) | {"price": None})
    lines = [line(0, "machine_adopted", dict(first.body) | {"why": "x"}) if draw(st.integers(0, 4)) == 4 else first]
    lines += [doing(draw(doings), second, draw(later), draw(st.integers(0, 3)), first) for second in draw(moments)]
    return [replace(one, seq=number, subject=name) for number, one in enumerate(lines, 1)]


def volume(name: str) -> Event:
    body = {"id": "vol-1", "kind": "volume", "name": "data", "provider": "aws", "account": "lab", "region": "r",
            "zone": "z", "owner": "ada", "project": "", "stored_as": "gp3", "size_gb": 100, "made_at": None,
            "per": "month", "nanos": 80_000_000, "source": "x", "basis": "listed", "ready": True,
            "nanos_per_month": None}  # fmt: skip
    return replace(line(5, "resource_observed", body), subject=name)


@st.composite
def labs(draw: st.DrawFn) -> list[list[Event]]:
    many = draw(st.integers(1, 3))
    found = [draw(lives(f"cg-{number}")) for number in range(many)]
    if draw(st.booleans()):
        found.append([volume("volume:data")])
    return found


budgets = st.builds(
    lambda span, scope, zone, limit: Budget(
        "lab", Money(limit), span, scope, tz=zone, zone=ZoneInfo(zone), forecast=None
    ),
    st.sampled_from(SPANS), st.sampled_from(SCOPES), st.sampled_from(ZONES), st.sampled_from([1, 10**10, 10**13]),
)  # fmt: skip


def known(lab: list[list[Event]]) -> tuple[list[Machine], list[tuple[str, Usage]]]:
    rows, uses = list[Machine](), list[tuple[str, Usage]]()
    for lines in lab:
        found = project(lines)
        assert found is not None
        rows.append(Machine.of(found.state["row"])._replace(name=f"name {len(rows)}"))
        uses += [(rows[-1].id, usage_of_record(use)) for use in found.ended_usages]
    return rows, uses


def stored(rows: list[Machine], uses: list[tuple[str, Usage]]) -> tuple[list[Any], list[tuple[str, Any]]]:
    """Return rows and uses as budgets get them from a ledger."""
    short = [json.loads(json.dumps(exposure_of(row))) for row in rows]
    laid = [(subject, json.loads(json.dumps(billed_intervals(use, 0))) if use.segments else use)
            for subject, use in uses]  # fmt: skip
    return [row if one is None else Exposure(*one) for row, one in zip(rows, short, strict=True)], laid


def as_said(found: Any) -> list[Any]:
    return [
        (one.periods, one.fits, sorted(one.machines_without_price), sorted(one.price_assumptions))
        for one in found.verdicts
    ]


@settings(max_examples=some(200), deadline=None)
@given(
    labs(), st.lists(budgets, min_size=1, max_size=3), st.integers(0, FOR_EVER + 90 * DAY), st.integers(0, 3),
    st.booleans(),
)  # fmt: skip
def test_admission_says_the_same_by_what_is_stored(lab, some_budgets, second, wished, passes):
    rows, uses = known(lab)
    now, prices = START + timedelta(seconds=second), replace(PRICES, reaper_runs=passes)
    wanted = rows[0]._replace(
        open_usage=(), retained=(), terminated_at=None, launch_status="open", is_named_resource=False,
        renew_until=iso(now + timedelta(hours=40)), id=["cg-0", "cg-1", "cg-9", ""][wished],
    )  # fmt: skip
    short, laid = stored(rows, uses)
    unpriced = [one for one in uses if not one[1].segments]
    whole = admission_request(some_budgets, wanted, rows, lambda _since: uses, prices, now).admission()
    assert as_said(
        admission_request(some_budgets, wanted, short, lambda _since: laid, prices, now).admission()
    ) == as_said(whole)
    summed = admission_request(
        some_budgets, wanted, short, lambda _since: laid, prices, now, lambda _since: unpriced
    ).admission()
    assert as_said(summed) == as_said(whole)


@settings(max_examples=some(150), deadline=None)
@given(
    labs(), st.lists(budgets, min_size=1, max_size=3), st.integers(0, FOR_EVER + 90 * DAY), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_how_a_budget_stands_is_the_same_by_what_is_stored(lab, some_budgets, second, passes, today):
    rows, uses = known(lab)
    now = START + timedelta(seconds=second)
    prices, volumes = replace(PRICES, reaper_runs=passes), existing_volumes(rows)
    short, laid = stored(rows, uses)

    def stands(rows: list[Any], uses: list[tuple[str, Any]]) -> list[Any]:
        found: list[tuple[BudgetSums, ...]] = [
            budget_sums(some_budgets, rows, lambda _since: uses, one, now, volumes)
            for one in (prices, replace(prices, at_spot_prices=today))
        ]
        each = [status_of(one, other, now) for one, other in zip(*found, strict=True)]
        return [
            replace(
                one,
                machines_without_price=tuple(sorted(one.machines_without_price)),
                price_assumptions=tuple(sorted(one.price_assumptions)),
            )
            for one in each
        ]

    assert stands(short, laid) == stands(rows, uses)


@settings(max_examples=some(150), deadline=None)
@given(lives("cg-1"), st.integers(0, FOR_EVER + 90 * DAY), st.booleans())
def test_an_exposure_is_billed_as_the_uses_of_its_row(lines, second, whole):
    found = project(lines)
    assert found is not None
    row, now = Machine.of(found.state["row"]), to_us(START + timedelta(seconds=second))
    exposure = exposure_of(row._replace(retained=(), attached_costs=()))
    assume(exposure is not None)
    laid = [
        strand for nanos, begin, end, unit in exposure.flows(now) for strand in flow_intervals(unit, begin, end, nanos)
    ]
    fold = [strand for use in row.open_usage for strand in max_cost_intervals(use, now)]
    edges = {0, now, 2**62, *(edge for begin, end, _ in (*fold, *laid) for edge in (begin, end))}
    ordered = sorted(edges) if whole else sorted(random.Random(second).sample(sorted(edges), min(4, len(edges))))
    for begin, end in pairwise(ordered):
        assert intervals_cost(laid, begin, end) == intervals_cost(fold, begin, end)


@given(lives("cg-1"))
def test_what_an_ended_use_is_stored_as_is_what_it_cost(lines):
    found = project(lines)
    assert found is not None
    for use in map(usage_of_record, found.ended_usages):
        until, strands = ended_intervals(use)
        assert until == billed_until(use)
        assert strands == (max_cost_intervals(use, 0) if use.segments else None)


@settings(max_examples=some(300), deadline=None)
@given(any_use(), st.none() | st.integers(0, 10**5), st.integers(-HOUR, 120 * DAY), st.integers(0, 120 * DAY))
def test_any_use_is_stored_as_it_is_billed(use, continues, second, cut):
    if continues is not None and use.resource in ("disk", "snapshot"):
        use = use._replace(continues=iso(from_iso(use.begin) - timedelta(seconds=continues)))
    now = to_us(BEGIN + timedelta(seconds=second))
    stored_use = usage_of_record(json.loads(json.dumps(record_of(use))))
    if use.end is not None:
        assert ended_intervals(stored_use) == (billed_until(use), max_cost_intervals(use, 0) if use.segments else None)
        return
    begun = machine_of([launch(0)])
    assert begun is not None
    row = begun._replace(open_usage=(stored_use,), attached_costs=())
    flows = Exposure(*json.loads(json.dumps(exposure_of(row)))).flows(now)
    laid = [strand for nanos, begin, end, unit in flows for strand in flow_intervals(unit, begin, end, nanos)]
    edge = to_us(BEGIN + timedelta(seconds=cut))
    for begin, end in ((0, edge), (edge, 2**62)):
        assert intervals_cost(laid, begin, end) == intervals_cost(max_cost_intervals(use, now), begin, end)


RULES = [("aws", "disk"), ("azure", "disk"), ("gcp", "disk"), ("plug-in", "disk"), ("aws", "instance")]


@given(
    st.sampled_from(RULES), st.sampled_from(["hour", "month"]), st.integers(0, 10**12),
    st.integers(0, 4 * 10**15), st.integers(0, 10**14),
)  # fmt: skip
def test_a_flow_weighs_what_its_strands_cost(whose, per, nanos, begin, length):
    rule = rule_of(whose[0], "on_demand", whose[1])
    unit, end = unit_of(per, rule), begin + length
    found = rate_intervals(begin, end, nanos, per, rule)
    assert nanos * exact_cost(unit, begin, end) == intervals_cost(found, begin, end)


@pytest.mark.parametrize(
    ("lines", "is_stored"),
    [
        ([launch(0), up(1, since=0)], True),
        ([launch(0), up(1, since=0), down(HOUR, since=HOUR)], True),
        ([launch(0, market="spot"), up(1, since=0), priced(HOUR, 10**8)], True),
        ([launch(0, market="spot", on_demand=None), up(1, since=0)], False),  # what it may cost is asked of a list
        ([launch(0, attached_costs=[DISK | {"nanos": None}]), up(1, since=0)], False),
        ([volume("cg-1")], False),  # whoever attaches it does not pay for it again
    ],
)
def test_a_machine_is_judged_whole_where_more_decides_than_itself(lines, is_stored):
    found = project([replace(one, subject="cg-1") for one in lines])
    assert found is not None
    assert (exposure_of(Machine.of(found.state["row"])) is not None) == is_stored
