"""A real SSH server for the tests, in a process of its own: killed, restarted, frozen, given another host key."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from cloudgpu.access import known_hosts
from cloudgpu.access.keys import HostKey, client_key, new_host_key
from cloudgpu.access.target import Target
from cloudgpu.core.facts import Address

USER = "tester"
ROOT = Path(__file__).parents[2]


@dataclass
class Server:
    """One server under `root`; it keeps its port over restarts. `connections` counts the TCP connections so far."""

    root: Path
    host_key: HostKey = field(default_factory=new_host_key)
    port: int = 0
    process: subprocess.Popen[str] | None = None

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
        command = [sys.executable, __file__, str(self.root), str(self.port)]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
        self.port = int(self.process.stdout.readline())
        return self

    def pin(self) -> Server:
        known_hosts.pin(self.root / "known_hosts", "cg-test", self.host_key.public_line)
        return self

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
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


async def _serve(root: Path, port: int) -> None:
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
        environ={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        port=port,
        shell="/bin/bash",
    )
    sys.stdout.write(f"{acceptor.get_port()}\n")
    sys.stdout.flush()
    # The other end of stdin is the tests' process: this one never outlives it.
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
