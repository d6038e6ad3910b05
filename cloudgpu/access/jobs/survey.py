"""Walks the directory of a job: which files a snapshot would include, and which it leaves out. Reads no content."""

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

from cloudgpu.core.jobs.ignore import Rules, is_ignored, read_rules
from cloudgpu.core.jobs.included import Included, check_globs_used, read_includes
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
OWN_IGNORE, GIT_IGNORE = ".cloudgpuignore", ".gitignore"
ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")  # of a Python environment: it holds paths of this computer
MAX_COUNTED = 50_000  # entries of directories that stay out: their sizes are for the plan alone
MAX_NAMED = 3
GIT_PATIENCE_S = 30
LONGEST_IGNORE_FILE = 1 << 20
Chain = tuple[tuple[int, Rules], ...]  # the rules of ignore files above, each with where its paths begin


class FileEntry(NamedTuple):
    """A regular file: its path below the root, and what tells later whether it has changed."""

    path: str
    size: int
    mode: int
    mtime_ns: int
    ctime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Survey:
    """What a snapshot of `root` would hold. `ignore_file` is the name of the ignore files that were read."""

    root: str
    ignore_file: str
    files: tuple[FileEntry, ...]
    links: tuple[SnapshotLink, ...]
    directories: tuple[str, ...]
    total_bytes: int
    omissions: Omissions


class _Mode(Enum):
    ORDINARY = "what no ignore file names is taken"
    IGNORED = "only what --include names is taken, and what git tracks"
    TAKEN = "all is taken but secrets"


def survey(
    root: Path, *, include: Sequence[str] = (), exclude_dirs: Sequence[str | Path] = (), max_bytes: int = MAX_BYTES
) -> Survey:
    """Return what a snapshot of a directory would take. Sizes are in bytes.

    Files that `.cloudgpuignore` names stay out; without one at the top, what `.gitignore` files name, as git reads them
    (also those above `root` in the same repository, and `.git/info/exclude`; what git tracks is taken although they
    name it). `.git` and secrets always stay out, and Python environments, which work on this computer alone.
    `include` are globs from the top that bring back what is ignored; a secret is brought back by its very path alone.
    `exclude_dirs` are paths below `root`, or absolute ones, that stay out.

    Raises InvalidRequest for a directory that cannot be read, a link that leads out of it, a glob that matches nothing,
    and for more than `max_bytes` bytes.
    """
    top = _checked_root(root)
    walk = _Walk(top, read_includes(include), _excluded(top, exclude_dirs))
    walk.run()
    omissions = omissions_of(walk.left_out)
    check_globs_used(walk.include, omissions.secrets)
    total = sum(one.size for one in walk.files)
    if total > max_bytes:
        raise _too_large(walk.files, total, max_bytes, walk.ignore_file)
    return Survey(
        top, walk.ignore_file, tuple(walk.files), tuple(walk.links), tuple(walk.empty_directories()), total, omissions
    )


def _checked_root(root: Path) -> str:
    try:
        top = os.path.realpath(root, strict=True)
        if stat.S_ISDIR(os.stat(top).st_mode):  # noqa: PTH116  (`top` is text)
            return top
        why = "is not a directory"
    except OSError as error:
        why = f"cannot be read: {(error.strerror or str(error)).lower()}"
    raise InvalidRequest(
        f"The directory of the job, {printable(str(root))}, {why}.",
        field="workdir",
        value=str(root),
        next="Name the directory that the command needs: --workdir DIR",
    )


def _excluded(top: str, directories: Sequence[str | Path]) -> frozenset[str]:
    """Return the paths below the top that stay out. What lies elsewhere means nothing here."""
    found = set()
    for one in directories:
        path = os.path.relpath(os.path.realpath(one) if os.path.isabs(one) else os.path.join(top, one), top)  # noqa: PTH117, PTH118
        if path == ".":
            raise InvalidRequest(
                f"{printable(str(one))} is the directory of the job itself: nothing of it would be taken.",
                field="workdir",
                value=str(one),
                next="Choose a directory below it for results, and run the job from a directory of its own.",
            )
        found.add(path)
    return frozenset(found)


