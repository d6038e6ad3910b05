"""Groups what the ledger's rows and uses cost: by machine, by whose it is, by place, by kind, by calendar period."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from enum import StrEnum
from itertools import chain
from typing import Any

from cloudgpu.core import aside
from cloudgpu.core.bill import billed
from cloudgpu.core.billing import Charge, billed_span, charge
from cloudgpu.core.names import tag_value
from cloudgpu.core.periods import periods
from cloudgpu.core.tally import Tally
from cloudgpu.core.times import iso
from cloudgpu.core.uses import Use, use_from_json

Row = Mapping[str, Any]
Ended = tuple[str, Mapping[str, Any]]


class By(StrEnum):
    """What costs are grouped by."""

    INSTANCE = "instance"
    PROJECT = "project"
    OWNER = "owner"
    ACCOUNT = "account"
    PROVIDER = "provider"
    REGION = "region"
    MARKET = "market"
    RESOURCE = "resource"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


CALENDAR = (By.DAY, By.WEEK, By.MONTH)
# A row is of one of each of these for its whole life, so that the totals of its ended uses are enough.
_OF_A_ROW = (By.INSTANCE, By.PROJECT, By.OWNER, By.ACCOUNT, By.REGION, By.RESOURCE)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is grouped by what, within [`since`, `until`) where they are given; calendar periods are those of `zone`."""

    by: By
    zone: tzinfo
    since: datetime | None = None
    until: datetime | None = None
    owner: str | None = None  # of whose machines alone; None: everybody's

    @property
    def from_totals(self) -> bool:
        """Whether the rows alone tell it; else every use that has ended has to be read."""
        return self.since is None and self.until is None and self.by in _OF_A_ROW


@dataclass(frozen=True, slots=True)
class Costs:
    """The groups in their order, by key, and their total. The key of a period is the ledger time of its begin."""

    groups: Mapping[str, Tally]
    total: Tally


def costs(rows: Iterable[Row], ended: Iterable[Ended], now: datetime, asked: Asked) -> Costs:
    """Return what these rows (`View.bills`) cost as of `now`.

    `ended` are the uses that have ended (`View.uses`, of the time since `asked.since`); not needed `from_totals`.
    The groups add up to the total exactly, calendar periods too: a use is cut at their midnights.
    """
    groups: dict[str, Tally] = {}
    total = Tally()
    for part in _parts(with_whole_names(list(rows), asked.by), ended, now, asked):
        group = groups.setdefault(part.key, Tally())
        if isinstance(part.found, str):
            group.add_ended(part.row, part.found)
            total.add_ended(part.row, part.found)
        else:
            note = aside.empty()
            aside.note(note, part.found)
            group.add(part.row, part.found, note)
            total.add(part.row, part.found, note, again=part.again)
    order = sorted(groups) if asked.by in CALENDAR else sorted(groups, key=lambda key: (-groups[key].amount, key))
    return Costs({key: groups[key] for key in order}, total)


def with_whole_names(rows: list[Row], by: By) -> list[Row]:
    """Return the rows with an owner or a project as launches said it, where what was read from tags is a part of it.

    So with what is kept by name, or was found without its launch. A tag that two may mean stays as it is.
    """
    if by not in (By.OWNER, By.PROJECT):
        return rows
    meant: dict[str, list[str]] = {}
    for name in {str(row[by]) for row in rows if row[by]}:
        meant.setdefault(tag_value(name), []).append(name)
    whole = {tag: [name for name in names if name != tag] for tag, names in meant.items()}
    tagged = (row for row in rows if row["thing"] or not row.get("template"))
    said = {row["id"]: whole[row[by]][0] for row in tagged if len(whole.get(row[by] or "", ())) == 1}
    return [{**row, str(by): said[row["id"]]} if row["id"] in said else row for row in rows]


def of_owner(rows: list[Row], ended: Iterable[Ended], owner: str) -> tuple[list[Row], list[Ended]]:
    """Return the rows and the ended uses of what this owner has, named in full or as tags have it."""
    whole = with_whole_names(rows, By.OWNER)
    theirs = [row for row in whole if row["owner"] and tag_value(row["owner"]) == tag_value(owner)]
    known = {row["id"] for row in theirs}
    return theirs, [one for one in ended if one[0] in known]


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece that is added up: a charge, or the resource whose totals are meant; `again`: its use was there before."""

    key: str
    row: Row
    found: Charge | str
    again: bool = False


def _parts(rows: list[Row], ended: Iterable[Ended], now: datetime, asked: Asked) -> Iterator[_Part]:
    if asked.by in CALENDAR:
        yield from _by_calendar(rows, ended, now, asked)
        return
    charges = billed(rows, ended, now, since=asked.since, until=asked.until)
    if asked.from_totals:
        charges = billed(rows, (), now)
        yield from (_Part(_key(asked.by, row, resource), row, resource) for row in rows for resource in row["totals"])
    for one in charges:
        use = one.charge.use
        yield _Part(_key(asked.by, one.row, use.resource, use), one.row, one.charge)


def _key(by: By, row: Row, resource: str, use: Use | None = None) -> str:
    """Return the group of a charge, or of a row's totals; empty where the row does not say."""
    if by is By.INSTANCE:
        return str(row["id"])
    if by is By.RESOURCE:
        return str(resource)
    if use is not None and by in (By.MARKET, By.PROVIDER):
        return str(use.market if by is By.MARKET else use.provider)
    return str(row[by] or "")


def _by_calendar(rows: list[Row], ended: Iterable[Ended], now: datetime, asked: Asked) -> Iterator[_Part]:
    known = {row["id"]: row for row in rows}
    gone = ((known[subject], use) for subject, use in ended)
    for row, data in chain(gone, ((one, use) for one in rows for use in one["uses"])):
        again = False
        for key, piece in _pieces(use_from_json(data), now, asked):
            yield _Part(key, row, piece, again)
            again = True


def _pieces(use: Use, now: datetime, asked: Asked) -> Iterator[tuple[str, Charge]]:
    """Yield what a use costs in each period in which it is or may be billed; pieces of nothing are left out."""
    first, last = billed_span(use, now)
    first = first if asked.since is None else max(first, asked.since)
    last = last if asked.until is None else min(last, asked.until)
    for one in periods(asked.by, first, last, asked.zone) if first <= last else ():
        begin = one.begin if asked.since is None else max(one.begin, asked.since)
        end = one.end if asked.until is None else min(one.end, asked.until)
        piece = charge(use, now, since=begin, until=end)
        if piece.micros or piece.high or piece.unpriced_micros:
            yield iso(one.begin), piece
