"""What a ledger store promises, whatever database it stands on."""

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
    from pathlib import Path

    from cloudgpu.core.billing.rate_timeline import RateInterval
    from cloudgpu.core.budgets.exposure import Exposure
    from cloudgpu.core.team.rights import Role
    from cloudgpu.ledger.log.marks import Mark
    from cloudgpu.ledger.log.outbox import Outbox
    from cloudgpu.ledger.log.sql import Connection
    from cloudgpu.ledger.log.teams import Sharing, TeamRequest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found: how many lines, the last hash, and a sentence per fault (none: all is well).

    `rebuildable`: the lines are right, and what is kept beside them is not; `rebuild` makes that anew.
    """

    lines: int
    head_hash: str
    faults: tuple[str, ...]
    rebuildable: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    """What a copy holds: the ledger's id, how many lines, hash and time of the last one."""

    path: Path
    ledger: str
    lines: int
    head_hash: str
    recorded_at: str


class View(Protocol):
    """The ledger as it stands, read inside or outside the append lock."""

    @property
    def id(self) -> str:
        """The ledger's id; empty before its first line."""
        ...

    def machines(self) -> list[Machine]:
        """Return every machine's present record (`core.events.projection`), living and ended, oldest first."""
        ...

    def present_machines(self) -> list[Machine]:
        """Return the records of the machines that live or of which something is kept, and the oldest; oldest first."""
        ...

    def machine(self, id: str) -> Machine | None:  # noqa: A002
        """Return one machine's row by its cloudgpu-id."""
        ...

    def launched(self, key: str) -> list[Machine]:
        """Return the records of the machines that were launched by this key: one, or none."""
        ...

    def names(self) -> list[tuple[str, str]]:
        """Return name and launch key of each machine that lives or of which something is kept."""
        ...

    def billable_machines(self) -> list[Machine]:
        """Return the rows of everything that costs or has cost: machines and things kept by name, oldest first."""
        ...

    def uses(self, since: str = "", *, unpriced: bool = False) -> Iterator[tuple[str, Usage]]:
        """Yield (subject, use) for what has ended and was billed after `since` (a ledger time); "": all.

        `unpriced`: only what has no price. What is billed still stands in the rows. A usage is
        `core.model.usage.Usage`.
        """
        ...

    def exposures(self) -> list[Exposure | Machine]:
        """Return what budgets count of all `billable_machines`, or its row where they evaluate that; oldest first."""
        ...

    def billed(self, since: str = "") -> list[tuple[str, list[RateInterval] | Usage]]:
        """Return `uses`, as rate intervals of what each has cost at most; those without a price as they are."""
        ...

    def said(self, kinds: Collection[str]) -> list[EventSummary]:
        """Return what every line of these kinds says, by seq; `dedupe` is left empty."""
        ...

    def head(self) -> tuple[int, str, str]:
        """Return (seq, hash, recorded_at) of the last line; seq 0 for an empty ledger."""
        ...


class Ledger(View, Protocol):
    """An append-only record with projections kept in the append's own transaction.

    Every method raises LedgerUnavailable when the store cannot be read or written (full disk, damaged file),
    InvalidRequest when it stands where it must not (a network file system). Every method that writes raises LedgerMoved
    where the ledger is not in use: that is decided under the lock of the write itself.
    """

    @property
    def location(self) -> str:
        """Where the ledger stands: a file, or a database without its password."""
        ...

    @property
    def outbox(self) -> Outbox:
        """Where lines wait in this home while the ledger is away."""
        ...

    @property
    def has_outbox(self) -> bool:
        """Whether such lines may wait, under whatever name of a place: a look at one directory."""
        ...

    def remembered_id(self) -> str:
        """Return the ledger's id as this home has seen it last; empty for never. Asks no database."""
        ...

    def append(self, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        """Write these lines in one transaction; a draft whose dedupe stands already is left out."""
        ...

    def append_to(self, machine: Machine, drafts: Sequence[Draft]) -> Machine:
        """Write these lines as `append` does, and return this machine's row as it stands then.

        `machine` says which is meant. The lines may be about other subjects too, and may all stand already. `machine`
        itself is returned where the ledger knows no such machine: for a thing kept by name, or for one that was found
        by its tags alone.
        """
        ...

    def decide(self, decision: Callable[[View], Sequence[Draft]]) -> tuple[Event, ...]:
        """Call `decision` under the append lock and write what it returns in the same transaction.

        What `decision` raises ends the transaction and passes through; nothing is written then.
        """
        ...

    def read(self, look: Callable[[View], T]) -> T:
        """Return what `look` finds, all of it as of the same line, whoever appends meanwhile; `look` writes nothing."""
        ...

    def events(self, subject: str | None = None) -> Iterator[Event]:
        """Yield lines by seq, of one subject or all."""
        ...

    def last(self, subject: str) -> Event | None:
        """Return the latest line of one subject, or None."""
        ...

    def integrity_problem(self) -> str | None:
        """Return why a part of the past seems to be missing or the clock wrong, or None. Cheap; reads heads only."""
        ...

    def clock_problem(self) -> str | None:
        """Return how this computer's clock contradicts that of the ledger's database, or None; None for a file."""
        ...

    def moved(self) -> Mark | None:
        """Return why this is not the ledger any more, or not yet; None for one that is in use. Cheap."""
        ...

    def check_in_use(self) -> None:
        """Raise LedgerMoved for a ledger that has moved away, or that has not arrived yet: it is read alone."""
        ...

    def verify(self) -> Verification:
        """Recompute the whole chain, compare the head record and the projections."""
        ...

    def settle(self, why: str) -> Event:
        """Write `ledger_settled` and take the present end as the true one (after a verify and a listing)."""
        ...

    def rebuild(self) -> None:
        """Drop the projections and fold them again from the lines."""
        ...

    def copy_to(self, path: Path) -> None:
        """Write a consistent copy of the ledger, as one SQLite file, into the empty file `path`."""
        ...

    def replace(self, source: sqlite3.Connection, check: Callable[[Connection | None], None], copy: Copy) -> str | None:
        """Set the ledger aside and put the lines of `source` in its place; return where the old one stands.

        `check` is given what stands now, None for nothing that can be read; what it raises ends all, unchanged.
        """
        ...

    def lock(self, name: str, *, wait: bool | float) -> AbstractContextManager[None]:
        """Hold the lock `name` alone among this ledger's clients on other machines, while this process lives.

        Among those of one home, `ledger.log.locks` does that: whoever wants both takes both, as `Session.hold`. Waits
        for ever (True), not at all, or so many seconds; raises ProviderUnavailable when another holds it to the end.
        """
        ...

    def is_locked(self, name: str) -> bool:
        """Say whether a living client of this ledger on another machine holds the lock `name`."""
        ...

    def check_lock(self, name: str) -> None:
        """Raise LedgerUnavailable where this client held the lock `name` and has lost it unawares."""
        ...

    def role(self) -> Role:
        """Return what this client's user may do here; ALONE where no team shares the ledger."""
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
        """Make the ledger a team's, or a team as is requested, as far as this user may; return how it stands then.

        What another user has to give stays missing: nothing is a team's before its roles have their rights.
        Raises InvalidRequest for a ledger that no team can share, RoleNeeded where its tables are another user's.
        """
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...
