"""What a pass of the reaper costs beside a bare boto3 script that makes the same calls, and beside cloud-custodian.

All three talk to one stub of EC2 over HTTP (`ec2_stub.py`, a process of its own on loopback; it is no measurement of
AWS) and stop the same machines: those that are older than three days, one in ten. Each is a process of its own, run in
turns, against the same machines and (ours) a copy of the same ledger, which knows them. What is compared is CPU time
of the process, then wall time with 100 ms added to each call. cloud-custodian is installed into an environment of its
own; where that cannot be done, it is left out and said.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import urlopen

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import ec2_stub  # noqa: E402  (benchmarks/ is no package)

SCRIPT = Path(sys.executable).with_name("cloudgpu")
CLOUDGPU = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "cloudgpu"]
CPU_AIM, WALL_AIM = 1.25, 1.2
ADDED_S = 0.1
CUSTODIAN = {
    "policies": [
        {
            "name": "old",
            "resource": "aws.ec2",
            "filters": [
                {"tag:cloudgpu-project": "thesis"},
                {"type": "value", "key": "State.Name", "value": "running"},
                {"type": "instance-age", "days": 3},
            ],
            "actions": ["stop"],
        }
    ]
}
# The bare script: the same calls, regions side by side; it keeps no record, and knows no rule but this one.
BARE = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
import boto3
regions, dry = sys.argv[2:], sys.argv[1] == "dry"
session = boto3.Session()
clients = {region: session.client("ec2", region_name=region) for region in regions}
old = datetime.now(timezone.utc) - timedelta(days=3)

def described(region, **which):
    pages = clients[region].get_paginator("describe_instances").paginate(**which)
    return [one for page in pages for part in page["Reservations"] for one in part["Instances"]]

def is_old(one):
    tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", ())}
    return tags.get("cloudgpu-project") == "thesis" and one["LaunchTime"] < old and one["State"]["Name"] == "running"

def ours(region):
    ours = [{"Name": "tag-key", "Values": ["cloudgpu-id"]}]
    return [one for one in described(region, Filters=ours, PaginationConfig={"PageSize": 1000}) if is_old(one)]

def each(work):
    with ThreadPoolExecutor(len(regions)) as pool:
        return dict(zip(regions, pool.map(work, regions)))

found = {region: [one["InstanceId"] for one in here] for region, here in each(ours).items()}
if not dry and any(found.values()):
    again = each(lambda region: [one["InstanceId"] for one in described(region, InstanceIds=found[region])
                                 if is_old(one)])
    each(lambda region: clients[region].stop_instances(InstanceIds=again[region]))
    while not all(all(one["State"]["Name"] == "stopped" for one in here)
                  for here in each(lambda region: described(region, InstanceIds=again[region])).values()):
        time.sleep(0.05)
"""


@dataclass(frozen=True)
class Spent:
    """What one process took, in seconds."""

    cpu: float
    wall: float


class Served:
    """The stub with its machines, a home whose ledger knows them, and the three that are compared."""

    def __init__(self, place: Path, n: int, regions: int) -> None:
        self.regions = ec2_stub.REGIONS[:regions]
        self._place, self._now = place, datetime.now(UTC)
        argv = [sys.executable, str(HERE / "ec2_stub.py")]
        self._stub = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._stub.stdout is not None
        self._url = f"http://127.0.0.1:{int(self._stub.stdout.readline())}"
        nothing = {"AWS_CONFIG_FILE": str(place / "none"), "AWS_SHARED_CREDENTIALS_FILE": str(place / "none")}
        keys = {"AWS_ACCESS_KEY_ID": "AKIASTUBOFEC20000000", "AWS_SECRET_ACCESS_KEY": "stub"}
        home = {"CLOUDGPU_HOME": str(place / "home"), "AWS_EC2_METADATA_DISABLED": "true", "USER": "ada"}
        bytecode = {"PYTHONPYCACHEPREFIX": str(place / "bytecode"), "AWS_DEFAULT_REGION": self.regions[0]}
        self.environ = {**os.environ, **nothing, **keys, **home, **bytecode, "AWS_ENDPOINT_URL": self._url}
        self.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        made = [sys.executable, str(HERE / "reap_home.py"), str(place / "made"), str(n), str(regions)]
        subprocess.run([*made, str(self._now.timestamp())], env=self.environ, check=True)
        (place / "bare.py").write_text(BARE)
        (place / "old.json").write_text(json.dumps(CUSTODIAN))

    def end(self) -> None:
        """End the stub."""
        self._stub.terminate()
        self._stub.wait()

    def asked(self, path: str) -> str:
        """Tell the stub something; return the calls that it has answered."""
        with urlopen(f"{self._url}/{path}") as answer:  # noqa: S310  (the stub, on loopback)
            return str(answer.read().decode())

    def ours(self, *words: str) -> list[str]:
        """Return the command of a pass, over a fresh copy of the ledger."""
        shutil.rmtree(self._place / "home", ignore_errors=True)
        shutil.copytree(self._place / "made", self._place / "home")
        return [*CLOUDGPU, "reap", *words]

    def bare(self, word: str) -> list[str]:
        """Return the command of the bare script."""
        return [sys.executable, str(self._place / "bare.py"), word, *self.regions]

    def custodian(self, python: Path, *words: str) -> list[str]:
        """Return the command of cloud-custodian."""
        where = [word for region in self.regions for word in ("--region", region)]
        out = ["--output-dir", str(self._place / "custodian"), "--cache-period", "0"]
        return [str(python.with_name("custodian")), "run", *words, *where, *out, str(self._place / "old.json")]

    def spent(self, argv: Sequence[str], *, added_s: float = 0.0) -> Spent:
        """Run a command and return what it took; raise when it fails."""
        self.asked("reset")
        self.asked(f"latency/{added_s}")
        said = self._place / "said"
        begun = time.monotonic()
        with said.open("w") as out:
            process = subprocess.Popen(argv, env=self.environ, stdout=out, stderr=out, cwd=self._place)
            _, status, used = os.wait4(process.pid, 0)
        took = time.monotonic() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{' '.join(argv)} ended with {process.returncode}: {said.read_text()[-2000:]}")
        return Spent(used.ru_utime + used.ru_stime, took)


