"""What a copy will do, before it does it: every file and directory with where it goes."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cloudgpu.access.sides import Entry, Side
from cloudgpu.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Item:
    """One file or directory: where it is, where it goes, what it is."""

    source: str
    target: str
    entry: Entry


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything to copy, each directory before what is in it; `skipped` is neither file nor directory."""

    items: tuple[Item, ...]
    skipped: tuple[str, ...]


def lay_out(source: Side, paths: Sequence[str], target: Side, destination: str) -> Layout:
    """Return what copying `paths` to `destination` means. Nothing is changed on either side.

    Raises InvalidRequest for a source that is missing, a destination that cannot take it, links in a circle.
    """
    into = _destination(target, destination, several=len(paths) > 1)
    items: list[Item] = []
    skipped: list[str] = []
    for path in paths:
        with about(source, path, "read"):
            entry = source.look(path)
        if entry is None:
            raise _refused(source, path, "does not exist", "Correct the path.")
        first = Item(path, _final(target, destination, path, entry, into=into), entry)
        items.extend(_walk(source, first, skipped))
    return Layout(tuple(items), tuple(skipped))


@contextlib.contextmanager
def about(side: Side, path: str, done: str) -> Iterator[None]:
    """Turn an OSError about a path into InvalidRequest that names it; `done` is `read` or `written`."""
    from paramiko.sftp import SFTPError

    try:
        yield
    except (OSError, SFTPError) as fault:
        why = getattr(fault, "strerror", None) or str(fault) or type(fault).__name__
        if why == "Failure":  # all that SFTP 3 can say
            why = "the machine gives no reason (perhaps its disk is full)"
        field = "SOURCE" if done == "read" else "DESTINATION"
        raise InvalidRequest(
            f"{side.label(path)} cannot be {done}: {why[:1].lower()}{why[1:].rstrip('.')}.",
            field=field,
            value=side.label(path),
            next="Correct the path or its permissions, or make room there, and copy again.",
        ) from fault


def _destination(target: Side, destination: str, *, several: bool) -> bool:
    """Tell whether the destination is a directory that takes the sources under their own names."""
    with about(target, destination, "written"):
        found = target.look(destination or ".")
    if found is not None and found.directory:
        return True
    if found is not None and (several or destination.endswith("/")):
        raise _refused(target, destination, "is not a directory", "Name a directory.", field="DESTINATION")
    if found is None and (several or destination.endswith("/")):
        raise _refused(target, destination, "does not exist", "Make that directory first.", field="DESTINATION")
    return False


def _final(target: Side, destination: str, path: str, entry: Entry, *, into: bool) -> str:
    if not into:
        with about(target, destination, "written"):
            there = target.look(destination)
        if there is not None and entry.directory:
            raise _refused(target, destination, "is a file", "Name a directory.", field="DESTINATION")
        return destination
    name = posixpath.basename(path.rstrip("/"))
    # `.`, `..` and `/` have no name of their own: what is in them goes right there, as with cp.
    return destination if name in ("", ".", "..") else posixpath.join(destination, name)


def _walk(source: Side, first: Item, skipped: list[str]) -> Iterator[Item]:
    """Yield an item and all below it. The circle check compares a directory's real path with those above it."""
    with about(source, first.source, "read"):
        top = (source.real(first.source),) if first.entry.directory else ()
    waiting: list[tuple[Item, tuple[str, ...]]] = [(first, top)]
    while waiting:
        item, above = waiting.pop()
        if not item.entry.directory and not item.entry.file:
            skipped.append(source.label(item.source))
            continue
        yield item
        if item.entry.directory:
            waiting.extend(_below(source, item, above, skipped))


def _below(
    source: Side, item: Item, above: tuple[str, ...], skipped: list[str]
) -> Iterator[tuple[Item, tuple[str, ...]]]:
    with about(source, item.source, "read"):
        children = list(source.children(item.source))
    for name, entry in children:
        path = posixpath.join(item.source, name)
        if entry is None:
            skipped.append(source.label(path))
            continue
        inner = Item(path, posixpath.join(item.target, name), entry)
        yield inner, _chain(source, inner, name, above) if entry.directory else ()


def _chain(source: Side, item: Item, name: str, above: tuple[str, ...]) -> tuple[str, ...]:
    """Return the real paths of a directory and all above it."""
    if not item.entry.linked:
        return (*above, posixpath.join(above[-1], name))
    with about(source, item.source, "read"):
        real = source.real(item.source)
    if real in above:
        raise _refused(source, item.source, f"is a link that leads in a circle (to {real})", "Remove the link.")
    return (*above, real)


def _refused(side: Side, path: str, what: str, way_out: str, *, field: str = "SOURCE") -> InvalidRequest:
    return InvalidRequest(f"{side.label(path)} {what}.", field=field, value=side.label(path), next=way_out)
