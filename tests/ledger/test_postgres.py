"""The common suite on a real PostgreSQL server, and what its own clock says of others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cloudgpu.core.values.times import from_iso
from cloudgpu.ledger.book import Book
from cloudgpu.ledger.open import open_ledger
from cloudgpu.ledger.outage.delivery import deliver
from tests.ledger.lines import note
from tests.ledger.suite import LedgerSuite, Store
from tests.postgres import Server

REMEDY = "cloudgpu goes by the database's. Set this computer's right."
AHEAD = "This computer's clock is 1h ahead of that of the ledger's database."


@pytest.fixture
def store(postgres_store: Store) -> Store:
    return postgres_store


class TestPostgres(LedgerSuite):
    """Every promise of the suite holds on PostgreSQL."""


@pytest.fixture
def members(postgres: Server, tmp_path: Path) -> Iterator[list[Book]]:
    """The ledgers of ada, whose clock is right, ben, an hour ahead, and eve, two days; the database's clock counts."""
    url = f"{postgres.schema()}%20-ccloudgpu.clock%3Don"
    found = [
        open_ledger(url, tmp_path / name, actor=name, clock=lambda ahead=ahead: datetime.now(UTC) + ahead)
        for name, ahead in (("ada", timedelta(0)), ("ben", timedelta(hours=1)), ("eve", timedelta(days=2)))
    ]
    for ledger in found:
        ledger.has_own_clock = True
    yield found
    for ledger in found:
        ledger.close()


def test_whose_clock_the_database_contradicts_goes_by_the_databases_and_others_are_not_in_doubt(
    members: list[Book],
) -> None:
    ada, ben, _ = members
    told: dict[str, list[str]] = {"ada": [], "ben": []}
    ada.tell, ben.tell = told["ada"].append, told["ben"].append
    for number, ledger in enumerate((ada, ben, ben)):
        ledger.append([note(number)])
    assert told == {"ada": [], "ben": [f"{AHEAD} {REMEDY}"]}
    assert (ada.clock_problem(), ada.integrity_problem()) == (None, None), "ben's line is right"
    assert ben.clock_problem() == AHEAD
    recorded = from_iso(ben.head()[2])
    assert all(abs(at - datetime.now(UTC)) < timedelta(minutes=1) for at in (recorded, ada.now(), ben.now()))
    assert (ada.clock_ahead(), round(ben.clock_ahead() / timedelta(hours=1))) == (timedelta(0), 1)


def test_what_a_wrong_clock_dated_while_the_database_was_away_is_put_right_when_it_is_delivered(
    members: list[Book], monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, ben, eve = members
    ada.append([note(1)])
    real = time.time
    for ledger, ahead in ((ben, timedelta(hours=1)), (eve, timedelta(days=2))):
        line = replace(note(2, f"of {ahead}"), occurred_at=datetime.now(UTC) + ahead)
        with monkeypatch.context() as wrong:
            wrong.setattr(time, "time", lambda ahead=ahead: real() + ahead.total_seconds())
            ledger.outbox.add(ledger.id, [line])
        delivered = deliver(ledger, ledger.outbox, ledger.id)
        assert delivered is not None
        assert (delivered.written, ledger.outbox.is_empty) == (1, True)
    of_ben, of_eve = (
        from_iso(next(iter(ada.events(f"of {ahead}"))).occurred_at) for ahead in ("1:00:00", "2 days, 0:00:00")
    )
    assert abs(of_ben - datetime.now(UTC)) < timedelta(minutes=1)
    assert of_eve - datetime.now(UTC) > timedelta(days=1), "nobody knows which of two such clocks is right"


def test_who_only_reads_with_a_wrong_clock_is_told_too(members: list[Book]) -> None:
    ada, ben, _ = members
    told = list[str]()
    ada.append([note(1)])
    ben.tell = told.append
    ben.present_machines()
    assert told == [f"{AHEAD} {REMEDY}"]


def test_a_clock_that_is_days_apart_counts_and_is_told(members: list[Book]) -> None:
    *_, eve = members
    told = list[str]()
    eve.tell = told.append
    eve.append([note(1)])
    assert (eve.clock_ahead(), [said.endswith("and so may bills be.") for said in told]) == (timedelta(0), [True])
    assert from_iso(eve.head()[2]) - datetime.now(UTC) > timedelta(days=1)
