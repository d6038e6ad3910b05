"""Copies files and directories to a machine or from it, over SFTP."""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import IO

from cloudgpu.access.computer import computer_id
from cloudgpu.access.copy.endpoints import Endpoint, LocalFiles, MachineFiles, check_replaceable
from cloudgpu.access.copy.manifest import (
    Item,
    PathFailed,
    already_exists_error,
    case_clashes_in,
    check_case_clash,
    explain_path_errors,
    plan_copy,
)
from cloudgpu.access.files import unique_number
from cloudgpu.access.ssh.connection import Connection
from cloudgpu.access.ssh.execute import ANSWER_TIMEOUT_S, PING_AFTER_S
from cloudgpu.access.ssh.keepalive import Keepalive
from cloudgpu.core.values.naming import NAME, NAME_RULE
from cloudgpu.errors import InvalidRequest
from cloudgpu.parallel import Pool

EXAMPLE = "For example: cloudgpu cp data.csv NAME:data/, or: cloudgpu cp NAME:results ."


@dataclass(frozen=True, slots=True)
class CopyPaths:
    """Paths to copy, and the destination. `upload`: from this computer to `machine`, else the reverse.

    Paths on the machine are relative to its home, `.` for the home itself.
    """

    machine: str
    upload: bool
    sources: tuple[str, ...]
    destination: str


def parse_copy_paths(sources: Sequence[str], destination: str) -> CopyPaths:
    """Parse `SOURCE... DESTINATION`. As with scp, a colon before the first slash follows a machine's name.

    Raises InvalidRequest unless exactly one side is one machine.
    """
    if not sources:
        raise InvalidRequest("There is nothing to copy.", field="SOURCE", value=None, next=EXAMPLE)
    local_sources = [source for source in sources if _machine_name(source) is None]
    target = _machine_name(destination)
    if target is not None:
        if len(local_sources) < len(sources):
            raise InvalidRequest(
                "Both sides are on machines; one of them must be on this computer.",
                field="SOURCE",
                value=next(source for source in sources if source not in local_sources),
                next="Copy to a local directory first, then from there to the machine.",
            )
        return CopyPaths(target, True, tuple(sources), _remote_path(destination, "DESTINATION"))  # noqa: FBT003
    if len(local_sources) == len(sources):
        raise InvalidRequest(
            f"Neither {', '.join(sources)} nor {destination} is on a machine.",
            field="DESTINATION",
            value=destination,
            next=f"Put the machine's name and a colon before one side. {EXAMPLE}",
        )
    machines = {_machine_name(source) for source in sources}
    machine = machines.pop()
    if machines or machine is None:
        raise InvalidRequest(
            "The sources are on different machines.", field="SOURCE", value=" ".join(sources), next=EXAMPLE
        )
    return CopyPaths(machine, False, tuple(_remote_path(source, "SOURCE") for source in sources), destination)  # noqa: FBT003


def _machine_name(text: str) -> str | None:
    name, colon, _ = text.partition(":")
    if not colon or "/" in name:
        return None
    if NAME.fullmatch(name):
        return name
    raise InvalidRequest(
        f"{name!r} before the colon is not a machine's name: {NAME_RULE}.",
        field="NAME",
        value=name,
        next=f"For a local file with a colon in its name, write ./{text}",
    )


def _remote_path(text: str, field: str) -> str:
    """Return the path on the machine; SFTP starts in the home, so `~` needs no shell."""
    path = text.partition(":")[2]
    if path in ("", "~", "~/"):
        return "."
    if path.startswith("~/"):
        return path.lstrip("~").lstrip("/") or "."
    if path.startswith("~"):
        raise InvalidRequest(
            f"{path} is another user's home directory on the machine, which is not known here.",
            field=field,
            value=text,
            next="Write the full path.",
        )
    return path


MAX_PARALLEL_FILES = 4  # files copied at once: each costs several round trips, whatever its size
CHUNK_BYTES = 256 * 1024
CLEANUP_S = 0.5  # to remove part files after Ctrl-C

Progress = Callable[[int, int], None]  # bytes done, bytes in all


