"""What `cloudgpu --help` and `cloudgpu ls` cost in CPU seconds, as ratios to `python -c "import typer"`.

`ls` answers from a ledger of 50 machines and 2,000 lines. The commands run in turns with the bare import, so that a
busy machine slows both. A ratio is the median of each, user and system time of the child process.
"""

from __future__ import annotations

import os
import pty
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cloudgpu.core.events.log import Draft
from cloudgpu.core.values.times import iso
from cloudgpu.ledger.open import open_ledger

MACHINES = 50
LINES = 2000
SCRIPT = Path(sys.executable).with_name("cloudgpu")
CLOUDGPU = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "cloudgpu"]
COMMANDS = {
    "import typer": [sys.executable, "-c", "import typer"],
    "--help": [*CLOUDGPU, "--help"],
    "ls": [*CLOUDGPU, "ls"],
}
AIMS = {"--help": 1.2, "ls": 1.7}
ON_A_TERMINAL = " on a terminal"


def measure(n: int = 25) -> dict[str, Any]:
    """Return the rows of the table and, by command, the CPU seconds of each of `n` runs."""
    with tempfile.TemporaryDirectory() as home:
        fill(Path(home))
        environ = {**os.environ, "CLOUDGPU_HOME": home, "PYTHONPYCACHEPREFIX": f"{home}/bytecode"}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)  # nobody compiles every module at every start
        spent: dict[str, list[float]] = {name: [] for name in (*COMMANDS, *(f"{one}{ON_A_TERMINAL}" for one in AIMS))}
        for turn in range(n + 1):
            for name, found in spent.items():
                argv = COMMANDS[name.removesuffix(ON_A_TERMINAL)]
                seconds = cpu_seconds(argv, environ, terminal=name.endswith(ON_A_TERMINAL))
                if turn:  # the first reads and compiles everything
                    found.append(seconds)
    medians = {name: statistics.median(seconds) for name, seconds in spent.items()}
    against = medians["import typer"]
    rows = [
        {
            "what": f"cloudgpu {name}",
            "unit": "CPU s",
            "ours": medians[name],
            "against": against,
            "ratio": medians[name] / against,
            "aim": f"<= {aim}",
            "met": medians[name] / against <= aim,
            "n": n,
            "spread": f"{min(spent[name]):.3f} to {max(spent[name]):.3f}",
        }
        for name, aim in (*AIMS.items(), *((f"{one}{ON_A_TERMINAL}", aim) for one, aim in AIMS.items()))
    ]
    return {"rows": rows, "seconds": spent}


def cpu_seconds(argv: list[str], environ: Mapping[str, str], *, terminal: bool = False) -> float:
    """Run a command, perhaps on a terminal, and return its user and system seconds; raise when it fails."""
    ours, theirs = pty.openpty() if terminal else (-1, subprocess.DEVNULL)
    environ = {**environ, "TERM": "xterm"} if terminal else environ
    process = subprocess.Popen(argv, env=environ, stdout=theirs, stderr=theirs)
    if terminal:
        os.close(theirs)
        with suppress(OSError):  # the command has ended
            while os.read(ours, 65536):
                pass
        os.close(ours)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv)
    return used.ru_utime + used.ru_stime


def fill(home: Path, machines: int = MACHINES, lines: int = LINES) -> None:
    """Write a ledger of `machines` living machines and `lines` lines into `home`."""
    ledger = open_ledger(None, home / "ledger", actor="somebody", clock=lambda: datetime.now(UTC))
    start = datetime.now(UTC) - timedelta(hours=6)
    ledger.append(list(_drafts(start, machines, lines - 1)))
    ledger.close()


def _drafts(start: datetime, machines: int, lines: int) -> Iterator[Draft]:
    for number in range(lines):
        machine, turn = number % machines, number // machines
        at = start + timedelta(seconds=5 * number)
        kind, body = _step(machine, turn, start)
        yield Draft(kind, f"cg-{machine:016x}", body, at, f"{kind}:{machine}:{turn}")


def _step(machine: int, turn: int, start: datetime) -> tuple[str, dict[str, Any]]:
    if turn == 0:
        return "launch_intended", _intent(machine, start)
    if turn == 1:
        return "launch_settled", {"token": f"token-{machine}", "outcome": "made", "why": "the provider took it"}
    return "instance_observed", _observation(machine, start, running=turn % 8 != 7)


def _intent(machine: int, start: datetime) -> dict[str, Any]:
    return {
        "attempt": 1,
        "token": f"token-{machine}",
        "key": f"auto-{machine:020x}-1",
        "request": f"{machine:064x}",
        "name": f"machine-{machine}",
        "provider": "aws",
        "account": "aws",
        "region": "eu-central-1",
        "zone": "eu-central-1a",
        "instance_type": "p3.2xlarge",
        "market": "spot" if machine % 2 else "on_demand",
        "accelerators": [{"name": "V100", "count": 1, "memory_gib": 16.0, "share": 1.0}],
        "price": {"nanos_per_hour": 3_823_000_000, "source": "a list", "as_of": iso(start), "basis": "listed"},
        "owner": "somebody",
        "project": "default",
        "policy": "default",
        "template": "jupyter",
        "expires": iso(start + timedelta(hours=8)),
        "renew_until": iso(start + timedelta(hours=72)),
        "stoppable": True,
        "stop_effect": "keeps the disk",
        "setup": None,
    }


def _observation(machine: int, start: datetime, *, running: bool) -> dict[str, Any]:
    return {
        "provider_id": f"i-{machine:017x}",
        "state": "running" if running else "stopped",
        "billed": running,
        "since": None,
        "launched_at": iso(start),
        "address": {"host": "203.0.113.7", "port": 22, "user": "ubuntu"},
        "reason": None,
        "last_active": None,
        "expires": iso(start + timedelta(hours=8)),
        "renew_until": iso(start + timedelta(hours=72)),
        "hold_until": None,
    }


if __name__ == "__main__":
    for row in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 25)["rows"]:
        print(
            f"{row['what']}: {row['ratio']:.2f} times import typer (aim {row['aim']}, n={row['n']}, {row['spread']} s)"
        )
