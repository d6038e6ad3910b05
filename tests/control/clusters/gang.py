"""A cluster of local machines in a home of its own, for tests: real processes, real SSH, the real engine."""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from cloudgpu.control.access.reach import connected_to, wait_until_ready
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.outage.opening import open_session
from cloudgpu.core.clusters.layout import engine_paths
from cloudgpu.core.model.facts import ClusterNode
from cloudgpu.core.model.machine import node_of
from cloudgpu.providers.local.processes import find_processes

NEEDS = ("slurmd", "slurmctld", "munged", "sinfo", "sbatch", "srun")
WITHIN_S = 180.0  # a bound against hanging: Slurm's daemons start slowly on a busy computer


def needs_slurm():
    """Skip, with the reason, where the real engine is not installed."""
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    missing = [name for name in NEEDS if shutil.which(name, path=path) is None]
    if missing:
        pytest.skip(f"There is no {missing[0]} here: apt-get install slurm-wlm munge, services masked")


def until(found, within_s=WITHIN_S):
    """What `found` returns once it is true."""
    deadline = time.monotonic() + within_s
    while not (answer := found()):
        assert time.monotonic() < deadline, f"still {answer!r} after {within_s:g} s"
        time.sleep(0.05)
    return answer


class Gang:
    """`train`: so many local machines that the ledger knows as one cluster."""

    def __init__(self, path: Path, nodes: int, name: str = "train", cluster: str = "cg-test") -> None:
        self.home = path / "home"
        self.home.mkdir(parents=True)
        (self.home / "config.toml").write_text('provider = "local"\n[accounts.local]\nmachine_start_timeout = "2m"\n')
        self.said: list[str] = []
        self.session = open_session({"CLOUDGPU_HOME": str(self.home), "USER": "ada"}, tell=self.said.append)
        self.name, self.nodes, self.cluster = name, nodes, cluster  # two with one id would share their sockets
        for node in range(nodes):
            plan = prepare(self.session, parse_request(provider="local", name=f"{name}-{node}", template="bare"))
            launch(self.session, plan, wait=False)
        for row in self.session.ledger.machines():
            wait_until_ready(self.session, row)
        self.files = engine_paths(cluster)

    @property
    def machines(self):
        """The rows of all nodes that are not gone."""
        rows = [row for row in self.session.ledger.machines() if row.terminated_at is None]
        return [row._replace(cluster=self._member(row)) for row in rows]

    def _member(self, row):
        return ClusterNode(self.name, self.cluster, int(row.name.rpartition("-")[2]), self.nodes, "slurm")

    def machine(self, node):
        return next(row for row in self.machines if node_of(row) == node)

    def sh(self, command, *, node=0, timeout=WITHIN_S):
        """Run a shell command on a node with Slurm's own commands at hand; return (status, output, errors)."""
        files = engine_paths(self.cluster, 0)
        text = f'export SLURM_CONF="$HOME/{files.conf}" PATH="$PATH:/usr/sbin"; {command}'
        with connected_to(self.session, self.machine(node)) as connection:
            done = connection.capture(text, timeout=timeout)
        return done.status, done.stdout.decode(), done.stderr.decode()

    def job(self, script, *options):
        """Submit a script, wait for its end and return (its exit status, what it printed)."""
        body = f"#!/bin/sh\n(\n{script}\n)\necho $? > ended"
        waits = "until [ -s ended ]; do sleep 0.05; done; cat ended out"
        _, out, err = self.sh(
            f"rm -f ended out; cat > job.sh <<'END'\n{body}\nEND\n"
            f"sbatch --time=5 -o out {' '.join(options)} job.sh > /dev/null && {waits}",
            timeout=240,
        )
        assert not err, err
        status, _, printed = out.partition("\n")
        return int(status), printed

    def mark(self, node):
        """What marks the processes of a node's machine."""
        (path,) = self.home.glob(f"**/{self.machine(node).provider_id}/machine.json")
        return json.loads(path.read_text())["mark"]

    def processes(self, node):
        """The processes of a node's machine."""
        return find_processes(self.mark(node))

    def kill(self, node):
        """Kill all that runs on a node, its SSH server too, as a power cut does."""
        mark = self.mark(node)
        while found := find_processes(mark):
            for one in found:
                with suppress(psutil.Error):
                    one.kill()
            psutil.wait_procs(found, timeout=5)

    def engine_processes(self):
        """The processes of this cluster's engine that still live: their numbers, and what they are."""
        found = {}
        for one in psutil.process_iter():
            with suppress(psutil.Error):
                words = " ".join(one.cmdline())
                if one.status() != psutil.STATUS_ZOMBIE and str(self.home) in words and "slurm" in words:
                    found[one.pid] = words
        return found

    def end(self):
        """End every machine."""
        provider = self.session.provider("local")
        for instance in provider.list().instances:
            provider.terminate(instance.id)
        self.session.ledger.close()
