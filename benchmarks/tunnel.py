"""Our tunnel against `ssh -L`: bytes per second, and requests that fail while the SSH server is killed and restarted.

Both run against the same server in one run, turn by turn, so that what else the computer does falls on both. Aims:
no slower than `ssh -L` (median of the ratios at least 1), and no failed request of ours.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from cloudgpu.access.ssh.client_files import SshHost, ssh_client, write_config  # noqa: E402  (run as a file, without an install)
from cloudgpu.access.tunnel.tunnel import Tunnel  # noqa: E402
from tests.access.remote import listening, web  # noqa: E402
from tests.access.sshserver import Server, wait_for  # noqa: E402

MEGABYTE = bytes(range(256)) * 4096
SIZE_MB = 200
TURNS = 5
OUTAGE_S = 1.5
REQUESTS_S = 4.0


def measure(*, size_mb: int = SIZE_MB, turns: int = TURNS, seconds: float = REQUESTS_S) -> dict[str, Any]:
    """Return MB/s of both, the median ratio (ours to theirs), failed and all requests of both over an outage."""
    with tempfile.TemporaryDirectory() as root, _server(Path(root)) as server:
        ours, theirs = _throughput(server, size_mb, turns)
        failed = {name: _outage(server, way, seconds) for name, way in (("ours", _ours), ("ssh", _ssh_again))}
    return {
        "ours_mb_s": statistics.median(ours),
        "ssh_mb_s": statistics.median(theirs),
        "ratio": statistics.median(one / other for one, other in zip(ours, theirs, strict=True)),
        "ours_failed": failed["ours"][0],
        "ours_requests": failed["ours"][1],
        "ssh_failed": failed["ssh"][0],
        "ssh_requests": failed["ssh"][1],
    }


@contextlib.contextmanager
def _server(root: Path) -> Iterator[Server]:
    (root / "connections").touch()
    server = Server(root).start().pin()
    try:
        yield server
    finally:
        server.kill()


def _throughput(server: Server, size_mb: int, turns: int) -> tuple[list[float], list[float]]:
    def send(connection: socket.socket) -> None:
        for _ in range(size_mb):
            connection.sendall(MEGABYTE)

    ours, theirs = [], []
    with listening(send) as remote, _ours(server, remote) as our_port, _ssh(server, remote) as ssh_port:
        for port in (our_port, ssh_port):  # the first connection pays for what the others find ready
            _download(port)
        for _ in range(turns):
            ours.append(size_mb / _download(our_port))
            theirs.append(size_mb / _download(ssh_port))
    return ours, theirs


def _download(port: int) -> float:
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while connection.recv(1 << 18):
            pass
    return time.perf_counter() - began


def _outage(server: Server, way: Callable[[Server, int], Any], seconds: float) -> tuple[int, int]:
    """Ask every 50 ms while the server is gone for a while; return how many requests failed, of how many."""
    answers: list[bool] = []
    with web() as remote, way(server, remote) as port:
        askers = []
        until = time.monotonic() + seconds
        gone = threading.Timer(0.5, server.kill)
        back = threading.Timer(0.5 + OUTAGE_S, server.start)
        gone.start()
        back.start()
        while time.monotonic() < until:
            askers.append(threading.Thread(target=lambda: answers.append(_asked(port))))
            askers[-1].start()
            time.sleep(0.05)
        for one in [*askers, back]:
            one.join()
    return answers.count(False), len(answers)


def _asked(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/x", timeout=30) as answer:
            return bool(answer.read() == b"answer to /x")
    except (OSError, HTTPException):
        return False


@contextlib.contextmanager
def _ours(server: Server, remote: int) -> Iterator[int]:
    with Tunnel(lambda: server.target, remote, first_port=0) as tunnel:
        yield tunnel.port


@contextlib.contextmanager
def _ssh(server: Server, remote: int) -> Iterator[int]:
    port = _free_port()
    with _ssh_process(server, port, remote) as process:
        wait_for(lambda: process.poll() is not None or _answers(port), 20)
        yield port
        process.kill()


@contextlib.contextmanager
def _ssh_again(server: Server, remote: int) -> Iterator[int]:
    """`ssh -L` in a loop that starts it again as soon as it ends: the kindest that can be done for it."""
    port = _free_port()
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(0.1):
            with _ssh_process(server, port, remote) as process:
                while process.poll() is None and not ended.wait(0.05):
                    pass
                process.kill()

    keeper = threading.Thread(target=keep)
    keeper.start()
    try:
        wait_for(lambda: _answers(port), 20)
        yield port
    finally:
        ended.set()
        keeper.join()


def _ssh_process(server: Server, port: int, remote: int) -> subprocess.Popen[bytes]:
    target, config = server.target, server.root / "ssh_config"
    write_config(
        config, [SshHost("box", target.id, target.address)], key_file=target.key_file, known_hosts=target.known_hosts
    )
    forward = f"127.0.0.1:{port}:127.0.0.1:{remote}"
    command = [ssh_client(), "-F", str(config), "-N", "-o", "ExitOnForwardFailure=yes", "-L", forward, "box"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    found = measure()
    print(
        f"tunnel throughput: {found['ratio']:.2f} times ssh -L "
        f"(ours {found['ours_mb_s']:.0f} MB/s, ssh {found['ssh_mb_s']:.0f} MB/s, {TURNS} turns of {SIZE_MB} MB)"
    )
    print(
        f"requests failed over a server restart: ours {found['ours_failed']} of {found['ours_requests']}, "
        f"ssh -L {found['ssh_failed']} of {found['ssh_requests']}"
    )
