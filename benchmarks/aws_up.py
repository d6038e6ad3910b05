"""How long `cloudgpu up --no-wait` takes against the same AWS calls in a bare boto3 script, 100 ms added to each call.

Both are processes of their own, run in turns against the test server (our model of AWS, on loopback; it is no
measurement of AWS). The script sends the calls that `up` has just sent, in its order, one after another, with the
same client for each service; it decides nothing, writes nothing and checks nothing. `up` sends what does not depend
on each other side by side. Every launch is a new machine (`--new`), so that the whole way is walked.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
ADDED_S = 0.1
AIM = 1.2
WORDS = "up --yes --no-wait --new --ssh-from 203.0.113.7 --provider aws --region us-east-1 --gpu v100".split()
SCRIPT = Path(sys.executable).with_name("cloudgpu")
CLOUDGPU = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "cloudgpu"]
WAYS: dict[str, Sequence[str]] = {"on demand": (), "spot": ("--spot",)}
# The bare script: reads calls as (service, region, operation, parameters) and sends them.
BARE = """
import base64, json, sys
import boto3
session, clients = boto3.Session(), {}
for service, region, operation, parameters in json.load(open(sys.argv[1])):
    key = service, region
    if key not in clients:
        clients[key] = session.client(service, region_name=region)
    if "UserData" in parameters:
        parameters["UserData"] = base64.b64decode(parameters["UserData"])
    getattr(clients[key], operation)(**parameters)
"""


def measure(n: int = 7) -> dict[str, Any]:
    """Return a row for each way to buy: the medians of `n` turns, the calls, and how often each was sent."""
    from tests.clouds.aws.server import AwsServer

    server = AwsServer().start()
    try:
        found = {way: _measured(server, way, more, n) for way, more in WAYS.items()}
    finally:
        server.stop()
    return {"rows": [row for row, _ in found.values()], "calls": {way: calls for way, (_, calls) in found.items()}}


def _measured(server: Any, way: str, more: Sequence[str], n: int) -> tuple[dict[str, Any], list[str]]:
    server.reset()
    server.model.quotas.update({("", code): 1e6 for code in ("L-417A185B", "L-7212CCBC")})
    with tempfile.TemporaryDirectory() as place:
        environ = _environ(server, Path(place))
        spent: dict[str, list[float]] = {"up": [], "bare": []}
        calls: list[str] = []
        for turn in range(n + 1):
            begun = len(server.calls)
            ours = _seconds(server, [*CLOUDGPU, *WORDS, *more], environ)
            calls = [call.action for call in server.calls[begun:]]
            theirs = _seconds(server, _bare(server.calls[begun:], Path(place), turn), environ)
            if turn:  # the first makes the key pair and the group, looks at the account, and compiles every module
                spent["up"].append(ours)
                spent["bare"].append(theirs)
        ratio = statistics.median(ours / theirs for ours, theirs in zip(spent["up"], spent["bare"], strict=True))
    row = {
        "what": f"up --no-wait on AWS, {way}, {len(calls)} calls",
        "unit": "s",
        "ours": statistics.median(spent["up"]),
        "against": statistics.median(spent["bare"]),
        "ratio": ratio,
        "aim": f"<= {AIM}",
        "met": ratio <= AIM,
        "n": n,
        "spread": f"{min(spent['up']):.2f} to {max(spent['up']):.2f}",
    }
    return row, calls


def _environ(server: Any, place: Path) -> dict[str, str]:
    nothing = {"AWS_CONFIG_FILE": str(place / "none"), "AWS_SHARED_CREDENTIALS_FILE": str(place / "none")}
    ours = {"CLOUDGPU_HOME": str(place / "home"), "AWS_EC2_METADATA_DISABLED": "true"}
    environ = {**os.environ, **server.environ, **nothing, **ours, "PYTHONPYCACHEPREFIX": str(place / "bytecode")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return environ


def _seconds(server: Any, argv: Sequence[str], environ: Mapping[str, str]) -> float:
    """Run a command and return how long it took; raise when it fails."""
    server.faults.latency_s = ADDED_S
    begun = time.monotonic()
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    spent = time.monotonic() - begun
    server.faults.latency_s = 0.0
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return spent


def _bare(calls: Sequence[Any], place: Path, turn: int) -> list[str]:
    """Return the command of the bare script that sends these calls again; a launch gets a token of its own."""
    script, asked = place / "bare.py", place / "calls.json"
    script.write_text(BARE)
    asked.write_text(json.dumps([_again(call, turn) for call in calls if _is_repeatable(call)], default=str))
    return [sys.executable, str(script), str(asked)]


def _is_repeatable(call: Any) -> bool:
    return call.error == "" and not call.action.startswith(("Import", "Create", "Authorize"))  # of the first turn alone


def _again(call: Any, turn: int) -> tuple[str, str, str, dict[str, Any]]:
    from botocore import xform_name

    service = {"servicequotas": "service-quotas"}.get(call.service, call.service)
    parameters = {**call.parameters}
    if "ClientToken" in parameters:
        parameters["ClientToken"] = f"bare-{turn}-{parameters['ClientToken']}"[:64]
    return service, call.region, xform_name(call.action), parameters


if __name__ == "__main__":
    result = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
    for row in result["rows"]:
        print(f"{row['what']}: {row['ours']:.2f} s, bare {row['against']:.2f} s, {row['ratio']:.2f} times")
    for way, calls in result["calls"].items():
        print(f"{way}: {', '.join(calls)}")
