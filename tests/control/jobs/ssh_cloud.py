"""The fake cloud with real machines: each one that runs is an SSH server with a home of its own, on its own address.

A process of the test's watches what the cloud says of its machines. It begins a server for one that runs, and kills the
server and all that runs there when it is stopped or ended; an ended machine loses its disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cloudgpu.access.ssh.client_files import client_key, new_host_key
from cloudgpu.core.model.instances import Address
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.naming import digest
from cloudgpu.errors import NoCapacity
from cloudgpu.testing.fake.full import _without_abilities
from cloudgpu.testing.fake.provider import FakeProvider
from cloudgpu.testing.fake.settings import read_options
from cloudgpu.testing.fake.store import Pace, machine_from_json, phase
from tests.forked import Forked, until_closed

KIND = "tests.control.jobs.ssh_cloud:make"
LOOK_S = 0.01
END_WITH_PARENT = 1  # PR_SET_PDEATHSIG
CHANGES = (
    "launch",
    "terminate",
    "stop",
    "start",
    "tag",
    "set_timer",
    "drop_timer",
    "save_image",
    "terminate_keeping_disk",
)
STRIKES = []  # called before each changing call of the cloud


class SshCloud(FakeProvider):
    """The fake cloud, whose machines are where their servers are."""

    def attach(self, id, volume, tags):  # noqa: A002
        """Attach a volume; its content is a directory beside the machines, which outlives them."""
        here = Path(self.options.state_file).parent
        there, place = here / "volumes" / volume.name, here / "machines" / id / "data"
        for one in (there, place.parent):
            one.mkdir(parents=True, exist_ok=True)
        if not place.is_symlink():
            place.symlink_to(there)
        return super().attach(id, volume, tags)

    def launch(self, attempt, *, deadline):
        item = attempt.offer.configuration
        gone = Path(self.options.state_file).with_name("no-spot")
        if item.market is Market.SPOT and gone.exists() and item.zone in gone.read_text().split():
            raise NoCapacity(f"{item.zone} has no spot capacity", field="offer", value=item.zone)
        return super().launch(attempt, deadline=deadline)

    def _address(self, machine):
        return Address(host_of(machine.id), self.options.port, "")  # as whoever runs this

    @contextlib.contextmanager
    def _call(self, method):
        for strike in STRIKES if method in CHANGES else ():
            strike(method)
        with super()._call(method) as cloud:
            yield cloud


def make(settings):
    """Return the cloud, without the abilities that its settings say it lacks: what the entry point names."""
    lacks = read_options(settings).lacks
    return _without_abilities(SshCloud, lacks)(settings) if lacks else SshCloud(settings)


def host_of(machine):
    """The address of a machine: one of this computer's loopback."""
    number = int(digest(machine)[:6], 16) % 60_000
    return f"127.1.{1 + number // 250}.{1 + number % 250}"


class Machines:
    """The machines of a cloud. `options` are the lines of config.toml by which they are found."""

    def __init__(self, root, keys):
        self.root, self.state = root / "machines", root / "cloud.json"
        self.root.mkdir(parents=True)
        key = new_host_key()
        with socket.socket() as some:
            some.bind(("127.0.0.1", 0))
            port = some.getsockname()[1]
        self.options = f'state_file = "{self.state}"\nport = {port}\nhost_key = "{key.public_line}"\n'
        self._process = Forked(_run, root, key.private_pem, client_key(keys).public_line, port, os.environ["PATH"])

    def home(self, machine):
        return self.root / machine / "home"

    def off(self):
        """Let none of them answer any more, whatever the cloud says of them."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def end(self):
        """End all of them."""
        self.off()
        for path in self.root.iterdir():
            _kill(path)


def _run(ours, root, private, public, port, path):
    import threading

    ours.send(port)
    closed = threading.Event()
    threading.Thread(target=lambda: (until_closed(ours), closed.set()), daemon=True).start()
    offset, running = timedelta(0), {}
    while not closed.wait(LOOK_S):
        with contextlib.suppress(OSError, ValueError):
            offset = timedelta(seconds=float((root / "offset").read_text()))
        for machine, state in _states(root / "cloud.json", datetime.now(UTC) + offset).items():
            if state == "running" and machine not in running:
                running[machine] = _begin(root / "machines" / machine, host_of(machine), private, public, port, path)
            elif state in ("stopping", "stopped", "terminated") and machine in running:
                _end(running.pop(machine))
                _kill(root / "machines" / machine)
                if state == "terminated":
                    shutil.rmtree(root / "machines" / machine, ignore_errors=True)
    for one in running.values():
        _end(one)


def _end(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _states(path, now):
    """What the cloud says of its machines; the file is replaced whole, so no lock is needed."""
    with contextlib.suppress(OSError, ValueError):
        found = [machine_from_json(one) for one in json.loads(path.read_text())["machines"]]
        return {one.id: str(phase(one, now, Pace()).state) for one in found}
    return {}


def _begin(place, host, private, public, port, path):
    """Begin a machine's server, and return its process."""
    (place / "home").mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child:
        return child
    with contextlib.suppress(BaseException):
        ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL)
        asyncio.run(_serve(place / "home", host, private, public, port, path))
    os._exit(1)


async def _serve(home, host, private, public, port, path):
    from cloudgpu.providers.local import sshd

    sshd.LOOPBACK = host
    await sshd.serve(  # noqa: S604
        host_key=private,
        authorized_keys=[public],
        user="",  # as machines of the fake cloud say it
        home=home,
        environ={"PATH": path, "LANG": "C.UTF-8", "CLOUDGPU_VOLUME": str(home.parent / "data")},
        port=port,
        shell="/bin/bash",
    )
    await asyncio.Event().wait()


def _kill(place):
    """Kill all that runs on a machine, until nothing does."""
    until = time.monotonic() + 10
    while (found := processes(place)) and time.monotonic() < until:
        for one in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)


def processes(place):
    """The processes whose home is there; one that has ended and is not waited for has no environment."""
    wanted = f"HOME={place}/".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if any(one.startswith(wanted) for one in path.read_bytes().split(b"\0")):
                found.append(int(path.parent.name))
    return found
