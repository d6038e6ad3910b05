"""Says, before anybody confirms the end of machines, what it takes away and what still runs on them.

What still runs is told where a machine's computer goes on without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from cloudgpu.core.model.instances import State
from cloudgpu.core.model.machine import Machine, fact
from cloudgpu.errors import CloudgpuError
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import LeavesFiles, ReportsProcesses

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.providers.base import Provider
    from cloudgpu.views.documents.machines.machines import BusyMachine


def termination_sentences(session: Session, rows: Sequence[Machine]) -> str:
    """Return, in whole sentences, what ending these machines deletes and what it leaves. Asks nobody."""
    said: dict[str, list[Machine]] = {}
    for row in rows:
        said.setdefault(_left(session, row), []).append(row)
    if len(said) == 1:
        (means,) = said
        return " ".join((means or _deleted(["it" if len(rows) == 1 else "them"]), *_volumes(rows)))
    each = (
        f"{_names(some)}: {means}" if means else _deleted([row.name for row in some]) for means, some in said.items()
    )
    return " ".join((*each, *_volumes(rows)))


def _left(session: Session, row: Machine) -> str:
    """Return what its provider says that an end leaves; empty where all that is on the machine goes."""
    for name in (row.account, *session.settings.accounts, row.provider):
        with suppress(CloudgpuError):
            provider: Provider = session.provider(name)
            if provider.kind == row.provider:
                return provider.end_effect if isinstance(provider, LeavesFiles) else ""
    return ""


def _deleted(names: Sequence[str]) -> str:
    return f"What is on {' and '.join(names)} is deleted."


def _names(rows: Sequence[Machine]) -> str:
    return ", ".join(row.name for row in rows)


def _volumes(rows: Sequence[Machine]) -> Iterator[str]:
    """Yield that volumes stay, where a machine has one."""
    setups = [row.setup for row in rows if row.setup]
    names = sorted({volume.name for volume in (setup.volume for setup in setups) if volume})
    if names:
        yield f"The volume{'s'[: len(names) > 1]} {' and '.join(names)} stay{'s'[: len(names) == 1]}."


AT_ONCE = 8


def still_running(session: Session, rows: Sequence[Machine]) -> list[BusyMachine]:
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


def _is_to_ask(session: Session, row: Machine) -> bool:
    if row.terminated_at or row.provider_id is None or row.state != State.RUNNING:
        return False
    try:
        return isinstance(session.provider(row.account), ReportsProcesses)  # asks nobody
    except CloudgpuError:
        return False


def _said(session: Session, row: Machine) -> BusyMachine:
    found: BusyMachine = {"name": row.name, "id": row.id, "processes": None, "error": None}
    try:
        provider = session.provider_of(row)
        said = provider.processes(fact(row.provider_id)) if isinstance(provider, ReportsProcesses) else ()
    except CloudgpuError as fault:
        return found | {"error": fault.message}
    if said is None:
        return found | {"error": "its computer does not tell its processes."}
    return found | {"processes": [{"pid": one.pid, "command": one.command, "seconds": one.seconds} for one in said]}
