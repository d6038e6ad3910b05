"""Sets the engine up on the nodes of a cluster, says how it is and what its queue has, and takes it away again.

A cluster of one machine is its queue. Nothing is changed before all nodes were looked at and compared.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import NamedTuple, TypeVar

from cloudgpu.access.slurm.node import ALL_ADDRESSES, EngineNode
from cloudgpu.access.ssh.connection import Connection
from cloudgpu.control.access.reach import open_connection
from cloudgpu.control.session.session import Session
from cloudgpu.core.clusters.conf import Node, files_of, listens_narrowly, plan_digest
from cloudgpu.core.clusters.fit import INSTALL, check_fit, check_people, others_of
from cloudgpu.core.clusters.layout import cluster_id, engine_of_machine, in_order, rank
from cloudgpu.core.clusters.members import clusters
from cloudgpu.core.clusters.nodes import NodeFacts
from cloudgpu.core.clusters.state import EngineState, missing_nodes, to_resume
from cloudgpu.core.model.facts import ClusterNode
from cloudgpu.core.model.machine import OWNED_PROVIDERS, Machine
from cloudgpu.errors import CloudgpuError, InvalidRequest, Unreachable
from cloudgpu.parallel import Pool

READY_TIMEOUT = timedelta(minutes=2)  # from the start of the daemons until sinfo says so for all nodes
INSTALL_TIMEOUT = timedelta(minutes=15)  # from the first look: a first boot brings drivers and environments, too
POLL_S = 3.0
MAX_PARALLEL = 16  # connections that are opened, or nodes that are worked on, at a time
PAUSE_S = 0.2
KEY_BYTES = 128
SETTLE_TIME = timedelta(
    seconds=3
)  # a controller that knew jobs before may drain a node when that tells of the same jobs
TRIES = 2  # a port that was chosen may be somebody else's a moment later
_PORT_IN_USE_TEXTS = ("address already in use", "bind")  # what a daemon says of a port that somebody else has taken

Answer = TypeVar("Answer")


class _Nodes(NamedTuple):
    """The nodes of a cluster, in their order, each with its connection."""

    cluster: str
    nodes: tuple[EngineNode, ...]

    def each(self, call: Callable[[EngineNode], Answer]) -> list[Answer]:
        """Have something done on all nodes side by side; the first error is raised."""
        with Pool(MAX_PARALLEL, "nodes") as pool:
            return list(pool.map(call, self.nodes))


def check_engine_installed(provider: str, cluster: ClusterNode) -> None:
    """Raise InvalidRequest where machines of this computer are to have an engine that is not installed here.

    Other machines install it, or say whether they have it once they can be reached.
    """
    if provider != "local" or cluster.engine == "none":
        return
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
    missing = [name for name in ("slurmctld", "slurmd", "munged", "sbatch") if shutil.which(name, path=path) is None]
    if missing:
        raise InvalidRequest(
            f"Slurm is not installed on this computer: there is no {missing[0]}.",
            field="--engine",
            value=cluster.engine,
            next=f"Install it ({INSTALL}), or launch without a queue: --engine none",
        )


def set_up(session: Session, machines: Sequence[Machine], *, people: Sequence[str] | None = None) -> None:
    """Make the machines of one cluster a Slurm, and wait until it says that all of them can work.

    Where it is set up already, only what does not run is started, and jobs go on; where an address or what a node has
    is another one, the files are written anew and all is restarted. `people` are those whose jobs it has to run; None:
    those whom the settings of the account name (`queue_for`). For more than the login user slurmd runs as root.

    Raises InvalidRequest, before anything is changed, where Slurm is missing, versions, clocks or user ids differ, or a
    queue for several people lacks something; Unreachable where a node cannot be reached, a daemon ends, or not all
    nodes are ready in time.
    """
    users = queue_for(session, machines[0]) if people is None else people
    with _connected_nodes(session, machines) as gang:
        facts = _read_node_facts(session, gang, users)
        check_fit(facts)
        check_people(facts, users)
        names, settle_time = _start_daemons(session, gang, facts, several=bool(others_of(facts, users)))
        _wait_until_ready(session, gang, names, settle_time)


def queue_for(session: Session, machine: Machine) -> Sequence[str]:
    """Return whose jobs the queue of somebody's own machines has to run, by the settings of their account."""
    account = session.settings.accounts.get(machine.account)
    return account.options.get("queue_for", ()) if account is not None and account.provider == "ssh" else ()


