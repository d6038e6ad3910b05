"""The ledger under hundreds of kills, at any moment and at every write that it makes."""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.ledger.killing import check_whole, killed_while_writing, started
from tests.postgres import Server

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def test_five_hundred_kills_with_others_writing_lose_nothing(tmp_path: Path) -> None:
    acknowledged: dict[str, set[int]] = {}

    def victims(worker: int) -> None:
        chance = random.Random(worker)
        for kill in range(125):
            name = f"victim-{worker}-{kill}"
            acknowledged[name] = killed_while_writing(tmp_path, name, 0, chance)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(victims, range(4)))
    assert len(acknowledged) == 500
    check_whole(tmp_path, acknowledged, killed=500)


def test_a_hundred_kills_of_clients_of_postgresql_lose_nothing(tmp_path: Path, postgres: Server) -> None:
    url = postgres.schema()
    acknowledged: dict[str, set[int]] = {}

    def victims(worker: int) -> None:
        chance = random.Random(worker)
        for kill in range(25):
            name = f"victim-{worker}-{kill}"
            acknowledged[name] = killed_while_writing(tmp_path / f"{worker}", name, 0, chance, url=url)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(victims, range(4)))
    assert len(acknowledged) == 100
    for worker in range(4):
        check_whole(tmp_path / f"{worker}", acknowledged, killed=100, url=url)


def test_ten_kills_of_the_postgresql_server_lose_nothing(tmp_path: Path) -> None:
    server = Server(fsync=True)
    try:
        server.start()
        url, chance = server.schema(), random.Random(7)
        acknowledged: dict[str, set[int]] = {}
        for kill in range(10):
            names = [f"writer-{kill}-{number}" for number in range(3)]
            processes = [started(tmp_path / name, name, 0, 1_000_000, url=url) for name in names]
            first = [process.stdout.readline() for process in processes if process.stdout]
            death = threading.Timer(chance.uniform(0, 0.1), server.kill)  # to hit any moment of a write
            death.start()
            death.join()
            # Each ends with an error: its server is gone for good, as far as it can see.
            for name, line, process in zip(names, first, processes, strict=True):
                process.kill()
                rest = process.communicate()[0].splitlines(keepends=True)
                acknowledged[name] = {int(one) for one in [line, *rest] if one.endswith("\n")}
            server.start()
        assert all(acknowledged.values())
        check_whole(tmp_path / "reader", acknowledged, killed=30, url=url)
    finally:
        server.remove()


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed; it kills at the chosen call")
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "fsync", "flock", "unlink", "ftruncate", "write"])
@pytest.mark.parametrize("begun", [False, True], ids=["a-new-ledger", "a-ledger-of-two-lines"])
def test_a_kill_at_every_single_call_loses_nothing(tmp_path: Path, call: str, begun: bool) -> None:
    kills = 0
    for number in range(1, 200):
        directory = tmp_path / str(number)
        acknowledged = {"before": set(_run(directory, "before", ())[1]) if begun else set()}
        code, acknowledged["victim"] = _run(directory, "victim", _killer(call, number))
        check_whole(directory, acknowledged, killed=1)
        # Who comes after it goes on as if nothing had been.
        assert _run(directory, "victim", ()) == (0, {0, 1})
        check_whole(directory, {"victim": {0, 1}}, killed=0)
        if code == 0:
            break
        kills += 1
    else:
        pytest.fail(f"the writer never came to its end without {call}")
    if call in {"pwrite64", "fdatasync", "write"}:
        assert kills >= 2, "it was killed nowhere, so nothing was shown"


def _killer(call: str, number: int) -> tuple[str, ...]:
    return (
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        f"trace={call}",
        "-e",
        f"inject={call}:signal=KILL:when={number}",
    )


def _run(directory: Path, name: str, before: tuple[str, ...]) -> tuple[int, set[int]]:
    """Write two transactions, under `before`; return the exit status and the acknowledged numbers."""
    process: subprocess.Popen[str] = started(directory, name, 0, 2, before=before)
    out, _ = process.communicate(timeout=60)
    return process.returncode, {int(line) for line in out.split()}
