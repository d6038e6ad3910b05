"""Snapshots on real files: taken whole, once, privately, whatever happens meanwhile; given back; pruned."""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.access.jobs import store as module
from cloudgpu.access.jobs.snapshot import blob, load, remove, take_snapshot
from cloudgpu.access.jobs.store import store_lock
from cloudgpu.errors import InvalidRequest
from tests.access.jobs.test_survey import fill

LARGE = os.urandom(1 << 20) * 5 + b"the end"  # several pieces, the last one short


def blobs(store: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in store.iterdir() if len(file.name) == 64}


def age(root: Path, seconds: int = 60) -> float:
    """Return a time at which these files have been left alone for so long: their change times cannot be set."""
    return max(path.lstat().st_ctime for path in root.rglob("*")) + seconds


def reads(monkeypatch) -> list[str]:
    """Return a list that gets the path of each file that is read from now on."""
    seen: list[str] = []
    keep = module.StoreWriter.add

    def read_journal(self, found):
        seen.append(found.path)
        return keep(self, found)

    monkeypatch.setattr(module.StoreWriter, "add", read_journal)
    return seen


@pytest.fixture
def root(tmp_path):
    files = {"train.py": "print(1)", "a/same.py": "print(1)", "large.bin": LARGE, "empty": ""}
    made = fill(tmp_path / "root", files)
    (made / "train.py").chmod(0o750)
    return made


def test_every_file_is_in_the_store_by_its_content_and_private(root, tmp_path):
    store = tmp_path / "home" / "jobs" / "snapshots"
    made = take_snapshot(root, store)
    assert [(one.path, one.mode, one.size) for one in made.files] == [
        ("a/same.py", 0o644, 8),
        ("empty", 0o644, 0),
        ("large.bin", 0o644, len(LARGE)),
        ("train.py", 0o755, 8),
    ]
    assert made.total_bytes == len(LARGE) + 16
    for one in made.files:
        content = blob(store, one.sha256).read_bytes()
        assert content == (root / one.path).read_bytes()
        assert hashlib.sha256(content).hexdigest() == one.sha256
    assert len(blobs(store)) == 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in store.iterdir()} == {0o600}
    assert {stat.S_IMODE(one.stat().st_mode) for one in (store, store.parent, store.parent.parent)} == {0o700}
    assert not list(store.glob(".*.part"))


def test_what_is_in_the_store_does_not_follow_the_users_file(root, tmp_path):
    made = take_snapshot(root, tmp_path / "store")
    for path in root.rglob("*"):
        if path.is_file():
            with path.open("r+b") as stream:
                stream.write(b"changed")
    assert load(tmp_path / "store", made.hash, deep=True) == made


@settings(max_examples=30)
@given(
    st.dictionaries(st.sampled_from("a b/c b/d e/f/g \udcff".split()), st.binary(max_size=3), min_size=1), st.randoms()
)
def test_the_same_content_has_the_same_hash_wherever_and_whenever_it_is_written(tmp_path_factory, files, random):
    names, taken = list(files), []
    for _ in range(2):
        random.shuffle(names)
        here = tmp_path_factory.mktemp("tree")
        root = fill(here / "root", {name: files[name] for name in names})
        os.utime(root / names[0], (random.randint(0, 10**9),) * 2)
        taken.append(take_snapshot(root, here / "store"))
    assert taken[0] == taken[1]
    assert load(here / "store", taken[0].hash) == taken[0]


def test_an_unchanged_directory_is_neither_read_nor_copied_again(root, tmp_path, monkeypatch):
    store = tmp_path / "store"
    first = take_snapshot(root, store, now=lambda: age(root))
    before = {name: (store / name).stat().st_ino for name in blobs(store)}
    seen = reads(monkeypatch)
    assert take_snapshot(root, store, now=lambda: age(root)) == first
    assert seen == []
    assert {name: (store / name).stat().st_ino for name in blobs(store)} == before


