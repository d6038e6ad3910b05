"""Keeps the client's own things in step with the ledger: saved calls, pinned host keys, tunnels, the SSH config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudgpu.access import known_hosts, ssh_config
from cloudgpu.control import saved, tunnels
from cloudgpu.control.session import Session, living
from cloudgpu.core.facts import Address
from cloudgpu.core.names import lock_name
from cloudgpu.ledger.locks import held

if TYPE_CHECKING:
    from cloudgpu.core.facts import Attempt

Row = dict[str, Any]


def tidy(session: Session) -> None:
    """Remove what belongs to no living machine and write the SSH config anew.

    Derived from the ledger alone, so that whatever a killed process left is put right by the next command.
    """
    # Files before rows: what a launch writes just now is then surely among the rows.
    waiting = list(saved.tokens(session.home.attempts))
    pinned = known_hosts.machines(session.home.known_hosts)
    alive = living(session.ledger.machines())
    needed = {row["token"] for row in alive}
    for token in waiting:
        if token not in needed and not _being_made(session, token):
            saved.forget(session.home.attempts, token)
    for machine in pinned:
        if machine not in {row["id"] for row in alive}:
            known_hosts.unpin(session.home.known_hosts, machine)
    tunnels.end_orphans(session, {row["id"] for row in alive})
    write_ssh_config(session, alive)


def write_ssh_config(session: Session, alive: list[Row]) -> None:
    """Write the config for every machine that has an address; remove it when there is none."""
    hosts = [ssh_config.SshHost(row["name"], row["id"], Address(**row["address"])) for row in alive if row["address"]]
    ssh_config.write(
        session.home.ssh_config, hosts, key_file=session.client_key_file, known_hosts=session.home.known_hosts
    )


def _being_made(session: Session, token: str) -> bool:
    attempt = _readable(session, token)
    return attempt is not None and held(session.home.locks, lock_name(attempt.request.key))


def _readable(session: Session, token: str) -> Attempt | None:
    from cloudgpu.errors import LedgerUnavailable

    try:
        return saved.load(session.home.attempts, token)
    except LedgerUnavailable:
        return None
