"""The outbox: lines for an unavailable ledger, in a private file of this home until the ledger has them."""

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
from typing import TYPE_CHECKING, Any, NamedTuple

from cloudgpu.ledger.log.files import (
    fsync,
    is_same_file,
    make_private_directory,
    missing_newline,
    open_to_write,
    try_lock,
    write_durably,
)

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.core.events.log import Draft
    from cloudgpu.ledger.log.clock_stamp import ClockStamp

LedgerLines = list[tuple[str, "Draft"]]  # the ledger's id, and a line for it
_REFUSED_SUFFIX = ".refused"
_LOCK_TIMEOUT_S = (
    5.0  # for another process with the file: it may be suspended, and a termination does not wait for that
)
_RETRY_PAUSE_S = 0.01
_unwritten: dict[Path, LedgerLines] = {}  # what could not be written to a full disk: only this process knows it


class Outbox:
    """The lines that wait in the file `path`. Each has its own hash: one cut short by a crash is ignored.

    `ledger` is the id of the ledger that lines are for: several may share a file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return self.path not in _unwritten and not self.path.exists()

    def other_outboxes(self) -> list[Outbox]:
        """Return this home's outboxes without this one: of other ledgers, and of the same ledger under another URL."""
        return [Outbox(path) for path in sorted(self.path.parent.glob("*.outbox")) if path != self.path]

    def refused(self) -> list[tuple[Path, list[tuple[Draft, str]]]]:
        """Return each file of lines that a ledger has refused, with those lines, and why. Raises OSError."""
        lines_by_file = (
            (path, _parse_file(path.read_bytes())) for path in sorted(self.path.parent.glob(f"*{_REFUSED_SUFFIX}"))
        )
        return [
            (path, [(row.draft, row.refusal) for row in rows if row.draft is not None]) for path, rows in lines_by_file
        ]

    def keep_refused(self, ledger: str, refused: Sequence[tuple[Draft, str]]) -> Path:
        """Write these lines, and why each was refused, once to a file next to this one; return it. Raises OSError.

        The file has another suffix than an outbox, so its lines are not delivered again.
        """
        refused_file = Outbox(self.path.with_suffix(_REFUSED_SUFFIX))
        with refused_file._locked() as handle:
            stored_dedupes = {draft.dedupe for _, draft in _lines(refused_file.path.read_bytes())}
            new_texts = (_line_text(ledger, draft, why) for draft, why in refused if draft.dedupe not in stored_dedupes)
            refused_file._write(handle, "".join(new_texts).encode())
        return refused_file.path

    def add(self, ledger: str, drafts: Sequence[Draft]) -> None:
        """Write and sync these lines, all or none. If that fails, raise OSError and remember them in this process."""
        try:
            with self._locked() as handle:
                self._write(handle, "".join(_line_text(ledger, draft) for draft in drafts).encode())
        except OSError:
            self.remember(ledger, drafts)
            raise

    def remember(self, ledger: str, drafts: Sequence[Draft]) -> None:
        """Remember these lines in this process, as they are in no file."""
        _unwritten.setdefault(self.path, []).extend((ledger, draft) for draft in drafts)

    def waiting(self, ledger: str, now: datetime | None = None) -> list[Draft]:
        """Return the lines that wait for this ledger, in the order in which they were added, as `emptied` does.

        Raises OSError.
        """
        try:
            in_file = _lines(self.path.read_bytes(), now)
        except FileNotFoundError:
            in_file = []
        return [draft for id_, draft in [*in_file, *_unwritten.get(self.path, ())] if id_ == ledger]

    @contextmanager
    def emptied(self, ledger: str, *, wait: bool = False, now: datetime | None = None) -> Iterator[list[Draft] | None]:
        """Yield the waiting lines; remove them if the block ends without an error. None: another process has the file.

        `now` is what time it is, where that is known better than by this computer's clock: lines that were dated by a
        wrong clock are put right. Lines of another ledger stay. With `wait`, another process is waited for. Raises
        OSError.
        """
        in_memory = list(_unwritten.get(self.path, ()))
        if not self.path.exists():
            yield self.waiting(ledger, now)
            self._forget(ledger, in_memory)
            return
        with self._locked(wait=wait) as handle:
            if handle is None:
                yield None
                return
            in_memory = list(_unwritten.get(self.path, ()))
            yield self.waiting(ledger, now)
            self._forget(ledger, in_memory)
            self._remove_written(ledger)

    def _forget(self, ledger: str, in_memory: LedgerLines) -> None:
        """Forget these lines, which were in no file, except those of another ledger; newer ones stay."""
        forgotten_ids = {id(one) for one in in_memory if one[0] == ledger}
        lines = _unwritten.get(self.path, [])
        lines[:] = [one for one in lines if id(one) not in forgotten_ids]
        if not lines:
            _unwritten.pop(self.path, None)

    def _remove_written(self, ledger: str) -> None:
        """Remove this ledger's lines from the file, and the file if it has no others.

        A line that only a newer version can read stays, too.
        """
        rows = _parse_file(self.path.read_bytes())
        other_lines = "".join(f"{row.text}\n" for row in rows if row.draft is None or row.ledger != ledger)
        if other_lines:
            temporary = self.path.with_suffix(".part")
            write_durably(temporary, other_lines.encode())
            temporary.replace(self.path)
        else:
            self.path.unlink()
        fsync(self.path.parent)

    def _write(self, handle: int | None, data: bytes) -> None:
        assert handle is not None  # noqa: S101  (for the type checker: it was waited for)
        size = os.fstat(handle).st_size
        data = missing_newline(handle) + data
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
            fsync(self.path.parent)

    @contextmanager
    def _locked(self, *, wait: bool = True) -> Iterator[int | None]:
        """Lock the file and yield its descriptor; None if another process has it and `wait` is false.

        Raises OSError if that takes too long.
        """
        make_private_directory(self.path.parent)
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        while True:
            handle = open_to_write(self.path, os.O_RDWR)
            try:
                if not try_lock(handle, fcntl.LOCK_EX):
                    if not wait:
                        yield None
                        return
                    if time.monotonic() >= deadline:
                        raise OSError(errno.EBUSY, "another process is at it", str(self.path))
                    time.sleep(_RETRY_PAUSE_S)
                elif is_same_file(self.path, handle):
                    yield handle
                    return
            finally:
                os.close(handle)


