"""What can be bought according to dated price lists: GPUs, instance types, prices, and what follows from them."""

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

OLD_PRICE_AGE = timedelta(days=180)
ANY = "*"  # in place of a region, or of the families that a quota counts
NO_TENSOR_CORES = "no tensor cores"  # in `GpuSpec.notes` of a GPU without any
_H100_BANDWIDTH = 3360.0  # GB/s
_H100_TENSOR = 989.0  # dense FP16 TFLOPs
_H100_FP32 = 66.91  # TFLOPs


class SpeedBasis(StrEnum):
    """The figure that a GPU's training speed is estimated from; only the first is a measurement."""

    MEASURED = "measured"
    BANDWIDTH = "memory bandwidth"
    TENSOR = "tensor TFLOPs"
    FP32 = "FP32 TFLOPs"


@dataclass(frozen=True, slots=True)
class CardPrices:
    """What one card costs to buy, if cards are sold separately: at its market launch, and new and used today.

    `dated` is the date of today's prices as the source writes it; `as_of` is the earliest day that it can mean. None:
    not known. `users_own` is a price that the user gave, which replaces the others.
    """

    at_launch: Money | None
    new: Money | None
    used: Money | None
    dated: str
    as_of: datetime
    note: str = ""
    users_own: Money | None = None


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One GPU model. Memory in GiB, bandwidth in GB/s, dense TFLOPs, board watts; None where no source was found.

    `trains_vs_h100` is the measured PyTorch training throughput as a fraction of one H100 SXM. `card_prices` is None
    where no price of the card is known.
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
    card_prices: CardPrices | None = None
    fp8_tflops: float | None = None


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A machine type that a provider lists. `gpu.memory_gib` is per GPU, or of the share if `gpu.share` is below 1.

    `legacy_reason` says why it can probably not be launched any more (empty: it can). `spot_only`: it has a list price,
    but is not sold on demand. `unverified` names the facts without a source. Local SSD in GB, None: not known. `vcpus`
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
    unverified: tuple[str, ...]
    notes: str
    source: str
    as_of: str


@dataclass(frozen=True, slots=True)
class ListedPrice:
    """A dated price of a type in a region.

    `corroboration` says what a second source has, `as_of_text` is the date as the source writes it.
    """

    region: str
    market: Market
    price: Price
    corroboration: str
    as_of_text: str


@dataclass(frozen=True, slots=True)
class CatalogOffer:
    """A type at a listed price; `region_count` is the number of regions that list it on this market."""

    type: InstanceType
    listed: ListedPrice
    region_count: int = 1

    @property
    def trust(self) -> Trust:
        """Who owns the computers at this price: the provider, unless it lists computers of others."""
        by_region = _TRUST_OF.get(self.type.provider, {})
        return by_region.get(self.listed.region, by_region.get(ANY, Trust.CLOUD))


MARKETPLACES = {"vast": "vast.ai"}  # their hosts set the prices: the list is a sample, not an offer


def marketplace_notes(offers: Iterable[CatalogOffer]) -> list[str]:
    """Return a note for each marketplace among these offers: what its prices are, and of which days."""
    days: dict[str, set[str]] = {}
    for offer in offers:
        if offer.type.provider in MARKETPLACES:
            days.setdefault(offer.type.provider, set()).add(f"{offer.listed.price.as_of:%Y-%m-%d}")
    return [_marketplace_note(provider, sorted(offer_days)) for provider, offer_days in days.items()]


def _marketplace_note(provider: str, days: Sequence[str]) -> str:
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return (
        f"{MARKETPLACES[provider]} is a market, whose prices change within hours: these are what hosts asked at the "
        f"median, of {when}. Disk and traffic come on top. Prices of now: cloudgpu regions --provider {provider} "
        "--gpu NAME"
    )


_TRUST_OF = {  # by provider and region of its list; RunPod lists both kinds; on vast.ai anybody can be a host
    "runpod": {"COMMUNITY": Trust.COMMUNITY, ANY: Trust.DATACENTER},
    "vast": {"DATACENTER": Trust.DATACENTER, ANY: Trust.COMMUNITY},
}


