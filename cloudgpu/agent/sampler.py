"""Samples the machine's meters, terminals, kernels and jobs: about one sample per minute, kept for a day.

A sample has `t` (its end), `s` (its length in seconds), `cpu`, `net`, `disk` and more meters (per second), `fault` (why
nothing is known), `busy` (ids of kernels that compute), `job` (ids of running jobs), `gpu` (the highest utilisation in
percent), and seconds since the last sign of use: `jup` (a kernel), `in` (somebody typed), `out` (a terminal printed).
Here `t` is by the monotonic clock, so that no jump of the wall clock moves it.
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

from cloudgpu.agent.files import append, load, lock, open_log, read_text, remove
from cloudgpu.agent.jupyter import kernels
from cloudgpu.agent.meters import PROC, read_meters

MINUTE = 60.0
MAX_SAMPLES = 1440  # one per minute of a day
SMI_COMMAND = "timeout -s KILL 20 nvidia-smi -q -d UTILIZATION".split()
# A GPU's utilisation now (`Gpu` in older drivers), and its mean over the last 14 seconds; the mean is not read while
# the driver has fewer than ten seconds.
UTILIZATION = r"(?i)gpu(?: +| u.*\n.*: \d\d.*(?:\n.*){4}): (\S+)"


class Sampler:
    """Takes samples. `home` is the agent's directory; `state["told"]` has when we wrote to a terminal, by its path.

    `now` is the epoch, `mono` seconds of the monotonic clock.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.settings: dict[str, Any] = load(home / "agent.json")
        self.state = load(home / "state.json")
        self.boot = read_text(PROC / "sys/kernel/random/boot_id")
        self.changes: dict[str, tuple[float, float]] = {}  # by what is watched: its last stamp, and when that was new
        self.samples: Any = None  # the finished ones; None before the first step
        self.sample: dict[str, Any] = {}  # of this minute, unfinished
        self.minute_start: Any = None  # when this sample began, and the meters then
        self.smi_process: Any = None
        self.up_since = 0.0
        self.terminals: list[str] = []

    def age(self, key: str, stamp: float, now: float, mono: float) -> float:
        """Return the seconds since the epoch `stamp` of what `key` names; by the monotonic clock once it was seen.

        A changed stamp has age 0.
        """
        previous = self.changes.get(key)
        if previous is None or previous[0] != stamp:
            self.changes[key] = (stamp, mono if previous else mono - max(0.0, now - stamp))
        return mono - self.changes[key][1]

    def load_samples(self, now: float, mono: float) -> list[dict[str, Any]]:
        """Return the saved samples of the last day, the unfinished one too; samples of the future are left out."""
        samples = []
        for line in "\n".join(read_text(self.home / f"sample{suffix}") for suffix in ("s.old", "s", "")).splitlines():
            with suppress(Exception):  # cut short when the machine lost its power
                boot, at, sample = json.loads(line)
                sample["t"] = sample["t"] if boot == self.boot else mono - now + at
                if mono - MAX_SAMPLES * MINUTE <= sample["t"] <= mono:
                    samples.append(sample)
        return samples

    def take_sample(self, now: float, mono: float) -> list[dict[str, Any]]:
        """Read everything once; return all samples, the last one still unfinished."""
        started_s, meters, self.terminals, uses_gpus = read_meters(self.settings.get("own"))
        if self.samples is None:
            self.samples = self.load_samples(now, mono)
            self.up_since = mono if started_s is None else started_s
        start, before = self.minute_start = self.minute_start or (mono, meters)
        elapsed, sample = mono - start, self.sample
        sample.update(t=mono, s=min(max(elapsed, 1.0), 2 * MINUTE), fault="", jup=None)
        for key, value in meters.items():
            is_known = None not in (value, before[key])
            sample[key] = round(max(0, value - before[key]) / max(elapsed, MINUTE), 3) if is_known else None
        try:
            self.note_kernels(sample, now, mono)
        except Exception as error:  # noqa: BLE001  (whatever is wrong there, nothing is known)
            sample["fault"] = f"JupyterLab: {error}"
        self.note_terminals(sample, now, mono)
        self.note_jobs(sample)
        if uses_gpus and self.settings.get("gpus"):
            self.note_gpus(sample)
        samples = [*self.samples, sample]
        if elapsed >= MINUTE:
            self.samples = samples[-MAX_SAMPLES:]
            self.minute_start, self.sample = (mono, meters), {}
            append(self.home / "samples", json.dumps([self.boot, now, sample]))
        return samples

    def note_kernels(self, sample: dict[str, Any], now: float, mono: float) -> None:
        """Write into `sample` which kernels are busy, and how long ago a kernel did something."""
        busy, ages = sample.setdefault("busy", []), []
        for kernel in kernels(self.home / "jupyter"):
            stamp = datetime.fromisoformat(kernel["last_activity"][:19] + "+00:00").timestamp()
            ages.append(self.age(kernel["id"], stamp, now, mono))
            if kernel["execution_state"] == "busy" and kernel["id"] not in busy:  # it became busy at its last activity
                busy.append(kernel["id"])
        sample["jup"] = min(ages, default=None)

    def note_jobs(self, sample: dict[str, Any]) -> None:
        """Write into `sample` the ids of running jobs: a job's supervisor holds a lock in its directory."""
        for path in self.home.glob("jobs/*/*/*.lock"):
            with suppress(OSError), path.open() as file:
                if not lock(file, fcntl.LOCK_SH) and path.parts[-3] not in sample.setdefault("job", []):
                    sample["job"].append(path.parts[-3])

    def note_terminals(self, sample: dict[str, Any], now: float, mono: float) -> None:
        """Write into `sample` how long ago somebody typed, and a terminal printed something other than our warning."""
        ages: dict[str, list[float]] = {"in": [], "out": []}
        stamps = [("in", str(self.home / "terminal-input"), "st_mtime")]
        for path in self.terminals:
            stamps += [("in", path, "st_atime"), ("out", path, "st_mtime")]
        for kind, path, name in stamps:
            with suppress(OSError):
                stamp = getattr(os.stat(path), name)  # noqa: PTH116
                if kind == "in" or self.state.get("told", {}).get(path) != stamp:
                    ages[kind].append(self.age(kind + path, stamp, now, mono))
        sample.update({kind: min(values, default=None) for kind, values in ages.items()})

    def note_gpus(self, sample: dict[str, Any]) -> None:
        """Read what nvidia-smi printed, if it has ended, and start it again. We never wait: it may hang.

        The mean of the last seconds shows a GPU that computes only now and then.
        """
        highest, output = sample.setdefault("gpu", None), self.home / "gpu"
        if self.smi_process and self.smi_process.poll() is None:
            return
        with suppress(Exception):
            if self.smi_process and self.smi_process.returncode == 0:
                sample["gpu"] = max(highest or 0.0, *map(float, re.findall(UTILIZATION, read_text(output))))
        remove(output)
        self.smi_process = self.spawn([*SMI_COMMAND, *self.settings.get("smi", [])], "gpu")

    def spawn(self, command: list[str], output_name: str = "agent.log") -> Any:
        """Start a command whose output goes to a file in `home`, and return the process. Raises OSError."""
        null = subprocess.DEVNULL
        with open_log(self.home / output_name) as output:
            return subprocess.Popen(command, stdin=null, stdout=output, stderr=output, start_new_session=True)  # noqa: S603
