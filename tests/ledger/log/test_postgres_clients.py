"""Several clients with homes of their own on one PostgreSQL ledger: writers at once, decisions, killed ones, locks."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from cloudgpu.core.events.log import Draft
from cloudgpu.errors import LedgerUnavailable, ProviderUnavailable
from cloudgpu.ledger.log.base import Ledger, View
from cloudgpu.ledger.open import open_ledger
from tests.ledger.killing import check_whole, killed_while_writing, opened, said_by, started
from tests.ledger.lines import Clock, intended, note
from tests.ledger.wire import Wire
from tests.postgres import Server

ROOT = Path(__file__).parents[3]
HOLD = """
import sys; sys.path.insert(0, sys.argv[4])
from pathlib import Path
from cloudgpu.ledger.open import open_ledger
ledger = open_ledger(sys.argv[1], Path(sys.argv[2]), actor="other", clock=None)
with ledger.lock(sys.argv[3], wait=30):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.schema()


@pytest.fixture
def client(url: str, tmp_path: Path) -> Iterator[Callable[..., Ledger]]:
    made: list[Ledger] = []

    def make(name: str, place: str = url) -> Ledger:
        made.append(open_ledger(place, tmp_path / name, actor=name, clock=Clock()))
        return made[-1]

    yield make
    for ledger in made:
        ledger.close()


@pytest.fixture
def holder(url: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process on another laptop that holds the lock `a-key` until its standard input ends."""
    command = [sys.executable, "-c", HOLD, url, str(tmp_path / "laptop"), "a-key", str(ROOT)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def until(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_eight_clients_that_write_at_once_lose_nothing(url: str, tmp_path: Path) -> None:
    names = [f"writer-{number}" for number in range(8)]
    processes = [started(tmp_path / name, name, 0, 15, url=url) for name in names]
    try:
        acknowledged = {
            name: {int(line) for line in process.communicate(timeout=60)[0].split()}
            for name, process in zip(names, processes, strict=True)
        }
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for name, numbers in acknowledged.items():
        assert numbers == set(range(15)), said_by(tmp_path / name, name).read_text()
    check_whole(tmp_path / "reader", acknowledged, killed=0, url=url)
    assert opened(tmp_path / "reader", url).head()[0] == 1 + 8 * 15 * 2


@pytest.mark.soak
def test_ten_kills_while_writing_lose_nothing_that_was_acknowledged(url: str, tmp_path: Path) -> None:
    chance = random.Random(10)
    acknowledged: dict[str, set[int]] = {}

    def kill(number: int) -> None:
        name = f"victim-{number}"
        acknowledged[name] = killed_while_writing(tmp_path / name, name, 0, chance, url=url)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(kill, range(10)))
    assert all(acknowledged.values()), "a writer was killed before it wrote"
    check_whole(tmp_path / "victim-0", acknowledged, killed=10, url=url)


def test_where_there_is_room_for_three_no_two_clients_see_the_last_place_free(
    client: Callable[..., Ledger],
) -> None:
    clients = [client(f"client-{number}") for number in range(12)]
    clients[0].append([])

    def launch(number: int) -> int:
        def decision(view: View) -> Sequence[Draft]:
            return [intended(f"cg-{number}")] if len(view.machines()) < 3 else []

        return len(clients[number].decide(decision))

    with ThreadPoolExecutor(12) as pool:
        assert sum(pool.map(launch, range(12))) == 3
    assert len(clients[5].machines()) == 3


def test_a_client_sees_what_another_wrote_and_its_own_head_follows(client: Callable[..., Ledger]) -> None:
    one, two = client("one"), client("two")
    for number in range(6):
        (one, two)[number % 2].append([note(number)])
        assert one.head() == two.head()
    assert (one.integrity_problem(), two.integrity_problem()) == (None, None)
    assert {line.actor for line in one.events("scope:fake/main")} == {"one", "two"}


def test_a_lock_of_another_laptop_is_seen_and_told(
    client: Callable[..., Ledger], holder: subprocess.Popen[str]
) -> None:
    ledger = client("here")
    assert ledger.is_locked("a-key")
    assert not ledger.is_locked("another")
    for wait in (False, 0.1):
        with (
            pytest.raises(ProviderUnavailable, match=f"cloudgpu {holder.pid} on ") as caught,
            ledger.lock("a-key", wait=wait),
        ):
            pytest.fail("two hold it")
        assert (caught.value.exit_code, caught.value.field) == (8, "lock")
    with ledger.lock("another", wait=False):
        assert ledger.is_locked("another")
    assert not ledger.is_locked("another")


@pytest.mark.parametrize("end", [signal.SIGKILL, None])
def test_who_waits_gets_it_when_its_holder_ends_or_is_killed(
    client: Callable[..., Ledger], holder: subprocess.Popen[str], end: signal.Signals | None
) -> None:
    assert holder.stdin is not None
    stop = holder.stdin.close if end is None else lambda: holder.send_signal(end)
    threading.Timer(0.1, stop).start()
    with client("here").lock("a-key", wait=30):
        assert client("there").is_locked("a-key")
        client("here").check_lock("a-key")


def test_a_stopped_process_still_holds(client: Callable[..., Ledger], holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGSTOP)
    assert client("here").is_locked("a-key")


def test_locks_of_two_ledgers_are_not_the_same(
    client: Callable[..., Ledger], postgres: Server, holder: subprocess.Popen[str]
) -> None:
    assert not client("far", postgres.schema()).is_locked("a-key")


def test_a_lock_that_was_lost_with_its_connection_is_noticed_before_anything_is_sent(
    client: Callable[..., Ledger], postgres: Server, url: str
) -> None:
    wire = Wire(postgres.port)
    ledger = client("here", url.replace(f":{postgres.port}/", f":{wire.port}/"))
    with ledger.lock("a-key", wait=False):
        ledger.check_lock("a-key")
        wire.break_all()
        until(lambda: not client("there").is_locked("a-key"))
        with pytest.raises(LedgerUnavailable, match="nothing was sent") as caught:
            ledger.check_lock("a-key")
        assert caught.value.next
    wire.close()


def test_a_lock_that_the_server_forgot_is_noticed(client: Callable[..., Ledger], postgres: Server) -> None:
    ledger = client("here")
    with ledger.lock("a-key", wait=False):
        with psycopg.connect(postgres.url(), autocommit=True) as raw:
            raw.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
        with pytest.raises(LedgerUnavailable, match="nothing was sent"):
            ledger.check_lock("a-key")
