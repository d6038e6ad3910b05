"""The files that make nodes a Slurm cluster: slurm.conf, gres.conf, and the environment of jobs and tasks.

Each node has its own slurm.conf, which differs only in the paths below the login user's home directory. All settings
were tried on Slurm 22.05.8 (Debian 12).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from cloudgpu.core.clusters.layout import CONTROLLER, JOB_ENVIRONMENT, EnginePaths, engine_paths
from cloudgpu.core.clusters.nodes import NodeFacts, Ports
from cloudgpu.core.values.naming import digest

NODE_TIMEOUT_S = 30  # a node that is silent for so long is down, and its jobs fail
MAX_PORTS = 10_000  # from FIRST_PORT on; they end below the ephemeral ports of operating systems
FIRST_PORT = 20_000
ENGINE_VARIABLE = "CLOUDGPU_ENGINE"  # in the environment of all that runs for a node's engine: CLUSTER/NODE
PROLOG = "task-prolog"  # the program that Slurm runs before each task
GRES = "gres.conf"  # generic resources: a node's GPUs
_NUMBERED = re.compile(r"(.*?)(\d+)")


class Node(NamedTuple):
    """A node with the ports that were chosen for it."""

    facts: NodeFacts
    ports: Ports


class Files(NamedTuple):
    """The texts of one node's files, by name below its directory, and which of them are programs."""

    texts: Mapping[str, str]
    programs: tuple[str, ...]


def files_digest(cluster: str, nodes: Sequence[NodeFacts], *, several: bool = False) -> str:
    """Return a digest of all inputs of the files: if it changes, the files have to be written again.

    `several`, here and below: several people share the queue.
    """
    facts = [
        (n.name, n.cores, n.memory_mb, n.gpus, str(n.version), n.user, n.uid, n.hostname, n.host, n.address, n.home)
        for n in nodes
    ]
    environs = [sorted(one.environ.items()) for one in nodes]
    return digest("3", cluster, repr(facts), repr(environs), str(listens_narrowly(nodes)), str(several))


def listens_narrowly(nodes: Sequence[NodeFacts]) -> bool:
    """Say whether Slurm can be set to listen only at the nodes' cluster addresses, not on all their networks.

    That needs each node's host name to resolve to that address on the node: Slurm uses the address of the name
    (slurm.conf(5), CommunicationParameters, NoInAddrAny and NoCtldInAddrAny).
    """
    return all(facts.resolved_address == facts.address for facts in nodes)


def process_tag_of(cluster: str, node: int) -> str:
    """Return the value of ENGINE_VARIABLE by which processes of a node's engine are recognised."""
    return f"{cluster}/{node}"


def files_of(cluster: str, nodes: Sequence[Node], node: int, *, several: bool = False) -> Files:
    """Return the files of one node of a cluster; `nodes` are all, in their order.

    If `several` people share the queue, slurmd runs as root, and files for tasks are in the directory of the sockets.
    """
    files = engine_paths(cluster, node)
    texts = {
        "slurm.conf": slurm_conf(cluster, nodes, node, several=several),
        GRES: gres_conf(nodes),
        JOB_ENVIRONMENT: job_environment(nodes, files, several=several),
        PROLOG: task_prolog(cluster, nodes, node, files, several=several),
    }
    return Files(texts, (PROLOG,))


def slurm_conf(cluster: str, nodes: Sequence[Node], node: int, *, several: bool = False) -> str:
    """Return the slurm.conf of one node."""
    head, facts = nodes[CONTROLLER].facts, nodes[node].facts
    files = engine_paths(cluster, node)
    directory = f"{facts.home}/{files.directory}"
    listens_only_there = listens_narrowly([one.facts for one in nodes])
    nodes_share_hosts = len({one.facts.host for one in nodes}) < len(nodes)
    lines = [
        "ClusterName=cloudgpu",
        f"SlurmctldHost={head.hostname}({head.address})",
        f"SlurmUser={facts.user}",
        f"SlurmdUser={'root' if several else facts.user}",
        f"SlurmctldPort={nodes[CONTROLLER].ports.controller}",
        *(["CommunicationParameters=NoInAddrAny,NoCtldInAddrAny"] if listens_only_there else []),
        "AuthType=auth/munge",
        f"AuthInfo=socket={files.munge_socket}",
        "ProctrackType=proctrack/linuxproc",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "GresTypes=gpu",
        "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0",  # short queues: what can start does so at once
        *(
            ["SlurmdParameters=config_overrides"] if nodes_share_hosts else []
        ),  # several nodes have the cores of one host
        "ReturnToService=2",
        f"SlurmdTimeout={NODE_TIMEOUT_S}",
        "SlurmctldTimeout=60",
        "MessageTimeout=30",
        "TCPTimeout=10",
        "BatchStartTimeout=60",
        "KillWait=5",
        "KillOnBadExit=1",
        "MinJobAge=86400",
        "JobRequeue=0",
        "InactiveLimit=0",
        "MailProg=/bin/true",
        "DebugFlags=NO_CONF_HASH",  # the nodes' files differ in their paths
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={directory}/jobcomp",
        f"TaskProlog={files.socket_directory if several else directory}/{PROLOG}",
        f"StateSaveLocation={directory}/state",
        f"SlurmctldPidFile={files.socket_directory}/slurmctld.pid",
        f"SlurmdPidFile={files.socket_directory}/slurmd.pid",
        f"SlurmdSpoolDir={files.socket_directory}/spool",
        *(node_line(one) for one in nodes),
        "PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE",
    ]
    return "".join(f"{line}\n" for line in lines)


