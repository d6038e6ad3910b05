"""The reading half of a ledger, over any store: without a lock, checked by its chain and its head record."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, closing, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cloudgpu.core.model.usage import Usage
from cloudgpu.errors import LedgerUnavailable
from cloudgpu.ledger.log import lines, machines as projection, storage_errors
from cloudgpu.ledger.log.head import (
    HeadContent,
    HeadRecord,
    LockedHead,
    MoveMark,
    client_clock_problem,
    head_problem,
    last_line_and_mark,
    ledger_left_error,
    ledger_moved_error,
    line_clock_problem,
    lock_head,
    mark_of,
    missing_ledger_problem,
    read_head,
    verification,
)
from cloudgpu.ledger.log.lines import Verification

if TYPE_CHECKING:  # imported only where it is needed: every module costs `cloudgpu ls` time
    from cloudgpu.core.billing.rules import RateInterval
    from cloudgpu.core.budgets.exposure import Exposure
    from cloudgpu.core.events.log import Event, EventSummary
    from cloudgpu.core.model.machine import Machine
    from cloudgpu.core.team.rights import Role
    from cloudgpu.ledger.log.base import View
    from cloudgpu.ledger.log.outbox import Outbox
    from cloudgpu.ledger.log.sql import Connection
    from cloudgpu.ledger.log.store import Store
    from cloudgpu.ledger.log.teams import Sharing

T = TypeVar("T")


class Reader:
    """The ledger in the database of `store`, with this client's head record in `head_path`: everything but writes.

    `clock` returns aware UTC; `lock_timeout_s` is how many seconds to wait for a lock. `tell` shows a user one
    sentence: it is called once, if the database's own clock contradicts `clock`.
    """

    tell: Callable[[str], None] | None = None
    has_own_clock = False  # `clock` is the computer's own, which may be wrong, not a time that a caller set

    def __init__(self, store: Store, head_path: Path, *, clock: Callable[[], datetime], lock_timeout_s: float) -> None:
        self._store = store
        self._head_path = head_path
        self._clock = clock
        self.now = clock  # the present time; a database's clock may correct it
        # By how much this computer's clock is ahead: by nothing, unless a database says so.
        self.clock_ahead: Callable[[], timedelta] = timedelta
        self._lock_timeout_s = lock_timeout_s
        self._thread_lock = threading.RLock()
        self._machine_cache = projection.MachineCache()
        self._is_in_snapshot = False  # inside `read`: another connection would see another state

    def server_now(self) -> datetime | None:
        """Return what time it is by the ledger's server; None without one, or where its clock is not believed."""
        return None

    @property
    def location(self) -> str:
        """Where the ledger is: a file, or a database without its password."""
        return self._store.location

    def is_at(self, other: Reader) -> bool:
        """Return whether both are in the same place, whatever it is called, as far as this client can tell."""
        if self._head_path == other._head_path:
            return True
        path, other_path = Path(self.location), Path(other.location)
        if not (path.is_absolute() and other_path.is_absolute()):
            return False
        return path == other_path or (path.exists() and other_path.exists() and path.samefile(other_path))

    @property
    def id(self) -> str:
        """The ledger's id; empty before the first append."""
        ledger_id = self._read(
            lambda connection: None if connection is None else lines.id_of(connection), missing_ok=True
        )
        return getattr(self._read_head_unlocked(), "ledger_id", "") if ledger_id is None else ledger_id

    @property
    def outbox(self) -> Outbox:
        """Where lines wait while the ledger is unavailable."""
        from cloudgpu.ledger.log.outbox import Outbox

        return Outbox(self._head_path.with_suffix(".outbox"))

    @property
    def has_outbox(self) -> bool:
        """Whether lines may wait in any outbox of this home; reads one directory."""
        outbox_module = sys.modules.get(
            "cloudgpu.ledger.log.outbox"
        )  # without it, this process has put nothing into one
        if outbox_module is not None and not self.outbox.is_empty:
            return True
        try:
            return any(name.endswith(".outbox") for name in os.listdir(self._head_path.parent))  # noqa: PTH208  (half the time)
        except OSError:
            return self._head_path.with_suffix(".outbox").exists()

    def owns_outbox(self, outbox: Outbox) -> bool:
        """Return whether that outbox has lines for this ledger: the head record beside it names a line of this one."""
        record = read_head(outbox.path.with_suffix(".head"), self._lock_timeout_s)
        if not isinstance(record, HeadRecord):
            return False
        return self._read(lambda found: found is not None and head_problem(found, self.location, record) is None)

    def remembered_head(self) -> HeadContent:
        """Return this client's head record."""
        with self._thread_lock, self._store.translated():
            return self._read_head_unlocked()

    def remembered_id(self) -> str:
        """Return the ledger's id as this client has seen it last; empty for never. Reads only the head record."""
        return str(getattr(self.remembered_head(), "ledger_id", ""))

    def machines(self) -> list[Machine]:
        """Return every machine's current record, oldest first."""
        return self._read(lambda connection: [] if connection is None else self._machine_cache.machines(connection))

    def present_machines(self) -> list[Machine]:
        """Return the records of living machines, those with retained resources, and the oldest one; oldest first."""
        return self._read(lambda connection: [] if connection is None else projection.present_machines(connection))

    def machine(self, id: str) -> Machine | None:  # noqa: A002
        """Return one machine's current record, or None."""
        return self._read(
            lambda connection: None if connection is None else self._machine_cache.machine(connection, id)
        )

    def launched(self, key: str) -> list[Machine]:
        """Return the records of the machines that were launched by this key."""
        return self._read(lambda connection: [] if connection is None else projection.launched(connection, key))

    def names(self) -> list[tuple[str, str]]:
        """Return name and launch key of each living machine and each with retained resources."""
        return self._read(lambda connection: [] if connection is None else projection.names(connection))

    def billable_machines(self) -> list[Machine]:
        """Return the record of everything that costs or has cost, oldest first."""
        return self._read(
            lambda connection: [] if connection is None else self._machine_cache.billable_machines(connection)
        )

    def ended_usages(self, since: str = "", *, unpriced: bool = False) -> Iterator[tuple[str, Usage]]:
        """Yield (subject, usage) of usages that have ended and were billed after `since`; "": all."""

        def query(found: Connection | None) -> list[tuple[str, Usage]]:
            return [] if found is None else list(projection.ended_usages(found, since, unpriced=unpriced))

        yield from self._read(query)

    def exposures(self) -> list[Exposure | Machine]:
        """Return what budgets count of everything that costs or has cost, or its record; oldest first."""
        return self._read(lambda connection: [] if connection is None else projection.exposures(connection))

    def billed_costs(self, since: str = "") -> list[tuple[str, list[RateInterval] | Usage]]:
        """Return usages that have ended and were billed after `since`, as intervals, or as usages if without price."""
        return self._read(lambda connection: [] if connection is None else projection.billed_costs(connection, since))

    def read(self, query: Callable[[View], T]) -> T:
        """Return what `query` returns for one consistent state, whoever appends meanwhile."""

        def read_snapshot(connection: Connection | None) -> T:
            if connection is None:
                return query(self)
            with self._store.snapshot():
                self._is_in_snapshot = True
                try:
                    return query(self)
                finally:
                    self._is_in_snapshot = False

        return self._read(read_snapshot)

    def head(self) -> tuple[int, str, str]:
        """Return (seq, hash, recorded_at) of the last line; seq 0 where there is none."""
        return self._read(
            lambda connection: (0, "", "") if connection is None else lines.last_line(connection), missing_ok=True
        )

    def last(self, subject: str) -> Event | None:
        """Return the latest line of one subject, or None."""
        return self._read(lambda connection: None if connection is None else lines.last_event(connection, subject))

    def events(self, subject: str | None = None) -> Iterator[Event]:
        """Yield lines by seq, of one subject or all; what is appended meanwhile comes too."""
        after = 0
        while page := self._page(subject, after):
            yield from page
            after = page[-1].seq

    def summaries(self, kinds: Collection[str]) -> list[EventSummary]:
        """Return a summary of every line of these kinds, by seq."""
        return self._read(lambda connection: [] if connection is None else lines.summaries_of_kinds(connection, kinds))

    def integrity_problem(self) -> str | None:
        """Return why lines seem to be missing or the clock wrong, or None."""
        record = self.remembered_head()  # before the lines: those that are written meanwhile contradict nothing

        def check(connection: Connection | None) -> str | None:
            if connection is None:
                return missing_ledger_problem(self.location, record)
            return head_problem(connection, self.location, record) or line_clock_problem(
                connection, self.now(), self._store.time
            )

        return self._read(check, missing_ok=True)

    def clock_problem(self) -> str | None:
        """Return how this computer's clock contradicts that of the ledger's database, or None."""
        return self._read(lambda _: client_clock_problem(self._clock(), self._store.time()), missing_ok=True)

    def moved(self) -> MoveMark | None:
        """Return the mark of a ledger that has moved away or not arrived yet; None if it is in use.

        A client that once knew of the move needs the old place no more.
        """
        known_mark = mark_of(self.remembered_head())
        if known_mark is not None:
            return known_mark
        mark = self.move_mark()
        if mark is not None:
            with suppress(LedgerUnavailable):  # the next command learns it again
                self.remember_move()
        return mark

    def move_mark(self) -> MoveMark | None:
        """Return the move that the last line here records, whatever this client remembers; None for none."""
        return self._read(lambda found: None if found is None else last_line_and_mark(found)[1], missing_ok=True)

    def remember_move(self, *, despite_problem: bool = False) -> None:
        """Record in this client's head record the move that the last line here records.

        A head record that contradicts the lines is left, unless `despite_problem`.
        """

        def record_move(connection: Connection | None) -> None:
            mark = None if connection is None else last_line_and_mark(connection)[1]
            if connection is None or mark is None or mark.came_from or not mark.to:
                return
            with closing(self._lock_head()) as head_lock:
                if despite_problem or head_problem(connection, self.location, head_lock.read()) is None:
                    write_move_mark(head_lock, lines.id_of(connection), mark)

        self._read(record_move, missing_ok=True)

    def check_in_use(self) -> None:
        """Raise LedgerMoved for a ledger that has moved away, or that has not arrived yet.

        Does not raise if the ledger cannot be reached and no move is known: it may be in use.
        """
        with suppress(storage_errors.LedgerAway):
            self._raise_if_moved(self.moved())

    def verify(self) -> Verification:
        """Recompute the chain; compare head record, triggers, projection. At most 20 faults of the chain are named."""
        record = self.remembered_head()

        def check(connection: Connection | None) -> Verification:
            if connection is None:
                missing = missing_ledger_problem(self.location, record)
                return Verification(0, "", (missing,) if missing else ())
            with self._store.snapshot():
                return verification(connection, self.location, record, self._store.missing_triggers())

        return self._read(check, missing_ok=True)

    def lock(self, name: str, *, wait: bool | float) -> AbstractContextManager[None]:
        """Hold the lock `name` alone among this ledger's clients on other machines, as `ledger.log.files.lock` here."""
        return self._store.lock(name, wait)

    def is_locked(self, name: str) -> bool:
        """Return whether a living client of this ledger on another machine holds the lock `name`."""
        with self._thread_lock, self._store.translated():
            return self._store.is_locked(name)

    def check_lock(self, name: str) -> None:
        """Raise LedgerUnavailable if this client held the lock `name` and has lost it without notice."""
        self._store.check_lock(name)

    def role(self) -> Role:
        """Return what this client's user may do here; ALONE where no team shares the ledger."""
        return self._read(lambda _: self._store.role_and_user(), missing_ok=True)[0]

    def person(self) -> str:
        """Return the database user by whose name a team knows this client; "" where no team shares the ledger."""
        return self._read(lambda _: self._store.role_and_user(), missing_ok=True)[1]

    def members(self) -> tuple[str, ...]:
        """Return the database users who may write, payers too, by name; none where no team shares the ledger."""
        return self._read(lambda _: self._store.members(), missing_ok=True)

    def payers(self) -> tuple[str, ...]:
        """Return the database users who have the payer's role, by name; none where no team shares the ledger."""
        return self._read(lambda _: self._store.payers(), missing_ok=True)

    def sharing(self) -> Sharing | None:
        """Return how a team shares the ledger, and what it lacks; None for a ledger that no team can share."""
        return self._read(lambda _: self._store.sharing(), missing_ok=True)

    def close(self) -> None:
        """Close the connection to the database."""
        with self._thread_lock, self._store.translated():
            self._store.close()

    def _read(self, query: Callable[[Connection | None], T], *, missing_ok: bool = False) -> T:
        """Return what `query` returns, once more over a new connection if the first was lost meanwhile.

        It gets None if there is no ledger yet. Raises if the ledger existed before, unless `missing_ok`.
        Raises LedgerMovedAway if nothing can be read and this client knows that the ledger has moved.
        """
        try:
            return self._read_with_retry(query, missing_ok=missing_ok)
        except LedgerUnavailable as error:
            raise self._moved_error_or(error) from error.__cause__

    def _moved_error_or(self, error: LedgerUnavailable) -> LedgerUnavailable:
        """Return the error that the ledger has moved, if this client knows that, else `error`."""
        mark = None
        with suppress(LedgerUnavailable):
            mark = mark_of(self.remembered_head())
        return error if mark is None else ledger_left_error(mark, self.location)

    def _read_with_retry(self, query: Callable[[Connection | None], T], *, missing_ok: bool) -> T:
        with self._thread_lock, self._store.translated():
            try:
                return query(self._reader(missing_ok=missing_ok))
            except Exception:
                if self._store.is_writing or self._is_in_snapshot or not self._store.is_connection_lost:
                    raise
                self._store.close()
            return query(self._reader(missing_ok=missing_ok))

    def _reader(self, *, missing_ok: bool) -> Connection | None:
        connection = self._store.reader()
        if connection is None and not missing_ok:
            record = self._read_head_unlocked()
            connection = self._store.reader()  # again: it may have been created meanwhile
            if connection is None:
                self._raise_if_missing(record)
        return connection

    def _page(self, subject: str | None, after: int) -> list[Event]:
        return self._read(
            lambda connection: [] if connection is None else lines.lines_after(connection, subject, after)
        )

    def _raise_if_moved(self, mark: MoveMark | None) -> None:
        if mark is not None:
            raise ledger_moved_error(mark, self.location)

    def _lock_head(self) -> LockedHead:
        return lock_head(self._head_path, self._lock_timeout_s)

    def _read_head_unlocked(self) -> HeadContent:
        return read_head(self._head_path, self._lock_timeout_s)

    def _raise_if_missing(self, record: HeadContent) -> None:
        mark = mark_of(record)
        if mark is not None:
            raise ledger_left_error(mark, self.location)
        sentence = missing_ledger_problem(self.location, record)
        if sentence is not None:
            raise storage_errors.missing_error(self.location, sentence)


def write_move_mark(head_lock: LockedHead, ledger_id: str, mark: MoveMark) -> None:
    """Write the mark of a move to a head record: where the ledger is now."""
    head_lock.replace(ledger_id, *mark.last[:2], mark.since, moved=mark.to, next_hash=mark.next_hash)
