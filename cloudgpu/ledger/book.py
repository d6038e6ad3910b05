"""The ledger over any store: appended under one lock, read without any, judged by its chain and its head record."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cloudgpu.errors import LedgerUnavailable
from cloudgpu.ledger import faults, lines, projection

if TYPE_CHECKING:  # what only a writer or a judge needs is imported by them: `cloudgpu ls` pays for every module
    import sqlite3

    from cloudgpu.core.events import Draft, Event, Said
    from cloudgpu.core.roles import Role
    from cloudgpu.ledger.base import Copy, Row, Verification, View
    from cloudgpu.ledger.head import HeldHead, Record
    from cloudgpu.ledger.marks import Mark
    from cloudgpu.ledger.outbox import Outbox
    from cloudgpu.ledger.sql import Connection
    from cloudgpu.ledger.store import Store
    from cloudgpu.ledger.teams import Sharing, Team, Wish

T = TypeVar("T")

_REMEMBERED = 256  # subjects whose state a writer keeps in memory for its next line


class Book:
    """`cloudgpu.ledger.base.Ledger` in the database of `store`, with this client's head record in `head_path`.

    Makes nothing before the first append. `actor` is written beside every line, unless a team shares the ledger: then
    the database user is. `clock` returns aware UTC; `patience` is how many seconds a lock is waited for. May be used by
    several threads and processes at once.
    """

    def __init__(
        self, store: Store, head_path: Path, *, actor: str, clock: Callable[[], datetime], patience: float
    ) -> None:
        self._store = store
        self._head_path = head_path
        self._actor = actor
        self._clock = clock
        self._patience = patience
        self._own = threading.RLock()
        self._states: dict[str, Any] = {}  # what some subjects have come to, as of the line whose hash is `_states_at`
        self._states_at: str | None = None
        self._parsed = projection.Parsed()
        self._is_looking = False  # inside `read`: what is found over another connection is of another moment

    @property
    def place(self) -> str:
        """Where the ledger stands: a file, or a database without its password."""
        return self._store.place

    def is_at(self, other: Book) -> bool:
        """Say whether both stand in one place, whatever it is called, as far as this client can tell."""
        if self._head_path == other._head_path:
            return True
        here, there = Path(self.place), Path(other.place)
        if not (here.is_absolute() and there.is_absolute()):
            return False
        return here == there or (here.exists() and there.exists() and here.samefile(there))

    @property
    def id(self) -> str:
        """The ledger's id; empty before the first append."""
        found = self._read(lambda connection: None if connection is None else lines.id_of(connection), missing_ok=True)
        return getattr(self._record(), "ledger", "") if found is None else found

    @property
    def outbox(self) -> Outbox:
        """Where lines wait while the ledger is away."""
        from cloudgpu.ledger.outbox import Outbox

        return Outbox(self._head_path.with_suffix(".outbox"))

    @property
    def has_outbox(self) -> bool:
        """Whether such lines may wait, under whatever name of a place: a look at one directory."""
        from_outbox = sys.modules.get("cloudgpu.ledger.outbox")  # without it, this process has put nothing into one
        if from_outbox is not None and not self.outbox.is_empty:
            return True
        try:
            return any(name.endswith(".outbox") for name in os.listdir(self._head_path.parent))  # noqa: PTH208  (half the time)
        except OSError:
            return self._head_path.with_suffix(".outbox").exists()

    def is_of(self, outbox: Outbox) -> bool:
        """Say whether what waits there was done on this very ledger: an older copy lacks the line known there."""
        from cloudgpu.ledger.doubt import of_past
        from cloudgpu.ledger.head import Head, read_head

        record = read_head(outbox.path.with_suffix(".head"), self._patience)
        if not isinstance(record, Head):
            return False
        return self._read(lambda found: found is not None and of_past(found, self.place, record) is None)

    def remembered(self) -> Record:
        """Return this client's head record."""
        return self._told_record()

    def remembered_id(self) -> str:
        """Return the ledger's id as this client has seen it last; empty for never. Asks the head record alone."""
        return str(getattr(self.remembered(), "ledger", ""))

    def machines(self) -> list[Row]:
        """Return every machine's current row, oldest first."""
        return self._read(lambda connection: [] if connection is None else self._parsed.machines(connection))

    def machine(self, id: str) -> Row | None:  # noqa: A002
        """Return one machine's current row, or None."""
        return self._read(lambda connection: None if connection is None else self._parsed.machine(connection, id))

    def bills(self) -> list[Row]:
        """Return the row of everything that costs or has cost, oldest first."""
        return self._read(lambda connection: [] if connection is None else self._parsed.bills(connection))

    def uses(self, since: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (subject, use) for what has ended and was billed after `since`; "": all."""
        yield from self._read(lambda found: [] if found is None else list(projection.uses(found, since)))

    def read(self, look: Callable[[View], T]) -> T:
        """Return what `look` finds, all of it as of the same line, whoever appends meanwhile."""

        def looked(connection: Connection | None) -> T:
            if connection is None:
                return look(self)
            with self._store.snapshot():
                self._is_looking = True
                try:
                    return look(self)
                finally:
                    self._is_looking = False

        return self._read(looked)

    def head(self) -> tuple[int, str, str]:
        """Return (seq, hash, recorded_at) of the last line; seq 0 where there is none."""
        return self._read(
            lambda connection: (0, "", "") if connection is None else lines.end_of(connection), missing_ok=True
        )

    def last(self, subject: str) -> Event | None:
        """Return the latest line of one subject, or None."""
        return self._read(lambda connection: None if connection is None else lines.last_of(connection, subject))

    def events(self, subject: str | None = None) -> Iterator[Event]:
        """Yield lines by seq, of one subject or all; what is appended meanwhile comes too."""
        after = 0
        while page := self._page(subject, after):
            yield from page
            after = page[-1].seq

    def said(self, kinds: Collection[str]) -> list[Said]:
        """Return what every line of these kinds says, by seq."""
        return self._read(lambda connection: [] if connection is None else lines.of_kinds(connection, kinds))

    def suspect(self) -> str | None:
        """Return why a part of the past seems to be missing or the clock wrong, or None."""
        from cloudgpu.ledger import doubt

        record = self._told_record()  # before the lines: those that are written meanwhile contradict nothing

        def judged(connection: Connection | None) -> str | None:
            if connection is None:
                return doubt.of_missing(self.place, record)
            return doubt.of_past(connection, self.place, record) or doubt.of_clock(connection, self._clock())

        return self._read(judged, missing_ok=True)

    def moved(self) -> Mark | None:
        """Return why this is not the ledger any more, or not yet; None for one that is in use.

        A client that has once heard that the ledger moved knows it without the old place.
        """
        from cloudgpu.ledger import marks

        known = marks.mark_of(self.remembered())
        if known is not None:
            return known
        found = self.marked()
        if found is not None:
            with suppress(LedgerUnavailable):  # heard of again by the next command
                self.learn()
        return found

    def marked(self) -> Mark | None:
        """Return what the last line here says of a move, whatever this client remembers; None for nothing."""
        from cloudgpu.ledger import marks

        return self._read(lambda found: None if found is None else marks.end_and_mark(found)[1], missing_ok=True)

    def learn(self, *, even_in_doubt: bool = False) -> None:
        """Have this client's head record say what the last line here says of a move away.

        A head record that contradicts the lines is left, unless `even_in_doubt`.
        """
        from cloudgpu.ledger import doubt, marks

        def learned(connection: Connection | None) -> None:
            mark = None if connection is None else marks.end_and_mark(connection)[1]
            if connection is None or mark is None or mark.came_from or not mark.to:
                return
            held = self._hold_head()
            try:
                if even_in_doubt or doubt.of_past(connection, self.place, held.read()) is None:
                    _note(held, lines.id_of(connection), mark)
            finally:
                held.let_go()

        self._read(learned, missing_ok=True)

    def check_in_use(self) -> None:
        """Raise LedgerMoved for a ledger that has moved away, or that has not arrived yet.

        One that cannot be reached, and of which no move was heard, may be in use: whoever needs it hears that.
        """
        with suppress(faults.LedgerAway):
            self._refuse(self.moved())

    def verify(self) -> Verification:
        """Recompute the chain; compare head record, guards and projection. At most 20 faults of the chain are named."""
        from cloudgpu.ledger import doubt
        from cloudgpu.ledger.base import Verification

        record = self._told_record()

        def judged(connection: Connection | None) -> Verification:
            if connection is None:
                missing = doubt.of_missing(self.place, record)
                return Verification(0, "", (missing,) if missing else ())
            with self._store.snapshot():
                return doubt.verification(connection, self.place, record, self._store.missing_guards())

        return self._read(judged, missing_ok=True)

    def append(self, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        """Write these lines in one transaction; a draft whose dedupe stands already is left out."""
        return self.decide(lambda _view: drafts)

    def append_to(self, row: Row, drafts: Sequence[Draft]) -> Row:
        """Write these lines; return this machine's row as it stands then, `row` where no such machine is known."""
        self.append(drafts)
        return self.machine(row["id"]) or row

    def decide(self, decision: Callable[[View], Sequence[Draft]]) -> tuple[Event, ...]:
        """Call `decision` under the append lock and write what it returns in the same transaction."""
        from cloudgpu.ledger.doubt import undoubted_id

        with self._writing() as (connection, held, record, start):
            drafts = decision(self)  # outside of `told`: what it raises passes through as it is
            with self._store.told():
                ledger = undoubted_id(connection, self.place, record, start)
                written, end = self._write(connection, drafts, start)
                self._store.commit(end)
                self._states_at = end[1]
            if ledger is not None:
                # The lines stand: a head record that could not follow is no failure of theirs, the next one heals it.
                with suppress(OSError):
                    held.write(ledger, *end)
        return written

    def settle(self, why: str) -> Event:
        """Write `ledger_settled` and take the present end and time as the true ones; make a missing ledger anew."""
        found = self.suspect()
        with self._writing(anew=True) as (connection, held, _, start), self._store.told():
            draft = self._own_draft("ledger_settled", {"found": found, "why": why}, f"ledger_settled:{start[0] + 1}")
            (written,), end = self._write(connection, [draft], start)
            ledger = lines.id_of(connection)
            self._store.commit(end)
            held.replace(ledger, *end)
        return written

    def rebuild(self) -> None:
        """Fold the projection again from the lines, and put back guards that were taken off."""
        from cloudgpu.ledger.folding import rebuild

        with self._writing() as (connection, _held, _record, end), self._store.told():
            rebuild(connection)
            self._store.restore_guards()
            self._store.commit(end)
            self._parsed.forget()

    def copy_to(self, path: Path) -> None:
        """Write a consistent copy of the ledger, as one SQLite file, into the empty file `path`."""
        with self._own, self._store.told():
            self._store.copy_to(path)

    def replace(self, source: sqlite3.Connection, check: Callable[[Connection | None], None], copy: Copy) -> str | None:
        """Set the ledger aside and put the lines of `source` in its place; return where the old one stands.

        The head record stays. Where there was none, a line says that what came after the copy is not known.
        Raises LedgerMoved where the ledger has moved away: it is not brought back to life under those who left.
        """
        from cloudgpu.ledger import marks

        def checked(present: Connection | None) -> None:
            mark = None if present is None else marks.end_and_mark(present)[1]
            self._refuse(mark or marks.mark_of(record))
            check(present)

        with self._own:
            held = self._hold_head()
            try:
                record, now = held.read(), self._clock()
                with self._store.told():
                    aside = self._store.replace(source, checked, f"{now:%Y%m%dt%H%M%Sz}")
            finally:
                held.let_go()
        if record is None:
            why = f"It was restored from a backup that ends at line {copy.lines}, recorded at {copy.recorded_at}."
            body = {"why": why, "seq": copy.lines}
            self.append([self._own_draft("ledger_doubted", body, f"restored:{copy.head_hash}:{now.timestamp()}")])
        return aside

    @contextmanager
    def looked_at(self) -> Iterator[Connection]:
        """Give the lines as they stand now, whoever appends meanwhile. Raises LedgerUnavailable for none."""
        with self._own, self._store.told():
            connection = self._reader(missing_ok=False)
            if connection is None:
                raise faults.empty(self.place)
            with self._store.snapshot():
                yield connection

    def fill(self, pour: Callable[[Connection, Callable[[], None]], Draft]) -> str:
        """Have `pour` write another ledger's lines here, in one transaction, and the line that it returns behind them.

        Return that line's hash. A place without tables is given them. `pour` is also given what takes the last line
        off, where that is a mark of a move. The head record stays as it is.
        """
        filled: list[str] = []

        def poured(connection: Connection) -> None:
            with self._store.as_owner():
                draft = pour(connection, self._store.take_off_mark)
                filled.append(self._write(connection, [draft], lines.end_of(connection))[1][1])

        with self._own:
            held = self._hold_head()
            try:
                with self._store.told():
                    connection = self._store.begin()
                    if connection is None:
                        self._store.create(poured)
                    else:
                        poured(connection)
                        self._store.commit(lines.end_of(connection))
            finally:
                self._store.undo()
                held.let_go()
                self._parsed.forget()
        if not filled:  # another client has made it meanwhile
            raise faults.vanished(self.place)
        return filled[0]

    @contextmanager
    def leaving(self) -> Iterator[tuple[Connection, Callable[[dict[str, Any]], None]]]:
        """Hold off every writer; give the lines, and what writes the last one, which says where the ledger stands."""
        from cloudgpu.ledger.marks import MOVED

        with self._writing() as (connection, _held, _record, start):

            def leave(body: dict[str, Any]) -> None:
                with self._store.told():
                    draft = self._own_draft(MOVED, body, f"{MOVED}:{start[0] + 1}")
                    _, end = self._write(connection, [draft], start)
                    self._store.commit(end)

            yield connection, leave

    def arrive(self, check: Callable[[Connection, lines.End, Mark | None], str]) -> None:
        """Take the ledger into use here, and have this client's head record know it.

        `check` is given the lines, their end and their mark, raises where this is not the ledger that has moved, and
        returns where that came from. A head record that knows more than stands here is left, and so is the doubt.
        """
        from cloudgpu.ledger import doubt, marks

        with self._writing(marked=True) as (connection, held, record, start):
            end = start
            mark = marks.end_and_mark(connection)[1]
            came_from = check(connection, start, mark)
            with self._store.told():
                if mark is not None:
                    draft = self._own_draft(marks.ARRIVED, {"from": came_from}, f"{marks.ARRIVED}:{end[0] + 1}")
                    _, end = self._write(connection, [draft], end)
                self._store.commit(end)
                if marks.mark_of(record) or doubt.of_past(connection, self.place, record) is None:
                    held.replace(lines.id_of(connection), *end)

    def retire(self, ledger: str, mark: Mark) -> None:
        """Have this client's head record say where the ledger stands now, whatever is put here later."""
        with self._own, self._store.told():
            held = self._hold_head()
            try:
                _note(held, ledger, mark)
            finally:
                held.let_go()

    def hold(self, name: str, *, wait: bool | float) -> AbstractContextManager[None]:
        """Hold the lock `name` alone among this ledger's clients on other machines, as `ledger.locks.hold` here."""
        return self._store.hold(name, wait)

    def held(self, name: str) -> bool:
        """Say whether a living client of this ledger on another machine holds the lock `name`."""
        with self._own, self._store.told():
            return self._store.held(name)

    def check_hold(self, name: str) -> None:
        """Raise LedgerUnavailable where this client held the lock `name` by `hold` and has lost it unawares."""
        self._store.check_hold(name)

    def role(self) -> Role:
        """Return what this client's user may do here; ALONE where no team shares the ledger."""
        return self._read(lambda _: self._store.who(), missing_ok=True)[0]

    def person(self) -> str:
        """Return the database user by whose name a team knows this client; "" where no team shares the ledger."""
        return self._read(lambda _: self._store.who(), missing_ok=True)[1]

    def members(self) -> tuple[str, ...]:
        """Return the database users who may write, payers too, by name; none where no team shares the ledger."""
        return self._read(lambda _: self._store.members(), missing_ok=True)

    def payers(self) -> tuple[str, ...]:
        """Return the database users who have the payer's role, by name; none where no team shares the ledger."""
        return self._read(lambda _: self._store.payers(), missing_ok=True)

    def sharing(self) -> Sharing | None:
        """Return how a team shares the ledger, and what it lacks; None for a ledger that no team can share."""
        return self._read(lambda _: self._store.sharing(), missing_ok=True)

    def share(self, wish: Wish) -> Sharing:
        """Make the ledger a team's, or a team as is wished, as far as this user may; return how it stands then."""
        from cloudgpu.ledger.teams import not_shareable

        if not self._store.takes_teams:
            raise not_shareable(self.place)
        self.append(())  # makes the tables where there are none
        found = self._read(lambda _: self._store.give(wish))
        team = found.team
        if team is None or not found.is_whole:
            return found
        self.decide(lambda view: self._begun_by(team, view))
        now = self._read(lambda _: self._store.sharing(wish))
        return replace(now, remarks=found.remarks) if now else found

    def _begun_by(self, team: Team, view: View) -> list[Draft]:
        """Write down the team under the append lock, and return the line that says so, where it is another one."""
        from cloudgpu.core.roles import TEAM_SET, TEAM_SUBJECT

        self._store.restore_guards()
        if not self._store.put_team(team):
            return []
        body = {"members": team.members, "payers": team.payers}
        return [replace(self._own_draft(TEAM_SET, body, f"{TEAM_SET}:{view.head()[0] + 1}"), subject=TEAM_SUBJECT)]

    def close(self) -> None:
        """Let go of the database."""
        with self._own, self._store.told():
            self._store.close()

    def _read(self, look: Callable[[Connection | None], T], *, missing_ok: bool = False) -> T:
        """Return what `look` finds, once more over a new connection where the first was lost meanwhile.

        It is given None where there is no ledger yet; one that has been there is missed aloud, unless `missing_ok`.
        Raises LedgerLeft where nothing can be read and this client knows that the ledger has moved.
        """
        try:
            return self._looked(look, missing_ok=missing_ok)
        except LedgerUnavailable as fault:
            raise self._known_left(fault) from fault.__cause__

    def _known_left(self, fault: LedgerUnavailable) -> LedgerUnavailable:
        """Return that the ledger has moved where this client knows that, else the fault itself."""
        from cloudgpu.ledger.marks import left, mark_of

        mark = None
        with suppress(LedgerUnavailable):
            mark = mark_of(self.remembered())
        return fault if mark is None else left(mark, self.place)

    def _looked(self, look: Callable[[Connection | None], T], *, missing_ok: bool) -> T:
        with self._own, self._store.told():
            try:
                return look(self._reader(missing_ok=missing_ok))
            except Exception:
                if self._store.is_writing or self._is_looking or not self._store.is_lost:
                    raise
                self._store.close()
            return look(self._reader(missing_ok=missing_ok))

    def _reader(self, *, missing_ok: bool) -> Connection | None:
        connection = self._store.reader()
        if connection is None and not missing_ok:
            record = self._record()
            connection = self._store.reader()  # again: it may have been made between the two looks
            if connection is None:
                self._miss(record)
        return connection

    def _page(self, subject: str | None, after: int) -> list[Event]:
        return self._read(lambda connection: [] if connection is None else lines.page_of(connection, subject, after))

    @contextmanager
    def _writing(
        self, *, anew: bool = False, marked: bool = False
    ) -> Iterator[tuple[Connection, HeldHead, Record, lines.End]]:
        """Hold the head record and the database's lock inside a transaction; what is not committed is undone.

        Raises LedgerMoved for a ledger that is not in use at this place, unless it may be `marked`.
        """
        from cloudgpu.ledger import marks

        with self._own:
            if self._store.is_writing or self._is_looking:
                raise faults.nested(self.place)
            with self._store.told():
                self._store.reader()  # the place is judged before a file is made
                held = self._hold_head()
            try:
                with self._store.told():
                    record = held.read()
                    known = None if marked else marks.mark_of(record)
                    if known is not None and self._store.reader() is None:
                        self._refuse(known)
                    connection = self._begun(record, anew=anew)
                    end, mark = marks.end_and_mark(connection)
                if not marked:
                    self._refuse(mark or (known and replace(known, since="")))
                yield connection, held, record, end
            finally:
                self._store.undo()
                held.let_go()

    def _refuse(self, mark: Mark | None) -> None:
        if mark is not None:
            from cloudgpu.ledger.marks import refusal

            raise refusal(mark, self.place)

    def _hold_head(self) -> HeldHead:
        from cloudgpu.ledger.head import hold_head

        return hold_head(self._head_path, self._patience)

    def _begun(self, record: Record, *, anew: bool) -> Connection:
        connection = self._store.begin()
        if connection is None:
            self._make(record, anew=anew)
            connection = self._store.begin()
        if connection is None:
            self._miss(record)
            raise faults.vanished(self.place)
        return connection

    def _make(self, record: Record, *, anew: bool) -> None:
        if not anew:
            self._miss(record)
        ledger = getattr(record, "ledger", None) or os.urandom(8).hex()
        opened = self._own_draft("ledger_opened", {"ledger": ledger}, "ledger_opened")
        self._store.create(lambda connection: self._write(connection, [opened], lines.end_of(connection)))

    def _own_draft(self, kind: str, body: dict[str, Any], dedupe: str) -> Draft:
        from cloudgpu.core.events import Draft

        return Draft(kind, "ledger", body, self._clock(), dedupe)

    def _write(
        self, connection: Connection, drafts: Sequence[Draft], start: lines.End
    ) -> tuple[tuple[Event, ...], lines.End]:
        from cloudgpu.core.times import iso
        from cloudgpu.ledger.appending import append_lines
        from cloudgpu.ledger.folding import refresh

        states = self._states if self._states_at == start[1] else {}
        self._states_at = None  # until these lines stand
        actor = self._store.signature or self._actor
        written, end = append_lines(connection, drafts, start, actor=actor, recorded_at=iso(self._clock()))
        refresh(connection, written, states)
        while len(states) > _REMEMBERED:
            del states[next(iter(states))]
        self._states = states
        return written, end

    def _told_record(self) -> Record:
        with self._own, self._store.told():
            return self._record()

    def _record(self) -> Record:
        from cloudgpu.ledger.head import read_head

        return read_head(self._head_path, self._patience)

    def _miss(self, record: Record) -> None:
        from cloudgpu.ledger.doubt import of_missing
        from cloudgpu.ledger.marks import left, mark_of

        mark = mark_of(record)
        if mark is not None:
            raise left(mark, self.place)
        sentence = of_missing(self.place, record)
        if sentence is not None:
            raise faults.missing(self.place, sentence)


def _note(held: HeldHead, ledger: str, mark: Mark) -> None:
    held.replace(ledger, *mark.last[:2], mark.since, moved=mark.to, goes_on=mark.goes_on)
