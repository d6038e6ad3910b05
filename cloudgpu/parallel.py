"""Runs calls in parallel threads, in a way that Ctrl-C can leave at once.

The standard library's pool joins its threads when a `with` ends and once more when the interpreter ends: one call that
hangs keeps the process alive. The threads of this pool are daemons. After an error it waits for the calls that have
begun; after Ctrl-C it does not. A call whose caller no longer waits is abandoned: its thread sends no
more requests (`stop_if_abandoned`).

A progress display reads `counts`: for pools that name their calls, how many have ended.

A caller may also give up on a call that is silent for too long (`Part.listen`). A long call sends heartbeats: it
reports each answer that it gets (`send_heartbeat`), and so do the calls that it makes in threads of its own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

Answer = TypeVar("Answer")
Item = TypeVar("Item")
Params = ParamSpec("Params")
_THIS_THREAD = threading.local()  # `.part`: the call that this thread runs
_THREAD_NAME = "cloudgpu-parallel"  # of each thread
_SHORTEST_WAIT_S = 0.001
LONGEST_PAUSE_S = 30.0  # of a wait between two requests; a longer one counts as silence


_COUNTS_LOCK = threading.Lock()
_COUNTS: dict[str, tuple[int, int]] = {}  # by the plural name of the calls: (ended, all)


def counts() -> dict[str, tuple[int, int]]:
    """Return, by what is counted (`regions`), how many calls have ended, and how many in all, since `reset_counts`."""
    with _COUNTS_LOCK:
        return dict(_COUNTS)


def reset_counts() -> None:
    """Reset the counts: another step begins."""
    with _COUNTS_LOCK:
        _COUNTS.clear()


def _count(what: str, *, ended: int = 0, added: int = 0) -> None:
    if what:
        with _COUNTS_LOCK:
            all_ended, total = _COUNTS.get(what, (0, 0))
            if added or all_ended < total:  # a call that ends now may have begun before `reset_counts`
                _COUNTS[what] = (all_ended + ended, total + added)


class Abandoned(BaseException):
    """Nobody waits for this thread any more. Like Ctrl-C, it passes through code that catches every `Exception`."""


def is_abandoned() -> bool:
    """Return whether nobody waits for this thread any more, or for the call that made this call."""
    part: Part[Any] | None = getattr(_THIS_THREAD, "part", None)
    return part is not None and part.is_abandoned


def stop_if_abandoned() -> None:
    """Raise Abandoned if nobody waits for this thread any more. Called before anything is sent."""
    if is_abandoned():
        raise Abandoned


def send_heartbeat(pause_s: float = 0.0) -> None:
    """Report that this thread's call got an answer, so that callers that listen to it keep waiting.

    `pause_s` is how many seconds the call now waits before its next request, as the server demanded: that is not
    silence, up to LONGEST_PAUSE_S.
    """
    part: Part[Any] | None = getattr(_THIS_THREAD, "part", None)
    if part is not None:
        part.send_heartbeat(min(pause_s, LONGEST_PAUSE_S))


def join_abandoned(seconds: float) -> None:
    """Wait at most `seconds`, in all, for abandoned threads."""
    end = time.monotonic() + seconds
    for thread in threading.enumerate():
        if thread.name == _THREAD_NAME:
            with suppress(RuntimeError):  # Ctrl-C came while it was being started: there is nothing to wait for
                thread.join(max(0.0, end - time.monotonic()))


class Part(Generic[Answer]):
    """One call of a pool, with its answer once that has come; the call that made it is its parent."""

    def __init__(self, pool: Pool, call: Callable[[], Answer]) -> None:
        self._pool = pool
        self._call = call
        self._parent: Part[Any] | None = getattr(_THIS_THREAD, "part", None)
        self.was_abandoned = False  # whether nobody waits for this part itself
        self._has_ended = threading.Event()
        _count(pool.what, added=1)
        self._begun_at: float | None = None
        self._last_beat: float | None = None
        self._answer: Answer
        self._error: BaseException | None = None

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody waits for it any more."""
        return (
            self.was_abandoned or self._pool.was_abandoned or (self._parent is not None and self._parent.is_abandoned)
        )

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended, at most `seconds`; return whether it has. Ctrl-C interrupts it."""
        return self._has_ended.wait(seconds)

    def listen(self, silent_s: float, at_most_s: float) -> bool:
        """Wait while it sends heartbeats; return whether it has ended, else abandon it.

        It is abandoned after `silent_s` seconds without a heartbeat, or `at_most_s` in all. Time in which it waits for
        a free thread does not count.
        """
        while not self.wait(min(silent_s, max(_SHORTEST_WAIT_S, self._remaining_s(silent_s, at_most_s)))):
            if self._remaining_s(silent_s, at_most_s) <= 0:
                self.abandon()
                send_heartbeat()  # the caller continues without it
                return not self.was_abandoned
        return True

    def _remaining_s(self, silent_s: float, at_most_s: float) -> float:
        if self._begun_at is None or self._last_beat is None:
            return silent_s
        now = time.monotonic()
        return min(self._last_beat + silent_s, self._begun_at + at_most_s) - now

    def send_heartbeat(self, pause_s: float = 0.0) -> None:
        """Record a heartbeat, also for the calls that made this one. Its next request follows after `pause_s`."""
        self._last_beat = max(self._last_beat or 0.0, time.monotonic() + pause_s)
        if self._parent is not None:
            self._parent.send_heartbeat(pause_s)

    def result(self, seconds: float | None = None) -> Answer:
        """Return its answer or raise its error; raise TimeoutError when there is none after so many seconds."""
        if not self.wait(seconds):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._answer

    def abandon(self) -> None:
        """Stop waiting for it, also at the end of the pool; another part gets its thread. No effect after its end."""
        self._pool.abandon_part(self)

    def run(self) -> None:
        """Make the call, in the current thread."""
        _THIS_THREAD.part = self
        self._begun_at = self._last_beat = time.monotonic()
        try:
            stop_if_abandoned()
            self._answer = self._call()
        except BaseException as error:  # noqa: BLE001  (whoever asks for the answer gets it)
            self._error = error
        finally:
            self._end()

    def _end(self) -> None:
        _count(self._pool.what, ended=1)
        self._has_ended.set()

    def drop(self) -> None:
        """Take it out of the queue: it ends as abandoned, without a call."""
        self.was_abandoned, self._error = True, Abandoned()
        self._end()

    def mark_abandoned(self) -> bool:
        """Mark it as abandoned if it still runs; return whether it does."""
        self.was_abandoned = not self._has_ended.is_set()
        return self.was_abandoned


class Pool:
    """Runs calls on daemon threads, at most `at_once` at a time.

    The end of its `with` block waits for the calls. After an error those that have not begun are dropped; after Ctrl-C,
    or anything else that is no `Exception`, all are abandoned. `what` names its calls in the plural, for `counts`.
    """

    def __init__(self, at_once: int, what: str = "") -> None:
        self.what = what
        self._at_once = max(1, at_once)
        self._lock = threading.Lock()
        self._waiting: deque[Part[Any]] = deque()
        self._parts: list[Part[Any]] = []
        self._running = 0  # threads, without those of abandoned parts
        self.was_abandoned = False

    def __enter__(self) -> Self:
        """Begin; no thread is made yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what has begun, or abandon it."""
        if error is not None and not isinstance(error, Exception):
            self.was_abandoned = True  # takes no lock, for whatever Ctrl-C has interrupted may hold it
            return
        try:
            if error is not None:
                self._drop_waiting()
            self._wait_for_parts()
        except BaseException:
            self.was_abandoned = True
            raise

    def submit(self, call: Callable[Params, Answer], *args: Params.args, **kwargs: Params.kwargs) -> Part[Answer]:
        """Call this as soon as a thread is free."""
        part = Part(self, lambda: call(*args, **kwargs))
        with self._lock:
            self._parts.append(part)
            self._waiting.append(part)
        self._start_threads()
        return part

    def map(self, call: Callable[[Item], Answer], items: Iterable[Item]) -> Iterator[Answer]:
        """Call this for each item; return the answers in the order of the items. Raises the first error."""
        parts = [self.submit(call, item) for item in items]
        return (part.result() for part in parts)

    def abandon_part(self, part: Part[Any]) -> None:
        """Abandon one part: drop it if it has not begun, else let another one take its place."""
        with self._lock:
            if part in self._waiting:
                self._waiting.remove(part)
                part.drop()
            elif part.mark_abandoned():
                self._running -= 1
        self._start_threads()

    def _start_threads(self) -> None:
        """Start a thread for each waiting part, up to the limit."""
        with self._lock:
            missing_threads = max(0, min(self._at_once - self._running, len(self._waiting)))
            self._running += missing_threads
        for _ in range(missing_threads):
            threading.Thread(target=self._work, name=_THREAD_NAME, daemon=True).start()

    def _work(self) -> None:
        part = self._next()
        while part is not None:
            part.run()
            part = self._next(part)

    def _next(self, ended_part: Part[Any] | None = None) -> Part[Any] | None:
        with self._lock:
            if ended_part is not None and ended_part.was_abandoned:
                return None  # another thread has taken over
            if self._waiting and not self.was_abandoned:
                return self._waiting.popleft()
            self._running -= 1
            return None

    def _drop_waiting(self) -> None:
        with self._lock:
            while self._waiting:
                self._waiting.popleft().drop()

    def _wait_for_parts(self) -> None:
        for part in self._parts:
            if not part.is_abandoned:
                part.wait()
