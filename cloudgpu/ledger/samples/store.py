"""Stores the samples of machines' agents for 90 days, one file per day and machine, outside of the ledger.

Samples are many and prove nothing about money: losing them loses no amount. The day that runs is a file of JSON lines,
appended to; the days before it are packed. A line that was torn by a crash is left out. How long a machine worked on
each day stays when its samples go (`ledger.samples.packing`): it is written when a day is packed, and before one is
dropped.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cloudgpu.core.activity.utilization import UsageSpan, join_days, usage_intervals
from cloudgpu.ledger.log.files import make_private_directory, open_to_write, read_our_file
from cloudgpu.ledger.samples.packing import Workdays, unpack
from cloudgpu.ledger.samples.readings import can_be_read, has_length, packed_all, parsed

Sample = dict[str, Any]
RETENTION = timedelta(days=90)
MAX_DAY_BYTES = 2_000_000  # bytes of a machine's day before it is packed: a line a minute is a tenth of it
CLOCK_OFF = 300.0  # seconds by which a machine's clock may be off before its stamps are moved to ours
MINUTE = 60.0
DAY = 86400.0
_MAX = 2 * MAX_DAY_BYTES  # bytes that are read of a file; none of ours has as many
_TAIL = 8192
_SAFE = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
_DAY_NAME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(\.jsonl|\.columns\.xz)")
_LINES, _PACKED = ".jsonl", ".columns.xz"


@dataclass(frozen=True, slots=True)
class SampleStore:
    """One machine's samples below `root`. Times are epoch seconds of this computer's clock."""

    root: Path
    id: str

    @property
    def directory(self) -> Path:
        """Where its days lie; an id that is no plain name (a tag of somebody's) is hashed."""
        plain = _SAFE.fullmatch(self.id)
        return self.root / (self.id if plain else hashlib.sha256(self.id.encode(errors="surrogatepass")).hexdigest())

    def keep(self, samples: Sequence[Sample], machine_now: float, at: datetime) -> int:
        """Write the samples newer than the last stored one under a lock, and return their number.

        `samples` are oldest first, by the machine's clock, which says `machine_now`. Those of its last minute are left
        for the next time: an agent is still at work on them. Raises OSError (a full disk).
        """
        done = [one for one in samples if one["t"] <= machine_now - MINUTE]
        with self._alone():
            fresh = list(_newer(_on_our_clock(done, machine_now, at.timestamp()), self.last()))
            for day in sorted({_day(one["t"]) for one in fresh}):
                self._append(day, [one for one in fresh if _day(one["t"]) == day])
            if fresh:
                self._tidy(_day(fresh[-1]["t"]), at)
        return len(fresh)

    def last(self) -> float:
        """Return when the last sample kept ended; 0 for none."""
        for day in reversed(self._days()):
            found = self._tail(day)
            if found:
                return found
        return 0.0

    def read(self, since: float, until: float) -> list[Sample]:
        """Return the samples that ended in (since, until], oldest first, each time once."""
        wanted = [day for day in self._days() if _day(since) <= day <= _day(until)]
        found = {one["t"]: one for day in wanted for one in self._read(day) if since < one["t"] <= until}
        return [found[at] for at in sorted(found)]

    def utilization(self, since: float, until: float) -> list[UsageSpan]:
        """Return what the samples that ended on the days of [since, until] showed, the day before and after too.

        For days whose samples were deleted, the daily summary is used; it gives the same result. Unreadable files are
        skipped.
        """
        first, last = _day(since - DAY), _day(until + DAY)
        with suppress(OSError), self._held(fcntl.LOCK_SH) as there:  # a day that is packed changes its file
            known = Workdays(self.directory).read() if there else {}
            found = {day: known[day] for day in known if first <= day <= last and not self._path(day).exists()}
            for day in set(self._days()) - found.keys():
                if first <= day <= last:
                    found[day] = self._summed(day, whole=False)
            return join_days(found[day] for day in sorted(found))
        return []

    def _summed(self, day: str, *, whole: bool) -> tuple[UsageSpan, ...]:
        """Return what the samples of a day show; with `whole`, raise OSError for a file that cannot be read."""
        found = {one["t"]: one for one in self._read(day, whole=whole) if has_length(one)}
        shown = [found[at] for at in sorted(found)]
        try:
            return usage_intervals(shown)
        except (TypeError, ValueError):  # a file that somebody else wrote: what is no reading shows nothing
            return usage_intervals(one for one in shown if can_be_read(one))

    def _sum_up(self, days: Sequence[str]) -> None:
        """Write the summaries of these days. Raises OSError; nothing may be dropped then."""
        Workdays(self.directory).add({day: self._summed(day, whole=True) for day in days})

    def _days(self) -> list[str]:
        try:
            names = os.listdir(self.directory)  # noqa: PTH208  (half the time of iterdir, and it is asked for each machine)
        except OSError:
            return []
        return sorted({found[1] for name in names if (found := _DAY_NAME.fullmatch(name))})

    def _path(self, day: str, ending: str = _LINES) -> Path:
        return self.directory / f"{day}{ending}"

    def _tail(self, day: str) -> float:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with suppress(OSError), os.fdopen(os.open(self._path(day), flags), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL))
            for line in reversed(file.read().split(b"\n")):
                if found := parsed(line):
                    return float(found["t"])
        return max((one["t"] for one in self._read(day)), default=0.0)

    def _read(self, day: str, *, whole: bool = False) -> Iterator[Sample]:
        """Yield a day's samples; with `whole`, raise OSError for a file that is there and cannot be read."""
        harmless = FileNotFoundError if whole else OSError
        with suppress(harmless, ValueError):  # both, where packing was cut short
            yield from unpack(read_our_file(self._path(day, _PACKED), _MAX))
        with suppress(harmless):
            yield from filter(None, map(parsed, read_our_file(self._path(day), _MAX).split(b"\n")))

    def _append(self, day: str, samples: Sequence[Sample]) -> None:
        text = b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in samples)
        handle = open_to_write(self._path(day), os.O_RDWR | os.O_APPEND)
        with os.fdopen(handle, "r+b", buffering=0) as file:
            size = os.fstat(handle).st_size
            if size + len(text) > MAX_DAY_BYTES:
                return
            torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            file.write(b"\n" * torn + text)

    def _tidy(self, today: str, at: datetime) -> None:
        """Pack the days before `today` and drop those that are too old."""
        oldest = _day((at - RETENTION).timestamp())
        for day in self._days():
            if oldest <= day < today and self._path(day).exists():
                self._pack(day)
        self._drop([day for day in self._days() if day < oldest])

    def drop_before(self, oldest: str) -> int:
        """Drop the samples of all days before that one and return how many files went. Raises OSError."""
        days = [day for day in self._days() if day < oldest]
        if not days:
            return 0
        with self._alone():
            return self._drop(days)

    def _drop(self, days: Sequence[str]) -> int:
        """Remove these days' samples, once it is written what they showed; return how many files went."""
        if not days:
            return 0
        known, gone = Workdays(self.directory).days(), 0
        self._sum_up([day for day in days if day not in known or self._path(day).exists()])
        for path in (self._path(day, ending) for day in days for ending in (_LINES, _PACKED)):
            with suppress(FileNotFoundError):
                path.unlink()
                gone += 1
        return gone

    def _pack(self, day: str) -> None:
        found = {one["t"]: one for one in self._read(day)}
        fresh = self._path(day, ".fresh")
        with os.fdopen(open_to_write(fresh, os.O_WRONLY | os.O_TRUNC), "wb") as file:
            file.write(packed_all([found[at] for at in sorted(found)]))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path(day, _PACKED))
        self._sum_up([day])
        self._path(day).unlink()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the machine's directory, made where it is not there: a watch and a cron job may have asked at once."""
        make_private_directory(self.directory)
        with self._held(fcntl.LOCK_EX):
            yield

    @contextmanager
    def _held(self, how: int) -> Iterator[bool]:
        """Hold the machine's directory by such a lock; false where there is none."""
        try:
            handle = os.open(self.directory, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            yield False
            return
        try:
            fcntl.flock(handle, how)
            yield True
        finally:
            os.close(handle)


def sweep(root: Path, at: datetime) -> int:
    """Drop what is older than 90 days of all machines, ended ones too; return how many days' files went."""
    oldest, gone = _day((at - RETENTION).timestamp()), 0
    for directory in root.iterdir() if root.is_dir() else ():
        if directory.is_dir():
            gone += SampleStore(root, directory.name).drop_before(
                oldest
            )  # its name is plain, or a hash, which is plain too
            with suppress(OSError):
                directory.rmdir()  # only where nothing is left
    return gone


def sweep_daily(root: Path, at: datetime) -> int:
    """Sweep where that was not done today, and return as `sweep`. Raises OSError."""
    mark, today = root / "swept", _day(at.timestamp())
    with suppress(OSError):
        if not root.is_dir() or mark.read_text() == today:
            return 0
    gone = sweep(root, at)
    with os.fdopen(open_to_write(mark, os.O_WRONLY | os.O_TRUNC), "w") as file:
        file.write(today)
    return gone


def _newer(samples: Sequence[Sample], last: float) -> Iterator[Sample]:
    """Yield what is newer than `last` by half its own length at least: stamps of the same one differ by moments."""
    for one in samples:
        if one["t"] > last + one["s"] / 2:
            last = one["t"]
            yield one


def _on_our_clock(samples: Sequence[Sample], machine_now: float, now: float) -> list[Sample]:
    """Return the samples by our clock; where a machine's is off, by whole minutes, so that none is new twice."""
    off = now - machine_now
    by = 0.0 if abs(off) < CLOCK_OFF else round(off / MINUTE) * MINUTE
    return [{**one, "t": one["t"] + by} for one in samples]


def _day(at: float) -> str:
    return datetime.fromtimestamp(max(0.0, at), UTC).strftime("%Y-%m-%d")