def test_a_file_that_changed_within_two_seconds_before_is_read_again(root, tmp_path, monkeypatch):
    """Its next change could have the same time, where a file system counts in steps of two seconds."""
    take_snapshot(root, tmp_path / "store", now=lambda: age(root, 1))
    seen = reads(monkeypatch)
    take_snapshot(root, tmp_path / "store", now=lambda: age(root, 1))
    assert len(seen) == 4


def test_a_change_that_puts_size_and_time_back_is_seen(root, tmp_path):
    store, file = tmp_path / "store", root / "train.py"
    first, before = take_snapshot(root, store, now=lambda: age(root)), file.stat()
    file.write_text("print(2)")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = take_snapshot(root, store, now=lambda: age(root))
    assert second.hash != first.hash
    assert b"print(2)" in blobs(store).values()


def test_only_what_changed_is_read(root, tmp_path, monkeypatch):
    take_snapshot(root, tmp_path / "store", now=lambda: age(root))
    (root / "train.py").write_text("print(3)")
    seen = reads(monkeypatch)
    take_snapshot(root, tmp_path / "store", now=lambda: age(root))
    assert seen == ["train.py"]


@pytest.mark.parametrize("memory", ["", "[]", '{"train.py": [1]}', '{"train.py": 3}', "\udcff"])
def test_a_damaged_memory_only_costs_time(root, tmp_path, memory):
    made = take_snapshot(root, tmp_path / "store", now=lambda: age(root))
    (file,) = (tmp_path / "store").glob(".seen-*.json")
    file.write_text(memory, errors="surrogateescape")
    assert take_snapshot(root, tmp_path / "store", now=lambda: age(root)) == made


def test_a_file_of_the_store_that_a_power_cut_has_shortened_is_written_again(root, tmp_path):
    store = tmp_path / "store"
    made = take_snapshot(root, store, now=lambda: age(root))
    for name in blobs(store):
        if name != hashlib.sha256(b"").hexdigest():
            os.truncate(store / name, 0)
    with pytest.raises(InvalidRequest, match="damaged: 3 of 4 files"):
        load(store, made.hash)
    take_snapshot(root, store, now=lambda: age(root))
    assert load(store, made.hash, deep=True) == made


def changing(monkeypatch, file: Path, times: int, content: bytes) -> None:
    """Have the file written by somebody else right after it was opened, so many times."""
    left, opened = [times], os.open

    def read_journal(path, *args, **more):
        descriptor = opened(path, *args, **more)
        if str(path) == str(file) and left[0]:
            left[0] -= 1
            with file.open("ab") as stream:
                stream.write(content)
        return descriptor

    monkeypatch.setattr(module.os, "open", read_journal)


@pytest.mark.parametrize("name", ["train.py", "large.bin"])
def test_a_file_that_changes_while_it_is_read_is_read_again(root, tmp_path, monkeypatch, name):
    changing(monkeypatch, root / name, 3, b"+")
    told = []
    made = take_snapshot(root, tmp_path / "store", progress=lambda done, total: told.append((done, total)))
    monkeypatch.undo()
    content = (root / name).read_bytes()
    assert content.endswith(b"+++")
    assert {one.path: one.sha256 for one in made.files}[name] == hashlib.sha256(content).hexdigest()
    assert load(tmp_path / "store", made.hash, deep=True).total_bytes == made.total_bytes
    assert told[-1][0] == made.total_bytes
    assert not list((tmp_path / "store").glob(".*.part"))


@pytest.mark.parametrize("name", ["train.py", "large.bin"])
def test_a_file_that_never_comes_to_rest_is_refused_by_its_name(root, tmp_path, monkeypatch, name):
    changing(monkeypatch, root / name, 1000, b"+")
    with pytest.raises(InvalidRequest, match=f"{name} changes while it is read"):
        take_snapshot(root, tmp_path / "store")
    assert not list((tmp_path / "store").glob(".*.part"))


