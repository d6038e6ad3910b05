"""How fast jobs are beside the plain tools: `run -- true` and `ssh true`, upload and rsync, output and `ssh cat`.

Both go to the same SSH server on this computer, in turns. Uploads and output include the connection, as those of rsync
and ssh do. Ours hashes every file on arrival and has it on the disk before it says so; rsync keeps times and owners.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from cloudgpu.access.jobs.remote import RemoteJob, RemoteSpec  # noqa: E402  (run as a file, without an install)
from cloudgpu.access.ssh.client_files import SshHost, ssh_client, write_config  # noqa: E402
from cloudgpu.access.ssh.connection import connect  # noqa: E402
from cloudgpu.access.ssh.target import Target  # noqa: E402
from tests.access.sshserver import Server  # noqa: E402

SMALL_FILES, LARGE_BYTES, OUTPUT_BYTES, PIECE = 10_000, 2 << 30, 1 << 30, 1 << 20
MEMORY = Path("/dev/shm")  # noqa: S108  (shared memory of Linux)
JOB, EMPTY = "job-0123456789", SimpleNamespace(files=[], links=[])
Pair = tuple[float, float]


def measure(turns: int = 5) -> dict[str, Any]:
    """Return the rows. One turn more is made of each than counts: it pays for what the others find ready."""
    rows = _commands(turns)
    with tempfile.TemporaryDirectory(dir=_place()) as directory, _server(Path(directory)) as server:
        for what, fill, aim in (("10,000 small files", _small, "<= 2"), ("2 GiB in one file", _large, "<= 2")):
            source = Path(directory, "source")
            snapshot = SimpleNamespace(files=fill(source), links=[])
            pairs = _pairs(
                turns, lambda s=snapshot, f=source: _upload(server, s, f), lambda f=source: _rsync(server, f)
            )
            rows.append(_row(f"upload of {what}", pairs, aim))
            shutil.rmtree(source)
            _clear(server)
        out = _output(server)
        pairs = _pairs(turns, lambda: _tail(server), lambda: _cat(server, out))
        rows.append(_row("output of 1 GiB", pairs, "<= 2"))
    return {"rows": rows}


def _place() -> Path:
    """Return a directory with room for the source and a copy of it."""
    room = 3 * LARGE_BYTES
    return MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > room else Path.cwd()


def _pairs(turns: int, ours: Callable[[], object], other: Callable[[], object]) -> list[Pair]:
    return [(_timed(ours), _timed(other)) for _ in range(turns + 1)][1:]


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _row(what: str, pairs: Sequence[Pair], aim: str | None) -> dict[str, Any]:
    ours, against = (statistics.median(values) for values in zip(*pairs, strict=True))
    ratios = [one / other for one, other in pairs]
    ratio = statistics.median(ratios)
    found = {"what": what, "unit": "s", "ours": ours, "against": against, "ratio": ratio, "n": len(pairs)}
    found["spread"] = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return found if aim is None else found | {"aim": aim, "met": ratio <= float(aim.removeprefix("<= "))}


# -- the command line


def _commands(turns: int) -> list[dict[str, Any]]:
    """Return the rows of a job that does nothing, beside ssh and beside `cloudgpu exec`, which loads as much."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "work").mkdir()
        environ = {**os.environ, "CLOUDGPU_HOME": str(place / "home"), "PYTHONPATH": str(ROOT)}

        def ours(*words: str) -> None:
            argv = [sys.executable, "-m", "cloudgpu", *words]
            subprocess.run(argv, env=environ, check=True, capture_output=True, cwd=place / "work")

        ours("up", "--name", "desk", "--provider", "local", "--template", "bare", "--policy", "default", "--yes")
        try:
            host = SshHost(*_desk(environ))
            config = place / "config"
            home = place / "home"
            write_config(config, [host], key_file=_key(home), known_hosts=home / "known_hosts")
            run, what = (lambda: ours("run", "--on", "desk", "--yes", "--", "true")), "run --on a machine -- true"
            by_ssh = _pairs(turns, run, lambda: _ssh(config, host.name, "true"))
            by_exec = _pairs(turns, run, lambda: ours("exec", "desk", "--", "true"))
            return [_row(f"{what}, ssh", by_ssh, None), _row(f"{what}, exec", by_exec, "<= 3")]
        finally:
            ours("down", "desk", "--yes")


