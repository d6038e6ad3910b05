"""Reaches a machine over SSH: waits for a new one, finds one that has moved, says why one cannot be reached."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cloudgpu.access.connection import Connection, connect
from cloudgpu.access.keys import ClientKey
from cloudgpu.access.keys import client_key as make_client_key
from cloudgpu.control.look import refresh
from cloudgpu.control.session import Session
from cloudgpu.core.times import minute
from cloudgpu.errors import (
    InstanceNotFound,
    InvalidRequest,
    LedgerUnavailable,
    ProviderUnavailable,
    Unreachable,
    WrongHostKey,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

Row = dict[str, Any]
READY_WITHIN = timedelta(minutes=10)


def client_key(session: Session) -> ClientKey:
    """Return the key that logs in to every machine, made on first use."""
    return make_client_key(session.home.keys)


def wait_until_ready(session: Session, row: Row) -> Row:
    """Wait until the machine runs and its SSH server has shown the pinned key; return the new row.

    Raises Unreachable when it ended while starting or did not answer in time, WrongHostKey at once.
    """
    deadline = session.clock() + READY_WITHIN
    session.tell(f"{row['name']}: waiting for the machine to run")
    import_module("cloudgpu.access.handshake")  # a tenth of a second: spent while the machine starts, not after
    row = _wait_running(session, row, deadline)
    session.tell(f"{row['name']}: verifying SSH against the host key of the launch")
    target = session.target(row)
    connect(target, timeout=10, wait=max(1.0, (deadline - session.clock()).total_seconds())).close()
    return row


def _wait_running(session: Session, row: Row, deadline: Any) -> Row:
    pause = 0.05
    while True:
        row = _look(session, row)
        if row["state"] == "running" and row["address"]:
            return row
        if row["ended"] or row["state"] in ("stopped", "deallocated", "terminated"):
            raise Unreachable(
                f"{row['name']} ended while it was starting: {row['reason'] or 'the provider gave no reason'}.",
                field="name",
                value=row["name"],
                next="See what the reason says, then run up again.",
            )
        if session.clock() >= deadline:
            raise Unreachable(
                f"{row['name']} was not running after {int(READY_WITHIN.total_seconds() // 60)} minutes "
                f"(last seen {row['state']}).",
                field="name",
                value=row["name"],
                next=f"Run: cloudgpu show {row['name']} --refresh, or: cloudgpu down {row['name']}",
            )
        session.pause(pause)
        pause = min(2.0, pause * 1.25)  # a quarter of the wait, at most, is spent asleep beside a running machine


def _look(session: Session, row: Row) -> Row:
    """Look once; while a machine starts, a provider that does not answer is asked again until the deadline."""
    try:
        return refresh(session, row)
    except LedgerUnavailable:
        raise  # the provider did answer
    except ProviderUnavailable as fault:
        session.tell(f"{row['name']}: {fault.message}; asking again")
        return row


@contextmanager
def reached(session: Session, row: Row, *, timeout: float = 10) -> Iterator[Connection]:
    """Yield a verified connection; where the ledger's address is out of date, ask the provider once and retry.

    Raises Unreachable with the machine's state as the reason, WrongHostKey without a second try.
    """
    connection = open_connection(session, row, timeout=timeout)
    try:
        yield connection
    finally:
        connection.close()


def open_connection(session: Session, row: Row, *, timeout: float = 10) -> Connection:
    """Return a verified connection, as `reached` does, to be closed by the caller."""
    check_reachable(row)
    try:
        return connect(session.target(row), timeout=timeout)
    except WrongHostKey:
        raise
    except Unreachable:
        latest = _latest(session, row)
        check_reachable(latest)
        if latest["address"] == row["address"]:
            raise
        return connect(session.target(latest), timeout=timeout)


def check_reachable(row: Row) -> None:
    """Raise the error that says why this machine cannot be reached and what to do."""
    name = row["name"]
    if row["attempt"] == "open":
        raise Unreachable(
            f"The launch of {name} was interrupted and is not settled.",
            field="name",
            value=name,
            next="Run the same up again, or: cloudgpu ls --refresh",
        )
    if row["state"] in ("stopped", "deallocated", "stopping"):
        raise Unreachable(
            f"{name} is {row['state']}" + (f" ({row['reason']})." if row["reason"] else "."),
            field="name",
            value=name,
            next=f"Run: cloudgpu start {name}",
        )
    if row["ended"]:
        raise InstanceNotFound(
            f"{name} ended at {minute(row['ended'])}.", field="name", value=name, next="Run: cloudgpu up"
        )


def _latest(session: Session, row: Row) -> Row:
    try:
        return refresh(session, row)
    except (ProviderUnavailable, InvalidRequest):
        return row
