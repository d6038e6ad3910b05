"""Detects a machine that is frozen: connected, but silent."""

from __future__ import annotations

import contextlib
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cloudgpu.errors import Frozen

if TYPE_CHECKING:
    from cloudgpu.access.ssh.connection import Connection

PING_AFTER_S = 1.0  # silence after which a ping is sent
ANSWER_TIMEOUT_S = 3.0  # how long the answer may take
PING = "keepalive@openssh.com"


class Keepalive:
    """Pings after `ping_after_s` seconds of silence; without an answer in `answer_timeout_s`, closes the connection.

    Every packet counts as an answer, so a machine behind a slow, busy connection is not mistaken for frozen.
    paramiko's own `set_keepalive` requests no answer, and so detects nothing.
    """

    def __init__(
        self, connection: Connection, *, ping_after_s: float = PING_AFTER_S, answer_timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self._connection = connection
        self._ping_after_s = ping_after_s
        self._answer_timeout_s = answer_timeout_s
        self._ended = threading.Event()
        self._ping_due = threading.Event()
        # Sending may block while the machine reads no data, so it has a thread of its own.
        self._threads = [
            threading.Thread(target=target, name=f"keepalive-{target.__name__}", daemon=True)
            for target in (self._watch, self._send_pings)
        ]
        self.error: Frozen | None = None

    def __enter__(self) -> Self:
        """Begin to watch."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop watching. A ping that is still unanswered ends with the connection."""
        self._ended.set()
        self._ping_due.set()
        self._threads[0].join(5)

    def join(self, timeout: float) -> None:
        """Wait for both threads after the connection was closed."""
        for thread in self._threads:
            thread.join(timeout)

    def _watch(self) -> None:
        pinged_at: float | None = None
        poll_s = min(self._ping_after_s, self._answer_timeout_s) / 4
        while self._connection.is_open and not self._ended.wait(poll_s):
            now, last_received = time.monotonic(), self._connection.transport.last_received
            if pinged_at is not None and last_received >= pinged_at:
                pinged_at = None
            if pinged_at is None and now - last_received >= self._ping_after_s:
                pinged_at = now
                self._ping_due.set()
            if pinged_at is not None and now - pinged_at >= self._answer_timeout_s:
                self._give_up()
        self._ended.set()
        self._ping_due.set()

    def _send_pings(self) -> None:
        from cloudgpu.access.ssh.transport import CONNECTION_ERRORS

        while True:
            self._ping_due.wait()
            self._ping_due.clear()
            if self._ended.is_set():
                return
            with contextlib.suppress(*CONNECTION_ERRORS):
                self._connection.transport.global_request(PING, wait=True)

    def _give_up(self) -> None:
        name = self._connection.target.name
        self.error = Frozen(
            f"{name} is connected but has not answered for {self._answer_timeout_s:g} seconds.",
            field="name",
            value=name,
            next=f"It may be overloaded or asleep: try again, or: cloudgpu show {name} --refresh",
        )
        self._ended.set()
        self._connection.close()
