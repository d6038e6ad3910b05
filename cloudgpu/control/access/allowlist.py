"""Changes the SSH rule of one machine, or of all, to the network that this client is in now."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudgpu.control.inventory.sync_some import explain_terminated
from cloudgpu.control.network.authorized_keys import address_label, own_key, share_with_this_home
from cloudgpu.control.network.reachability import ClientAddressUnknown, client_cidr, firewall_of, no_firewall_error
from cloudgpu.control.session.session import Session, living_machines
from cloudgpu.control.team.authorization import authorization_of, check_right_and_claim_owner
from cloudgpu.core.model.checks import exit_code_of_checks
from cloudgpu.core.model.machine import Machine, is_inside_network, not_none
from cloudgpu.core.values.network import EVERYBODY, parse_cidr
from cloudgpu.errors import CloudgpuError, InstanceNotFound, InvalidRequest
from cloudgpu.underway import on_abort

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from cloudgpu.providers.abilities import HasFirewall
    from cloudgpu.views.documents.machines.access import AllowDocument, SkippedMachine, SshRule

OWNER_LABEL = "caller"  # the label of the owner's rule, which providers also give the rule of a launch
LOCK_TIMEOUT_S = 60


def parse_network(typed: str | None, *, any_source: bool = False) -> str | None:
    """Return the network that `--from` names, EVERYBODY for `--from-anywhere`, None if neither option was given.

    Raises InvalidRequest for both options, an invalid network, or one so wide that it admits everybody.
    """
    if typed is None:
        return EVERYBODY if any_source else None
    if any_source:
        raise InvalidRequest(
            f"--from {typed} and --from-anywhere contradict each other.",
            field="--from-anywhere",
            value=typed,
            next="Leave one of them out.",
        )
    return parse_cidr(typed, "--from")


@dataclass(slots=True)
class _Outcome:
    """Of one `allow`: the rules that were changed, the machines that were skipped, and the errors, so far."""

    rules: list[SshRule] = field(default_factory=list)
    skipped: list[SkippedMachine] = field(default_factory=list)
    errors: list[CloudgpuError] = field(default_factory=list)


def allow(session: Session, name: str | None, cidr: str | None) -> tuple[AllowDocument, CloudgpuError | None]:
    """Open SSH to `cidr` (None: this client's public address) in place of the network that was allowed before.

    For the machine or cluster called `name`; for None, for every machine that has not ended. Machines without SSH rules
    and machines of other team members are then skipped. Returns the document of `allow`, and the gravest error if
    one of several machines failed. Raises InvalidRequest for a named machine without SSH rules, or whose rules are
    somebody else's; RoleNeeded for one that belongs to another member.
    """
    machines = (
        [_check_may_change(session, machine, cidr) for machine in session.find_machine_or_nodes(name)]
        if name
        else living_machines(session.ledger.machines())
    )
    if not machines:
        raise InstanceNotFound("No machine is running.", field="name", value=None, next="Run: cloudgpu up")
    outcome = _Outcome()
    machines_by_id = {machine.id: machine for machine in session.ledger.machines()}
    if not name:
        machines, skipped = _split_by_owner(session, machines)
        outcome.skipped += skipped
    for machine, firewall in _with_firewall(session, machines, cidr, outcome):
        try:
            with explain_terminated(session, machine), lock_rules(session, machine):
                # The cloud is asked first: if it fails, this client's address need not be looked up.
                allowed = firewall.allowed(not_none(machine.provider_id))
                cidr = cidr or client_cidr(session, option="--from")
                with on_abort(f"Who may reach {machine.name} may have changed already. Run the same command again."):
                    outcome.rules.append(
                        _change_rule(machine, firewall, _rule_label(session, machine), cidr, allowed, machines_by_id)
                    )
        except ClientAddressUnknown:
            raise
        except (InvalidRequest, InstanceNotFound) as error:
            if name:
                raise
            outcome.skipped.append({"name": machine.name, "why": error.message})
        except CloudgpuError as error:
            if name:
                raise
            outcome.errors.append(error)
    worst_exit_code = exit_code_of_checks(error.exit_code for error in outcome.errors)
    failed = [error.as_dict() for error in outcome.errors]
    document: AllowDocument = {"from": cidr, "machines": outcome.rules, "skipped": outcome.skipped, "failed": failed}
    return document, next((error for error in outcome.errors if error.exit_code == worst_exit_code), None)


def _split_by_owner(session: Session, machines: Sequence[Machine]) -> tuple[list[Machine], list[SkippedMachine]]:
    """Return the machines whose rule this user may change, their own and those shared with them; and the others."""
    authorization = authorization_of(session)
    permitted = [
        machine
        for machine in machines
        if authorization.owns(machine) or share_with_this_home(session, machine) is not None
    ]
    return permitted, [
        {"name": machine.name, "why": f"it is {authorization.owner_text(machine)}"}
        for machine in machines
        if machine not in permitted
    ]


def lock_rules(session: Session, machine: Machine) -> AbstractContextManager[None]:
    """Lock the SSH rules of the machine's account: of two concurrent changes, one would be lost."""
    return session.lock(f"doors-{machine.account}", wait=LOCK_TIMEOUT_S)


def _check_may_change(session: Session, machine: Machine, cidr: str | None) -> Machine:
    """Return the machine. Raises as `allow` if this user may not change its rule, or it has none."""
    if (
        share_with_this_home(session, machine) is None
    ):  # a colleague it is shared with changes their own address, and no other
        check_right_and_claim_owner(session, machine, "let anybody in to")
    if firewall_of(session, machine) is None:
        raise no_firewall_error(session, machine, "name")
    if is_inside_network(machine) and cidr is None:
        raise InvalidRequest(
            f"{machine.name} is reached from inside its network, so your public address does not matter.",
            field="--from",
            value=None,
            next="Name the address that it sees: --from 10.0.0.5/32",
        )
    return machine


def _with_firewall(
    session: Session, machines: Sequence[Machine], cidr: str | None, outcome: _Outcome
) -> list[tuple[Machine, HasFirewall]]:
    """Return the machines whose provider has SSH rules, each with that provider; add the others to `outcome`."""
    with_rules: list[tuple[Machine, HasFirewall]] = []
    for machine in machines:
        try:
            firewall = firewall_of(session, machine)
        except CloudgpuError as error:
            outcome.errors.append(error)
            continue
        if firewall is None:
            outcome.skipped.append(
                {"name": machine.name, "why": f"{machine.provider} has no rules about who may connect"}
            )
        elif is_inside_network(machine) and cidr is None:
            outcome.skipped.append({"name": machine.name, "why": "it is reached from inside its network"})
        else:
            with_rules.append((machine, firewall))
    return with_rules


def _rule_label(session: Session, machine: Machine) -> str:
    """Return the label of this user's rule: the owner's, or a colleague's own, so that neither replaces the other's."""
    return address_label(machine, own_key(session)) if share_with_this_home(session, machine) else OWNER_LABEL


def _change_rule(
    machine: Machine,
    firewall: HasFirewall,
    label: str,
    cidr: str,
    allowed: Mapping[str, str],
    machines_by_id: dict[str, Machine],
) -> SshRule:
    """Allow `cidr` under this label in place of `allowed`, the networks by label; remove rules of ended machines."""
    provider_id = not_none(machine.provider_id)
    firewall.allow(provider_id, label, cidr)  # even if it is allowed: a crash may have left the old rule in addition
    for other_label in allowed:
        if _is_label_of_ended(other_label, machines_by_id):
            firewall.allow(provider_id, other_label, None)  # None removes the rule
    previous = allowed.get(label)
    return {"name": machine.name, "provider": machine.provider, "before": previous, "changed": previous != cidr}


def _is_label_of_ended(label: str, machines_by_id: dict[str, Machine]) -> bool:
    """Return whether the label is a colleague's, for a machine of this ledger that has ended."""
    machine = machines_by_id.get(label.partition(".")[0])
    return machine is not None and machine.terminated_at is not None
