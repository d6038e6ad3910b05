"""Connects to a machine over SSH: waits for a new one, finds a new address, explains failures, attaches a volume."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from importlib import import_module

from cloudgpu.access.ssh.connection import Connection, connect, is_retryable
from cloudgpu.access.ssh.jump import check_port
from cloudgpu.control.inventory.retention import record_resources
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.network.authorized_keys import explain_other_home, share_with_this_home
from cloudgpu.control.network.host_keys import pin_confirmed_key, pin_known_key, wait_for_key
from cloudgpu.control.network.reachability import access_blocked_error
from cloudgpu.control.pricing.traffic import read_traffic_counter
from cloudgpu.control.session.session import Session
from cloudgpu.core.launch.attempt import setup_from_json
from cloudgpu.core.model.instances import TAG_LEDGER, TAG_OWNER, TAG_PROJECT
from cloudgpu.core.model.machine import (
    Machine,
    command_name,
    has_retained_resources,
    is_inside_network,
    may_allow_client,
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

READY_TIMEOUT = timedelta(minutes=10)  # for a machine to run, and its SSH server to answer
FIREWALL_CHECK_AFTER_S = 30.0  # most machines answer sooner; after it, the machine's SSH rules are checked


def wait_until_ready(session: Session, machine: Machine) -> Machine:
    """Wait until the machine runs and its SSH server has shown the pinned key; return the updated machine.

    A machine that makes its own host key publishes it through its provider: that key is pinned. Raises Unreachable if
    the machine ended while starting or did not answer within READY_TIMEOUT, WrongHostKey at once, AccessBlocked if its
    SSH rules do not admit this client's address.
    """
    deadline = session.clock() + READY_TIMEOUT
    session.report(f"{machine.name}: waiting for the machine to run")
    import_module("cloudgpu.access.ssh.handshake")  # takes a tenth of a second: better while the machine starts
    machine = _wait_running(session, machine, deadline)
    wait_for_key(session, machine, deadline)
    session.report(f"{machine.name}: verifying SSH against the host key of the launch")
    _wait_for_ssh(session, machine, deadline)
    return machine


def _wait_for_ssh(session: Session, machine: Machine, deadline: datetime) -> None:
    """Wait until the machine's SSH server answers; after FIREWALL_CHECK_AFTER_S, look for a cause."""
    target = session.target(machine)
    try:
        connect(target, timeout=10, wait=min(FIREWALL_CHECK_AFTER_S, _seconds_left(session, deadline))).close()
    except Unreachable as error:
        cause = explain_unreachable(session, machine, error)
        if cause is not error:
            raise cause from error
        if not is_retryable(error):
            raise
        retry_text = f"tried again until {deadline:%H:%M} UTC; it is billed meanwhile"
        session.report(f"{machine.name}: no SSH yet, {retry_text}. {error.message}")
        connect(target, timeout=10, wait=_seconds_left(session, deadline)).close()


def _seconds_left(session: Session, deadline: datetime) -> float:
    return max(1.0, (deadline - session.clock()).total_seconds())


def wait_until_running(session: Session, machine: Machine) -> Machine:
    """Wait until the machine runs; return the updated machine. Raises Unreachable if it ended or was not in time."""
    return _wait_running(session, machine, session.clock() + READY_TIMEOUT, needs_address=False)


def _wait_running(session: Session, machine: Machine, deadline: datetime, *, needs_address: bool = True) -> Machine:
    """Wait until the provider shows the machine running, and an address if needed; return it. Raises Unreachable."""
    pause_s = 0.05
    while True:
        machine = _sync_machine(session, machine)
        if machine.state == "running" and (machine.address or not needs_address):
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
                f"{machine.name} was not running after {int(READY_TIMEOUT.total_seconds() // 60)} minutes "
                f"(last seen {machine.state}).",
                field="name",
                value=machine.name,
                next=f"Run: cloudgpu show {machine.name} --refresh, or: cloudgpu down {command_name(machine)}",
            )
        session.pause(pause_s)
        pause_s = min(2.0, pause_s * 1.25)  # so at most a quarter of the wait is lost after the machine runs


