"""The interface of a ledger store, for every database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from cloudgpu.core.events.log import Draft, Event, EventSummary
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Usage

if TYPE_CHECKING:
    import sqlite3
    from datetime import datetime
    from pathlib import Path

    from cloudgpu.core.billing.rules import RateInterval
    from cloudgpu.core.budgets.exposure import Exposure
    from cloudgpu.core.team.rights import Role
    from cloudgpu.ledger.log.head import MoveMark
    from cloudgpu.ledger.log.lines import Verification
    from cloudgpu.ledger.log.outbox import Outbox
    from cloudgpu.ledger.log.sql import Connection
    from cloudgpu.ledger.log.teams import Sharing, TeamRequest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LedgerCopy:
    """A copy of the ledger in a SQLite file: the ledger's id, the number of lines, hash and time of the last one."""

    path: Path
    ledger_id: str
    line_count: int
    head_hash: str
    recorded_at: str


class View(Protocol):
    """What can be read of a ledger, inside or outside the append lock."""

    @property
    def id(self) -> str:
        """The ledger's id; empty before its first line."""
        ...

    def machines(self) -> list[Machine]:
        """Return every machine's present record (`core.events.projection`), living and ended, oldest first."""
        ...

    def present_machines(self) -> list[Machine]:
        """Return the records of living machines, those with retained resources, and the very first; oldest first."""
        ...

    def machine(self, id: str) -> Machine | None:  # noqa: A002
        """Return one machine's record by its cloudgpu-id."""
        ...

    def launched(self, key: str) -> list[Machine]:
        """Return the records of the machines that were launched with this launch key: one, or none."""
        ...

    def names(self) -> list[tuple[str, str]]:
        """Return name and launch key of each living machine and each with retained resources."""
        ...

    def billable_machines(self) -> list[Machine]:
        """Return the records of all that costs or has cost: machines and named resources, oldest first."""
        ...

    def ended_usages(self, since: str = "", *, unpriced: bool = False) -> Iterator[tuple[str, Usage]]:
        """Yield (subject, usage) of ended usages that were billed after `since` (a ledger time); "": all.

        `unpriced`: only those without a price. Open usages are in the machines' records.
        """
        ...

    def exposures(self) -> list[Exposure | Machine]:
        """Return the cost that budgets count for each of `billable_machines`; its record if they need that.

        The oldest one comes first.
        """
        ...

    def billed_costs(self, since: str = "") -> list[tuple[str, list[RateInterval] | Usage]]:
        """Return (subject, rate intervals of its maximal cost) of `ended_usages`; without a price, the usage."""
        ...

    def summaries(self, kinds: Collection[str]) -> list[EventSummary]:
        """Return the events of these kinds by seq, without their hashes; `dedupe` is left empty."""
        ...

    def head(self) -> tuple[int, str, str]:
        """Return (seq, hash, recorded_at) of the last line; seq 0 for an empty ledger."""
        ...


