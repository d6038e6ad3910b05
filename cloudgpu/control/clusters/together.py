"""Runs an operation on several machines in parallel, mostly all nodes of a cluster: an error at one stops no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from cloudgpu.control.outage.outage import continue_without_ledger, unrecorded_error, without_ledger
from cloudgpu.control.session.session import Session
from cloudgpu.core.clusters.layout import cluster_id, in_order
from cloudgpu.core.model.machine import Machine, command_name, may_run_text, node_of
from cloudgpu.errors import CloudgpuError, StopUnproved
from cloudgpu.ledger.log.storage_errors import LedgerAway
from cloudgpu.parallel import Pool

T = TypeVar("T")
Item = TypeVar("Item")
Answer = TypeVar("Answer")
NodeCall = Callable[[Session, Machine], T]
MAX_PARALLEL = 16


class ClusterResult(NamedTuple):
    """The result for all nodes: their present records, in order, and an error for each that failed."""

    machines: tuple[Machine, ...]
    errors: tuple[CloudgpuError, ...] = ()

    @property
    def worst(self) -> CloudgpuError | None:
        """The error whose exit code counts; None without errors."""
        return worst_of(self.errors)


def worst_of(errors: Iterable[CloudgpuError]) -> CloudgpuError | None:
    """Return the error whose exit code counts: an unconfirmed stop (9) before no answer (8) before the others."""
    severity_by_exit_code = {9: 0, 8: 1}
    return min(errors, key=lambda error: severity_by_exit_code.get(error.exit_code, 2), default=None)


def raise_worst(outcomes: Iterable[T | CloudgpuError]) -> None:
    """Raise the error among the outcomes whose exit code counts, if there is one."""
    worst = worst_of(errors_in(outcomes))
    if worst is not None:
        raise worst


def run_on_machines(session: Session, machines: Sequence[Machine], call: NodeCall[T]) -> list[T | CloudgpuError]:
    """Run `call` for each machine in parallel, each in a session of its own; return the results or errors in order."""
    return call_for_each(session, partial(_call_or_error, call), machines, MAX_PARALLEL, "machines")


def _call_or_error(call: NodeCall[T], session: Session, machine: Machine) -> T | CloudgpuError:
    try:
        return call(session, machine)
    except CloudgpuError as error:
        if machine.name not in error.message:  # the user has to know which machine it is
            error.message = f"{machine.name}: {error.message}"
        return error
    except Exception as bug:  # noqa: BLE001  (the other nodes have to be ended all the same)
        return StopUnproved(
            f"{machine.name} {may_run_text(machine)}: it failed there ({type(bug).__name__}: {bug}).",
            field="name",
            value=machine.name,
            next=f"Run: cloudgpu down {command_name(machine)}, and report this.",
        )


def call_for_each(
    session: Session, call: Callable[[Session, Item], Answer], items: Sequence[Item], max_parallel: int, what: str = ""
) -> list[Answer]:
    """Return what `call` returns for each item, in their order; `max_parallel` at a time, each in its own session.

    A single item needs no thread, and no session of its own. `what` names the items in the plural. Raises the first
    error.
    """
    if len(items) < 2:  # noqa: PLR2004
        return [call(session, item) for item in items]

    def call_in_own_session(item: Item) -> Answer:
        with session.for_thread() as thread_session:
            return call(thread_session, item)

    with Pool(max_parallel, what) as pool:
        return list(pool.map(call_in_own_session, items))


def workers_first(session: Session, machines: Sequence[Machine], call: NodeCall[T]) -> list[T | CloudgpuError]:
    """Do as `run_on_machines`, but node 0 after the others, because it has the queue of the cluster."""
    heads = [machine for machine in machines if node_of(machine) == 0]
    workers = [machine for machine in machines if node_of(machine) != 0]
    outcomes = {
        machine.id: outcome
        for group in (workers, heads)
        for machine, outcome in zip(group, run_on_machines(session, group, call), strict=True)
    }
    return [outcomes[machine.id] for machine in machines]


def with_or_without_ledger(call: NodeCall[T], done_text: Callable[[T], str]) -> NodeCall[T]:
    """Return `call`, made to work while the ledger is unavailable.

    `done_text` makes the sentence, without a full stop, on what was done then and is not recorded yet.
    """
    return lambda session, machine: without_ledger(session, machine, partial(call, session), done_text)


def all_with_or_without_ledger(
    session: Session, machines: Sequence[Machine], run: Callable[[], list[T | CloudgpuError]], done_text: str
) -> list[T | CloudgpuError]:
    """Return `run()`, the outcome for each of these machines; if the ledger is unavailable, run it without the ledger.

    If the ledger is still unavailable afterwards, one more error says so, with `done_text`: a sentence on what was
    done, without a full stop.
    """
    try:
        return run()
    except LedgerAway as error:
        if session.ledger_away:
            raise
        with continue_without_ledger(session, error, machines) as stand_in:
            session.report(f"{command_name(machines[0])}: {error.message} Continuing without it")
            outcomes = run()
            is_recorded = stand_in.deliver()
            return outcomes if is_recorded else [*outcomes, unrecorded_error(done_text, stand_in)]


def errors_in(outcomes: Iterable[T | CloudgpuError]) -> tuple[CloudgpuError, ...]:
    """Return the errors among the outcomes."""
    return tuple(outcome for outcome in outcomes if isinstance(outcome, CloudgpuError))


def living_nodes(session: Session, machine: Machine) -> tuple[Machine, ...]:
    """Return the living nodes of a machine's cluster, node 0 first; the machine alone where none lives, or it has none.

    A machine with an engine of its own is a cluster of one node.
    """
    if machine.cluster is None:
        return (machine,)
    living = (node for node in session.ledger.machines() if node.terminated_at is None)
    return in_order(node for node in living if cluster_id(node) == machine.cluster.id) or (machine,)


def reload_machines(session: Session, machines: Iterable[Machine]) -> tuple[Machine, ...]:
    """Return the records of these machines as the ledger has them now."""
    return tuple(session.ledger.machine(machine.id) or machine for machine in machines)
