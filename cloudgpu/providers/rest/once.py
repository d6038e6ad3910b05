"""Launches at places that know no token: a call is sent once, and whoever comes later only looks.

Before the call, a file for its token is made under the provider's `home`, which one process alone can do. It is put
aside where the call was surely refused; else it stays, and the same call is never sent again from here. From a home
that has never seen the call (another computer, a restored disk), it is sent only while it is new: control sends what
it has saved at once.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from cloudgpu.errors import LaunchUncertain

if TYPE_CHECKING:
    from pathlib import Path

    from cloudgpu.core.model.launch import Attempt
    from cloudgpu.errors import CloudgpuError

NEW = timedelta(minutes=2)  # a call of which nothing is known here is sent for so long after it was saved
FORGOTTEN = timedelta(days=30)


class SendOnce:
    """The marks of one account: which calls were sent from this home."""

    def __init__(self, home: Path, clock: Callable[[], datetime]) -> None:
        self._dir, self._clock = home / "sent", clock

    def may_send(self, attempt: Attempt) -> bool:
        """Mark a call as sent and return True, to one caller alone; False: it may have been sent, so only look."""
        self._dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        sent, refused = self._files(attempt.token)
        try:
            refused.rename(sent)
        except FileNotFoundError:
            if not -NEW <= self._clock() - attempt.made_at <= NEW:
                return False
            try:
                os.close(os.open(sent, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            except FileExistsError:
                return False
        now = self._clock().timestamp()
        os.utime(sent, (now, now))
        self._kept()
        self._forget()
        return True

    def refused(self, attempt: Attempt) -> None:
        """Note that the call surely made nothing: it may be sent again."""
        sent, refused = self._files(attempt.token)
        sent.rename(refused)
        self._kept()

    @contextmanager
    def alone(self, attempt: Attempt) -> Iterator[None]:
        """Let one caller at a time, of all processes with this home, look and send for a token; a kill lets go."""
        self._dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self._files(attempt.token)[0].with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def answered(self, attempt: Attempt, id: str) -> None:  # noqa: A002
        """Note the id of the machine that the call has made: a listing may be late."""
        sent, _ = self._files(attempt.token)
        at = sent.stat().st_mtime
        sent.write_text(id, encoding="ascii")
        os.utime(sent, (at, at))

    def made(self, token: str) -> str:
        """Return the id that the call was answered with; empty where none is known here."""
        try:
            return self._files(token)[0].read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return ""

    def sent_at(self, token: str) -> datetime | None:
        """Return when the call was sent from here, aware UTC; None where it was not."""
        try:
            return datetime.fromtimestamp(self._files(token)[0].stat().st_mtime, UTC)
        except FileNotFoundError:
            return None

    def _files(self, token: str) -> tuple[Path, Path]:
        name = sha256(token.encode()).hexdigest()[:32]
        return self._dir / f"{name}.sent", self._dir / f"{name}.refused"

    def _kept(self) -> None:
        """Have the marks outlast a loss of power."""
        handle = os.open(self._dir, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _forget(self) -> None:
        oldest = (self._clock() - FORGOTTEN).timestamp()
        for file in self._dir.iterdir():
            with suppress(FileNotFoundError):  # another launch has just put its mark aside, or taken it up
                if file.stat().st_mtime < oldest:
                    file.unlink()


def not_known_yet(cloud: str, attempt: Attempt, why: CloudgpuError | None = None) -> LaunchUncertain:
    """Return the error of a launch that was sent before, and that no listing shows yet.

    `why` is what a look for it was answered, where that is not that nothing is there.
    """
    name = attempt.request.name
    message = (
        f"{cloud} has not answered yet whether {name} was made: it knows no tokens, so the call is not sent again."
    )
    remedy = "The next cloudgpu up or cloudgpu reap finds out."
    if why is not None:
        message, remedy = f"{message} {why.message}", " ".join(filter(None, (why.next, remedy)))
    return LaunchUncertain(message, field="token", next=remedy)