def _sync_machine(session: Session, machine: Machine) -> Machine:
    """Return the machine as its provider reports it; unchanged, with a report, if the provider does not answer."""
    try:
        return refresh(session, machine)
    except LedgerUnavailable:
        raise  # the provider did answer
    except ProviderUnavailable as error:
        session.report(f"{machine.name}: {error.message}; asking again")
        return machine


@contextmanager
def connected_to(session: Session, machine: Machine, *, timeout: float = 10) -> Iterator[Connection]:
    """Yield a verified connection; if that fails, ask the provider once for the machine's address, and retry.

    Each attempt takes at most `timeout` seconds. Another customer's machine may have the old address by now, and shows
    another host key. Raises Unreachable with the machine's state as the reason, InstanceNotFound for one that has
    ended, WrongHostKey if its address is unchanged.
    """
    connection = open_connection(session, machine, timeout=timeout)
    try:
        yield connection
        read_traffic_counter(session, machine, connection)
    finally:
        connection.close()


def open_connection(session: Session, machine: Machine, *, timeout: float = 10) -> Connection:
    """Return a verified connection, as `connected_to` does, to be closed by the caller."""
    check_reachable(session, machine)
    pin_known_key(session, machine)
    try:
        return connect(session.target(machine), timeout=timeout)
    except Unreachable as error:
        machine = refresh_address(session, machine, error)
    try:
        return connect(session.target(machine), timeout=timeout)
    except Unreachable as error:
        cause = explain_unreachable(session, machine, error)
        if cause is error:
            raise
        raise cause from error


def refresh_address(session: Session, machine: Machine, error: Unreachable) -> Machine:
    """Return the machine if it has another address now, or another host key that its user has confirmed.

    Otherwise raises the reason why it cannot be reached.
    """
    latest = _refresh_reachable(session, machine)
    if latest.address == machine.address and not pin_confirmed_key(session, latest):
        raise explain_unreachable(session, latest, error)
    return latest


def explain_unreachable(session: Session, machine: Machine, error: Unreachable) -> Unreachable:
    """Return why a connection failed: SSH is not open to this client's address, or this home's key is not let in."""
    blocked = access_blocked_error(session, machine) if is_retryable(error) else None
    return blocked or explain_other_home(session, machine, error)


def machine_with_address(session: Session, machine: Machine) -> Machine:
    """Return the machine with its current address, for a connection by the system's ssh. Raises as `connected_to`.

    Tries the recorded address if this client can connect directly; otherwise asks the provider.
    """
    check_reachable(session, machine)
    target = session.target(machine)
    pin_known_key(session, machine)
    if is_inside_network(machine) or not may_allow_client(machine):
        return _refresh_reachable(session, machine)
    try:
        check_port(target, timeout=10)
    except Unreachable as error:
        return refresh_address(session, machine, error)
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


def _refresh_reachable(session: Session, machine: Machine) -> Machine:
    """Return the machine as its provider reports it, or as recorded if that fails. Raises as `check_reachable`."""
    with suppress(ProviderUnavailable, InvalidRequest):
        try:
            machine = refresh(session, machine)
        except AuthFailed:
            if not share_with_this_home(
                session, machine
            ):  # of a colleague's shared machine, this home may not have the account
                raise
    check_reachable(session, machine)
    return machine


def attach_volume(session: Session, machine: Machine) -> Machine:
    """Attach the volume of the machine's setup, and create it if it does not exist; return the machine. Idempotent.

    Waits until the machine runs, because only then can it be attached. A machine without a volume is returned at once.
    Raises InvalidRequest for a volume that cannot be attached, Unreachable for a machine that ended meanwhile.
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
