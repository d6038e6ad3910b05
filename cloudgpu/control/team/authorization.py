"""Holds what somebody asks against the lab's rules: by their role, and by whose the machine is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.control.team.roles import payers_only, remember
from cloudgpu.core.events.bodies import RequestedBy
from cloudgpu.core.events.general_lines import owner_assigned, owner_claimed
from cloudgpu.core.model.instances import TAG_OWNER
from cloudgpu.core.model.machine import Machine, OwnedSubject, Ownership
from cloudgpu.core.policies.policy import Stoppers
from cloudgpu.core.team.rights import (
    PEOPLE_SUBJECT,
    Authorization,
    Claim,
    People,
    Right,
    Role,
    claim,
    people_of,
    right_to,
)
from cloudgpu.errors import InvalidRequest, RoleNeeded
from cloudgpu.ledger.log.base import View
from cloudgpu.ledger.log.files import is_a_file
from cloudgpu.ledger.log.storage_errors import LedgerAway

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.events.log import Draft
    from cloudgpu.core.model.resources import ProviderResource
    from cloudgpu.views.documents.setup.ledger import OwnersDocument

STOP = "stop"  # what the lab's limits may let every member do; what deletes, starts or lets in stays with its owner


def authorization_of(session: Session) -> Authorization:
    """Return who asks, in which role, and remember it for when the ledger is away. Raises LedgerUnavailable."""
    person, role = person_of(session), session.ledger.role()
    people = (
        People() if role is Role.ALONE else people_of(session.ledger.events(PEOPLE_SUBJECT), session.ledger.members())
    )
    authorization = Authorization(role, person, people, session.settings.owner, session.for_lab)
    if not (session.ledger_away or is_a_file(session.ledger.location)):
        remember(session, authorization)
    return authorization


def person_of(session: Session) -> str:
    """Return who asks: the user of the database in a team, the owner of config.toml alone."""
    return session.ledger.person() or session.settings.owner


def check_may(
    session: Session, machine: OwnedSubject, verb: str, *, authorization: Authorization | None = None
) -> Right:
    """Return by which right this verb is theirs on this machine or named resource; raise RoleNeeded where it is not.

    Raises LedgerUnavailable where nobody can say.
    """
    authorization = authorization or authorization_of(session)
    if not authorization.for_lab and authorization.may_claim(machine.owner):
        claim_owner(session, machine.owner)
    right = _right(session, authorization, machine, verb)
    if right is None:
        name = str(machine.name).replace("the ", "The ", 1)  # of a named resource
        raise RoleNeeded(
            f"{name} is {authorization.whose(machine)}, and {authorization.person} is a member: "
            f"only its owner or a payer may {verb} it.",
            field="name",
            value=machine.name,
            next=f"Ask its owner, or a payer: {_who_pays(session)}.",
        )
    return right


def check_may_use(session: Session, volumes: Sequence[Machine]) -> None:
    """Raise RoleNeeded where none of these volumes, the ones that a launch may mean, is theirs to attach.

    Writes nothing: a plan asks it.
    """
    authorization = authorization_of(session)
    if authorization.is_member and volumes and not any(authorization.owns(machine) for machine in volumes):
        try:
            check_may(
                session, volumes[0]._replace(name=f"the volume {volumes[0].name}"), "use", authorization=authorization
            )
        except RoleNeeded as refused:
            refused.field, refused.value = "--volume", volumes[0].name
            raise


def others_note(session: Session, row: OwnedSubject, verb: str) -> str:
    """Return, for a question that is asked before, whose machine it is and by which right; empty for one's own.

    Empty, too, while the ledger is away: nobody can say then.
    """
    try:
        authorization = authorization_of(session)
        right = check_may(session, row, verb, authorization=authorization)
    except LedgerAway:
        return ""
    return "" if right is Right.OWNER else f" It is {authorization.whose(row)}; {_BY[right]}."


def by(
    session: Session, machine: OwnedSubject, verb: str, *, authorization: Authorization | None = None
) -> RequestedBy:
    """Return what the line of a verb says of whose it is and by which right it was asked; nothing for who is alone.

    Who asked stands beside every line: a database of a team signs them.
    """
    authorization = authorization or authorization_of(session)
    if authorization.role is Role.ALONE:
        return {}
    right = _right(session, authorization, machine, verb)
    whose: RequestedBy = {"whose": machine.owner or ""}
    return whose if right is None else {**whose, "right": str(right)}


def _right(session: Session, authorization: Authorization, row: OwnedSubject, verb: str) -> Right | None:
    mine, stops = authorization.owns(row), verb == STOP
    asks = authorization.is_member and stops and not mine and not authorization.for_lab
    stoppers = _stoppers(session) if asks else Stoppers.OWNER
    return right_to(authorization.role, mine=mine, stops=stops, stoppers=stoppers, for_lab=authorization.for_lab)


def ownership_of_named(resource: ProviderResource) -> Ownership:
    """Return what of something that is kept by name says whose it is, as a row does."""
    return Ownership(f"the {resource.kind} {resource.name}", resource.tags.get(TAG_OWNER, ""))


def check_override(session: Session, reason: str | None) -> str | None:
    """Return the reason why a budget is to be passed; raise RoleNeeded where one is given and a member asks."""
    if reason is not None:
        payers_only(session, "Overriding a budget")
    return reason


def check_owner(session: Session, owner: str) -> None:
    """Raise RoleNeeded where this person may not launch for this owner."""
    authorization = authorization_of(session)
    if (
        claim(authorization.people, authorization.role, authorization.person, owner, session.settings.owner)
        is Claim.REFUSED
    ):
        raise _not_theirs(session, authorization, owner)


def claim_owner(session: Session, owner: str) -> None:
    """Record that this name is theirs, where nobody has it; raise RoleNeeded where they may not launch for it."""
    authorization = authorization_of(session)
    if (
        claim(authorization.people, authorization.role, authorization.person, owner, session.settings.owner)
        is Claim.GRANTED
    ):
        return

    def decision(view: View) -> Sequence[Draft]:
        people = people_of(session.ledger.events(PEOPLE_SUBJECT), authorization.people.users)
        verdict = claim(people, authorization.role, authorization.person, owner, session.settings.owner)
        if verdict is Claim.REFUSED:
            raise _not_theirs(session, authorization, owner)
        return (
            [owner_claimed(owner, authorization.person, session.clock(), view.head()[0])]
            if verdict is Claim.NEW
            else []
        )

    session.ledger.decide(decision)


def owners(session: Session) -> OwnersDocument:
    """Return each owner's name that is recorded, with the person whose it is."""
    people = people_of(session.ledger.events(PEOPLE_SUBJECT), session.ledger.members())
    return {"owners": [{"owner": people.texts[name], "user": user} for name, user in sorted(people.of.items())]}


