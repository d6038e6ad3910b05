"""What can be bought according to a dated list: GPUs, instance types, prices, and what follows from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from cloudgpu.core.model.offers import Accelerator, Basis, Market, Price, Trust, same_gpu
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.errors import InvalidRequest

OLD_AFTER = timedelta(days=180)
EVERYTHING = "*"  # in place of the families that a quota counts
NO_TENSOR = "no tensor cores"  # what is noted of such a GPU
_H100_BANDWIDTH = 3360.0  # GB/s
_H100_TENSOR = 989.0  # dense FP16 TFLOPs
_H100_FP32 = 66.91  # TFLOPs


class SpeedBasis(StrEnum):
    """What a GPU's training speed rests on; only the first is a measurement."""

    MEASURED = "measured"
    BANDWIDTH = "memory bandwidth"
    TENSOR = "tensor TFLOPs"
    FP32 = "FP32 TFLOPs"


@dataclass(frozen=True, slots=True)
class CardPrices:
    """What one card costs to buy, for those that are sold apart: at its launch, on the street new and used.

    `dated` is the date of the street prices as given; `as_of` the earliest day that it can mean. None: not known.
    `yours` is a price that the user gave: then it alone counts.
    """

    launch: Money | None
    new: Money | None
    used: Money | None
    dated: str
    as_of: datetime
    note: str = ""
    yours: Money | None = None


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One GPU model. Memory in GiB, bandwidth in GB/s, dense TFLOPs, board watts; None where no source was found.

    `trains_vs_h100` is the measured PyTorch training throughput as a fraction of one H100 SXM. `card` is None where no
    price of the card is known.
    """

    name: str
    memory_gib: float
    year: int | None
    architecture: str
    compute_capability: str
    bandwidth_gbs: float | None
    fp32_tflops: float | None
    tensor_tflops: float | None
    watts: float | None
    trains_vs_h100: float | None
    notes: str
    source: str
    card: CardPrices | None = None
    fp8_tflops: float | None = None


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A machine that a provider lists. `gpu.memory_gib` is per GPU, or of the share where `gpu.share` is below 1.

    `legacy_reason` says why it can probably not be launched any more (empty: it can). `spot_only`: it has a list price,
    but is not sold on demand. `recalled` names the facts that rest on memory. Local SSD in GB, None: not known. `vcpus`
    and `memory_gib` are 0 where no list says them.
    """

    provider: str
    name: str
    gpu: Accelerator
    vcpus: int
    memory_gib: float
    local_ssd_gb: float | None
    arch: str
    spot_only: bool
    legacy_reason: str
    recalled: tuple[str, ...]
    notes: str
    source: str
    as_of: str


@dataclass(frozen=True, slots=True)
class ListedPrice:
    """A dated price of a type in a region; `check` says what a second source made of it, `dated` the date as given."""

    region: str
    market: Market
    price: Price
    check: str
    dated: str


@dataclass(frozen=True, slots=True)
class CatalogOffer:
    """A type at a listed price; `regions` counts those that have one on this market."""

    type: InstanceType
    listed: ListedPrice
    regions: int = 1

    @property
    def trust(self) -> Trust:
        """Whose computers have this price: the provider's own, unless it lists somebody else's."""
        known = _WHOSE.get(self.type.provider, {})
        return known.get(self.listed.region, known.get(EVERYTHING, Trust.CLOUD))


MARKETPLACES = {"vast": "vast.ai"}  # whose hosts ask what they like: what is listed is a sample, and prices no machine


def marketplace_notes(offers: Iterable[CatalogOffer]) -> list[str]:
    """Return what prices of marketplaces are, where some of these offers are of one: of which days, and of what."""
    days: dict[str, set[str]] = {}
    for offer in offers:
        if offer.type.provider in MARKETPLACES:
            days.setdefault(offer.type.provider, set()).add(f"{offer.listed.price.as_of:%Y-%m-%d}")
    return [_marketplace_note(provider, sorted(found)) for provider, found in days.items()]


def _marketplace_note(provider: str, days: Sequence[str]) -> str:
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return (
        f"{MARKETPLACES[provider]} is a market, whose prices change within hours: these are what hosts asked at the "
        f"median, of {when}. Disk and traffic come on top. Prices of now: cloudgpu regions --provider {provider} "
        "--gpu NAME"
    )


_WHOSE = {  # by provider and the region of its list; RunPod prices its two kinds apart, vast.ai's hosts are anybody's
    "runpod": {"COMMUNITY": Trust.COMMUNITY, EVERYTHING: Trust.DATACENTER},
    "vast": {"DATACENTER": Trust.DATACENTER, EVERYTHING: Trust.COMMUNITY},
}


