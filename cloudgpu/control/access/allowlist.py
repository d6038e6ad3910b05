"""Moves the rule that lets this client in to where it is now, on one machine or on all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudgpu.control.inventory.sync_some import explain_terminated
from cloudgpu.control.network.authorized_keys import address_label, own_key, share_for_us
from cloudgpu.control.network.reachability import ClientAddressUnknown, client_cidr, firewall_of, no_firewall_error
from cloudgpu.control.session.session import Session, living_machines
from cloudgpu.control.team.authorization import authorization_of, check_may
from cloudgpu.core.model.checks import gravest
from cloudgpu.core.model.machine import Machine, is_behind, not_none
from cloudgpu.core.values.network import ANYWHERE, parse_cidr
from cloudgpu.errors import CloudgpuError, InstanceNotFound, InvalidRequest
from cloudgpu.underway import on_abort

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from cloudgpu.providers.abilities import Reachable
    from cloudgpu.views.documents.machines.access import AllowDocument, SkippedMachine, SshRule

CALLER = "caller"
TIMEOUT_S = 60


def parse_network(typed: str | None, *, any_source: bool = False) -> str | None:
    """Return the network that `--from` names, everybody's for `anywhere` alone, None where neither was said.

    Raises InvalidRequest for one that cannot be, or that is as wide as to be everybody's.
    """
    if typed is None:
        return ANYWHERE if any_source else None
    if any_source:
        raise InvalidRequest(
            f"--from {typed} and --from-anywhere contradict each other.",
            field="--from-anywhere",
            value=typed,
            next="Leave one of them out.",
        )
    return parse_cidr(typed, "--from")


@dataclass(slots=True)
class _Moves:
    """What became of each machine so far."""

    machines: list[SshRule] = field(default_factory=list)
    skipped: list[SkippedMachine] = field(default_factory=list)
    faults: list[CloudgpuError] = field(default_factory=list)


def allow(session: Session, name: str | None, cidr: str | None) -> tuple[AllowDocument, CloudgpuError | None]:
    """Open SSH to `cidr` (None: this client's public address) instead of where the caller came from before.

    For the machine called `name`, else for every living one whose provider has such rules; the others are skipped and
    named, as those of others are in a team. Returns the answer of `allow` and the gravest fault where one of several
    machines failed. Raises InvalidRequest for a named machine that has no such rules, or whose rules are somebody
    else's; RoleNeeded for one that is not theirs.
    """
    machines = _named(session, name, cidr) if name else living_machines(session.ledger.machines())
    if not machines:
        raise InstanceNotFound("No machine is running.", field="name", value=None, next="Run: cloudgpu up")
    moves = _Moves()
    known = {machine.id: machine for machine in session.ledger.machines()}
    if not name:
        machines, others = _split_by_owner(session, machines)
        moves.skipped += others
    for machine, keeper in _kept(session, machines, cidr, moves):
        try:
            with explain_terminated(session, machine), lock_rules(session, machine):
                before = keeper.allowed(
                    not_none(machine.provider_id)
                )  # the cloud first: without it no address is needed
                cidr = cidr or client_cidr(session, option="--from")
                with on_abort(f"Who may reach {machine.name} may have changed already. Run the same command again."):
                    moves.machines.append(_moved(machine, keeper, _label(session, machine), cidr, before, known))
        except ClientAddressUnknown:
            raise
        except (InvalidRequest, InstanceNotFound) as error:
            if name:
                raise
            moves.skipped.append({"name": machine.name, "why": error.message})
        except CloudgpuError as error:
            if name:
                raise
            moves.faults.append(error)
    code = gravest(error.exit_code for error in moves.faults)
    failed = [error.as_dict() for error in moves.faults]
    document: AllowDocument = {"from": cidr, "machines": moves.machines, "skipped": moves.skipped, "failed": failed}
    return document, next((error for error in moves.faults if error.exit_code == code), None)


def _split_by_owner(session: Session, machines: Sequence[Machine]) -> tuple[list[Machine], list[SkippedMachine]]:
    """Return the machines whose rule this person may move: their own, or shared with them; and why not the others."""
    authorization = authorization_of(session)
    ours = [
        machine for machine in machines if authorization.owns(machine) or share_for_us(session, machine) is not None
    ]
    return ours, [
        {"name": machine.name, "why": f"it is {authorization.whose(machine)}"}
        for machine in machines
        if machine not in ours
    ]


def lock_rules(session: Session, machine: Machine) -> AbstractContextManager[None]:
    """Hold the rules of an account alone: two who change them at once would lose one's label."""
    return session.lock(f"doors-{machine.account}", wait=TIMEOUT_S)


def _named(session: Session, name: str, cidr: str | None) -> list[Machine]:
    """Return the machine with this name, or all nodes of the cluster, where this person may move its rule."""
    return [_checked(session, machine, cidr) for machine in session.find_any(name)]


def _checked(session: Session, machine: Machine, cidr: str | None) -> Machine:
    if share_for_us(session, machine) is None:  # a colleague it is shared with moves their own address, and no other
        check_may(session, machine, "let anybody in to")
    if firewall_of(session, machine) is None:
        raise no_firewall_error(session, machine, "name")
    if is_behind(machine) and cidr is None:
        raise InvalidRequest(
            f"{machine.name} is reached from inside its network, so your public address does not matter.",
            field="--from",
            value=None,
            next="Name the address that it sees: --from 10.0.0.5/32",
        )
    return machine


def _kept(
    session: Session, machines: Sequence[Machine], cidr: str | None, moves: _Moves
) -> list[tuple[Machine, Reachable]]:
    """Return the machines that have a rule to be moved, and write down why the others have none."""
    found: list[tuple[Machine, Reachable]] = []
    for machine in machines:
        try:
            keeper = firewall_of(session, machine)
        except CloudgpuError as error:
            moves.faults.append(error)
            continue
        if keeper is None:
            moves.skipped.append(
                {"name": machine.name, "why": f"{machine.provider} has no rules about who may connect"}
            )
        elif is_behind(machine) and cidr is None:
            moves.skipped.append({"name": machine.name, "why": "it is reached from inside its network"})
        else:
            found.append((machine, keeper))
    return found


def _label(session: Session, machine: Machine) -> str:
    """Return whose address this is: the owner's, or a colleague's, whose key was let in; neither closes the other's."""
    return address_label(machine, own_key(session)) if share_for_us(session, machine) else CALLER


def _moved(
    row: Machine, keeper: Reachable, label: str, cidr: str, before: Mapping[str, str], known: dict[str, Machine]
) -> SshRule:
    machine = row.provider_id
    keeper.allow(not_none(machine), label, cidr)  # also where it seems so: a crash may have left the old rule beside it
    for other in before:
        if _is_of_the_dead(other, known):
            keeper.allow(not_none(machine), other, None)
    was = before.get(label)
    return {"name": row.name, "provider": row.provider, "before": was, "changed": was != cidr}


def _is_of_the_dead(label: str, known: dict[str, Machine]) -> bool:
    """Say whether a colleague's address was let in for a machine of this ledger that has ended."""
    owner = known.get(label.partition(".")[0])
    return owner is not None and owner.terminated_at is not None
