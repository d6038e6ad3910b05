"""What the agent costs on a machine: processor and memory over a minute and more, as a process of its own.

It runs as it is sent, in a directory of its own, once as a machine that is a whole computer (a look every 10 s, as on
a cloud) and once as one that shares its computer with others (every 5 s, as `local` and `ssh` look). No GPU is asked:
what nvidia-smi costs beside it is in docs/agent.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from cloudgpu.agent.program import own_meter_source, source
from cloudgpu.core.activity.idle import Thresholds

MOST_CPU, MOST_MB = 0.01, 30.0  # of one core; resident at most
WAYS: dict[str, dict[str, Any]] = {
    "whole computer": {"interval": 10},
    "shared computer": {"interval": 5, "own": ["CLOUDGPU_MACHINE=benchmark"]},
}


def measure(seconds: float = 90.0) -> dict[str, Any]:
    """Return a row per way to run, with the share of one core and the highest resident memory in MB."""
    return {"rows": [_row(name, settings, seconds) for name, settings in WAYS.items()]}


def _row(name: str, settings: dict[str, Any], seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        (home / "agent.py").write_text(source())
        (home / "own.py").write_text(own_meter_source())
        policy = {**Thresholds()._asdict(), "grace": 600, "stop": True, "off": []}
        (home / "agent.json").write_text(json.dumps({"id": "benchmark", "policy": policy, **settings}))
        (home / "samples").write_text(_day_of_samples())
        agent = subprocess.Popen([sys.executable, str(home / "agent.py"), "run"])
        try:
            time.sleep(5)  # the first look reads a day of samples
            before, began = _cpu_s(agent.pid), time.monotonic()
            time.sleep(seconds)
            share = (_cpu_s(agent.pid) - before) / (time.monotonic() - began)
            return _told(name, share, _peak_mb(agent.pid))
        finally:
            agent.kill()
            agent.wait()


def _told(name: str, share: float, mb: float) -> dict[str, Any]:
    """Return the row; `against` is what it may cost, and `spread` its highest resident memory."""
    return {
        "what": f"the agent, {name}",
        "unit": "% of a core",
        "ours": 100 * share,
        "against": 100 * MOST_CPU,
        "ratio": share / MOST_CPU,
        "aim": f"< 1, and {MOST_MB:.0f} MB",
        "met": share < MOST_CPU and mb < MOST_MB,
        "n": 1,
        "spread": f"{mb:.1f} MB",
    }


def _day_of_samples() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    now, mono = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
    quiet = {"cpu": 0.01, "net": 100.0, "disk": 0.0, "in": None, "out": None, "busy": [], "jup": None, "fault": ""}
    ages = range(60 * 1439, 0, -60)
    return "".join(f"{json.dumps([boot, now - age, {'t': mono - age, 's': 60.0, **quiet}])}\n" for age in ages)


def _cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(word) for word in words[11:15]) / os.sysconf("SC_CLK_TCK")


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if "VmHWM" in line).split()[1]) / 1000


if __name__ == "__main__":
    for one in measure()["rows"]:
        print(f"{one['what']}: {one['ours']:.2f}% of a core, {one['spread']} at most")
