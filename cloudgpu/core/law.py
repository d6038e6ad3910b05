"""Who may do what with whose machine in a lab, and by which right. Who is alone with a ledger may do everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cloudgpu.core.limits import Stoppers
from cloudgpu.core.people import People, plain
from cloudgpu.core.roles import Role


class Right(StrEnum):
    """By which right somebody acts on a machine."""

    OWNER = "owner"  # it is theirs
    PAYER = "payer"  # they have the payer's role
    MEMBERS = "members"  # the lab's limits let every member stop it
    PASS = "pass"  # noqa: S105  (a pass acts for the lab, whoever runs it)


class Claim(StrEnum):
    """What becomes of an owner's name that somebody launches under."""

    GRANTED = "granted"
    NEW = "new"  # nobody has it, and from now on it is theirs
    REFUSED = "refused"


def claim(people: People, role: Role, person: str, owner: str, usual: str) -> Claim:
    """Return whether this person may launch for `owner`; `usual` is the owner that their settings name.

    A member's first launch makes the name of their settings theirs, beside what the database calls them. Another one
    needs a payer: so does every name that is somebody else's, or that another person is called by.
    """
    if role is Role.ALONE or (people.is_known(owner) and people.owns(person, owner)):
        return Claim.GRANTED
    free = not people.is_another(person, owner)
    has_one = any(plain(name) != plain(person) for name in people.names(person))
    if free and (owner == person or (plain(owner) == plain(usual) and not has_one)):
        return Claim.NEW
    return Claim.GRANTED if role is Role.PAYER else Claim.REFUSED


def right_to(
    role: Role, *, mine: bool, stops: bool, stoppers: Stoppers = Stoppers.OWNER, for_lab: bool = False
) -> Right | None:
    """Return by which right somebody may do this to a machine, None where they may not.

    `stops`: it stops the machine and keeps its disk, which `stoppers` may allow every member. `for_lab`: by a pass.
    """
    if for_lab:
        return Right.PASS
    if mine or role is Role.ALONE:
        return Right.OWNER
    if role is Role.PAYER:
        return Right.PAYER
    return Right.MEMBERS if stops and stoppers is Stoppers.MEMBERS else None


@dataclass(frozen=True, slots=True)
class Law:
    """Who asks, in which role, and whose each owner's name is.

    `person` is the user of the database, `usual` the owner of config.toml.
    """

    role: Role
    person: str
    people: People
    usual: str = ""
    for_lab: bool = False

    @property
    def is_member(self) -> bool:
        """Say whether some things here are not theirs to do."""
        return self.role is Role.MEMBER

    def owns(self, row: Mapping[str, Any]) -> bool:
        """Say whether a machine or a kept thing is theirs, or its owner's name theirs to take; alone, everything is."""
        owner = row["owner"]
        return self.role is Role.ALONE or self.people.owns(self.person, owner) or self.takes(owner)

    def takes(self, owner: str | None) -> bool:
        """Say whether this name is recorded as nobody's, and becomes theirs by what they do under it."""
        return bool(owner) and claim(self.people, self.role, self.person, owner or "", self.usual) is Claim.NEW

    def whose(self, row: Mapping[str, Any]) -> str:
        """Return whose it is, in words: `ada's`, `ada@example.org's (ada)`."""
        owner, person = row["owner"], self.people.person(row["owner"])
        if not owner:
            return "nobody's, as far as is known"
        return f"{owner}'s" + (f" ({person})" if person != owner else "")
