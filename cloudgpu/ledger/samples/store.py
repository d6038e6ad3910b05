"""Stores the samples of machines' agents for 90 days, one file per day and machine, outside of the ledger.

Samples are many, and no amount depends on them. The present day is a file of JSON lines, which is appended to; the days
before it are packed. A line cut short by a crash is ignored. How long a machine worked on each day stays when its
samples go (`ledger.samples.packing`): it is written when a day is packed, and before one is dropped.
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

from cloudgpu.core.activity.utilization import UsageSpan, join_days, usage_intervals
from cloudgpu.ledger.log.files import (
    make_private_directory,
    missing_newline,
    open_to_write,
    read_our_file,
    write_durably,
)
from cloudgpu.ledger.samples.packing import Sample, Workdays, unpack
from cloudgpu.ledger.samples.readings import has_length, is_valid, pack_valid, parse_line

RETENTION = timedelta(days=90)
MAX_DAY_BYTES = 2_000_000  # bytes of a machine's day before it is packed: a line a minute is a tenth of it
MAX_CLOCK_ERROR_S = 300.0  # seconds; with a larger error of a machine's clock, its timestamps are corrected
MINUTE_S = 60.0
DAY_S = 86400.0
_MAX_READ_BYTES = 2 * MAX_DAY_BYTES  # bytes that are read of a file; no valid file is larger
_TAIL_BYTES = 8192
_PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
_DAY_NAME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(\.jsonl|\.columns\.xz)")
_JSON_LINES_SUFFIX, _PACKED_SUFFIX = ".jsonl", ".columns.xz"


@dataclass(frozen=True, slots=True)
class SampleStore:
    """One machine's samples below `root`. Times are epoch seconds of this computer's clock."""

    root: Path
    id: str

    @property
    def directory(self) -> Path:
        """The directory of its days; an id that is not a plain name (such as somebody's tag) is hashed."""
        plain = _PLAIN_NAME.fullmatch(self.id)
        return self.root / (self.id if plain else hashlib.sha256(self.id.encode(errors="surrogatepass")).hexdigest())

    def keep(self, samples: Sequence[Sample], machine_now: float, now: datetime) -> int:
        """Write the samples newer than the last stored one under a lock, and return their number.

        `samples` are oldest first, by the machine's clock, which says `machine_now`. Those of its last minute are left
        for the next time: an agent may still complete them. Raises OSError (a full disk).
        """
        complete = [one for one in samples if one["t"] <= machine_now - MINUTE_S]
        with self._exclusively():
            new_samples = list(_newer(_on_our_clock(complete, machine_now, now.timestamp()), self.last()))
            for day in sorted({_day(one["t"]) for one in new_samples}):
                self._append(day, [one for one in new_samples if _day(one["t"]) == day])
            if new_samples:
                self._pack_and_delete_old(_day(new_samples[-1]["t"]), now)
        return len(new_samples)

    def last(self) -> float:
        """Return when the last sample kept ended; 0 for none."""
        for day in reversed(self._days()):
            found = self._last_time_of(day)
            if found:
                return found
        return 0.0

    def read(self, since: float, until: float) -> list[Sample]:
        """Return the samples that ended in (since, until], oldest first, one for each time."""
        wanted = [day for day in self._days() if _day(since) <= day <= _day(until)]
        sample_by_end = {one["t"]: one for day in wanted for one in self._read(day) if since < one["t"] <= until}
        return [sample_by_end[ended_at] for ended_at in sorted(sample_by_end)]

    def utilization(self, since: float, until: float) -> list[UsageSpan]:
        """Return what the samples that ended on the days of [since, until] showed, the day before and after too.

        For days whose samples were deleted, the daily summary is used; it gives the same result. Unreadable files are
        skipped.
        """
        first_day, last_day = _day(since - DAY_S), _day(until + DAY_S)
        with suppress(OSError), self._locked(fcntl.LOCK_SH) as exists:  # a day that is packed changes its file
            summaries = Workdays(self.directory).read() if exists else {}
            spans_by_day = {
                day: summaries[day]
                for day in summaries
                if first_day <= day <= last_day and not self._path(day).exists()
            }
            for day in set(self._days()) - spans_by_day.keys():
                if first_day <= day <= last_day:
                    spans_by_day[day] = self._usage_of_day(day, must_read=False)
            return join_days(spans_by_day[day] for day in sorted(spans_by_day))
        return []

    def _usage_of_day(self, day: str, *, must_read: bool) -> tuple[UsageSpan, ...]:
        """Return what the samples of a day show; with `must_read`, raise OSError for a file that cannot be read."""
        sample_by_end = {one["t"]: one for one in self._read(day, must_read=must_read) if has_length(one)}
        samples = [sample_by_end[ended_at] for ended_at in sorted(sample_by_end)]
        try:
            return usage_intervals(samples)
        except (TypeError, ValueError):  # a file that somebody else wrote: what is no reading shows nothing
            return usage_intervals(one for one in samples if is_valid(one))

    def _write_summaries(self, days: Sequence[str]) -> None:
        """Write the summaries of these days. Raises OSError; nothing may be dropped then."""
        Workdays(self.directory).add({day: self._usage_of_day(day, must_read=True) for day in days})

    def _days(self) -> list[str]:
        try:
            names = os.listdir(self.directory)  # noqa: PTH208  (half the time of iterdir, and it is asked for each machine)
        except OSError:
            return []
        return sorted({found[1] for name in names if (found := _DAY_NAME.fullmatch(name))})

    def _path(self, day: str, suffix: str = _JSON_LINES_SUFFIX) -> Path:
        return self.directory / f"{day}{suffix}"

    def _last_time_of(self, day: str) -> float:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with suppress(OSError), os.fdopen(os.open(self._path(day), flags), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL_BYTES))
            for line in reversed(file.read().split(b"\n")):
                if found := parse_line(line):
                    return float(found["t"])
        return max((one["t"] for one in self._read(day)), default=0.0)

    def _read(self, day: str, *, must_read: bool = False) -> Iterator[Sample]:
        """Yield a day's samples; with `must_read`, raise OSError for an existing file that cannot be read."""
        ignored = FileNotFoundError if must_read else OSError
        with suppress(ignored, ValueError):  # both, where packing was cut short
            yield from unpack(read_our_file(self._path(day, _PACKED_SUFFIX), _MAX_READ_BYTES))
        with suppress(ignored):
            yield from filter(None, map(parse_line, read_our_file(self._path(day), _MAX_READ_BYTES).split(b"\n")))

    def _append(self, day: str, samples: Sequence[Sample]) -> None:
        text = b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in samples)
        handle = open_to_write(self._path(day), os.O_RDWR | os.O_APPEND)
        with os.fdopen(handle, "r+b", buffering=0) as file:
            if os.fstat(handle).st_size + len(text) <= MAX_DAY_BYTES:
                file.write(missing_newline(handle) + text)

    def _pack_and_delete_old(self, today: str, now: datetime) -> None:
        """Pack the days before `today` and delete those that are too old."""
        oldest = _day((now - RETENTION).timestamp())
        for day in self._days():
            if oldest <= day < today and self._path(day).exists():
                self._pack(day)
        self._drop([day for day in self._days() if day < oldest])

    def drop_before(self, oldest: str) -> int:
        """Delete the samples of all days before `oldest` and return the number of deleted files. Raises OSError."""
        days = [day for day in self._days() if day < oldest]
        if not days:
            return 0
        with self._exclusively():
            return self._drop(days)

    def _drop(self, days: Sequence[str]) -> int:
        """Delete these days' samples after their summaries are written; return the number of deleted files."""
        if not days:
            return 0
        summarized_days, deleted = Workdays(self.directory).days(), 0
        self._write_summaries([day for day in days if day not in summarized_days or self._path(day).exists()])
        for path in (self._path(day, suffix) for day in days for suffix in (_JSON_LINES_SUFFIX, _PACKED_SUFFIX)):
            with suppress(FileNotFoundError):
                path.unlink()
                deleted += 1
        return deleted

    def _pack(self, day: str) -> None:
        sample_by_end = {one["t"]: one for one in self._read(day)}
        new_file = self._path(day, ".fresh")
        write_durably(new_file, pack_valid([sample_by_end[ended_at] for ended_at in sorted(sample_by_end)]))
        new_file.replace(self._path(day, _PACKED_SUFFIX))
        self._write_summaries([day])
        self._path(day).unlink()

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Lock the machine's directory, creating it if missing: a watch and a cron job may run at once."""
        make_private_directory(self.directory)
        with self._locked(fcntl.LOCK_EX):
            yield

    @contextmanager
    def _locked(self, operation: int) -> Iterator[bool]:
        """Hold a lock of the mode `operation` on the machine's directory; yield False if there is none."""
        try:
            handle = os.open(self.directory, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            yield False
            return
        try:
            fcntl.flock(handle, operation)
            yield True
        finally:
            os.close(handle)


def sweep(root: Path, now: datetime) -> int:
    """Delete samples older than 90 days of all machines, also ended ones; return the number of deleted files."""
    oldest, deleted = _day((now - RETENTION).timestamp()), 0
    for directory in root.iterdir() if root.is_dir() else ():
        if directory.is_dir():
            deleted += SampleStore(root, directory.name).drop_before(oldest)  # the name is plain, or a hash: also plain
            with suppress(OSError):
                directory.rmdir()  # only where nothing is left
    return deleted


def sweep_daily(root: Path, now: datetime) -> int:
    """Call `sweep` unless that was done today, by the date in the file `swept`; return the number of deleted files.

    Raises OSError.
    """
    sweep_date_file, today = root / "swept", _day(now.timestamp())
    with suppress(OSError):
        if not root.is_dir() or sweep_date_file.read_text() == today:
            return 0
    deleted = sweep(root, now)
    with os.fdopen(open_to_write(sweep_date_file, os.O_WRONLY | os.O_TRUNC), "w") as file:
        file.write(today)
    return deleted


def _newer(samples: Sequence[Sample], last: float) -> Iterator[Sample]:
    """Yield samples newer than `last` by at least half their length: timestamps of the same sample differ slightly."""
    for one in samples:
        if one["t"] > last + one["s"] / 2:
            last = one["t"]
            yield one


def _on_our_clock(samples: Sequence[Sample], machine_now: float, now: float) -> list[Sample]:
    """Return the samples with times of this computer's clock, corrected by whole minutes so that none is new twice."""
    clock_error = now - machine_now
    correction = 0.0 if abs(clock_error) < MAX_CLOCK_ERROR_S else round(clock_error / MINUTE_S) * MINUTE_S
    return [{**one, "t": one["t"] + correction} for one in samples]


def _day(epoch_s: float) -> str:
    return datetime.fromtimestamp(max(0.0, epoch_s), UTC).strftime("%Y-%m-%d")