def node_line(node: Node) -> str:
    """Return a node's line in slurm.conf, with the facts that the node reported."""
    facts = node.facts
    gres = f" Gres=gpu:{len(facts.gpus)}" if facts.gpus else ""
    return (
        f"NodeName={facts.name} NodeHostname={facts.hostname} NodeAddr={facts.address} Port={node.ports.node} "
        f"CPUs={facts.cores} RealMemory={facts.job_memory_mb}{gres} State=UNKNOWN"
    )


def gres_conf(nodes: Sequence[Node]) -> str:
    """Return the gres.conf: the device files of each node's GPUs; empty if no node has any."""
    return "".join(
        f"NodeName={node.facts.name} Name=gpu File={files}\n"
        for node in nodes
        if node.facts.gpus
        for files in _ranges(node.facts.gpus)
    )


def _ranges(devices: Sequence[str]) -> list[str]:
    """Return device files in Slurm's bracket notation: /dev/nvidia[0-7]; a name without a number stays as it is."""
    numbered = [(match[1], int(match[2])) if (match := _NUMBERED.fullmatch(one)) else (one, None) for one in devices]
    entries = []
    for name, group in groupby(numbered, key=lambda pair: pair[0]):
        numbers = [number for _, number in group]
        if None in numbers:
            entries.append(name)
        else:
            first, last = min(numbers), max(numbers)  # type: ignore[type-var]
            is_contiguous = numbers == list(range(first or 0, (last or 0) + 1))
            listed = f"{first}-{last}" if is_contiguous and last != first else ",".join(str(one) for one in numbers)
            entries.append(f"{name}[{listed}]" if len(numbers) > 1 else f"{name}{listed}")
    return entries


def job_environment(nodes: Sequence[Node], files: EnginePaths, *, several: bool = False) -> str:
    """Return what a job's shell reads (`. FILE`) to find its nodes. Needs only `sh` and Slurm's own variables.

    A job that was begun with it keeps its MASTER_PORT in each of its steps.
    """
    host_file = (
        "${HOME:-/}/.cloudgpu/hosts" if several else f"{files.socket_directory}/hosts"
    )  # where whoever runs the job may write
    ready = 'mkdir -p -m 700 "${HOME:-/}/.cloudgpu" 2>/dev/null && ' if several else ""
    addresses = "".join(f"        {node.facts.name}) echo {node.facts.address} ;;\n" for node in nodes)
    return f"""# What a job finds in addition to Slurm's own variables. Read with `.`, by sh.
_cloudgpu_addresses() {{
    for _cloudgpu_name in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
        case $_cloudgpu_name in
{addresses}        *) echo "$_cloudgpu_name" ;;
        esac
    done
}}
_cloudgpu_hosts() {{
    for _cloudgpu_name in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
        echo "$_cloudgpu_name slots=$1"
    done
}}
_cloudgpu_taken() {{ # Whether something listens at this port here.
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
        grep -q "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$1") [0-9A-F]*:0000 0A"
}}
export CLOUDGPU_NODE_RANK="${{SLURM_NODEID:-0}}"
export CLOUDGPU_NUM_NODES="${{SLURM_JOB_NUM_NODES:-1}}"
_cloudgpu_gpus=${{CUDA_VISIBLE_DEVICES-}}
case $_cloudgpu_gpus in
    "" | NoDevFiles) CLOUDGPU_GPUS_PER_NODE=0 ;;
    *) CLOUDGPU_GPUS_PER_NODE=$(echo "$_cloudgpu_gpus" | tr , '\\n' | grep -c .) ;;
esac
case ${{SLURM_GPUS_ON_NODE-}} in
    "" | *[!0-9]*) ;;
    *) CLOUDGPU_GPUS_PER_NODE=$SLURM_GPUS_ON_NODE ;;
esac
export CLOUDGPU_GPUS_PER_NODE
CLOUDGPU_NODE_IPS=$(_cloudgpu_addresses)
export CLOUDGPU_NODE_IPS
export MASTER_ADDR="${{CLOUDGPU_NODE_IPS%%
*}}"
if [ "${{_CLOUDGPU_PORT_OF-}}" != "$SLURM_JOB_ID" ]; then
    MASTER_PORT=$(({FIRST_PORT} + SLURM_JOB_ID % {MAX_PORTS}))
    if [ -z "${{SLURM_STEP_ID-}}" ]; then
        while _cloudgpu_taken "$MASTER_PORT"; do
            MASTER_PORT=$(({FIRST_PORT} + (MASTER_PORT - {FIRST_PORT} + 101) % {MAX_PORTS}))
        done
    fi
fi
export MASTER_PORT
export _CLOUDGPU_PORT_OF="$SLURM_JOB_ID"
export CLOUDGPU_HOSTFILE="{host_file}-$SLURM_JOB_ID"
if [ ! -e "$CLOUDGPU_HOSTFILE" ]; then
    {ready}_cloudgpu_hosts "$((CLOUDGPU_GPUS_PER_NODE > 1 ? CLOUDGPU_GPUS_PER_NODE : 1))" >"$CLOUDGPU_HOSTFILE.$$" &&
        mv "$CLOUDGPU_HOSTFILE.$$" "$CLOUDGPU_HOSTFILE"
fi
"""


