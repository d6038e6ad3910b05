"""Full disks, damaged, locked and forbidden files: one clear sentence each, and nothing half written."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudgpu.errors import LedgerUnavailable
from cloudgpu.ledger.open import SqliteLedger, open_ledger
from tests.ledger.lines import Clock, intended, note

pytestmark = pytest.mark.usefixtures("no_bytecode")  # a limit on files would cut it off

# A disk that fills up: appends until it is refused, then reads; prints how many lines were acknowledged.
FILL = """
ledger = opened()
done = 0
try:
    ledger.append([intended()])
    for done in range(1, 100_000):
        ledger.append([note(done)])
except LedgerUnavailable as fault:
    print(done - 1, fault.message, fault.next, sep="|")
ledger.close()
again = opened()
assert [row.id for row in again.machines()] == ["cg-1"]
assert again.integrity_problem() is None, again.integrity_problem()
assert again.verify().faults == (), again.verify().faults
assert len(list(again.events("scope:fake/main"))) == done - 1
"""
READ = """
ledger = opened()
ledger.append([intended(), note(1)])
ledger.close()
with suppress(OSError), Path(sys.argv[1], "filler").open("wb", buffering=0) as filler:
    while filler.write(b"x" * 512):
        pass
assert [row.id for row in opened().machines()] == ["cg-1"]
assert opened().integrity_problem() is None
assert opened().verify().line_count == 3
"""
FIRST = """
Path(sys.argv[1], "filler").write_bytes(b"x" * 4096)
ledger = opened()
try:
    ledger.append([note(1)])
except LedgerUnavailable as fault:
    print(fault.message)
assert (ledger.machines(), ledger.integrity_problem()) == ([], None)
"""
SETTING = """
import sys
from contextlib import suppress
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from cloudgpu.errors import LedgerUnavailable
from cloudgpu.ledger.open import open_ledger
from tests.ledger.lines import Clock, intended, note

def opened():
    return open_ledger(None, Path(sys.argv[1], "ledger"), actor="somebody", clock=Clock())
