"""The common suite on SQLite, and what only a file has: modes, readers that make nothing, an exchanged file."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from cloudgpu.errors import InvalidRequest, LedgerUnavailable
from cloudgpu.ledger.open import SqliteLedger, open_ledger
from cloudgpu.ledger.sqlite import migrations
from cloudgpu.ledger.sqlite.backup import restore, write_backup
from tests.ledger.lines import OTHER_FORMATS, Clock, intended, note
from tests.ledger.suite import LedgerSuite, Store


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    return sqlite_store


class TestSqlite(LedgerSuite):
    """Every promise of the suite holds on SQLite."""


def modes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}


def test_reading_a_ledger_that_is_not_there_makes_no_file(store: Store, tmp_path: Path) -> None:
    ledger = store()
    assert (ledger.id, ledger.machines(), list(ledger.events()), ledger.integrity_problem()) == ("", [], [], None)
    assert ledger.verify().line_count == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_all_files_are_the_owners_alone(store: Store, tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        ledger = store("deep/ledger")
        ledger.append([note(1)])
        store("deep/ledger").machines()
        found = modes(tmp_path / "deep" / "ledger")
    finally:
        os.umask(before)
    assert {"ledger.db", "ledger.head", "ledger.db-wal", "ledger.db-shm"} <= found.keys()
    assert set(found.values()) == {0o600}
    assert (tmp_path / "deep").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "deep" / "ledger").stat().st_mode & 0o777 == 0o700


def test_a_closed_ledger_leaves_two_files(store: Store, tmp_path: Path) -> None:
    ledger = store()
    ledger.append([note(1)])
    ledger.close()
    assert modes(tmp_path / "one").keys() == {"ledger.db", "ledger.head"}


def test_a_ledger_that_nobody_has_any_more_leaves_two_files_and_none_open(tmp_path: Path) -> None:
    def write(number: int) -> None:
        open_ledger(None, tmp_path / "one", actor="tester", clock=Clock()).append([note(number)])

    write(1)
    before = len(list(Path("/dev/fd").iterdir()))
    for number in range(2, 9):
        write(number)
    assert len(list(Path("/dev/fd").iterdir())) == before
    assert modes(tmp_path / "one").keys() == {"ledger.db", "ledger.head"}


@pytest.mark.soak
def test_a_process_that_ends_without_closing_its_ledger_leaves_two_files(tmp_path: Path) -> None:
    code = "import sys; from tests.ledger.test_sqlite import left_open; left_open(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "one")], check=True, cwd=Path(__file__).parents[2])
    assert modes(tmp_path / "one").keys() == {"ledger.db", "ledger.head"}


def test_a_fork_that_closes_a_ledger_leaves_its_parent_the_log(store: Store, tmp_path: Path) -> None:
    ledger = store()
    ledger.append([note(1)])
    (tmp_path / "one" / "ledger.db").read_bytes()  # with this, the process has lost its locks on the file
    child = os.fork()
    if child == 0:
        ledger.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert "ledger.db-wal" in modes(tmp_path / "one")
    ledger.append([note(2)])
    assert len(list(store().events())) == len(list(ledger.events()))


def left_open(directory: str) -> None:
    """Write a line, and keep the ledger in a thread, which Python's own end does not clear."""
    ledger = open_ledger(None, Path(directory), actor="tester", clock=Clock())
    ledger.append([note(1)])
    threading.Thread(target=lambda kept: threading.Event().wait(), args=(ledger,), daemon=True).start()


def test_every_line_is_synced_through_a_write_ahead_log(store: Store, tmp_path: Path) -> None:
    store().append([note(1)])
    with sqlite3.connect(tmp_path / "one" / "ledger.db") as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    raw.close()


