"""A cluster of local machines in a home of its own, for tests: real processes, real SSH, the real engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from cloudgpu.control.access.reach import reached, wait_until_ready
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.outage.opening import open_session
from cloudgpu.core.clusters.layout import engine_files, rank
from cloudgpu.core.model.facts import ClusterNode
from cloudgpu.providers.local.processes import find

NEEDS = ("slurmd", "slurmctld", "munged", "sinfo", "sbatch", "srun")
WITHIN_S = 60.0


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

    def __init__(self, path: Path, nodes: int, name: str = "train") -> None:
        self.home = path / "home"
        self.home.mkdir(parents=True)
        (self.home / "config.toml").write_text('provider = "local"\n[accounts.local]\nmachine_start_timeout = "2m"\n')
        self.said: list[str] = []
        self.session = open_session({"CLOUDGPU_HOME": str(self.home), "USER": "ada"}, tell=self.said.append)
        self.name, self.nodes = name, nodes
        for node in range(nodes):
            plan = prepare(self.session, parse_request(provider="local", name=f"{name}-{node}", template="bare"))
            launch(self.session, plan, wait=False)
        for row in self.session.ledger.machines():
            wait_until_ready(self.session, row)
        self.files = engine_files("cg-test")

    @property
    def machines(self):
        """The rows of all nodes that are not gone."""
        rows = [row for row in self.session.ledger.machines() if row.terminated_at is None]
        return [row._replace(cluster=self._member(row)) for row in rows]

    def _member(self, row):
        return ClusterNode(self.name, "cg-test", int(row.name.rpartition("-")[2]), self.nodes, "slurm")

    def machine(self, node):
        return next(row for row in self.machines if rank(row) == node)

    def sh(self, command, *, node=0, timeout=WITHIN_S):
        """Run a shell command on a node with Slurm's own commands at hand; return (status, output, errors)."""
        files = engine_files("cg-test", 0)
        text = f'export SLURM_CONF="$HOME/{files.conf}" PATH="$PATH:/usr/sbin"; {command}'
        with reached(self.session, self.machine(node)) as connection:
            done = connection.capture(text, timeout=timeout)
        return done.status, done.stdout.decode(), done.stderr.decode()

    def job(self, script, *options, timeout=WITHIN_S):
        """Submit a script, wait for its end and return (status of sbatch -W, what the job printed)."""
        words = " ".join(options)
        status, out, err = self.sh(
            f"cd; cat > job.sh <<'END'\n#!/bin/sh\n{script}\nEND\n"
            f"sbatch -W --time=5 -o out.%j {words} job.sh; s=$?; cat out.$(ls -t out.* | head -1 | cut -d. -f2); exit $s",
            timeout=timeout,
        )
        return status, out + err

    def mark(self, node):
        """What marks the processes of a node's machine."""
        return self._record(node)["mark"]

    def _record(self, node):
        import json

        row = self.machine(node)
        (path,) = self.home.glob(f"**/{row.provider_id}/machine.json")
        return json.loads(path.read_text())

    def processes(self, node):
        """The processes of a node's machine."""
        return find(self.mark(node))

    def end(self):
        """End every machine."""
        provider = self.session.provider("local")
        for instance in provider.list().instances:
            provider.terminate(instance.id)


def processes_of_engine(short="/tmp/cg-"):
    """Every process of an engine of these tests that still lives."""
    done = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True)
    words = ("slurmd", "slurmctld", "munged", "slurmstepd")
    return [line for line in done.stdout.splitlines() if any(word in line for word in words) and "cg-test" in line]