def remove_engine(session: Session, machines: Sequence[Machine]) -> None:
    """End everything that runs for the engine on these machines, jobs too, and remove its files; node 0 comes last.

    The records of jobs on node 0 go, too: read them before. Does all it can, then raises the first Unreachable.
    """
    if not machines:
        return
    cluster, ordered = cluster_id(machines[0]), in_order(machines)
    faults: list[CloudgpuError] = []

    def remove(machine: Machine) -> None:
        try:
            with EngineNode(_connect(session, machine), cluster, rank(machine)) as node:
                node.remove()
        except CloudgpuError as fault:
            faults.append(fault)

    others = [machine for machine in ordered if rank(machine)]
    with Pool(MAX_PARALLEL, "nodes") as pool:
        list(pool.map(remove, others))
    for machine in ordered:
        if not rank(machine):
            remove(machine)
    if faults:
        raise faults[0]


def remove_engine_from_owned(session: Session, machines: Sequence[Machine]) -> None:
    """Take the engine away before machines end that are somebody's own computers: its files would stay there.

    Their end does not wait for one that does not answer, and what still runs ends with its machine. Raises nothing.
    """
    if machines[0].provider in OWNED_PROVIDERS:
        with suppress(CloudgpuError):
            remove_engine(session, [machine for machine in machines if machine.state == "running"])


def engine_of(session: Session, machines: Sequence[Machine]) -> EngineState:
    """Return how the engine of a cluster is, as node 0 says it. Raises Unreachable where node 0 cannot be reached."""
    head = in_order(machines)[0]
    with EngineNode(open_connection(session, head), cluster_id(head), rank(head)) as node:
        return node.state()


@contextmanager
def _connected_nodes(session: Session, machines: Sequence[Machine]) -> Iterator[_Nodes]:
    """Yield the nodes, connected; their connections are closed afterwards."""
    ordered = in_order(machines)
    cluster = cluster_id(ordered[0])
    with ExitStack() as stack:

        def enter(machine: Machine) -> EngineNode:
            node = EngineNode(_connect(session, machine), cluster, rank(machine))
            stack.callback(node.close)
            return node

        with Pool(MAX_PARALLEL, "nodes") as pool:
            nodes = tuple(pool.map(enter, ordered))
        yield _Nodes(cluster, nodes)


def _connect(session: Session, machine: Machine) -> Connection:
    """Return a connection; the thread that opens it has the ledger for itself."""
    with session.for_thread() as thread_session:
        return open_connection(thread_session, machine)


def _read_node_facts(session: Session, gang: _Nodes, people: Sequence[str]) -> list[NodeFacts]:
    """Return what the nodes say of themselves, once those that still install what their first boot brings have it."""
    deadline = session.clock() + INSTALL_TIMEOUT
    reported = False
    while True:
        facts = gang.each(lambda node: node.read_facts(people))
        waits = [one.name for one in facts if one.preparing and not one.has_engine]
        if not waits or session.clock() >= deadline:
            return facts
        if not reported:
            session.report(f"{_node_range_text(waits)}: waiting until Slurm is installed")
            reported = True
        session.pause(POLL_S)


def _start_daemons(
    session: Session, gang: _Nodes, facts: Sequence[NodeFacts], *, several: bool
) -> tuple[tuple[str, ...], timedelta]:
    """Have all daemons run; return the names of the nodes, and for how long they have to be ready."""
    digest = plan_digest(gang.cluster, facts, several=several)
    names = tuple(one.name for one in facts)
    ports = [one.ports for one in facts if one.ports is not None]
    if len(ports) == len(facts) and all(one.planned == digest for one in facts):
        session.report(f"{_node_range_text(names)}: starting what does not run of its Slurm")
        started = gang.each(
            lambda node: node.start(ports[gang.nodes.index(node)], at=_listens_at(facts, node), many_users=several)
        )
        return names, SETTLE_TIME if "slurmctld" in started[0] else timedelta(0)
    for tries_left in reversed(range(TRIES)):
        try:
            _write_and_start(session, gang, facts, digest, several=several)
            break
        except Unreachable as fault:
            if not tries_left or not any(word in fault.message.lower() for word in _PORT_IN_USE_TEXTS):
                raise
    return names, timedelta(0)


