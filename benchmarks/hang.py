"""What one hanging region costs: it accepts each connection and each request, and answers nothing.

Three of four regions of the stub of EC2 (`ec2_stub.py`, on loopback; it is no measurement of AWS) answer, and each has
one machine that is past its `renew-until`. Measured are the seconds until a pass asks a healthy region to stop its
machine, the seconds of `ls --refresh`, and those of `down` of a machine in the hanging region. Beside the pass runs a
bare loop of boto3 that gives a region 10 seconds, asks region after region, and begins with the one that hangs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import reap as passes  # noqa: E402  (benchmarks/ is no package)

MACHINES, REGIONS = 40, 4
STOP_AIM, LS_AIM, DOWN_AIM = 20, 15, 30
ENOUGH_S = 1200.0  # after that a command is killed, and what it took is "more than"
BARE = """
import sys
from datetime import datetime, timedelta, timezone
import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError
old = datetime.now(timezone.utc) - timedelta(days=3)
patience = Config(connect_timeout=10, read_timeout=10, retries={"total_max_attempts": 1})
for region in sys.argv[1:]:
    client = boto3.client("ec2", region_name=region, config=patience)
    try:
        parts = client.describe_instances(Filters=[{"Name": "tag-key", "Values": ["cloudgpu-id"]}])["Reservations"]
        over = [one["InstanceId"] for part in parts for one in part["Instances"] if one["LaunchTime"] < old]
        client.stop_instances(InstanceIds=over)
    except BotoCoreError as fault:
        print(region, fault)
"""


def measure() -> dict[str, Any]:
    """Return the rows: the first stop beside the bare loop, then `ls --refresh` and `down` in the hanging region."""
    with passes.served(MACHINES, REGIONS) as on, tempfile.TemporaryDirectory() as place:
        script = Path(place) / "bare.py"
        script.write_text(BARE)
        hanging = on.regions[0]
        on.asked(f"hang/{hanging}")
        ours, whole, code = _until_stop(on, on.ours())
        print(f"the pass ended after {whole:.1f} s with exit {code}", file=sys.stderr)
        theirs, *_ = _until_stop(on, [sys.executable, str(script), *on.regions])
        ls, ls_code = _seconds(on, [*passes.CLOUDGPU, "ls", "--refresh"])
        down, down_code = _seconds(on, [*passes.CLOUDGPU, "down", "machine-1", "--yes"])
    what = "one region of four hangs"
    return {
        "rows": [
            _row(f"{what}: first stop elsewhere", ours, STOP_AIM) | {"against": theirs, "ratio": ours / theirs},
            _row(f"{what}: the whole pass (exit {code})", whole, None),
            _row(f"{what}: ls --refresh (exit {ls_code})", ls, LS_AIM),
            _row(f"{what}: down there (exit {down_code})", down, DOWN_AIM),
        ]
    }


def _row(what: str, seconds: float, aim: int | None) -> dict[str, Any]:
    row = {"what": what, "unit": "s", "ours": seconds, "n": 1}
    return row | ({"aim": f"<= {aim} s", "met": seconds <= aim} if aim else {})


def _until_stop(on: passes.Served, argv: list[str]) -> tuple[float, float, int]:
    """Return the seconds until a region was first asked to stop a machine, those of the command, and its exit code."""
    on.asked("reset")
    begun = time.monotonic()
    whole, code = _seconds(on, argv)
    said = dict(one.split("=") for one in on.asked("stops").split())
    first = min((float(at) for at in said.values()), default=float("inf"))
    return first - begun, whole, code


def _seconds(on: passes.Served, argv: list[str]) -> tuple[float, int]:
    """Return how long a command took and its exit code; -9 where it was killed, for it had not ended."""
    begun = time.monotonic()
    process = subprocess.Popen(argv, env=on.environ, stdout=subprocess.DEVNULL, stderr=sys.stderr)
    try:
        process.wait(ENOUGH_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return time.monotonic() - begun, process.returncode


if __name__ == "__main__":
    for row in measure()["rows"]:
        beside = f", {row['against']:.1f} s" if "against" in row else ""
        print(f"{row['what']}: {row['ours']:.1f} s{beside}")
