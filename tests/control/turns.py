"""Two computers that take turns: one works up to its n-th call, the other one up to its m-th, then each to its end.

A call is one of the cloud, a look into the ledger's rows, a line that is written, or a lock. Faults of two computers
need few switches at the right places, so that all pairs of n and m find them surely, where chance would take days.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager, suppress

from cloudgpu.errors import CloudgpuError, ProviderUnavailable

CALLS = ("list", "get", "launch", "terminate", "stop", "start")
PATIENCE = 20  # turns for which a lock that the other one has is waited for
TO_THE_END = 1_000_000


class Killed(BaseException):
    """The computer is switched off: no program can do anything about it."""


class Turns:
    """Lets the computers 0 and 1 work by turns: 0 for `first` calls, 1 for `then` calls, then each to its end.

    `kills`: 0 is switched off where its first turn ends. `calls` are those that each has made by then, and in all.
    """

    def __init__(self, first, then, kills=False):
        self.turns, self.kills = [(0, first), (1, then), (0, TO_THE_END), (1, TO_THE_END)], kills
        self.alive, self.calls, self.said, self.failed = set(), [0, 0], [], []
        self._changed, self._writing, self._threads = threading.Condition(), threading.local(), []

    def computer(self, number, session, true_clock, job):
        """Add a computer that does this job, which is given its session."""
        self._watch(number, session, true_clock)
        self.alive.add(number)
        self._threads.append(threading.Thread(target=self._work, args=(number, session, job), daemon=True))

    def run(self):
        """Let both work to their end; raise the first error that nobody expected of either."""
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join(100)
            assert not thread.is_alive()
        if self.failed:
            raise self.failed[0]

    @property
    def now(self):
        """Whose turn it is; None once both have ended."""
        while self.turns and (self.turns[0][1] <= 0 or self.turns[0][0] not in self.alive):
            self.turns.pop(0)
        return self.turns[0][0] if self.turns else None

    def turn(self, number, blocked=False):
        """Wait until it is this one's turn, and count a call; one that is `blocked` lets the other one work on."""
        if getattr(self._writing, "on", False):
            return
        with self._changed:
            if blocked:
                self.turns.insert(0, (1 - number, 8))
            else:
                self.calls[number] += 1
            self._changed.notify_all()
            waited = self._changed.wait_for(lambda: self.now in (number, None), 60)
            assert waited, f"computer {number} never had its turn again"
            if number not in self.alive:
                raise Killed
            whose, left = self.turns[0]
            self.turns[0] = (whose, left - 1)
            if self.kills and len(self.turns) == 4 and left <= 1:
                self.alive.discard(number)
                raise Killed

    def _work(self, number, session, job):
        with suppress(Killed):
            try:
                job(session)
            except CloudgpuError as error:  # the other was first, or is still at it
                self.said.append(error)
            except Exception as error:  # noqa: BLE001  (a test of its own shows any)
                self.failed.append(error)
        with self._changed:
            self.alive.discard(number)
            self._changed.notify_all()

    def _watch(self, number, session, true_clock):
        cloud, ledger = session.provider("lab"), session.ledger
        cloud.clock = true_clock  # the cloud's own time is nobody's
        for method in CALLS:
            setattr(cloud, method, self._before(number, getattr(cloud, method)))
        ledger.machines = self._before(number, ledger.machines)
        for method in ("append", "decide"):
            setattr(ledger, method, self._whole(number, getattr(ledger, method)))
        session.is_locked = self._before(number, session.is_locked)
        session.lock = self._locking(number, session.lock)

    def _before(self, number, call):
        def called(*args, **more):
            self.turn(number)
            return call(*args, **more)

        return called

    def _whole(self, number, call):
        """Return a call that nobody is switched away in: the ledger's own lock is held meanwhile."""

        def called(*args, **more):
            self.turn(number)
            self._writing.on = True
            try:
                return call(*args, **more)
            finally:
                self._writing.on = False

        return called

    def _locking(self, number, lock):
        @contextmanager
        def locked(which, *, wait):
            self.turn(number)
            with ExitStack() as held:
                for left in reversed(range(PATIENCE)):
                    try:
                        held.enter_context(lock(which, wait=False))
                        break
                    except ProviderUnavailable:
                        if wait is False or not left:
                            raise
                    self.turn(number, blocked=True)
                yield

        return locked