def _line_text(ledger: str, draft: Draft, refusal: str = "") -> str:
    from cloudgpu.core.values.times import iso
    from cloudgpu.ledger.log.clock_stamp import clock_stamp

    line = {
        "ledger": ledger,
        "kind": draft.kind,
        "subject": draft.subject,
        "body": dict(draft.body),
        "occurred_at": iso(draft.occurred_at),
        "dedupe": draft.dedupe,
        "clock": draft.clock,
        "stamp": clock_stamp(),
    }
    json_text = json.dumps(line | ({"refused": refusal} if refusal else {}), separators=(",", ":"))
    return f"{_hash(json_text)} {json_text}\n"


class _OutboxLine(NamedTuple):
    """One line of the file; without a draft if this version cannot read it."""

    text: str
    ledger: str = ""
    draft: Draft | None = None
    refusal: str = ""  # why a ledger has refused it
    stamp: ClockStamp | None = None


def _lines(data: bytes, now: datetime | None = None) -> LedgerLines:
    rows = [(row.ledger, row.draft, row.stamp) for row in _parse_file(data) if row.draft is not None]
    if now is None:
        return [(ledger, draft) for ledger, draft, _ in rows]
    from cloudgpu.ledger.log.clock_stamp import corrected

    return [(ledger, corrected(draft, stamp, now)) for ledger, draft, stamp in rows]


def _parse_file(data: bytes) -> list[_OutboxLine]:
    """Return the lines of a file. A line torn by a crash is ignored, since its call was not sent yet."""
    rows = data.decode(errors="replace").split("\n")
    return [_parse_line(row) for row in rows if " " in row and row.partition(" ")[0] == _hash(row.partition(" ")[2])]


def _parse_line(text: str) -> _OutboxLine:
    from cloudgpu.core.events.log import Draft
    from cloudgpu.core.values.times import from_iso
    from cloudgpu.ledger.log.clock_stamp import stamp_of

    try:
        line: dict[str, Any] = json.loads(text.partition(" ")[2])
        occurred_at, ledger, refusal = from_iso(line.pop("occurred_at")), line.pop("ledger"), line.pop("refused", "")
        stamp = stamp_of(line.pop("stamp", None))
        return _OutboxLine(text, ledger, Draft(occurred_at=occurred_at, **line), refusal, stamp)
    except (KeyError, TypeError, ValueError, IndexError):
        return _OutboxLine(text)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
