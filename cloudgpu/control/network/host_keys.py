"""Pins the host key of a machine that makes its own: read through the provider's API, before the first connection.

Nothing is ever trusted because it was shown first. A launch that gives a machine its key has pinned that already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from cloudgpu.access.ssh import client_files
from cloudgpu.control.network.authorized_keys import is_launched_here, not_let_in, pin_shared
from cloudgpu.control.pricing.price_history import available
from cloudgpu.control.session.identity import names_of
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.identity import BY_REGION
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

KINDS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")  # best first


def makes_its_own(call: Mapping[str, Any]) -> bool:
    """Say whether a launch that was looked up (`Resolved.call`) can give its machine no host key."""
    return bool(call.get("host_key") == "reads")


def pin_given(session: Session, attempt: Attempt) -> None:
    """Pin the key that the launch gives its machine; where it gives none, forget what an earlier machine showed."""
    file, key = session.home.known_hosts, attempt.boot.host_public_key
    if key:
        client_files.pin(file, attempt.machine, key)
    else:
        client_files.unpin(file, attempt.machine)


def pin_known_key(session: Session, machine: Machine) -> None:
    """Make sure that a key is pinned where one can be had: for whoever connects now, and waits for nothing.

    The key comes with a share, or its provider tells it. Raises Unreachable where the machine has told none yet, and
    where it was launched from another home and not shared with this one; InstanceNotFound, ProviderUnavailable.
    """
    pin_confirmed(session, machine)
    if pin_shared(session, machine):
        return
    try:
        if not is_known(session, machine):
            keys = _reader(session, machine).host_keys(not_none(machine.provider_id))
            if not _pinned(session, machine, keys, keys):
                raise _untold(machine)
    except (AuthFailed, InvalidRequest, ProviderUnavailable) as error:
        if is_launched_here(session, machine):
            raise
        raise not_let_in(session, machine) from error
    if client_files.pinned(session.home.known_hosts, machine.id) is None and not is_launched_here(session, machine):
        raise not_let_in(session, machine)


def pin_confirmed(session: Session, machine: Machine) -> bool:
    """Pin an own host's new key for a machine that was launched before, and say whether there was one to pin.

    Its user has confirmed that key for the host (`cloudgpu init`, or the own known_hosts), and the host has to show it
    and be the computer of the launch by its own word: no key is taken because somebody shows it.
    """
    file, identity = session.home.known_hosts, machine.identity
    before = client_files.pinned(file, machine.id)
    if before is None or identity is None or identity.kind != BY_REGION:
        return False
    confirmed = [_confirmed(session, name, machine) for name in names_of(session, machine)]
    if before in confirmed or not any(confirmed):
        return False
    try:
        key = _confirmed(session, session.account_here(machine), machine)
    except LedgerUnavailable:
        raise
    except CloudgpuError:  # it is no host of this home, or not one that can be asked: the key stays as it is
        return False
    if key is None or key == before:
        return False
    client_files.pin(file, machine.id, key)
    session.report(f"{machine.name}: its host has another key than at the launch, which you have confirmed; pinned it")
    return True


def _confirmed(session: Session, account: str, machine: Machine) -> str | None:
    """Return the host key that the settings of an account have for the host of a machine; None for no such host."""
    try:
        provider = session.provider(account)
        key = provider.host_key(available(machine)) if isinstance(provider, KnowsHostKeys) else None
    except InvalidRequest:
        return None
    return None if key is None else client_files.public_key(key)


def wait_for_key(session: Session, machine: Machine, deadline: datetime) -> None:
    """Ask until the machine has told its host key, and pin it. Raises Unreachable where it has told none in time.

    A machine tells its keys one after the other: one of a lesser kind is taken when it stands there a second time.
    """
    if is_known(session, machine):
        return
    session.report(f"{machine.name}: reading its host key through the provider's API")
    pause: float = 1.0
    before: Sequence[str] = ()
    while not _pinned(session, machine, lines := _reported_keys(session, machine), before):
        if session.clock() >= deadline:
            raise _untold(machine)
        before = lines
        session.pause(pause)
        pause = min(5.0, pause * 1.5)


def is_known(session: Session, machine: Machine) -> bool:
    """Say whether a key is pinned, or nobody could tell one: who connects then says so."""
    if client_files.pinned(session.home.known_hosts, machine.id) is not None:
        return True
    return not isinstance(session.provider_of(machine), ReadsHostKeys)


def _reader(session: Session, machine: Machine) -> ReadsHostKeys:
    return cast("ReadsHostKeys", session.provider_of(machine))


def _reported_keys(session: Session, machine: Machine) -> Sequence[str]:
    """Ask once; a provider that does not answer is asked again until the deadline."""
    try:
        return _reader(session, machine).host_keys(not_none(machine.provider_id))
    except ProviderUnavailable as error:
        session.report(f"{machine.name}: {error.message}; asking again")
        return ()


def _pinned(session: Session, machine: Machine, lines: Sequence[str], before: Sequence[str]) -> bool:
    """Pin the best of the keys that were told, and say whether there was one to pin."""
    keys = [line for line in lines if client_files.is_public_key(line) and _kind(line) in KINDS]
    good = [line for line in keys if line in before or _kind(line) == KINDS[0]]
    if not good:
        return False
    client_files.pin(session.home.known_hosts, machine.id, min(good, key=lambda line: KINDS.index(_kind(line))))
    return True


def _kind(line: str) -> str:
    return line.split(" ", 1)[0]


def _untold(machine: Machine) -> Unreachable:
    return Unreachable(
        f"{machine.name} has not reported its host key yet, so cloudgpu cannot verify it and did not connect.",
        field="known_hosts",
        value=machine.id,
        next=f"It may still be booting: try cloudgpu ssh {machine.name} in a minute.",
    )