def test_a_file_that_was_exchanged_is_noticed_by_an_open_ledger(store: Store, tmp_path: Path) -> None:
    ledger, other = store("one"), store("two")
    ledger.append([intended("cg-1")])
    other.append([intended("cg-2")])
    other.close()
    raw = sqlite3.connect(tmp_path / "one" / "ledger.db")
    raw.execute("PRAGMA wal_checkpoint(truncate)")
    raw.close()
    (tmp_path / "two" / "ledger.db").replace(tmp_path / "one" / "ledger.db")
    assert [row.id for row in ledger.machines()] == ["cg-2"]
    assert "not the ledger" in (ledger.integrity_problem() or "")


def test_a_ledger_of_a_newer_schema_is_left_alone(store: Store, tmp_path: Path) -> None:
    store().append([note(1)])
    with sqlite3.connect(tmp_path / "one" / "ledger.db") as raw:
        raw.execute(f"PRAGMA user_version = {len(migrations.MIGRATIONS) + 1}")
    raw.close()
    for attempt in (lambda: store().append([note(2)]), lambda: store().machines()):
        with pytest.raises(LedgerUnavailable, match="newer cloudgpu") as caught:
            attempt()
        assert "Upgrade" in (caught.value.next or "")


def begin_with(file: Path, body: str) -> None:
    """Let a ledger's first line be another."""
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.execute("DROP TRIGGER line_is_never_changed")
        raw.execute("UPDATE line SET body = ? WHERE seq = 1", (body,))


@pytest.mark.parametrize(("body", "sentence", "way"), OTHER_FORMATS, ids=["without", "before", "newer"])
def test_a_ledger_of_another_format_is_refused_in_one_sentence_and_left_alone(
    store: Store, tmp_path: Path, body: str, sentence: str, way: str
) -> None:
    file = tmp_path / "one" / "ledger.db"
    store().append([note(1)])
    store().close()
    write_backup(store(), tmp_path / "copy.db")
    begin_with(file, body)
    before = file.read_bytes()
    for attempt in (
        lambda: store().append([note(2)]),
        lambda: store().machines(),
        lambda: store().verify(),
        lambda: store().settle("It is whole."),
        lambda: store().rebuild(),
        lambda: write_backup(store(), tmp_path / "another.db"),
        lambda: restore(store(), tmp_path / "copy.db", even_if_older=True),
    ):
        with pytest.raises(LedgerUnavailable, match=sentence) as caught:
            attempt()
        assert (caught.value.exit_code, caught.value.value) == (8, str(file))
        assert str(file) in caught.value.message
        assert (caught.value.next or "").startswith(way)
    assert file.read_bytes() == before


@pytest.mark.parametrize(("body", "sentence", "way"), OTHER_FORMATS, ids=["without", "before", "newer"])
def test_a_backup_of_another_format_is_not_restored(
    store: Store, tmp_path: Path, body: str, sentence: str, way: str
) -> None:
    ledger, copy = store(), tmp_path / "copy.db"
    ledger.append([note(1)])
    write_backup(ledger, copy)
    begin_with(copy, body)
    before = list(ledger.events())
    with pytest.raises(InvalidRequest, match=sentence) as caught:
        restore(ledger, copy, even_if_older=True)
    assert (caught.value.exit_code, caught.value.value) == (2, str(copy))
    assert (caught.value.next or "").startswith(way)
    assert list(ledger.events()) == before


def test_an_older_schema_is_brought_up_to_date_by_whoever_comes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store().append([intended()])
    step = ("ALTER TABLE machine ADD COLUMN colour TEXT",)
    monkeypatch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, step])
    assert [row.id for row in store().machines()] == ["cg-1"]
    with sqlite3.connect(tmp_path / "one" / "ledger.db") as raw:
        assert raw.execute("SELECT colour FROM machine").fetchall() == [(None,)]
    raw.close()
    store("fresh").append([intended()])
    with sqlite3.connect(tmp_path / "fresh" / "ledger.db") as raw:
        assert raw.execute("SELECT colour FROM machine").fetchall() == [(None,)]
    raw.close()
    assert store().verify().faults == ()