@contextmanager
def served(n: int, regions: int) -> Iterator[Served]:
    """Yield the stub and what talks to it."""
    with tempfile.TemporaryDirectory() as place:
        found = Served(Path(place), n, regions)
        try:
            yield found
        finally:
            found.end()


def custodian_in(place: Path) -> Path | None:
    """Install cloud-custodian into an environment of its own and return its Python; None where that fails."""
    kept = os.environ.get("CLOUDGPU_CUSTODIAN")  # the Python of one that is installed already
    if kept:
        return Path(kept)
    python = place / "c7n" / "bin" / "python"
    try:
        subprocess.run([sys.executable, "-m", "venv", str(place / "c7n")], check=True, capture_output=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "c7n"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as fault:
        print(f"cloud-custodian is left out: {fault}", file=sys.stderr)
        return None
    return python


def measure(turns: int = 3) -> dict[str, Any]:
    """Return the rows: CPU at 2,000 machines and wall at 200, each beside the bare script and cloud-custodian."""
    with tempfile.TemporaryDirectory() as place:
        python = custodian_in(Path(place))
        with served(2000, 5) as many:
            rows = _compared(many, "2,000 machines", python, turns, added_s=0.0)
        with served(200, 5) as few:
            rows += _compared(few, "200 machines, 100 ms a call", python, turns, added_s=ADDED_S)
    return {"rows": rows}


def _compared(on: Served, what: str, python: Path | None, turns: int, *, added_s: float) -> list[dict[str, Any]]:
    commands: dict[str, Callable[[], list[str]]] = {
        "ours dry": lambda: on.ours("--dry-run"),
        "bare dry": lambda: on.bare("dry"),
        "ours stop": on.ours,
        "bare stop": lambda: on.bare("stop"),
    }
    if python is not None:
        commands["c7n dry"] = lambda: on.custodian(python, "--dryrun")
        commands["c7n stop"] = lambda: on.custodian(python)
    spent: dict[str, list[Spent]] = {name: [] for name in commands}
    calls: dict[str, str] = {}
    for turn in range(turns + 1):
        for name, command in commands.items():
            took = on.spent(command(), added_s=added_s)
            calls[name] = on.asked("calls")
            if turn:  # the first compiles every module
                spent[name].append(took)
    for name, made in calls.items():
        print(f"{what}, {name}: {made}; {_said(spent[name])}", file=sys.stderr)
    others = ("bare", "c7n") if python is not None else ("bare",)
    pairs = [(way, other) for way in ("dry", "stop") for other in others]
    return [_row(what, way, other, spent, added_s=added_s) for way, other in pairs]


def _said(some: Sequence[Spent]) -> str:
    cpu, wall = (statistics.median(getattr(one, name) for one in some) for name in ("cpu", "wall"))
    return f"{cpu:.2f} CPU s, {wall:.2f} s"


def _row(what: str, way: str, other: str, spent: Mapping[str, list[Spent]], *, added_s: float) -> dict[str, Any]:
    unit = "wall" if added_s else "cpu"
    ours, theirs = ([getattr(one, unit) for one in spent[f"{who} {way}"]] for who in ("ours", other))
    ratio = statistics.median(mine / its for mine, its in zip(ours, theirs, strict=True))
    aim = (WALL_AIM if added_s else CPU_AIM) if other == "bare" else None
    named = {"bare": "boto3", "c7n": "cloud-custodian"}[other]
    row = {
        "what": f"reap, {what}, {'a dry run' if way == 'dry' else 'one in ten stopped'}, beside {named}",
        "unit": "s" if added_s else "CPU s",
        "ours": statistics.median(ours),
        "against": statistics.median(theirs),
        "ratio": ratio,
        "n": len(ours),
        "spread": f"{min(ours):.2f} to {max(ours):.2f}",
    }
    return row | ({"aim": f"<= {aim}", "met": ratio <= aim} if aim else {})


if __name__ == "__main__":
    for row in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 3)["rows"]:
        print(f"{row['what']}: {row['ours']:.2f} {row['unit']}, {row['against']:.2f}, {row['ratio']:.2f} times")
