"""Locks that a living process holds on the server, among clients on several machines; they end with the client.

Each is a session's advisory lock on a connection of its own, so that it ends with the process that made it. A pooler
that shares sessions between clients (PgBouncer's transaction mode) breaks that: `check` notices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from cloudgpu.errors import LedgerUnavailable, LockBusy
from cloudgpu.ledger.postgresql.address import Address
from cloudgpu.ledger.postgresql.connection import connect_to_ledger
from cloudgpu.ledger.postgresql.errors import translated

if TYPE_CHECKING:
    from psycopg import Connection

_LOCKS_OF_KEY = """
FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND classid::bigint = (%(key)s >> 32) & 4294967295 AND objid::bigint = %(key)s & 4294967295"""
_IS_HELD = f"SELECT EXISTS (SELECT 1 {_LOCKS_OF_KEY})"
_IS_HELD_BY_SESSION = f"SELECT EXISTS (SELECT 1 {_LOCKS_OF_KEY} AND pid = pg_backend_pid())"
_HOLDER = f"SELECT application_name FROM pg_stat_activity WHERE pid IN (SELECT pid {_LOCKS_OF_KEY})"  # noqa: S608


@contextmanager
def lock(address: Address, name: str, wait: bool | float) -> Iterator[Connection[Any]]:  # noqa: FBT001
    """Hold the lock `name` exclusively, on the yielded connection; wait for ever (True), not at all, or seconds.

    Raises LockBusy when another client holds it to the end, LedgerUnavailable without the database.
    """
    with translated(address):
        raw, schema, _ = connect_to_ledger(address)
    try:
        with translated(address):
            acquired = _try_lock(raw, lock_key(schema, name), wait)
        if not acquired:
            raise _in_use_error(raw, address, lock_key(schema, name), name, wait)
        yield raw
    finally:
        _unlock(raw)
        raw.close()


def is_locked(raw: Connection[Any], schema: str, name: str) -> bool:
    """Return whether a living client holds the lock now. Takes no lock itself. Raises psycopg.Error."""
    (found,) = raw.execute(_IS_HELD, {"key": lock_key(schema, name)}).fetchone() or (False,)
    return bool(found)


def check(raw: Connection[Any], address: Address, schema: str, name: str) -> None:
    """Raise LedgerUnavailable unless this connection still holds the lock: the way to the server may have broken."""
    import psycopg

    try:
        if raw.execute(_IS_HELD_BY_SESSION, {"key": lock_key(schema, name)}).fetchone() == (True,):
            return
    except psycopg.Error:
        pass
    raise LedgerUnavailable(
        f"The connection to the ledger {address.location} broke while it held the lock {name!r}: nothing was sent.",
        field="lock",
        value=name,
        next="Run the same again: it checks first what has already been done.",
    )


def lock_key(schema: str, name: str) -> int:
    """Return the lock's key: a bigint that two names share by no accident."""
    digest = hashlib.sha256(f"{schema}\n{name}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _try_lock(raw: Connection[Any], key: int, wait: bool | float) -> bool:  # noqa: FBT001
    import psycopg

    if wait is not True and wait <= 0:
        return raw.execute("SELECT pg_try_advisory_lock(%s)", (key,)).fetchone() == (True,)
    timeout_ms = 0 if wait is True else max(1, int(wait * 1000))  # milliseconds; 0 is for ever
    raw.execute("SELECT set_config('lock_timeout', %s, false)", (str(timeout_ms),))
    try:
        raw.execute("SELECT pg_advisory_lock(%s)", (key,))
    except psycopg.errors.LockNotAvailable:
        return False
    return True


def _unlock(raw: Connection[Any]) -> None:
    """Unlock and wait for the answer: a connection that is only closed holds its locks a little longer."""
    import psycopg

    with suppress(psycopg.Error):
        raw.execute("SELECT pg_advisory_unlock_all()")


def _in_use_error(
    raw: Connection[Any],
    address: Address,
    key: int,
    name: str,
    wait: bool | float,  # noqa: FBT001
) -> LockBusy:
    with translated(address):
        (holder,) = raw.execute(_HOLDER, {"key": key}).fetchone() or ("",)
    return LockBusy(
        f"Another cloudgpu command{f' ({holder})' if holder else ''} is at work on {name!r}; waited {float(wait):g} "
        "seconds.",
        field="lock",
        value=name,
        next="Wait until it has ended, then try again.",
    )
