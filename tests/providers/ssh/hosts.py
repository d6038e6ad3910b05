"""The user's own machines in the tests: each a real SSH server, as a process, with a home of its own under tmp_path.

It lets in whoever stands in its ~/.ssh/authorized_keys, as OpenSSH does.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shutil
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from cloudgpu.access.ssh.client_files import HostKey, client_key, new_host_key
from cloudgpu.core.model.offers import Requirements
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.ssh.provider import make
from cloudgpu.testing.helpers import make_attempt
from tests.forked import Forked, until_closed

USER = "ada"
LOSES = ".loses"  # beside a host's home: the next answer is lost
ROOT = Path(__file__).parents[3]


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class OwnHost:
    """One machine of the user's; `path` is PATH there. It keeps its port over restarts."""

    root: Path
    name: str
    path: str = field(default_factory=lambda: f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    host_key: HostKey = field(default_factory=new_host_key)
    port: int = 0
    process: Forked | None = None
    python: str | None = None  # which its settings name
    compiles: bool = False  # itself what it is sent, at each call

    @property
    def home(self) -> Path:
        return self.root / self.name

    @property
    def keys(self) -> Path:
        return self.home / ".ssh" / "authorized_keys"

    @property
    def place(self) -> Path:
        """Where cloudgpu's machine stands there."""
        return self.home / ".cloudgpu"

    @property
    def users_key(self) -> Path:
        """The private key that the user logs in with."""
        return client_key(self.root / "users").path

    @property
    def options(self) -> dict[str, object]:
        """This host as config.toml has it."""
        return {
            "name": self.name,
            "host": "127.0.0.1",
            "port": self.port,
            "user": USER,
            "key": str(self.users_key),
            "host_key": self.host_key.public_line,
            **({"python": self.python} if self.python else {}),
        }

    def start(self) -> OwnHost:
        if not self.home.exists():
            self.renew()
        environ = {"PATH": self.path, "LANG": "C.UTF-8", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        if not self.compiles:
            environ["CLOUDGPU_TEST_COMPILED"] = os.environ["CLOUDGPU_TEST_HOSTS_PYTHON"]
        self.process = Forked(_run, self.host_key.private_pem, self.home, self.port, environ)
        self.port = self.process.port
        return self

    def renew(self) -> None:
        """Leave nothing in its home but the user's key."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.keys.parent.mkdir(parents=True, mode=0o700)
        self.keys.write_text(client_key(self.root / "users").public_line + "\n")

    def off(self) -> None:
        """Stop answering; what runs there goes on."""
        if self.process is not None:
            self.process.kill()
            self.process = None

    def lose_reply(self) -> None:
        """Let it do what it is asked next, and cut the connection instead of an answer."""
        self.home.with_suffix(LOSES).touch()

    def processes(self) -> list[psutil.Process]:
        """All that runs there, whoever started it, but not the SSH server."""
        found = []
        for process in psutil.process_iter(["status"]):
            with contextlib.suppress(psutil.Error):
                words = [*process.cmdline(), *process.environ().values()]
                server = self.process is not None and process.pid == self.process.pid
                if not server and process.info["status"] != psutil.STATUS_ZOMBIE and str(self.home) in " ".join(words):
                    found.append(process)
        return found

    def files(self) -> dict[str, bytes]:
        """All files there by name, and their bytes."""
        found = (path for path in self.home.rglob("*") if path.is_file())
        return {str(path.relative_to(self.home)): path.read_bytes() for path in found}

    def clean_up(self) -> list[psutil.Process]:
        """End the server and whatever is left there; return what was left."""
        self.off()
        return self.ended()

    def ended(self) -> list[psutil.Process]:
        """End whatever is left there, but not the server; return what was left."""
        left = self.processes()
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=5)
        return left


class Lab:
    """An account of some hosts."""

    def __init__(self, root: Path, *hosts: OwnHost) -> None:
        self.hosts = hosts
        self.home = root / "provider"
        self.client = client_key(root / "client")

    @property
    def settings(self) -> ProviderSettings:
        return ProviderSettings("lab", {"hosts": [host.options for host in self.hosts]}, self.home, now)

    @property
    def provider(self):
        return make(self.settings)

    def attempt(self, key="one", host=0, **changes):
        offered = self.provider.available(Requirements(zone=self.hosts[host].name)).items[0]
        return make_attempt(offered, key=key, name=key, client_public_keys=[self.client.public_line], **changes)

    def launch(self, key="one", host=0, **changes):
        return self.send(self.attempt(key, host, **changes))

    def send(self, attempt):
        return self.provider.launch(attempt, deadline=now() + timedelta(minutes=1))


def _run(ours: Connection, private: str, home: Path, port: int, environ: dict[str, str]) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(ours, private, home, port, environ))


async def _serve(ours: Connection, private: str, home: Path, port: int, environ: dict[str, str]) -> None:
    from cloudgpu.providers.local import sshd

    environ = {**environ, "SHELL": "/bin/bash"}
    facts = {"host_key": private, "authorized_keys": [], "user": USER, "home": home, "environ": environ, "port": port}
    sshd._Server = _server(sshd._Server)
    acceptor = await sshd.serve(**facts, shell="/bin/bash")  # noqa: S604  (the user's login shell)
    ours.send(acceptor.get_port())
    await asyncio.to_thread(until_closed, ours)


def _server(plain):
    """Return a server that heeds `command=` in authorized_keys as sshd(8) says, but for file transfers."""
    import asyncssh

    from cloudgpu.providers.local import sshd

    assert "_run" in vars(plain), "what Server overrides is called otherwise"

    class Server(plain):
        forced = None

        def validate_public_key(self, username, key):
            self.forced = None
            keys = self._settings.home / ".ssh" / "authorized_keys"
            lines = keys.read_text(errors="replace").splitlines() if keys.exists() else []
            for line in lines:
                said, _, rest = line.removeprefix('command="').replace('\\"', "\0").partition('" ssh-')
                if (
                    line.startswith('command="')
                    and asyncssh.import_public_key(f"ssh-{rest}").public_data == key.public_data
                ):
                    self.forced = said.replace("\0", '"')
                    return username == self._settings.user
            return super().validate_public_key(username, key)

        async def _run(self, process):
            settings = self._settings
            if self.forced is not None:
                asked = {} if process.command is None else {"SSH_ORIGINAL_COMMAND": process.command}
                settings = dataclasses.replace(settings, environ={**settings.environ, **asked})
                process.channel._command = self.forced
            if settings.home.with_suffix(LOSES).exists():
                await self._lose(process, settings)
            else:
                await sshd.run(process, settings)

        async def _lose(self, process, settings):
            """Do what was asked, and cut the connection before a word of it is sent."""
            armed = settings.home.with_suffix(LOSES)
            done, go = armed.with_suffix(".done"), armed.with_suffix(".go")
            armed.unlink()  # whoever asks next is answered
            wait = f"touch {done}; until [ -e {go} ]; do sleep 0.05; done; rm {done} {go}"
            process.channel._command = f"({process.command}) >/dev/null 2>&1; {wait}"
            running = asyncio.create_task(sshd.run(process, settings))
            while not done.exists():  # noqa: ASYNC110  (a file has no event)
                await asyncio.sleep(0.02)
            process.channel.get_connection().abort()
            go.touch()
            await running

    return Server
