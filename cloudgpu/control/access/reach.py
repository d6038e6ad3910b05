"""Reaches a machine over SSH: waits for a new one, finds one that has moved, says why one cannot be reached."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING

from cloudgpu.access.keys import ClientKey
from cloudgpu.access.keys import client_key as make_client_key
from cloudgpu.access.ssh.connection import Connection, connect, passing
from cloudgpu.access.ssh.dial import knock
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.network import authorized_keys as guest
from cloudgpu.control.network.host_keys import pin_confirmed, pin_known_key, wait_for_key
from cloudgpu.control.network.reachability import closed
from cloudgpu.control.pricing.traffic import count
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.machine import Machine, is_behind, may_let_us_in, stays
from cloudgpu.errors import (
    AuthFailed,
    InvalidRequest,
    LedgerUnavailable,
    ProviderUnavailable,
    Unreachable,
)
from cloudgpu.views.ended import gone

if TYPE_CHECKING:
    from collections.abc import Iterator

READY_WITHIN = timedelta(minutes=10)
DOOR_AFTER_S = 30.0  # most machines answer sooner; from then on it is looked whether they are open to us at all


def client_key(session: Session) -> ClientKey:
    """Return the key that logs in to every machine, made on first use."""
    return make_client_key(session.home.keys)


def wait_until_ready(session: Session, row: Machine) -> Machine:
    """Wait until the machine runs and its SSH server has shown the pinned key; return the new row.

    One that makes its own key has told it to its provider before: that is pinned then. Raises Unreachable when it ended
    while starting or did not answer in time, WrongHostKey at once, AccessBlocked where it runs and is not open to this
    client's address.
    """
    deadline = session.clock() + READY_WITHIN
    session.tell(f"{row.name}: waiting for the machine to run")
    import_module("cloudgpu.access.ssh.handshake")  # a tenth of a second: spent while the machine starts, not after
    row = _wait_running(session, row, deadline)
    wait_for_key(session, row, deadline)
    session.tell(f"{row.name}: verifying SSH against the host key of the launch")
    _wait_for_ssh(session, row, deadline)
    return row


def _wait_for_ssh(session: Session, row: Machine, deadline: datetime) -> None:
    target = session.target(row)
    try:
        connect(target, timeout=10, wait=min(DOOR_AFTER_S, _left(session, deadline))).close()
    except Unreachable as fault:
        found = explained(session, row, fault)
        if found is not fault:
            raise found from fault
        if not passing(fault):
            raise
        connect(target, timeout=10, wait=_left(session, deadline)).close()


def _left(session: Session, deadline: datetime) -> float:
    return max(1.0, (deadline - session.clock()).total_seconds())


def wait_until_running(session: Session, row: Machine) -> Machine:
    """Wait until the machine runs; return the new row. Raises Unreachable when it ended or did not run in time."""
    return _wait_running(session, row, session.clock() + READY_WITHIN, addressed=False)


def _wait_running(session: Session, row: Machine, deadline: datetime, *, addressed: bool = True) -> Machine:
    pause = 0.05
    while True:
        row = _look(session, row)
        if row.state == "running" and (row.address or not addressed):
            return row
        if row.terminated_at or row.state in ("stopped", "deallocated", "terminated"):
            raise Unreachable(
                f"{row.name} ended while it was starting: {row.state_reason or 'the provider gave no reason'}.",
                field="name",
                value=row.name,
                next="See what the reason says, then run up again.",
            )
        if session.clock() >= deadline:
            raise Unreachable(
                f"{row.name} was not running after {int(READY_WITHIN.total_seconds() // 60)} minutes "
                f"(last seen {row.state}).",
                field="name",
                value=row.name,
                next=f"Run: cloudgpu show {row.name} --refresh, or: cloudgpu down {row.name}",
            )
        session.pause(pause)
        pause = min(2.0, pause * 1.25)  # a quarter of the wait, at most, is spent asleep beside a running machine


def _look(session: Session, row: Machine) -> Machine:
    """Look once; while a machine starts, a provider that does not answer is asked again until the deadline."""
    try:
        return refresh(session, row)
    except LedgerUnavailable:
        raise  # the provider did answer
    except ProviderUnavailable as fault:
        session.tell(f"{row.name}: {fault.message}; asking again")
        return row


@contextmanager
def reached(session: Session, row: Machine, *, timeout: float = 10) -> Iterator[Connection]:
    """Yield a verified connection; where the ledger's address is out of date, ask the provider once and retry.

    Somebody else's machine may be at that address by now, and shows another host key. Raises Unreachable with the
    machine's state as the reason, InstanceNotFound for one that has ended, WrongHostKey where it is still there.
    """
    connection = open_connection(session, row, timeout=timeout)
    try:
        yield connection
        count(session, row, connection)
    finally:
        connection.close()


def open_connection(session: Session, row: Machine, *, timeout: float = 10) -> Connection:
    """Return a verified connection, as `reached` does, to be closed by the caller."""
    check_reachable(session, row)
    pin_known_key(session, row)
    try:
        return connect(session.target(row), timeout=timeout)
    except Unreachable as fault:
        latest = moved(session, row, fault)
    return _connected(session, latest, timeout)


def _connected(session: Session, row: Machine, timeout: float) -> Connection:
    try:
        return connect(session.target(row), timeout=timeout)
    except Unreachable as fault:
        found = explained(session, row, fault)
        if found is fault:
            raise
        raise found from fault


def moved(session: Session, row: Machine, fault: Unreachable) -> Machine:
    """Return the machine's row where it has another address by now, or another key that its user has confirmed.

    Raises why it cannot be reached otherwise.
    """
    latest = _asked_again(session, row)
    if latest.address == row.address and not pin_confirmed(session, latest):
        raise explained(session, latest, fault)
    return latest


def explained(session: Session, row: Machine, fault: Unreachable) -> Unreachable:
    """Return why a connection failed: SSH there is not open to this client's address, or this home was not let in."""
    return (closed(session, row) if passing(fault) else None) or guest.explained(session, row, fault)


