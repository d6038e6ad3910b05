"""Lets colleagues' keys in to a running machine, and out again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudgpu.access import known_hosts
from cloudgpu.access.guests import GuestKey, let_in, let_out
from cloudgpu.control.reach import reached

if TYPE_CHECKING:
    from cloudgpu.control.session import Session

Row = dict[str, Any]


def share(session: Session, row: Row, key: GuestKey) -> dict[str, Any]:
    """Let this key log in until the machine ends; return what its owner needs to do so.

    It has all the rights of the user that cloudgpu logs in as. Raises Unreachable.
    """
    with reached(session, row) as connection:
        changed = let_in(connection, key)
        address, machine = connection.target.address, connection.target.id
    return {
        "name": row["name"],
        "shared": True,
        "changed": changed,
        "key": key.fingerprint,
        "ssh": f"ssh -p {address.port} {address.user}@{address.host}",
        "host_key": known_hosts.pinned(session.home.known_hosts, machine),
    }


def unshare(session: Session, row: Row, key: GuestKey | None) -> dict[str, Any]:
    """Take this key (every shared one, for None) out again; return as `share` does. Raises Unreachable."""
    with reached(session, row) as connection:
        changed = let_out(connection, key)
    fingerprint = key.fingerprint if key else None
    return {"name": row["name"], "shared": False, "changed": changed, "key": fingerprint, "ssh": None, "host_key": None}
