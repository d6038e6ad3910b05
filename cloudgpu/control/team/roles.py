"""Which role this home's user has: what payers alone may do, and what is kept for when the ledger cannot be asked.

By what is kept, `down --all` tells then whose machines it ends.
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
from cloudgpu.core.team.rights import Authorization, Role, check_payer
from cloudgpu.core.values.naming import tag_value
from cloudgpu.core.values.times import iso
from cloudgpu.ledger.log.files import is_a_file, open_to_write, read_our_file

MAX = 64 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class LastRole:
    """The role on a day, and the owners' names that were this user's: nothing in it is secret. None: never known."""

    role: Role | None
    names: tuple[str, ...]
    day: str = ""

    def owns(self, machine: Machine, launched: Collection[str]) -> bool:
        """Say whether a machine is theirs; `launched` are those that this home launched.

        Alone with a server's ledger, what another computer launched under another name may be a newcomer's.
        """
        of_name = tag_value(machine.owner or "") in {tag_value(name) for name in self.names}
        return of_name or (self.role is Role.ALONE and (not self.day or machine.id in launched))

    def sentence(self) -> str:
        """Return by what it was judged whose each machine is, as a sentence."""
        names = ", ".join(self.names)
        if self.role is None:
            return f"Your role is not known here: only machines of {names} are taken for yours."
        if self.role is not Role.ALONE:
            return f"By your role on {self.day} ({self.role}), machines of {names} are yours."
        if not self.day:
            return "Nobody shares a ledger in a file: all of them are yours."
        return f"Nobody shared the ledger on {self.day}: machines of {names}, and those launched here, are yours."


def payers_only(session: Session, what: str) -> None:
    """Raise RoleNeeded where a member asks for what payers do; `what` begins a sentence: "Setting a budget"."""
    ledger = session.ledger
    role = ledger.role()
    if role is Role.MEMBER:
        check_payer(what, role, ledger.person(), ledger.payers)


def remember(session: Session, authorization: Authorization) -> None:
    """Keep what this says of the user, where it is news today; of use where a team may share the ledger.

    A full disk keeps nobody from their work.
    """
    path = _path(session)
    owner, people, person = session.settings.owner, authorization.people, authorization.person
    theirs = authorization.role is Role.ALONE or people.owns(person, owner) or authorization.may_claim(owner)
    names = {owner} if theirs else set()
    names |= {person, *people.names(person)}
    stored = {"role": authorization.role, "names": sorted(names), "day": iso(session.clock())[:10]}
    data = (json.dumps(stored) + "\n").encode()
    with suppress(OSError):
        if not path.with_suffix(".head").exists() or (path.exists() and read_our_file(path, MAX) == data):
            return
        part = path.with_suffix(f".role.{os.getpid()}")
        with os.fdopen(open_to_write(part, os.O_WRONLY | os.O_TRUNC), "wb") as file:
            file.write(data)
        part.replace(path)


def last_role(session: Session) -> LastRole:
    """Return what was kept. Raises nothing."""
    usual = (session.settings.owner,)
    if is_a_file(session.ledger.location):
        return LastRole(Role.ALONE, usual)
    try:
        stored = json.loads(read_our_file(_path(session), MAX))
        return LastRole(Role(stored["role"]), tuple(map(str, stored["names"])), str(stored["day"]))
    except (OSError, ValueError, KeyError, TypeError):
        return LastRole(None, usual)


def _path(session: Session) -> Path:
    return session.ledger.outbox.path.with_suffix(".role")
