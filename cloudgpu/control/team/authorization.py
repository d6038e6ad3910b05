"""Authorizes requests by the lab's rules: by the user's role, and by who owns the machine.

The lab is everybody who shares the ledger. A member may act on their own machines, volumes and images; the lab's limits
may let every member stop any machine. A payer may also act on those of others, launch for any owner, override budgets,
publish policies and say whose an owner's name is. A run of the reaper acts for the lab, whoever runs it (`as_reaper`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.control.team.roles import remember_role, require_payer_role
from cloudgpu.core.events.bodies import RequestedBy
from cloudgpu.core.events.general_events import owner_assigned, owner_claimed
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

STOP = "stop"  # the one verb that the lab's limits may allow to every member


def authorization_of(session: Session) -> Authorization:
    """Return who the user is, and in which role.

    Stores it, as `LedgerAway` is no time to ask: while the ledger cannot be reached, `session.ledger_away` is true and
    a stand-in answers with what was stored. Raises LedgerUnavailable.
    """
    person, role = person_of(session), session.ledger.role()
    people = (
        People() if role is Role.ALONE else people_of(session.ledger.events(PEOPLE_SUBJECT), session.ledger.members())
    )
    authorization = Authorization(role, person, people, session.settings.owner, session.as_reaper)
    if not (session.ledger_away or is_a_file(session.ledger.location)):
        remember_role(session, authorization)
    return authorization


def person_of(session: Session) -> str:
    """Return who the user is: the user of the database in a team, else the owner in config.toml."""
    return session.ledger.person() or session.settings.owner


def check_right_and_claim_owner(
    session: Session, machine: OwnedSubject, verb: str, *, authorization: Authorization | None = None
) -> Right:
    """Return the right by which the user may do this to a machine or named resource; raise RoleNeeded without one.

    Records in the ledger that the owner's name is the user's, where nobody has it yet: call it to act, and
    `check_right` before a question. Raises LedgerUnavailable where the role is not known.
    """
    authorization = authorization or authorization_of(session)
    if not authorization.as_reaper and authorization.may_claim(machine.owner):
        claim_owner(session, machine.owner)
    return check_right(session, machine, verb, authorization=authorization)


def check_right(
    session: Session, machine: OwnedSubject, verb: str, *, authorization: Authorization | None = None
) -> Right:
    """Return and raise what `check_right_and_claim_owner` does, and record nothing: the user has not agreed yet."""
    authorization = authorization or authorization_of(session)
    right = _right_for(session, authorization, machine, verb)
    if right is None:
        name = str(machine.name).replace("the ", "The ", 1)  # of a named resource
        raise RoleNeeded(
            f"{name} is {authorization.owner_text(machine)}, and {authorization.person} is a member: "
            f"only its owner or a payer may {verb} it.",
            field="name",
            value=machine.name,
            next=f"Ask its owner, or a payer: {_payers_text(session)}.",
        )
    return right


def check_may_use_volumes(session: Session, volumes: Sequence[Machine]) -> None:
    """Raise RoleNeeded where the user is a member and owns none of these volumes, each of which a launch may mean.

    Records nothing. The record of a volume or an image is a `Machine`, too.
    """
    authorization = authorization_of(session)
    if authorization.is_member and volumes and not any(authorization.owns(machine) for machine in volumes):
        try:
            check_right(
                session, volumes[0]._replace(name=f"the volume {volumes[0].name}"), "use", authorization=authorization
            )
        except RoleNeeded as refused:
            refused.field, refused.value = "--volume", volumes[0].name
            raise


def ownership_note(session: Session, machine: OwnedSubject, verb: str) -> str:
    """Return a sentence for a confirmation prompt: who owns the machine, and the user's right to act on it.

    Empty for the user's own machine, and while the ledger is away. Records nothing. Raises RoleNeeded without a right,
    and LedgerUnavailable that is not LedgerAway: a ledger that is damaged or denied, say, which waiting does not mend.
    """
    try:
        authorization = authorization_of(session)
        right = check_right(session, machine, verb, authorization=authorization)
    except LedgerAway:  # the ledger cannot be reached now: stops and ends go on without it
        return ""
    return "" if right is Right.OWNER else f" It is {authorization.owner_text(machine)}; {_RIGHT_TEXTS[right]}."


def requester_record(
    session: Session, machine: OwnedSubject, verb: str, *, authorization: Authorization | None = None
) -> RequestedBy:
    """Return what the event of a request records: the owner and the right of the user; empty outside a team.

    Every event has its user anyway: the database of a team records which user wrote it.
    """
    authorization = authorization or authorization_of(session)
    if authorization.role is Role.ALONE:
        return {}
    right = _right_for(session, authorization, machine, verb)
    recorded: RequestedBy = {"whose": machine.owner or ""}
    return recorded if right is None else {**recorded, "right": str(right)}


def _right_for(session: Session, authorization: Authorization, machine: OwnedSubject, verb: str) -> Right | None:
    """Return by which right the user may do this; None without one."""
    is_owner, is_stop = authorization.owns(machine), verb == STOP
    depends_on_limits = authorization.is_member and is_stop and not is_owner and not authorization.as_reaper
    stoppers = _stoppers(session) if depends_on_limits else Stoppers.OWNER
    return right_to(
        authorization.role, mine=is_owner, stops=is_stop, stoppers=stoppers, as_reaper=authorization.as_reaper
    )


def ownership_of_named(resource: ProviderResource) -> Ownership:
    """Return the owner of a named volume or image, as `check_right_and_claim_owner` takes it."""
    return Ownership(f"the {resource.kind} {resource.name}", resource.tags.get(TAG_OWNER, ""))


def check_override(session: Session, reason: str | None) -> str | None:
    """Return the reason for overriding a budget; raise RoleNeeded where a member gives one."""
    if reason is not None:
        require_payer_role(session, "Overriding a budget")
    return reason


def check_owner(session: Session, owner: str) -> None:
    """Raise RoleNeeded where the user may not launch for this owner."""
    authorization = authorization_of(session)
    if (
        claim(authorization.people, authorization.role, authorization.person, owner, session.settings.owner)
        is Claim.REFUSED
    ):
        raise _not_their_name_error(session, authorization, owner)


def claim_owner(session: Session, owner: str) -> None:
    """Record that this owner's name is the user's, if it is free; raise RoleNeeded where they may not launch for it."""
    authorization = authorization_of(session)
    if (
        claim(authorization.people, authorization.role, authorization.person, owner, session.settings.owner)
        is Claim.GRANTED
    ):
        return

    def build_events(view: View) -> Sequence[Draft]:
        last_seq, _, _ = view.head()
        people = people_of(session.ledger.events(PEOPLE_SUBJECT), authorization.people.users)
        verdict = claim(people, authorization.role, authorization.person, owner, session.settings.owner)
        if verdict is Claim.REFUSED:
            raise _not_their_name_error(session, authorization, owner)
        return [owner_claimed(owner, authorization.person, session.clock(), last_seq)] if verdict is Claim.NEW else []

    session.ledger.decide(build_events)  # appends what it returns, in the transaction in which it looks


def owners(session: Session) -> OwnersDocument:
    """Return each recorded owner's name with the database user that it belongs to."""
    people = people_of(session.ledger.events(PEOPLE_SUBJECT), session.ledger.members())
    return {
        "owners": [{"owner": people.display_names[name], "user": user} for name, user in sorted(people.persons.items())]
    }


