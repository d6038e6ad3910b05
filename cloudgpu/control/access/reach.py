"""Reaches a machine over SSH: waits for a new one and its volume, finds one that has moved, says why one cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from importlib import import_module

from cloudgpu.access.ssh.connection import Connection, connect, retryable
from cloudgpu.access.ssh.jump import knock
from cloudgpu.control.inventory.retention import record_resources
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.network import authorized_keys as guest
from cloudgpu.control.network.host_keys import pin_confirmed, pin_known_key, wait_for_key
from cloudgpu.control.network.reachability import access_blocked_error
from cloudgpu.control.pricing.traffic import read_counter
from cloudgpu.control.session.session import Session
from cloudgpu.core.launch.attempt import setup_from_json
from cloudgpu.core.model.instances import TAG_LEDGER, TAG_OWNER, TAG_PROJECT
from cloudgpu.core.model.machine import (
    Machine,
    command_name,
    has_retained_resources,
    is_behind,
    may_let_us_in,
    not_none,
)
from cloudgpu.core.values.naming import tag_value
from cloudgpu.errors import (
    AuthFailed,
    InvalidRequest,
    LedgerUnavailable,
    ProviderUnavailable,
    Unreachable,
)
from cloudgpu.providers.abilities import HasVolumes
from cloudgpu.views.ended import ended_error

READY_WITHIN = timedelta(minutes=10)
DOOR_AFTER_S = 30.0  # most machines answer sooner; from then on it is looked whether they are open to us at all


def wait_until_ready(session: Session, machine: Machine) -> Machine:
    """Wait until the machine runs and its SSH server has shown the pinned key; return the updated machine.

    One that makes its own key has told it to its provider before: that is pinned then. Raises Unreachable when it ended
    while starting or did not answer in time, WrongHostKey at once, AccessBlocked where it runs and is not open to this
    client's address.
    """
    deadline = session.clock() + READY_WITHIN
    session.report(f"{machine.name}: waiting for the machine to run")
    import_module("cloudgpu.access.ssh.handshake")  # a tenth of a second: spent while the machine starts, not after
    machine = _wait_running(session, machine, deadline)
    wait_for_key(session, machine, deadline)
    session.report(f"{machine.name}: verifying SSH against the host key of the launch")
    _wait_for_ssh(session, machine, deadline)
    return machine


def _wait_for_ssh(session: Session, machine: Machine, deadline: datetime) -> None:
    target = session.target(machine)
    try:
        connect(target, timeout=10, wait=min(DOOR_AFTER_S, _left(session, deadline))).close()
    except Unreachable as error:
        found = explain_unreachable(session, machine, error)
        if found is not error:
            raise found from error
        if not retryable(error):
            raise
        until = f"tried again until {deadline:%H:%M} UTC; it is billed meanwhile"
        session.report(f"{machine.name}: no SSH yet, {until}. {error.message}")
        connect(target, timeout=10, wait=_left(session, deadline)).close()


def _left(session: Session, deadline: datetime) -> float:
    return max(1.0, (deadline - session.clock()).total_seconds())


def wait_until_running(session: Session, machine: Machine) -> Machine:
    """Wait until the machine runs; return the updated machine. Raises Unreachable if it ended or was not in time."""
    return _wait_running(session, machine, session.clock() + READY_WITHIN, addressed=False)


def _wait_running(session: Session, machine: Machine, deadline: datetime, *, addressed: bool = True) -> Machine:
    pause = 0.05
    while True:
        machine = _sync_machine(session, machine)
        if machine.state == "running" and (machine.address or not addressed):
            return machine
        if machine.terminated_at or machine.state in ("stopped", "deallocated", "terminated"):
            raise Unreachable(
                f"{machine.name} ended while it was starting: {machine.state_reason or 'the provider gave no reason'}.",
                field="name",
                value=machine.name,
                next="See what the reason says, then run up again.",
            )
        if session.clock() >= deadline:
            raise Unreachable(
                f"{machine.name} was not running after {int(READY_WITHIN.total_seconds() // 60)} minutes "
                f"(last seen {machine.state}).",
                field="name",
                value=machine.name,
                next=f"Run: cloudgpu show {machine.name} --refresh, or: cloudgpu down {command_name(machine)}",
            )
        session.pause(pause)
        pause = min(2.0, pause * 1.25)  # a quarter of the wait, at most, is spent asleep beside a running machine


def _sync_machine(session: Session, machine: Machine) -> Machine:
    """Look once; while a machine starts, a provider that does not answer is asked again until the deadline."""
    try:
        return refresh(session, machine)
    except LedgerUnavailable:
        raise  # the provider did answer
    except ProviderUnavailable as error:
        session.report(f"{machine.name}: {error.message}; asking again")
        return machine


@contextmanager
def reached(session: Session, machine: Machine, *, timeout: float = 10) -> Iterator[Connection]:
    """Yield a verified connection; where the ledger's address is out of date, ask the provider once and retry.

    Somebody else's machine may be at that address by now, and shows another host key. Raises Unreachable with the
    machine's state as the reason, InstanceNotFound for one that has ended, WrongHostKey where it is still there.
    """
    connection = open_connection(session, machine, timeout=timeout)
    try:
        yield connection
        read_counter(session, machine, connection)
    finally:
        connection.close()


def open_connection(session: Session, machine: Machine, *, timeout: float = 10) -> Connection:
    """Return a verified connection, as `reached` does, to be closed by the caller."""
    check_reachable(session, machine)
    pin_known_key(session, machine)
    try:
        return connect(session.target(machine), timeout=timeout)
    except Unreachable as error:
        latest = find_moved(session, machine, error)
    return _connected(session, latest, timeout)


def _connected(session: Session, machine: Machine, timeout: float) -> Connection:
    try:
        return connect(session.target(machine), timeout=timeout)
    except Unreachable as error:
        found = explain_unreachable(session, machine, error)
        if found is error:
            raise
        raise found from error


def find_moved(session: Session, machine: Machine, error: Unreachable) -> Machine:
    """Return the machine where it has another address by now, or another key that its user has confirmed.

    Raises why it cannot be reached otherwise.
    """
    latest = _asked_again(session, machine)
    if latest.address == machine.address and not pin_confirmed(session, latest):
        raise explain_unreachable(session, latest, error)
    return latest


def explain_unreachable(session: Session, machine: Machine, error: Unreachable) -> Unreachable:
    """Return why a connection failed: SSH there is not open to this client's address, or this home was not let in."""
    blocked = access_blocked_error(session, machine) if retryable(error) else None
    return blocked or guest.explain_other_home(session, machine, error)