class Ledger(View, Protocol):
    """An append-only record with projections kept in the append's own transaction.

    A line's subject is the id of what it is about (a machine, a resource, a job, an account), its `dedupe` a key under
    which it is written only once.

    Every method raises LedgerUnavailable when the store cannot be read or written (full disk, damaged file),
    InvalidRequest when it stands where it must not (a network file system). Every method that writes raises LedgerMoved
    where the ledger is not in use: that is decided under the lock of the write itself.
    """

    @property
    def location(self) -> str:
        """The ledger's file, or its database's address without the password."""
        ...

    @property
    def outbox(self) -> Outbox:
        """The local queue of lines that wait for an unavailable ledger."""
        ...

    @property
    def has_outbox(self) -> bool:
        """Whether lines may wait in any outbox of this home; reads one directory."""
        ...

    def server_now(self) -> datetime | None:
        """Return what time it is by the ledger's server; None where it has none, or its clock does not count."""
        ...

    def remembered_id(self) -> str:
        """Return the ledger's id as this home saw it last; empty if never. Queries no database."""
        ...

    def append(self, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        """Write these lines in one transaction; skip a draft whose `dedupe` exists already."""
        ...

    def append_to(self, machine: Machine, drafts: Sequence[Draft]) -> Machine:
        """Write these lines as `append` does, and return this machine's record after them.

        The lines may be about other subjects too, and may all exist already. `machine` itself is returned if the ledger
        has no such machine: for a named resource, or a machine known only by its tags.
        """
        ...

    def decide(self, decision: Callable[[View], Sequence[Draft]]) -> tuple[Event, ...]:
        """Append the events that `decision` returns; nobody else appends between its look at the ledger and that.

        It is called under the append lock, and all is one transaction.

        What `decision` raises ends the transaction and passes through; nothing is written then.
        """
        ...

    def read(self, query: Callable[[View], T]) -> T:
        """Return what `query` returns for one consistent state of the ledger; `query` writes nothing."""
        ...

    def events(self, subject: str | None = None) -> Iterator[Event]:
        """Yield lines by seq, of one subject or all."""
        ...

    def last(self, subject: str) -> Event | None:
        """Return the latest line of one subject, or None."""
        ...

    def integrity_problem(self) -> str | None:
        """Return why lines seem to be missing or the clock wrong, or None. Cheap; reads heads only."""
        ...

    def clock_problem(self) -> str | None:
        """Return how this computer's clock contradicts that of the ledger's database, or None; None for a file."""
        ...

    def moved(self) -> MoveMark | None:
        """Return the mark of a ledger that has moved away or not arrived yet; None if it is in use. Cheap."""
        ...

    def check_in_use(self) -> None:
        """Raise LedgerMoved for a ledger that has moved away or not arrived yet: it is read-only."""
        ...

    def verify(self) -> Verification:
        """Recompute the whole chain, compare the head record and the projections."""
        ...

    def settle(self, why: str, *, followed_by: Draft | None = None) -> Event:
        """End an integrity problem: write `ledger_settled`, accept the present last entry as the right one.

        A ledger without entries begins with that one. `why` says what was verified before that. `followed_by` is
        written with it, as the last entry: the ledger exists again, and what it lacks is still to be looked for. It
        settles no launch: that is `control.inventory.settle`.
        """
        ...

    def rebuild(self) -> None:
        """Drop the projections and fold them again from the lines."""
        ...

    def copy_to(self, path: Path) -> None:
        """Write a consistent copy of the ledger, as one SQLite file, into the empty file `path`."""
        ...

    def replace(
        self, source: sqlite3.Connection, check: Callable[[Connection | None], None], copy: LedgerCopy
    ) -> str | None:
        """Move the ledger aside and put the lines of `source` in its place; return the old one's path.

        `check` is called with the present ledger, None if it cannot be read; if it raises, nothing is changed.
        """
        ...

    def lock(self, name: str, *, wait: bool | float) -> AbstractContextManager[None]:
        """Hold the lock `name` exclusively among this ledger's clients on all computers, while this process lives.

        `ledger.log.files` does so for the processes of one home; `Session.lock` takes both. Waits
        for ever (True), not at all, or so many seconds; raises LockBusy when another holds it to the end.
        """
        ...

    def is_locked(self, name: str) -> bool:
        """Say whether a living client of this ledger on another machine holds the lock `name`."""
        ...

    def check_lock(self, name: str) -> None:
        """Raise LedgerUnavailable if this client held the lock `name` and has lost it without notice."""
        ...

    def role(self) -> Role:
        """Return the role of this client's user; ALONE if no team shares the ledger."""
        ...

    def person(self) -> str:
        """Return the database user by whose name a team knows this client; "" where no team shares the ledger."""
        ...

    def members(self) -> tuple[str, ...]:
        """Return the database users who may write, payers too, by name; none where no team shares the ledger."""
        ...

    def payers(self) -> tuple[str, ...]:
        """Return the database users who have the payer's role, by name; none where no team shares the ledger."""
        ...

    def sharing(self) -> Sharing | None:
        """Return how a team shares the ledger, and what it lacks; None for a ledger that no team can share."""
        ...

    def share(self, request: TeamRequest) -> Sharing:
        """Share the ledger with a team, or change the team, as far as this user may; return the resulting state.

        Rights that another user must grant stay missing: the team has no access before its roles have all of them.
        Raises InvalidRequest for a ledger that no team can share, RoleNeeded where its tables are another user's.
        """
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...
