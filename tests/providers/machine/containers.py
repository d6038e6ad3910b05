"""A rented container in the tests: the start script itself, with a real sshd, in a directory that stands for the disk.

`keep` is what lasts there, the rest goes with each start, as RunPod has it. A process belongs to the container when it
bears the machine's mark: there is no process namespace of its own here.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from cloudgpu.access.ssh import client_files
from cloudgpu.access.ssh.client_files import ClientKey, client_key
from cloudgpu.access.ssh.target import Target
from cloudgpu.core.model.instances import Address
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Accelerator, MachineConfiguration, Market
from cloudgpu.providers.machine.container_start import MACHINE_VARIABLE, ContainerSpec, host_keys_in, pack_start
from cloudgpu.testing import make_attempt

ITEM = MachineConfiguration(
    "rented", "lab", "here", "here-a", "1x-t4", Market.ON_DEMAND, accelerators=(Accelerator("T4", 1),)
)
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@dataclass
class Container:
    """One container under `root`; `environ` is what its image and its place set."""

    root: Path
    environ: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    end: str = ""
    ask: str = ""
    process: subprocess.Popen[bytes] | None = None

    @property
    def place(self) -> ContainerSpec:
        return ContainerSpec(
            end_command=self.end, tags_command=self.ask, persistent_dir=str(self.root / "keep"), ssh_port=self.port
        )

    @property
    def home(self) -> Path:
        return self.root / "disk" / "home"

    @property
    def client(self) -> ClientKey:
        return client_key(self.root / "client")

    @property
    def log(self) -> str:
        """What the place shows as the container's log."""
        return (self.root / "log").read_text()

    @property
    def host_keys(self) -> tuple[str, ...]:
        return host_keys_in(self.log)

    @property
    def target(self) -> Target:
        address = Address("127.0.0.1", self.port, pwd.getpwuid(os.getuid()).pw_name)
        return Target("cg-rented", "rented", address, self.client.path, self.root / "known_hosts")

    def attempt(self, **changes) -> Attempt:
        return make_attempt(ITEM, client_public_keys=[self.client.public_line], **changes)

    def start(self, attempt: Attempt) -> Container:
        """Start it with a new disk, as its place does: the log begins anew, too."""
        shutil.rmtree(self.root / "disk", ignore_errors=True)
        self.home.mkdir(parents=True)
        (self.root / "keep").mkdir(exist_ok=True)
        disk, told = self.root / "disk", pack_start(attempt, self.place)
        places = {
            "CLOUDGPU_HOME": f"{self.home}",
            "CLOUDGPU_ETC": f"{disk}/etc",
            "CLOUDGPU_RUN": f"{disk}/run",
            "CLOUDGPU_LOG": "",
            "CLOUDGPU_LISTEN": "127.0.0.1",
            "CLOUDGPU_EVERY": "0.2",
            "CLOUDGPU_AGAIN": "0.2",
        }
        environ = {"PATH": PATH, "LANG": "C.UTF-8", **self.environ, **told.env, **places}
        with (self.root / "log").open("wb") as log:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", told.command],
                env=environ,
                cwd=disk,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def pin(self) -> Container:
        client_files.pin(self.root / "known_hosts", "cg-rented", self.host_keys[0])
        return self

    def processes(self, machine: str) -> list[psutil.Process]:
        """All that bears the mark of this machine and the path of this container, and all below: sshd hides its own."""
        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                environ = process.environ()
                if environ.get(MACHINE_VARIABLE) == machine and environ.get("HOME", str(self.home)) == str(self.home):
                    found.update((one.pid, one) for one in (process, *process.children(recursive=True)))
        return list(found.values())

    def stop(self, machine: str) -> None:
        """End all of it at once, as the end of a container does."""
        for _ in range(5):  # what was being started meanwhile is there at the next look
            left = self.processes(machine)
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, timeout=10)
        if self.process is not None:
            self.process.wait(10)
