"""Plans a copy: every file and directory with its destination."""

from __future__ import annotations

import contextlib
import errno
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from unicodedata import normalize

from cloudgpu.access.copy.endpoints import Endpoint, Entry
from cloudgpu.core.values.printable import printable
from cloudgpu.errors import InvalidRequest

# Errors that concern one path only; a full disk, for example, concerns all.
PATH_ERRNOS = {
    getattr(errno, name)
    for name in "EACCES EPERM ENOENT EEXIST EISDIR ENOTDIR ELOOP EINVAL EILSEQ ENAMETOOLONG ENOTEMPTY".split()
}
BAD_NAME = "Bad message"  # OpenSSH's message for a name that is too long or not allowed


class PathFailed(InvalidRequest):
    """One path cannot be read or written; the others can be copied."""


@dataclass(frozen=True, slots=True)
class Item:
    """One file or directory to copy: its source, its destination, and its entry."""

    source: str
    target: str
    entry: Entry


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Everything to copy, each directory before its content.

    `skipped` are special files and broken links, `failed` the errors of directories that cannot be listed.
    """

    items: tuple[Item, ...]
    skipped: tuple[str, ...]
    failed: tuple[PathFailed, ...]


def plan_copy(source: Endpoint, paths: Sequence[str], target: Endpoint, destination: str) -> CopyPlan:
    """Return the plan to copy `paths` to `destination`. Nothing is changed on either side.

    Raises InvalidRequest for a missing source, a special file, an unsuitable destination, a circle of links, or two
    files with one destination.
    """
    with explain_path_errors(target, destination, "written"):
        existing = target.stat(destination or ".")
    if not (existing and existing.is_directory) and (len(paths) > 1 or destination.endswith("/")):
        problem = "is not a directory" if existing else "does not exist"
        remedy = "Name a directory." if existing else "Make that directory first."
        raise _path_error(target, destination, problem, remedy, field="DESTINATION")
    walk = _Walk(source, [], [])
    items: list[Item] = []
    for path in paths:
        with explain_path_errors(source, path, "read"):
            entry = source.stat(path)
        if entry is None:
            raise _path_error(source, path, "does not exist", "Correct the path.")
        if not entry.is_directory and not entry.is_file:
            raise _path_error(source, path, "is neither a file nor a directory", "Only those are copied.")
        items.extend(walk.items(Item(path, _target_path(target, destination, existing, path, entry), entry)))
    return CopyPlan(_distinct(source, target, items), tuple(walk.skipped), tuple(walk.failed))


@contextlib.contextmanager
def explain_path_errors(side: Endpoint, path: str, action: str) -> Iterator[None]:
    """Turn an OSError about a path into InvalidRequest, or PathFailed if it concerns this path only.

    `action` is `read` or `written`.
    """
    from paramiko.sftp import SFTPError

    try:
        yield
    except (OSError, SFTPError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if reason == "Failure":  # SFTP 3 gives no reason
            reason = "the machine gives no reason (perhaps its disk is full)"
        field = "SOURCE" if action == "read" else "DESTINATION"
        is_path_error = action == "read" or reason == BAD_NAME or getattr(error, "errno", None) in PATH_ERRNOS
        reason = "its name is not taken there (perhaps it is too long)" if reason == BAD_NAME else printable(reason)
        raise (PathFailed if is_path_error else InvalidRequest)(
            f"{side.label(path)} cannot be {action}: {reason[:1].lower()}{reason[1:].rstrip('.')}.",
            field=field,
            value=side.label(path),
            next="Correct the path or its permissions, or make room there, and copy again.",
        ) from error


def already_exists_error(target: Endpoint, path: str, *, by: str) -> PathFailed:
    """Return the error for a directory in place of a file, or the reverse; `by` is the existing kind."""
    label, other = target.label(path), "file" if by == "directory" else "directory"
    return PathFailed(
        f"{label} is a {by}, and a {other} is to go there.",
        field="DESTINATION",
        value=label,
        next=f"Remove that {by}, or copy to another place.",
    )


def case_clashes_in(items: Sequence[Item]) -> frozenset[str]:
    """Return the targets that a case-insensitive file system takes for the same name."""
    by_name: dict[str, list[str]] = {}
    for item in items:
        by_name.setdefault(normalize("NFC", item.target).casefold(), []).append(item.target)
    return frozenset(target for targets in by_name.values() if len(targets) > 1 for target in targets)


def check_case_clash(target: Endpoint, path: str) -> None:
    """Raise PathFailed if the file system takes this name for an existing, different one, which would be lost."""
    directory, name = posixpath.split(path)
    if target.stat(path) is None or name in (found for found, _ in target.children(directory or ".")):
        return
    label = target.label(path)
    raise PathFailed(
        f"{label} is one name there with another that differs only in case or accents.",
        field="DESTINATION",
        value=label,
        next="Copy it to another directory, or under another name.",
    )


def _distinct(source: Endpoint, target: Endpoint, items: Sequence[Item]) -> tuple[Item, ...]:
    """Return the items, one that was named twice once; directories of one name are merged.

    Raises InvalidRequest if one source would overwrite another.
    """
    by_target: dict[str, list[Item]] = {}
    distinct = []
    for item in items:
        same_target = by_target.setdefault(item.target, [])
        if any(other.source == item.source for other in same_target):
            continue
        if same_target and (same_target[0].entry.is_file or item.entry.is_file):
            raise _path_error(
                source,
                item.source,
                f"and {source.label(same_target[0].source)} would both become {target.label(item.target)}",
                "Copy them one after the other, to different directories or names.",
            )
        same_target.append(item)
        distinct.append(item)
    return tuple(distinct)


def _target_path(target: Endpoint, destination: str, existing: Entry | None, path: str, entry: Entry) -> str:
    """Return where a source goes; `existing` is what there is at the destination."""
    if existing is not None and existing.is_directory:
        name = posixpath.basename(path.rstrip("/"))
        # `.`, `..` and `/` have no name: their content is copied, as with cp.
        return destination if name in ("", ".", "..") else posixpath.join(destination, name)
    if existing is not None and not existing.is_file:  # a copy would replace it
        kinds = "a device, a pipe or a socket"
        raise _path_error(target, destination, f"is {kinds}", "Name a file or a directory.", field="DESTINATION")
    if existing is not None and entry.is_directory:
        raise _path_error(target, destination, "is a file", "Name a directory.", field="DESTINATION")
    return destination


@dataclass(frozen=True, slots=True)
class _Walk:
    """A walk through a source; adds to `skipped` and `failed`."""

    source: Endpoint
    skipped: list[str]
    failed: list[PathFailed]

    def items(self, first: Item) -> Iterator[Item]:
        """Yield an item and all below it. The circle check compares a directory's real path with its parents'."""
        with explain_path_errors(self.source, first.source, "read"):
            root_chain = (self.source.absolute_path(first.source),) if first.entry.is_directory else ()
        pending: list[tuple[Item, tuple[str, ...]]] = [(first, root_chain)]
        while pending:
            item, parents = pending.pop()
            if not item.entry.is_directory and not item.entry.is_file:
                self.skipped.append(self.source.label(item.source))
                continue
            yield item
            if item.entry.is_directory:
                pending.extend(self._children_with_parents(item, parents))

    def _children_with_parents(self, item: Item, parents: tuple[str, ...]) -> Iterator[tuple[Item, tuple[str, ...]]]:
        for name, entry in self._children(item):
            path = posixpath.join(item.source, name)
            if entry is None:
                self.skipped.append(self.source.label(path))
                continue
            inner = Item(path, posixpath.join(item.target, name), entry)
            yield inner, _real_path_chain(self.source, inner, name, parents) if entry.is_directory else ()

    def _children(self, item: Item) -> list[tuple[str, Entry | None]]:
        try:
            with explain_path_errors(self.source, item.source, "read"):
                return list(self.source.children(item.source))
        except PathFailed as error:
            self.failed.append(error)
            return []


def _real_path_chain(source: Endpoint, item: Item, name: str, parents: tuple[str, ...]) -> tuple[str, ...]:
    """Return the real paths of a directory's parents and its own; raise InvalidRequest for a circle."""
    if not item.entry.is_linked:
        return (*parents, posixpath.join(parents[-1], name))
    with explain_path_errors(source, item.source, "read"):
        real = source.absolute_path(item.source)
    if real in parents:
        raise _path_error(
            source, item.source, f"is a link that leads in a circle (to {printable(real)})", "Remove the link."
        )
    return (*parents, real)


def _path_error(side: Endpoint, path: str, problem: str, remedy: str, *, field: str = "SOURCE") -> InvalidRequest:
    return InvalidRequest(f"{side.label(path)} {problem}.", field=field, value=side.label(path), next=remedy)
