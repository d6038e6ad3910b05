"""Where the engine's files are on each node, and which cluster a machine belongs to.

Files that have to survive a restart are below the login user's home, one directory for each node: a home may be shared
by several hosts, and several nodes may share one host. Sockets and what Slurm writes while jobs run are in a short
directory below /tmp, because the path of a socket may have 107 bytes at most.

One machine with an engine is a cluster of one node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cloudgpu.core.model.facts import Engine
from cloudgpu.core.model.machine import Machine, node_of
from cloudgpu.core.values.naming import digest

ROOT = ".cloudgpu/slurm"  # below the home of the login user
CONF = "slurm.conf"
RECORDS = "jobcomp"  # on node 0: a line for each job that has ended
JOBS = "jobs"  # on node 0: a directory with the files of submitted jobs
JOB_ENVIRONMENT = "job-environment"  # a shell script; a batch script reads it with `.`
CONTROLLER = 0  # the node on which the controller runs


class EnginePaths(NamedTuple):
    """The engine's files of one node. A path without a slash at its beginning is below the login user's home.

    `records` has a line for each ended job, `jobs` the files of submitted ones. `job_environment` is what a batch
    script reads first (`. FILE`): it sets CLOUDGPU_NODE_IPS and other variables. `socket_directory` is
    below /tmp, where paths are short enough for sockets.
    """

    directory: str
    conf: str
    records: str
    jobs: str
    job_environment: str
    socket_directory: str
    munge_socket: str


def cluster_id(machine: Machine) -> str:
    """Return the id of a machine's cluster; its own id if it is in none."""
    return machine.cluster.id if machine.cluster is not None else machine.id


def in_order(machines: Iterable[Machine]) -> tuple[Machine, ...]:
    """Return the machines of one cluster, node 0 first."""
    return tuple(sorted(machines, key=node_of))


def engine_directory(cluster: str, node: int = CONTROLLER) -> str:
    """Return the directory of the engine's files of a node (node 0 has the controller), below the user's home."""
    return f"{ROOT}/{cluster}/{node}"


def engine_paths(cluster: str, node: int = CONTROLLER) -> EnginePaths:
    """Return where the engine's files of a node are."""
    directory, short = engine_directory(cluster, node), socket_directory_of(cluster, node)
    conf, records, jobs, job_environment = (f"{directory}/{name}" for name in (CONF, RECORDS, JOBS, JOB_ENVIRONMENT))
    return EnginePaths(directory, conf, records, jobs, job_environment, short, f"{short}/munge")


def socket_directory_of(cluster: str, node: int = CONTROLLER) -> str:
    """Return the directory of a node's sockets and of what Slurm writes while jobs run."""
    return f"/tmp/cg-{digest(cluster)[:10]}/{node}"  # noqa: S108  (made with mode 0700, and refused if another user owns it)


def engine_of_machine(machine: Machine) -> Engine:
    """Return the engine that schedules a machine's jobs; "none" for a machine without one."""
    return machine.cluster.engine if machine.cluster is not None else "none"
