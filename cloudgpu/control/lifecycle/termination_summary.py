"""Says, before a user confirms the end of machines, what is deleted and which processes still run there.

Processes are listed only where the computer of a machine stays when it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from cloudgpu.core.model.instances import State
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.errors import CloudgpuError
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import LeavesFiles, ReportsProcesses

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.providers.base import Provider
    from cloudgpu.views.documents.machines.ended import BusyMachine


def termination_sentences(session: Session, machines: Sequence[Machine]) -> str:
    """Return, as sentences, what ending these machines deletes and what it leaves. Asks no provider."""
    machines_by_sentence: dict[str, list[Machine]] = {}
    for machine in machines:
        machines_by_sentence.setdefault(_remaining_text(session, machine), []).append(machine)
    if len(machines_by_sentence) == 1:
        (remaining,) = machines_by_sentence
        return " ".join(
            (remaining or _deleted_text(["it" if len(machines) == 1 else "them"]), *_volume_sentences(machines))
        )
    sentences = (
        f"{', '.join(machine.name for machine in group)}: {remaining}"
        if remaining
        else _deleted_text([machine.name for machine in group])
        for remaining, group in machines_by_sentence.items()
    )
    return " ".join((*sentences, *_volume_sentences(machines)))


def _remaining_text(session: Session, machine: Machine) -> str:
    """Return what the provider leaves when a machine ends; empty where everything on it is deleted."""
    for name in (machine.account, *session.settings.accounts, machine.provider):
        with suppress(CloudgpuError):
            provider: Provider = session.provider(name)
            if provider.kind == machine.provider:
                return provider.end_effect if isinstance(provider, LeavesFiles) else ""
    return ""


def _deleted_text(names: Sequence[str]) -> str:
    return f"What is on {' and '.join(names)} is deleted."


def _volume_sentences(machines: Sequence[Machine]) -> Iterator[str]:
    """Yield the sentence that volumes stay, where a machine has one."""
    names = sorted({machine.setup.volume.name for machine in machines if machine.setup and machine.setup.volume})
    if names:
        yield f"The volume{'s'[: len(names) > 1]} {' and '.join(names)} stay{'s'[: len(names) == 1]}."


MAX_PARALLEL = 8


def machines_with_processes(session: Session, machines: Sequence[Machine]) -> list[BusyMachine]:
    """Return the machines whose processes end with them; `processes` is null where they are not known.

    Without machines whose whole computer ends with them, and those without processes. Raises nothing.
    """
    to_query = [machine for machine in machines if _can_query(session, machine)]
    if not to_query:
        return []
    with Pool(min(MAX_PARALLEL, len(to_query))) as pool:
        answers = list(pool.map(lambda machine: _busy_machine(session, machine), to_query))
    return [machine_processes for machine_processes in answers if machine_processes["processes"] != []]


def _can_query(session: Session, machine: Machine) -> bool:
    if not machine.terminated_at and machine.provider_id is not None and machine.state == State.RUNNING:
        with suppress(CloudgpuError):
            return isinstance(session.provider(machine.account), ReportsProcesses)  # sends no request
    return False


def _busy_machine(session: Session, machine: Machine) -> BusyMachine:
    answer: BusyMachine = {"name": machine.name, "id": machine.id, "processes": None, "error": None}
    try:
        provider = session.provider_of(machine)
        processes = provider.processes(not_none(machine.provider_id)) if isinstance(provider, ReportsProcesses) else ()
    except CloudgpuError as error:
        return answer | {"error": error.message}
    if processes is None:
        return answer | {"error": "its computer does not tell its processes."}
    return answer | {
        "processes": [
            {"pid": process.pid, "command": process.command, "seconds": process.seconds} for process in processes
        ]
    }
