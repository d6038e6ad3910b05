"""A connection to PostgreSQL that is spoken to as sqlite3's is."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from cloudgpu.ledger.sql import Rows


class Speaking:
    """A psycopg connection that takes `?` for each value, as sqlite3's does."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self._raw = raw

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        """Carry out one statement."""
        if not parameters:
            return self._raw.execute(sql.encode())
        return self._raw.execute(_translated(sql), parameters)

    def executemany(self, sql: str, parameters: Any, /) -> None:
        """Carry out one statement for each row of values."""
        with self._raw.cursor() as cursor:
            cursor.executemany(_translated(sql), parameters)


@lru_cache(maxsize=256)
def _translated(sql: str) -> bytes:
    return sql.replace("%", "%%").replace("?", "%s").encode()
