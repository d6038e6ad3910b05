"""The role of this home's user: what only payers may do, and the role as last known, for when the ledger is away.

By the last known role, `down --all` then knows which machines are the user's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cloudgpu.control.session.session import Session
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.team.rights import Authorization, Role, check_payer, comparable_name
from cloudgpu.core.values.times import iso
from cloudgpu.ledger.log.files import is_a_file, read_our_file, write_durably

MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class LastRole:
    """The user's role and owner names as of `day`; a role of None was never known."""

    role: Role | None
    names: tuple[str, ...]
    day: str = ""

    def owns(self, machine: Machine, launched: Collection[str]) -> bool:
        """Say whether a machine is the user's; `launched` are the ids of those that this home launched.

        Without a team, but with a ledger in a database, a machine of another name may be a new member's.
        """
        owner = comparable_name(machine.owner)
        is_by_name = bool(owner) and owner in map(comparable_name, self.names)
        return is_by_name or (self.role is Role.ALONE and (not self.day or machine.id in launched))

    def sentence(self) -> str:
        """Return how it was decided which machines are the user's, as a sentence."""
        names = ", ".join(self.names)
        if self.role is None:
            return f"Your role is not known here: only machines of {names} are taken for yours."
        if self.role is not Role.ALONE:
            return f"By your role on {self.day} ({self.role}), machines of {names} are yours."
        if not self.day:
            return "Nobody shares a ledger in a file: all of them are yours."
        return f"Nobody shared the ledger on {self.day}: machines of {names}, and those launched here, are yours."


def require_payer_role(session: Session, action: str) -> None:
    """Raise RoleNeeded for a member; `action` begins the sentence: "Setting a budget"."""
    ledger = session.ledger
    role = ledger.role()
    if role is Role.MEMBER:
        check_payer(action, role, ledger.person(), ledger.payers)


def remember_role(session: Session, authorization: Authorization) -> None:
    """Store the user's role and names once a day, where a team may share the ledger. A full disk is ignored."""
    path = _role_file(session)
    owner, people, person = session.settings.owner, authorization.people, authorization.person
    is_own_name = authorization.role is Role.ALONE or people.owns(person, owner) or authorization.may_claim(owner)
    names = {person, *people.names(person), *([owner] if is_own_name else [])}
    stored = {"role": authorization.role, "names": sorted(names), "day": iso(session.clock())[:10]}
    data = (json.dumps(stored) + "\n").encode()
    with suppress(OSError):
        if not path.with_suffix(".head").exists() or (path.exists() and read_our_file(path, MAX_BYTES) == data):
            return
        temporary = path.with_suffix(f".role.{os.getpid()}")
        write_durably(temporary, data)
        temporary.replace(path)


def last_role(session: Session) -> LastRole:
    """Return the role and names that were stored last. Raises nothing."""
    names = (session.settings.owner,)
    if is_a_file(session.ledger.location):
        return LastRole(Role.ALONE, names)
    try:
        stored = json.loads(read_our_file(_role_file(session), MAX_BYTES))
        return LastRole(Role(stored["role"]), tuple(map(str, stored["names"])), str(stored["day"]))
    except (OSError, ValueError, KeyError, TypeError):
        return LastRole(None, names)


def _role_file(session: Session) -> Path:
    return session.ledger.outbox.path.with_suffix(".role")