def task_prolog(cluster: str, nodes: Sequence[Node], node: int, files: EnginePaths, *, several: bool = False) -> str:
    """Return the program that Slurm runs before each task: what it prints as `export NAME=VALUE` is the task's.

    Slurm gives a task the environment of whoever submitted it. What belongs to the node has to be set anew: which
    machine's process it is, and its home where the nodes have different ones. A value there is one line, so addresses
    are separated by spaces, unless the batch script has set them.
    """
    facts, head = nodes[node].facts, nodes[CONTROLLER].facts
    node_variables = {name: value for name, value in facts.environ.items() if name.startswith("CLOUDGPU_")}
    node_variables |= {} if several else {"HOME": facts.home}  # each person has their own home there
    if facts.interface and facts.interfaces > 1:
        node_variables |= {"NCCL_SOCKET_IFNAME": facts.interface, "GLOO_SOCKET_IFNAME": facts.interface}
    node_variables[ENGINE_VARIABLE] = process_tag_of(cluster, node)
    export_lines = "".join(
        f"echo {shlex.quote(f'export {name}={value}')}\n" for name, value in sorted(node_variables.items())
    )
    swap_lines = "".join(
        f"_swap {name} {shlex.quote(value)} {shlex.quote(facts.environ[name])}\n"
        for name, value in sorted(head.environ.items())
        if not several and name not in node_variables and facts.environ.get(name, value) != value
    )
    names = "CLOUDGPU_NODE_RANK CLOUDGPU_NUM_NODES CLOUDGPU_GPUS_PER_NODE CLOUDGPU_HOSTFILE MASTER_ADDR MASTER_PORT"
    return f"""#!/bin/sh
# What a task of this node finds. Slurm reads the lines that this prints.
_swap() {{ # What node 0 has in $1 becomes what this node has; what the job added to it stays.
    eval "_value=\\${{$1-}}"
    case $_value in
        *"$2"*) echo "export $1=${{_value%%"$2"*}}$3${{_value#*"$2"}}" ;;
    esac
}}
{export_lines}{swap_lines}[ -n "${{SLURM_JOB_NODELIST-}}" ] || exit 0
_given=${{CLOUDGPU_NODE_IPS-}}
_of=${{_CLOUDGPU_PORT_OF-}}
. {shlex.quote(f"{files.socket_directory}/{JOB_ENVIRONMENT}" if several else f"{facts.home}/{files.job_environment}")}
for _name in {names} _CLOUDGPU_PORT_OF; do
    eval "echo \\"export $_name=\\$$_name\\""
done
[ -n "$_given" ] && [ "$_of" = "$SLURM_JOB_ID" ] || echo "export CLOUDGPU_NODE_IPS=$(echo $CLOUDGPU_NODE_IPS)"
exit 0
"""
