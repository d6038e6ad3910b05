"""A PostgreSQL server of the tests' own: made when it is first asked for, on loopback, gone with the process."""

from __future__ import annotations

import ctypes
import hmac
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from hashlib import pbkdf2_hmac, sha256
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg
import pytest

PASSWORD = "not: a/secret@all"
PR_SET_PDEATHSIG = 1
SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = {fsync}
max_connections = 300
shared_buffers = 32MB
lc_messages = 'C'
cloudgpu.clock = 'off'
"""


def programs() -> Path:
    """Return the directory of initdb and postgres: Debian keeps them out of the path. Without them, skip."""
    found = shutil.which("postgres")
    places = [Path(found).parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    for place in places:
        if (place / "initdb").exists():
            return place
    pytest.skip("There is no PostgreSQL server here: install it (Debian: apt-get install postgresql) to run its tests.")


class Server:
    """A server in a directory of its own. `user` runs it where the tests run as root, which it refuses."""

    def __init__(self, *, fsync: bool = False) -> None:
        self._programs = programs()
        self.user = "postgres" if os.geteuid() == 0 else None
        self.root = Path(tempfile.mkdtemp(prefix="cloudgpu-postgres-"))
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        if self.user:
            shutil.chown(self.root, self.user)
        self._make(fsync=fsync)

    @property
    def data(self) -> Path:
        return self.root / "data"

    def url(self, database: str = "postgres", *, schema: str = "", port: int | None = None) -> str:
        """Return the URL of a database, and of a schema in it."""
        where = f"postgresql://ada:{quote(PASSWORD, safe='')}@127.0.0.1:{port or self.port}/{database}"
        # The login alone can take seconds where many processes share two cores.
        return f"{where}?connect_timeout=60" + (f"&options=-csearch_path%3D{schema}" if schema else "")

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [str(self._programs / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        log = (self.root / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                command, cwd="/", user=self.user, extra_groups=[] if self.user else None, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, preexec_fn=_end_with_parent,  # noqa: PLW1509  (it calls nothing that takes a lock)
            )  # fmt: skip
        until = time.monotonic() + 60
        while True:
            try:
                with psycopg.connect(self.url(), connect_timeout=5) as raw:
                    raw.execute(f"ALTER ROLE ada PASSWORD '{_kept_as(PASSWORD)}'")
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self.root / "log").read_text()
                assert time.monotonic() < until, (self.root / "log").read_text()
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """End it as a crash does: no client is told, nothing is tidied up."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
            self._process = None

    @property
    def is_down(self) -> bool:
        """Whether it was killed and not started again."""
        return self._process is None

    def freeze(self) -> None:
        """Stop all its processes, as a host that hangs does: connections stand, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, what: signal.Signals) -> None:
        assert self._process is not None
        main = psutil.Process(self._process.pid)
        main.send_signal(what)  # first the one that makes others
        for one in main.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                one.send_signal(what)

    def schema(self) -> str:
        """Make an empty schema and return its URL."""
        name = f"s{uuid.uuid4().hex}"
        with psycopg.connect(self.url(), autocommit=True) as raw:
            raw.execute(f"CREATE SCHEMA {name}")
        return self.url(schema=name)

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.root, ignore_errors=True)

    def _make(self, *, fsync: bool) -> None:
        secret = self.root / "password"
        secret.write_text(PASSWORD)
        if self.user:
            shutil.chown(secret, self.user)
        options = ["-U", "ada", "--auth=scram-sha-256", f"--pwfile={secret}", "-E", "UTF8", "--locale=C.UTF-8", "-N"]
        command = [str(self._programs / "initdb"), "-D", str(self.data), *options]
        groups = [] if self.user else None
        done = subprocess.run(
            command, cwd="/", user=self.user, extra_groups=groups, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(SETTINGS.format(fsync="on" if fsync else "off"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A running server for this test process."""
    server = Server()
    try:
        server.start()
        yield server
    finally:
        server.remove()


def _kept_as(password: str) -> str:
    """Return what the server keeps of a password, made in one round: 4,096 of them were most of a login's CPU time."""
    salt = b"cloudgpu's tests"
    salted = pbkdf2_hmac("sha256", password.encode(), salt, 1)
    client, server = (hmac.digest(salted, key, "sha256") for key in (b"Client Key", b"Server Key"))
    salt, client, server = (b64encode(one).decode() for one in (salt, sha256(client).digest(), server))
    return f"SCRAM-SHA-256$1:{salt}${client}:{server}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end_with_parent() -> None:
    """Whoever kills the tests ends the server too. Set last: a change of user would clear it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)
