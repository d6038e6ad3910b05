"""Shares a running machine with a colleague, and ends that: their SSH key, their address, an event in the ledger."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cloudgpu.access.ssh import client_files
from cloudgpu.access.ssh.authorized_keys import SharedPublicKey, add_key, remove_key
from cloudgpu.control.access.allowlist import lock_rules
from cloudgpu.control.access.reach import connected_to
from cloudgpu.control.inventory.sync_some import explain_terminated
from cloudgpu.control.network.authorized_keys import address_label
from cloudgpu.control.network.reachability import client_cidr, firewall_of, no_firewall_error
from cloudgpu.control.team.authorization import check_right_and_claim_owner, requester_record
from cloudgpu.core.events.machine_events import machine_shared, machine_unshared
from cloudgpu.core.model.machine import Machine, is_inside_network, not_none
from cloudgpu.core.values.network import parse_cidr
from cloudgpu.errors import InvalidRequest
from cloudgpu.underway import on_abort

if TYPE_CHECKING:
    from cloudgpu.access.ssh.target import Target
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.access import ShareDocument

SAME = "same"  # `--from same`: the colleague is in the same network as this client


def check_from(typed: str | None, *, remove: bool) -> None:
    """Raise InvalidRequest for an invalid `--from`, before any provider is asked."""
    if typed is not None and remove:
        raise InvalidRequest(
            "--from and --remove contradict each other: --remove closes the addresses that were opened for a key.",
            field="--from",
            value=typed,
            next="Leave --from out.",
        )
    if typed not in (None, SAME):
        parse_cidr(str(typed), "--from")


def share(session: Session, machine: Machine, key: SharedPublicKey, *, from_: str | None = None) -> ShareDocument:
    """Let this key log in until the machine ends; return what the key's owner needs to do so.

    The key gets all rights of the user that cloudgpu logs in as. `from_` is the network its owner connects from, as
    typed (`same`: this client's address). It is required if the provider has SSH rules. Raises InvalidRequest if it is
    missing or invalid, InstanceNotFound for a machine that has ended, Unreachable, and RoleNeeded for another member's
    machine.
    """
    check_right_and_claim_owner(session, machine, "share")
    firewall = firewall_of(session, machine)
    if firewall is None and from_ is not None:
        raise no_firewall_error(session, machine, "--from")
    needs_rule = firewall is not None and (
        from_ is not None or not is_inside_network(machine)
    )  # else they connect as you do
    with explain_terminated(session, machine):
        allowed = firewall.allowed(not_none(machine.provider_id)) if firewall and needs_rule else {}
    network = _network_to_allow(session, machine, from_, allowed) if needs_rule else None
    with on_abort(_abort_note(machine)):
        with connected_to(session, machine) as connection:
            was_changed = add_key(connection, key)
            target = connection.target
        if network is not None and firewall is not None:
            was_changed |= allowed.get(address_label(machine, key)) != network
            with explain_terminated(session, machine), lock_rules(session, machine):
                firewall.allow(not_none(machine.provider_id), address_label(machine, key), network)
        host_key = client_files.pinned(session.home.known_hosts, target.id)
        _record_sharing(session, machine, key, network, host_key)
    return {
        "name": machine.name,
        "shared": True,
        "changed": was_changed,
        "key": key.fingerprint,
        "from": network,
        "ssh": _ssh_command(target),
        "host_key": host_key,
    }


def unshare(session: Session, machine: Machine, key: SharedPublicKey | None) -> ShareDocument:
    """Remove this key (None: every shared key) and its address; return as `share` does. Raises Unreachable, RoleNeeded.

    The address is removed first: that works even if the machine cannot be reached.
    """
    check_right_and_claim_owner(session, machine, "share")
    with on_abort(_abort_note(machine)):
        with explain_terminated(session, machine):
            rules_removed = _remove_rules(session, machine, key)
        with connected_to(session, machine) as connection:
            key_removed = remove_key(connection, key)
        fingerprint = key.fingerprint if key else None
        if machine.shared and (fingerprint is None or fingerprint in machine.shared):
            now, who = session.clock(), requester_record(session, machine, "share")
            session.ledger.append([machine_unshared(machine.id, fingerprint, now, host=platform.node(), who=who)])
    return {
        "name": machine.name,
        "shared": False,
        "changed": key_removed or rules_removed,
        "key": fingerprint,
        "from": None,
        "ssh": None,
        "host_key": None,
    }


def _record_sharing(
    session: Session, machine: Machine, key: SharedPublicKey, network: str | None, host_key: str | None
) -> None:
    """Record whose key was let in, from where, and the host key to pin, unless the ledger says the same."""
    recorded = machine.shared.get(key.fingerprint)
    if recorded is None or (recorded.label, recorded.network, recorded.host_key) != (key.comment, network, host_key):
        event = machine_shared(
            machine.id,
            key.fingerprint,
            session.clock(),
            label=key.comment,
            network=network,
            host_key=host_key,
            host=platform.node(),
            who=requester_record(session, machine, "share"),
        )
        session.ledger.append([event])


def _network_to_allow(session: Session, machine: Machine, typed: str | None, allowed: Mapping[str, str]) -> str | None:
    """Return the network to allow besides `allowed` (by label); None if none was typed and none is restricted."""
    if typed is not None:
        return client_cidr(session, option="--from") if typed == SAME else parse_cidr(typed, "--from")
    if not allowed:  # the machine is in a security group that is not cloudgpu's
        return None
    raise InvalidRequest(
        f"{machine.name} admits only named addresses; this key's owner has none yet.",
        field="--from",
        value=None,
        next="Name their public address, --from 203.0.113.7, or --from same for the network that you are in.",
    )


def _remove_rules(session: Session, machine: Machine, key: SharedPublicKey | None) -> bool:
    """Remove the address of a key (None: of every shared key); return whether there was one."""
    firewall = firewall_of(session, machine)
    if firewall is None:
        return False
    with lock_rules(session, machine):
        labels = [
            label for label in firewall.allowed(not_none(machine.provider_id)) if label.startswith(f"{machine.id}.")
        ]
        removed = [label for label in labels if key is None or label == address_label(machine, key)]
        for label in removed:
            firewall.allow(not_none(machine.provider_id), label, None)
    return bool(removed)


def _abort_note(machine: Machine) -> str:
    return f"Who may log in to {machine.name} may be changed in part. Run the same command again to finish it."


def _ssh_command(target: Target) -> str:
    """Return the command with which the key's owner connects."""
    address = target.address
    jump = f"-J {target.jump} " if target.jump else ""
    return f"ssh {jump}-p {address.port} {address.user}@{address.host}"
