"""Walks the directory of a job: which files a snapshot includes, and which it leaves out. Reads no content."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from cloudgpu.core.jobs.ignore import Included, Rules, check_globs_used, is_ignored, read_includes, read_rules
from cloudgpu.core.jobs.snapshot import (
    LeftOut,
    Omissions,
    SnapshotLink,
    is_secret_directory,
    is_secret_name,
    link_stays_inside,
    omissions_of,
)
from cloudgpu.core.values.printable import printable
from cloudgpu.errors import InvalidRequest

GIB = 1 << 30
MAX_BYTES = 10 * GIB
CLOUDGPU_IGNORE, GIT_IGNORE = ".cloudgpuignore", ".gitignore"
ENVIRONMENT_FILES = ("pyvenv.cfg", "conda-meta")  # a Python environment has one, and works on this computer only
MAX_COUNTED = 50_000  # entries of directories that are left out: their sizes are only shown
MAX_NAMED = 3  # large files and directories that an error names
GIT_TIMEOUT_S = 30
MAX_IGNORE_FILE_BYTES = 1 << 20
RuleChain = tuple[
    tuple[int, Rules], ...
]  # rules of the ignore files above, each with the length of its directory's path


class FileEntry(NamedTuple):
    """A regular file: its path below the root, and what shows later whether it has changed."""

    path: str
    size: int
    mode: int
    mtime_ns: int
    ctime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Survey:
    """What a snapshot of `root` includes, and leaves out.

    `ignore_file` is the name of the ignore files that were read.
    """

    root: str
    ignore_file: str
    files: tuple[FileEntry, ...]
    links: tuple[SnapshotLink, ...]
    directories: tuple[str, ...]
    total_bytes: int
    omissions: Omissions


class _Mode(Enum):
    """What of a directory is included; each value says it."""

    ORDINARY = "included: all but what ignore files name"
    IGNORED = "included: only what --include names and what git tracks"
    INCLUDED = "included: all but secrets"


def survey(
    root: Path, *, include: Sequence[str] = (), exclude_dirs: Sequence[str | Path] = (), max_bytes: int = MAX_BYTES
) -> Survey:
    """Return what a snapshot of a directory includes. Sizes are in bytes.

    Files that `.cloudgpuignore` names are left out. Without that file at the top, `.gitignore` files count as in git:
    also those above `root` in the same repository, and `.git/info/exclude`; what git tracks is included although they
    name it. `.git`, secrets and Python environments are always left out. `include` are globs from the top that include
    ignored files; a secret is included only by its exact path. `exclude_dirs` are paths below `root`, or absolute, to
    leave out.

    Raises InvalidRequest for a directory that cannot be read, a link that leads out of it, a glob that matches nothing,
    and for more than `max_bytes` bytes.
    """
    top = _checked_root(root)
    walk = _Walk(top, read_includes(include), _excluded_paths(top, exclude_dirs))
    walk.run()
    omissions = omissions_of(walk.left_out)
    check_globs_used(walk.include, omissions.secrets)
    total_bytes = sum(file.size for file in walk.files)
    if total_bytes > max_bytes:
        raise _too_large_error(walk.files, total_bytes, max_bytes, walk.ignore_file)
    return Survey(
        top,
        walk.ignore_file,
        tuple(walk.files),
        tuple(walk.links),
        tuple(walk.empty_directories()),
        total_bytes,
        omissions,
    )


def _checked_root(root: Path) -> str:
    try:
        top = os.path.realpath(root, strict=True)
        if stat.S_ISDIR(os.stat(top).st_mode):  # noqa: PTH116  (`top` is text)
            return top
        problem = "is not a directory"
    except OSError as error:
        problem = f"cannot be read: {(error.strerror or str(error)).lower()}"
    raise InvalidRequest(
        f"The directory of the job, {printable(str(root))}, {problem}.",
        field="workdir",
        value=str(root),
        next="Name the directory that the command needs: --workdir DIR",
    )


def _excluded_paths(top: str, directories: Sequence[str | Path]) -> frozenset[str]:
    """Return the paths below the top that are left out. Directories elsewhere are no error."""
    paths = set()
    for directory in directories:
        is_absolute = Path(directory).is_absolute()
        path = os.path.relpath(os.path.realpath(directory) if is_absolute else f"{top}/{directory}", top)
        if path == ".":
            raise InvalidRequest(
                f"{printable(str(directory))} is the directory of the job itself: nothing of it would be taken.",
                field="workdir",
                value=str(directory),
                next="Choose a directory below it for results, and run the job from a directory of its own.",
            )
        paths.add(path)
    return frozenset(paths)


@dataclass(slots=True)
class _Walk:
    """One walk over the directory `top` of a job. It opens no file of the user but ignore files."""

    top: str
    include: Included
    excluded: frozenset[str]  # paths that the caller leaves out
    ignore_file: str = GIT_IGNORE
    path_in_repository: str = ""  # path from the top of the repository to `top`, with a final slash
    files: list[FileEntry] = field(default_factory=list)
    links: list[SnapshotLink] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    visited: list[str] = field(
        default_factory=list
    )  # directories, except those of which only single files are included
    entries_to_count: int = MAX_COUNTED
    tracked: frozenset[str] = frozenset()  # tracked by git although ignored, and the directories above
    _to_visit: list[tuple[str, RuleChain, _Mode]] = field(default_factory=list)

    def run(self) -> None:
        """Visit every directory; with a list, because trees may be deeper than Python's stack."""
        chain = self._read_outer_rules()
        self._to_visit.append(("", chain, _Mode.ORDINARY))
        while self._to_visit:
            directory, chain, mode = self._to_visit.pop()
            self._visit(directory, chain, mode)

    def _read_outer_rules(self) -> RuleChain:
        """Return the rules of ignore files above the directory; none with a `.cloudgpuignore` at its top."""
        if os.path.lexists(f"{self.top}/{CLOUDGPU_IGNORE}"):
            self.ignore_file = CLOUDGPU_IGNORE
            return ()
        repository = _repository(self.top)
        if repository is None:
            return ()
        self.path_in_repository = self.top[len(repository.rstrip("/")) + 1 :] + "/" if repository != self.top else ""
        files = [(f"{repository}/.git/info/exclude", 0)]
        self.tracked = _tracked_paths(self.top)
        names = self.path_in_repository.split("/")[:-1]
        for depth in range(len(names)):
            parent = "".join(f"{name}/" for name in names[:depth])
            files.append((f"{repository}/{parent}{GIT_IGNORE}", len(parent)))
        outer_rules = ((start, _read_rules(file)) for file, start in files)
        return tuple((start, rules) for start, rules in outer_rules if rules is not None)

    def _visit(self, directory: str, chain: RuleChain, mode: _Mode) -> None:
        prefix = f"{directory}/" if directory else ""
        with (
            _explain_os_errors(directory or self.top, self.ignore_file),
            os.scandir(f"{self.top}/{directory}") as scanned,
        ):
            entries = list(scanned)
        if mode is _Mode.ORDINARY and any(entry.name == self.ignore_file for entry in entries):
            rules = _read_rules(f"{self.top}/{prefix}{self.ignore_file}")
            chain = chain if rules is None else (*chain, (len(self.path_in_repository) + len(prefix), rules))
        if mode in {_Mode.ORDINARY, _Mode.INCLUDED}:
            self.visited.append(directory)
        for entry in entries:
            if entry.name != ".git":
                self._add_entry(entry, prefix + entry.name, chain, mode)

    def _add_entry(self, entry: os.DirEntry[str], path: str, chain: RuleChain, mode: _Mode) -> None:
        if path in self.excluded:
            self._leave_out(entry, path, "excluded")
        elif entry.is_dir(follow_symlinks=False):
            self._add_directory(entry, path, chain, mode)
        elif is_secret_name(path) and not self._includes_secret(path):
            self._leave_out(entry, path, "secret")
        elif self._is_ignored(entry, path, chain, mode, is_directory=False):
            self._leave_out(entry, path, "ignored")
        elif entry.is_symlink():
            self.links.append(SnapshotLink(path, self._link_target(path)))
        else:
            self._add_file(entry, path)

    def _includes_secret(self, path: str) -> bool:
        return self.include.includes_secret(path) and self.include.includes(path, is_directory=False)

    def _add_directory(self, entry: os.DirEntry[str], path: str, chain: RuleChain, mode: _Mode) -> None:
        if is_secret_directory(path):
            if self.include.names_secret_below(path):
                self._to_visit.append((path, (), _Mode.IGNORED))
            else:
                self._leave_out(entry, path, "secret")
            return
        is_included = bool(self.include) and self.include.includes(path, is_directory=True)
        if is_included:
            self._to_visit.append((path, (), _Mode.INCLUDED))
        elif not (self._is_ignored(entry, path, chain, mode, is_directory=True) or self._is_environment(path, mode)):
            self._to_visit.append((path, chain, mode))
        elif path in self.tracked or (self.include and self.include.may_include_below(path)):
            self._to_visit.append((path, (), _Mode.IGNORED))
        else:
            self._leave_out(entry, path, "ignored")

    def _is_environment(self, path: str, mode: _Mode) -> bool:
        files = (f"{self.top}/{path}/{file}" for file in ENVIRONMENT_FILES)
        return mode is _Mode.ORDINARY and any(os.path.lexists(file) for file in files)

    def _is_ignored(
        self, entry: os.DirEntry[str], path: str, chain: RuleChain, mode: _Mode, *, is_directory: bool
    ) -> bool:
        is_included = bool(self.include) and not is_directory and self.include.includes(path, is_directory=False)
        if is_included or mode is _Mode.INCLUDED or (not is_directory and path in self.tracked):
            return False
        return mode is _Mode.IGNORED or (
            bool(chain) and is_ignored(chain, self.path_in_repository + path, entry.name, is_directory=is_directory)
        )

    def _add_file(self, entry: os.DirEntry[str], path: str) -> None:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return  # it was deleted after the directory was read
        if stat.S_ISREG(status.st_mode):
            mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
            self.files.append(
                FileEntry(path, status.st_size, mode, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
            )
        else:
            self._leave_out(entry, path, "special")

    def _link_target(self, path: str) -> str:
        """Return the target of a link, relative to its directory. Raises InvalidRequest if it is outside of `top`."""
        file = f"{self.top}/{path}"
        with _explain_os_errors(path, self.ignore_file):
            link_text = os.readlink(file)  # noqa: PTH115  (a Path would drop a final slash)
        target = os.path.relpath(link_text, os.path.dirname(file)) if link_text.startswith("/") else link_text  # noqa: PTH120
        real_path = os.path.realpath(file)
        if link_stays_inside(path, target) and (
            real_path == self.top or real_path.startswith(self.top.rstrip("/") + "/")
        ):
            return target
        raise InvalidRequest(
            f"{printable(path)} is a link to {printable(link_text)}, which is outside the directory of the job.",
            field="workdir",
            value=path,
            next=f"Replace it by a copy, name the data with --data, or add /{printable(path)} to {self.ignore_file}.",
        )

    def _leave_out(self, entry: os.DirEntry[str], path: str, reason: str) -> None:
        size, is_partial = 0, False
        with contextlib.suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                size, is_partial = self._count_bytes(f"{self.top}/{path}")
            else:
                size = entry.stat(follow_symlinks=False).st_size
        self.left_out.append(LeftOut(path, size, reason, at_least=is_partial))

    def _count_bytes(self, directory: str) -> tuple[int, bool]:
        """Return the bytes below a directory that is left out, and whether counting stopped before the end."""
        total_bytes, pending = 0, [directory]
        while pending and self.entries_to_count > 0:
            try:
                with os.scandir(pending.pop()) as entries:
                    for entry in entries:
                        self.entries_to_count -= 1
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
                        else:
                            total_bytes += entry.stat(follow_symlinks=False).st_size
            except OSError:
                return total_bytes, True
        return total_bytes, bool(pending)

    def empty_directories(self) -> Iterator[str]:
        """Yield the visited directories that hold nothing that is included, not even another such directory.

        A directory with an excluded entry is not yielded: the first run may create the store in it, and the snapshot
        must not change by that.
        """
        included = (*(one.path for one in self.files), *(one.path for one in self.links), *self.excluded)
        nonempty = {path.rpartition("/")[0] for path in included}
        for directory in sorted(self.visited, key=len, reverse=True):  # subdirectories first
            if directory not in nonempty and directory:
                yield directory
            nonempty.add(directory.rpartition("/")[0])


def _repository(top: str) -> str | None:
    """Return the top of the git repository that a directory is in, or None."""
    directories = (top, *map(str, Path(top).parents))
    return next((directory for directory in directories if os.path.lexists(f"{directory}/.git")), None)


def _tracked_paths(top: str) -> frozenset[str]:
    """Return the files below a directory that git tracks although they are ignored, and the directories above them.

    Empty if git is not installed, or refuses the repository.
    """
    argv = [
        "git",
        "-C",
        top,
        "-c",
        "core.fsmonitor=false",
        *"ls-files -z --cached --ignored --exclude-standard".split(),
    ]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        completed = subprocess.run(argv, env=environ, capture_output=True, timeout=GIT_TIMEOUT_S, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return frozenset()
    files = [os.fsdecode(name) for name in completed.stdout.split(b"\0") if name]
    return frozenset(path[:end] for path in files for end in (len(path), *_slashes(path)))


def _slashes(path: str) -> list[int]:
    return [index for index, character in enumerate(path) if character == "/"]


def _read_rules(file: str) -> Rules | None:
    """Return the rules of an ignore file; None if there is none. Like git, it follows no link."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise _unreadable_error(file, error, CLOUDGPU_IGNORE) from error
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return read_rules(os.fsdecode(stream.read(MAX_IGNORE_FILE_BYTES)))


@contextlib.contextmanager
def _explain_os_errors(path: str, ignore_file: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unreadable_error(path, error, ignore_file) from error


def _unreadable_error(path: str, error: OSError, ignore_file: str) -> InvalidRequest:
    return InvalidRequest(
        f"{printable(path)} cannot be read: {(error.strerror or str(error)).lower()}.",
        field="workdir",
        value=path,
        next=f"Correct its permissions, or leave it out: add a line to {ignore_file}.",
    )


def _too_large_error(files: Sequence[FileEntry], total_bytes: int, max_bytes: int, ignore_file: str) -> InvalidRequest:
    largest = ", ".join(f"{printable(path)} ({in_units(size)})" for path, size in largest_entries(files))
    return InvalidRequest(
        f"The directory of the job has {in_units(total_bytes)} to upload, more than {in_units(max_bytes)}: {largest}.",
        field="workdir",
        value=str(total_bytes),
        next=f"Name what the job does not need in {ignore_file}, and large data with --data SRC:DEST.",
    )


def largest_entries(files: Sequence[FileEntry]) -> list[tuple[str, int]]:
    """Return the largest entries with their bytes, in the deepest directory that holds more than half of all bytes."""
    total_bytes, entries = sum(file.size for file in files), _entries_by_size(files, "")
    while entries[0][0].endswith("/") and 2 * entries[0][1] > total_bytes:
        inner_entries = _entries_by_size(files, entries[0][0])
        if 2 * inner_entries[0][1] <= total_bytes:
            break
        entries = inner_entries
    return entries[:MAX_NAMED]


def _entries_by_size(files: Sequence[FileEntry], prefix: str) -> list[tuple[str, int]]:
    sizes: dict[str, int] = defaultdict(int)
    for file in files:
        if file.path.startswith(prefix):
            name, slash, _ = file.path[len(prefix) :].partition("/")
            sizes[f"{prefix}{name}{slash}"] += file.size
    return sorted(sizes.items(), key=lambda item: (-item[1], item[0]))


def in_units(size: int) -> str:
    """Return a size in decimal units: 48.1 GB, 3.2 MB, 17 bytes."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