def test_an_upgrade_that_fails_leaves_no_transaction_open_and_is_tried_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store().append([intended()])
    before = migrations.MIGRATIONS
    steps = [("ALTER TABLE machine ADD COLUMN colour TEXT", "ALTER TABLE nowhere ADD COLUMN colour TEXT")]
    monkeypatch.setattr(migrations, "MIGRATIONS", [*before, *steps])
    ledger = store()
    for _ in range(2):
        with pytest.raises(LedgerUnavailable, match="nowhere"):
            ledger.machines()
        with closing(sqlite3.connect(tmp_path / "one" / "ledger.db", timeout=0)) as raw:
            raw.execute("BEGIN IMMEDIATE")  # nobody holds the lock of a writer
            assert migrations.version_of(raw) == len(before)
    monkeypatch.setattr(migrations, "MIGRATIONS", [*before, steps[0][:1]])
    assert [row.id for row in ledger.machines()] == ["cg-1"]
    with closing(sqlite3.connect(tmp_path / "one" / "ledger.db")) as raw:
        assert raw.execute("SELECT colour FROM machine").fetchall() == [(None,)]


def test_an_upgrade_that_waits_for_another_writer_in_vain_is_tried_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store().append([intended()])
    step = ("ALTER TABLE machine ADD COLUMN colour TEXT",)
    monkeypatch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, step])
    files = (tmp_path / "one" / "ledger.db", tmp_path / "one" / "ledger.head")
    ledger = SqliteLedger(*files, actor="somebody", clock=Clock(), lock_timeout_s=0.0)
    with closing(sqlite3.connect(tmp_path / "one" / "ledger.db", isolation_level=None)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailable):
            ledger.machines()
    with closing(ledger):
        assert [row.id for row in ledger.machines()] == ["cg-1"]
        with closing(sqlite3.connect(tmp_path / "one" / "ledger.db")) as raw:
            assert raw.execute("SELECT colour FROM machine").fetchall() == [(None,)]


def test_a_ledger_that_could_not_be_made_is_none_and_made_by_the_next_line(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db", tmp_path / "head", actor="somebody", clock=Clock(), lock_timeout_s=0)
    (tmp_path / "ledger.db").touch()
    with closing(ledger):
        with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as raw:
            raw.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerUnavailable):
                ledger.append([note(1)])
        assert list(ledger.events()) == []
        ledger.append([note(1)])
        assert len(list(ledger.events())) == 2  # with the ledger's own first line


def test_another_programs_database_is_not_taken_for_a_ledger(store: Store, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with sqlite3.connect(tmp_path / "one" / "ledger.db") as raw:
        raw.execute("CREATE TABLE cookies (value)")
    raw.close()
    for attempt in (lambda: store().append([note(1)]), lambda: store().machines()):
        with pytest.raises(InvalidRequest, match="another program") as caught:
            attempt()
        assert caught.value.field == "CLOUDGPU_LEDGER"


@pytest.mark.parametrize("moment", [0, 1, 2])
def test_a_ledger_that_another_process_makes_meanwhile_is_ours(store: Store, tmp_path: Path, moment: int) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "ledger.db").touch()

    class Watched(sqlite3.Connection):
        left = moment

        def execute(self, *words: object) -> sqlite3.Cursor:
            if self.left == 0:
                store().append([note(1)])
            self.left -= 1
            return super().execute(*words)

    with closing(sqlite3.connect(tmp_path / "one" / "ledger.db", factory=Watched)) as reader:
        assert not migrations.is_foreign(reader)


def test_an_empty_file_becomes_a_ledger(store: Store, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "ledger.db").touch()
    ledger = store()
    assert ledger.machines() == []
    ledger.append([note(1)])
    assert ledger.verify().line_count == 2


def test_a_path_with_signs_that_mean_something_in_a_url_works(store: Store) -> None:
    ledger = store("50% off? #1 & more")
    ledger.append([note(1)])
    assert store("50% off? #1 & more").head()[0] == 2
