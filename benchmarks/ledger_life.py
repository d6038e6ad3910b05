"""A made-up life of 200 machines as ledger lines, for the benchmarks: spot prices, looks, leases, stops and starts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from pathlib import Path
from typing import Any

from cloudgpu.core.events.general_events import ledger_opened
from cloudgpu.core.events.log import Draft
from cloudgpu.core.values.times import iso
from cloudgpu.ledger.log import lines
from cloudgpu.ledger.log.projections import append_lines
from cloudgpu.ledger.sqlite import migrations

START = datetime(2026, 1, 1, tzinfo=UTC)
MACHINES = 200
# A working day of a spot machine: its price and its lease by the hour, a look twice an hour; off at night.
TURN = [*("price seen lease seen".split() * 9), "stop", "stopped", "look", "start", "running"]


def drafts() -> Iterator[Draft]:
    """Yield drafts in the order of time, without end: each machine is launched once and then lives on."""
    for number in count():
        machine, turn = number % MACHINES, number // MACHINES
        yield _draft(machine, turn, START + timedelta(seconds=30 * number))


class Growing:
    """A ledger in a SQLite file that grows; nothing is folded."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = wal")
        self.connection.execute("PRAGMA synchronous = off")
        self.connection.execute("BEGIN")
        migrations.migrate(self.connection)
        self._end: lines.LastLine = (0, "", "")
        self._wanted = drafts()
        self.append([ledger_opened("0123456789abcdef", START)])
        self.connection.execute("COMMIT")

    def grow(self, size: int) -> None:
        """Append lines until there are `size`."""
        self.connection.execute("BEGIN")
        while sheaf := list(islice(self._wanted, min(2000, size - self._end[0]))):
            self.append(sheaf)
        self.connection.execute("COMMIT")

    def append(self, sheaf: list[Draft]) -> None:
        """Append these lines, inside a transaction that the caller has begun."""
        at = iso(sheaf[-1].occurred_at)
        self._end = append_lines(self.connection, sheaf, self._end, actor="somebody", recorded_at=at)[1]


def _draft(machine: int, turn: int, at: datetime) -> Draft:
    subject = f"cg-{machine:016x}"
    if turn == 0:
        return Draft("launch_intended", subject, intended(machine), at, f"launch:{subject}")
    kind, body = _said(TURN[turn % len(TURN)], machine, turn, at)
    if kind == "account_synced":
        subject = f"scope:aws/account-{machine % 4}"
    return Draft(kind, subject, body, at, f"{kind}:{machine}:{turn}")


def _said(what: str, machine: int, turn: int, at: datetime) -> tuple[str, dict[str, Any]]:
    if what == "price":
        return "price_observed", {"price": _price(500_000_000 + (machine * 7 + turn * 13) % 90 * 1_000_000, at)}
    if what == "lease":
        ends = {"expires": iso(at + timedelta(hours=8)), "renew_until": iso(at + timedelta(days=1))}
        return "lease_set", {**ends, "why": "somebody works on it"}
    if what == "look":
        return "account_synced", {"machines": MACHINES // 4, "resources": True, "unanswered": [], "unseen": []}
    if what in ("stop", "start"):
        return f"{what}_requested", {"why": "asked on the command line"}
    return "instance_observed", seen(machine, "stopped" if what == "stopped" else "running", at)


def _price(nanos: int, at: datetime) -> dict[str, Any]:
    return {"nanos_per_hour": nanos, "source": "EC2 spot price history", "as_of": iso(at), "basis": "market"}


def seen(machine: int, state: str, at: datetime) -> dict[str, Any]:
    """Return what an observation of a machine says."""
    return {
        "provider_id": f"i-{machine:017x}",
        "state": state,
        "billed": state == "running",
        "since": None,
        "launched_at": iso(START),
        "address": {"host": "203.0.113.7", "port": 22, "user": "ubuntu"},
        "reason": None,
        "expires": iso(at + timedelta(hours=8)),
        "renew_until": iso(at + timedelta(days=1)),
        "hold_until": None,
        "last_active": iso(at),
    }


def intended(machine: int) -> dict[str, Any]:
    """Return what the intent of a machine's launch says."""
    beside = {"what": "disk", "nanos_per_month": 8_000_000_000, "at_most": False, "running": True, "kept": True}
    beside |= {"resource": "disk", "stored_as": "gp3", "quantity": 100, "per": "month", "nanos": 80_000_000}
    beside |= {"source": "a list", "as_of": iso(START), "basis": "listed", "why_maybe_less": "", "named": False}
    return {
        "attempt": 1,
        "seq": 1,
        "token": f"{machine:064x}",
        "key": f"key-{machine}",
        "request": "0" * 64,
        "name": f"otter-{machine}",
        "provider": "aws",
        "account": f"account-{machine % 4}",
        "region": "us-east-1",
        "zone": "us-east-1a",
        "instance_type": "g4dn.xlarge",
        "market": "spot",
        "accelerators": [{"name": "T4", "count": 1, "memory_gib": 16.0, "share": 1.0}],
        "price": _price(526_000_000, START),
        "owner": f"owner-{machine % 20}",
        "project": f"project-{machine % 12}",
        "policy": "default",
        "template": "jupyter",
        "expires": iso(START + timedelta(hours=8)),
        "renew_until": iso(START + timedelta(days=1)),
        "renew_s": 86400,
        "stoppable": True,
        "stop_effect": "it keeps its disk",
        "setup": None,
        "attached_costs": [beside],
    }
