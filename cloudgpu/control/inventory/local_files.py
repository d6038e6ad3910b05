"""Cleans up the client's files by the ledger: saved calls, pinned host keys, tunnels, the SSH config."""

from __future__ import annotations

from cloudgpu.access.ssh import client_files
from cloudgpu.access.tunnel import background
from cloudgpu.control.network.authorized_keys import pin_shared
from cloudgpu.control.session.session import Session, living_machines
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.naming import lock_name
from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger import saved_calls


def clean_up_local_files(session: Session) -> None:
    """Clean up the client's files after a verb has done its work, so errors are only reported.

    Removes nothing while the ledger is unavailable, because then not all machines are known.
    """
    if session.ledger_away:
        return
    try:
        clean_up(session)
    except (CloudgpuError, OSError) as error:
        session.report(f"Some of cloudgpu's own files could not be cleaned up: {error}")


def clean_up(session: Session) -> None:
    """Remove what belongs to no living machine, and write the SSH config.

    It depends on the ledger only, so the next command cleans up what a killed process has left. Removes nothing while
    the ledger may be incomplete. Raises InvalidRequest for a file that cannot be parsed.
    """
    # Files are read before machines: what a launch writes meanwhile then belongs to one of the machines.
    calls = sorted(set(saved_calls.all_saved(session.home.attempts)))
    pinned_machine_ids = client_files.pinned_machines(session.home.known_hosts)
    tunnel_machine_ids = background.machine_ids(session.home.tunnels) if session.home.tunnels.is_dir() else []
    by_id = {machine.id: machine for machine in session.ledger.machines()}
    living = {machine.id: machine for machine in living_machines(list(by_id.values()))}
    living_tokens = {machine.token for machine in living.values()}
    ended_tokens = [token for token, lock in calls if token not in living_tokens and not session.is_locked(lock)]
    ended_ids = {
        one
        for one in {*pinned_machine_ids, *tunnel_machine_ids} - set(living)
        if not _is_between_attempts(session, by_id.get(one))
    }
    if (ended_tokens or ended_ids) and session.integrity_problem() is not None:
        ended_tokens, ended_ids = [], set()  # they may be of machines that the ledger lacks
    for token in ended_tokens:
        saved_calls.delete(session.home.attempts, token)
    for machine_id in ended_ids.intersection(pinned_machine_ids):
        client_files.unpin(session.home.known_hosts, machine_id)
    for machine_id in ended_ids.intersection(tunnel_machine_ids):
        background.stop(session.home.tunnels, machine_id)
    for machine in living.values():
        if machine.shared:  # so that the system's ssh can verify it, too
            pin_shared(session, machine)
    client_files.write_config(
        session.home.ssh_config,
        client_files.hosts_of(list(living.values())),
        key_file=session.client_key_file,
        known_hosts=session.home.known_hosts,
    )


def _is_between_attempts(session: Session, machine: Machine | None) -> bool:
    """Return whether the machine is between two attempts of a launch that is still in progress."""
    return machine is not None and session.is_locked(lock_name(machine.key or machine.id))
