"""A real SSH server for the tests, in a process of its own: killed, restarted, frozen, given another host key."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from cloudgpu.access.ssh import client_files
from cloudgpu.access.ssh.client_files import HostKey, client_key, new_host_key
from cloudgpu.access.ssh.target import Target
from cloudgpu.core.model.instances import Address
from tests.forked import Forked, until_closed

USER = "tester"
ROOT = Path(__file__).parents[2]


@dataclass
class Server:
    """One server under `root`; it keeps its port over restarts. `connections` counts the TCP connections so far."""

    root: Path
    host_key: HostKey = field(default_factory=new_host_key)
    port: int = 0
    process: Forked | None = None

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def target(self) -> Target:
        key_file = client_key(self.root / "keys").path
        return Target("cg-test", "box", Address("127.0.0.1", self.port, USER), key_file, self.root / "known_hosts")

    @property
    def connections(self) -> int:
        return (self.root / "connections").stat().st_size

    def start(self, authorized: str | None = None) -> Server:
        self.home.mkdir(parents=True, exist_ok=True)
        (self.root / "host").write_text(self.host_key.private_pem)
        (self.root / "authorized").write_text(authorized or client_key(self.root / "keys").public_line)
        self.process = Forked(_run, self.root, self.port, os.environ["PATH"])
        self.port = self.process.port
        return self

    def pin(self) -> Server:
        client_files.pin(self.root / "known_hosts", "cg-test", self.host_key.public_line)
        return self

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process = None

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)


def wait_for(condition, seconds=10.0):
    """Poll until `condition()` is true and return what it said; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (said := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return said


def _run(ours: Connection, root: Path, port: int, path: str) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(ours, root, port, path))


async def _serve(ours: Connection, root: Path, port: int, path: str) -> None:
    import asyncssh

    from cloudgpu.providers.local import sshd

    class Counted(sshd._Server):
        def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
            with (root / "connections").open("a") as file:
                file.write(".")
            super().connection_made(conn)

    sshd._Server = Counted
    acceptor = await sshd.serve(  # noqa: S604  (dash as a shell would stay between and take a Ctrl-C for itself)
        host_key=(root / "host").read_text(),
        authorized_keys=[(root / "authorized").read_text()],
        user=USER,
        home=root / "home",
        environ={"PATH": path, "LANG": "C.UTF-8"},
        port=port,
        shell="/bin/bash",
    )
    ours.send(acceptor.get_port())
    await asyncio.to_thread(until_closed, ours)
