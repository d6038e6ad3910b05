"""A stand-in for an unavailable ledger: its known records, and new lines that wait in the outbox."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from threading import RLock
from typing import TYPE_CHECKING, TypeVar

from cloudgpu.core.billing.charges import billed_until
from cloudgpu.core.events.log import Draft, Event, EventSummary
from cloudgpu.core.events.projection import Projection, project, project_event
from cloudgpu.core.model.machine import Machine, has_retained_resources
from cloudgpu.core.model.usage import Usage, usage_of_record
from cloudgpu.core.team.rights import Role
from cloudgpu.core.values.times import iso
from cloudgpu.errors import LedgerMoved, LedgerUnavailable
from cloudgpu.ledger.log import files
from cloudgpu.ledger.log.lines import canonical
from cloudgpu.ledger.log.machines import select_present

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from cloudgpu.core.billing.rules import RateInterval
    from cloudgpu.core.budgets.exposure import Exposure
    from cloudgpu.ledger.log.base import Ledger, LedgerCopy, View
    from cloudgpu.ledger.log.head import MoveMark
    from cloudgpu.ledger.log.lines import Verification
    from cloudgpu.ledger.log.sql import Connection
    from cloudgpu.ledger.log.teams import Sharing, TeamRequest

T = TypeVar("T")


class StandInLedger:
    """`cloudgpu.ledger.log.base.Ledger` while the `real` one is unavailable with `error`. Several threads may use it.

    If `real` can still be read, its records are used and its locks hold; else `machines` are used. A line goes into
    the outbox first. If that fails, too (`unwritten` says why), only this process knows it.
    """

    def __init__(
        self, real: Ledger, ledger_id: str, error: LedgerUnavailable, machines: Iterable[Machine] = ()
    ) -> None:
        self.error = error
        self.unwritten: OSError | None = None
        self._real, self.outbox, self._ledger_id = real, real.outbox, ledger_id
        self._machines = {machine.id: machine for machine in machines}
        self._lines: dict[str, list[Event]] = {}  # those of the outbox, by subject
        self._dedupes: set[str] = set()
        self._thread_lock = RLock()
        self._head = (0, "", "")  # seq, hash and time of the last line
        self.refused: list[str] = []  # why lines that this process has delivered were refused
        self.is_readable = self._can_read()
        with suppress(OSError):  # it is read again when the ledger is back
            self._add_lines(self.outbox.waiting(ledger_id))

    @property
    def location(self) -> str:
        """Where the unavailable ledger is."""
        return self._real.location

    def server_now(self) -> None:
        """Return None: the time of an unavailable ledger's server is not known."""

    @property
    def id(self) -> str:
        """The ledger's id."""
        return self._ledger_id

    @property
    def has_outbox(self) -> bool:
        """Whether lines wait for the ledger in the outbox."""
        return self._real.has_outbox

    def remembered_id(self) -> str:
        """Return the ledger's id."""
        return self._ledger_id

    def machines(self) -> list[Machine]:
        """Return every machine's record as it is known now."""
        return [machine for machine in self.billable_machines() if not machine.is_named_resource]

    def present_machines(self) -> list[Machine]:
        """Return the records of living machines, those with retained resources, and the oldest one."""
        return select_present(self.machines())

    def machine(self, id: str) -> Machine | None:  # noqa: A002
        """Return one machine's record as it is known now."""
        with self._thread_lock:
            if not self.is_readable:
                return self._machines.get(id)
            found = self._folded(id)
            return self._real.machine(id) if found is None else Machine.of(found.state["row"])

    def launched(self, key: str) -> list[Machine]:
        """Return the records of the machines that were launched by this key."""
        return [machine for machine in self.machines() if machine.key == key]

    def names(self) -> list[tuple[str, str]]:
        """Return name and launch key of each living machine and each with retained resources."""
        return [
            (machine.name, machine.key)
            for machine in self.machines()
            if machine.terminated_at is None or has_retained_resources(machine)
        ]

    def billable_machines(self) -> list[Machine]:
        """Return the records of all that is known to cost or to have cost."""
        with self._thread_lock:
            if not self.is_readable:
                return list(self._machines.values())
            ledger_machines = {machine.id: machine for machine in self._real.billable_machines()}
            waiting = ((subject, self._folded(subject)) for subject in self._lines)
            return list(
                (
                    ledger_machines
                    | {subject: Machine.of(found.state["row"]) for subject, found in waiting if found is not None}
                ).values()
            )

    def ended_usages(self, since: str = "", *, unpriced: bool = False) -> Iterator[tuple[str, Usage]]:
        """Yield usages that have ended and were billed after `since`."""
        if not self.is_readable:
            return
        with self._thread_lock:
            waiting = {subject: found for subject in self._lines if (found := self._folded(subject)) is not None}
        yield from (
            (subject, usage)
            for subject, usage in self._real.ended_usages(since, unpriced=unpriced)
            if subject not in waiting
        )
        for subject, found in waiting.items():
            closed = (usage_of_record(usage) for usage in found.ended_usages if not (unpriced and usage["segments"]))
            yield from ((subject, usage) for usage in closed if billed_until(usage) > since)

    def exposures(self) -> list[Exposure | Machine]:
        """Return the records of all that is known to cost or to have cost; budgets read each of them."""
        return list(self.billable_machines())

    def billed_costs(self, since: str = "") -> list[tuple[str, list[RateInterval] | Usage]]:
        """Return usages that have ended and were billed after `since`."""
        return list(self.ended_usages(since))

    def summaries(self, kinds: Collection[str]) -> list[EventSummary]:
        """Return a summary of every line of these kinds."""
        ledger_summaries = self._real.summaries(kinds) if self.is_readable else []
        with self._thread_lock:
            waiting = [line for lines in self._lines.values() for line in lines if line.kind in kinds]
        ordered = sorted(waiting, key=lambda line: line.seq)
        return ledger_summaries + [
            EventSummary(one.seq, one.occurred_at, one.kind, one.subject, "", one.body) for one in ordered
        ]

    def head(self) -> tuple[int, str, str]:
        """Return seq, hash and time of the last known line."""
        return self._head

    def read(self, query: Callable[[View], T]) -> T:
        """Return what `query` returns."""
        return query(self)

    def events(self, subject: str | None = None) -> Iterator[Event]:
        """Yield the lines that are known, of one subject or all, those of the outbox last."""
        if self.is_readable:
            yield from self._real.events(subject)
        with self._thread_lock:
            waiting = [line for id_, lines in self._lines.items() if subject in (None, id_) for line in lines]
        yield from sorted(waiting, key=lambda line: line.seq)

    def last(self, subject: str) -> Event | None:
        """Return the latest line that is known of one subject."""
        if self._lines.get(subject):
            return self._lines[subject][-1]
        return self._real.last(subject) if self.is_readable else None

    def integrity_problem(self) -> str | None:
        """Return the integrity problem of the real ledger, if it can be read."""
        return self._real.integrity_problem() if self.is_readable else None

    def clock_problem(self) -> str | None:
        """Return what is wrong with this computer's clock, as far as that can be read."""
        return self._real.clock_problem() if self.is_readable else None

    def moved(self) -> MoveMark | None:
        """Return where the ledger has moved, as far as it can be read."""
        return self._real.moved() if self.is_readable else None

    def check_in_use(self) -> None:
        """Raise LedgerMoved where the ledger has moved, as far as it can be read."""
        if self.is_readable:
            self._real.check_in_use()

    def append(self, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        """Write these lines into the outbox and sync them; if that fails, into the ledger, if it accepts them.

        If nothing can be written anywhere, this process remembers them.
        """
        with self._thread_lock:
            new_drafts = [one for one in drafts if one.dedupe not in self._dedupes]
            if not new_drafts:
                return ()
            if self.unwritten is None:
                try:
                    self.outbox.add(self._ledger_id, new_drafts)
                except OSError as error:
                    self.unwritten = error
            else:
                self.outbox.remember(self._ledger_id, new_drafts)
            new_lines = self._add_lines(new_drafts)
            if self.unwritten is not None:
                self.deliver()
            return new_lines

    def append_to(self, machine: Machine, drafts: Sequence[Draft]) -> Machine:
        """Write these lines as `append`; return this machine's record as it is known here, else `machine` itself."""
        self.append(drafts)
        return self.machine(machine.id) or machine

    def deliver(self) -> bool:
        """Write the waiting lines into the ledger, if it accepts lines again; return whether nothing waits any more.

        This is the last chance for lines that a full disk has kept out of the outbox: they end with this process.
        """
        from cloudgpu.ledger.outage.delivery import deliver

        with self._thread_lock:
            if not self.is_readable:
                return False
            try:
                delivered = deliver(self._real, self.outbox, self._ledger_id, wait=True)
            except (LedgerUnavailable, LedgerMoved, OSError):
                return False
            if delivered is None:
                return False
            self._lines.clear()
            self.refused += [why for _, why in delivered.refused]
            return not self.refused

    def decide(self, decision: Callable[[View], Sequence[Draft]]) -> tuple[Event, ...]:
        """Write what the decision returns."""
        with self._thread_lock:
            return self.append(decision(self))

    @contextmanager
    def lock(self, name: str, *, wait: bool | float) -> Iterator[None]:
        """Hold the lock among all homes of this user on this computer, and in the real ledger if that is possible.

        A ledger that cannot be written can mostly still give a lock. If it cannot, its clients on other
        computers are not kept apart, as stops and terminations do not wait for that.
        """
        directory = files.lock_directory()
        with ExitStack() as locks:
            with suppress(LedgerUnavailable):
                if directory is not None:
                    locks.enter_context(files.lock(directory, name, wait=wait, ledger_id=self._ledger_id))
            with suppress(LedgerUnavailable):
                if self.is_readable:
                    locks.enter_context(self._real.lock(name, wait=wait))
            yield

    def is_locked(self, name: str) -> bool:
        """Return whether a living process is known to hold the lock."""
        directory = files.lock_directory()
        with suppress(LedgerUnavailable):
            if directory is not None and files.is_locked(directory, name, ledger_id=self._ledger_id):
                return True
        with suppress(LedgerUnavailable):
            return self.is_readable and self._real.is_locked(name)
        return False

    def check_lock(self, name: str) -> None:
        """Raise LedgerUnavailable if the real ledger gave the lock and has lost it."""
        self._real.check_lock(name)

    def verify(self) -> Verification:
        """Raise the error that makes the ledger unavailable."""
        raise self.error

    def settle(self, why: str, *, followed_by: Draft | None = None) -> Event:  # noqa: ARG002
        """Raise the error that makes the ledger unavailable."""
        raise self.error

    def rebuild(self) -> None:
        """Raise the error that makes the ledger unavailable."""
        raise self.error

    def copy_to(self, path: Path) -> None:  # noqa: ARG002
        """Raise the error that makes the ledger unavailable."""
        raise self.error

    def replace(
        self,
        source: sqlite3.Connection,  # noqa: ARG002
        check: Callable[[Connection | None], None],  # noqa: ARG002
        copy: LedgerCopy,  # noqa: ARG002
    ) -> str | None:
        """Raise the error that makes the ledger unavailable."""
        raise self.error

    def role(self) -> Role:
        """Return what this client's user may do; ALONE if that cannot be read: then only the cloud decides."""
        return self._real.role() if self.is_readable else Role.ALONE

    def person(self) -> str:
        """Return the database user by whose name a team knows this client; "" where that cannot be read."""
        return self._real.person() if self.is_readable else ""

    def members(self) -> tuple[str, ...]:
        """Return the database users who may write; none where that cannot be read."""
        return self._real.members() if self.is_readable else ()

    def payers(self) -> tuple[str, ...]:
        """Return the database users who have the payer's role; none where that cannot be read."""
        return self._real.payers() if self.is_readable else ()

    def sharing(self) -> Sharing | None:
        """Return how a team shares the ledger; None where that cannot be read."""
        return self._real.sharing() if self.is_readable else None

    def share(self, request: TeamRequest) -> Sharing:  # noqa: ARG002
        """Raise the error that makes the ledger unavailable."""
        raise self.error

    def close(self) -> None:
        """Do nothing: the real ledger is closed by whoever opened it."""

    def _can_read(self) -> bool:
        try:
            self._head = self._real.head()
            self._real.billable_machines()
        except LedgerUnavailable:
            return False
        return True

    def _add_lines(self, drafts: Iterable[Draft]) -> tuple[Event, ...]:
        new_lines = []
        for draft in drafts:
            if draft.dedupe in self._dedupes:
                continue
            self._dedupes.add(draft.dedupe)
            line = self._event(draft)
            self._lines.setdefault(draft.subject, []).append(line)
            if draft.subject in self._machines:
                self._machines[draft.subject] = project_event(self._machines[draft.subject], draft)
            new_lines.append(line)
        return tuple(new_lines)

    def _event(self, draft: Draft) -> Event:
        self._head = (self._head[0] + 1, "", iso(draft.occurred_at))
        occurred_at, body = self._head[2], json.loads(canonical(draft.body))
        return Event(
            self._head[0], occurred_at, draft.clock, occurred_at, "", draft.kind, draft.subject, draft.dedupe, "", body
        )

    def _folded(self, subject: str) -> Projection | None:
        """Return a subject's state folded with the lines of the outbox; None if those have none of it."""
        if subject not in self._lines:
            return None
        ledger_events = list(self._real.events(subject))
        recorded_dedupes = {line.dedupe for line in ledger_events}  # another command may have delivered what waited
        return project(
            [*ledger_events, *(line for line in self._lines[subject] if line.dedupe not in recorded_dedupes)]
        )
