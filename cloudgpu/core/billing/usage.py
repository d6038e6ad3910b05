"""What is paid for: one resource in one uninterrupted interval with its prices, as a value and as plain JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cloudgpu.core.values.times import from_iso

if TYPE_CHECKING:
    from cloudgpu.core.billing.cost_groups import Asked, Ended

Row = dict[str, Any]
NO_TIME = timedelta(0)
_MICROS_OF_SUMS = 4  # of the sums that a row keeps


class Resource(StrEnum):
    """What costs money."""

    INSTANCE = "instance"
    DISK = "disk"
    SNAPSHOT = "snapshot"
    IMAGE = "image"
    ADDRESS = "address"
    TRAFFIC = "traffic"


class Per(StrEnum):
    """What a price is for: one unit of the quantity for an hour or a month, or a GB (10^9 bytes) once."""

    HOUR = "hour"
    MONTH = "month"
    GB = "gb"


@dataclass(frozen=True, slots=True)
class Segment:
    """A price that held from `at` (ledger time) on: nano-dollars per unit of the use.

    `maybe_from`: it may have held since then already; nobody saw when it changed.
    """

    at: str
    nanos: int
    source: str
    as_of: str | None
    basis: str
    maybe_from: str | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """One resource in one uninterrupted interval that is billed. Times are ledger times (`times.iso`).

    `kind` is the price list's word: an instance type, `gp3`, `public_ipv4`. `quantity` is whole GB, addresses, bytes
    (traffic) or 1. `segments` are in the order of `at`, the first also holds before it; none: no price is known.
    `on_demand` is what an hour would have cost on demand, None where that is not known or makes no sense.
    `first`: the first run since the launch. `reason` is why it ended, in the provider's word (`interrupted`, ...).
    `licence` is that of the system where it changes how the machine is billed (`suse`, `rhel`), else empty.
    `sure_from`: whether it was billed before then is not known; the amount counts it. `maybe_since`: it may have been
    billed since then, before `begin`; the amount does not count that. `maybe_until`: it may have been billed until
    then, though `end` is the last proof. `at_most`: why it may cost as little as nothing; empty where it does not.
    `continues`: the same disk, or the blocks of the same snapshot, were billed before as part of another use, since
    then: what that rounded up is paid.
    """

    resource: Resource
    id: str
    what: str
    provider: str
    market: str
    kind: str
    quantity: int
    per: Per
    begin: str
    end: str | None
    segments: tuple[Segment, ...]
    on_demand: int | None = None
    first: bool = True
    reason: str | None = None
    sure_from: str | None = None
    maybe_until: str | None = None
    at_most: str = ""
    licence: str = ""
    continues: str | None = None
    maybe_since: str | None = None


def use_to_json(use: Use) -> dict[str, Any]:
    """Return the use as plain JSON values."""
    return asdict(use)


def use_from_json(data: Mapping[str, Any]) -> Use:
    """Return the use that `use_to_json` wrote."""
    segments = tuple(Segment(**segment) for segment in data["segments"])
    return Use(**{**data, "resource": Resource(data["resource"]), "per": Per(data["per"]), "segments": segments})


def billed_within(rows: Sequence[Row], ended: Iterable[Ended], asked: Asked, now: datetime) -> dict[str, timedelta]:
    """Return for how long each machine was billed within the period, by the id of its row."""
    found = {row["id"]: NO_TIME for row in rows}
    if asked.from_totals:
        for row in rows:
            sums = row["totals"].get(Resource.INSTANCE)
            found[row["id"]] += timedelta(microseconds=sums[_MICROS_OF_SUMS] if sums else 0)
    for subject, use in (*_of_machines(ended, found), *((row["id"], use) for row in rows for use in row["uses"])):
        if use["resource"] == Resource.INSTANCE:
            found[subject] += _within(use, asked, now)
    return found


def _of_machines(ended: Iterable[Ended], ids: Mapping[str, Any]) -> Iterator[Ended]:
    return (one for one in ended if one[0] in ids)


def _within(use: Mapping[str, Any], asked: Asked, now: datetime) -> timedelta:
    begin, end = from_iso(use["begin"]), now if use["end"] is None else from_iso(use["end"])
    begin = begin if asked.since is None else max(begin, asked.since)
    end = end if asked.until is None else min(end, asked.until)
    return max(NO_TIME, end - begin)


def kept_within(rows: Sequence[Row], asked: Asked, now: datetime) -> timedelta:
    """Return how long a desktop would have stood there: since the period's begin or the first launch."""
    first = min((from_iso(row["first_at"]) for row in rows if row["provider_id"]), default=now)
    begin = first if asked.since is None else max(first, asked.since)
    return max(NO_TIME, (now if asked.until is None else min(now, asked.until)) - begin)
