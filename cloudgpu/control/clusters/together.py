"""Does one thing to all nodes of a cluster in parallel; an error at one node does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from cloudgpu.control.outage.outage import continue_without_ledger, unrecorded_error, without_ledger
from cloudgpu.control.session.session import Session
from cloudgpu.core.clusters.members import node_number
from cloudgpu.core.model.machine import Machine, command_name, may_run_text
from cloudgpu.errors import CloudgpuError, StopUnproved
from cloudgpu.ledger.log.storage_errors import LedgerAway
from cloudgpu.parallel import Pool

T = TypeVar("T")
NodeCall = Callable[["Session", Machine], T]
MAX_PARALLEL = 16  # nodes that are asked, and proved, side by side


class ClusterResult(NamedTuple):
    """The result for all nodes: their present records, in order, and an error for each that failed."""

    machines: tuple[Machine, ...]
    faults: tuple[CloudgpuError, ...] = ()

    @property
    def worst(self) -> CloudgpuError | None:
        """The error whose exit code counts; None without errors."""
        return worst_of(self.faults)


def worst_of(errors: Iterable[CloudgpuError]) -> CloudgpuError | None:
    """Return the error whose exit code counts: 9 before 8 before the rest."""
    order = {9: 0, 8: 1}
    return min(errors, key=lambda fault: order.get(fault.exit_code, 2), default=None)


def run_on_machines(session: Session, machines: Sequence[Machine], act: NodeCall[T]) -> list[T | CloudgpuError]:
    """Call `act` for each machine in parallel, each in a session of its own; return the results or errors in order."""
    if len(machines) < 2:  # noqa: PLR2004  (one needs no thread, and no connection of its own)
        return [_act_or_error(session, machine, act) for machine in machines]

    def in_own_session(machine: Machine) -> T | CloudgpuError:
        with session.for_thread() as own:
            return _act_or_error(own, machine, act)

    with Pool(MAX_PARALLEL, "machines") as pool:
        return list(pool.map(in_own_session, machines))


def _act_or_error(session: Session, machine: Machine, act: NodeCall[T]) -> T | CloudgpuError:
    try:
        return act(session, machine)
    except CloudgpuError as error:
        if machine.name not in error.message:  # of several, nobody would know which one it is
            error.message = f"{machine.name}: {error.message}"
        return error
    except Exception as bug:  # noqa: BLE001  (the other nodes have to be ended all the same)
        return StopUnproved(
            f"{machine.name} {may_run_text(machine)}: it failed there ({type(bug).__name__}: {bug}).",
            field="name",
            value=machine.name,
            next=f"Run: cloudgpu down {command_name(machine)}, and report this.",
        )


def workers_first(session: Session, machines: Sequence[Machine], act: NodeCall[T]) -> list[T | CloudgpuError]:
    """Do as `run_on_machines` does, but node 0 after the others, since it has the queue of all."""
    first = [machine for machine in machines if node_number(machine) == 0]
    others = [machine for machine in machines if node_number(machine) != 0]
    outcomes = {
        machine.id: outcome
        for some in (others, first)
        for machine, outcome in zip(some, run_on_machines(session, some, act), strict=True)
    }
    return [outcomes[machine.id] for machine in machines]


def with_or_without_ledger(act: NodeCall[T], done: Callable[[T], str]) -> NodeCall[T]:
    """Return `act`, made to work without an unavailable ledger; `done` returns what was done, without a full stop."""
    return lambda session, machine: without_ledger(session, machine, partial(act, session), done)


def all_without_ledger(
    session: Session, machines: Sequence[Machine], act: Callable[[], list[T | CloudgpuError]], done: str
) -> list[T | CloudgpuError]:
    """Return `act()` for all of these machines; if the ledger is unavailable at the beginning, act without it.

    If the ledger is still unavailable then, one more error says so; `done` is what was done, without a full stop.
    """
    try:
        return act()
    except LedgerAway as error:
        if session.ledger_away:
            raise
        with continue_without_ledger(session, error, machines) as stand_in:
            session.report(f"{command_name(machines[0])}: {error.message} Continuing without it")
            outcomes = act()
            return outcomes if stand_in.offer() else [*outcomes, unrecorded_error(done, stand_in)]


def faults_in(outcomes: Iterable[T | CloudgpuError]) -> tuple[CloudgpuError, ...]:
    """Return the errors among the outcomes."""
    return tuple(one for one in outcomes if isinstance(one, CloudgpuError))


def reload_machines(session: Session, machines: Iterable[Machine]) -> tuple[Machine, ...]:
    """Return the records of these machines as the ledger has them now."""
    return tuple(session.ledger.machine(machine.id) or machine for machine in machines)
