"""The interface of a database connection for the ledger: one statement at a time, `?` for each value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class Rows(Protocol):
    """The rows that a statement returned."""

    def fetchone(self) -> Any:
        """Return the next row, None after the last."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the remaining rows."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection: sqlite3's own, or one to PostgreSQL with the same methods."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows:
        """Execute one statement."""
        ...

    def executemany(self, sql: str, parameters: Any, /) -> Any:
        """Execute one statement for each row of values."""
        ...
