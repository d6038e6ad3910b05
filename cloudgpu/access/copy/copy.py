"""Copies files and directories to a machine or from it, over SFTP."""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import monotonic
from typing import IO

from cloudgpu.access.copy.endpoints import Endpoint, LocalFiles, MachineFiles
from cloudgpu.access.copy.manifest import Item, PathFailed, already_exists, case_twins, check_twin, explain, lay_out
from cloudgpu.access.ssh.connection import Connection
from cloudgpu.access.ssh.execute import DEADLINE_S, PING_AFTER_S
from cloudgpu.access.ssh.keepalive import Keepalive
from cloudgpu.core.values.naming import NAME, NAME_RULE
from cloudgpu.errors import InvalidRequest
from cloudgpu.parallel import Pool

EXAMPLE = "For example: cloudgpu cp data.csv NAME:data/, or: cloudgpu cp NAME:results ."


@dataclass(frozen=True, slots=True)
class CopyPaths:
    """Paths to copy and where to. `upload`: the sources are here and the destination on `machine`, else turned round.

    Paths on the machine are relative to its home, `.` for the home itself.
    """

    machine: str
    upload: bool
    sources: tuple[str, ...]
    destination: str


def parse_copy_paths(sources: Sequence[str], destination: str) -> CopyPaths:
    """Return what `SOURCE... DESTINATION` means. As with scp, a colon before the first slash names a machine.

    Raises InvalidRequest unless exactly one side is one machine.
    """
    if not sources:
        raise InvalidRequest("There is nothing to copy.", field="SOURCE", value=None, next=EXAMPLE)
    local_sources = [source for source in sources if _machine(source) is None]
    target = _machine(destination)
    if target is not None:
        if len(local_sources) < len(sources):
            raise _both_sides(next(source for source in sources if source not in local_sources))
        return CopyPaths(target, True, tuple(sources), _remote_path(destination, "DESTINATION"))  # noqa: FBT003
    machines = {_machine(source) for source in sources}
    machine = machines.pop()
    if machines or machine is None:
        raise _no_machine(sources, destination) if len(local_sources) == len(sources) else _mixed(sources)
    return CopyPaths(machine, False, tuple(_remote_path(source, "SOURCE") for source in sources), destination)  # noqa: FBT003


def _machine(typed: str) -> str | None:
    name, colon, _ = typed.partition(":")
    if not colon or "/" in name:
        return None
    if NAME.fullmatch(name):
        return name
    raise InvalidRequest(
        f"{name!r} before the colon is not a machine's name: {NAME_RULE}.",
        field="NAME",
        value=name,
        next=f"For a local file with a colon in its name, write ./{typed}",
    )


def _remote_path(typed: str, field: str) -> str:
    """Return the path on the machine; SFTP starts in the home, so `~` needs no shell."""
    path = typed.partition(":")[2]
    if path in ("", "~", "~/"):
        return "."
    if path.startswith("~/"):
        return path.lstrip("~").lstrip("/") or "."
    if path.startswith("~"):
        raise InvalidRequest(
            f"{path} is another user's home directory on the machine, which is not known here.",
            field=field,
            value=typed,
            next="Write the full path.",
        )
    return path


def _both_sides(source: str) -> InvalidRequest:
    return InvalidRequest(
        "Both sides are on machines; one of them must be on this computer.",
        field="SOURCE",
        value=source,
        next="Copy to a local directory first, then from there to the machine.",
    )


def _no_machine(sources: Sequence[str], destination: str) -> InvalidRequest:
    return InvalidRequest(
        f"Neither {', '.join(sources)} nor {destination} is on a machine.",
        field="DESTINATION",
        value=destination,
        next=f"Put the machine's name and a colon before one side. {EXAMPLE}",
    )


def _mixed(sources: Sequence[str]) -> InvalidRequest:
    return InvalidRequest(
        "The sources are on different machines.", field="SOURCE", value=" ".join(sources), next=EXAMPLE
    )


