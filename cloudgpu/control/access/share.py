"""Lets colleagues in to a running machine, and out again: their keys there, their addresses, a line in the ledger."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cloudgpu.access.ssh import client_files
from cloudgpu.access.ssh.authorized_keys import GuestKey, add_key, remove_key
from cloudgpu.control.access.allowlist import lock_rules
from cloudgpu.control.access.reach import reached
from cloudgpu.control.inventory.sync_some import explain_terminated
from cloudgpu.control.network.authorized_keys import address_label
from cloudgpu.control.network.reachability import client_cidr, firewall_of, no_firewall_error
from cloudgpu.control.team.authorization import by, check_may
from cloudgpu.core.events.machine_lines import machine_shared, machine_unshared
from cloudgpu.core.model.machine import Machine, is_behind, not_none
from cloudgpu.core.values.network import parse_cidr
from cloudgpu.errors import InvalidRequest
from cloudgpu.underway import on_abort

if TYPE_CHECKING:
    from cloudgpu.access.ssh.target import Target
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.access import ShareDocument

SAME = "same"  # the word for a colleague who sits in the network that this client calls from


def check_from(typed: str | None, *, remove: bool) -> None:
    """Raise InvalidRequest for a `--from` that cannot be, before anybody is asked."""
    if typed is not None and remove:
        raise InvalidRequest(
            "--from and --remove contradict each other: --remove closes the addresses that were opened for a key.",
            field="--from",
            value=typed,
            next="Leave --from out.",
        )
    if typed not in (None, SAME):
        parse_cidr(str(typed), "--from")


def share(session: Session, machine: Machine, key: GuestKey, *, from_: str | None = None) -> ShareDocument:
    """Let this key log in until the machine ends; return what its owner needs to do so.

    It has all the rights of the user that cloudgpu logs in as. `from_` is the network it comes from, as it was typed
    (`same`: this client's address): needed where the provider says who may connect. Raises InvalidRequest where it is
    missing or cannot be, InstanceNotFound for a machine that has ended, Unreachable, RoleNeeded where it is not theirs.
    """
    check_may(session, machine, "share")
    keeper = firewall_of(session, machine)
    if keeper is None and from_ is not None:
        raise no_firewall_error(session, machine, "--from")
    kept = keeper is not None and (from_ is not None or not is_behind(machine))  # else they come the way that you come
    with explain_terminated(session, machine):
        before = keeper.allowed(not_none(machine.provider_id)) if keeper and kept else {}
    network = _network(session, machine, from_, before) if kept else None
    with on_abort(_half_done(machine)):
        with reached(session, machine) as connection:
            changed = add_key(connection, key)
            target = connection.target
        if network is not None and keeper is not None:
            changed |= before.get(address_label(machine, key)) != network
            with explain_terminated(session, machine), lock_rules(session, machine):
                keeper.allow(not_none(machine.provider_id), address_label(machine, key), network)
        host_key = client_files.pinned(session.home.known_hosts, target.id)
        _hand_over(session, machine, key, {"label": key.comment, "from": network, "host_key": host_key})
    return {
        "name": machine.name,
        "shared": True,
        "changed": changed,
        "key": key.fingerprint,
        "from": network,
        "ssh": _command(target),
        "host_key": host_key,
    }


def unshare(session: Session, machine: Machine, key: GuestKey | None) -> ShareDocument:
    """Take this key (every shared one, for None) and its address out again; return as `share` does.

    The address first: it goes even where the machine cannot be reached. Raises Unreachable, RoleNeeded.
    """
    check_may(session, machine, "share")
    with on_abort(_half_done(machine)):
        with explain_terminated(session, machine):
            closed = _closed(session, machine, key)
        with reached(session, machine) as connection:
            changed = remove_key(connection, key)
        fingerprint = key.fingerprint if key else None
        if machine.shared and (fingerprint is None or fingerprint in machine.shared):
            now = session.clock()
            who = by(session, machine, "share")
            session.ledger.append([machine_unshared(machine.id, fingerprint, now, host=platform.node(), who=who)])
    return {
        "name": machine.name,
        "shared": False,
        "changed": changed or closed,
        "key": fingerprint,
        "from": None,
        "ssh": None,
        "host_key": None,
    }


def _hand_over(session: Session, machine: Machine, key: GuestKey, data: dict[str, Any]) -> None:
    """Write whose key was let in, and the host key that their home is to pin, where the ledger does not say it."""
    now, known = session.clock(), machine.shared.get(key.fingerprint)
    if known is None or (known.label, known.network, known.host_key) != (
        data["label"],
        data["from"],
        data["host_key"],
    ):
        line = machine_shared(
            machine.id,
            key.fingerprint,
            now,
            label=data["label"],
            network=data["from"],
            host_key=data["host_key"],
            host=platform.node(),
            who=by(session, machine, "share"),
        )
        session.ledger.append([line])


def _network(session: Session, machine: Machine, typed: str | None, before: Mapping[str, str]) -> str | None:
    """Return the network to be let in beside those of `before`; None where somebody else's group shows none of ours."""
    if typed is not None:
        return client_cidr(session, option="--from") if typed == SAME else parse_cidr(typed, "--from")
    if not before:
        return None
    raise InvalidRequest(
        f"{machine.name} admits only named addresses; this key's owner has none yet.",
        field="--from",
        value=None,
        next="Name their public address, --from 203.0.113.7, or --from same for the network that you are in.",
    )


def _closed(session: Session, machine: Machine, key: GuestKey | None) -> bool:
    """Take the address of a key (of every shared one, for None) out; return whether there was one."""
    keeper = firewall_of(session, machine)
    if keeper is None:
        return False
    with lock_rules(session, machine):
        labels = [
            label for label in keeper.allowed(not_none(machine.provider_id)) if label.startswith(f"{machine.id}.")
        ]
        gone = [label for label in labels if key is None or label == address_label(machine, key)]
        for label in gone:
            keeper.allow(not_none(machine.provider_id), label, None)
    return bool(gone)


def _half_done(machine: Machine) -> str:
    return f"Who may log in to {machine.name} may be changed in part. Run the same command again to finish it."


def _command(target: Target) -> str:
    """Return what the key's owner types."""
    address = target.address
    through = f"-J {target.jump} " if target.jump else ""
    return f"ssh {through}-p {address.port} {address.user}@{address.host}"
