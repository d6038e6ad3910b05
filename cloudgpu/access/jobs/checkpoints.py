"""Copies of a job's checkpoints on this computer: only complete ones get a number, and only the newest are retained.

`DIR/NUMBER/` is one copy: `data/NAME` as on the machine, and its manifest `checkpoint.json`. It gets its number when it
is complete and the manifest on the machine is still that of the copy.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
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

MAX_RETAINED = 2  # in case the command cannot use the newest


class RemoteCheckpoints(Protocol):
    """The checkpoints on a machine (`remote.RemoteJob`). `kind` is `checkpoint`."""

    def manifest(self, kind: str, names: Sequence[str]) -> Manifest:
        """Return the current manifest of these checkpoints."""

    def copy(self, kind: str, files: Sequence[CopiedFile], directory: Path) -> Copied:
        """Copy files of checkpoints to `directory`."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A complete copy: the higher its number, the newer. The checkpoint is the entry `name` in the directory `path`.

    `manifest` is its own, as it is stored: `files`, and `links` as [path, target].
    """

    number: int
    name: str
    bytes: int
    path: Path
    manifest: dict[str, Any] = field(repr=False, compare=False)


def stored_checkpoints(directory: Path) -> tuple[StoredCheckpoint, ...]:
    """Return the complete copies, the newest last. Raises InvalidRequest for a directory that cannot be read."""
    checkpoints = []
    with explain_disk_errors(directory):
        paths = list(directory.iterdir()) if directory.is_dir() else []
    for path in paths:
        if path.name.isdecimal() and (manifest := _stored_manifest(path)) is not None:
            size = sum(int(file["size"]) for file in manifest["files"])
            checkpoints.append(StoredCheckpoint(int(path.name), str(manifest["name"]), size, path / "data", manifest))
    return tuple(sorted(checkpoints, key=lambda checkpoint: checkpoint.number))


def copy_checkpoint(remote: RemoteCheckpoints, name: str, directory: Path) -> bool:
    """Copy one checkpoint, unless a copy exists; return whether there is a complete copy. Raises InvalidRequest."""
    manifest = remote.manifest("checkpoint", [name])
    if not manifest.files or not manifest.is_readable:
        return False
    copies = stored_checkpoints(directory)
    files = [asdict(file) for file in manifest.files]
    if matching_copies := [copy for copy in copies if copy.name == name and copy.manifest["files"] == files]:
        with explain_disk_errors(directory):
            _update_links(matching_copies[-1], manifest)
        return True
    part_dir = part_path(directory, "new")
    try:
        with explain_disk_errors(directory):
            shutil.rmtree(part_dir, ignore_errors=True)
            (part_dir / "data").mkdir(parents=True, mode=0o700)
            _reuse(copies, manifest, part_dir / "data")
        changed_files = remote.copy("checkpoint", manifest.files, part_dir / "data").changed
        make_links(part_dir / "data", manifest)
        if changed_files or remote.manifest("checkpoint", [name]) != manifest:
            return False
        with explain_disk_errors(directory):
            _finish(part_dir, directory, name, manifest)
    finally:
        shutil.rmtree(part_dir, ignore_errors=True)
    return True


def prune(directory: Path, retain: int = MAX_RETAINED) -> None:
    """Remove all copies but the newest ones, and part files of killed processes."""
    with explain_disk_errors(directory):
        remove_part_files(directory)
    for copy in stored_checkpoints(directory)[: -retain or None]:
        shutil.rmtree(copy.path.parent, ignore_errors=True)


def _stored_manifest(path: Path) -> dict[str, Any] | None:
    try:
        manifest: dict[str, Any] = json.loads((path / "checkpoint.json").read_text(encoding="utf-8"))
        return manifest if isinstance(manifest["files"], list) and manifest["name"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _update_links(checkpoint: StoredCheckpoint, manifest: Manifest) -> None:
    """Replace the links of a copy by those on the machine now; its files are the same."""
    stored_links = [tuple(link) for link in checkpoint.manifest.get("links", ())]
    if stored_links == list(manifest.links):
        return
    for path, _ in stored_links:
        link = target_path(checkpoint.path, str(path))
        if link.is_symlink():
            link.unlink()
    make_links(checkpoint.path, manifest)
    _write_manifest(checkpoint.path.parent, checkpoint.name, manifest)


def _write_manifest(directory: Path, name: str, manifest: Manifest) -> None:
    text = json.dumps({"name": name, "files": [asdict(file) for file in manifest.files], "links": manifest.links})
    part = directory / ".checkpoint.json"
    part.write_text(text, encoding="utf-8")
    part.replace(directory / "checkpoint.json")


def _reuse(copies: Sequence[StoredCheckpoint], manifest: Manifest, data: Path) -> None:
    """Link unchanged files from earlier copies, so that they are not transferred again."""
    stored_files: dict[str, Path] = {}
    for copy in copies:
        for stored_file in copy.manifest["files"]:
            stored_files[stored_file["sha256"]] = copy.path / stored_file["path"]
    for file in manifest.files:
        source = stored_files.get(file.sha256)
        if source is not None and is_same_file(source, file):
            target = target_path(data, file.path)
            with contextlib.suppress(OSError):  # no links on this file system: then it is transferred
                os.link(source, target)


def _finish(part_dir: Path, directory: Path, name: str, manifest: Manifest) -> None:
    """Sync the copy to disk, then give it the next number, above those of damaged copies too."""
    _write_manifest(part_dir, name, manifest)
    os.sync()
    while True:
        number = max((int(path.name) for path in directory.iterdir() if path.name.isdecimal()), default=0) + 1
        try:
            part_dir.rename(directory / str(number))
        except FileExistsError:  # another process was faster
            continue
        except OSError as error:
            if not (directory / str(number)).exists():
                raise error from None
            continue
        return
