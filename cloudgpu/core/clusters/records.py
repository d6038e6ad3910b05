"""Reads Slurm's record of the jobs that have ended: one line each, as its plugin jobcomp/filetxt writes them. Pure.

Slurm writes times as the clock of its controller shows them, without a zone: whoever reads them says how far that is
from UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

_NAME = re.compile(r"(?:^| )Name=(.*?) JobState=")
_WORD = re.compile(r"(?:^| )([A-Za-z]+)=(\S*)")
_GROUP = re.compile(r"([^,\[\]]*)(?:\[([^\]]*)\])?([^,\[\]]*)(?:,|$)")
_FORMAT = "%Y-%m-%dT%H:%M:%S"
MAX_NODES = 65_536


class Record(NamedTuple):
    """A job of Slurm that has ended: who ran it where, from when to when, and its exit status (128 + n: signal n).

    `begin` is None for one that never began.
    """

    id: str
    user: str
    name: str
    state: str
    nodes: tuple[str, ...]
    begin: datetime | None
    end: datetime
    status: int | None


def read_records(text: str, utc_offset: timedelta) -> tuple[Record, ...]:
    """Return the jobs of these lines, as they were written; a line that was cut short is left out.

    `utc_offset` is what the controller's clock is ahead of UTC.
    """
    return tuple(one for line in text.splitlines() if (one := _record(line, utc_offset)) is not None)


def _record(line: str, offset: timedelta) -> Record | None:
    words, name = dict(_WORD.findall(line)), _NAME.search(line)
    end = _time(words.get("EndTime", ""), offset)
    if name is None or end is None or not words.get("JobId", "").isdecimal() or "ExitCode" not in words:
        return None
    user = words.get("UserId", "").partition("(")[0]
    begin, nodes = _time(words.get("StartTime", ""), offset), tuple(node_names(words.get("NodeList", "")))
    began = begin if nodes else None
    return Record(
        words["JobId"], user, name[1], words.get("JobState", ""), nodes, began, end, status_of(words["ExitCode"])
    )


def status_of(text: str) -> int | None:
    """Return the exit status that Slurm writes as `STATUS:SIGNAL`; None for what is none."""
    status, colon, number = text.partition(":")
    if not colon or not status.isdecimal() or not number.isdecimal():
        return None
    return int(status) or (128 + int(number) if int(number) else 0)


def _time(text: str, offset: timedelta) -> datetime | None:
    try:
        return datetime.strptime(text, _FORMAT).replace(tzinfo=UTC) - offset
    except ValueError:
        return None


def node_names(text: str) -> Iterator[str]:
    """Yield the names of nodes that Slurm writes as `train-[0-2,5],head`; none for `(null)`, at most 65,536."""
    if text in ("", "(null)", "None", "None assigned"):
        return
    left = MAX_NODES
    for before, numbers, after in _GROUP.findall(text):
        if not before and not numbers and not after:
            continue
        for number in _numbers(numbers) if numbers else ("",):
            if not left:
                return
            left -= 1
            yield f"{before}{number}{after}"


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash or not first.isdecimal() or not last.isdecimal():
            yield part
            continue
        for number in range(int(first), min(int(last), int(first) + MAX_NODES) + 1):
            yield str(number).zfill(len(first))
