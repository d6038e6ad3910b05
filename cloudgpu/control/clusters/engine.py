"""Sets up the engine (Slurm) on the nodes of a cluster, reads its state and its queue, and removes it.

One machine with an engine is a cluster of one node. Nothing is changed before all nodes are queried and compared.
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
from cloudgpu.control.access.reach import open_connection
from cloudgpu.control.clusters.together import call_for_each, errors_in, workers_first
from cloudgpu.control.session.session import Session
from cloudgpu.core.clusters.conf import Node, files_digest, files_of, listens_narrowly
from cloudgpu.core.clusters.fit import INSTALL, besides_login_user, check_fit, check_people
from cloudgpu.core.clusters.layout import cluster_id, engine_of_machine, in_order
from cloudgpu.core.clusters.members import clusters
from cloudgpu.core.clusters.nodes import NodeFacts
from cloudgpu.core.clusters.state import SlurmState, missing_nodes, nodes_to_resume
from cloudgpu.core.model.facts import ClusterNode
from cloudgpu.core.model.machine import ON_PREMISES_PROVIDERS, Machine, node_of
from cloudgpu.core.values.naming import counted
from cloudgpu.errors import CloudgpuError, InvalidRequest, Unreachable
from cloudgpu.parallel import Pool

READY_TIMEOUT = timedelta(minutes=2)  # from the start of the daemons until sinfo shows all nodes ready
INSTALL_TIMEOUT = timedelta(minutes=15)  # the first boot of a machine also installs drivers and environments
INSTALL_POLL_S = 3.0  # between two checks whether Slurm is installed
MAX_PARALLEL = 16  # nodes
READY_POLL_S = 0.2  # between two checks whether all nodes are ready
MUNGE_KEY_BYTES = 128
SETTLE_TIME = timedelta(
    seconds=3
)  # nodes have to stay ready: a restarted controller may drain one later, because of the jobs that it reports
START_TRIES = 2  # another process may take a port between its choice and its use
_PORT_IN_USE_TEXTS = ("address already in use", "bind")  # in a daemon's error if its port is taken

Answer = TypeVar("Answer")


class _ConnectedNodes(NamedTuple):
    """The nodes of a cluster, in their order, each with its connection; `cluster` is the cluster's id."""

    cluster: str
    nodes: tuple[EngineNode, ...]

    def call_each(self, call: Callable[[EngineNode], Answer]) -> list[Answer]:
        """Return the results of `call` for all nodes, called in parallel. Raises the first error."""
        with Pool(MAX_PARALLEL, "nodes") as pool:
            return list(pool.map(call, self.nodes))


