"""The head record is read without its lock, and half a record is never taken for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudgpu.errors import LedgerUnavailable
from cloudgpu.ledger.log import files
from cloudgpu.ledger.log.head import DamagedHead, HeadRecord, lock_head, read_head
from cloudgpu.ledger.open import SqliteLedger
from tests.ledger.lines import Clock, intended, note

PATIENCE = 0.1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.head"


@pytest.fixture
def ledger(tmp_path: Path, path: Path) -> Iterator[SqliteLedger]:
    found = SqliteLedger(tmp_path / "ledger.db", path, actor="somebody", clock=Clock(), lock_timeout_s=PATIENCE)
    found.append([intended(), note(1)])
    yield found
    found.close()


def test_whoever_only_reads_does_not_wait_for_a_writer_that_hangs(ledger: SqliteLedger, path: Path) -> None:
    known = ledger.id
    held = lock_head(path, PATIENCE)
    assert ledger.remembered_id() == known
    assert (ledger.moved(), ledger.integrity_problem(), ledger.verify().faults) == (None, None, ())
    ledger.check_in_use()
    held.close()


def test_half_of_a_record_is_none_until_its_writer_is_done(path: Path) -> None:
    held = lock_head(path, PATIENCE)
    held.write("ledger", 9, "a" * 64, "2026-11-20T12:00:00Z")
    old = path.read_bytes()
    held.write("ledger", 10, "b" * 64, "2026-11-20T12:00:01Z")
    new = path.read_bytes()
    whole = {read_head(path, PATIENCE), HeadRecord("ledger", 9, "a" * 64, "2026-11-20T12:00:00Z")}
    torn = [one for at in range(len(old)) for one in (old[:at] + new[at:], new[:at] + old[at:])]
    torn = [one for one in torn if one not in (old, new)]
    path.write_bytes(torn[100])
    with pytest.raises(LedgerUnavailable, match="locked by another process"):
        read_head(path, PATIENCE)
    held.close()
    for one in torn:
        path.write_bytes(one)
        found = read_head(path, PATIENCE)
        assert isinstance(found, DamagedHead) or found in whole, one
    path.write_bytes(new)
    assert read_head(path, PATIENCE) in whole


def test_a_lock_that_was_waited_for_in_vain_is_not_waited_for_as_long_again(
    ledger: SqliteLedger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SHORT_TIMEOUT_S", 0.01)
    held = lock_head(path, PATIENCE)
    for waited in (r"waited 0\.1 s", r"waited 0\.01 s", r"waited 0\.01 s"):
        with pytest.raises(LedgerUnavailable, match=waited):
            ledger.append([note(2)])
    held.close()
    ledger.append([note(2)])
    held = lock_head(path, PATIENCE)
    with pytest.raises(LedgerUnavailable, match=r"waited 0\.1 seconds"):
        ledger.append([note(3)])
    held.close()