def _listens_at(facts: Sequence[NodeFacts], node: EngineNode) -> str:
    """Return the address at which the daemons of a node listen."""
    return facts[node.node].address if listens_narrowly(facts) else ALL_ADDRESSES


def _write_and_start(session: Session, gang: _Nodes, facts: Sequence[NodeFacts], digest: str, *, several: bool) -> None:
    """Write the files of all nodes, with a new munge key, and start all daemons."""
    session.report(f"{_node_range_text([one.name for one in facts])}: setting up Slurm {facts[0].version}")
    gang.each(EngineNode.stop)
    shared = len({one.host for one in facts}) < len(facts) or any(one.address.startswith("127.") for one in facts)
    ports = gang.each(lambda node: node.reserve_ports(shared=shared))
    nodes = [Node(*pair) for pair in zip(facts, ports, strict=True)]
    key = secrets.token_bytes(KEY_BYTES)
    texts = [files_of(gang.cluster, nodes, number, several=several) for number in range(len(nodes))]
    gang.each(lambda node: node.write(texts[gang.nodes.index(node)], key, many_users=several))
    gang.each(lambda node: node.start(ports[gang.nodes.index(node)], at=_listens_at(facts, node), many_users=several))
    gang.each(lambda node: node.record_plan(digest, ports[gang.nodes.index(node)]))


def _wait_until_ready(session: Session, gang: _Nodes, names: Sequence[str], settle_time: timedelta) -> None:
    """Wait until sinfo says that every node can work; take nodes into use that only a restart had put out of it."""
    head, deadline = gang.nodes[0], session.clock() + READY_TIMEOUT
    ready_since = None
    while True:
        state, now = head.state(), session.clock()
        missing = missing_nodes(names, state.nodes)
        if state.alive and not missing:
            ready_since = ready_since or now
            if now - ready_since >= settle_time:
                return
        elif now >= deadline:
            raise _not_ready_error(head.name, names, state, missing)
        else:
            ready_since = None
        resumable = to_resume(state.nodes)
        if resumable:
            head.resume(resumable)
        session.pause(PAUSE_S)


def _not_ready_error(head: str, names: Sequence[str], state: EngineState, missing: Sequence[str]) -> Unreachable:
    why = f"not usable: {', '.join(missing)}" if state.alive else f"the controller does not answer ({state.why})"
    ready = len(names) - len(missing) if state.alive else 0
    return Unreachable(
        f"After {READY_TIMEOUT.total_seconds():.0f} s Slurm has {ready} of {len(names)} nodes ready; {why}.",
        field="engine",
        value="slurm",
        next=f"Look at the logs in ~/.cloudgpu/slurm on {head}: cloudgpu ssh {head}",
    )


def _node_range_text(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def queues_of(session: Session, machines: Sequence[Machine]) -> Mapping[str, str]:
    """Return what the queue of each cluster has that runs, in words, by the cluster's id.

    One that does not answer is said to, with why: it keeps no other one from being asked. Machines of their own, and
    clusters without an engine, are not asked.
    """
    to_query = [nodes for nodes in clusters(machines) if engine_of_machine(nodes[0]) == "slurm" and _is_up(nodes)]
    if not to_query:
        return {}

    def query(nodes: Sequence[Machine]) -> str:
        with session.for_thread() as thread_session:
            return _queue(thread_session, nodes)

    with Pool(min(MAX_PARALLEL, len(to_query)), "queues") as pool:
        return {cluster_id(nodes[0]): queue for nodes, queue in zip(to_query, pool.map(query, to_query), strict=True)}


def _is_up(nodes: Sequence[Machine]) -> bool:
    return nodes[0].gang is not None and nodes[0].terminated_at is None and nodes[0].state == "running"


def _queue(session: Session, nodes: Sequence[Machine]) -> str:
    try:
        return queue_text(engine_of(session, nodes))
    except CloudgpuError as error:
        return f"its queue did not answer ({error.message.rstrip('.')})"


def queue_text(state: EngineState) -> str:
    """Return what a queue has: how many jobs run and wait, and how many nodes can run some."""
    if not state.alive:
        return f"its queue did not answer ({state.why.rstrip('.')})"
    jobs = f"{state.running} job{'s' * (state.running != 1)} running, {state.waiting} waiting"
    return f"{jobs}; {state.usable} of {len(state.nodes)} nodes can run jobs"
