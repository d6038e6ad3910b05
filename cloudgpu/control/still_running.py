"""What still runs on machines that are to be ended, where their computer goes on without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudgpu.core.model.instances import State
from cloudgpu.errors import CloudgpuError
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import TellsProcesses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudgpu.control.session import Session

Row = dict[str, Any]
AT_ONCE = 8


def still_running(session: Session, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return for each machine what runs there and ends with it; `processes` is null where that is not known.

    Left out are machines that have a computer of their own, which ends with all that is on it, and those on which
    nothing runs. Raises nothing.
    """
    asked = [row for row in rows if _is_to_ask(session, row)]
    if not asked:
        return []
    with Pool(min(AT_ONCE, len(asked))) as pool:
        found = list(pool.map(lambda row: _said(session, row), asked))
    return [one for one in found if one["processes"] != []]


def _is_to_ask(session: Session, row: Row) -> bool:
    if row["ended"] or row["provider_id"] is None or row["state"] != State.RUNNING:
        return False
    try:
        return isinstance(session.provider(row["account"]), TellsProcesses)  # asks nobody
    except CloudgpuError:
        return False


def _said(session: Session, row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {"name": row["name"], "id": row["id"], "processes": None, "fault": None}
    try:
        provider = session.provider_of(row)
        said = provider.processes(row["provider_id"]) if isinstance(provider, TellsProcesses) else ()
    except CloudgpuError as fault:
        return found | {"fault": fault.message}
    if said is None:
        return found | {"fault": "its computer does not tell its processes."}
    return found | {"processes": [{"pid": one.pid, "command": one.command, "seconds": one.seconds} for one in said]}
