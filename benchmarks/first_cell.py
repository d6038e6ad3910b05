"""From nothing to a first answered notebook cell: `cloudgpu up` and `tunnel` against the same by hand, in seconds.

By hand: the same SSH server in a process of its own, `ssh -L` to it with the same `jupyter lab` as its command, and
the same cell once it answers; keys and files are ready before the clock starts. Both in turns on this machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from socket import socket
from typing import Any

from cloudgpu.access.jupyter.notebook import run_cell
from cloudgpu.access.jupyter.remote_lab import OPTIONS
from cloudgpu.access.ssh.client_files import client_key, new_host_key

BIN = Path(sys.executable).parent
CLOUDGPU = [str(BIN / "cloudgpu")] if (BIN / "cloudgpu").exists() else [sys.executable, "-m", "cloudgpu"]
USER = "somebody"
MOST = 1.0  # seconds more than by hand
WITHIN = 60.0


def measure(n: int = 3) -> dict[str, Any]:
    """Return the row of the table and the seconds of each of `n` runs, ours and by hand."""
    ours, interactive, stages = [], [], []
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # nobody compiles every module at every start
    for turn in range(n + 1):
        with tempfile.TemporaryDirectory() as place:
            hand = _by_hand(Path(place))
        with tempfile.TemporaryDirectory() as place:
            up, whole = _ours(Path(place))
        if turn:  # the first reads and compiles everything
            interactive.append(hand)
            stages.append(up)
            ours.append(whole)
    mine, other = statistics.median(ours), statistics.median(interactive)
    row = {
        "what": "up to the first notebook cell",
        "unit": "s",
        "ours": mine,
        "against": other,
        "ratio": mine / other,
        "aim": f"<= {MOST:.0f} s more",
        "met": mine - other <= MOST,
        "n": n,
        "spread": f"{min(ours):.1f} to {max(ours):.1f}",
    }
    return {"rows": [row], "ours": ours, "interactive": interactive, "of_it_up": stages}


def _ours(home: Path) -> tuple[float, float]:
    """Return the seconds until `up` has returned, and until the cell has answered."""
    environ = {**os.environ, "CLOUDGPU_HOME": str(home)}
    tunnel = None
    try:
        begun = time.perf_counter()
        subprocess.run([*CLOUDGPU, "up", "--yes"], env=environ, check=True, capture_output=True)
        up = time.perf_counter() - begun
        tunnel = subprocess.Popen([*CLOUDGPU, "tunnel", "-o", "json"], env=environ, stdout=-1, stderr=-3, text=True)
        answer = _document(tunnel)
        _cell(answer["port"], answer["url"].partition("token=")[2])
        return up, time.perf_counter() - begun
    finally:
        if tunnel is not None:
            tunnel.send_signal(signal.SIGINT)
            tunnel.wait(timeout=20)
        subprocess.run([*CLOUDGPU, "down", "--all", "--yes"], env=environ, check=True, capture_output=True)


def _document(process: subprocess.Popen[str]) -> dict[str, Any]:
    text = ""
    for line in process.stdout or ():
        text += line
        if line == "}\n":
            break
    document: dict[str, Any] = json.loads(text)
    return document


def _by_hand(place: Path) -> float:
    ready, port, lab = _ready(place), _free_port(), _free_port()
    begun = time.perf_counter()
    server = subprocess.Popen([sys.executable, __file__, str(place)], stdout=-1, text=True)
    ssh = None
    try:
        answers_at = str(server.stdout.readline()).strip() if server.stdout else ""
        command = _jupyter(place, lab)
        forward = ["-L", f"127.0.0.1:{port}:127.0.0.1:{lab}"]
        ssh = subprocess.Popen([*ready, "-p", answers_at, *forward, f"{USER}@127.0.0.1", command], stderr=-3)
        _until_it_answers(port)
        _cell(port, "by-hand")
        return time.perf_counter() - begun
    finally:
        _end(place / "pid")
        for process in filter(None, (ssh, server)):
            process.terminate()
            process.wait(timeout=20)


def _ready(place: Path) -> list[str]:
    """Make keys and files as somebody has them who did it before; return the client's words."""
    host = new_host_key()
    (place / "host").write_text(host.private_pem)
    key = client_key(place / "keys")
    (place / "authorized").write_text(key.public_line)
    (place / "known_hosts").write_text(f"box {host.public_line}\n")
    (place / "token").write_text("by-hand")
    known = [f"UserKnownHostsFile={place / 'known_hosts'}", "HostKeyAlias=box", "StrictHostKeyChecking=yes"]
    options = [word for option in ("IdentitiesOnly=yes", *known) for word in ("-o", option)]
    return ["ssh", "-F", "none", "-i", str(key.path), *options]


def _jupyter(place: Path, port: int) -> str:
    root = ["--allow-root"] if os.geteuid() == 0 else []
    words = [str(BIN / "jupyter"), "lab", *OPTIONS, f"--ServerApp.port={port}", *root]
    return f"echo $$ > {place}/pid; JUPYTER_TOKEN_FILE={place}/token exec {' '.join(words)}"


def _until_it_answers(port: int) -> None:
    end = time.monotonic() + WITHIN
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/status?token=by-hand", timeout=5):
                return
        except (OSError, urllib.error.URLError):
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _cell(port: int, token: str) -> None:
    result = run_cell(port, token, "print(6 * 7)")
    assert result.text.strip() == "42", result


def _end(pid_file: Path) -> None:
    """End the JupyterLab whose number stands in the file, and its kernels with it."""
    if not pid_file.exists():
        return
    pid = int(pid_file.read_text())
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.05)


def _free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _serve(place: Path) -> None:
    """Be the SSH server: the one that a local machine has."""
    from cloudgpu.providers.local.sshd import serve

    acceptor = await serve(
        host_key=(place / "host").read_text(),
        authorized_keys=[(place / "authorized").read_text()],
        user=USER,
        home=place,
        environ={"PATH": os.environ["PATH"]},
    )
    print(acceptor.get_port(), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if len(sys.argv) > 1 and Path(sys.argv[1]).is_dir():
        asyncio.run(_serve(Path(sys.argv[1])))
    else:
        found = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
        row = found["rows"][0]
        print(f"first cell: {row['ours']:.2f} s, by hand {row['against']:.2f} s (aim {row['aim']}, n={row['n']})")
        print(f"ours {found['ours']}, of it `up` {found['of_it_up']}, by hand {found['interactive']}")
