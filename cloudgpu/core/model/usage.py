"""A usage: one uninterrupted interval in which a resource is billed, with its prices."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple


class Resource(StrEnum):
    """A kind of resource that costs money."""

    INSTANCE = "instance"
    DISK = "disk"
    SNAPSHOT = "snapshot"
    IMAGE = "image"
    ADDRESS = "address"
    TRAFFIC = "traffic"
    SLURM = "slurm"  # GPUs of an existing Slurm cluster, at an agreed tariff


class Per(StrEnum):
    """What a price is for: one unit of the quantity for an hour or a month, or a GB (10^9 bytes) once."""

    HOUR = "hour"
    MONTH = "month"
    GB = "gb"


class PriceInterval(NamedTuple):
    """A price that held from `at` (ledger time) on: nano-dollars per unit of the usage.

    `maybe_from`: the earliest time from which it may have held; when it changed is not known. `list_nanos` is the
    public list price, which differs if this one is negotiated; None if it is not known.
    """

    at: str
    nanos: int
    source: str
    as_of: str | None
    basis: str
    maybe_from: str | None = None
    list_nanos: int | None = None


class Usage(NamedTuple):
    """One uninterrupted interval in which a resource is billed. Times are ledger times (`times.iso`).

    `what` names it for people, `kind` is the price list's name: an instance type, `gp3`, `public_ipv4`. `quantity` is
    whole GB, addresses, bytes (traffic) or 1. `segments` are the prices in the order of `at`; the first also holds
    before it, none: no price is known. `on_demand` is the on-demand price of an hour in nano-dollars, None where it is
    not known or does not apply. `first`: the first run since the launch. `reason` is the provider's for its end
    (`interrupted`, ...). `licence` is that of an operating system with billing rules of its own (`suse`, `rhel`), else
    empty. `sure_from`: it was certainly billed from then on; the amount counts all since `begin`. `maybe_since`: it may
    have been billed since then, before `begin`; the amount does not count that. `maybe_until`: it may have been billed
    until then, though `end` is the last proof. `why_maybe_less`: why it may cost less, even nothing; empty if it
    cannot. `continues`: since when the same disk, snapshot or run was billed in an earlier usage; the time that this
    one rounded up is already paid.
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
    segments: tuple[PriceInterval, ...]
    on_demand: int | None = None
    first: bool = True
    reason: str | None = None
    sure_from: str | None = None
    maybe_until: str | None = None
    why_maybe_less: str = ""
    licence: str = ""
    continues: str | None = None
    maybe_since: str | None = None


EndedUsage = tuple[str, Usage]  # (machine id, an ended usage)


def usage_of_record(record: Mapping[str, Any]) -> Usage:
    """Return the usage of a JSON record, whose keys are the fields of `Usage`.

    Equal texts share one object in memory, since a report reads all usages that have ever ended.
    """
    values = list(_usage_values(record))  # in the order of the fields
    values[0], values[7] = _RESOURCES[values[0]], _PERS[values[7]]
    values[1:6] = map(_interned, values[1:6])
    values[10] = tuple(map(_interval, values[10]))
    return Usage._make(values)


def _interval(record: Mapping[str, Any]) -> PriceInterval:
    at, nanos, source, as_of, basis, maybe_from, list_nanos = _price_values(record)
    return PriceInterval(at, nanos, _interned(source), _interned(as_of), _interned(basis), maybe_from, list_nanos)


@lru_cache(maxsize=4096)
def _interned(text: Any) -> Any:
    """Return the first of equal texts, so that each is in memory once."""
    return text


_usage_values, _price_values = itemgetter(*Usage._fields), itemgetter(*PriceInterval._fields)
_RESOURCES, _PERS = {kind.value: kind for kind in Resource}, {unit.value: unit for unit in Per}
