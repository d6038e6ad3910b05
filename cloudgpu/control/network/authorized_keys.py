"""A machine that was launched from another home: whether this home's key was let in there, and what to do if not.

`share` writes into the ledger whose key was let in, and the machine's host key: that is pinned here before the first
connection. In a team only the lines of those who may share it count, by the name that the database signs them with.
What this home launched itself is never replaced by it; what came with an earlier share is, by a later one's.
"""

from __future__ import annotations

from contextlib import suppress

from cloudgpu.access.ssh import client_files
from cloudgpu.access.ssh.authorized_keys import GuestKey, guest_key
from cloudgpu.access.ssh.client_files import client_key
from cloudgpu.access.ssh.target import AccessBlocked, LoginRefused
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import authorization_of
from cloudgpu.core.model.facts import SharedKey
from cloudgpu.core.model.identity import account_text
from cloudgpu.core.model.machine import Machine, is_behind, may_let_us_in
from cloudgpu.core.team.rights import Role
from cloudgpu.core.values.naming import digest
from cloudgpu.errors import Unreachable, WrongHostKey
from cloudgpu.ledger import saved_calls as saved


def own_key(session: Session) -> GuestKey:
    """Return the public half of this home's key, as `share` takes it; made on first use."""
    return guest_key(client_key(session.home.keys).public_line)


def label_of(machine: Machine, key: GuestKey) -> str:
    """Return what a key's address is called among those that a machine is open to, wherever it is."""
    return f"{machine.id}.{digest(key.line)[:8]}"


def is_launched_here(session: Session, machine: Machine) -> bool:
    """Say whether this home has the call that launched it: that is kept until the end is proved."""
    return machine.token in {token for token, _ in saved.unresolved(session.home.attempts)}


def let_in(session: Session, machine: Machine) -> SharedKey | None:
    """Return what the ledger says of this home's key on a machine that was launched elsewhere; None: nothing."""
    if not machine.shared or is_launched_here(session, machine):
        return None
    return machine.shared.get(own_key(session).fingerprint)


def pin_shared(session: Session, machine: Machine) -> bool:
    """Pin the host key that came with a share where none is pinned, or an earlier share's; say whether one is pinned.

    A machine that was brought back has another host key: whoever shares it anew hands that over.
    """
    pinned = client_files.pinned(session.home.known_hosts, machine.id)
    allowed_key = let_in(session, machine)
    if allowed_key is None or not allowed_key.host_key or allowed_key.host_key == pinned:
        return pinned is not None
    keys = _handed_over(session, machine)
    if keys and (pinned is None or pinned in keys[:-1]):
        client_files.pin(session.home.known_hosts, machine.id, keys[-1])
        return True
    return pinned is not None


def _handed_over(session: Session, machine: Machine) -> list[str]:
    """Return the host keys that came with the shares for this home's key, the latest last: of those who may share it.

    In a team: its owner, whoever launched it, and payers. Whose it is says its first line: a later one may be forged.
    """
    lines, mine, authorization = (
        list(session.ledger.events(machine.id)),
        own_key(session).fingerprint,
        authorization_of(session),
    )
    shares = [one for one in lines if one.kind == "machine_shared" and one.body["key"] == mine and one.body["host_key"]]
    if authorization.role is not Role.ALONE:
        first = next((one for one in lines if one.kind in ("launch_intended", "machine_adopted")), None)
        may = {*session.ledger.payers()}
        if first is not None and first.kind == "launch_intended":
            may.add(first.actor)
        owner = first.body["owner"] if first is not None else None
        shares = [one for one in shares if one.actor in may or authorization.people.owns(one.actor, owner)]
    return [one.body["host_key"] for one in shares]


def explain_other_home(session: Session, machine: Machine, error: Unreachable) -> Unreachable:
    """Return the fault of a connection in the words for a machine that was launched from another home."""
    if is_launched_here(session, machine):
        return error
    if isinstance(error, LoginRefused):
        return error if isinstance(error, AccessBlocked) else not_let_in(session, machine)
    if isinstance(error, WrongHostKey):
        if let_in(session, machine):
            error.next = f"Nothing was sent to it. If its host key was changed on purpose: {_ask(session, machine)}"
    elif machine.provider == "local":
        error.next = f"It answers only on the computer that it runs on ({account_text(machine)}): run this there."
    elif let_in(session, machine) and may_let_us_in(machine) and not is_behind(machine):
        error.next = f"If it runs, its cloud may keep your address out. {_ask(session, machine)} --from YOUR-ADDRESS"
    return error


def not_let_in(session: Session, machine: Machine) -> LoginRefused:
    """Return the error for a machine that was launched from another home and not shared with this one."""
    mine = machine.owner in ("", None, session.settings.owner)
    whose = "was launched from another home" if mine else f"is {machine.owner}'s"
    return LoginRefused(
        f"{machine.name} {whose}, and the key of this home was not let in there.",
        field="name",
        value=machine.name,
        next=_ask(session, machine),
    )


def _ask(session: Session, machine: Machine) -> str:
    """Return what lets this home in: who runs which command, with which file."""
    with suppress(OSError):
        own_key(session)  # made now, so that the file is there
    who = machine.owner if machine.owner not in ("", None, session.settings.owner) else None
    file = session.client_key_file.with_suffix(".pub")
    there = f"Send {who} {file}; they run" if who else f"Copy {file} to that home and run there"
    return f"{there}: cloudgpu share {machine.name} --key {file.name}"