def check_engine_installed(provider: str, cluster: ClusterNode) -> None:
    """Raise InvalidRequest if machines of provider `local` are to have an engine that is not installed here.

    Other machines install it at their first boot, or are checked for it over SSH.
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


def set_up_engine(session: Session, machines: Sequence[Machine], *, people: Sequence[str] | None = None) -> None:
    """Set up Slurm on the machines of a cluster, and wait until it reports all of them ready.

    If it is set up already, only daemons that do not run are started, and jobs continue. If an address or the hardware
    of a node has changed, all configuration files are written and all daemons restarted. `people` are the users whose
    jobs it has to run (None: those of the account's setting `queue_for`). If there are others than the login user,
    slurmd runs as root.

    Raises InvalidRequest, before anything is changed, if Slurm is missing, versions, clocks or user ids differ, or the
    requirements for several users are not met; Unreachable if a node cannot be reached, a daemon ends, or not all nodes
    are ready in time.
    """
    users = queue_users(session, machines[0]) if people is None else people
    with _connected_nodes(session, machines) as connected:
        facts = _read_node_facts(session, connected, users)
        check_fit(facts)
        check_people(facts, users)
        several_users = bool(besides_login_user(facts, users))
        node_names, settle_time = _start_daemons(session, connected, facts, several_users=several_users)
        _wait_until_ready(session, connected, node_names, settle_time)


def queue_users(session: Session, machine: Machine) -> Sequence[str]:
    """Return the users whose jobs the queue of the user's own machines has to run, by the account's settings."""
    account = session.settings.accounts.get(machine.account)
    return account.options.get("queue_for", ()) if account is not None and account.provider == "ssh" else ()


def remove_engine(session: Session, machines: Sequence[Machine]) -> None:
    """End the engine's daemons and jobs on these machines, and remove its files; on node 0 last.

    That deletes the records of jobs on node 0. An error at one machine does not stop the others; the first is raised.
    """
    errors = errors_in(workers_first(session, in_order(machines), _remove_from_node))
    if errors:
        raise errors[0]


def _remove_from_node(session: Session, machine: Machine) -> None:
    with _engine_node(session, machine) as node:
        node.remove()


def remove_engine_from_owned(session: Session, machines: Sequence[Machine]) -> None:
    """Remove the engine from the user's own machines before they end, because its files would stay there.

    Raises nothing: a machine that does not answer must not delay the end.
    """
    if machines[0].provider in ON_PREMISES_PROVIDERS:
        with suppress(CloudgpuError):
            remove_engine(session, [machine for machine in machines if machine.state == "running"])


def read_engine_state(session: Session, machines: Sequence[Machine]) -> SlurmState:
    """Return the state of a cluster's engine, as node 0 reports it. Raises Unreachable if node 0 cannot be reached."""
    with _engine_node(session, in_order(machines)[0]) as node:
        return node.state()


def _engine_node(session: Session, machine: Machine) -> EngineNode:
    """Return the engine on a machine, connected."""
    return EngineNode(open_connection(session, machine), cluster_id(machine), node_of(machine))


@contextmanager
def _connected_nodes(session: Session, machines: Sequence[Machine]) -> Iterator[_ConnectedNodes]:
    """Yield the nodes, connected; their connections are closed afterwards."""
    with ExitStack() as stack:

        def enter(own_session: Session, machine: Machine) -> EngineNode:
            node = _engine_node(own_session, machine)
            stack.callback(node.close)
            return node

        nodes = tuple(call_for_each(session, enter, in_order(machines), MAX_PARALLEL, "nodes"))
        yield _ConnectedNodes(cluster_id(machines[0]), nodes)


def _read_node_facts(session: Session, connected: _ConnectedNodes, people: Sequence[str]) -> list[NodeFacts]:
    """Return the facts of all nodes, after those whose first boot still installs Slurm have it, or the time is over."""
    deadline = session.clock() + INSTALL_TIMEOUT
    was_reported = False
    while True:
        facts = connected.call_each(lambda node: node.read_facts(people))
        installing = [node.name for node in facts if node.is_booting and not node.has_engine]
        if not installing or session.clock() >= deadline:
            return facts
        if not was_reported:
            session.report(f"{_node_range_text(installing)}: waiting until Slurm is installed")
            was_reported = True
        session.pause(INSTALL_POLL_S)


def _start_daemons(
    session: Session, connected: _ConnectedNodes, facts: Sequence[NodeFacts], *, several_users: bool
) -> tuple[tuple[str, ...], timedelta]:
    """Start all daemons that do not run; return the names of the nodes, and for how long they have to be ready.

    The configuration is written only if it differs from that of the last setup, which each node knows by a digest.
    """
    digest = files_digest(connected.cluster, facts, several=several_users)
    node_names = tuple(node_facts.name for node_facts in facts)
    ports = [node_facts.ports for node_facts in facts if node_facts.ports is not None]
    if len(ports) == len(facts) and all(node_facts.files_digest == digest for node_facts in facts):
        session.report(f"{_node_range_text(node_names)}: starting what does not run of its Slurm")
        started = connected.call_each(
            lambda node: node.start(
                ports[connected.nodes.index(node)], address=_listen_address(facts, node), many_users=several_users
            )
        )
        return node_names, SETTLE_TIME if "slurmctld" in started[0] else timedelta(0)
    for tries_left in reversed(range(START_TRIES)):
        try:
            _write_and_start(session, connected, facts, digest, several_users=several_users)
            break
        except Unreachable as error:
            if not tries_left or not any(text in error.message.lower() for text in _PORT_IN_USE_TEXTS):
                raise
    return node_names, timedelta(0)


def _listen_address(facts: Sequence[NodeFacts], node: EngineNode) -> str:
    """Return the address at which the daemons of a node listen."""
    return facts[node.node].address if listens_narrowly(facts) else ALL_ADDRESSES


def _write_and_start(
    session: Session, connected: _ConnectedNodes, facts: Sequence[NodeFacts], digest: str, *, several_users: bool
) -> None:
    """Write the files of all nodes, with a new munge key, and start all daemons."""
    session.report(f"{_node_range_text([node.name for node in facts])}: setting up Slurm {facts[0].version}")
    connected.call_each(EngineNode.stop)
    nodes_share_host = len({node.host for node in facts}) < len(facts) or any(
        node.address.startswith("127.") for node in facts
    )
    ports = connected.call_each(lambda node: node.reserve_ports(shared=nodes_share_host))
    nodes = [Node(*pair) for pair in zip(facts, ports, strict=True)]
    key = secrets.token_bytes(MUNGE_KEY_BYTES)
    node_files = [files_of(connected.cluster, nodes, number, several=several_users) for number in range(len(nodes))]
    connected.call_each(lambda node: node.write(node_files[connected.nodes.index(node)], key, many_users=several_users))
    connected.call_each(
        lambda node: node.start(
            ports[connected.nodes.index(node)], address=_listen_address(facts, node), many_users=several_users
        )
    )
    connected.call_each(lambda node: node.record_plan(digest, ports[connected.nodes.index(node)]))


def _wait_until_ready(
    session: Session, connected: _ConnectedNodes, node_names: Sequence[str], settle_time: timedelta
) -> None:
    """Wait until sinfo shows every node ready; resume nodes that are down only because of a restart."""
    head, deadline = connected.nodes[0], session.clock() + READY_TIMEOUT
    ready_since = None
    while True:
        state, now = head.state(), session.clock()
        missing = missing_nodes(node_names, state.nodes)
        if state.answers and not missing:
            ready_since = ready_since or now
            if now - ready_since >= settle_time:
                return
        elif now >= deadline:
            raise _not_ready_error(head.name, node_names, state, missing)
        else:
            ready_since = None
        resumable = nodes_to_resume(state.nodes)
        if resumable:
            head.resume(resumable)
        session.pause(READY_POLL_S)


def _not_ready_error(head: str, node_names: Sequence[str], state: SlurmState, missing: Sequence[str]) -> Unreachable:
    why = f"not usable: {', '.join(missing)}" if state.answers else f"the controller does not answer ({state.why})"
    ready = len(node_names) - len(missing) if state.answers else 0
    return Unreachable(
        f"After {READY_TIMEOUT.total_seconds():.0f} s Slurm has {ready} of {len(node_names)} nodes ready; {why}.",
        field="engine",
        value="slurm",
        next=f"Look at the logs in ~/.cloudgpu/slurm on {head}: cloudgpu ssh {head}",
    )


def _node_range_text(names: Sequence[str]) -> str:
    """Return the first and the last of these nodes, as text."""
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def query_queue_texts(session: Session, machines: Sequence[Machine]) -> Mapping[str, str]:
    """Return a text about the queue of each running cluster with an engine, by the cluster's id.

    The text says so if a queue did not answer. Other machines and clusters are not asked.
    """
    to_query = [
        nodes for nodes in clusters(machines) if engine_of_machine(nodes[0]) == "slurm" and _is_head_running(nodes)
    ]
    texts = call_for_each(session, _query_queue_text, to_query, MAX_PARALLEL, "queues")
    return {cluster_id(nodes[0]): text for nodes, text in zip(to_query, texts, strict=True)}


def _query_queue_text(session: Session, nodes: Sequence[Machine]) -> str:
    try:
        return queue_text(read_engine_state(session, nodes))
    except CloudgpuError as error:
        return f"its queue did not answer ({error.message.rstrip('.')})"


def _is_head_running(nodes: Sequence[Machine]) -> bool:
    return nodes[0].cluster_node is not None and nodes[0].terminated_at is None and nodes[0].state == "running"


def queue_text(state: SlurmState) -> str:
    """Return how many jobs run and wait in a queue, and how many nodes can run jobs."""
    if not state.answers:
        return f"its queue did not answer ({state.why.rstrip('.')})"
    jobs = f"{counted(state.running_count, 'job')} running, {state.waiting_count} waiting"
    return f"{jobs}; {state.usable_nodes} of {len(state.nodes)} nodes can run jobs"