@dataclass(slots=True)
class _Walk:
    """One walk over a directory, entry by entry. It opens no file of the user's but ignore files."""

    top: str
    include: Included
    excluded: frozenset[str]
    ignore_file: str = GIT_IGNORE
    above: str = ""  # from the top of the repository to ours, with a slash at its end
    files: list[FileEntry] = field(default_factory=list)
    links: list[SnapshotLink] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    entered: list[str] = field(default_factory=list)
    left_to_count: int = MAX_COUNTED
    tracked: frozenset[str] = frozenset()  # by git although its ignore files name them, and the directories above
    _to_visit: list[tuple[str, Chain, _Mode]] = field(default_factory=list)

    def run(self) -> None:
        """Visit every directory; a list instead of recursion, for trees may be deeper than Python's stack."""
        chain = self._begin()
        self._to_visit.append(("", chain, _Mode.ORDINARY))
        while self._to_visit:
            directory, chain, mode = self._to_visit.pop()
            self._visit(directory, chain, mode)

    def _begin(self) -> Chain:
        """Return the rules from above the directory; a `.cloudgpuignore` at its top replaces all of git's."""
        if os.path.lexists(f"{self.top}/{OWN_IGNORE}"):
            self.ignore_file = OWN_IGNORE
            return ()
        repository = _repository(self.top)
        if repository is None:
            return ()
        self.above = self.top[len(repository.rstrip("/")) + 1 :] + "/" if repository != self.top else ""
        files = [(f"{repository}/.git/info/exclude", 0)]
        self.tracked = _tracked(self.top)
        parts = self.above.split("/")[:-1]
        for depth in range(len(parts)):
            between = "".join(f"{part}/" for part in parts[:depth])
            files.append((f"{repository}/{between}{GIT_IGNORE}", len(between)))
        found = ((start, _rules(file)) for file, start in files)
        return tuple((start, rules) for start, rules in found if rules is not None)

    def _visit(self, directory: str, chain: Chain, mode: _Mode) -> None:
        below = f"{directory}/" if directory else ""
        with _readable(directory or self.top, self.ignore_file), os.scandir(f"{self.top}/{directory}") as found:
            entries = list(found)
        if mode is _Mode.ORDINARY and any(entry.name == self.ignore_file for entry in entries):
            rules = _rules(f"{self.top}/{below}{self.ignore_file}")
            chain = chain if rules is None else (*chain, (len(self.above) + len(below), rules))
        if mode in {_Mode.ORDINARY, _Mode.TAKEN}:
            self.entered.append(directory)
        for entry in entries:
            if entry.name != ".git":
                self._add_entry(entry, below + entry.name, chain, mode)

    def _add_entry(self, entry: os.DirEntry[str], path: str, chain: Chain, mode: _Mode) -> None:
        if path in self.excluded:
            self._leave_out(entry, path, "excluded")
        elif entry.is_dir(follow_symlinks=False):
            self._directory(entry, path, chain, mode)
        elif is_secret_name(path) and not self._takes_secret(path):
            self._leave_out(entry, path, "secret")
        elif self._is_ignored(entry, path, chain, mode, is_directory=False):
            self._leave_out(entry, path, "ignored")
        elif entry.is_symlink():
            self.links.append(SnapshotLink(path, self._target(path)))
        else:
            self._file(entry, path)

    def _takes_secret(self, path: str) -> bool:
        return self.include.takes_secret(path) and self.include.takes(path, is_directory=False)

    def _directory(self, entry: os.DirEntry[str], path: str, chain: Chain, mode: _Mode) -> None:
        if is_secret_directory(path):
            if self.include.names_secret_below(path):
                self._to_visit.append((path, (), _Mode.IGNORED))
            else:
                self._leave_out(entry, path, "secret")
            return
        named = bool(self.include) and self.include.takes(path, is_directory=True)
        if named:
            self._to_visit.append((path, (), _Mode.TAKEN))
        elif not (self._is_ignored(entry, path, chain, mode, is_directory=True) or self._is_environment(path, mode)):
            self._to_visit.append((path, chain, mode))
        elif path in self.tracked or (self.include and self.include.may_hold(path)):
            self._to_visit.append((path, (), _Mode.IGNORED))
        else:
            self._leave_out(entry, path, "ignored")

    def _is_environment(self, path: str, mode: _Mode) -> bool:
        marks = (f"{self.top}/{path}/{mark}" for mark in ENVIRONMENT_MARKS)
        return mode is _Mode.ORDINARY and any(os.path.lexists(mark) for mark in marks)

    def _is_ignored(self, entry: os.DirEntry[str], path: str, chain: Chain, mode: _Mode, *, is_directory: bool) -> bool:
        named = bool(self.include) and not is_directory and self.include.takes(path, is_directory=False)
        if named or mode is _Mode.TAKEN or (not is_directory and path in self.tracked):
            return False
        return mode is _Mode.IGNORED or (
            bool(chain) and is_ignored(chain, self.above + path, entry.name, is_directory=is_directory)
        )

    def _file(self, entry: os.DirEntry[str], path: str) -> None:
        try:
            seen = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return  # it has gone since the directory was read
        if stat.S_ISREG(seen.st_mode):
            mode = 0o755 if seen.st_mode & stat.S_IXUSR else 0o644
            self.files.append(FileEntry(path, seen.st_size, mode, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino))
        else:
            self._leave_out(entry, path, "special")

    def _target(self, path: str) -> str:
        """Return where a link leads, relative to its directory. Raises InvalidRequest for one that leads out."""
        file = f"{self.top}/{path}"
        with _readable(path, self.ignore_file):
            linked = os.readlink(file)  # noqa: PTH115  (a Path would lose a slash at its end)
        target = os.path.relpath(linked, os.path.dirname(file)) if linked.startswith("/") else linked  # noqa: PTH120
        real = os.path.realpath(file)
        if link_stays_inside(path, target) and (real == self.top or real.startswith(self.top.rstrip("/") + "/")):
            return target
        raise InvalidRequest(
            f"{printable(path)} is a link to {printable(linked)}, which is outside the directory of the job.",
            field="workdir",
            value=path,
            next=f"Replace it by a copy, name the data with --data, or add /{printable(path)} to {self.ignore_file}.",
        )

    def _leave_out(self, entry: os.DirEntry[str], path: str, why: str) -> None:
        size, part = 0, False
        with contextlib.suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                size, part = self._sum(f"{self.top}/{path}")
            else:
                size = entry.stat(follow_symlinks=False).st_size
        self.left_out.append(LeftOut(path, size, why, at_least=part))

    def _sum(self, directory: str) -> tuple[int, bool]:
        """Return the bytes below a directory that stays out, and whether that is only a part of them."""
        total, ahead = 0, [directory]
        while ahead and self.left_to_count > 0:
            try:
                with os.scandir(ahead.pop()) as entries:
                    for entry in entries:
                        self.left_to_count -= 1
                        if entry.is_dir(follow_symlinks=False):
                            ahead.append(entry.path)
                        else:
                            total += entry.stat(follow_symlinks=False).st_size
            except OSError:
                return total, True
        return total, bool(ahead)

    def empty_directories(self) -> Iterator[str]:
        """Yield the directories that were entered and hold nothing that is taken, not even another such directory.

        One with an entry that the caller excludes is none: the store may lie in it, which comes after the first time.
        """
        taken = (*(one.path for one in self.files), *(one.path for one in self.links), *self.excluded)
        full = {path.rpartition("/")[0] for path in taken}
        for directory in sorted(self.entered, key=len, reverse=True):  # what is below comes first
            if directory not in full and directory:
                yield directory
            full.add(directory.rpartition("/")[0])


