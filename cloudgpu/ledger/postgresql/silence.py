"""Notices a server that has fallen silent: frozen, or behind a network that swallows what is sent."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg

SILENT_S = 5.0  # without a word on an open connection, before the server is asked for a new one
REMEMBERED_S = 5.0  # so long one that took no connection in time is not asked again by this process
_silent: dict[str, tuple[float, str]] = {}  # by conninfo: when it was, and in which words


class Watched(psycopg.Connection[Any]):
    """A connection whose statements do not wait for ever: a silent server is asked whether it is there.

    A server that takes a new connection is at work on a long statement, or has this client wait for a lock.
    """

    conninfo = ""

    def wait(self, gen: Any, *args: Any, **more: Any) -> Any:
        """Carry a statement out as psycopg does; raise psycopg.OperationalError, and close, once the server is away."""
        return super().wait(self._watched(gen), *args, **more)

    def _watched(self, gen: Any) -> Generator[Any, Any, Any]:
        try:
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
            if _has_answered(error):
                return
            self.pgconn.finish()
            words = f"no answer for {time.monotonic() - since:.0f} seconds, and no new connection: {error}"
            raise psycopg.OperationalError(words) from None


def connect(conninfo: str) -> Watched:
    """Return a connection; one that was not had in time is not tried again by this process for some seconds.

    Raises psycopg.Error.
    """
    at, words = _silent.get(conninfo, (0.0, ""))
    if words and time.monotonic() - at < REMEMBERED_S:
        raise psycopg.OperationalError(words)
    try:
        made = Watched.connect(conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.errors.ConnectionTimeout as error:
        _silent[conninfo] = time.monotonic(), str(error)
        raise
    _silent.pop(conninfo, None)
    made.conninfo = conninfo
    return made


def _has_answered(error: psycopg.OperationalError) -> bool:
    """Say whether this refusal is the server's own word."""
    return bool(error.sqlstate) or "FATAL" in str(error)
