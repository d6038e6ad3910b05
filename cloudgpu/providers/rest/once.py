"""Launches at clouds without idempotency tokens: a call is sent once, and later attempts only look for the machine.

Before the call, a file named by the attempt's idempotency token, which is not sent, is created under the provider's
`home`; only one process can do that. It is renamed to `.refused` where the call surely made nothing; else it stays, and
the same call is never sent again from this home. From a home that has no file for the call (another computer, a
restored disk), it is sent only within SEND_WINDOW: the control layer sends a saved call at once.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from cloudgpu.core.model.instances import Instance, State
from cloudgpu.core.values.times import duration_text
from cloudgpu.errors import LaunchUncertain

if TYPE_CHECKING:
    from pathlib import Path

    from cloudgpu.core.model.launch import Attempt
    from cloudgpu.errors import CloudgpuError

SEND_WINDOW = timedelta(minutes=2)  # how long after it was saved a call without a file here may still be sent
FILES_KEPT_FOR = timedelta(days=30)


class SendOnce:
    """Which launch calls of one account were sent from this home: a file for each."""

    def __init__(self, home: Path, clock: Callable[[], datetime]) -> None:
        self._dir, self._clock = home / "sent", clock

    def claim_send(self, attempt: Attempt) -> bool:
        """Record a call as sent and return True, for one caller only; False: it may have been sent, so only look."""
        self._dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        sent_file, refused_file = self._files(attempt.token)
        try:
            refused_file.rename(sent_file)
        except FileNotFoundError:
            if not -SEND_WINDOW <= self._clock() - attempt.made_at <= SEND_WINDOW:
                return False
            try:
                os.close(os.open(sent_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            except FileExistsError:
                return False
        now = self._clock().timestamp()
        os.utime(sent_file, (now, now))
        self._sync_directory()
        self._delete_old_files()
        return True

    def record_refusal(self, attempt: Attempt) -> None:
        """Record that the call surely made nothing: it may be sent again."""
        sent_file, refused_file = self._files(attempt.token)
        sent_file.rename(refused_file)
        self._sync_directory()

    @contextmanager
    def exclusive(self, attempt: Attempt) -> Iterator[None]:
        """Hold the lock of an attempt's token, across all processes with this home; a killed process releases it."""
        self._dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self._files(attempt.token)[0].with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def record_machine(self, attempt: Attempt, id: str) -> None:  # noqa: A002
        """Record the id of the machine that the call has made: a listing may show it later."""
        sent_file, _ = self._files(attempt.token)
        sent_at = sent_file.stat().st_mtime
        sent_file.write_text(id, encoding="ascii")
        os.utime(sent_file, (sent_at, sent_at))

    def machine_id(self, token: str) -> str:
        """Return the id of the machine that the call has made; empty where it is not recorded here."""
        try:
            return _recorded_id(self._files(token)[0])
        except FileNotFoundError:
            return ""

    def has_machine(self, id: str) -> bool:  # noqa: A002
        """Say whether a call from here is recorded to have made this machine."""
        for sent_file in self._dir.glob("*.sent"):
            with suppress(FileNotFoundError):  # another launch has just renamed or removed it
                if _recorded_id(sent_file) == id:
                    return True
        return False

    def sent_at(self, token: str) -> datetime | None:
        """Return when the call was sent from here, aware UTC; None where it was not."""
        try:
            return datetime.fromtimestamp(self._files(token)[0].stat().st_mtime, UTC)
        except FileNotFoundError:
            return None

    def _files(self, token: str) -> tuple[Path, Path]:
        name = sha256(token.encode()).hexdigest()[:32]
        return self._dir / f"{name}.sent", self._dir / f"{name}.refused"

    def _sync_directory(self) -> None:
        """Make the files durable: they outlast a loss of power."""
        descriptor = os.open(self._dir, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _delete_old_files(self) -> None:
        oldest_kept_at = (self._clock() - FILES_KEPT_FOR).timestamp()
        for file in self._dir.iterdir():
            with suppress(FileNotFoundError):  # another launch has just renamed its file
                if file.stat().st_mtime < oldest_kept_at:
                    file.unlink()


def _recorded_id(sent_file: Path) -> str:
    """Return the id of a machine in a file; empty where none is recorded, or the file is damaged."""
    try:
        return sent_file.read_text(encoding="ascii").strip()
    except UnicodeDecodeError:
        return ""


def new_machine(attempt: Attempt, account: str, id: str) -> Instance:  # noqa: A002
    """Return the machine that a launch has just made, of which only its id is known yet: pending, and billed."""
    offer = attempt.offer.configuration
    return Instance(
        provider=offer.provider,
        account=account,
        id=id,
        state=State.PENDING,
        billed=True,
        tags=dict(attempt.tags),
        region=offer.region,
        zone=offer.zone,
        instance_type=offer.instance_type,
        market=offer.market,
        accelerators=offer.accelerators,
    )


def unknown_outcome_error(
    cloud: str, attempt: Attempt, listed_within: timedelta, look_error: CloudgpuError | None = None
) -> LaunchUncertain:
    """Return the error of a launch that was sent before, and that no listing shows yet.

    A listing shows what a launch has made `listed_within` this time. `look_error` is the error of looking for the
    machine, where the look itself failed.
    """
    name = attempt.request.name
    message = (
        f"{cloud} has not answered yet whether {name} was made: it knows no tokens, so the call is not sent again."
    )
    remedy = unknown_outcome_remedy(listed_within)
    if look_error is not None:
        message, remedy = f"{message} {look_error.message}", " ".join(filter(None, (look_error.next, remedy)))
    return LaunchUncertain(message, field="token", next=remedy)


def unknown_outcome_remedy(listed_within: timedelta) -> str:
    """Return how the outcome of a launch becomes known; its machine may also have ended before anybody saw it.

    Another computer with the same ledger waits longer, because its clock may be ahead.
    """
    return (
        f"On this computer, cloudgpu up or cloudgpu reap finds out {duration_text(listed_within)} after the launch, "
        "once a list of the machines is complete."
    )
