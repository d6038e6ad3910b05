"""Which person has which owner's name, and who may do what in a lab: write lines, act on machines, publish policies.

A team has members and payers, and only payers write certain lines. They publish policies and limits in the ledger, as
text, with who and when. Who is alone with a ledger may do everything. An owner's name stands in settings, tags and
launches, and belongs to a user of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cloudgpu.core.events.log import (
    BUDGET_OVERRIDDEN,
    BUDGET_REMOVED,
    BUDGET_SET,
    LEDGER_ARRIVED,
    LEDGER_MOVED,
    LEDGER_MOVING,
    Event,
)
from cloudgpu.core.model.machine import OwnedSubject
from cloudgpu.core.policies.policy import Stoppers
from cloudgpu.core.values.naming import tag_value
from cloudgpu.errors import RoleNeeded

PEOPLE_SUBJECT = "people"  # of every line about whose owner's name it is
CLAIMED, ASSIGNED = "owner_claimed", "owner_assigned"


@dataclass(frozen=True, slots=True)
class People:
    """The person, a user of the database, to whom each owner's name belongs. Names are compared in their tag form.

    `users` are the members of the team: their database names are theirs without a ledger line.
    """

    persons: Mapping[str, str] = field(default_factory=dict)  # the recorded person by owner's name, in tag form
    display_names: Mapping[str, str] = field(default_factory=dict, compare=False)  # by the tag form: as written
    users: Collection[str] = field(default=(), compare=False)

    def person(self, owner: str | None) -> str | None:
        """Return the person to whom a name belongs: as recorded, else the user of that name; None for no name."""
        if not owner:
            return None
        name = comparable_name(owner)
        same_user = (
            owner
            if owner in self.users
            else next((user for user in self.users if comparable_name(user) == name), owner)
        )
        return self.persons.get(name, same_user)

    def is_known(self, owner: str) -> bool:
        """Say whether the owner of this name is recorded."""
        return comparable_name(owner) in self.persons

    def owns(self, person: str, owner: str | None) -> bool:
        """Say whether an owner's name belongs to this person."""
        return self.person(owner) == person

    def is_another(self, person: str, owner: str) -> bool:
        """Say whether another person has this name, or has launched under it."""
        name = comparable_name(owner)
        return (
            _another_has(name, (*self.persons.values(), *self.users), person)
            or self.persons.get(name, person) != person
        )

    def names(self, person: str) -> list[str]:
        """Return the recorded names of a person."""
        return sorted(self.display_names.get(name, name) for name, holder in self.persons.items() if holder == person)


def people_of(lines: Iterable[Event], users: Collection[str] = ()) -> People:
    """Return whose each owner's name is by these lines: the first claim counts, until a payer assigns the name.

    `users` are all who are in the team: nobody else's claim of what the database calls one of them counts.

    A claim counts only for whoever wrote it: the database of a team records who wrote each line. A line that does not
    say both, the name and the person, says nothing: the database does not look into a member's lines.
    """
    person_by_name: dict[str, str] = {}
    display_names: dict[str, str] = {}
    for line in sorted(lines, key=lambda line: line.seq):
        owner, person = line.body.get("owner"), line.body.get("person")
        if not (isinstance(owner, str) and isinstance(person, str) and owner and person):
            continue
        name = comparable_name(owner)
        is_claim = line.kind == CLAIMED and name not in person_by_name and line.actor == person
        if line.kind == ASSIGNED or (is_claim and not _another_has(name, users, person)):
            person_by_name[name], display_names[name] = person, owner
    return People(person_by_name, display_names, users)


def _another_has(name: str, users: Iterable[str], person: str) -> bool:
    """Say whether one of these users, other than this person, is called so."""
    return any(user != person and comparable_name(user) == name for user in users)


def comparable_name(owner: str | None) -> str:
    """Return an owner's name for comparison: in its tag form, unless that is empty."""
    return tag_value(owner or "") or (owner or "")


SUBJECT = "policies"  # of every line about what is published
PUBLISHED, WITHDRAWN = "policy_published", "policy_withdrawn"


@dataclass(frozen=True, slots=True)
class Published:
    """A policy, or the `limits`, as it was published: its text, the zone of schedules that name none, by whom, when."""

    name: str
    text: str
    tz: str
    by: str
    at: str

    @property
    def origin(self) -> str:
        """Who published it, and when, in words."""
        return f"the ledger, published by {self.by} at {self.at[:16].replace('T', ' ')} UTC"


def published_of(lines: Iterable[Event]) -> dict[str, Published]:
    """Return the policies and limits that are published after these lines, by name."""
    published: dict[str, Published] = {}
    for line in sorted(lines, key=lambda line: line.seq):
        body = line.body
        if line.kind == PUBLISHED:
            published[body["name"]] = Published(body["name"], body["text"], body["tz"], line.actor, line.occurred_at)
        elif line.kind == WITHDRAWN:
            published.pop(body["name"], None)
    return published


