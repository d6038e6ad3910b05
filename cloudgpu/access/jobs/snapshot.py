"""Takes snapshots of a job's directory into a store, loads them, and removes those that no job needs."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence, Set as AbstractSet
from pathlib import Path

from cloudgpu.access import files
from cloudgpu.access.jobs.store import (
    SMALL_FILE_BYTES,
    FileStamp,
    StoreWriter,
    delete_old_stamps,
    is_hash,
    load_stamps,
    save_stamps,
    stamp_of,
    store_lock,
    stored_sizes,
)
from cloudgpu.access.jobs.survey import MAX_BYTES, FileEntry, Survey, survey
from cloudgpu.core.jobs.snapshot import Snapshot, SnapshotFile, make_snapshot, read_manifest, write_manifest
from cloudgpu.errors import InvalidRequest
from cloudgpu.parallel import Pool, stop_if_abandoned

Progress = Callable[[int, int], None]  # bytes done, bytes in all
MAX_PARALLEL = 4  # large files
BATCH_FILES = 512  # small files, before each of which it is checked whether the user has given up


def take_snapshot(
    root: Path,
    store: Path,
    *,
    include: Sequence[str] = (),
    exclude_dirs: Sequence[str | Path] = (),
    max_bytes: int = MAX_BYTES,
    progress: Progress | None = None,
    now: Callable[[], float] = time.time,
) -> Snapshot:
    """Copy the files that `survey` selects in `root` into `store`, by content, and return the snapshot.

    `include`, `exclude_dirs` and `max_bytes` are those of `survey`: globs of ignored files that are taken all the same,
    directories that are left out, and the limit of all files together.
    Files whose stamp has not changed since the last snapshot are not read again. `now` returns the epoch. A store
    inside `root` is left out.

    Raises InvalidRequest as `survey` does, for a file that cannot be read or keeps changing, and for a store that
    cannot be written.
    """
    began_ns = int(now() * 1e9)
    surveyed = survey(root, include=include, exclude_dirs=[*exclude_dirs, store.absolute()], max_bytes=max_bytes)
    with store_lock(store, fcntl.LOCK_SH), files.explain_os_errors(store):
        taker = _SnapshotTaker(surveyed, store, progress)
        stored_files = taker.run()
        snapshot = make_snapshot(
            (file for _, file in stored_files), surveyed.links, surveyed.directories, surveyed.omissions
        )
        stamps = {file.path: (stamp, file.sha256) for stamp, file in stored_files}
        save_stamps(store, surveyed.root, stamps, began_ns, taker.known_stamps)
        files.write_atomically(
            store / f"{snapshot.hash}.json", write_manifest(snapshot).encode("ascii")
        )  # after its files
    return snapshot


class _SnapshotTaker:
    def __init__(self, survey: Survey, store: Path, progress: Progress | None) -> None:
        self._survey, self._progress = survey, progress
        self._bytes_done, self._count_lock = 0, threading.Lock()
        self._writer = StoreWriter(survey.root, store, self._advance)
        self.known_stamps = load_stamps(store, survey.root)  # of the files when they were last read

    def run(self) -> list[tuple[FileStamp, SnapshotFile]]:
        """Store every file, and read those whose stamp changed: small ones one by one, large ones in parallel."""
        small = [entry for entry in self._survey.files if entry.size <= SMALL_FILE_BYTES]
        large = [entry for entry in self._survey.files if entry.size > SMALL_FILE_BYTES]
        with Pool(min(MAX_PARALLEL, os.cpu_count() or 1)) as pool:
            pending = [
                pool.submit(self._store_files, [entry]) for entry in sorted(large, key=lambda entry: -entry.size)
            ]
            stored_files = self._store_files(small)
            for future in pending:
                stored_files += future.result()
        return stored_files

    def _store_files(self, entries: Iterable[FileEntry]) -> list[tuple[FileStamp, SnapshotFile]]:
        stored_files = []
        for number, entry in enumerate(entries):
            if number % BATCH_FILES == 0:
                stop_if_abandoned()
            stamp_and_hash = self._unchanged(entry) or self._writer.add(entry)
            if stamp_and_hash is not None:
                stamp, sha256 = stamp_and_hash
                stored_files.append((stamp, SnapshotFile(entry.path, stamp.size, entry.mode, sha256)))
        return stored_files

    def _unchanged(self, entry: FileEntry) -> tuple[FileStamp, str] | None:
        stamp_and_hash = self.known_stamps.get(entry.path)
        if (
            stamp_and_hash is None
            or stamp_and_hash[0] != stamp_of(entry)
            or not self._writer.has(stamp_and_hash[1], entry.size)
        ):
            return None
        self._advance(entry.size)
        return stamp_and_hash

    def _advance(self, byte_count: int) -> None:
        if self._progress is not None:
            with self._count_lock:
                self._bytes_done += byte_count
                self._progress(self._bytes_done, self._survey.total_bytes)


def blob(store: Path, sha256: str) -> Path:
    """Return the path of the file with this hash in the store."""
    return store / sha256


def load(store: Path, snapshot: str, *, deep: bool = False) -> Snapshot:
    """Return a stored snapshot by its hash. Raises InvalidRequest if a file is missing or has another size.

    With `deep` the files are read, and compared with their hashes.
    """
    if not is_hash(snapshot):
        raise _snapshot_error(snapshot, "does not exist: its name is not a SHA-256 in hex")
    manifest = store / f"{snapshot}.json"
    if not manifest.is_file():
        raise _snapshot_error(snapshot, "is not on this computer")
    with files.explain_os_errors(manifest):
        text = manifest.read_bytes()
    loaded = read_manifest(text.decode("ascii", "replace"))
    if loaded.hash != snapshot:
        raise _snapshot_error(snapshot, "is damaged: its manifest has another hash")
    sizes = stored_sizes(store)
    damaged = [
        file for file in loaded.files if sizes.get(file.sha256) != file.size or (deep and not _is_intact(store, file))
    ]
    if damaged:
        raise _snapshot_error(
            snapshot, f"is damaged: {len(damaged)} of {len(loaded.files)} files are missing or incomplete"
        )
    return loaded


def _is_intact(store: Path, file: SnapshotFile) -> bool:
    with files.explain_os_errors(store), blob(store, file.sha256).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256


def _snapshot_error(snapshot: str, problem: str) -> InvalidRequest:
    return InvalidRequest(
        f"The snapshot {snapshot[:12]} {problem}.",
        field="snapshot",
        value=snapshot,
        next="Run the job again from its directory: cloudgpu run takes a new snapshot.",
    )


def remove(store: Path, needed_snapshots: AbstractSet[str], *, taken_before: float | None = None) -> int:
    """Remove snapshots not in `needed_snapshots` (hashes), and files that no other one has; return the bytes freed.

    Snapshots taken since `taken_before` (epoch seconds) stay: their job may not be in the ledger yet. While a snapshot
    is being taken, nothing is removed. Raises InvalidRequest, and removes nothing, if the manifest of a needed one is
    damaged.
    """
    if not store.is_dir():
        return 0
    with store_lock(store, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_locked:
        if not is_locked:
            return 0
        manifests = [file for file in store.glob("*.json") if is_hash(file.stem)]
        retained = [
            file
            for file in manifests
            if file.stem in needed_snapshots or (taken_before is not None and file.stat().st_mtime >= taken_before)
        ]
        needed_hashes = _needed_hashes(retained, needed_snapshots)
        with files.explain_os_errors(store):
            freed = sum(_unlink(file) for file in manifests if file not in retained)  # a manifest before its files
            freed += sum(_unlink(store / name) for name in stored_sizes(store) if name not in needed_hashes)
            freed += sum(_unlink(part) for part in store.glob(".*.part"))
            delete_old_stamps(store)
    return freed


def _needed_hashes(manifests: Iterable[Path], needed_snapshots: AbstractSet[str]) -> set[str]:
    hashes: set[str] = set()
    for file in manifests:
        try:
            hashes.update(stored.sha256 for stored in read_manifest(file.read_bytes().decode("ascii", "replace")).files)
        except InvalidRequest:
            if file.stem in needed_snapshots:
                raise
    return hashes


def _unlink(file: Path) -> int:
    size = file.stat().st_size
    file.unlink()
    return size