def assign_owner(session: Session, owner: str, person: str) -> OwnersDocument:
    """Record which user an owner's name belongs to; return all that are recorded.

    Raises RoleNeeded for a member, InvalidRequest where no team shares the ledger, for text of several lines, or for a
    user who is not in the team.
    """
    from cloudgpu.control.inputs.launch_request import check_line

    require_payer_role(session, "Saying whose an owner's name is")
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
    # The first of the head is the seq of the last line.
    session.ledger.decide(lambda view: [owner_assigned(owner, person, session.clock(), view.head()[0])])
    return owners(session)


def _not_their_name_error(session: Session, authorization: Authorization, owner: str) -> RoleNeeded:
    names, holder = authorization.people.names(authorization.person), authorization.people.person(owner)
    holder = holder if holder not in (owner, authorization.person) else None
    reason = (
        f"The owner's name {owner} belongs to {holder}"
        if holder
        else f"{owner} is not the name of {authorization.person}"
    )
    default_name = authorization.configured_owner
    own_name = names[0] if names else default_name if authorization.may_claim(default_name) else authorization.person
    return RoleNeeded(
        f"{reason}: launching for somebody else needs the payer's role, and {authorization.person} is a member.",
        field="--owner",
        value=owner,
        next=f'Launch as yourself: --owner {own_name}, or owner = "{own_name}" in config.toml; or ask a payer: '
        f"{_payers_text(session)}.",
    )


def _payers_text(session: Session) -> str:
    return ", ".join(session.ledger.payers()) or "there is none yet"


def _stoppers(session: Session) -> Stoppers:
    """Return who may stop others' machines by the lab's limits."""
    from cloudgpu.config.policies.find import lab_limits

    return lab_limits(session.published_policies()).stop or Stoppers.OWNER


_RIGHT_TEXTS = {
    Right.PAYER: "you have the payer's role",
    Right.MEMBERS: "the lab's limits let every member stop it",
    Right.REAPER: "reap acts for the lab",
}
