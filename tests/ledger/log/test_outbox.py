"""The outbox forgets exactly what was told, however many are at it."""

from __future__ import annotations

import fcntl
from datetime import UTC, datetime

import pytest

from cloudgpu.core.events.log import Draft
from cloudgpu.errors import LedgerUnavailable
from cloudgpu.ledger.log import outbox
from cloudgpu.ledger.log.outbox import Outbox
from cloudgpu.ledger.open import open_ledger
from cloudgpu.ledger.outage.stand_in import StandInLedger
from tests.core.machines import machine
from tests.ledger.lines import asked, intended, seen

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def draft(name):
    return Draft("noted", "cg-1", {"why": name}, NOON, f"noted:{name}")


def test_what_a_full_disk_refused_meanwhile_waits_on_and_so_does_what_is_of_another_ledger(tmp_path):
    box = Outbox(tmp_path / "ledger.outbox")
    box.remember("ours", [draft("first")])
    box.remember("theirs", [draft("other")])
    with box.emptied("ours") as told:
        assert told == [draft("first")]
        with box.emptied("ours") as again:
            assert again == [draft("first")]
        box.remember("ours", [draft("second")])
    assert (box.waiting("ours"), box.waiting("theirs")) == ([draft("second")], [draft("other")])
    for ledger in ("ours", "theirs"):
        with box.emptied(ledger):
            pass
    assert box.is_empty


def test_another_process_that_hangs_at_the_file_keeps_nobody_waiting_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(outbox, "_LOCK_TIMEOUT_S", 0.05)
    box = Outbox(tmp_path / "ledger.outbox")
    box.add("ours", [draft("first")])
    with box.path.open("rb") as hangs:
        fcntl.flock(hangs, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="another process is at it"):
            box.add("ours", [draft("second")])
        with box.emptied("ours") as nothing:
            assert nothing is None
    assert box.waiting("ours") == [draft("first"), draft("second")], "this process knows it yet"
    with box.emptied("ours"):
        pass
    assert box.is_empty


def test_an_append_to_a_machine_while_the_ledger_is_away_returns_what_is_known_of_it(tmp_path):
    given, fault = machine(id="cg-1"), LedgerUnavailable("The ledger is away.")
    with_lines = open_ledger(f"sqlite:///{tmp_path}/one.db", tmp_path, actor="ada", clock=lambda: NOON)
    written = with_lines.append_to(given, [intended(), seen(seconds=5)])
    readable = StandInLedger(with_lines, with_lines.id, fault)
    row = readable.append_to(given, [asked("stop", seconds=10)])
    assert (row.pending_action, with_lines.machine("cg-1").pending_action) == ("stop", None), "it waits in the outbox"
    assert readable.append_to(given, [asked("stop", seconds=10)]) == row
    with_lines.close()
    never = open_ledger(f"sqlite:///{tmp_path}/two.db", tmp_path, actor="ada", clock=lambda: NOON)
    unreadable = StandInLedger(never, "two", fault, [written])
    unreadable.is_readable = False
    assert unreadable.append_to(given, [seen(state="stopped", seconds=20)]).state == "stopped"
    other = machine(id="cg-9")
    assert unreadable.append_to(other, [seen("cg-9", seconds=20)]) is other, "nothing else is known of it"