@dataclass(frozen=True, slots=True)
class Copied:
    """How many files and bytes were copied.

    `skipped` are the paths of special files and broken links, `failed` the errors of single paths.
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
    """Copy files and directories between this computer and a machine (`NAME:PATH`).

    Permissions and times are preserved, links followed. A source is copied into an existing directory under its own
    name. A file gets its final name when it is complete. `progress` gets the bytes done and the bytes in all. A path
    that cannot be copied does not keep others from being copied. Raises InvalidRequest if nothing can be copied,
    Unreachable when the connection is lost.
    """
    from cloudgpu.access.ssh.transport import CONNECTION_ERRORS

    paths = parse_copy_paths(sources, destination)
    sessions = _Sessions(connection)
    with (
        unique_copy_id(connection.target.known_hosts.parent) as copy_id,
        Keepalive(connection, ping_after_s=PING_AFTER_S, answer_timeout_s=ANSWER_TIMEOUT_S) as keepalive,
    ):
        try:
            copied = _copy(sessions, paths, copy_id, progress or (lambda _done, _total_bytes: None))
            if copied.failed and not connection.is_usable():
                raise copied.failed[0]
        except (InvalidRequest, *CONNECTION_ERRORS) as error:
            if connection.is_usable():
                raise
            raise (keepalive.error or connection.lost_error()) from error
        finally:
            sessions.close()
    if copied.failed and not copied.files:
        raise copied.failed[0]
    return copied


def _copy(sessions: _Sessions, paths: CopyPaths, copy_id: str, progress: Progress) -> Copied:
    with sessions.session() as session:
        source, target = _source_and_target(session, paths)
        plan = plan_copy(source, paths.sources, target, paths.destination)
        failed: list[InvalidRequest] = list(plan.failed)
        case_clashes = case_clashes_in(plan.items)
        directories, files = _prepare(target, plan.items, case_clashes, failed)
        new_directories = frozenset(item.target for item in directories)
        total_bytes = sum(item.entry.size for item in files)
        transfer = _Transfer(sessions, paths, copy_id, progress, total_bytes, case_clashes, new_directories)
    path_errors = transfer.run(files)
    with sessions.session() as session:
        _, target = _source_and_target(session, paths)
        for item in reversed(directories):  # innermost first: writing into a directory changes its time
            try:
                with explain_path_errors(target, item.target, "written"):
                    target.set_attributes(item.target, item.entry)
            except InvalidRequest as error:  # all files have arrived
                failed.append(error)
    return Copied(len(files) - len(path_errors), transfer.bytes_copied, plan.skipped, (*failed, *path_errors))


def _prepare(
    target: Endpoint, items: Sequence[Item], case_clashes: frozenset[str], failed: list[InvalidRequest]
) -> tuple[list[Item], list[Item]]:
    """Make the directories; return the new ones, and the files whose directory exists."""
    directories, files, unusable = [], [], set()
    for item in items:
        if posixpath.dirname(item.target) in unusable:
            unusable.add(item.target)
        elif item.entry.is_file:
            files.append(item)
        else:
            try:
                if item.target in case_clashes:
                    check_case_clash(target, item.target)
                directories += [item] if _make_directory(target, item) else []
            except PathFailed as error:
                failed.append(error)
                unusable.add(item.target)
    return directories, files


def _source_and_target(machine_files: MachineFiles, paths: CopyPaths) -> tuple[Endpoint, Endpoint]:
    """Return source and target: this computer and the machine, in the direction of the copy."""
    return (LocalFiles(), machine_files) if paths.upload else (machine_files, LocalFiles())


def _make_directory(target: Endpoint, item: Item) -> bool:
    """Make the directory and return True; False if it exists."""
    with explain_path_errors(target, item.target, "written"):
        found = target.stat(item.target or ".")
        if found is not None and found.is_directory:
            return False
        if found is not None:
            raise already_exists_error(target, item.target, by="file")
        target.make_directory(item.target)
    return True


def part_file_name(target: str, copy_id: str) -> str:
    """Return the part file of a target in a copy: hidden, in the same directory."""
    directory, name = posixpath.split(target)
    digest = hashlib.sha256(os.fsencode(f"{name}/{copy_id}")).hexdigest()[:16]
    return posixpath.join(directory, f".cloudgpu-{digest}.part")


@contextlib.contextmanager
def unique_copy_id(home: Path) -> Iterator[str]:
    """Yield an id that no other copy has now; `home` is CLOUDGPU_HOME.

    A copy has the id of an interrupted one, whose part files it overwrites. Where no lock can be held (on a full disk),
    the id is random.
    """
    with contextlib.ExitStack() as held:
        try:
            number: object = held.enter_context(unique_number(home / "copy"))
        except OSError:
            number = secrets.token_hex(8)
        yield f"{computer_id()}/{home.resolve()}/{number}"


class _Transfer:
    """Copies files, several at once; an error of one path skips that path, any other error ends all."""

    def __init__(
        self,
        sessions: _Sessions,
        paths: CopyPaths,
        copy_id: str,
        progress: Progress,
        total_bytes: int,
        case_clashes: frozenset[str],
        new_directories: frozenset[str],
    ) -> None:
        self._sessions = sessions
        self._paths = paths
        self._copy_id = copy_id
        self._progress = progress
        self._total_bytes = total_bytes
        self._case_clashes = case_clashes
        self._new_directories = new_directories  # in which nothing can be replaced
        self._rename_lock = threading.Lock()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._error: Exception | None = None
        self._path_errors: dict[str, PathFailed] = {}
        self._bytes_done = 0  # of all files, for the progress
        self.bytes_copied = 0  # of files that are complete

    def run(self, files: Sequence[Item]) -> list[PathFailed]:
        """Copy all files; return the errors of single paths. Raises the first error that ended all."""
        with Pool(MAX_PARALLEL_FILES) as workers:
            transfers = [workers.submit(self._try_copy, item) for item in files]
            try:
                for transfer_future in transfers:
                    transfer_future.wait()
            except BaseException:
                self._stopped.set()
                deadline = monotonic() + CLEANUP_S
                for transfer_future in transfers:  # each removes its part file
                    transfer_future.wait(max(0, deadline - monotonic()))
                raise
        if self._error is not None:
            raise self._error
        self._advance(0)
        return [self._path_errors[target] for target in sorted(self._path_errors)]

    def _try_copy(self, item: Item) -> None:
        if self._stopped.is_set():
            return
        try:
            self._copy_file(item)
        except Exception as raised:  # noqa: BLE001  (`run` returns or raises it)
            error = self._precise_error(item, raised)
            with self._lock:
                if isinstance(error, PathFailed) and self._sessions.is_open:
                    self._path_errors[item.target] = error
                    return
                self._error = self._error or error
            self._stopped.set()

    def _precise_error(self, item: Item, error: Exception) -> Exception:
        """Return the error; PathFailed for a directory in place of a file, which SFTP 3 does not report."""
        if isinstance(error, InvalidRequest) and not isinstance(error, PathFailed):
            with contextlib.suppress(Exception), self._sessions.session() as machine_files:  # the first error counts
                _, target = _source_and_target(machine_files, self._paths)
                found = target.stat(item.target)
                if found is not None and found.is_directory:
                    return already_exists_error(target, item.target, by="directory")
        return error

    def _copy_file(self, item: Item) -> None:
        with self._sessions.session() as machine_files:
            source, target = _source_and_target(machine_files, self._paths)
            part_path = part_file_name(item.target, self._copy_id)
            try:
                byte_count = self._copy_content(source, target, item, part_path)
                _check_complete(source, target, item, part_path, byte_count)
                with explain_path_errors(target, item.target, "written"):
                    target.set_attributes(part_path, item.entry)
                    self._rename(target, part_path, item.target)
            except BaseException:
                with contextlib.suppress(Exception):  # the first error counts
                    target.remove(part_path)
                raise
        with self._lock:
            self.bytes_copied += byte_count

    def _rename(self, target: Endpoint, part_path: str, final: str) -> None:
        if posixpath.dirname(final) not in self._new_directories:
            check_replaceable(target, final)
        if final not in self._case_clashes:
            target.rename(part_path, final)
            return
        with self._rename_lock:  # so that two names that differ only in case are not checked at once
            check_case_clash(target, final)
            target.rename(part_path, final)

    def _copy_content(self, source: Endpoint, target: Endpoint, item: Item, part_path: str) -> int:
        byte_count = 0
        with (
            explain_path_errors(source, item.source, "read"),
            source.read(item.source, item.entry.size) as reader,
            explain_path_errors(target, item.target, "written"),
            target.write(part_path) as writer,
        ):
            while not self._stopped.is_set() and (data := _read(source, item, reader)):
                writer.write(data)
                byte_count += len(data)
                self._advance(len(data))
        return byte_count

    def _advance(self, byte_count: int) -> None:
        with self._lock:
            self._bytes_done += byte_count
            self._progress(self._bytes_done, self._total_bytes)


def _read(source: Endpoint, item: Item, reader: IO[bytes]) -> bytes:
    with explain_path_errors(source, item.source, "read"):
        return reader.read(CHUNK_BYTES)


def _check_complete(source: Endpoint, target: Endpoint, item: Item, part_path: str, byte_count: int) -> None:
    """Raise InvalidRequest unless the file is complete."""
    with explain_path_errors(target, item.target, "written"):
        written = target.stat(part_path)
        if written is None or written.size != byte_count:
            arrived = written.size if written else 0
            raise OSError(f"only {arrived:,} of {byte_count:,} bytes arrived (perhaps the disk is full)")
    with explain_path_errors(source, item.source, "read"):
        if byte_count < item.entry.size:
            raise OSError(f"it ended after {byte_count:,} of {item.entry.size:,} bytes")


class _Sessions:
    """SFTP sessions of one connection, opened when first needed, each used by one thread at a time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._idle: SimpleQueue[MachineFiles] = SimpleQueue()
        self._opened: list[MachineFiles] = []

    @property
    def is_open(self) -> bool:
        """Whether the connection is open, as far as known."""
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
        machine_files = MachineFiles(self._connection.target.name, self._connection.sftp())
        self._opened.append(machine_files)
        return machine_files

    def close(self) -> None:
        """Close them all."""
        for machine_files in self._opened:
            machine_files.sftp.close()
