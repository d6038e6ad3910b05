"""The lab's own machines: users of this computer behind SSH servers, which several members know under several names.

Each is a real SSH server that runs as its system user, in a home of its own. What is there is read from that home and
from the processes, never by the product.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from tests.forked import Forked
from tests.providers.ssh import hosts
from tests.soak.lab_member import become

END_S = 20.0  # of this computer's own time: how long a killed process may take


@dataclass
class SshPlace(hosts.OwnHost):
    """One user of this computer, whom members reach over SSH; a place beside the models of clouds."""

    uid: int = 0

    @property
    def number(self) -> str:
        return f"ssh as {self.name}"

    def renew(self) -> None:
        super().renew()
        if self.uid:
            for path in (self.home, *self.home.rglob("*")):
                os.chown(path, self.uid, self.uid)

    def start(self) -> SshPlace:
        if not self.home.exists():
            self.renew()
        environ = {"PATH": self.path, "LANG": "C.UTF-8", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        self.process = Forked(_run, self.uid, self.host_key.private_pem, self.home, self.port, environ)
        self.port = self.process.port
        return self

    def settings(self, called: str, key: Path) -> str:
        """Return this host as the config.toml of a member has it, who calls it so and whose key lies there."""
        facts = {**self.options, "name": called, "key": os.fspath(key)}
        return "{" + ", ".join(f"{name} = {json.dumps(value)}" for name, value in facts.items()) + "}"

    def ask(self, what: str, *_words: Any) -> None:
        """Let something happen by itself: `shut_down` kills the agent, `interactive` all of it with its directory."""
        if what == "shut_down":
            self._kill(self._agents())
        elif what == "interactive":
            shutil.rmtree(self.place)
            self._kill([one for one in self.processes() if one.pid != self.process.pid])

    def machines(self) -> list[dict[str, Any]]:
        """Return the machine that is there, if one is."""
        record, tags = _read(self.place / "record.json"), _read(self.place / "tags.json")
        if not record or not tags:
            return []
        return [{"id": record["id"], "tags": tags, "state": "running" if self._agents() else "stopped", "log": []}]

    def cost(self, _machine: Any, _until: float) -> None:
        """Return nothing: no cloud bills it."""

    def ahead(self, _machine: Any, _now: float, _until: float) -> int:
        return 0

    def _agents(self) -> list[psutil.Process]:
        program = f"{self.place}/agent"
        return [one for one in self.processes() if any(word.startswith(program) for word in _words(one))]

    def _kill(self, processes: list[psutil.Process]) -> None:
        for one in processes:
            with contextlib.suppress(psutil.Error):
                one.send_signal(signal.SIGKILL)
        until = time.monotonic() + END_S
        while any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes):
            assert time.monotonic() < until, f"{processes} do not end"
            time.sleep(0.02)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _run(ours: Connection, uid: int, private: str, home: Path, port: int, environ: dict[str, str]) -> None:
    if uid:
        become(uid)
        environ |= {"LOGNAME": hosts.USER, "USER": hosts.USER}
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(hosts._serve(ours, private, home, port, environ))