def _repository(top: str) -> str | None:
    """Return the top of the git repository that a directory is in, or None."""
    here = top
    while not os.path.lexists(f"{here}/.git"):
        parent = os.path.dirname(here)  # noqa: PTH120
        if parent == here:
            return None
        here = parent
    return here


def _tracked(top: str) -> frozenset[str]:
    """Return the files below a directory that git tracks although they are ignored, and the directories above them.

    Empty where git is not installed, or does not trust the repository.
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
        done = subprocess.run(argv, env=environ, capture_output=True, timeout=GIT_PATIENCE_S, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return frozenset()
    files = [os.fsdecode(one) for one in done.stdout.split(b"\0") if one]
    return frozenset(path[:at] for path in files for at in (len(path), *_slashes(path)))


def _slashes(path: str) -> list[int]:
    return [at for at, letter in enumerate(path) if letter == "/"]


def _rules(file: str) -> Rules | None:
    """Return the rules of an ignore file; None where there is none. Like git, it follows no link."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None
        raise _unreadable(file, error, OWN_IGNORE) from error
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return read_rules(os.fsdecode(stream.read(LONGEST_IGNORE_FILE)))


@contextlib.contextmanager
def _readable(path: str, ignore_file: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _unreadable(path, error, ignore_file) from error


def _unreadable(path: str, error: OSError, ignore_file: str) -> InvalidRequest:
    return InvalidRequest(
        f"{printable(path)} cannot be read: {(error.strerror or str(error)).lower()}.",
        field="workdir",
        value=path,
        next=f"Correct its permissions, or leave it out: add a line to {ignore_file}.",
    )


def _too_large(files: Sequence[FileEntry], total: int, max_bytes: int, ignore_file: str) -> InvalidRequest:
    largest = ", ".join(f"{printable(path)} ({in_units(size)})" for path, size in largest_parts(files))
    return InvalidRequest(
        f"The directory of the job has {in_units(total)} to take along, more than {in_units(max_bytes)}: {largest}.",
        field="workdir",
        value=str(total),
        next=f"Name what the job does not need in {ignore_file}, and large data with --data SRC:DEST.",
    )


def largest_parts(files: Sequence[FileEntry]) -> list[tuple[str, int]]:
    """Return the largest entries with their bytes, from the deepest directory that holds more than half of all."""
    total, found = sum(one.size for one in files), _parts_by_size(files, "")
    while found[0][0].endswith("/") and 2 * found[0][1] > total:
        below = _parts_by_size(files, found[0][0])
        if 2 * below[0][1] <= total:
            break
        found = below
    return found[:MAX_NAMED]


def _parts_by_size(files: Sequence[FileEntry], start: str) -> list[tuple[str, int]]:
    sizes: dict[str, int] = defaultdict(int)
    for one in files:
        if one.path.startswith(start):
            name, slash, _ = one.path[len(start) :].partition("/")
            sizes[f"{start}{name}{slash}"] += one.size
    return sorted(sizes.items(), key=lambda item: (-item[1], item[0]))


def in_units(size: int) -> str:
    """Return bytes in decimal units, as `df -H` does: 48.1 GB, 3.2 MB, 17 bytes."""
    for unit, one in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= one:
            return f"{size / one:.1f} {unit}"
    return f"{size} bytes"