"""
ROOT = Path(__file__).parents[3]


def python(
    program: str, directory: str, *, before: list[str] | None = None, **more: object
) -> subprocess.CompletedProcess[str]:
    command = [*(before or []), sys.executable, "-c", SETTING + program, directory, str(ROOT)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **more)  # type: ignore[call-overload]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    found = SqliteLedger(
        tmp_path / "ledger.db", tmp_path / "ledger.head", actor="somebody", clock=Clock(), lock_timeout_s=0.2
    )
    found.append([intended(), note(1)])
    yield found
    found.close()


@pytest.mark.soak
def test_a_limit_on_files_is_told_and_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    import resource

    limit = 200_000
    done = python(
        FILL,
        str(tmp_path),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 0, done.stderr
    count, message, way = done.stdout.strip().split("|")
    assert str(tmp_path) in message
    assert message.endswith(").")
    assert way
    ledger = open_ledger(None, tmp_path / "ledger", actor="somebody", clock=Clock())
    assert len(ledger.append([note(999_999)])) == 1, "with room again it goes on"
    assert len(list(ledger.events("scope:fake/main"))) == int(count) + 1
    assert (ledger.integrity_problem(), ledger.verify().faults) == (None, ())
    ledger.close()


def can_mount() -> bool:
    """Whether this user may mount a small disk of its own, in a namespace that ends with the process."""
    if shutil.which("unshare") is None:
        return False
    trial = ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", "/mnt"]
    return subprocess.run(trial, capture_output=True, check=False).returncode == 0


if can_mount():

    def test_a_full_disk_is_told_and_still_read(tmp_path: Path) -> None:
        mount = f'mount -t tmpfs -o size=400k tmpfs {tmp_path} && exec "$@"'
        done = python(FILL, str(tmp_path), before=["unshare", "-rm", "sh", "-c", mount, "sh"])
        assert done.returncode == 0, done.stderr
        count, message, way = done.stdout.splitlines()[0].split("|")
        assert int(count) > 10
        assert "the disk is full" in message
        assert str(tmp_path) in message
        assert "Free some space" in way

    def test_a_ledger_is_still_read_where_not_a_byte_is_free(tmp_path: Path) -> None:
        mount = f'mount -t tmpfs -o size=1m tmpfs {tmp_path} && exec "$@"'
        done = python(READ, str(tmp_path), before=["unshare", "-rm", "sh", "-c", mount, "sh"])
        assert (done.returncode, done.stderr) == (0, "")

    def test_a_disk_without_any_room_is_told_at_the_first_line(tmp_path: Path) -> None:
        mount = f'mount -t tmpfs -o size=8k tmpfs {tmp_path} && exec "$@"'
        done = python(FIRST, str(tmp_path), before=["unshare", "-rm", "sh", "-c", mount, "sh"])
        assert (done.returncode, done.stderr) == (0, "")
        assert "the disk is full" in done.stdout


def test_a_ledger_locked_by_another_process_is_told_after_the_wait(ledger: SqliteLedger, tmp_path: Path) -> None:
    raw = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    raw.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailable, match="locked by another process"):
        ledger.append([note(2)])
    assert ledger.machines()[0].id == "cg-1", "who reads does not wait"
    raw.execute("ROLLBACK")
    raw.close()
    assert len(ledger.append([note(2)])) == 1


def test_a_writer_that_hangs_is_told_to_the_next(ledger: SqliteLedger, tmp_path: Path) -> None:
    def decision(_view: object) -> list[object]:
        other = SqliteLedger(
            tmp_path / "ledger.db", tmp_path / "ledger.head", actor="else", clock=Clock(), lock_timeout_s=0.1
        )
        with pytest.raises(LedgerUnavailable, match="locked"):
            other.append([note(3)])
        other.close()
        return []

    ledger.decide(decision)
    assert ledger.head()[0] == 3


@pytest.mark.parametrize("damage", ["rubbish", "cut", "holed"])
def test_a_damaged_file_is_told(ledger: SqliteLedger, tmp_path: Path, damage: str) -> None:
    ledger.append([note(number) for number in range(10, 300)])
    ledger.close()
    path = tmp_path / "ledger.db"
    size = path.stat().st_size
    if damage == "rubbish":
        path.write_bytes(b"not a database at all, " * 500)
    elif damage == "cut":
        os.truncate(path, size // 8192 * 4096)
    else:
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (size - 4096))
    with pytest.raises(LedgerUnavailable, match="is damaged") as caught:
        ledger.verify()
    assert str(path) in caught.value.message
    assert "backup" in (caught.value.next or "")
    with pytest.raises(LedgerUnavailable, match="is damaged"):
        ledger.append([note(2)])


@pytest.mark.parametrize("place", ["ledger.db", "ledger.head"])
def test_a_directory_where_a_file_should_be_is_told(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir()
    ledger = open_ledger(None, tmp_path, actor="somebody", clock=Clock())
    with pytest.raises(LedgerUnavailable) as caught:
        ledger.append([note(1)])
    assert str(tmp_path) in caught.value.message
    assert caught.value.next


def test_a_file_where_a_directory_should_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ledger = open_ledger(None, tmp_path / "file" / "ledger", actor="somebody", clock=Clock())
    for attempt in (lambda: ledger.append([note(1)]), ledger.machines):
        with pytest.raises(LedgerUnavailable, match="cannot be"):
            attempt()


def test_a_head_record_that_cannot_follow_is_healed_by_the_next_line(
    ledger: SqliteLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = (tmp_path / "ledger.head").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        assert len(ledger.append([note(2)])) == 1
    assert (tmp_path / "ledger.head").read_bytes() == head
    assert ledger.integrity_problem() is None
    ledger.append([note(3)])
    assert b'"seq": 5' in (tmp_path / "ledger.head").read_bytes()