@dataclass(frozen=True, slots=True)
class DiskPrice:
    """The price of a kind of storage or address in `unit` (`usd_per_gb_month`, `usd_per_disk_month`, ...).

    `upper_bound`: no price is known for the region, and this is the most expensive known of that kind. `as_of` is None
    where the figure has no date. `note` is a remark of the source. `low` is the lowest possible price where it is
    derived in two ways that differ: `price` is then the higher one.
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
class DatedPrice:
    """A price of the past of an `item`: a machine type, or a kind of storage, address or traffic.

    `region` may be a pattern or `*`, `as_of_text` is the date as the source writes it. `corroboration` says what a
    second source has.
    """

    provider: str
    region: str
    item: str
    market: Market
    unit: str
    price: Money
    source: str
    as_of: datetime
    as_of_text: str
    basis: Basis
    corroboration: str


@dataclass(frozen=True, slots=True)
class ListedQuota:
    """A quota: a provider's limit on what runs at once on a market, with the provider's `code` for it."""

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
        return ANY in self.families

    def amount_of(self, machine_type: InstanceType) -> int:
        """Return how much of the quota a machine of this type needs: its GPUs or its vCPUs, by the quota's unit."""
        return machine_type.gpu.count if self.unit == "GPU" else machine_type.vcpus


@dataclass(frozen=True, slots=True)
class Speed:
    """Training speed as a fraction of one H100 SXM, and what it is estimated from."""

    vs_h100: float
    basis: SpeedBasis


def speed(spec: GpuSpec) -> Speed | None:
    """Return how fast one GPU trains: measured, or estimated from another figure; None when nothing is known.

    For the 15 measured GPUs, memory bandwidth is off by -19% to +52%, most above an H100's; there, listed tensor
    TFLOPs are used instead. GPUs without tensor cores are estimated from FP32, as they cannot use their bandwidth.
    """
    if spec.trains_vs_h100 is not None:
        return Speed(spec.trains_vs_h100, SpeedBasis.MEASURED)
    if spec.tensor_tflops is None and NO_TENSOR_CORES in spec.notes:
        return _relative_speed(spec.fp32_tflops, _H100_FP32, SpeedBasis.FP32)
    if spec.tensor_tflops is not None and (spec.bandwidth_gbs or _H100_BANDWIDTH + 1) > _H100_BANDWIDTH:
        return _relative_speed(spec.tensor_tflops, _H100_TENSOR, SpeedBasis.TENSOR)
    return _relative_speed(spec.bandwidth_gbs, _H100_BANDWIDTH, SpeedBasis.BANDWIDTH)


def decoding_speed(spec: GpuSpec) -> Speed | None:
    """Return how fast one GPU decodes a language model, relative to one H100 SXM: by memory bandwidth."""
    return _relative_speed(spec.bandwidth_gbs, _H100_BANDWIDTH, SpeedBasis.BANDWIDTH)


def _relative_speed(figure: float | None, reference: float, basis: SpeedBasis) -> Speed | None:
    return None if figure is None else Speed(figure / reference, basis)


def speed_per_dollar(offer: CatalogOffer, speed: Speed | None) -> float | None:
    """Return the H100 hours of work that a dollar buys; speed is proportional to the number of GPUs."""
    if speed is None:
        return None
    gpu = offer.type.gpu
    return speed.vs_h100 * gpu.count * gpu.share / float(offer.listed.price.per_hour.dollars)


def is_old_price(as_of: datetime, now: datetime) -> bool:
    """Say whether a price is too old to rely on: more than 180 days."""
    return now - as_of > OLD_PRICE_AGE


def spot_uncertainty(offer: CatalogOffer, now: datetime) -> str:
    """Return why a spot price may be wrong by now; empty for a recent listed price, and for on-demand.

    An offer with such a reason is never preferred to one with a certain price.
    """
    listed = offer.listed
    if listed.market is not Market.SPOT:
        return ""
    if offer.type.provider == "azure":
        return "may have moved"
    if listed.price.basis in (Basis.DERIVED, Basis.UNVERIFIED):
        return f"{listed.price.basis}"
    return "old" if is_old_price(listed.price.as_of, now) else ""