def _desk(environ: dict[str, str]) -> tuple[str, str, Any]:
    """Return the machine's name, id and address."""
    from cloudgpu.control.outage.opening import open_session

    session = open_session(environ)
    (machine,) = session.ledger.machines()
    session.ledger.close()
    return machine.name, machine.id, machine.address


def _key(home: Path) -> Path:
    from cloudgpu.access.ssh.client_files import client_key
    from cloudgpu.config.files.user_files import Home

    return client_key(Home(home).keys).path


# -- files and output


@contextlib.contextmanager
def _server(root: Path) -> Iterator[Server]:
    (root / "connections").touch()
    server = Server(root).start().pin()
    target = server.target
    host = SshHost("box", target.id, target.address)
    write_config(root / "config", [host], key_file=target.key_file, known_hosts=target.known_hosts)
    try:
        yield server
    finally:
        server.kill()


def _ssh(config: Path, *words: str) -> None:
    argv = [ssh_client(), "-F", str(config), *words]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _small(source: Path) -> list[SimpleNamespace]:
    return [_stored(source, [os.urandom(1000 + number % 4000)]) for number in range(SMALL_FILES)]


def _large(source: Path) -> list[SimpleNamespace]:
    piece = os.urandom(PIECE - 8)
    return [_stored(source, (piece + number.to_bytes(8, "big") for number in range(LARGE_BYTES // PIECE)))]


def _stored(store: Path, pieces: Any) -> SimpleNamespace:
    """Write a file by its content, as a store of snapshots has it."""
    store.mkdir(exist_ok=True)
    seen, size, part = hashlib.sha256(), 0, store / "part"
    with part.open("wb") as file:
        for piece in pieces:
            file.write(piece)
            seen.update(piece)
            size += len(piece)
    part.rename(store / seen.hexdigest())
    return SimpleNamespace(path=f"data/{seen.hexdigest()}", size=size, mode=0o644, sha256=seen.hexdigest())


def _clear(server: Server) -> None:
    for name in (".cloudgpu/blobs", "copy"):
        shutil.rmtree(server.home / name, ignore_errors=True)


def _upload(server: Server, snapshot: Any, store: Path) -> None:
    _clear(server)
    with _job(server) as job:
        sent = job.upload(snapshot, store)
    assert sent == sum(one.size for one in snapshot.files)


def _rsync(server: Server, source: Path) -> None:
    _clear(server)
    ssh = f"{ssh_client()} -F {server.root / 'config'}"
    subprocess.run(["rsync", "-a", "-e", ssh, f"{source}/", f"box:{server.home / 'copy'}"], check=True)


@contextlib.contextmanager
def _job(server: Server) -> Iterator[RemoteJob]:
    target: Target = server.target
    with connect(target, timeout=30) as connection:
        yield RemoteJob(connection, JOB, 1)


def _output(server: Server) -> Path:
    """Have a job that is over, with so much output; return where that is."""
    out = server.home / ".cloudgpu" / "jobs" / JOB / "1" / "out"
    with _job(server) as job, Path(os.devnull).open("wb", 0) as null:
        job.start(RemoteSpec(("true",), "fox"), EMPTY, server.root)
        job.tail(null, null, follow=True)
    with out.open("wb") as file:
        for _ in range(OUTPUT_BYTES // PIECE):
            file.write(os.urandom(PIECE))
    return out


def _tail(server: Server) -> None:
    with _job(server) as job, Path(os.devnull).open("wb", 0) as null:
        assert job.tail(null, null).out == OUTPUT_BYTES


def _cat(server: Server, out: Path) -> None:
    _ssh(server.root / "config", "box", f"cat {out}")


if __name__ == "__main__":
    for row in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 5)["rows"]:
        print(row)
