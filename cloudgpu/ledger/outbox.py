"""The outbox: lines for a ledger that is away, in a private file of this home until they stand in the ledger."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudgpu.ledger.files import make_private_directory, open_to_write

if TYPE_CHECKING:
    from cloudgpu.core.events import Draft

Lines = list[tuple[str, "Draft"]]  # the ledger's id, and a line for it
_WAIT_S = 5.0  # for another process that is at the file: it may be suspended, and an end waits for no such one
_PAUSE_S = 0.01
_unwritten: dict[Path, Lines] = {}  # what a full disk has refused: known to this process alone


class Outbox:
    """The lines that wait at `path`. Each has a hash of its own: one torn by a crash is no line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return self.path not in _unwritten and not self.path.exists()

    def others(self) -> list[Outbox]:
        """Return the outboxes beside this one: of other ledgers, and of the same one by another name of its place."""
        return [Outbox(path) for path in sorted(self.path.parent.glob("*.outbox")) if path != self.path]

    def add(self, ledger: str, drafts: Sequence[Draft]) -> None:
        """Write these lines and sync them, all or none; raise OSError where that fails. This process knows them yet."""
        try:
            with self._held() as handle:
                self._write(handle, "".join(_text(ledger, draft) for draft in drafts).encode())
        except OSError:
            self.remember(ledger, drafts)
            raise

    def remember(self, ledger: str, drafts: Sequence[Draft]) -> None:
        """Have this process know these lines, though they are in no file."""
        _unwritten.setdefault(self.path, []).extend((ledger, draft) for draft in drafts)

    def waiting(self, ledger: str) -> list[Draft]:
        """Return the lines that wait for this ledger, in the order in which they were added. Raises OSError."""
        try:
            found = _lines(self.path.read_bytes())
        except FileNotFoundError:
            found = []
        return [draft for whose, draft in [*found, *_unwritten.get(self.path, ())] if whose == ledger]

    @contextmanager
    def emptied(self, ledger: str) -> Iterator[list[Draft] | None]:
        """Yield what waits; it is gone when the block ends without an error. None: another process is at it.

        Lines of another ledger stay. Raises OSError.
        """
        taken = list(_unwritten.get(self.path, ()))
        if not self.path.exists():
            yield self.waiting(ledger)
            self._forget(ledger, taken)
            return
        with self._held(wait=False) as handle:
            if handle is None:
                yield None
                return
            taken = list(_unwritten.get(self.path, ()))
            yield self.waiting(ledger)
            self._forget(ledger, taken)
            self._keep(ledger)

    def _forget(self, ledger: str, taken: Lines) -> None:
        """Forget these lines, which were in no file, but for those of another ledger; what has come since stays."""
        gone = {id(one) for one in taken if one[0] == ledger}
        lines = _unwritten.get(self.path, [])
        lines[:] = [one for one in lines if id(one) not in gone]
        if not lines:
            _unwritten.pop(self.path, None)

    def _keep(self, ledger: str) -> None:
        """Remove the file, unless lines of another ledger are in it: then those alone stay."""
        others = "".join(_text(whose, one) for whose, one in _lines(self.path.read_bytes()) if whose != ledger)
        if others:
            part = self.path.with_suffix(".part")
            with os.fdopen(open_to_write(part, os.O_WRONLY | os.O_TRUNC), "wb") as file:
                file.write(others.encode())
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.path)
        else:
            self.path.unlink()
        _sync(self.path.parent)

    def _write(self, handle: int | None, data: bytes) -> None:
        assert handle is not None  # noqa: S101  (for the type checker: it was waited for)
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            data = b"\n" + data  # behind what a crash has torn
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(handle, data[written:], size + written)
            os.fsync(handle)
        except OSError:
            with suppress(OSError):
                os.ftruncate(handle, size)
                if not size:
                    self.path.unlink()
            raise
        if not size:
            _sync(self.path.parent)

    @contextmanager
    def _held(self, *, wait: bool = True) -> Iterator[int | None]:
        """Hold the file alone and yield its descriptor; None where it is held and not waited for.

        Raises OSError where it is held for too long.
        """
        make_private_directory(self.path.parent)
        until = time.monotonic() + _WAIT_S
        while True:
            handle = open_to_write(self.path, os.O_RDWR)
            try:
                if not _locked(handle):
                    if not wait:
                        yield None
                        return
                    if time.monotonic() >= until:
                        raise OSError(errno.EBUSY, "another process is at it", str(self.path))
                    time.sleep(_PAUSE_S)
                elif _stands(self.path, handle):
                    yield handle
                    return
            finally:
                os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _stands(path: Path, handle: int) -> bool:
    """Say whether nobody has emptied the outbox between our open and our lock."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _text(ledger: str, draft: Draft) -> str:
    from cloudgpu.core.times import iso

    line = {
        "ledger": ledger,
        "kind": draft.kind,
        "subject": draft.subject,
        "body": dict(draft.body),
        "occurred_at": iso(draft.occurred_at),
        "dedupe": draft.dedupe,
        "clock": draft.clock,
    }
    text = json.dumps(line, separators=(",", ":"))
    return f"{_hash(text)} {text}\n"


def _lines(data: bytes) -> Lines:
    from cloudgpu.core.events import Draft
    from cloudgpu.core.times import from_iso

    found: Lines = []
    for row in data.decode(errors="replace").split("\n"):
        digest, _, text = row.partition(" ")
        if not text or digest != _hash(text):
            continue  # torn by a crash: what it was about was not sent yet
        line: dict[str, Any] = json.loads(text)
        at = from_iso(line.pop("occurred_at"))
        found.append((line.pop("ledger"), Draft(occurred_at=at, **line)))
    return found


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