@dataclass(frozen=True, slots=True)
class DiskPrice:
    """What `unit` (`usd_per_gb_month`, `usd_per_disk_month`, ...) of a kind of storage or address costs.

    `upper_bound`: no price is known for the region, and this is the most expensive known of that kind. `as_of` is None
    where the figure has no date. `note` is what the source says beside it. `low` is the least that it may be, where it
    is derived and two ways of deriving it differ: `price` is then the more expensive.
    """

    provider: str
    region: str
    kind: str
    unit: str
    price: Money
    upper_bound: bool
    source: str
    as_of: datetime | None
    basis: Basis
    note: str = ""
    low: Money | None = None


@dataclass(frozen=True, slots=True)
class PastPrice:
    """What something cost when it was quoted; `region` may be a pattern or `*`, `dated` is the date as given."""

    provider: str
    region: str
    item: str
    market: Market
    unit: str
    price: Money
    source: str
    as_of: datetime
    dated: str
    basis: Basis
    check: str


@dataclass(frozen=True, slots=True)
class ListedQuota:
    """A limit that a provider puts on what runs at once on a market; `code` names it there. `as_of` is as given."""

    provider: str
    code: str
    name: str
    market: Market
    unit: str
    families: tuple[str, ...]
    source: str
    as_of: str

    @property
    def is_overall(self) -> bool:
        """Whether it counts all GPUs of an account, in all its regions together."""
        return EVERYTHING in self.families

    def counts(self, shape: InstanceType) -> int:
        """Return how much of it a machine takes, in its unit: the GPUs of a machine, or its vCPUs."""
        return shape.gpu.count if self.unit == "GPU" else shape.vcpus


@dataclass(frozen=True, slots=True)
class Speed:
    """Training speed as a fraction of one H100 SXM, and what the figure rests on."""

    value: float
    basis: SpeedBasis


def speed(spec: GpuSpec) -> Speed | None:
    """Return how fast one GPU trains: measured, or a stand-in that names itself; None when nothing is known.

    Memory bandwidth came within -19% to +52% of the 15 measured GPUs, and is furthest off above an H100's, where
    listed tensor TFLOPs are used instead. GPUs without tensor cores are judged by FP32: they have bandwidth that
    they cannot use.
    """
    if spec.trains_vs_h100 is not None:
        return Speed(spec.trains_vs_h100, SpeedBasis.MEASURED)
    if spec.tensor_tflops is None and NO_TENSOR in spec.notes:
        return _against(spec.fp32_tflops, _H100_FP32, SpeedBasis.FP32)
    if spec.tensor_tflops is not None and (spec.bandwidth_gbs or _H100_BANDWIDTH + 1) > _H100_BANDWIDTH:
        return _against(spec.tensor_tflops, _H100_TENSOR, SpeedBasis.TENSOR)
    return _against(spec.bandwidth_gbs, _H100_BANDWIDTH, SpeedBasis.BANDWIDTH)


def decoding_speed(spec: GpuSpec) -> Speed | None:
    """Return how fast one GPU decodes a language model beside one H100 SXM: by memory bandwidth."""
    return _against(spec.bandwidth_gbs, _H100_BANDWIDTH, SpeedBasis.BANDWIDTH)


def _against(figure: float | None, reference: float, basis: SpeedBasis) -> Speed | None:
    return None if figure is None else Speed(figure / reference, basis)


def speed_per_dollar(offer: CatalogOffer, speed: Speed | None) -> float | None:
    """Return the H100 hours of work that a dollar buys; several GPUs count as so many times one."""
    if speed is None:
        return None
    gpu = offer.type.gpu
    return speed.value * gpu.count * gpu.share / float(offer.listed.price.per_hour.dollars)


def is_old(as_of: datetime, now: datetime) -> bool:
    """Say whether a price is too old to be relied on: more than 180 days."""
    return now - as_of > OLD_AFTER


def spot_uncertainty(offer: CatalogOffer, now: datetime) -> str:
    """Return why a spot price may not hold any more; empty for one of the last months that was read, and on demand.

    What its own note doubts never comes before a price that is certain.
    """
    listed = offer.listed
    if listed.market is not Market.SPOT:
        return ""
    if offer.type.provider == "azure":
        return "may have moved"
    if listed.price.basis in (Basis.DERIVED, Basis.RECALLED):
        return f"{listed.price.basis}"
    return "old" if is_old(listed.price.as_of, now) else ""


