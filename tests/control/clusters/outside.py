"""Who else than a cluster's own processes gets in: its listening ports, and a client that has another munge key."""

from __future__ import annotations

import socket
import subprocess
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil

from tests.control.clusters.gang import until

WITHIN_S = 5.0
ELSEWHERE = "127.0.0.2"  # of this computer, but no node's: what is open on every network answers there, too


def listening(processes):
    """Where these processes listen, or take datagrams: (kind, address, port) with the program's name."""
    found = {}
    for one in processes:
        with suppress(psutil.Error):
            for each in one.net_connections("inet"):
                if each.type is socket.SOCK_DGRAM or each.status == psutil.CONN_LISTEN:
                    found[each.type, each.laddr.ip, each.laddr.port] = one.name()
    return found


def is_open_elsewhere(port):
    """Whether this port takes a connection at an address that is not the one of the nodes."""
    with closing(socket.socket()) as made:
        made.settimeout(WITHIN_S)
        return made.connect_ex((ELSEWHERE, port)) == 0


def answer_to_garbage(address, port):
    """What a port says to somebody who speaks no language of Slurm's."""
    with closing(socket.create_connection((address, port), timeout=WITHIN_S)) as made, suppress(OSError):
        made.sendall((64).to_bytes(4, "big") + bytes(range(64)))
        made.shutdown(socket.SHUT_WR)
        return made.recv(1024)
    return b""


@contextmanager
def stranger(conf, key, place: Path):
    """Yield the settings of somebody who knows the cluster's slurm.conf and has this munge key."""
    place.mkdir(mode=0o700)
    (place / "key").write_bytes(key)
    (place / "key").chmod(0o600)
    paths = {"key-file": "key", "socket": "munge", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    words = ["munged", "-F", "--force", *(f"--{one}={place / name}" for one, name in paths.items())]
    lines = [f"AuthInfo=socket={place}/munge" if one.startswith("AuthInfo=") else one for one in conf.splitlines()]
    (place / "slurm.conf").write_text("\n".join(lines) + "\n")
    daemon = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until((place / "munge").exists)
        yield {"SLURM_CONF": str(place / "slurm.conf"), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    finally:
        daemon.terminate()
        daemon.wait(timeout=10)


def asked(environ, *words):
    """What one of Slurm's commands says to somebody: its status, its output and its errors."""
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr
