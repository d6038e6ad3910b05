"""A ledger that was cut short, restored, exchanged or lost: noticed, still usable for stops, settled on request."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloudgpu.errors import LedgerUnavailable
from cloudgpu.ledger.open import SqliteLedger, open_ledger
from tests.ledger.lines import Clock, intended, note, seen

Open = Callable[[], SqliteLedger]


@pytest.fixture
def again(tmp_path: Path) -> Iterator[Open]:
    """Open the ledger as the next command would, the one before closed."""
    opened: list[SqliteLedger] = []

    def make() -> SqliteLedger:
        for ledger in opened:
            ledger.close()
        found = open_ledger(None, tmp_path / "ledger", actor="somebody", clock=Clock())
        assert isinstance(found, SqliteLedger)
        opened.append(found)
        return found

    yield make
    for ledger in opened:
        ledger.close()


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "ledger" / "ledger.db"


@pytest.fixture
def head(tmp_path: Path) -> Path:
    return tmp_path / "ledger" / "ledger.head"


def restored_from_old_copy(again: Open, db: Path) -> SqliteLedger:
    """A ledger of five lines, restored from the copy that was made when it had three."""
    again().append([note(1), note(2)])
    again()
    shutil.copy(db, db.with_suffix(".backup"))
    again().append([note(3), note(4)])
    again()
    shutil.copy(db.with_suffix(".backup"), db)
    return again()


def test_a_restored_old_copy_is_noticed(again: Open, db: Path) -> None:
    ledger = restored_from_old_copy(again, db)
    assert "ends at line 3, and its head record knew line 5" in (ledger.integrity_problem() or "")
    assert any("ends at line 3" in fault for fault in ledger.verify().faults)


def test_stops_can_be_written_meanwhile_and_the_doubt_stays_however_many_they_are(again: Open, db: Path) -> None:
    ledger = restored_from_old_copy(again, db)
    for number in range(10, 16):
        assert ledger.append([note(number)])
        assert again().integrity_problem() is not None
    assert "another line 5" in (again().integrity_problem() or "")


def test_a_settled_old_copy_is_doubted_no_more(again: Open, db: Path) -> None:
    ledger = restored_from_old_copy(again, db)
    line = ledger.settle("all accounts were asked")
    assert "ends at line 3" in line.body["found"]
    assert (again().integrity_problem(), again().verify().faults) == (None, ())
    again().append([note(9)])
    assert (again().integrity_problem(), again().head()[0]) == (None, 5)


@pytest.mark.parametrize("lost", ["gone", "emptied"])
def test_a_lost_file_is_not_silently_begun_anew(again: Open, db: Path, lost: str) -> None:
    again().append([note(1)])
    known = again().id
    again()
    db.unlink() if lost == "gone" else db.write_bytes(b"")
    ledger = again()
    assert "missing or empty" in (ledger.integrity_problem() or "")
    assert (ledger.verify().line_count, len(ledger.verify().faults)) == (0, 1)
    assert (ledger.id, ledger.head()) == (known, (0, "", ""))
    for attempt in (lambda: ledger.append([note(2)]), ledger.machines, lambda: list(ledger.events()), ledger.rebuild):
        with pytest.raises(LedgerUnavailable, match="2 lines") as caught:
            attempt()
        assert "cost --verify --yes" in (caught.value.next or "")
        assert "backup" in (caught.value.next or "")


def test_settling_a_lost_ledger_makes_it_anew_under_its_old_id(again: Open, db: Path) -> None:
    again().append([note(1)])
    known = again().id
    again()
    db.unlink()
    line = again().settle("the file was lost")
    assert (line.seq, line.body["why"]) == (2, "the file was lost")
    assert "missing" in line.body["found"]
    assert [event.body.get("ledger") for event in again().events()] == [known, None]
    assert (again().id, again().integrity_problem(), again().verify().faults) == (known, None, ())
    assert again().append([note(1)])


def test_another_ledgers_file_is_noticed(again: Open, db: Path, tmp_path: Path) -> None:
    again().append([note(1)])
    again()
    other = open_ledger(None, tmp_path / "other", actor="somebody", clock=Clock())
    other.append([note(number) for number in range(5)])
    other.close()
    shutil.copy(tmp_path / "other" / "ledger.db", db)
    assert "is not the ledger" in (again().integrity_problem() or "")
    again().append([note(9)])
    assert "is not the ledger" in (again().integrity_problem() or "")
    again().settle("meant")
    assert again().integrity_problem() is None


def test_a_head_record_that_lags_behind_is_normal_and_healed(again: Open, head: Path) -> None:
    again().append([note(1)])
    old = head.read_bytes()
    again().append([note(2)])
    new = head.read_bytes()
    head.write_bytes(old)  # what a crash between the commit and the head record leaves
    assert (again().integrity_problem(), again().verify().faults) == (None, ())
    again().append([])
    assert head.read_bytes() == new != old


def test_a_head_record_that_is_gone_is_made_again(again: Open, head: Path) -> None:
    again().append([note(1)])
    head.unlink()
    assert again().integrity_problem() is None
    again().append([note(2)])
    assert b'"seq": 3' in head.read_bytes()


@pytest.mark.parametrize("rubbish", [b"\xff\xfe", b"{}", b"[1]", b'{"ledger": "x", "seq": "?"}', b"x" * 2000])
def test_a_head_record_that_is_none_is_doubted_until_it_is_settled(again: Open, head: Path, rubbish: bytes) -> None:
    again().append([note(1)])
    whole = head.read_bytes()
    head.write_bytes(rubbish)
    assert "head record" in (again().integrity_problem() or "")
    assert any("head record" in fault for fault in again().verify().faults)
    again().append([note(2)])
    assert head.read_bytes() == rubbish
    again().settle("looked")
    assert again().integrity_problem() is None
    assert len(head.read_bytes()) == len(whole)


def test_a_lost_file_and_a_damaged_head_record_together_are_settled_too(again: Open, db: Path, head: Path) -> None:
    again().append([note(1)])
    again()
    db.unlink()
    head.write_bytes(b"rubbish")
    with pytest.raises(LedgerUnavailable, match="damaged"):
        again().append([note(2)])
    again().settle("looked")
    assert (again().integrity_problem(), again().verify().faults) == (None, ())


def test_the_head_record_is_written_before_append_returns(again: Open, head: Path) -> None:
    ledger = again()
    for number in range(3):
        ledger.append([note(number)])
        seq, digest, recorded_at = ledger.head()
        record = head.read_text()
        assert f'"seq": {seq},' in record
        assert digest in record
        assert recorded_at in record
    assert head.stat().st_size == 512


def test_a_failed_decision_leaves_the_head_record_alone(again: Open, head: Path) -> None:
    again().append([intended()])
    before = head.read_bytes()

    def decision(_view: object) -> list[object]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        again().decide(decision)
    assert head.read_bytes() == before
    again().append([seen()])
    assert head.read_bytes() != before
