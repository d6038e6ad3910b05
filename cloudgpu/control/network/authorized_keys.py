"""A machine that was launched from another home: whether this home's key may log in there, and what to do if not.

`share` writes into the ledger whose key may log in, and the machine's host key, which is pinned here before the first
connection. In a team only the events of those who may share the machine count, by the name that the database signs them
with. A host key that this home pinned at its own launch is never replaced by a shared one; a later share replaces the
key of an earlier share.
"""

from __future__ import annotations

from contextlib import suppress

from cloudgpu.access.ssh import client_files
from cloudgpu.access.ssh.authorized_keys import SharedPublicKey, parse_public_key
from cloudgpu.access.ssh.client_files import client_key
from cloudgpu.access.ssh.target import KeyRefused, LoginRefused
from cloudgpu.control.session.base import is_mine
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import authorization_of
from cloudgpu.core.model.facts import SharedKey
from cloudgpu.core.model.identity import account_text
from cloudgpu.core.model.machine import Machine, is_inside_network, may_allow_client
from cloudgpu.core.team.rights import Role
from cloudgpu.core.values.naming import digest
from cloudgpu.errors import Unreachable, WrongHostKey
from cloudgpu.ledger import saved_calls as saved


def own_key(session: Session) -> SharedPublicKey:
    """Return the public half of this home's SSH key, as `share` takes it; the key is made on first use."""
    return parse_public_key(client_key(session.home.keys).public_line)


def address_label(machine: Machine, key: SharedPublicKey) -> str:
    """Return the label of a key holder's address among the addresses that a machine's SSH is open to."""
    return f"{machine.id}.{digest(key.line)[:8]}"


def is_launched_here(session: Session, machine: Machine) -> bool:
    """Say whether this home launched it: its saved launch call, with its token, is kept until it is proved gone."""
    return machine.token in {token for token, _ in saved.all_saved(session.home.attempts)}


def share_with_this_home(session: Session, machine: Machine) -> SharedKey | None:
    """Return how a machine from another home was shared with this home's key; None where it was not."""
    if not machine.shared or is_launched_here(session, machine):
        return None
    return machine.shared.get(own_key(session).fingerprint)


def pin_shared(session: Session, machine: Machine) -> bool:
    """Pin the host key of the latest share where none, or that of an earlier share, is pinned.

    Returns whether the machine has a pinned host key then. A machine that was restored from its image has a new host
    key, which comes with the next share.
    """
    pinned = client_files.pinned(session.home.known_hosts, machine.id)
    share = share_with_this_home(session, machine)
    if share is None or not share.host_key or share.host_key == pinned:
        return pinned is not None
    host_keys = _shared_host_keys(session, machine)
    if host_keys and (pinned is None or pinned in host_keys[:-1]):
        client_files.pin(session.home.known_hosts, machine.id, host_keys[-1])
        return True
    return pinned is not None


def _shared_host_keys(session: Session, machine: Machine) -> list[str]:
    """Return the host keys that were shared together with access for this home's key, the latest last.

    In a team only the shares of the machine's owner, of whoever launched it, and of payers (who administer the lab's
    budgets) count. The machine's first event in the ledger says who owns it: a later one may be forged.
    """
    events, fingerprint = list(session.ledger.events(machine.id)), own_key(session).fingerprint
    shares = [
        event
        for event in events
        if event.kind == "machine_shared" and event.body["key"] == fingerprint and event.body["host_key"]
    ]
    authorization = authorization_of(session)
    if authorization.role is not Role.ALONE:  # ALONE: a ledger that nobody shares
        first_event = next((event for event in events if event.kind in ("launch_intended", "machine_adopted")), None)
        sharers = {*session.ledger.payers()}
        if first_event is not None and first_event.kind == "launch_intended":
            sharers.add(first_event.actor)
        owner = first_event.body["owner"] if first_event is not None else None
        shares = [event for event in shares if event.actor in sharers or authorization.people.owns(event.actor, owner)]
    return [event.body["host_key"] for event in shares]


def explain_other_home(session: Session, machine: Machine, error: Unreachable) -> Unreachable:
    """Return the error of a failed connection, with what to do where the machine was launched from another home."""
    if is_launched_here(session, machine):
        return error
    if isinstance(error, LoginRefused):
        return not_shared_error(session, machine) if isinstance(error, KeyRefused) else error
    if isinstance(error, WrongHostKey):
        if share_with_this_home(session, machine):
            share_instructions = _share_instructions(session, machine)
            error.next = f"Nothing was sent to it. If its host key was changed on purpose: {share_instructions}"
    elif machine.provider == "local":
        error.next = f"It answers only on the computer that it runs on ({account_text(machine)}): run this there."
    elif share_with_this_home(session, machine) and may_allow_client(machine) and not is_inside_network(machine):
        share_instructions = _share_instructions(session, machine)
        error.next = f"If it runs, its cloud may keep your address out. {share_instructions} --from YOUR-ADDRESS"
    return error


def not_shared_error(session: Session, machine: Machine) -> KeyRefused:
    """Return the error for a machine that was launched from another home and not shared with this one."""
    origin = f"is {machine.owner}'s" if _is_colleagues(session, machine) else "was launched from another home"
    return KeyRefused(
        f"{machine.name} {origin}, and the key of this home was not let in there.",
        field="name",
        value=machine.name,
        next=_share_instructions(session, machine),
    )


def _share_instructions(session: Session, machine: Machine) -> str:
    """Return how this home gets access, as a sentence: who has to run which command, with which file."""
    with suppress(OSError):
        own_key(session)  # made now, so that the file is there
    file = session.client_key_file.with_suffix(".pub")
    to_home = f"Copy {file} to that home and run there"
    request = f"Send {machine.owner} {file}; they run" if _is_colleagues(session, machine) else to_home
    return f"{request}: cloudgpu share {machine.name} --key {file.name}"


def _is_colleagues(session: Session, machine: Machine) -> bool:
    """Say whether a machine has another owner than this home."""
    return bool(machine.owner) and not is_mine(session, machine)