def reachable_address(session: Session, machine: Machine) -> Machine:
    """Return the machine with the address where it is reached now, for another program: the system's ssh.

    Knocks where this client can get in straight. Elsewhere a knock says nothing, so the provider is asked. Raises as
    `reached`.
    """
    check_reachable(session, machine)
    target = session.target(machine)
    pin_known_key(session, machine)
    if is_behind(machine) or not may_let_us_in(machine):
        return _asked_again(session, machine)
    try:
        knock(target, timeout=10)
    except Unreachable as error:
        return find_moved(session, machine, error)
    return machine


def check_reachable(session: Session, machine: Machine) -> None:
    """Raise the error that says why this machine cannot be reached and what to do; `ended_error` if it has ended."""
    name = machine.name
    if machine.launch_status == "open":
        raise Unreachable(
            f"The launch of {name} was interrupted, and its outcome is not known yet.",
            field="name",
            value=name,
            next="Run the same up again, or: cloudgpu ls --refresh",
        )
    if machine.state in ("stopped", "deallocated", "stopping"):
        raise Unreachable(
            f"{name} is {machine.state}" + (f" ({machine.state_reason})." if machine.state_reason else "."),
            field="name",
            value=name,
            next=f"Run: cloudgpu start {command_name(machine)}",
        )
    if has_retained_resources(machine):
        raise Unreachable(
            f"{name} does not run; only its disk remains.",
            field="name",
            value=name,
            next=f"Run: cloudgpu start {command_name(machine)}",
        )
    if machine.terminated_at:
        raise ended_error(machine, session.clock())


def _asked_again(session: Session, machine: Machine) -> Machine:
    """Return the machine of now, or as it was where its provider says nothing; raise why it cannot be reached."""
    with suppress(ProviderUnavailable, InvalidRequest):
        try:
            machine = refresh(session, machine)
        except AuthFailed:
            if not guest.share_for_us(session, machine):  # a colleague's account need not open here
                raise
    check_reachable(session, machine)
    return machine


def with_volume(session: Session, machine: Machine) -> Machine:
    """Attach the volume of the machine's setup, made where it is not there yet; return the machine. Idempotent.

    Waits until the machine runs, for only then can it be attached. A machine without a volume is returned at once.
    Raises InvalidRequest for a volume that cannot be had, Unreachable for a machine that ended meanwhile.
    """
    volume = setup_from_json(machine.setup.record()).volume if machine.setup else None
    if volume is None:
        return machine
    provider = session.provider_of(machine)
    if not isinstance(provider, HasVolumes):
        return machine
    session.report(f"{machine.name}: attaching the volume {volume.name} as soon as it runs")
    machine = wait_until_running(session, machine)
    tags = {
        TAG_LEDGER: session.ledger.id,
        TAG_OWNER: tag_value(machine.owner or ""),
        TAG_PROJECT: tag_value(machine.project or ""),
    }
    attached = provider.attach(not_none(machine.provider_id), volume, tags)
    record_resources(session, [attached])
    session.report(f"{machine.name}: the volume {volume.name} ({attached.size_gb} GB) is attached; down keeps it")
    return machine
