"""Whose each owner's name is: the names in settings, tags and launches, and the users of the database behind them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from cloudgpu.core.events.log import Event
from cloudgpu.core.values.naming import tag_value

SUBJECT = "people"  # of every line about whose owner's name it is
CLAIMED, ASSIGNED = "owner_claimed", "owner_assigned"


@dataclass(frozen=True, slots=True)
class People:
    """Which person, a user of the database, each owner's name belongs to. Names are compared as tags can say them.

    `users` are all who are in the team: what the database calls them is theirs without any line.
    """

    of: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict, compare=False)  # the names as they were written
    users: Collection[str] = field(default=(), compare=False)

    def person(self, owner: str | None) -> str | None:
        """Return whose name this is: as recorded, else the person who is called so; None for no name."""
        if not owner:
            return None
        name = comparable_name(owner)
        known = (
            owner
            if owner in self.users
            else next((user for user in self.users if comparable_name(user) == name), owner)
        )
        return self.of.get(name, known)

    def is_known(self, owner: str) -> bool:
        """Say whether it is recorded whose name this is."""
        return comparable_name(owner) in self.of

    def owns(self, person: str, owner: str | None) -> bool:
        """Say whether this owner's name is this person's."""
        return self.person(owner) == person

    def is_another(self, person: str, owner: str) -> bool:
        """Say whether somebody else is called so, or has launched under this name."""
        name = comparable_name(owner)
        called = _calls(name, (*self.of.values(), *self.users), person)
        return called or self.of.get(name, person) != person

    def names(self, person: str) -> list[str]:
        """Return the recorded names of a person."""
        return sorted(self.texts.get(name, name) for name, known in self.of.items() if known == person)


def people_of(lines: Iterable[Event], users: Collection[str] = ()) -> People:
    """Return whose each owner's name is by these lines: the first claim counts, until a payer assigns the name.

    `users` are all who are in the team: nobody else's claim of what the database calls one of them counts.

    A claim counts only for whoever wrote it: the database signs the lines of a team. A line that does not say both, the
    name and the person, says nothing: the database does not look into a member's lines.
    """
    found: dict[str, str] = {}
    texts: dict[str, str] = {}
    for line in sorted(lines, key=lambda line: line.seq):
        owner, person = line.body.get("owner"), line.body.get("person")
        if not (isinstance(owner, str) and isinstance(person, str) and owner and person):
            continue
        name = comparable_name(owner)
        is_claim = line.kind == CLAIMED and name not in found and line.actor == person
        if line.kind == ASSIGNED or (is_claim and not _calls(name, users, person)):
            found[name], texts[name] = person, owner
    return People(found, texts, users)


def _calls(name: str, users: Iterable[str], person: str) -> bool:
    """Say whether one of these users, other than this person, is called so."""
    return any(user != person and comparable_name(user) == name for user in users)


def comparable_name(owner: str | None) -> str:
    """Return an owner's name as it is compared: as a tag can say it, where anything of it is left then."""
    return tag_value(owner or "") or (owner or "")
