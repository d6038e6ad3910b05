"""A small cluster of Slurm on this computer: its own files and daemons, several nodes on one host."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch")
SBIN = f"/usr/sbin:{os.environ.get('PATH', os.defpath)}"
CONF = """\
ClusterName=cg
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={place}/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=30
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1
KillWait=2
MinJobAge={age}
JobRequeue=0
JobCompType=jobcomp/filetxt
JobCompLoc={place}/jobcomp
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/%n
SlurmdPidFile={place}/%n.pid
SlurmctldPidFile={place}/ctld.pid
SlurmdLogFile={place}/%n.log
SlurmctldLogFile={place}/ctld.log
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
"""


def free_ports(count):
    """Ports that nobody listens on."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    found = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return found


class Loopback:
    """A cluster that runs. `conf` is what SLURM_CONF has to say; `prefix` starts the daemons of nodes, by number."""

    def __init__(self, nodes, *, name="n", prefix=None, cpus=4, age=3600):
        if any(shutil.which(one, path=SBIN) is None for one in NEEDED):
            pytest.skip("Slurm is not installed here: apt-get install slurm-wlm munge")
        self.place = Path(tempfile.mkdtemp(prefix="cg-", dir="/tmp"))
        self.nodes = [f"{name}-{number}" for number in range(nodes)]
        self.conf, self.daemons = self.place / "slurm.conf", []
        host, ports = socket.gethostname().split(".")[0], free_ports(nodes + 1)
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        for one in ("state", *self.nodes):
            (self.place / one).mkdir()
        text = CONF.format(host=host, user=user, port=ports[0], place=self.place, age=age)
        text += "".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory=500\n"
            for name, port in zip(self.nodes, ports[1:], strict=True)
        )
        self.conf.write_text(text)
        key = self.place / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        paths = {"key-file": "key", "socket": "munge", "pid-file": "m.pid", "log-file": "m.log", "seed-file": "m.seed"}
        self.start(["munged", "-F", "--force", *(f"--{one}={self.place / name}" for one, name in paths.items())])
        self.start(["slurmctld", "-f", str(self.conf), "-D"])
        for number, node in enumerate(self.nodes):
            self.start([*(prefix or {}).get(number, ()), "slurmd", "-f", str(self.conf), "-N", node, "-D"])
        self.until(lambda: self.run("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * nodes)

    @property
    def environ(self):
        """What finds it."""
        return {**os.environ, "SLURM_CONF": str(self.conf), "PATH": SBIN}

    def start(self, words):
        """Begin a daemon."""
        log = (self.place / "daemons.log").open("ab")
        daemon = subprocess.Popen(
            words, env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        self.daemons.append(daemon)
        return daemon

    def run(self, *words):
        """What a command of Slurm says."""
        return subprocess.run(words, env=self.environ, capture_output=True, text=True, timeout=60, check=False).stdout

    def until(self, true, seconds=60):
        """Wait until it is so."""
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, (self.place / "daemons.log").read_text()[-2000:]
            time.sleep(0.05)

    def end(self):
        """End every process of it."""
        self.run("scancel", "--full", "-u", "root")
        for one in self.daemons:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait(10)
        for path in Path("/proc").glob("[0-9]*"):  # the supervisors of steps, each of them a session of its own
            with contextlib.suppress(OSError):
                if path.joinpath("comm").read_text().startswith("slurmstepd") and self._is_mine(path):
                    os.kill(int(path.name), signal.SIGKILL)
        shutil.rmtree(self.place, ignore_errors=True)

    def _is_mine(self, path):
        return str(self.place).encode() in path.joinpath("environ").read_bytes()
