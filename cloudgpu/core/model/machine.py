"""What a row of the ledger says of its machine beside its facts. Apart from `keeping`: `ls` pays for every import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cloudgpu.core.values.naming import scope_of

Row = Mapping[str, Any]


def stays(row: Row) -> bool:
    """Say whether something of this machine is kept, though it is gone."""
    return row["ended"] is not None and bool(row["kept"] or row["parked"])


def comes_back(row: Row) -> bool:
    """Say whether this machine is gone and can be started from what is kept of it."""
    return stays(row) and not row["discard"]


def volumes_there(rows: Iterable[Row]) -> frozenset[tuple[str, str]]:
    """Return the volumes that the ledger knows to be there, by their account and name.

    A plan knows its account by name alone; what is launched is held against the account's identity.
    """
    there = [row for row in rows if row["thing"] and row["ended"] is None]
    return frozenset((account, row["name"]) for row in there for account in (account_key(row), row["account"]))


def account_key(row: Row) -> str:
    """Return what tells the account of a row from all others: its identity, whatever a member calls it."""
    identity = row.get("identity")
    return str(row["account"] if identity is None else identity["id"])


def scope_of_row(row: Row) -> str:
    """Return the subject under which looks at the account of a machine, or of a kept thing, are written."""
    identity = row["identity"]
    return scope_of(row["provider"] or "", row["account"] or "" if identity is None else identity["id"])
