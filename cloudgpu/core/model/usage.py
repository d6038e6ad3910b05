"""A usage: one resource in one uninterrupted interval that is billed, with its prices, as a value and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple


class Resource(StrEnum):
    """What costs money."""

    INSTANCE = "instance"
    DISK = "disk"
    SNAPSHOT = "snapshot"
    IMAGE = "image"
    ADDRESS = "address"
    TRAFFIC = "traffic"
    SLURM = "slurm"  # GPUs of somebody else's Slurm, by a tariff


class Per(StrEnum):
    """What a price is for: one unit of the quantity for an hour or a month, or a GB (10^9 bytes) once."""

    HOUR = "hour"
    MONTH = "month"
    GB = "gb"


class PriceInterval(NamedTuple):
    """A price that held from `at` (ledger time) on: nano-dollars per unit of the usage.

    `maybe_from`: it may have held since then already; nobody saw when it changed. `list_nanos` is the public list's
    price, which is another one where this is negotiated; None where nobody knows it.
    """

    at: str
    nanos: int
    source: str
    as_of: str | None
    basis: str
    maybe_from: str | None = None
    list_nanos: int | None = None


class Usage(NamedTuple):
    """One resource in one uninterrupted interval that is billed. Times are ledger times (`times.iso`).

    `kind` is the price list's word: an instance type, `gp3`, `public_ipv4`. `quantity` is whole GB, addresses, bytes
    (traffic) or 1. `segments` are in the order of `at`, the first also holds before it; none: no price is known.
    `on_demand` is what an hour would have cost on demand, None where that is not known or makes no sense. `first`: the
    first run since the launch. `reason` is why it ended, in the provider's word (`interrupted`, ...). `licence` is that
    of the system where it changes how the machine is billed (`suse`, `rhel`), else empty. `sure_from`: whether it was
    billed before then is not known; the amount counts it. `maybe_since`: it may have been billed since then, before
    `begin`; the amount does not count that. `maybe_until`: it may have been billed until then, though `end` is the last
    proof. `why_maybe_less`: why it may cost less, even nothing; empty if it cannot. `continues`: the same disk,
    the blocks of the same snapshot, or the same run, were billed before as part of another use, since then: what that
    rounded up is paid.
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


def usage_of_record(record: Mapping[str, Any]) -> Usage:
    """Return the usage of a JSON record, which has a `Usage` by its fields' names.

    Equal texts are held once, since a report reads all usages that have ever ended.
    """
    facts = list(_usage(record))
    facts[0], facts[7] = _RESOURCES[facts[0]], _PERS[facts[7]]
    facts[1:6] = map(_once, facts[1:6])
    facts[10] = tuple([_interval(one) for one in facts[10]])
    return Usage._make(facts)


def _interval(record: Mapping[str, Any]) -> PriceInterval:
    at, nanos, source, as_of, basis, maybe_from, list_nanos = _price(record)
    return PriceInterval(at, nanos, _once(source), _once(as_of), _once(basis), maybe_from, list_nanos)


@lru_cache(maxsize=4096)
def _once(text: Any) -> Any:
    """Return the first of equal texts, so that the others are not held."""
    return text


_usage, _price = itemgetter(*Usage._fields), itemgetter(*PriceInterval._fields)
_RESOURCES, _PERS = {one.value: one for one in Resource}, {one.value: one for one in Per}
