"""Decides when a local machine ends by itself: at its timer or interruption, or where no agent watches, its lease.

Each deadline is compared with two clocks: the wall clock, which runs on while a laptop sleeps, and the monotonic one,
which nobody can set back. Whichever gets there first ends the machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudgpu.core.model.instances import TAG_EXPIRES, TAG_HOLD_UNTIL, TAG_RENEW_UNTIL
from cloudgpu.core.values.times import from_epoch, from_iso
from cloudgpu.providers.local.layout import Layout, read_json

# Why a machine has to end: the names of its deadlines.
RENEW_UNTIL, LEASE, INTERRUPTED = "renew-until", "lease", "interrupted"
AGENT_EXPIRES = "expires"  # the agent's own renewals, in its directory

_FileStamp = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class _Deadline:
    """One deadline on both clocks, in seconds."""

    wall: float
    monotonic: float


class Deadlines:
    """The machine's deadlines, read again from its tags and its interruption notice whenever these change.

    `wall` returns epoch seconds, `monotonic` seconds that never jump.
    """

    def __init__(self, layout: Layout, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._files = (layout.tags, layout.spot, layout.agent / AGENT_EXPIRES)
        self._wall, self._monotonic = wall, monotonic
        self._stamps: tuple[_FileStamp, ...] = ()
        self._ends: dict[str, _Deadline] = {}

    def move(self, layout: Layout) -> None:
        """Read the files of this directory from now on; until they can be read, the known deadlines count."""
        self._files = (layout.tags, layout.spot, layout.agent / AGENT_EXPIRES)

    def end_reason(self, *, with_lease: bool) -> str | None:
        """Return why the machine has to end now, or None; the lease counts only with `with_lease`."""
        self._refresh()
        wall, monotonic = self._wall(), self._monotonic()
        for reason in (INTERRUPTED, RENEW_UNTIL, LEASE):
            end = self._ends.get(reason)
            if end is None or (reason == LEASE and not with_lease):
                continue
            if wall >= end.wall or monotonic >= end.monotonic:
                return reason
        return None

    def _refresh(self) -> None:
        stamps = tuple(_file_stamp(path) for path in self._files)
        if stamps == self._stamps:
            return
        tags_file, notice_file, expires_file = self._files
        try:
            tags, notice = read_json(tags_file), read_json(notice_file)
        except (OSError, ValueError):
            return  # unreadable now: the known deadlines still count, and the next call tries again
        if tags is None and self._stamps:
            return  # the directory was removed or moved away: the known deadlines count
        self._stamps = stamps
        self._set_end(RENEW_UNTIL, tag_time(tags or {}, TAG_RENEW_UNTIL))
        self._set_end(LEASE, lease_end(tags or {}, expires_file))
        self._set_end(INTERRUPTED, _interruption_time(notice))

    def _set_end(self, reason: str, wall_s: float | None) -> None:
        previous = self._ends.get(reason)
        if wall_s is None:
            self._ends.pop(reason, None)
        elif previous is None or previous.wall != wall_s:
            self._ends[reason] = _Deadline(wall_s, self._monotonic() + wall_s - self._wall())


def tag_time(tags: Mapping[str, str], key: str) -> float | None:
    """Return a tag's time in epoch seconds; None when it is missing, 0 or no time."""
    return _parse_epoch(tags.get(key, "0"))


def agent_expires(path: Path) -> float | None:
    """Return the end of the lease as the agent renewed it, in epoch seconds; None where it has not."""
    with contextlib.suppress(OSError, ValueError):
        return _parse_epoch(path.read_text(encoding="ascii").strip())
    return None


def lease_end(tags: Mapping[str, str], expires_file: Path) -> float | None:
    """Return when the lease ends (epoch seconds): by the tag, the agent's later renewal, or a later end of a hold."""
    expires = tag_time(tags, TAG_EXPIRES)
    if expires is None:
        return None
    return max(expires, agent_expires(expires_file) or 0, tag_time(tags, TAG_HOLD_UNTIL) or 0)


def _parse_epoch(text: str) -> float | None:
    try:
        return from_epoch(text.partition(".")[0]).timestamp() or None
    except ValueError:
        return None


def _interruption_time(notice: Mapping[str, Any] | None) -> float | None:
    try:
        return from_iso(str(notice["time"])).timestamp() if notice else None
    except (KeyError, ValueError):
        return None


def _file_stamp(path: Path) -> _FileStamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