def test_a_file_that_goes_meanwhile_is_not_in_the_snapshot(root, tmp_path, monkeypatch):
    keep = module.StoreWriter.add

    def gone(self, found):
        (root / "empty").unlink(missing_ok=True)
        return keep(self, found)

    monkeypatch.setattr(module.StoreWriter, "add", gone)
    made = take_snapshot(root, tmp_path / "store")
    assert "empty" not in {one.path for one in made.files}
    assert load(tmp_path / "store", made.hash) == made


def test_a_pipe_that_takes_the_place_of_a_file_does_not_hang(root, tmp_path, monkeypatch):
    keep = module.StoreWriter.add

    def swapped(self, found):
        if found.path == "empty":
            (root / "empty").unlink(missing_ok=True)
            os.mkfifo(root / "empty")
        return keep(self, found)

    monkeypatch.setattr(module.StoreWriter, "add", swapped)
    with pytest.raises(InvalidRequest, match="empty changes while it is read"):
        take_snapshot(root, tmp_path / "store")


def test_progress_counts_every_byte_once(root, tmp_path):
    told = []
    take_snapshot(root, tmp_path / "store", progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (len(LARGE) + 16, len(LARGE) + 16)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_a_large_file_is_copied_where_the_kernel_cannot(root, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(module.os, "copy_file_range", refuse, raising=False)
    made = take_snapshot(root, tmp_path / "store")
    assert load(tmp_path / "store", made.hash, deep=True) == made


def test_a_large_file_that_is_there_already_is_not_written_again(root, tmp_path):
    store = tmp_path / "store"
    take_snapshot(root, store)
    name = hashlib.sha256(LARGE).hexdigest()
    before = (store / name).stat()
    fill(root, {"copy.bin": LARGE})
    take_snapshot(root, store)
    assert (store / name).stat().st_ino == before.st_ino


def test_a_store_inside_the_directory_stays_out_of_it(root):
    store = root / ".state" / "snapshots"
    first = take_snapshot(root, store)
    assert take_snapshot(root, store).hash == first.hash
    assert not [one.path for one in first.files if one.path.startswith(".state")]


def test_a_full_disk_is_one_sentence_and_leaves_what_was_there(root, tmp_path, monkeypatch):
    store = tmp_path / "store"
    made = take_snapshot(root, store)
    fill(root, {"more.py": "more"})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "write", full)
    with pytest.raises(InvalidRequest, match="No space left on device"):
        take_snapshot(root, store)
    monkeypatch.undo()
    assert load(store, made.hash, deep=True) == made
    assert not list(store.glob(".*.part"))


@pytest.mark.parametrize("name", ["", "a", "../x", "G" * 64, "0" * 64])
def test_a_snapshot_that_is_not_there_is_refused(tmp_path, name):
    with pytest.raises(InvalidRequest, match="snapshot") as refused:
        load(tmp_path, name)
    assert (refused.value.field, refused.value.value) == ("snapshot", name)


def test_a_deep_look_finds_a_changed_byte(root, tmp_path):
    made = take_snapshot(root, tmp_path / "store")
    file = blob(tmp_path / "store", hashlib.sha256(b"print(1)").hexdigest())
    file.write_bytes(b"print(7)")
    assert load(tmp_path / "store", made.hash) == made
    with pytest.raises(InvalidRequest, match="damaged: 2 of 4 files"):
        load(tmp_path / "store", made.hash, deep=True)


def test_a_list_under_another_name_is_refused(root, tmp_path):
    made = take_snapshot(root, tmp_path / "store")
    (tmp_path / "store" / f"{made.hash}.json").rename(tmp_path / "store" / f"{'0' * 64}.json")
    with pytest.raises(InvalidRequest, match="its manifest has another hash"):
        load(tmp_path / "store", "0" * 64)


def test_pruning_leaves_what_a_living_job_needs_and_nothing_else(root, tmp_path):
    store = tmp_path / "store"
    first = take_snapshot(root, store)
    fill(root, {"train.py": "print(4)", "new.bin": b"n" * 1000})
    second = take_snapshot(root, store)
    (store / ".0123abcd-7.part").write_bytes(b"of a process that was killed")
    freed = remove(store, {second.hash})
    assert freed > 0
    assert load(store, second.hash, deep=True) == second
    with pytest.raises(InvalidRequest, match="not on this computer"):
        load(store, first.hash)
    assert set(blobs(store)) == {one.sha256 for one in second.files}
    assert not list(store.glob(".*.part"))
    remove(store, set())
    assert blobs(store) == {}
    assert not list(store.glob("[0-9a-f]*.json"))


def test_pruning_leaves_a_snapshot_whose_job_may_not_be_in_the_ledger_yet(root, tmp_path):
    store = tmp_path / "store"
    made = take_snapshot(root, store)
    os.utime(store / f"{made.hash}.json", (1000, 1000))
    assert remove(store, set(), taken_before=1000) == 0
    assert load(store, made.hash, deep=True) == made
    assert take_snapshot(root, store) == made  # taken again, it is young again
    assert remove(store, set(), taken_before=1001) == 0
    assert load(store, made.hash) == made


def test_pruning_removes_nothing_where_the_list_of_a_living_job_is_damaged(root, tmp_path):
    store = tmp_path / "store"
    made = take_snapshot(root, store)
    (store / f"{made.hash}.json").write_text("{")
    before = blobs(store)
    with pytest.raises(InvalidRequest, match="cannot be read"):
        remove(store, {made.hash})
    assert blobs(store) == before


def test_pruning_a_store_that_was_never_made_frees_nothing(tmp_path):
    assert remove(tmp_path / "none", set()) == 0


def test_nothing_is_pruned_while_a_snapshot_is_taken(root, tmp_path):
    store = tmp_path / "store"
    take_snapshot(root, store)
    with store_lock(store, fcntl.LOCK_SH):
        assert remove(store, set()) == 0
    assert len(blobs(store)) == 3


def test_two_may_take_the_same_directory_at_once(root, tmp_path):
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda: made.append(take_snapshot(root, tmp_path / "store").hash)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4
    assert len(set(made)) == 1
    assert load(tmp_path / "store", made[0], deep=True).hash == made[0]


TAKING = """
import os, signal, sys
from pathlib import Path
from cloudgpu.access.jobs import store
from cloudgpu.access.jobs.snapshot import take_snapshot

calls, last = [0], int(sys.argv[3])
def counted(name):
    real = getattr(os, name)
    def call(*args, **more):
        calls[0] += 1
        if calls[0] == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **more)
    setattr(os, name, call)
for name in ("open", "write", "rename", "replace", "fsync"):
    counted(name)
take_snapshot(Path(sys.argv[1]), Path(sys.argv[2]))
print(calls[0])
"""


def test_a_kill_at_any_call_leaves_a_store_that_the_next_one_completes(root, tmp_path):
    """Nothing under a hash is ever anything but that content, and a list is there only with all its files."""
    argv = [sys.executable, "-c", TAKING, str(root)]
    whole = subprocess.run([*argv, str(tmp_path / "first"), "0"], check=True, stdout=subprocess.PIPE, text=True)
    made = take_snapshot(root, tmp_path / "first")
    for call in range(1, int(whole.stdout) + 1, 3):
        store = tmp_path / f"store{call}"
        done = subprocess.run([*argv, str(store), str(call)], check=False)
        assert done.returncode == -signal.SIGKILL
        if store.exists():
            assert all(hashlib.sha256(content).hexdigest() == name for name, content in blobs(store).items())
            assert not (store / f"{made.hash}.json").exists() or load(store, made.hash, deep=True) == made
        assert take_snapshot(root, store) == made
        assert load(store, made.hash, deep=True) == made
        remove(store, {made.hash})
        assert not list(store.glob(".*.part"))
