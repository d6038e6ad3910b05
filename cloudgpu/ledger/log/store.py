"""The interface of a database that stores a ledger: open, lock, commit, restore triggers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import sqlite3
    from datetime import datetime
    from pathlib import Path

    from cloudgpu.core.team.rights import Role
    from cloudgpu.ledger.log.lines import LastLine
    from cloudgpu.ledger.log.sql import Connection
    from cloudgpu.ledger.log.teams import Sharing, Team, TeamRequest


class Store(Protocol):
    """One database and this process's connection to it. Used by one thread at a time.

    Triggers of the database refuse to change or delete lines; users read of them as guards. A team is the database
    users who share the ledger.
    """

    @property
    def location(self) -> str:
        """Where the ledger is, for a sentence; never with a password."""
        ...

    @property
    def is_writing(self) -> bool:
        """Whether a transaction that appends is open."""
        ...

    @property
    def is_connection_lost(self) -> bool:
        """Whether the connection broke, though the database may still be available."""
        ...

    def translated(self) -> AbstractContextManager[None]:
        """Raise LedgerUnavailable about this ledger for every error of the database and the system in this block."""
        ...

    def reader(self) -> Connection | None:
        """Return a connection to a ledger of the present schema; None if there is none yet. Creates nothing."""
        ...

    def begin(self) -> Connection | None:
        """Take the append lock in a new transaction and return its connection; None where there is no ledger yet."""
        ...

    def create(self, fill: Callable[[Connection], object]) -> None:
        """Make the ledger with what `fill` writes, in one transaction, unless another client just did."""
        ...

    def commit(self, last_line: LastLine) -> None:
        """End the transaction, whose last line is `last_line`, for good."""
        ...

    def rollback(self) -> None:
        """Roll back what is not committed, if there is something. Raises nothing."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Read one consistent state inside the block, whoever writes meanwhile."""
        ...

    def missing_triggers(self) -> list[str]:
        """Return the names of triggers that were removed or changed."""
        ...

    def restore_triggers(self) -> None:
        """Put back the triggers that are missing, inside the open transaction."""
        ...

    def without_actor_check(self) -> AbstractContextManager[None]:
        """Allow lines with other actors in the open transaction, as only the owner of the tables may."""
        ...

    def delete_move_mark(self) -> None:
        """Delete the last line, which has to be a mark of a move, inside the open transaction."""
        ...

    def copy_to(self, path: Path) -> None:
        """Write a consistent copy of the ledger, as one SQLite file, into the empty file `path`."""
        ...

    def replace(
        self, source: sqlite3.Connection, check: Callable[[Connection | None], None], name_suffix: str
    ) -> str | None:
        """Move the present ledger aside and put the lines of `source` in its place; return where the old one is.

        `check` gets a connection to the present ledger, None if it cannot be read; if it raises, nothing is changed.
        `name_suffix` ends the old one's new name.
        """
        ...

    def lock(self, name: str, wait: bool | float) -> AbstractContextManager[None]:  # noqa: FBT001
        """Hold the lock `name` exclusively among clients on all machines; wait for ever, not at all, or seconds."""
        ...

    def is_locked(self, name: str) -> bool:
        """Return whether a living client on any machine holds the lock `name`."""
        ...

    def check_lock(self, name: str) -> None:
        """Raise LedgerUnavailable if this client held the lock `name` and has lost it without notice."""
        ...

    @property
    def required_actor(self) -> str:
        """The actor that each line of the open transaction must have; "" if the client may choose it."""
        ...

    def time(self) -> datetime | None:
        """Return the database's own time, after `reader`; None for a file."""
        ...

    def role_and_user(self) -> tuple[Role, str]:
        """Return the role and the name of this client's user, after `reader`; ALONE and "" without a team."""
        ...

    def members(self) -> tuple[str, ...]:
        """Return the names of the users who may write, payers too, after `reader`."""
        ...

    def payers(self) -> tuple[str, ...]:
        """Return the users with the payer's role, who decide about the lab's money, after `reader`."""
        ...

    @property
    def can_be_shared(self) -> bool:
        """Whether the database knows users, so that a team can share a ledger in it."""
        ...

    def sharing(self, request: TeamRequest | None = None) -> Sharing | None:
        """Return how the ledger is shared, after `reader`, and what is missing; None if no team can share it."""
        ...

    def grant_roles(self, request: TeamRequest) -> Sharing:
        """Grant a team's roles what they need, as far as this user may; return the resulting state.

        Raises InvalidRequest for a ledger that no team can share, RoleNeeded if its tables belong to another user.
        """
        ...

    def record_team(self, team: Team) -> bool:
        """Record the team inside the open transaction; return whether it differs from the present one."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...
