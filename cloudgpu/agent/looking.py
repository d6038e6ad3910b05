"""Looks at the machine again and again, and keeps a day of samples, about one per minute.

In here a sample's `t` is by the monotonic clock, so that no jump of the other one moves it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from cloudgpu.agent.files import append, appended, load, lock, read_text, remove
from cloudgpu.agent.jupyter import kernels
from cloudgpu.agent.meters import PROC, glance

MINUTE = 60.0
RING = 1440  # samples: a day of minutes
SMI = "timeout -s KILL 20 nvidia-smi -q -d UTILIZATION".split()
# A GPU's use of a moment (`Gpu` in older drivers), and the mean of the 14 seconds that the driver keeps; less than ten
# are those since it was loaded.
USE = r"(?i)gpu(?: +| u.*\n.*: \d\d.*(?:\n.*){4}): (\S+)"


class Sampler:
    """Takes samples in the agent's directory. `state["told"]` says to which terminals we wrote, and when that was."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.settings: dict[str, Any] = load(home / "agent.json")
        self.state = load(home / "state.json")
        self.boot = read_text(PROC / "sys/kernel/random/boot_id")
        self.ages: dict[str, tuple[float, float]] = {}
        self.samples: Any = None
        self.sample: dict[str, Any] = {}
        self.before: Any = None
        self.smi: Any = None
        self.up = 0.0
        self.paths: list[str] = []

    def ago(self, key: str, stamp: float, now: float, mono: float) -> float:
        """Return the age of `stamp` in seconds, by the monotonic clock once seen; one that changed is new."""
        known = self.ages.get(key)
        if known is None or known[0] != stamp:
            self.ages[key] = (stamp, mono if known else mono - max(0.0, now - stamp))
        return mono - self.ages[key][1]

    def ring(self, now: float, mono: float) -> list[dict[str, Any]]:
        """Return the samples of the last day, the one that was begun last, too. Those of the future are left out."""
        found = []
        for line in "\n".join(read_text(self.home / f"sample{end}") for end in ("s.old", "s", "")).splitlines():
            with suppress(Exception):  # cut short when the machine lost its power
                boot, at, one = json.loads(line)
                one["t"] = one["t"] if boot == self.boot else mono - now + at
                if mono - RING * MINUTE <= one["t"] <= mono:
                    found.append(one)
        return found

    def look(self, now: float, mono: float) -> list[dict[str, Any]]:
        """Look once; return all samples, the last one still unfinished."""
        up, counted, self.paths, uses = glance(self.settings.get("own"))
        if self.samples is None:
            self.samples = self.ring(now, mono)
            self.up = mono if up is None else up
        start, before = self.before = self.before or (mono, counted)
        took, one = mono - start, self.sample
        one.update(t=mono, s=min(max(took, 1.0), 2 * MINUTE), fault="", jup=None)
        for key, value in counted.items():
            known = None not in (value, before[key])
            one[key] = round(max(0, value - before[key]) / max(took, MINUTE), 3) if known else None
        try:
            self.kernels(one, now, mono)
        except Exception as error:  # noqa: BLE001  (whatever is wrong there, nothing is known)
            one["fault"] = f"JupyterLab: {error}"
        self.typed(one, now, mono)
        self.jobs(one)
        if uses and self.settings.get("gpus"):
            self.gpu(one)
        samples = [*self.samples, one]
        if took >= MINUTE:
            self.samples = samples[-RING:]
            self.before, self.sample = (mono, counted), {}
            append(self.home / "samples", json.dumps([self.boot, now, one]))
        return samples

    def kernels(self, one: dict[str, Any], now: float, mono: float) -> None:
        """Note kernels at work, and how long ago any did something. Terminals are seen as the system's own."""
        busy, ages = one.setdefault("busy", []), []
        for kernel in kernels(self.home / "jupyter"):
            stamp = datetime.fromisoformat(kernel["last_activity"][:19] + "+00:00").timestamp()
            ages.append(self.ago(kernel["id"], stamp, now, mono))
            if kernel["execution_state"] == "busy" and kernel["id"] not in busy:  # its last activity began its cell
                busy.append(kernel["id"])
        one["jup"] = min(ages, default=None)

    def jobs(self, one: dict[str, Any]) -> None:
        """Note the jobs that run: what watches over one holds a lock in its directory."""
        for path in self.home.glob("jobs/*/*/*.lock"):
            with suppress(OSError), path.open() as file:
                if not lock(file, fcntl.LOCK_SH) and path.parts[-3] not in one.setdefault("job", []):
                    one["job"].append(path.parts[-3])

    def typed(self, one: dict[str, Any], now: float, mono: float) -> None:
        """Note how long ago anybody typed in a terminal and any of them printed, but for what we wrote there."""
        ages: dict[str, list[float]] = {"in": [], "out": []}
        stamps = [("in", str(self.home / "terminal-input"), "st_mtime")]
        for path in self.paths:
            stamps += [("in", path, "st_atime"), ("out", path, "st_mtime")]
        for kind, path, name in stamps:
            with suppress(OSError):
                stamp = getattr(os.stat(path), name)  # noqa: PTH116
                if kind == "in" or self.state.get("told", {}).get(path) != stamp:
                    ages[kind].append(self.ago(kind + path, stamp, now, mono))
        one.update({kind: min(found, default=None) for kind, found in ages.items()})

    def gpu(self, one: dict[str, Any]) -> None:
        """Read what nvidia-smi has said since the last look, and ask it again. We never wait: it may hang.

        Of a GPU that computes for a second now and then, the mean of the last seconds shows what a glance misses.
        """
        used, answer = one.setdefault("gpu", None), self.home / "gpu"
        if self.smi and self.smi.poll() is None:
            return
        with suppress(Exception):
            if self.smi and self.smi.returncode == 0:
                one["gpu"] = max(used or 0.0, *map(float, re.findall(USE, read_text(answer))))
        remove(answer)
        self.smi = self.spawn([*SMI, *self.settings.get("smi", [])], "gpu")

    def spawn(self, command: list[str], name: str = "agent.log") -> Any:
        """Start a command, its output in a file of ours, and return it. Raises OSError."""
        null = subprocess.DEVNULL
        with appended(self.home / name) as out:
            return subprocess.Popen(command, stdin=null, stdout=out, stderr=out, start_new_session=True)  # noqa: S603