TEAM_SET = "team_set"

# A database of a team refuses these lines from everybody but its payers: the trigger is made from this set. Whoever
# changes it in a release adds a step to `ledger.postgresql.schema.MIGRATIONS`, which makes the trigger anew.
_DECISIONS = frozenset({BUDGET_SET, BUDGET_REMOVED, BUDGET_OVERRIDDEN, PUBLISHED, WITHDRAWN, ASSIGNED, TEAM_SET})
PAYER_KINDS = _DECISIONS | {LEDGER_MOVED, LEDGER_MOVING, LEDGER_ARRIVED}


class Role(StrEnum):
    """What somebody may do in a ledger."""

    ALONE = "alone"  # no team shares the ledger: whoever can write to it may do everything
    MEMBER = "member"  # launches and looks after machines
    PAYER = "payer"  # also decides about budgets, limits and what belongs to others


def payer_needed(what: str, person: str, payers: Collection[str]) -> RoleNeeded:
    """Return the error for what only a payer may do. `what` begins a sentence, as in "Removing a budget"."""
    who = ", ".join(payers)
    return RoleNeeded(
        f"{what} needs the payer's role, and {person} is a member.",
        field="role",
        value=person,
        next=f"Ask a payer: {who}." if who else "Ask whoever owns the ledger: it has no payer yet.",
    )


def check_payer(what: str, role: Role, person: str, payers: Callable[[], Collection[str]]) -> None:
    """Raise RoleNeeded where a member asks for what only a payer may do."""
    if role is Role.MEMBER:
        raise payer_needed(what, person, payers())


class Right(StrEnum):
    """The right by which somebody acts on a machine."""

    OWNER = "owner"  # it is theirs
    PAYER = "payer"  # they have the payer's role
    MEMBERS = "members"  # the lab's limits let every member stop it
    REAPER = "pass"  # the reaper acts for the lab, whoever runs it


class Claim(StrEnum):
    """Whether somebody may launch under an owner's name."""

    GRANTED = "granted"
    NEW = "new"  # nobody has it, and from now on it is theirs
    REFUSED = "refused"


def claim(people: People, role: Role, person: str, owner: str, configured_owner: str) -> Claim:
    """Return whether this person may launch for `owner`; `configured_owner` is the owner that their settings name.

    A member's first launch makes the name of their settings theirs, beside what the database calls them. Another one
    needs a payer: so does every name that is somebody else's, or that another person is called by.
    """
    if role is Role.ALONE or (people.is_known(owner) and people.owns(person, owner)):
        return Claim.GRANTED
    is_free = not people.is_another(person, owner)
    has_own_name = any(comparable_name(name) != comparable_name(person) for name in people.names(person))
    if is_free and (
        owner == person or (comparable_name(owner) == comparable_name(configured_owner) and not has_own_name)
    ):
        return Claim.NEW
    return Claim.GRANTED if role is Role.PAYER else Claim.REFUSED


def right_to(
    role: Role, *, mine: bool, stops: bool, stoppers: Stoppers = Stoppers.OWNER, as_reaper: bool = False
) -> Right | None:
    """Return by which right somebody may act on a machine, None where they may not.

    `mine`: the machine is theirs. `stops`: the action stops it and keeps its disk, which `stoppers` may allow every
    member. `as_reaper`: the reaper acts.
    """
    if as_reaper:
        return Right.REAPER
    if mine or role is Role.ALONE:
        return Right.OWNER
    if role is Role.PAYER:
        return Right.PAYER
    return Right.MEMBERS if stops and stoppers is Stoppers.MEMBERS else None


@dataclass(frozen=True, slots=True)
class Authorization:
    """Who makes a request, in which role, and the persons of the owners' names.

    `person` is the user of the database, `configured_owner` the owner of config.toml. `as_reaper`: the reaper acts.
    """

    role: Role
    person: str
    people: People
    configured_owner: str = ""
    as_reaper: bool = False

    @property
    def is_member(self) -> bool:
        """Whether they are a member, who may not do everything."""
        return self.role is Role.MEMBER

    def owns(self, machine: OwnedSubject) -> bool:
        """Say whether a machine or a retained resource is theirs, or its owner's name free to take; alone: always."""
        owner = machine.owner
        return self.role is Role.ALONE or self.people.owns(self.person, owner) or self.may_claim(owner)

    def may_claim(self, owner: str | None) -> bool:
        """Say whether no person has this name yet, so that their first action under it makes it theirs."""
        return (
            bool(owner) and claim(self.people, self.role, self.person, owner or "", self.configured_owner) is Claim.NEW
        )

    def owner_text(self, machine: OwnedSubject) -> str:
        """Return the owner of a machine in words: `ada's`, `ada@example.org's (ada)`."""
        owner, person = machine.owner, self.people.person(machine.owner)
        if not owner:
            return "nobody's, as far as is known"
        return f"{owner}'s" + (f" ({person})" if person != owner else "")
