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
    """How far a price can be trusted; shown wherever the price is."""

    ASKED = "quoted"  # the provider's own answer, now
    LISTED = "listed"  # a dated price list
    DERIVED = "derived"  # computed from other figures
    RECALLED = "recalled"  # from memory, unverified
    SETTING = "setting"  # the user's own figure
    MEASURED = "measured"  # read from a meter on the machine
    ASSUMED = "assumed"  # a usual figure of ours, where nobody has said one


@dataclass(frozen=True, slots=True)
class Accelerator:
    """`count` GPUs of one kind; `memory_gib` is per GPU; `share` below 1 is a fraction of one.

    `of` is how many GPUs the computer has, where the machine uses only some of them.
    """

    name: str
    count: int
    memory_gib: float | None = None
    share: float = 1.0
    of: int | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """A price per hour with where it came from and when that was true.

    `is_negotiated`: it is this user's alone. Then `listed` is what the public list says, None where nobody knows that.
    """

    per_hour: Money
    source: str
    as_of: datetime
    basis: Basis
    is_negotiated: bool = False
    listed: Money | None = None


class Trust(StrEnum):
    """Who owns the computer that an offer is on, by what they could read of it; in the order of trust."""

    CLOUD = "cloud"  # the provider itself
    DATACENTER = "datacenter"  # somebody else, in a data centre that the provider has examined
    COMMUNITY = "community"  # anybody: the computer's owner can read everything in it

    @property
    def rank(self) -> int:
        """Where it stands in the order of trust, from 0 for the most."""
        return list(Trust).index(self)

    def accepts(self, other: Trust) -> bool:
        """Say whether whoever accepts at least this much trust accepts `other`, too."""
        return other.rank <= self.rank


DEFAULT_TRUST = Trust.DATACENTER  # the least that is accepted where nobody says; a community host is never unasked


@dataclass(frozen=True, slots=True)
class Requirements:
    """What the machine has to be; None: any.

    A provider may show offers of less `trust` than is accepted: none of them is launched, they are only spoken of.
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
    """What a GB (10^9 bytes) costs that a machine sends and receives, where its offer has prices of its own."""

    out: Money
    into: Money


@dataclass(frozen=True, slots=True)
class Available:
    """Something a provider could launch, not yet priced; or what a machine was launched from, to ask its price.

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
    parkable: bool = True  # False: no image of its disk can be kept. Of both, control knows what the provider can do
    after: tuple[str, ...] = ()  # why it is tried after all others: somebody uses it, say
    gpus_now: tuple[str, ...] = ()  # who uses the GPUs of that computer now, in words, where the provider can tell
    trust: Trust = Trust.CLOUD
    traffic: TrafficPrices | None = None  # None: as the catalogue says of its provider, and bytes in are free
    machine: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Offer:
    """Something that can be bought: what is available, joined with its price."""

    available: Available
    price: Price


@dataclass(frozen=True, slots=True)
class Availability:
    """What could be launched where it was asked, unpriced and in no order, and by name all that did not answer."""

    items: tuple[Available, ...]
    unanswered: tuple[Unanswered, ...] = ()


def accelerator_to_json(gpu: Accelerator) -> AcceleratorRecord:
    """Return GPUs of one kind as a ledger event stores them."""
    return {"name": gpu.name, "count": gpu.count, "memory_gib": gpu.memory_gib, "share": gpu.share, "of": gpu.of}


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


def price_from_json(data: Mapping[str, Any]) -> Price:
    """Return the price that `price_to_json` or `attempt_to_json` wrote."""
    nanos = data["nanos_per_hour"] if "nanos_per_hour" in data else data["per_hour"]["nanos"]
    listed = data["list_nanos_per_hour"] if "list_nanos_per_hour" in data else (data.get("listed") or {}).get("nanos")
    return Price(
        Money(nanos),
        data["source"],
        from_iso(data["as_of"]),
        Basis(data["basis"]),
        is_negotiated=bool(data.get("is_negotiated")),
        listed=None if listed is None else Money(listed),
    )


class NoteKind(StrEnum):
    """What a note of a plan is about."""

    NOTE = "note"
    MONEY = "money"  # it may cost more than the price says
    ERASURE = "erasure"  # data is deleted
    ACCESS = "access"  # more can be reached, or by more, than one may expect
    GUARD = "guard"  # a layer that would end the machine is missing


class Note(str):
    """A sentence for a plan that says what it is about; any other text is a `NoteKind.NOTE`."""

    __slots__ = ("kind",)
    kind: NoteKind

    def __new__(cls, text: str, kind: NoteKind) -> Self:
        """Make one of `kind`."""
        note = super().__new__(cls, text)
        note.kind = kind
        return note


def note_kind(text: str) -> NoteKind:
    """Return what a sentence of a plan is about."""
    return text.kind if isinstance(text, Note) else NoteKind.NOTE


def same_gpu(listed: str, requested: str) -> bool:
    """Say whether a listed GPU is the one asked for: `v100` means every V100, `a100-80gb` only that one.

    Makers and series are no part of a name: `NVIDIA Tesla V100-SXM2-16GB` is a `v100`.
    """
    words = _words(listed)
    return all(word in words for word in _words(requested))


def _words(name: str) -> set[str]:
    return {word for word in name.lower().replace("_", "-").replace(" ", "-").split("-") if word not in _MAKERS}


_MAKERS = {"nvidia", "tesla", "geforce", ""}
