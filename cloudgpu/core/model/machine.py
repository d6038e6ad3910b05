"""What a row of the ledger says of its machine beside its facts. Apart from `keeping`: `ls` pays for every import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cloudgpu.core.values.naming import scope_of

HERE = ("local", "ssh")  # machines that are there already: no part of `any`, which is about what is bought
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


def scopes_of(row: Row) -> tuple[str, str]:
    """Return the subjects under which looks at a machine's account are written: those wholly answered, and others."""
    scope = scope_of_row(row)
    return scope, f"gap:{scope}"


def is_owned(machine: Mapping[str, Any]) -> bool:
    """Say whether a machine stands on a computer of the user's: no cloud bills it, and none has a name for it."""
    return machine["provider"] in HERE


def and_billed(machine: Mapping[str, Any], words: str) -> str:
    """Return `words` for a machine that is rented; nothing for one that its user owns."""
    return "" if is_owned(machine) else words


def may_go_on(machine: Mapping[str, Any]) -> str:
    """Return what may still be the case with a machine whose end is not proved."""
    return "may still run" if is_owned(machine) else "may still be billed"


def unproved(what: str, name: str) -> str:
    """Return what is said of a stop or an end that is not proved yet."""
    return f"The {what} of {name} is not proved: it may still be billed. Run the same command again to finish it."
