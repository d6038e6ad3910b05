"""Notices a server that does not answer any more: frozen, or behind a network that drops packets."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg

SILENT_S = 5.0  # seconds without an answer, until a new connection is tried
REMEMBERED_S = 5.0  # how long this process does not try a server again that accepted no connection in time
_timed_out_servers: dict[str, tuple[float, str]] = {}  # by conninfo: when that was, and the message


class WatchedConnection(psycopg.Connection[Any]):
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
            wanted_event, silent_since = next(gen), time.monotonic()
            while True:
                ready = yield wanted_event
                if ready:
                    silent_since = time.monotonic()
                elif time.monotonic() - silent_since >= SILENT_S:
                    self._check_server(silent_since)
                    silent_since = time.monotonic()
                wanted_event = gen.send(ready)
        except StopIteration as end:
            return end.value

    def _check_server(self, silent_since: float) -> None:
        try:
            connect(self.conninfo).close()
        except psycopg.OperationalError as error:
            if error.sqlstate or "FATAL" in str(error):  # the server itself sent this error
                return
            self.pgconn.finish()
            raise psycopg.OperationalError(
                f"no answer for {time.monotonic() - silent_since:.0f} seconds, and no new connection: {error}"
            ) from None


def connect(conninfo: str) -> WatchedConnection:
    """Return a connection; after a timeout this process does not try again for some seconds.

    Raises psycopg.Error.
    """
    failed_at, message = _timed_out_servers.get(conninfo, (0.0, ""))
    if message and time.monotonic() - failed_at < REMEMBERED_S:
        raise psycopg.OperationalError(message)
    try:
        connection = WatchedConnection.connect(conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.errors.ConnectionTimeout as error:
        _timed_out_servers[conninfo] = time.monotonic(), str(error)
        raise
    _timed_out_servers.pop(conninfo, None)
    connection.conninfo = conninfo
    return connection