def matching_gpus(requested: str, specs: Iterable[GpuSpec]) -> list[GpuSpec]:
    """Return the GPUs that a spelling means: `v100` two, `v100-32gb` one; raise InvalidRequest for none.

    Makers, series and board forms are no part of a name; `rtx 3090`, `rtx-3090` and `rtx3090` are one.
    """
    known = list(specs)
    wanted = _plain(requested)
    found = [spec for spec in known if _squeezed(spec.name) == _squeezed(wanted)]
    if not found and _names_a_model(wanted):
        found = [spec for spec in known if same_gpu(f"{spec.name}-{spec.memory_gib:g}gb", wanted)]
    else:
        found += [spec for spec in known if spec not in found and found and same_gpu(spec.name, wanted)]
    found = found or _begun(_squeezed(wanted), known)
    if not found:
        raise _unknown_gpu(requested, known)
    if "sxm" in requested.lower():  # a board form that no name has: the other forms have theirs
        return [spec for spec in found if not spec.name.endswith(("PCIe", "NVL"))] or found
    return found


def _begun(begin: str, specs: list[GpuSpec]) -> list[GpuSpec]:
    """Return the one GPU whose name begins so, with or without its RTX, and its own forms; none where several do.

    `a100-80` is an A100-80GB, `3090` an RTX3090. A number is never cut: `h10` and `rtx40` are none.
    """
    for start in (begin, f"rtx{begin}"):
        names = {spec.name: _squeezed(spec.name) for spec in specs}
        found = [spec for spec in specs if re.match(rf"{start}(?!\d)", names[spec.name])]
        found.sort(key=lambda one: len(one.name))
        if len(begin) > 2 and found and all(spec.name.startswith(found[0].name) for spec in found):  # noqa: PLR2004
            exact = _squeezed(found[0].name) == start
            return found[:1] if exact else found
    return []


def _plain(asked: str) -> str:
    """Return a name without maker, series and board form, and memory as it is listed: `80g`, `80gib` are `80gb`."""
    words = re.split(r"[\s_-]+", asked.strip().lower())
    kept = [re.sub(r"^(\d+)(g|gib)$", r"\1gb", word) for word in words if not re.fullmatch(_NO_MODEL, word)]
    return re.sub(r"^(?:rtx|quadro)-(?=a\d)", "", "-".join(kept))  # RTX A6000 is listed as A6000


_NO_MODEL = r"|nvidia|tesla|geforce|amd|radeon|instinct|sxm\d?|gpu"


def _names_a_model(name: str) -> bool:
    return any(not re.fullmatch(r"\d+gb|pcie|", word) for word in name.split("-"))


def _squeezed(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _unknown_gpu(asked: str, specs: list[GpuSpec]) -> InvalidRequest:
    names = {spec.name.lower(): spec.name.lower() for spec in specs}
    names |= {name.partition("-")[0]: name.partition("-")[0] for name in names}
    return unknown_word(
        f"The catalogue has no GPU {asked!r}",
        _plain(asked),
        names,
        field="--gpu",
        value=asked,
        use="Run: cloudgpu gpus --gpu {}",
        next="See all: cloudgpu gpus --all",
    )


def cheapest_per_type(offers: Iterable[CatalogOffer]) -> list[CatalogOffer]:
    """Return one offer per type, that of its cheapest region, with the number of regions; equal prices by region."""
    best: dict[tuple[str, str, Market], CatalogOffer] = {}
    for offer in offers:
        key = (offer.type.provider, offer.type.name, offer.listed.market)
        other = best.get(key)
        chosen = offer if other is None else min(offer, other, key=_price_then_region)
        best[key] = CatalogOffer(chosen.type, chosen.listed, offer.regions + (other.regions if other else 0))
    return list(best.values())


def _price_then_region(offer: CatalogOffer) -> tuple[Money, str]:
    return offer.listed.price.per_hour, offer.listed.region


def by_price(offers: Iterable[CatalogOffer]) -> list[CatalogOffer]:
    """Return the cheapest first; equal prices in the order of provider, type and region."""
    return sorted(offers, key=lambda offer: (offer.listed.price.per_hour, _place(offer)))


def by_speed_per_dollar(
    offers: Iterable[CatalogOffer], speed_of: Callable[[CatalogOffer], Speed | None]
) -> list[CatalogOffer]:
    """Return the most work per dollar first; what has no figure comes last."""

    def key(offer: CatalogOffer) -> tuple[float, tuple[str, str, str]]:
        return -(speed_per_dollar(offer, speed_of(offer)) or 0.0), _place(offer)

    return sorted(offers, key=key)


def _place(offer: CatalogOffer) -> tuple[str, str, str]:
    return offer.type.provider, offer.type.name, offer.listed.region
