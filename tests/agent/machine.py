"""A machine for the tests: its home, the agent's files in it, and a real JupyterLab where one is asked for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from cloudgpu.access.jupyter import client as jupyter
from cloudgpu.agent.lease import LEASE_TAGS
from cloudgpu.agent.program import own_meter_source, source

LAB = [sys.executable, "-m", "jupyterlab"]
NOW, MONO = 1_800_000_000.0, 5_000.0


@dataclass
class Machine:
    """A home directory; `dir` is the agent's directory in it."""

    home: Path

    @property
    def dir(self) -> Path:
        return self.home / ".cloudgpu"

    @property
    def tags_file(self) -> Path:
        return self.home / "tags.json"

    @property
    def token(self) -> str:
        return (self.dir / "jupyter" / "token").read_text()

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.home)}

    def build(self, **settings) -> Machine:
        """Write what every machine gets."""
        self.dir.mkdir(parents=True)
        (self.dir / "agent.py").write_text(source())
        (self.dir / "own.py").write_text(own_meter_source())
        (self.dir / "agent").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$HOME/.cloudgpu/agent.py" "$@"\n')
        (self.dir / "agent").chmod(0o700)
        return self.settings(**settings)

    def settings(self, **settings) -> Machine:
        usual = {
            "id": "cg-test",
            "jupyter": [],
            "root": str(self.home),
            "metadata": {"kind": "file", "path": str(self.tags_file)},
            "notice": {"kind": "file", "path": str(self.home / "spot.json")},
            "interval": 0.2,
            "own": [f"HOME={self.home}"],  # the computer that runs the tests is busy
        }
        (self.dir / "agent.json").write_text(json.dumps({**usual, **settings}))
        return self

    def tags(self, expires=None, renew_until=None, hold_until=None) -> Machine:
        """Write the down channel whole, as a provider does; None leaves a tag out."""
        given = zip(LEASE_TAGS, (expires, renew_until, hold_until), strict=True)
        fresh = self.tags_file.with_suffix(".new")
        fresh.write_text(json.dumps({name: str(int(value)) for name, value in given if value is not None}))
        fresh.replace(self.tags_file)
        return self

    def lab(self, *words: str) -> dict[str, object]:
        """Run what `access.jupyter.client` sends, by the same door."""
        command = [str(self.dir / "agent"), "python", "-", *words]
        done = subprocess.run(
            command, input=jupyter.program(), env=self.environ, cwd=self.home, stdout=subprocess.PIPE, check=False
        )
        answer = json.loads(done.stdout)
        assert done.returncode == ("error" in answer)
        return answer

    def status(self) -> dict[str, object]:
        done = subprocess.run([str(self.dir / "agent"), "status"], env=self.environ, capture_output=True, check=True)
        assert done.stdout.count(b"\n") == 1
        return json.loads(done.stdout)

    def heartbeat(self) -> dict[str, object]:
        return json.loads((self.dir / "heartbeat.json").read_text())

    def run(self) -> subprocess.Popen[bytes]:
        """Start the agent's loop; the caller ends it."""
        return subprocess.Popen([str(self.dir / "agent"), "run"], env=self.environ, cwd=self.home)

    def ask(self, method: str, path: str, port: int, body: object = None) -> object:
        """Ask Jupyter's REST as its page does."""
        link = HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            text = None if body is None else json.dumps(body)
            link.request(method, path, text, {"Authorization": f"token {self.token}"})
            said = link.getresponse().read()
            return json.loads(said) if said else None
        finally:
            link.close()

    def end(self) -> None:
        """End the JupyterLab that this machine may have started, by its number."""
        with contextlib.suppress(FileNotFoundError):
            pid = json.loads((self.dir / "jupyter" / "server.json").read_text())["pid"]
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
                wait_for(lambda: not running(pid), 10)


def running(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition, seconds=10.0):
    """Poll until `condition()` is true and return what it said; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (said := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return said