SESSIONS = 4  # files under way at once: each costs a handful of round trips whatever its size
CHUNK = 256 * 1024
CLEANUP_S = 0.5  # after Ctrl-C
GROUP_AND_OTHERS = 0o077  # permission bits of everybody but the owner

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied; `skipped` names what is neither file nor directory, and links that lead nowhere.

    `failed` says of each path that could not be copied why.
    """

    files: int
    bytes: int
    skipped: tuple[str, ...] = ()
    failed: tuple[InvalidRequest, ...] = ()


def machine_of(sources: Sequence[str], destination: str) -> str:
    """Return the name of the machine in `SOURCE... DESTINATION`; raise InvalidRequest as `copy` does."""
    return parse_copy_paths(sources, destination).machine


def copy(
    connection: Connection, sources: Sequence[str], destination: str, *, progress: Progress | None = None
) -> Copied:
    """Copy `NAME:PATH` on one side to or from paths here on the other, directories with all that is in them.

    Permissions and times are kept, links followed. Into an existing directory goes the source under its own name.
    A file gets its final name only when it is whole. `progress` gets the bytes done and the bytes in all.
    A path in a directory that cannot be read, or takes no such name, keeps no other from being copied.
    Raises InvalidRequest about a path where nothing can be copied, Unreachable when the connection is lost.
    """
    from cloudgpu.access.ssh.transport import CONNECTION_ERRORS

    paths = parse_copy_paths(sources, destination)
    sessions = _Sessions(connection)
    with Keepalive(connection, ping_after=PING_AFTER_S, deadline=DEADLINE_S) as is_open:
        try:
            done = _copy(sessions, paths, progress or (lambda _done, _total: None))
            if done.failed and not connection.is_usable():
                raise done.failed[0]
        except (InvalidRequest, *CONNECTION_ERRORS) as error:
            if connection.is_usable():
                raise
            raise (is_open.error or connection.lost_error()) from error
        finally:
            sessions.close()
    if done.failed and not done.files:
        raise done.failed[0]
    return done


def _copy(sessions: _Sessions, paths: CopyPaths, progress: Progress) -> Copied:
    with sessions.session() as session:
        source, target = _source_and_target(session, paths)
        layout = lay_out(source, paths.sources, target, paths.destination)
        failed = list(layout.failed)
        case_clashes = case_twins(layout.items)
        directories, files = _prepare(target, layout.items, case_clashes, failed)
        transfer = _Transfer(sessions, paths, progress, sum(item.entry.size for item in files), case_clashes)
    missed = transfer.run(files)
    with sessions.session() as session:
        _, target = _source_and_target(session, paths)
        for item in reversed(directories):  # from the inside out: writing into a directory changes its time
            with explain(target, item.target, "written"):
                target.set_attributes(item.target, item.entry)
    return Copied(len(files) - len(missed), transfer.done, layout.skipped, (*failed, *missed))


def _prepare(
    target: Endpoint, items: Sequence[Item], case_clashes: frozenset[str], failed: list[PathFailed]
) -> tuple[list[Item], list[Item]]:
    """Make the directories; return those that were made, and the files that have a place now."""
    directories, files, closed = [], [], set()
    for item in items:
        if posixpath.dirname(item.target) in closed:
            closed.add(item.target)
        elif item.entry.file:
            files.append(item)
        else:
            try:
                if item.target in case_clashes:
                    check_twin(target, item.target)
                directories += [item] if _make_directory(target, item) else []
            except PathFailed as error:
                failed.append(error)
                closed.add(item.target)
    return directories, files


def _source_and_target(machine_files: MachineFiles, paths: CopyPaths) -> tuple[Endpoint, Endpoint]:
    """Return source and target: this computer and the machine, in the direction of the copy."""
    return (LocalFiles(), machine_files) if paths.upload else (machine_files, LocalFiles())


def _make_directory(target: Endpoint, item: Item) -> bool:
    """Make the directory and return True; False where it is there already."""
    with explain(target, item.target, "written"):
        found = target.stat(item.target or ".")
        if found is not None and found.directory:
            return False
        if found is not None:
            raise already_exists(target, item.target, by="file")
        target.make_directory(item.target)
    return True


def part_file_name(target: str) -> str:
    """Return the name under which a file grows: beside its final place, hidden, the same at every try."""
    directory, name = posixpath.split(target)
    return posixpath.join(directory, f".cloudgpu-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}.part")


class _Transfer:
    """Moves files, several at once; a fault of one path leaves out that one, any other ends all."""

    def __init__(
        self, sessions: _Sessions, paths: CopyPaths, progress: Progress, total: int, alike: frozenset[str]
    ) -> None:
        self._sessions = sessions
        self._paths = paths
        self._progress = progress
        self._total = total
        self._alike = alike
        self._naming = threading.Lock()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._fault: Exception | None = None
        self._missed: dict[str, PathFailed] = {}
        self.done = 0

    def run(self, files: Sequence[Item]) -> list[PathFailed]:
        """Move them all; return why some could not be. Raises what the first one that ended all raised."""
        with Pool(SESSIONS) as workers:
            moves = [workers.submit(self._try_copy, item) for item in files]
            try:
                for move in moves:
                    move.wait()
            except BaseException:
                self._stopped.set()
                tidied = monotonic() + CLEANUP_S
                for move in moves:  # what has begun removes its unfinished file
                    move.wait(max(0, tidied - monotonic()))
                raise
        if self._fault is not None:
            raise self._fault
        self._advance(0)
        return [self._missed[target] for target in sorted(self._missed)]

    def _try_copy(self, item: Item) -> None:
        if self._stopped.is_set():
            return
        try:
            self._copy_file(item)
        except Exception as met:  # noqa: BLE001  (told, or raised, by `run`)
            error = self._precise_error(item, met)
            with self._lock:
                if isinstance(error, PathFailed) and self._sessions.is_open:
                    self._missed[item.target] = error
                    return
                self._fault = self._fault or error
            self._stopped.set()

    def _precise_error(self, item: Item, error: Exception) -> Exception:
        """Return the fault; PathFailed for a directory in the place of a file, of which SFTP 3 says nothing."""
        if isinstance(error, InvalidRequest) and not isinstance(error, PathFailed):
            with contextlib.suppress(Exception), self._sessions.session() as machine_files:  # the first fault counts
                _, target = _source_and_target(machine_files, self._paths)
                found = target.stat(item.target)
                if found is not None and found.directory:
                    return already_exists(target, item.target, by="directory")
        return error

    def _copy_file(self, item: Item) -> None:
        with self._sessions.session() as machine_files:
            source, target = _source_and_target(machine_files, self._paths)
            part = part_file_name(item.target)
            try:
                count = self._copy_content(source, target, item, part)
                _check_whole(source, target, item, part, count)
                with explain(target, item.target, "written"):
                    target.set_attributes(part, item.entry)
                    self._name(target, part, item.target)
            except BaseException:
                with contextlib.suppress(Exception):  # the first fault counts
                    target.remove(part)
                raise

    def _name(self, target: Endpoint, part: str, final: str) -> None:
        if final not in self._alike:
            target.rename(part, final)
            return
        with self._naming:  # two of them are never looked for, and not found, at once
            check_twin(target, final)
            target.rename(part, final)

    def _copy_content(self, source: Endpoint, target: Endpoint, item: Item, part: str) -> int:
        count = 0
        private = item.entry.mode & GROUP_AND_OTHERS == 0
        with (
            explain(source, item.source, "read"),
            source.read(item.source, item.entry.size) as reader,
            explain(target, item.target, "written"),
            target.write(part, private=private) as writer,
        ):
            while not self._stopped.is_set() and (data := _read(source, item, reader)):
                writer.write(data)
                count += len(data)
                self._advance(len(data))
        return count

    def _advance(self, count: int) -> None:
        with self._lock:
            self.done += count
            self._progress(self.done, self._total)


def _read(source: Endpoint, item: Item, reader: IO[bytes]) -> bytes:
    with explain(source, item.source, "read"):
        return reader.read(CHUNK)


def _check_whole(source: Endpoint, target: Endpoint, item: Item, part: str, count: int) -> None:
    """Raise InvalidRequest unless all of the file has arrived."""
    with explain(target, item.target, "written"):
        written = target.stat(part)
        if written is None or written.size != count:
            arrived = written.size if written else 0
            raise OSError(f"only {arrived:,} of {count:,} bytes arrived (perhaps the disk is full)")
    with explain(source, item.source, "read"):
        if count < item.entry.size:
            raise OSError(f"it ended after {count:,} of {item.entry.size:,} bytes")


class _Sessions:
    """SFTP sessions of one connection, opened when first needed, each used by one thread at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._idle: SimpleQueue[MachineFiles] = SimpleQueue()
        self._opened: list[MachineFiles] = []

    @property
    def is_open(self) -> bool:
        """Whether the connection stands, as far as is known."""
        return self._connection.is_open

    @contextlib.contextmanager
    def session(self) -> Iterator[MachineFiles]:
        """Yield a session that nobody else uses."""
        try:
            machine_files = self._idle.get_nowait()
        except Empty:
            machine_files = self._open()
        try:
            yield machine_files
        finally:
            self._idle.put(machine_files)

    def _open(self) -> MachineFiles:
        there = MachineFiles(self._connection.target.name, self._connection.sftp())
        self._opened.append(there)
        return there

    def close(self) -> None:
        """Close them all."""
        for there in self._opened:
            there.sftp.close()
