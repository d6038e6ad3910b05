"""SSH on the machines of our models of clouds: one process, a real server on each running machine's own addresses.

Of user data it does what cloud-init would: the host key, the users' keys, `write_files` below the user's home and
the agent's files. Nothing else of it runs. Commands run as whoever runs the tests, in a directory of the machine's
own, with `sudo` and the ways to power off in front of PATH that act on the model: nothing here may shut down the
computer it runs on.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from cloudgpu.agent.program import own_meter_source

ROOT = Path(__file__).parents[2]
USER = "cloudgpu"
AT_HAND = Path(sys.executable).parent  # of Python and Jupyter, where these tests run
END = {"shutdown": "shut-down", "poweroff": "shut-down", "halt": None, "reboot": None, "systemctl": None}


class Machine(NamedTuple):
    """A machine as its cloud's model tells of it; `given` is the cloud-config of its user data."""

    id: str
    state: str
    given: dict[str, Any]
    hosts: list[str]


class Machines:
    """The SSH servers: `open` one when a machine runs, `close` it when that ends. Their disks outlive a stop."""

    def __init__(self, url: str, port: int) -> None:
        self.port = port
        self._url = url
        self._root = Path(tempfile.mkdtemp(prefix="cg-machines-"))
        self._process: subprocess.Popen[str] | None = None
        self._open: set[str] = set()
        self._lock = threading.Lock()

    def watch(self, machine: Machine) -> None:
        """Follow a machine's state."""
        if machine.state == "running":
            self.open(machine)
        elif machine.id in self._open:
            self.close(machine.id)
        if machine.state == "terminated":
            shutil.rmtree(self._disk(machine.id), ignore_errors=True)

    def open(self, machine: Machine) -> None:
        """Serve SSH for a machine whose user data has a host key; without one nobody could know it."""
        host_key = machine.given.get("ssh_keys", {}).get("ed25519_private")
        if host_key is None or machine.id in self._open:
            return
        user, keys = _user(machine.given)
        home = self.home(machine.id)
        if not home.exists():
            self._furnish(machine.id, home, user, machine.given)
        facts = {"host_key": host_key, "authorized_keys": keys, "user": user, "home": str(home), "port": self.port}
        path = f"{home.parent / 'bin'}:{AT_HAND}"
        self._say({"open": machine.id, "hosts": machine.hosts, "path": path, "facts": facts})
        self._open.add(machine.id)

    def home(self, machine_id: str) -> Path:
        """Return where a machine's user is at home."""
        return self._disk(machine_id) / "home"

    def _disk(self, machine_id: str) -> Path:
        return self._root / machine_id.replace("/", "_")

    def close(self, machine_id: str) -> None:
        """End a machine's server and all that runs there."""
        self._open.discard(machine_id)
        self._say({"close": machine_id})
        left = list(self._processes(self._disk(machine_id)))
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=5)

    def close_all(self) -> None:
        """End all of them, and forget their disks."""
        for one in list(self._open):
            self.close(one)
        for path in self._root.iterdir():
            shutil.rmtree(path, ignore_errors=True)

    def end(self) -> None:
        """End the process too."""
        self.close_all()
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait(10)
            self._process.stdout.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def _say(self, what: dict[str, Any]) -> None:
        with self._lock:
            if self._process is None:
                environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
                command = [sys.executable, "-m", "tests.clouds.ssh"]
                pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
                self._process = subprocess.Popen(command, env=environ, cwd=ROOT, **pipes)
            self._process.stdin.write(json.dumps(what) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline().strip()
        if answer != "done":
            raise RuntimeError(f"no SSH server: {answer or 'its process has ended'}")

    def _furnish(self, machine_id: str, home: Path, user: str, given: dict[str, Any]) -> None:
        home.mkdir(parents=True, mode=0o700)
        for file in given.get("write_files", []):
            path = Path(file["path"])
            if path.is_relative_to(f"/home/{user}"):
                target = home / path.relative_to(f"/home/{user}")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(_content(file))
                target.chmod(int(str(file.get("permissions", "0644")), 8))
        _settle(home, {Path(one["path"]).name: one for one in given.get("write_files", []) if _is_of_ours(one)})
        programs = home.parent / "bin"
        programs.mkdir()
        for name, verb in END.items():
            act = f"{self._url}/model/{verb}/{machine_id}"
            whom = "context=s._create_unverified_context()"  # the model's certificate is its own
            ask = f"import ssl as s, urllib.request as u; u.urlopen(u.Request({act!r}, method='POST'), {whom}).read()"
            _script(programs / name, f"exec {shlex.quote(sys.executable)} -c {shlex.quote(ask)}" if verb else "exit 0")
        _script(programs / "sudo", 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"')

    def _processes(self, root: Path) -> Any:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("HOME", "").startswith(str(root)):
                    yield process


def _user(given: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the login name and the keys that user data names."""
    named = [one for one in given.get("users", []) if isinstance(one, dict) and one.get("ssh_authorized_keys")]
    first = named[0] if named else {"name": USER}
    return first["name"], [*given.get("ssh_authorized_keys", []), *first.get("ssh_authorized_keys", [])]


def _is_of_ours(file: dict[str, Any]) -> bool:
    return Path(file["path"]).parent == Path("/usr/local/lib/cloudgpu")


def _settle(home: Path, files: dict[str, dict[str, Any]]) -> None:
    """Give the user what the script `settle` would. Jupyter is there already; `on_start` is not run."""
    if "agent.json" not in files:
        return
    base = home / ".cloudgpu"
    base.mkdir(mode=0o700)
    for name in ("agent", "agent.py"):
        (base / name).write_bytes(_content(files[name]))
    (base / "agent").chmod(0o700)
    settings = json.loads(_content(files["agent.json"]))
    command = ["jupyter", "lab", *settings["jupyter"][2:]] if settings["jupyter"] else []
    (base / "own.py").write_text(own_meter_source())
    here = {"own": [f"HOME={home}"], "root": str(home), "jupyter": command}  # it is one of many on this computer
    (base / "agent.json").write_text(json.dumps({**settings, **here}))


def _content(file: dict[str, Any]) -> bytes:
    how, text = str(file.get("encoding", "")), file.get("content", "")
    raw = base64.b64decode(text) if how in {"b64", "base64", "gz+b64", "gzip+b64", "gz+base64"} else text.encode()
    return gzip.decompress(raw) if how.startswith("gz") else raw


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


async def _serve() -> None:
    """Read what to open and close, a line each, and say when it is done; end with standard input."""
    acceptors: dict[str, Any] = {}
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            await _obey(json.loads(line), acceptors)
            answer = "done"
        except Exception as error:  # noqa: BLE001  (it is told, and raised at the other end)
            answer = repr(error)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


async def _obey(what: dict[str, Any], acceptors: dict[str, Any]) -> None:
    from cloudgpu.providers.local import sshd

    if name := what.get("close"):
        acceptor = acceptors.pop(name)
        acceptor.close()
        await acceptor.wait_closed()
        return
    sshd.LOOPBACK = what["hosts"]  # it takes several, and nothing runs between this and the listening
    facts = {**what["facts"], "home": Path(what["facts"]["home"])}
    environ = {"PATH": f"{what['path']}:{os.environ['PATH']}", "LANG": "C.UTF-8"}
    environ |= {"PYTHONPATH": os.environ.get("PYTHONPATH", "").removeprefix(f"{ROOT}{os.pathsep}")}
    acceptors[what["open"]] = await sshd.serve(**facts, environ=environ, shell="/bin/bash")  # noqa: S604


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve())
