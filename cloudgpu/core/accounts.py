"""Accounts that were retired: what the ledger says of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from cloudgpu.core.events import Draft, Event
from cloudgpu.core.rows import Row, stays
from cloudgpu.core.times import iso

SUBJECT, FORGOTTEN = "accounts", "account_forgotten"


def forgotten_at(lines: Iterable[Event], who: str) -> dict[str, str]:
    """Return when `who` retired each account, by its name there, as ledger time; `lines` are those of `SUBJECT`.

    What another member calls by that name may be another account.
    """
    own = (line for line in lines if line.kind == FORGOTTEN and line.actor == who)
    return {str(line.body["account"]): line.occurred_at for line in own}


def retired_at(lines: Iterable[Event]) -> dict[str, str]:
    """Return when each account was retired, by its identity, as ledger time."""
    return {one: line.occurred_at for line in lines if line.kind == FORGOTTEN for one in line.body["identities"]}


def forgetting(account: str, provider: str, rows: Iterable[Row], host: str, now: datetime) -> Draft:
    """Return the line that retires an account; `rows` are what the ledger knows of it."""
    identities = sorted({str(row["identity"]["id"]) for row in rows if row["identity"]})
    body = {"account": account, "provider": provider, "identities": identities, "why": "asked", "host": host}
    return Draft(FORGOTTEN, SUBJECT, body, now, f"forgotten:{account}:{iso(now)}")


def may_cost(row: Row) -> str | None:
    """Return what of this row (a machine's, or a kept thing's) may cost something now, as words; None for nothing."""
    if row["thing"]:
        return None if row["ended"] else f"{row['name'] or row['id']} ({row['state']}) is kept"
    if row["ended"] is None:
        return f"{row['name']} {_state(row)}"
    return f"of {row['name']} a disk or an image is kept" if stays(row) else None


def is_unknown(row: Row) -> bool:
    """Say whether nobody knows if the machine of this row is there."""
    return not row["thing"] and row["ended"] is None and (row["attempt"] == "open" or row["state"] == "unknown")


def _state(row: dict[str, Any] | Row) -> str:
    if row["attempt"] == "open":
        return "is an unfinished launch: whether it made a machine is not known"
    return "is not known to have ended" if row["state"] == "unknown" else f"is {row['state']}"
