"""Notices a server that does not answer any more: frozen, or behind a network that drops packets."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg

SILENT_S = 5.0  # seconds without an answer, until a new connection is tried
REMEMBERED_S = 5.0  # how long this process does not try a server again that accepted no connection in time
_silent: dict[str, tuple[float, str]] = {}  # by conninfo: when that was, and the message


class Watched(psycopg.Connection[Any]):
    """A connection whose statements do not wait for ever: after a silence, a new connection is tried.

    If the server accepts it, it works on a long statement, or lets this client wait for a lock.
    """

    conninfo = ""

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Execute a statement like psycopg; raise psycopg.OperationalError, and close, if no answer comes."""
        return super().wait(self._watched(gen), *args, **kwargs)

    def _watched(self, gen: Any) -> Generator[Any, Any, Any]:
        try:
            # Psycopg's generator yields what it waits for (to read, to write), and is sent what is ready.
            wanted, since = next(gen), time.monotonic()
            while True:
                ready = yield wanted
                if ready:
                    since = time.monotonic()
                elif time.monotonic() - since >= SILENT_S:
                    self._check(since)
                    since = time.monotonic()
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value

    def _check(self, since: float) -> None:
        try:
            connect(self.conninfo).close()
        except psycopg.OperationalError as error:
            if error.sqlstate or "FATAL" in str(error):  # the server itself sent this error
                return
            self.pgconn.finish()
            raise psycopg.OperationalError(
                f"no answer for {time.monotonic() - since:.0f} seconds, and no new connection: {error}"
            ) from None


def connect(conninfo: str) -> Watched:
    """Return a connection; after a timeout this process does not try again for some seconds.

    Raises psycopg.Error.
    """
    failed_at, message = _silent.get(conninfo, (0.0, ""))
    if message and time.monotonic() - failed_at < REMEMBERED_S:
        raise psycopg.OperationalError(message)
    try:
        connection = Watched.connect(conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.errors.ConnectionTimeout as error:
        _silent[conninfo] = time.monotonic(), str(error)
        raise
    _silent.pop(conninfo, None)
    connection.conninfo = conninfo
    return connection
