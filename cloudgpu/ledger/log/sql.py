"""What a connection to a database can do for the ledger: one statement at a time, `?` for each value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class Rows(Protocol):
    """What a statement found."""

    def fetchone(self) -> Any:
        """Return the next row, None behind the last."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection: sqlite3's own, or one to PostgreSQL that speaks the same."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows:
        """Carry out one statement."""
        ...

    def executemany(self, sql: str, parameters: Any, /) -> Any:
        """Carry out one statement for each row of values."""
        ...
