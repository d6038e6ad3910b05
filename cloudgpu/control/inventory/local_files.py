"""Keeps the client's own things in step with the ledger: saved calls, pinned host keys, tunnels, the SSH config."""

from __future__ import annotations

from cloudgpu.access.ssh import client_files
from cloudgpu.access.tunnel import background
from cloudgpu.control.network.authorized_keys import pin_shared
from cloudgpu.control.session.session import Session, living_machines
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.naming import lock_name
from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger import saved_calls as saved


def clean_up_local_files(session: Session) -> None:
    """Put the client's own files in order after something was done: a fault is told, for that was done all the same.

    Nothing is removed while the ledger is away: who does not know all machines cannot tell what belongs to none.
    """
    if session.ledger_away:
        return
    try:
        clean_up(session)
    except (CloudgpuError, OSError) as error:
        session.report(f"Some of cloudgpu's own files could not be cleaned up: {error}")


def clean_up(session: Session) -> None:
    """Remove what belongs to no living machine and write the SSH config anew.

    Derived from the ledger alone, so that whatever a killed process left is put right by the next command. Raises
    InvalidRequest for a file that cannot be understood.
    """
    # Files before rows: what a launch writes just now is then surely among the rows.
    calls = sorted(set(saved.unresolved(session.home.attempts)))
    pinned = client_files.pinned_machines(session.home.known_hosts)
    tunnelled = background.machine_ids(session.home.tunnels) if session.home.tunnels.is_dir() else []
    machines = session.ledger.machines()
    alive = living_machines(machines)
    for token, lock in calls:
        if token not in {row.token for row in alive} and not session.is_locked(lock):
            saved.delete(session.home.attempts, token)
    living, known = {row.id for row in alive}, {row.id: row for row in machines}
    gone = {one for one in {*pinned, *tunnelled} - living if not _is_between_attempts(session, known.get(one))}
    for machine in pinned:
        if machine in gone:
            client_files.unpin(session.home.known_hosts, machine)
    for machine in tunnelled:
        if machine in gone:
            background.stop(session.home.tunnels, machine)
    for row in alive:
        if row.shared:  # the system's own ssh can verify it then, too
            pin_shared(session, row)
    hosts = client_files.hosts_of(alive)
    client_files.write_config(
        session.home.ssh_config, hosts, key_file=session.client_key_file, known_hosts=session.home.known_hosts
    )


def _is_between_attempts(session: Session, machine: Machine | None) -> bool:
    """Say whether a machine that does not live is between two attempts of a launch that goes on."""
    return machine is not None and session.is_locked(lock_name(machine.key or machine.id))
