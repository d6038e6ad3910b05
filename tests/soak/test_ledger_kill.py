"""The ledger under hundreds of kills, at any moment and at every write that it makes."""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.forked import Begun
from tests.ledger.killing import check_whole, killed_while_writing, started, traced
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
            first = [process.stdout.readline() for process in processes]
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


needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace, which kills, is not installed")


# A kill takes nothing from the kernel: whoever dies at a sync, or at a lock, leaves what the next of these calls finds.
@needs_strace
@pytest.mark.parametrize("call", ["pwrite64", "unlink", "ftruncate", "write"])
@pytest.mark.parametrize("begun", [False, True], ids=["a-new-ledger", "a-ledger-of-two-lines"])
def test_a_kill_at_every_single_call_loses_nothing(tmp_path: Path, call: str, begun: bool) -> None:
    kills = 0
    for number in range(1, 200):
        directory = tmp_path / str(number)
        acknowledged = {"before": _done(started(directory, "before", 0, 2))[1] if begun else set()}
        code, acknowledged["victim"] = _done(traced(directory, "victim", 0, 2, before=_killer(call, number)))
        check_whole(directory, acknowledged, killed=1)
        # Who comes after it goes on as if nothing had been.
        assert _done(started(directory, "victim", 0, 2)) == (0, {0, 1})
        check_whole(directory, {"victim": {0, 1}}, killed=0)
        if code == 0:
            break
        kills += 1
    else:
        pytest.fail(f"the writer never came to its end without {call}")
    if call in {"pwrite64", "write"}:
        assert kills >= 2, "it was killed nowhere, so nothing was shown"


@needs_strace
def test_each_transaction_is_on_the_disk_before_it_is_acknowledged(tmp_path: Path) -> None:
    """Between what it writes to the ledger and what it says of that is a sync of what it wrote."""
    log = tmp_path / "calls"
    watch = ("strace", "-f", "-qq", "-y", "-s", "0", "-o", str(log), "-e", "trace=pwrite64,fdatasync,write")
    assert _done(traced(tmp_path / "ledger", "writer", 0, 3, before=watch)) == (0, {0, 1, 2})
    synced, said = True, 0
    for line in log.read_text().splitlines():
        if "pwrite64(" in line and "ledger.db-wal>" in line:
            synced = False
        elif "fdatasync(" in line and "ledger.db-wal>" in line:
            synced = True
        elif " write(1<" in line:
            said += 1
            assert synced, line
    assert said == 3


def _killer(call: str, number: int) -> tuple[str, ...]:
    inject = f"inject={call}:signal=KILL:when={number}"
    return "strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject


def _done(process: subprocess.Popen[str] | Begun) -> tuple[int, set[int]]:
    """Return the exit status of a writer of two transactions and the numbers that it acknowledged."""
    out, _ = process.communicate(timeout=60)
    return process.wait(), {int(line) for line in out.split()}
