"""Copies of a job's checkpoints on this computer: only whole ones have a number, and only the newest ones stay.

`DIR/NUMBER/` is one copy: `data/NAME` as it was on the machine, and `checkpoint.json`, which says what it holds. It
gets its number when it is whole and the machine still says the same of it as before the copy: a torn one never does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from cloudgpu.access.jobs.copies import (
    Copied,
    CopiedFile,
    Manifest,
    explain_disk_errors,
    is_same_file,
    make_links,
    part_path,
    remove_part_files,
    target_path,
)

MAX_KEPT = 2  # the newest may turn out to be of no use to the command


class Source(Protocol):
    """The machine that a checkpoint is copied from."""

    def manifest(self, which: str, names: Sequence[str]) -> Manifest:
        """Say what these checkpoints hold now."""

    def copy(self, which: str, files: Sequence[CopiedFile], into: Path) -> Copied:
        """Bring files of checkpoints."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A whole copy: the higher its number, the newer. `path` is the directory whose entry `name` is the checkpoint."""

    number: int
    name: str
    bytes: int
    path: Path


def stored(into: Path) -> tuple[StoredCheckpoint, ...]:
    """Return the copies that are here, the newest last."""
    found = []
    for path in into.iterdir() if into.is_dir() else ():
        if path.name.isdecimal() and (manifest := _stored_manifest(path)) is not None:
            size = sum(int(one["size"]) for one in manifest["files"])
            found.append(StoredCheckpoint(int(path.name), str(manifest["name"]), size, path / "data"))
    return tuple(sorted(found, key=lambda one: one.number))


def copy_checkpoint(source: Source, name: str, into: Path) -> bool:
    """Copy one checkpoint, unless it is here already; return whether it is whole here. Raises InvalidRequest."""
    before = source.manifest("checkpoint", [name])
    if not before.files or before.changed:
        return False
    here = stored(into)
    if same := [one for one in here if one.name == name and _is_same_checkpoint(one, before)]:
        with explain_disk_errors(into):
            _follow_links(same[-1], before)
        return True
    fresh = part_path(into, "new")
    try:
        with explain_disk_errors(into):
            shutil.rmtree(fresh, ignore_errors=True)
            (fresh / "data").mkdir(parents=True, mode=0o700)
            _reuse(here, before, fresh / "data")
        torn = source.copy("checkpoint", before.files, fresh / "data").changed
        make_links(fresh / "data", before)
        if torn or source.manifest("checkpoint", [name]) != before:
            return False
        with explain_disk_errors(into):
            _finish(fresh, into, name, before)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return True


def prune(into: Path, keep: int = MAX_KEPT) -> None:
    """Remove all copies but the newest ones, and what killed processes left unfinished; nothing that is not ours."""
    remove_part_files(into)
    for one in stored(into)[: -keep or None]:
        shutil.rmtree(one.path.parent, ignore_errors=True)


def _stored_manifest(path: Path) -> dict[str, Any] | None:
    try:
        manifest: dict[str, Any] = json.loads((path / "checkpoint.json").read_text(encoding="utf-8"))
        return manifest if isinstance(manifest["files"], list) and manifest["name"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_same_checkpoint(checkpoint: StoredCheckpoint, manifest: Manifest) -> bool:
    known = _stored_manifest(checkpoint.path.parent)
    return known is not None and known["files"] == [asdict(file) for file in manifest.files]


def _follow_links(checkpoint: StoredCheckpoint, manifest: Manifest) -> None:
    """Have a copy's links lead where they lead on the machine now; its files are the same."""
    known = [tuple(one) for one in (_stored_manifest(checkpoint.path.parent) or {}).get("links", ())]
    if known == list(manifest.links):
        return
    for path, _ in known:
        where = target_path(checkpoint.path, str(path))
        if where.is_symlink():
            where.unlink()
    make_links(checkpoint.path, manifest)
    _write_manifest(checkpoint.path.parent, checkpoint.name, manifest)


def _write_manifest(there: Path, name: str, manifest: Manifest) -> None:
    text = json.dumps({"name": name, "files": [asdict(one) for one in manifest.files], "links": manifest.links})
    part = there / ".checkpoint.json"
    part.write_text(text, encoding="utf-8")
    part.replace(there / "checkpoint.json")


def _reuse(here: Sequence[StoredCheckpoint], manifest: Manifest, data: Path) -> None:
    """Copy from the earlier copies what has not changed since: it need not travel."""
    known: dict[str, Path] = {}
    for one in here:
        for known_file in (_stored_manifest(one.path.parent) or {"files": []})["files"]:
            known[known_file["sha256"]] = one.path / known_file["path"]
    for file in manifest.files:
        source = known.get(file.sha256)
        if source is not None and is_same_file(source, file):
            where = target_path(data, file.path)
            with contextlib.suppress(OSError):  # no links on this file system: then it travels
                os.link(source, where)


def _finish(fresh: Path, into: Path, name: str, manifest: Manifest) -> None:
    """Have it on the disk, then give it the next number."""
    _write_manifest(fresh, name, manifest)
    os.sync()
    while True:
        number = max((one.number for one in stored(into)), default=0) + 1
        try:
            fresh.rename(into / str(number))
        except FileExistsError:  # another watcher was faster
            continue
        except OSError as error:
            if not (into / str(number)).exists():
                raise error from None
            continue
        return
