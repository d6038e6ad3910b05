"""One SSH server behind every machine of a fake cloud, whose agent says what a test wants. It ends with the test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from functools import partial
from pathlib import Path

from cloudgpu.access.ssh.client_files import client_key, new_host_key
from cloudgpu.control.activity.agents import probe
from tests.forked import Forked, until_closed

USER = ""  # as machines of the fake cloud say it
MINUTE = 60
HOUR = 60 * MINUTE


def patient(monkeypatch):
    """Let passes wait longer for machines than they usually do: how busy this computer is decides nothing then."""
    monkeypatch.setattr("cloudgpu.control.reaper.observe.probe", partial(probe, timeout_s=60))
    monkeypatch.setattr("cloudgpu.control.reaper.notify.TERMINAL_TIMEOUT_S", 60.0)


class Agents:
    """What all machines' agents say alike. `options` are the lines of config.toml by which machines are found here."""

    def __init__(self, root, keys, *, user=USER, hosts=("127.0.0.1",), port=0):
        self.home = root / "machine"
        (self.home / ".cloudgpu").mkdir(parents=True)
        self.host_key = new_host_key()
        (root / "host").write_text(self.host_key.private_pem)
        (root / "authorized").write_text(client_key(keys).public_line)
        self._process = Forked(_run, root, port, os.environ["PATH"], user, list(hosts))
        self.options = f'host = "127.0.0.1"\nport = {self._process.port}\nhost_key = "{self.host_key.public_line}"\n'
        self.runs('echo "$*" >> ~/.cloudgpu/asked; cat ~/.cloudgpu/answer')

    def says(self, now, *, minutes=120, up=24 * HOUR, scratch=(), **sample):
        """Let it say at `now` that each of the last minutes was like this one: quiet, unless `sample` says more."""
        at = now.timestamp()
        usual = {"s": MINUTE, "gpu": 0, "cpu": 0.01, "net": 300, "disk": 0}
        samples = [usual | {"t": at - MINUTE * n} | sample for n in reversed(range(minutes))]
        self.answers({"now": at, "up_since": at - up, "samples": samples, "scratch": list(scratch)})

    def answers(self, said):
        (self.home / ".cloudgpu" / "answer").write_text(json.dumps(said))

    def runs(self, script):
        """Let the agent be this shell script; `agent python` stays an interpreter."""
        path = self.home / ".cloudgpu" / "agent"
        python = f'[ "$1" = python ] && shift && exec {sys.executable} "$@"'
        path.write_text(f"#!/bin/sh\n{python}\n{script}\n")
        path.chmod(0o755)

    @property
    def asked(self):
        """How often it was asked for its samples."""
        path = self.home / ".cloudgpu" / "asked"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def end(self):
        self._process.kill()


def _run(ours, root: Path, port: int, path: str, user: str, hosts: list[str]) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(ours, root, port, path, user, hosts))


async def _serve(ours, root: Path, port: int, path: str, user: str, hosts: list[str]) -> None:
    from cloudgpu.providers.local import sshd

    sshd.LOOPBACK = hosts  # it takes several

    acceptor = await sshd.serve(  # noqa: S604
        host_key=(root / "host").read_text(),
        authorized_keys=[(root / "authorized").read_text()],
        user=user,
        home=root / "machine",
        environ={"PATH": path, "LANG": "C.UTF-8"},
        port=port,
        shell="/bin/bash",
    )
    ours.send(acceptor.get_port())
    await asyncio.to_thread(until_closed, ours)
