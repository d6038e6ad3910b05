"""Which processes watch on this computer, since when, and when the next pass is due: the answer of `watch --status`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.control.scheduler.cron import passes
from cloudgpu.control.scheduler.due import pass_due
from cloudgpu.control.scheduler.jobs import LOCK
from cloudgpu.control.session.last_run import last_pass, overdue
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.times import iso
from cloudgpu.ledger.log import locks

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.automation.cron import WatchDocument


@dataclass(frozen=True, slots=True)
class Running:
    """A process that watches: its number, since when (a ledger time), how often it passes, where its metrics are."""

    pid: int
    since: str
    every_s: float
    metrics: str | None


@contextmanager
def announced(session: Session, *, every: timedelta, metrics: str | None) -> Iterator[None]:
    """Let others see that this process watches, as long as it lives: a lock says so, and no file alone is believed."""
    one = Running(os.getpid(), iso(session.clock()), every.total_seconds(), metrics)
    directory = session.home.root / "watch"
    with locks.hold(session.home.locks, _lock(one.pid), wait=5):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = directory / f"{one.pid}.json"
        file.write_text(json.dumps(asdict(one)), encoding="utf-8")
        try:
            yield
        finally:
            file.unlink(missing_ok=True)
            with suppress(OSError):
                directory.rmdir()


def running(session: Session) -> list[Running]:
    """Return the processes of this home that watch now, the oldest first; what dead ones have left is removed."""
    found = []
    for file in _files(session.home.root / "watch"):
        with suppress(OSError, ValueError, TypeError):
            one = Running(**json.loads(file.read_text(encoding="utf-8")))
            if locks.held(session.home.locks, _lock(one.pid)):
                found.append(one)
            else:
                file.unlink(missing_ok=True)
    return sorted(found, key=lambda one: (one.since, one.pid))


def status_value(session: Session, every: timedelta) -> WatchDocument:
    """Return who watches here, whether a pass is being made now, when the last was, and when the next is due."""
    here, now = running(session), session.clock()
    often = min((timedelta(seconds=one.every_s) for one in here), default=every)
    machines = session.ledger.machines()
    return {
        "watching": [
            {"pid": one.pid, "since": one.since, "every_s": one.every_s, "metrics": one.metrics} for one in here
        ],
        "running": session.is_locked(LOCK),
        "last_run": passes(session),
        "next_at": iso(_next(session, machines, often, now)) if here else None,
        "overdue": overdue(session, machines),
    }


def _next(session: Session, machines: list[Machine], every: timedelta, now: datetime) -> datetime:
    return max(now, pass_due(last_pass(session.ledger), machines, every, now))


def _files(directory: Path) -> list[Path]:
    try:
        return sorted(directory.glob("*.json"))
    except OSError:
        return []


def _lock(pid: int) -> str:
    return f"watch-{pid}"
