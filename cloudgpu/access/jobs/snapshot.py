"""Takes a snapshot of a job's directory, keeps it until its job has ended, and gives it back."""

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
    SMALL_FILE,
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

Progress = Callable[[int, int], None]  # bytes that are done, and in all
MAX_PARALLEL = 4  # large files
BATCH = 512  # small files


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
    """Copy what a job needs of `root` into `store`, by content, and return the snapshot, which is named by its hash.

    What is taken is what `survey` says. An unchanged directory copies nothing, and its files are not read again where
    their times say that they are as they were. `max_bytes` is in bytes, `progress` gets bytes done and in all, `now`
    is in seconds since the epoch. The store itself stays out if it lies in the directory.

    Raises InvalidRequest as `survey` does, for a file that cannot be read or does not come to rest, and for a store
    that cannot be written.
    """
    began_ns = int(now() * 1e9)
    survey_found = survey(root, include=include, exclude_dirs=[*exclude_dirs, store.absolute()], max_bytes=max_bytes)
    with store_lock(store, fcntl.LOCK_SH), files.explain_os_errors(store):
        taking = _SnapshotTaker(survey_found, store, progress)
        stored_files = taking.run()
        snapshot = make_snapshot(
            (file for _, file in stored_files), survey_found.links, survey_found.directories, survey_found.omissions
        )
        read = {file.path: (seen, file.sha256) for seen, file in stored_files}
        save_stamps(store, survey_found.root, read, began_ns, taking.known)
        _write_manifest(store, snapshot)
    return snapshot


class _SnapshotTaker:
    def __init__(self, survey: Survey, store: Path, told: Progress | None) -> None:
        self._found, self._told = survey, told
        self._done, self._counting = 0, threading.Lock()
        self._keeper = StoreWriter(survey.root, store, self._advance)
        self.known = load_stamps(store, survey.root)  # what the files were when they were last read

    def run(self) -> list[tuple[FileStamp, SnapshotFile]]:
        """Read every file that is not known to be as it was: small ones one by one, large ones side by side."""
        small = [one for one in self._found.files if one.size <= SMALL_FILE]
        large = [one for one in self._found.files if one.size > SMALL_FILE]
        with Pool(min(MAX_PARALLEL, os.cpu_count() or 1)) as pool:
            parts = [pool.submit(self._store_files, [one]) for one in sorted(large, key=lambda one: -one.size)]
            taken = self._store_files(small)
            for part in parts:
                taken += part.result()
        return taken

    def _store_files(self, some: Iterable[FileEntry]) -> list[tuple[FileStamp, SnapshotFile]]:
        stamps = []
        for number, found in enumerate(some):
            if number % BATCH == 0:
                stop_if_abandoned()
            kept = self._unchanged(found) or self._keeper.add(found)
            if kept is not None:
                seen, sha256 = kept
                stamps.append((seen, SnapshotFile(found.path, seen[0], found.mode, sha256)))
        return stamps

    def _unchanged(self, entry: FileEntry) -> tuple[FileStamp, str] | None:
        known = self.known.get(entry.path)
        if known is None or known[0] != stamp_of(entry) or not self._keeper.has(known[1], entry.size):
            return None
        self._advance(entry.size)
        return known

    def _advance(self, count: int) -> None:
        if self._told is not None:
            with self._counting:
                self._done += count
                self._told(self._done, self._found.total_bytes)


def _write_manifest(store: Path, snapshot: Snapshot) -> None:
    """Write the list of a snapshot's files last: where it is, the files are. An old one counts as taken now."""
    files.write_whole(store / f"{snapshot.hash}.json", write_manifest(snapshot).encode("ascii"))


def blob(store: Path, sha256: str) -> Path:
    """Return where the store keeps the file with this content."""
    return store / sha256


def load(store: Path, snapshot: str, *, deep: bool = False) -> Snapshot:
    """Return a snapshot that was taken, by its hash, if the store has every file of it with its size.

    With `deep` the contents are read and compared with their hashes, too.

    Raises InvalidRequest where a part is missing or damaged.
    """
    if not is_hash(snapshot):
        raise _lost_error(snapshot, "does not exist: its name is not a SHA-256 in hex")
    manifest = store / f"{snapshot}.json"
    if not manifest.is_file():
        raise _lost_error(snapshot, "is not on this computer")
    with files.explain_os_errors(manifest):
        text = manifest.read_bytes()
    found = read_manifest(text.decode("ascii", "replace"))
    if found.hash != snapshot:
        raise _lost_error(snapshot, "is damaged: its list is that of another one")
    sizes = stored_sizes(store)
    bad = [one for one in found.files if sizes.get(one.sha256) != one.size or (deep and not _is_intact(store, one))]
    if bad:
        raise _lost_error(snapshot, f"is damaged: {len(bad)} of {len(found.files)} files are missing or incomplete")
    return found


def _is_intact(store: Path, file: SnapshotFile) -> bool:
    with files.explain_os_errors(store), blob(store, file.sha256).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256


def _lost_error(snapshot: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"The snapshot {snapshot[:12]} {why}.",
        field="snapshot",
        value=snapshot,
        next="Run the job again from its directory: cloudgpu run takes a new snapshot.",
    )


def remove(store: Path, keep: AbstractSet[str], *, taken_before: float | None = None) -> int:
    """Remove the snapshots that are not in `keep`, and every file that none of the others has; return bytes freed.

    One that was taken since `taken_before` (seconds since the epoch) stays, too: its job may not be in the ledger yet.
    While a snapshot is being taken nothing is removed.

    Raises InvalidRequest, and removes nothing, where the list of one to keep is damaged.
    """
    if not store.is_dir():
        return 0
    with store_lock(store, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_locked:
        if not is_locked:
            return 0
        listed = [file for file in store.glob("*.json") if is_hash(file.stem)]
        stay = [file for file in listed if file.stem in keep or _is_new_file(file, taken_before)]
        needed = _needed_stamps(stay, keep)
        with files.explain_os_errors(store):
            freed = sum(_unlink(file) for file in listed if file not in stay)  # a list goes before its files
            freed += sum(_unlink(store / name) for name in stored_sizes(store) if name not in needed)
            freed += sum(_unlink(part) for part in store.glob(".*.part"))
            delete_old_stamps(store)
    return freed


def _is_new_file(file: Path, taken_before: float | None) -> bool:
    return taken_before is not None and file.stat().st_mtime >= taken_before


def _needed_stamps(stay: Iterable[Path], keep: AbstractSet[str]) -> set[str]:
    needed: set[str] = set()
    for file in stay:
        try:
            needed.update(one.sha256 for one in read_manifest(file.read_bytes().decode("ascii", "replace")).files)
        except InvalidRequest:
            if file.stem in keep:
                raise
    return needed


def _unlink(file: Path) -> int:
    size = file.stat().st_size
    file.unlink()
    return size