def assign_owner(session: Session, owner: str, person: str) -> OwnersDocument:
    """Record whose an owner's name is, as a payer says; return all that is recorded.

    Raises RoleNeeded for a member, InvalidRequest where no team shares the ledger, for what is no line of text, or for
    a user who is not in the team.
    """
    from cloudgpu.control.inputs.launch_request import check_line

    payers_only(session, "Saying whose an owner's name is")
    if session.ledger.role() is Role.ALONE:
        raise InvalidRequest(
            "No team shares this ledger, so every owner's name is yours.",
            field="OWNER",
            value=owner,
            next="For a team: cloudgpu ledger init --team",
        )
    check_line("OWNER", owner)
    check_line("USER", person)
    users = sorted({*session.ledger.members(), *session.ledger.payers(), session.ledger.person()})
    if person not in users:
        raise InvalidRequest(
            f"{person} is not in the team.",
            field="USER",
            value=person,
            next=f"Name one of its database users: {', '.join(users)}.",
        )
    session.ledger.decide(lambda view: [owner_assigned(owner, person, session.clock(), view.head()[0])])
    return owners(session)


def _not_theirs(session: Session, authorization: Authorization, owner: str) -> RoleNeeded:
    names, known = authorization.people.names(authorization.person), authorization.people.person(owner)
    known = known if known not in (owner, authorization.person) else None
    whose = (
        f"The owner's name {owner} belongs to {known}"
        if known
        else f"{owner} is not the name of {authorization.person}"
    )
    default = authorization.own_owner
    own = names[0] if names else default if authorization.may_claim(default) else authorization.person
    return RoleNeeded(
        f"{whose}: launching for somebody else needs the payer's role, and {authorization.person} is a member.",
        field="--owner",
        value=owner,
        next=f'Launch as yourself: --owner {own}, or owner = "{own}" in config.toml; or ask a payer: '
        f"{_who_pays(session)}.",
    )


def _who_pays(session: Session) -> str:
    return ", ".join(session.ledger.payers()) or "there is none yet"


def _stoppers(session: Session) -> Stoppers:
    from cloudgpu.config.policies.find import lab_limits

    return lab_limits(session.published()).stop or Stoppers.OWNER


_BY = {
    Right.PAYER: "you have the payer's role",
    Right.MEMBERS: "the lab's limits let every member stop it",
    Right.REAPER: "reap acts for the lab",
}
