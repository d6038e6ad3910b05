"""What the ledger stores for budgets is what its lines fold to: admission says the same by either, on any database."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from cloudgpu.control.session.session import present_machines
from cloudgpu.core.budgets.admission import admission_request
from cloudgpu.core.budgets.budget import Budget, BudgetPeriod
from cloudgpu.core.budgets.commitments import Prices, SubstitutePrice
from cloudgpu.core.events.log import Draft
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.ledger.open import open_ledger
from tests.core.budgets.test_exposure import FOR_EVER, labs
from tests.examples import some
from tests.ledger.lines import NOON, intended, priced, seen, vanished

PRICES = Prices(lambda _row: None, lambda *_where: SubstitutePrice(10**8, "month", "assumed"))
SEOUL = {"tz": "Asia/Seoul", "zone": ZoneInfo("Asia/Seoul")}
YORK = {"tz": "America/New_York", "zone": ZoneInfo("America/New_York")}
BUDGETS = [
    Budget("ever", Money(10**12), BudgetPeriod("total")),
    Budget("month", Money(10**12), BudgetPeriod("month"), **YORK),
    Budget("day", Money(10**12), BudgetPeriod("day"), **SEOUL),
    Budget("week", Money(10**12), BudgetPeriod("rolling", 7)),
]
HOUR = 3600
steps = st.tuples(st.sampled_from(["stop", "start", "price", "end"]), st.integers(1, 400 * HOUR))


def life(found, name):
    """Return the lines of a machine that does these things one after another."""
    lines, at = [intended(), seen(seconds=5)], 5
    for number, (what, later) in enumerate(found):
        at += later
        drafts = {
            "stop": seen(state="stopped", seconds=at),
            "start": seen(state="running", seconds=at),
            "price": priced(number * 10**8 + 7, seconds=at),
            "end": vanished(seconds=at),
        }
        lines += [drafts[what]]
    return [replace(line, subject=name, dedupe=f"{name}:{number}:{line.dedupe}") for number, line in enumerate(lines)]


def answers(ledger, budgets, ahead, *, by_sums):
    now, whole = NOON + timedelta(seconds=ahead), ledger.billable_machines()

    def ended(since):
        text = "" if since is None else iso(since)
        return ledger.billed_costs(text) if by_sums else ledger.ended_usages(text)

    def unpriced(_since):
        return ledger.ended_usages(unpriced=True)

    wanted, rows = whole[0]._replace(id="cg-wanted", open_usage=()), ledger.exposures() if by_sums else whole
    found = admission_request(budgets, wanted, rows, ended, PRICES, now, unpriced if by_sums else None).admission()
    return [
        (one.periods, one.fits, one.machines_without_price, sorted(one.price_assumptions)) for one in found.verdicts
    ]


def check(ledger, lines, ahead):
    for line in lines:
        ledger.append([line])
    for budgets in ([one] for one in BUDGETS):
        assert answers(ledger, budgets, ahead, by_sums=True) == answers(ledger, budgets, ahead, by_sums=False)
    together = answers(ledger, BUDGETS, ahead, by_sums=True)
    assert [one[0] for one in together] == [one[0] for one in answers(ledger, BUDGETS, ahead, by_sums=False)]
    assert not ledger.verify().faults
    rows = ledger.machines()
    assert sorted(ledger.names(), key=str) == sorted(((row.name, row.key) for row in present_machines(rows)), key=str)
    assert all(ledger.launched(row.key) == [one for one in rows if one.key == row.key] for row in rows)
    ledger.rebuild()
    assert answers(ledger, BUDGETS, ahead, by_sums=True) == together


@settings(max_examples=some(30), deadline=None)
@given(st.lists(st.lists(steps, max_size=6), min_size=1, max_size=3), st.randoms(), st.integers(0, 3000 * HOUR))
def test_what_a_ledger_stores_for_budgets_is_what_its_lines_fold_to(lives, chance, ahead):
    lines = [line for number, one in enumerate(lives) for line in life(one, f"cg-{number}")]
    chance.shuffle(lines)  # a price or an end is often told late
    with (
        TemporaryDirectory() as place,
        closing(open_ledger(None, Path(place), actor="ada", clock=lambda: NOON)) as ledger,
    ):
        check(ledger, lines, ahead)


@settings(max_examples=some(40), deadline=None)
@given(labs(), st.randoms(), st.integers(0, FOR_EVER))
def test_whatever_happens_to_machines_of_any_provider(lab, chance, ahead):
    lines = [drafted(line) for lines in lab for line in lines]
    chance.shuffle(lines)
    with (
        TemporaryDirectory() as place,
        closing(open_ledger(None, Path(place), actor="ada", clock=lambda: NOON)) as ledger,
    ):
        check(ledger, lines, ahead)


@pytest.mark.soak
@settings(max_examples=some(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lab=labs(), chance=st.randoms(), ahead=st.integers(0, FOR_EVER))
def test_a_database_stores_it_as_a_file_does(postgres, lab, chance, ahead):
    lines = [drafted(line) for lines in lab for line in lines]
    chance.shuffle(lines)
    with (
        TemporaryDirectory() as place,
        closing(open_ledger(None, Path(place) / "file", actor="ada", clock=lambda: NOON)) as file,
        closing(open_ledger(postgres.schema(), Path(place) / "db", actor="ada", clock=lambda: NOON)) as database,
    ):
        check(database, lines, ahead)
        file.append(lines)
        assert database.exposures() == file.exposures()
        assert sorted(map(str, database.billed_costs())) == sorted(map(str, file.billed_costs()))


def drafted(line):
    at = from_iso(line.occurred_at)
    return Draft(line.kind, line.subject, line.body, at, f"{line.subject}:{line.seq}:{line.dedupe}")
