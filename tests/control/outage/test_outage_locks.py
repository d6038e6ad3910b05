"""Locks while the ledger is away: two who end machines are kept apart, and one that is suspended keeps none on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from cloudgpu.control.inventory.unrecorded_termination import EndedUnrecorded
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.control.outage.outage import continue_without_ledger, find_to_stop
from cloudgpu.control.session.session import Session
from cloudgpu.errors import LedgerUnavailable, ProviderUnavailable
from cloudgpu.ledger.log import files, head
from cloudgpu.ledger.log.storage_errors import LedgerAway
from tests.control.inventory.test_shared_ledger import Laptop
from tests.postgres import Server

SUSPENDED = """
import os, signal, sys
from pathlib import Path
from cloudgpu.ledger.log.head import lock_head
held = lock_head(Path(sys.argv[1]), 10)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@contextmanager
def suspended(path: Path) -> Iterator[None]:
    """A process that was suspended while it held the head record."""
    process = subprocess.Popen([sys.executable, "-c", SUSPENDED, str(path)])
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How many seconds were waited in vain for the head record, each time."""
    found: list[float] = []
    monkeypatch.setattr(files, "SHORT_TIMEOUT_S", 0.01)
    monkeypatch.setattr(head, "locked_error", _counted(head.locked_error, found))
    return found


def _counted(locked: Callable[[Path, float], LedgerUnavailable], found: list[float]) -> Callable[..., object]:
    def told(path: Path, seconds: float) -> LedgerUnavailable:
        found.append(seconds)
        return locked(path, seconds)

    return told


def test_a_process_that_is_suspended_while_it_writes_keeps_a_stop_waiting_once(lab, waited):
    lab.up(name="fox")
    session = lab.opened()
    session.ledger._lock_timeout_s = 0.2
    with suspended(session.home.ledger / "ledger.head"):
        with pytest.raises(EndedUnrecorded, match="fox is stopped and not billed") as caught:
            stop(session, find_to_stop(session, "fox")[0], why="asked by the user")
        assert "it may be suspended" in caught.value.next
        assert lab.machines() == []
        assert [one for one in waited if one > 0.01] == [0.2]
    session = lab.opened()
    assert (session.find("fox").state, session.ledger.has_outbox) == ("stopped", False)


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: Server) -> Callable[[str], Laptop]:
    url = postgres.schema()
    return lambda name: Laptop(tmp_path, monkeypatch, name, url)


@contextmanager
def apart(session: Session) -> Iterator[Session]:
    fault = LedgerAway("The ledger is away.")
    with continue_without_ledger(session, fault):
        yield session


@pytest.mark.soak
def test_who_can_only_read_the_ledger_holds_its_locks_all_the_same(laptop):
    ada, bob = laptop("ada"), laptop("bob")
    ada.up(name="fox")
    one, other = ada.opened(), bob.opened()
    with apart(one), one.lock("reaper", wait=False):
        assert other.is_locked("reaper")
        with pytest.raises(ProviderUnavailable, match="at work on 'reaper'"), other.lock("reaper", wait=False):
            pass
        one.check_lock("reaper")
        _cut_all(ada.url)
        with pytest.raises(LedgerUnavailable, match="broke while it held the lock"):
            one.check_lock("reaper")
    with other.lock("reaper", wait=False), apart(one):
        assert one.is_locked("reaper")
        with pytest.raises(ProviderUnavailable, match="at work on 'reaper'"), one.lock("reaper", wait=False):
            pass


def _cut_all(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


@pytest.mark.soak
def test_two_homes_of_one_user_are_kept_apart_while_the_server_is_down(laptop, postgres):
    ada, bob = laptop("ada"), laptop("bob")
    ada.up(name="fox")
    one, other = ada.opened(), bob.opened()
    assert one.ledger.id == other.ledger.id
    other.ledger.append([])
    postgres.kill()
    try:
        with apart(one), one.lock("reaper", wait=False), apart(other):
            assert other.is_locked("reaper")
            with pytest.raises(ProviderUnavailable, match="at work on 'reaper'"), other.lock("reaper", wait=False):
                pass
            with other.lock("another", wait=False):
                pass
    finally:
        postgres.start()


def test_two_passes_of_one_home_are_kept_apart_where_no_file_of_a_lock_can_be_made(lab):
    lab.up(name="fox")
    one, other = lab.opened(), lab.opened()
    one.home.locks.rmdir()
    one.home.locks.write_text("in the way, as a full disk is")
    refused = pytest.raises(ProviderUnavailable, match="at work on 'reaper'")
    with apart(one), one.lock("reaper", wait=False), apart(other), refused, other.lock("reaper", wait=False):
        pass