def matching_gpus(requested: str, specs: Iterable[GpuSpec]) -> list[GpuSpec]:
    """Return the GPUs that a typed name means: `v100` two, `v100-32gb` one; raise InvalidRequest for none.

    Vendors, series and board forms are not part of a name; `rtx 3090`, `rtx-3090` and `rtx3090` are one.
    """
    all_specs = list(specs)
    wanted = _normalized(requested)
    matches = [spec for spec in all_specs if _letters_and_digits(spec.name) == _letters_and_digits(wanted)]
    has_model_word = any(not re.fullmatch(r"\d+gb|pcie|", word) for word in wanted.split("-"))
    if not matches and has_model_word:
        matches = [spec for spec in all_specs if same_gpu(f"{spec.name}-{spec.memory_gib:g}gb", wanted)]
    else:
        matches += [spec for spec in all_specs if spec not in matches and matches and same_gpu(spec.name, wanted)]
    matches = matches or _by_prefix(_letters_and_digits(wanted), all_specs)
    if not matches:
        raise _unknown_gpu(requested, all_specs)
    if "sxm" in requested.lower():  # no name has SXM, but names of the other board forms have theirs
        return [spec for spec in matches if not spec.name.endswith(("PCIe", "NVL"))] or matches
    return matches


def _by_prefix(prefix: str, specs: list[GpuSpec]) -> list[GpuSpec]:
    """Return the GPU whose name has this prefix, with or without RTX, and its forms; none if several GPUs have it.

    `a100-80` is an A100-80GB, `3090` an RTX3090. A number has to be complete: `h10` and `rtx40` match none.
    """
    for start in (prefix, f"rtx{prefix}"):
        names = {spec.name: _letters_and_digits(spec.name) for spec in specs}
        found = [spec for spec in specs if re.match(rf"{start}(?!\d)", names[spec.name])]
        found.sort(key=lambda spec: len(spec.name))
        if len(prefix) > 2 and found and all(spec.name.startswith(found[0].name) for spec in found):  # noqa: PLR2004
            return found[:1] if names[found[0].name] == start else found
    return []


def _normalized(name: str) -> str:
    """Return a name without vendor, series and board form, and with memory as listed: `80g`, `80gib` are `80gb`."""
    words = re.split(r"[\s_-]+", name.strip().lower())
    words_kept = [re.sub(r"^(\d+)(g|gib)$", r"\1gb", word) for word in words if not re.fullmatch(_NOT_MODEL_WORD, word)]
    return re.sub(r"^(?:rtx|quadro)-(?=a\d)", "", "-".join(words_kept))  # RTX A6000 is listed as A6000


_NOT_MODEL_WORD = r"|nvidia|tesla|geforce|amd|radeon|instinct|sxm\d?|gpu"


def _letters_and_digits(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _unknown_gpu(requested: str, specs: list[GpuSpec]) -> InvalidRequest:
    names = {spec.name.lower(): spec.name.lower() for spec in specs}
    names |= {name.partition("-")[0]: name.partition("-")[0] for name in names}
    return unknown_word(
        f"The catalogue has no GPU {requested!r}",
        _normalized(requested),
        names,
        field="--gpu",
        value=requested,
        use="Run: cloudgpu gpus --gpu {}",
        next="See all: cloudgpu gpus --all",
    )


def cheapest_per_type(offers: Iterable[CatalogOffer]) -> list[CatalogOffer]:
    """Return one offer per type and market, that of the cheapest region, with the number of its regions."""
    best: dict[tuple[str, str, Market], CatalogOffer] = {}
    for offer in offers:
        key = (offer.type.provider, offer.type.name, offer.listed.market)
        cheapest = best.get(key)
        chosen = offer if cheapest is None else min(offer, cheapest, key=_price_and_place)
        best[key] = CatalogOffer(
            chosen.type, chosen.listed, offer.region_count + (cheapest.region_count if cheapest else 0)
        )
    return list(best.values())


def by_price(offers: Iterable[CatalogOffer]) -> list[CatalogOffer]:
    """Return the cheapest first; equal prices in the order of provider, type and region."""
    return sorted(offers, key=_price_and_place)


def _price_and_place(offer: CatalogOffer) -> tuple[Money, tuple[str, str, str]]:
    return offer.listed.price.per_hour, _place(offer)


def by_speed_per_dollar(
    offers: Iterable[CatalogOffer], speed_of: Callable[[CatalogOffer], Speed | None]
) -> list[CatalogOffer]:
    """Return the offers with the most work per dollar first; those of unknown speed come last."""
    return sorted(offers, key=lambda offer: (-(speed_per_dollar(offer, speed_of(offer)) or 0.0), _place(offer)))


def _place(offer: CatalogOffer) -> tuple[str, str, str]:
    return offer.type.provider, offer.type.name, offer.listed.region
