"""Pins the host key of a machine that generates its own: read through the provider's API, before the first connection.

No key is ever trusted on first use. A launch that gives a machine its host key has pinned that already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from cloudgpu.access.ssh import client_files
from cloudgpu.control.network.authorized_keys import is_launched_here, not_shared_error, pin_shared
from cloudgpu.control.pricing.price_history import configuration_of
from cloudgpu.control.session.identity import candidate_accounts
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.identity import SSH_HOST
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    InvalidRequest,
    LedgerUnavailable,
    ProviderUnavailable,
    Unreachable,
)
from cloudgpu.providers.abilities import KnowsHostKeys, ReadsHostKeys

KEY_TYPES = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
)  # best first


def generates_host_key(call: Mapping[str, Any]) -> bool:
    """Say whether the machine of a launch generates its host key itself.

    `call` has the exact arguments of the launch (`Resolved.call`). They say then that cloudgpu "reads" the key, through
    the provider's API.
    """
    return bool(call.get("host_key") == "reads")


def pin_launch_key(session: Session, attempt: Attempt) -> None:
    """Pin the host key that the launch gives its machine; where it gives none, unpin that of an earlier attempt."""
    file, key = session.home.known_hosts, attempt.boot.host_public_key
    if key:
        client_files.pin(file, attempt.machine, key)
    else:
        client_files.unpin(file, attempt.machine)


def pin_known_key(session: Session, machine: Machine) -> None:
    """Pin the machine's host key before a connection, without waiting for the machine to report one.

    The key comes with a share, or from the provider's API. Raises Unreachable where the machine has reported none yet,
    and where it was launched from another home and not shared with this one; InstanceNotFound, ProviderUnavailable.
    """
    pin_confirmed_key(session, machine)
    if pin_shared(session, machine):
        return
    try:
        if not has_key_or_no_reader(session, machine):
            keys = _read_keys(session, machine)
            if not _pin_best(session, machine, keys, keys):
                raise _no_host_key_yet(machine)
    except (AuthFailed, InvalidRequest, ProviderUnavailable) as error:
        if is_launched_here(session, machine):
            raise
        raise not_shared_error(session, machine) from error
    if client_files.pinned(session.home.known_hosts, machine.id) is None and not is_launched_here(session, machine):
        raise not_shared_error(session, machine)


def pin_confirmed_key(session: Session, machine: Machine) -> bool:
    """Pin the new host key of an on-premises host for a machine that was launched before; say whether it was pinned.

    The user has confirmed that key for the host (`cloudgpu init`, or their own known_hosts). The host has to present
    it, and to identify itself as the computer of the launch.
    """
    file, identity = session.home.known_hosts, machine.identity
    pinned_key = client_files.pinned(file, machine.id)
    if pinned_key is None or identity is None or identity.kind != SSH_HOST:
        return False
    configured_keys = [_configured_host_key(session, name, machine) for name in candidate_accounts(session, machine)]
    if pinned_key in configured_keys or not any(configured_keys):
        return False
    try:
        key = _configured_host_key(session, session.account_name_here(machine), machine)
    except LedgerUnavailable:
        raise
    except CloudgpuError:  # no host of this home, or one that does not answer: the pinned key stays
        return False
    if key is None or key == pinned_key:
        return False
    client_files.pin(file, machine.id, key)
    session.report(f"{machine.name}: its host has another key than at the launch, which you have confirmed; pinned it")
    return True


def _configured_host_key(session: Session, account: str, machine: Machine) -> str | None:
    """Return the host key that an account's settings have for the host of a machine; None where they lack it."""
    try:
        provider = session.provider(account)
        key = provider.host_key(configuration_of(machine)) if isinstance(provider, KnowsHostKeys) else None
    except InvalidRequest:
        return None
    return None if key is None else client_files.public_key(key)


def wait_for_key(session: Session, machine: Machine, deadline: datetime) -> None:
    """Ask until the machine has reported its host key, and pin it. Raises Unreachable where none came by the deadline.

    A machine reports its keys one after the other: one of a less preferred type is pinned when it is reported twice.
    """
    if has_key_or_no_reader(session, machine):
        return
    session.report(f"{machine.name}: reading its host key through the provider's API")
    pause_s: float = 1.0
    previous: Sequence[str] = ()
    while not _pin_best(session, machine, reported := _reported_keys(session, machine), previous):
        if session.clock() >= deadline:
            raise _no_host_key_yet(machine)
        previous = reported
        session.pause(pause_s)
        pause_s = min(5.0, pause_s * 1.5)


def has_key_or_no_reader(session: Session, machine: Machine) -> bool:
    """Say whether there is no key to wait for: one is pinned, or the provider can read none (the login fails then)."""
    is_pinned = client_files.pinned(session.home.known_hosts, machine.id) is not None
    return is_pinned or not isinstance(session.provider_of(machine), ReadsHostKeys)


def _read_keys(session: Session, machine: Machine) -> Sequence[str]:
    return cast("ReadsHostKeys", session.provider_of(machine)).host_keys(not_none(machine.provider_id))


def _reported_keys(session: Session, machine: Machine) -> Sequence[str]:
    """Return the keys that the provider reports now; none where it does not answer."""
    try:
        return _read_keys(session, machine)
    except ProviderUnavailable as error:
        session.report(f"{machine.name}: {error.message}; asking again")
        return ()


def _pin_best(session: Session, machine: Machine, reported: Sequence[str], previous: Sequence[str]) -> bool:
    """Pin the preferred one of the reported keys, and say whether there was one to pin.

    A key of a less preferred type has to be in `previous`, the keys of the question before, too.
    """
    keys = [line for line in reported if client_files.is_public_key(line) and _key_type(line) in KEY_TYPES]
    eligible = [line for line in keys if line in previous or _key_type(line) == KEY_TYPES[0]]
    if eligible:
        best = min(eligible, key=lambda line: KEY_TYPES.index(_key_type(line)))
        client_files.pin(session.home.known_hosts, machine.id, best)
    return bool(eligible)


def _key_type(line: str) -> str:
    return line.split(" ", 1)[0]


def _no_host_key_yet(machine: Machine) -> Unreachable:
    return Unreachable(
        f"{machine.name} has not reported its host key yet, so cloudgpu cannot verify it and did not connect.",
        field="known_hosts",
        value=machine.id,
        next=f"It may still be booting: try cloudgpu ssh {machine.name} in a minute.",
    )
