"""Locks held by real processes: one holder at a time, let go by death, no file left behind."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudgpu.errors import LedgerUnavailable, ProviderUnavailable
from cloudgpu.ledger.log.files import is_locked, lock

ROOT = Path(__file__).parents[3]
HOLD = """
import sys; sys.path.insert(0, sys.argv[3])
from pathlib import Path
from cloudgpu.ledger.log.files import lock
with lock(Path(sys.argv[1]), sys.argv[2], wait=30):
    print("held", flush=True)
    sys.stdin.read()
print("released", flush=True)
"""
# Counts in a file, which is only right when nobody else counts at the same time.
COUNT = """
import sys; sys.path.insert(0, sys.argv[3])
from pathlib import Path
from cloudgpu.ledger.log.files import lock
counter = Path(sys.argv[2])
for _ in range(50):
    with lock(Path(sys.argv[1]), "count", wait=60):
        number = int(counter.read_text())
        counter.write_text(str(number + 1))
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start processes of a program; whatever still runs at the end is killed by its pid."""
    running: list[subprocess.Popen[str]] = []

    def make(program: str, argument: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, str(tmp_path / "locks"), argument, str(ROOT)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield make
    for process in running:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def holder(start: Start, name: str = "a-key") -> subprocess.Popen[str]:
    process = start(HOLD, name)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_is_held_inside_and_gone_with_its_file_outside(tmp_path: Path) -> None:
    locks = tmp_path / "deep" / "locks"
    assert not is_locked(locks, "a-key")
    with lock(locks, "a-key", wait=False):
        assert is_locked(locks, "a-key")
        assert not is_locked(locks, "another")
        (file,) = locks.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(locks.stat().st_mode) == 0o700
    assert not is_locked(locks, "a-key")
    assert list(locks.iterdir()) == []


def test_an_exception_lets_go(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), lock(tmp_path, "a-key", wait=False):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a/b", "", ".", "UPPER", "ümlaut", "x" * 300, "a b", "-rf", "nul\0", "\ud800"]
)
def test_any_text_is_a_name_and_stays_in_the_directory(tmp_path: Path, name: str) -> None:
    with lock(tmp_path / "locks", name, wait=False):
        assert is_locked(tmp_path / "locks", name)
        assert len(list((tmp_path / "locks").iterdir())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["locks"]


@pytest.mark.parametrize("wait", [False, 0, 0.2])
def test_a_lock_that_another_process_holds_is_told_after_the_wait(start: Start, tmp_path: Path, wait: float) -> None:
    process = holder(start)
    begun = time.monotonic()
    with pytest.raises(ProviderUnavailable, match="'a-key'") as caught, lock(tmp_path / "locks", "a-key", wait=wait):
        pytest.fail("two hold it")
    assert time.monotonic() - begun < 5
    assert str(process.pid) in caught.value.message
    assert (caught.value.exit_code, caught.value.field) == (8, "lock")
    assert caught.value.next
    assert is_locked(tmp_path / "locks", "a-key"), "who failed to get it has not removed it"


@pytest.mark.parametrize("wait", [True, 30])
def test_who_waits_gets_it_when_it_is_released(start: Start, tmp_path: Path, wait: float) -> None:
    process = holder(start)
    assert process.stdin is not None
    threading.Timer(0.2, process.stdin.close).start()
    with lock(tmp_path / "locks", "a-key", wait=wait):
        assert is_locked(tmp_path / "locks", "a-key")
    assert list((tmp_path / "locks").iterdir()) == []


def test_a_killed_process_lets_go_by_itself(start: Start, tmp_path: Path) -> None:
    process = holder(start)
    assert is_locked(tmp_path / "locks", "a-key")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not is_locked(tmp_path / "locks", "a-key")
    with lock(tmp_path / "locks", "a-key", wait=False):
        assert is_locked(tmp_path / "locks", "a-key")
    assert list((tmp_path / "locks").iterdir()) == []


def test_who_waits_for_a_process_that_is_killed_gets_it(start: Start, tmp_path: Path) -> None:
    process = holder(start)
    threading.Timer(0.2, os.kill, (process.pid, signal.SIGKILL)).start()
    with lock(tmp_path / "locks", "a-key", wait=30):
        assert is_locked(tmp_path / "locks", "a-key")


def test_a_stopped_process_still_holds(start: Start, tmp_path: Path) -> None:
    process = holder(start)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        assert is_locked(tmp_path / "locks", "a-key")
    finally:
        os.kill(process.pid, signal.SIGCONT)


def test_a_program_that_was_started_meanwhile_does_not_keep_the_lock(tmp_path: Path) -> None:
    with lock(tmp_path, "a-key", wait=False):
        child = subprocess.Popen(["sleep", "60"])
    try:
        assert not is_locked(tmp_path, "a-key")
    finally:
        child.kill()
        child.wait()


@pytest.mark.soak
def test_processes_that_take_turns_never_meet_although_each_removes_the_file(start: Start, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    processes = [start(COUNT, str(counter)) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0, 0, 0, 0]
    assert counter.read_text() == "200"
    assert list((tmp_path / "locks").iterdir()) == []


def test_threads_of_one_process_exclude_each_other_too(tmp_path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def turn(number: int) -> None:
        with lock(tmp_path, "a-key", wait=30):
            inside.append(number)
            most.append(len(inside))
            inside.remove(number)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(turn, range(60)))
    assert set(most) == {1}
    assert len(most) == 60


def test_looking_is_never_in_the_way_of_holding(tmp_path: Path) -> None:
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            is_locked(tmp_path, "a-key")

    with ThreadPoolExecutor(2) as pool:
        looks = [pool.submit(look) for _ in range(2)]
        try:
            for _ in range(100):
                with lock(tmp_path, "a-key", wait=False):
                    assert is_locked(tmp_path, "a-key")
        finally:
            over.set()
        for found in looks:
            found.result()


def test_a_place_where_no_lock_can_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(LedgerUnavailable, match="cannot be made") as caught,
        lock(tmp_path / "file" / "locks", "a-key", wait=False),
    ):
        pytest.fail("held nowhere")
    assert caught.value.next
