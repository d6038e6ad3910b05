"""What can be launched, and at what price: offers and what they are made of, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.records import AcceleratorRecord, PriceRecord
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso, iso


class Market(StrEnum):
    """How a machine is bought."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"


class Basis(StrEnum):
    """Where a price comes from, and so how reliable it is; shown wherever the price is."""

    QUOTED = "quoted"  # the provider's own answer, now
    LISTED = "listed"  # a dated price list
    DERIVED = "derived"  # computed from other figures
    UNVERIFIED = "unverified"  # from memory, without a source
    SETTING = "setting"  # the user's own figure
    MEASURED = "measured"  # read from a meter on the machine
    ASSUMED = "assumed"  # a typical figure, where nobody has given one


@dataclass(frozen=True, slots=True)
class Accelerator:
    """`count` GPUs of one kind; `memory_gib` is per GPU; `share` below 1 is a fraction of one.

    `out_of` is how many GPUs the computer has, where the machine uses only some of them.
    """

    name: str
    count: int
    memory_gib: float | None = None
    share: float = 1.0
    out_of: int | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """A price per hour with its source and date.

    `is_negotiated`: it is this user's alone. Then `listed` is the public list price, None if that is not known.
    """

    per_hour: Money
    source: str
    as_of: datetime
    basis: Basis
    is_negotiated: bool = False
    listed: Money | None = None


class Trust(StrEnum):
    """Who owns the computer of an offer, and so could read its data; the most trusted first."""

    CLOUD = "cloud"  # the provider itself
    DATACENTER = "datacenter"  # somebody else, in a data centre that the provider has examined
    COMMUNITY = "community"  # anybody: the computer's owner can read everything in it

    @property
    def position(self) -> int:
        """The position in the order of trust, 0 for the most trusted."""
        return list(Trust).index(self)

    def accepts(self, other: Trust) -> bool:
        """Say whether `other` is trusted as much as this level, or more."""
        return other.position <= self.position


DEFAULT_TRUST = Trust.DATACENTER  # the least that is accepted by default: a community host has to be requested


@dataclass(frozen=True, slots=True)
class Requirements:
    """What the user requires of the machine; None: any.

    A provider may list offers of less `trust` than is accepted: they are named, but never launched.
    """

    gpu: str | None = None
    gpu_count: int = 1
    instance_type: str | None = None
    region: str | None = None
    zone: str | None = None
    market: Market = Market.ON_DEMAND
    max_price: Money | None = None
    or_on_demand: bool = False  # on demand too, where spot has no capacity
    persistent: bool = False  # a spot machine that can be stopped, where the provider has such
    trust: Trust = DEFAULT_TRUST  # the least that is accepted


@dataclass(frozen=True, slots=True)
class TrafficPrices:
    """What a GB (10^9 bytes) that a machine sends (`out`) or receives (`into`) costs, if its offer has own prices."""

    out: Money
    into: Money


@dataclass(frozen=True, slots=True)
class MachineConfiguration:
    """A machine that a provider could launch, without a price; or the offer of a launched machine, to query its price.

    `machine` is the provider's id of that machine, whose price may be its own; None for an offer.
    """

    provider: str
    account: str
    region: str
    zone: str
    instance_type: str
    market: Market
    accelerators: tuple[Accelerator, ...] = ()
    vcpus: int | None = None
    memory_gib: float | None = None
    stoppable: bool = True  # False: `stop` has to park or terminate it (a one-time spot instance)
    stop_effect: str = ""  # one sentence for the plan: what `stop` keeps, loses and goes on costing
    parkable: bool = True  # False: no image of its disk can be kept when it ends, from which `start` would restore it
    after: tuple[str, ...] = ()  # reasons to try it after all others: for example, somebody uses it
    gpus_now: tuple[str, ...] = ()  # a text for each GPU of the computer in use now and by whom, if known
    trust: Trust = Trust.CLOUD
    traffic: TrafficPrices | None = None  # None: the catalogue's prices of its provider; received bytes are free
    machine: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Offer:
    """An available machine with its price."""

    configuration: MachineConfiguration
    price: Price


@dataclass(frozen=True, slots=True)
class Availability:
    """The machine configurations that could be launched, in no order, and the scopes that did not answer."""

    items: tuple[MachineConfiguration, ...]
    unanswered: tuple[Unanswered, ...] = ()


def accelerator_to_json(gpu: Accelerator) -> AcceleratorRecord:
    """Return GPUs of one kind as a ledger event stores them."""
    return {"name": gpu.name, "count": gpu.count, "memory_gib": gpu.memory_gib, "share": gpu.share, "of": gpu.out_of}


def price_to_json(price: Price) -> PriceRecord:
    """Return a price as a ledger event stores it."""
    record: PriceRecord = {
        "nanos_per_hour": price.per_hour.nanos,
        "source": price.source,
        "as_of": iso(price.as_of),
        "basis": str(price.basis),
    }
    if price.is_negotiated:
        record["is_negotiated"] = True
    if price.listed is not None:
        record["list_nanos_per_hour"] = price.listed.nanos
    return record


def price_from_json(record: Mapping[str, Any]) -> Price:
    """Return the price that `price_to_json` or `attempt_to_json` wrote."""
    nanos = record["nanos_per_hour"] if "nanos_per_hour" in record else record["per_hour"]["nanos"]
    listed = record.get("list_nanos_per_hour", (record.get("listed") or {}).get("nanos"))
    return Price(
        Money(nanos),
        record["source"],
        from_iso(record["as_of"]),
        Basis(record["basis"]),
        is_negotiated=bool(record.get("is_negotiated")),
        listed=None if listed is None else Money(listed),
    )


class NoteKind(StrEnum):
    """The subject of a sentence in a plan."""

    NOTE = "note"
    MONEY = "money"  # it may cost more than the price says
    ERASURE = "erasure"  # data is deleted
    ACCESS = "access"  # more may connect, or reach more, than one expects
    GUARD = "guard"  # a safeguard that would end the machine is missing


class Note(str):
    """A sentence of a plan with its kind; a plain `str` is a `NoteKind.NOTE`."""

    __slots__ = ("kind",)
    kind: NoteKind

    def __new__(cls, text: str, kind: NoteKind) -> Self:
        """Create a note of this kind."""
        note = super().__new__(cls, text)
        note.kind = kind
        return note


def note_kind(text: str) -> NoteKind:
    """Return the kind of a sentence of a plan."""
    return text.kind if isinstance(text, Note) else NoteKind.NOTE


def same_gpu(listed: str, requested: str) -> bool:
    """Say whether a listed GPU satisfies the requested name: `v100` means every V100, `a100-80gb` only that one.

    Vendor and series are not part of a name: `NVIDIA Tesla V100-SXM2-16GB` is a `v100`. They alone name no GPU: every
    one would satisfy `nvidia`, also the cheapest of all. An empty text means any.
    """
    words = _words_of_name(requested)
    return words <= _words_of_name(listed) and bool(words or not requested)


def _words_of_name(name: str) -> set[str]:
    return {word for word in name.lower().replace("_", "-").replace(" ", "-").split("-") if word not in _IGNORED_WORDS}


_IGNORED_WORDS = {"nvidia", "tesla", "geforce", ""}
