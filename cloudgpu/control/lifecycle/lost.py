"""Records a machine as gone on its owner's word, where its account or computer will never answer again."""

from __future__ import annotations

from cloudgpu.control.lifecycle.lifecycle import lock_machine
from cloudgpu.control.session.base import is_mine
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import authorization_of, check_right, check_right_and_claim_owner
from cloudgpu.core.events.launch_events import launch_settled
from cloudgpu.core.events.observations import instance_vanished, not_before
from cloudgpu.core.model.identity import is_local_or_ssh_host
from cloudgpu.core.model.machine import Machine, command_name, not_none
from cloudgpu.core.team.rights import Role
from cloudgpu.errors import AuthFailed, InvalidRequest, NotReachableHere, ProviderUnavailable
from cloudgpu.ledger import saved_calls as saved
from cloudgpu.ledger.last_seen import last_seen_at
from cloudgpu.views.ended import ended_error


def record_as_lost(session: Session, machine: Machine, why: str) -> Machine:
    """Record that the machine is gone because its owner says so, for the reason `why`; return the machine.

    No request is sent. A later sync that finds the machine records that it exists. Raises InvalidRequest for a machine
    that can be asked from here or without a reason, ProviderUnavailable where a cloud is merely silent,
    InstanceNotFound for one that has ended, RoleNeeded where it is not theirs to end.
    """
    if not why.strip():
        message = "Say why it is known that the machine is gone."
        raise InvalidRequest(message, field="--lost", value=why, next="For example: --lost 'bigbox was reinstalled'")
    check_right_and_claim_owner(session, machine, "end")
    _check_owner(session, machine)
    with lock_machine(session, machine):
        machine = session.ledger.machine(machine.id) or machine
        if machine.terminated_at is not None:
            raise ended_error(machine, session.clock())
        _check_out_of_reach(session, machine)
        now, proof = not_before(machine, session.clock()), f"{session.settings.owner} says so: {why.strip()}"
        events = [
            instance_vanished(machine.id, machine.provider_id or "", proof, now, last_seen_at(session.ledger, machine))
        ]
        if machine.launch_status == "open":
            events = [launch_settled(machine.id, not_none(machine.token), "void", proof, now)]
        lost_machine = session.ledger.append_to(machine, events)
        if is_local_or_ssh_host(machine):  # a cloud may still create it: settling that needs the saved call
            saved.delete(session.home.attempts, machine.token or "none")
    return lost_machine


def check_lost(session: Session, machine: Machine, option: str) -> None:
    """Raise as `record_as_lost` would, where the machine answers from here or the user may not end it."""
    try:
        _check_owner(session, machine)
        _check_out_of_reach(session, machine)
    except InvalidRequest as error:
        error.field = option
        raise


def _check_owner(session: Session, machine: Machine) -> None:
    """Raise where the user may not record this: without roles, only the machine's owner may."""
    authorization = authorization_of(session)
    check_right(session, machine, "end", authorization=authorization)
    if authorization.role is Role.ALONE and machine.owner and not is_mine(session, machine):
        raise InvalidRequest(
            f"{machine.name} is {machine.owner}'s: only they may record it as gone.",
            field="--lost",
            value=machine.name,
            next=f"Ask {machine.owner}.",
        )


def _check_out_of_reach(session: Session, machine: Machine) -> None:
    """Raise InvalidRequest for a machine that can be asked from here, ProviderUnavailable for a silent cloud."""
    try:
        session.provider_of(machine)
    except AuthFailed:
        raise
    except (NotReachableHere, InvalidRequest):
        return
    except ProviderUnavailable:
        if not is_local_or_ssh_host(machine):  # a cloud will answer again
            raise
        return
    raise InvalidRequest(
        f"{machine.name} can be reached from here, so --lost is not needed.",
        field="--lost",
        value=machine.name,
        next=f"Run: cloudgpu down {command_name(machine)}",
    )