def find_way(session: Session, row: Machine) -> Machine:
    """Return the machine's row as it can be reached now, for somebody else who connects: the system's ssh.

    Knocks where this client can get in straight. Elsewhere a knock says nothing, so the provider is asked. Raises as
    `reached`.
    """
    check_reachable(session, row)
    target = session.target(row)
    pin_known_key(session, row)
    if is_behind(row) or not may_let_us_in(row):
        return _asked_again(session, row)
    try:
        knock(target, timeout=10)
    except Unreachable as fault:
        return moved(session, row, fault)
    return row


def check_reachable(session: Session, row: Machine) -> None:
    """Raise the error that says why this machine cannot be reached and what to do; `gone` for one that has ended."""
    name = row.name
    if row.launch_status == "open":
        raise Unreachable(
            f"The launch of {name} was interrupted, and its outcome is not known yet.",
            field="name",
            value=name,
            next="Run the same up again, or: cloudgpu ls --refresh",
        )
    if row.state in ("stopped", "deallocated", "stopping"):
        raise Unreachable(
            f"{name} is {row.state}" + (f" ({row.state_reason})." if row.state_reason else "."),
            field="name",
            value=name,
            next=f"Run: cloudgpu start {name}",
        )
    if stays(row):
        raise Unreachable(
            f"{name} does not run; only its disk remains.",
            field="name",
            value=name,
            next=f"Run: cloudgpu start {name}",
        )
    if row.terminated_at:
        raise gone(row, session.clock())


def _asked_again(session: Session, row: Machine) -> Machine:
    """Return the machine's row of now, or as it was where its provider says nothing; raise why it cannot be reached."""
    with suppress(ProviderUnavailable, InvalidRequest):
        try:
            row = refresh(session, row)
        except AuthFailed:
            if not guest.let_in(session, row):  # a colleague's account need not open here
                raise
    check_reachable(session, row)
    return row
