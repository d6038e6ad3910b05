"""Backup and restore on both databases, and from one to the other: nothing lost unasked, nothing taken unchecked."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudgpu.errors import InvalidRequest, LedgerUnavailable
from cloudgpu.ledger.log.base import Ledger
from cloudgpu.ledger.open import open_ledger
from cloudgpu.ledger.sqlite.backup import restore, write_backup
from cloudgpu.ledger.sqlite.migrations import MIGRATIONS
from tests.ledger.lines import Clock, intended, note
from tests.ledger.suite import LIFE, Store

pytestmark = pytest.mark.usefixtures("no_bytecode")  # a limit on files would cut it off

STORES = ["sqlite_store", "postgres_store"]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    return request.getfixturevalue(request.param)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "copies" / "ledger.backup"


@pytest.fixture(autouse=True)
def directory(file: Path) -> None:
    file.parent.mkdir()


def everything(ledger: Ledger) -> tuple[object, ...]:
    machines = ledger.machines(), ledger.billable_machines()
    return list(ledger.events()), *machines, list(ledger.ended_usages()), ledger.head(), ledger.id


def test_a_backup_is_one_private_file_and_a_ledger_by_itself(store: Store, file: Path, tmp_path: Path) -> None:
    ledger = store()
    ledger.append([*LIFE, note(1)])
    copy = write_backup(ledger, file)
    assert [path.name for path in file.parent.iterdir()] == ["ledger.backup"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (copy.ledger_id, copy.line_count, copy.head_hash) == (ledger.id, len(LIFE) + 2, ledger.head()[1])
    by_itself = open_ledger(f"sqlite://{file}", tmp_path / "other", actor="a", clock=Clock())
    assert everything(by_itself) == everything(ledger)
    assert by_itself.verify().faults == ()
    by_itself.close()


def test_a_backup_while_others_write_is_a_whole_past(store: Store, file: Path) -> None:
    ledger = store()
    ledger.append([note(0)])
    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(lambda n=n: [store().append([note(n * 100 + k)]) for k in range(1, 8)]) for n in (1, 2)]
        copies = [write_backup(store(), file.with_name(f"{number}")) for number in range(3)]
        for writer in writers:
            writer.result()
    hashes = {line.seq - 1: line.prev_hash for line in ledger.events()} | {ledger.head()[0]: ledger.head()[1]}
    assert all(hashes[copy.line_count] == copy.head_hash for copy in copies)


@pytest.mark.parametrize("target", STORES)
def test_a_restored_ledger_is_the_same_on_either_database(
    store: Store, target: str, request: pytest.FixtureRequest, file: Path
) -> None:
    ledger = store()
    ledger.append([*LIFE, intended("cg-2", "brave-fox", seconds=3), note(1)])
    before = everything(ledger)
    write_backup(ledger, file)
    fresh = request.getfixturevalue(target)("fresh")
    done = restore(fresh, file)
    assert (done.missing_line_count, done.previous_ledger) == (0, None)
    lines, *rest = everything(fresh)
    assert (lines[:-1], rest[:3]) == (before[0], list(before[1:4]))
    assert lines[-1].kind == "ledger_doubted", "who has never seen this ledger does not know whether it ends here"
    assert (fresh.id, fresh.verify().faults, fresh.integrity_problem()) == (ledger.id, (), None)
    assert fresh.append([note(2)])


def test_a_ledger_that_was_lost_is_restored_whole_without_a_doubt(store: Store, file: Path) -> None:
    ledger = store()
    ledger.append(LIFE)
    before = everything(ledger)
    write_backup(ledger, file)
    done = restore(ledger, file)
    assert done.previous_ledger is not None
    assert (everything(ledger), ledger.integrity_problem(), ledger.verify().faults) == (before, None, ())
    assert everything(store()) == before


def test_an_older_backup_is_refused_and_nothing_changes(store: Store, file: Path) -> None:
    ledger = store()
    ledger.append([note(1)])
    write_backup(ledger, file)
    ledger.append([note(2), note(3)])
    before = everything(ledger)
    with pytest.raises(InvalidRequest, match=r"has 2 lines that the backup .* lacks") as caught:
        restore(ledger, file)
    assert "--even-if-older" in (caught.value.next or "")
    assert everything(ledger) == before


def test_an_older_backup_that_is_meant_is_doubted_until_it_is_settled(store: Store, file: Path) -> None:
    ledger = store()
    ledger.append([note(1)])
    write_backup(ledger, file)
    ledger.append([note(2), note(3)])
    done = restore(ledger, file, even_if_older=True)
    assert (done.missing_line_count, ledger.head()[0]) == (2, 2)
    assert "ends at line 2, and its head record knew line 4" in (ledger.integrity_problem() or "")
    assert any("ends at line 2" in fault for fault in ledger.verify().faults)
    ledger.append([note(9), note(10), note(11)])
    assert ledger.integrity_problem() is not None
    ledger.settle("looked everywhere")
    assert (ledger.integrity_problem(), ledger.verify().faults) == (None, ())


def test_what_was_set_aside_is_a_whole_ledger(sqlite_store: Store, file: Path, tmp_path: Path) -> None:
    ledger = sqlite_store()
    ledger.append([note(1)])
    write_backup(ledger, file)
    ledger.append([note(2)])
    before = everything(ledger)
    done = restore(ledger, file, even_if_older=True)
    assert done.previous_ledger is not None
    assert stat.S_IMODE(Path(done.previous_ledger).stat().st_mode) == 0o600
    old = open_ledger(f"sqlite://{done.previous_ledger}", tmp_path / "old", actor="a", clock=Clock())
    assert everything(old) == before
    old.close()
    assert len(list((tmp_path / "one").glob("*restoring*"))) == 0


def test_what_was_set_aside_in_a_database_is_still_there(postgres_store: Store, file: Path) -> None:
    ledger = postgres_store()
    ledger.append([note(1)])
    write_backup(ledger, file)
    ledger.append([note(2)])
    done = restore(ledger, file, even_if_older=True)
    assert done.previous_ledger is not None
    schema = done.previous_ledger.split()[2]
    assert ledger._store._raw.execute(f'SELECT max(seq) FROM "{schema}".line').fetchone() == (3,)  # noqa: S608
    assert ledger.head()[0] == 2


def test_a_ledger_that_went_another_way_counts_what_it_would_lose(store: Store, file: Path) -> None:
    ledger = store()
    ledger.append([note(1), note(2)])
    write_backup(ledger, file)
    restore(other := store("other"), file)
    other.settle("looked")
    other.append([note(number) for number in range(10, 30)])
    write_backup(other, file.with_name("longer"))
    ledger.append([note(3)])
    with pytest.raises(InvalidRequest, match="has a line that the backup"):
        restore(ledger, file.with_name("longer"))
    assert restore(ledger, file.with_name("longer"), even_if_older=True).missing_line_count == 1
    assert "another line 4" in (ledger.integrity_problem() or "")


def test_an_open_ledger_goes_on_with_what_was_restored(store: Store, file: Path) -> None:
    one, two = store(), store()
    one.append([intended("cg-1")])
    write_backup(one, file)
    two.append([intended("cg-2", "brave-fox")])
    assert len(one.machines()) == 2
    restore(two, file, even_if_older=True)
    assert [row.id for row in one.machines()] == ["cg-1"]
    one.append([note(1)])
    assert two.head() == one.head()
    assert one.head()[0] == 3


def forged(file: Path) -> None:
    with sqlite3.connect(file) as raw:
        raw.execute("DROP TRIGGER line_is_never_changed")
        raw.execute("UPDATE line SET actor = 'else' WHERE seq = 2")
    raw.close()


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 8192 * 4096)


def newer(file: Path) -> None:
    with sqlite3.connect(file) as raw:
        raw.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    raw.close()


def foreign(file: Path) -> None:
    file.unlink()
    with sqlite3.connect(file) as raw:
        raw.execute("CREATE TABLE cookies (value)")
    raw.close()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (forged, "Line 2 was changed"),
        (cut, "not a complete backup"),
        (newer, "newer cloudgpu"),
        (foreign, "another program"),
        (lambda file: file.write_bytes(b""), "not a complete backup"),
        (lambda file: file.write_text("hello, this is no database at all" * 99), "not a complete backup"),
        (lambda file: file.unlink(), "There is no file"),
    ],
    ids=["forged", "cut", "newer", "foreign", "empty", "text", "gone"],
)
def test_a_file_that_is_no_whole_backup_is_refused_and_nothing_changes(
    store: Store, file: Path, damage: Callable[[Path], None], sentence: str
) -> None:
    ledger = store()
    ledger.append([note(number) for number in range(60)])
    write_backup(ledger, file)
    before = everything(ledger)
    damage(file)
    with pytest.raises(InvalidRequest, match=sentence) as caught:
        restore(ledger, file, even_if_older=True)
    assert (caught.value.exit_code, caught.value.field, caught.value.value) == (2, "FILE", str(file))
    assert caught.value.next
    assert everything(ledger) == before


def test_a_backup_of_an_older_schema_is_brought_up_to_date_and_left_as_it_is(store: Store, file: Path) -> None:
    ledger = store()
    ledger.append(LIFE)
    write_backup(ledger, file)
    with sqlite3.connect(file) as raw:
        raw.execute("DROP TABLE ended_usage")
        raw.execute("PRAGMA user_version = 3")
    raw.close()
    old = file.read_bytes()
    restore(ledger, file)
    assert (ledger.verify().faults, file.read_bytes() == old) == ((), True)


def test_an_existing_file_is_not_overwritten(store: Store, file: Path) -> None:
    ledger = store()
    ledger.append([note(1)])
    file.write_text("mine")
    with pytest.raises(InvalidRequest, match="exists already"):
        write_backup(ledger, file)
    assert file.read_text() == "mine"


def test_a_place_where_no_file_can_be_made_is_told(store: Store, tmp_path: Path) -> None:
    ledger = store()
    ledger.append([note(1)])
    with pytest.raises(InvalidRequest, match="cannot be made") as caught:
        write_backup(ledger, tmp_path / "nowhere" / "file")
    assert caught.value.exit_code == 2


def test_a_disk_that_is_too_full_for_the_copy_is_told_of_the_copy(store: Store, file: Path) -> None:
    ledger = store()
    ledger.append([intended(), note(1)])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        with pytest.raises(InvalidRequest) as caught:
            write_backup(ledger, file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.message.startswith(f"The backup {file} cannot be written")
    assert "Free some space" in (caught.value.next or "")
    assert list(file.parent.iterdir()) == []
    assert write_backup(ledger, file).line_count == ledger.head()[0]


def test_there_is_no_backup_of_nothing(store: Store, file: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="There is no ledger"):
        write_backup(store(), file)
    assert list(file.parent.iterdir()) == []


def test_a_ledger_that_is_not_whole_is_not_backed_up_as_if_it_were(
    sqlite_store: Store, file: Path, tmp_path: Path
) -> None:
    ledger = sqlite_store()
    ledger.append([note(1), note(2)])
    forged(tmp_path / "one" / "ledger.db")
    with pytest.raises(LedgerUnavailable, match=r"No backup was made: .*Line 2 was changed") as caught:
        write_backup(ledger, file)
    assert "cost --verify" in (caught.value.next or "")
    assert list(file.parent.iterdir()) == []


def test_a_damaged_file_is_moved_away_and_replaced(sqlite_store: Store, file: Path, tmp_path: Path) -> None:
    ledger = sqlite_store()
    ledger.append([*LIFE])
    before = everything(ledger)
    write_backup(ledger, file)
    ledger.close()
    (tmp_path / "one" / "ledger.db").write_bytes(b"not a database at all, " * 500)
    done = restore(sqlite_store(), file)
    assert done.previous_ledger is not None
    assert Path(done.previous_ledger).read_bytes().startswith(b"not a database")
    assert (everything(sqlite_store()), sqlite_store().integrity_problem()) == (before, None)


def test_a_lost_file_is_restored_under_its_head_record(sqlite_store: Store, file: Path, tmp_path: Path) -> None:
    ledger = sqlite_store()
    ledger.append([note(1)])
    write_backup(ledger, file)
    ledger.append([note(2)])
    ledger.close()
    (tmp_path / "one" / "ledger.db").unlink()
    shutil.rmtree(tmp_path / "one" / "nothing", ignore_errors=True)
    done = restore(sqlite_store(), file)
    assert (done.missing_line_count, done.previous_ledger) == (0, None)
    assert "knew line 3" in (sqlite_store().integrity_problem() or "")
