"""Collects the inputs of an estimate: offers, attached costs (disk and address), and a past machine's work.

A past machine is read from the ledger, as its hours of use and its GPUs. If no offer fits, `relaxations` finds which
option to leave out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cloudgpu import catalog
from cloudgpu.catalog.disktypes import accepts_disk, billed_tier, disk_type
from cloudgpu.catalog.rules import PROVIDERS
from cloudgpu.catalog.storage import PriceClass, price_class_of, storage_kinds
from cloudgpu.control.activity.utilization import utilization_of
from cloudgpu.control.advice.estimate_request import Address, EstimateQuery
from cloudgpu.control.session.session import Session, find_machine_or_nodes, single_machine
from cloudgpu.core.advice.estimate import AttachedCostEstimate, ComputePrecision, PaidWhile, WorkHours, peak_tflops
from cloudgpu.core.catalog.catalog import CatalogOffer, GpuSpec, by_price, matching_gpus
from cloudgpu.core.model.facts import MachineGpus
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import Market, Trust
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.attached_costs import address_kind, rate

if TYPE_CHECKING:
    from cloudgpu.core.billing.rates import Rate
    from cloudgpu.core.catalog.gpus import SpeedRatio
    from cloudgpu.core.values.money import Money
    from cloudgpu.views.documents.market.estimate import PastRun

# By the name that `--disk-type` takes.
AZURE_SKUS = {"premium-ssd": "Premium_LRS", "standard-ssd": "StandardSSD_LRS", "standard-hdd": "Standard_LRS"}
_DEFAULT_DISKS = {"aws": "gp3", "azure": "premium-ssd"}  # of `up`; on Google the default depends on the type
_NOT_ATTACHABLE = ("local-ssd",)  # part of the machine
_UNUSED_IP = "static_ip_unused"  # an address of Google's while no machine uses it


@dataclass
class AttachedRates:
    """The rates of one estimate, each looked up once."""

    _cache: dict[tuple[str, str, str, int], Rate] = field(default_factory=dict)

    def get(self, provider: str, region: str, kind: str, quantity: int) -> Rate:
        """Return the rate of so many GB of a disk, or of an address, as `attached_costs.rate`."""
        key = (provider, region, kind, quantity)
        if key not in self._cache:
            self._cache[key] = rate(provider, region, kind, quantity)
        return self._cache[key]


def disk_kinds(provider: str) -> tuple[str, ...]:
    """Return the kinds of disk that a provider's machines can have, as `--disk-type` accepts them."""
    if provider == "azure":
        return tuple(AZURE_SKUS)
    return tuple(
        kind
        for kind in storage_kinds(provider)
        if price_class_of(kind) is PriceClass.DISK and kind not in _NOT_ATTACHABLE
    )


def requested_disks(requested: Sequence[str]) -> dict[str, str]:
    """Return the requested kind of disk by provider. Raises InvalidRequest for an unknown one, or two of a provider."""
    kinds: dict[str, str] = {}
    providers = {kind: provider for provider in PROVIDERS for kind in disk_kinds(provider)}
    providers |= {sku.lower(): "azure" for sku in AZURE_SKUS.values()}
    skus = {sku.lower(): name for name, sku in AZURE_SKUS.items()}
    for name in requested:
        kind = name.lower()
        if kind not in providers:
            raise _unknown_disk_error(name, providers)
        provider = providers[kind]
        if provider in kinds:
            raise InvalidRequest(
                f"{kinds[provider]} and {name} are both disks of {provider}; a machine here has one.",
                field="--disk-type",
                value=name,
                next="Name one kind for each cloud, and their sizes together with --disk.",
            )
        kinds[provider] = skus.get(kind, kind)
    return kinds


def _unknown_disk_error(name: str, known: dict[str, str]) -> InvalidRequest:
    kinds = "; ".join(f"{provider}: {', '.join(disk_kinds(provider))}" for provider in PROVIDERS)
    return unknown_word(f"No cloud has a disk {name!r}", name, known, field="--disk-type", next=f"Use one of {kinds}.")


def disk_kind_of(offer: CatalogOffer, disk_types: dict[str, str]) -> str:
    """Return a machine's kind of disk: the requested one if its type supports it, else the default of `up`.

    Empty for a type that includes its disk, so that none is billed in addition.
    """
    name = disk_types.get(offer.type.provider)
    if offer.type.provider != "gcp":
        return name or _DEFAULT_DISKS.get(offer.type.provider, "")
    machine_type = offer.type.name.partition("+")[0]
    return name if name and accepts_disk(machine_type, name) else disk_type(machine_type)


def attached_costs(
    request: EstimateQuery, offer: CatalogOffer, disk_types: dict[str, str], rates: AttachedRates
) -> Iterator[AttachedCostEstimate]:
    """Yield what is billed in addition to a machine: its disk and its address."""
    provider, region = offer.type.provider, offer.listed.region
    kind = disk_kind_of(offer, disk_types) if request.disk_gb else ""
    if kind:
        priced_kind = billed_tier(AZURE_SKUS[kind], request.disk_gb) if provider == "azure" else kind
        yield AttachedCostEstimate("disk", rates.get(provider, region, priced_kind, request.disk_gb), PaidWhile.KEPT)
    for name, paid_per in address_prices(provider, offer.listed.market, request.address):
        yield AttachedCostEstimate("address", rates.get(provider, region, name, 1), paid_per)


def address_prices(provider: str, market: Market, address: Address) -> Iterator[tuple[str, PaidWhile]]:
    """Yield the name of each price of an address, and when it is paid.

    Azure's addresses are always static: a Standard address remains until it is removed.
    """
    kind = address_kind(provider, market)
    if address is Address.NONE or kind is None:
        return
    if provider == "azure" or (provider == "aws" and address is Address.STATIC):
        yield kind, PaidWhile.KEPT
        return
    yield kind, PaidWhile.RUNNING
    if address is Address.STATIC:
        yield _UNUSED_IP, PaidWhile.IDLE


@dataclass(frozen=True, slots=True)
class PastMachine:
    """A past machine of the ledger: its GPU, how many it had (a share counts in part), and its billed hours by use.

    `gpu_hours` are those with a busy GPU, `used_hours` those in other use; `memory_gib` is that of one GPU.
    """

    id: str
    name: str
    gpu: GpuSpec
    gpus: Fraction
    memory_gib: float
    gpu_hours: Fraction
    used_hours: Fraction
    idle_hours: Fraction
    unknown_hours: Fraction

    @property
    def work(self) -> WorkHours:
        """The hours of work: those in use; at least those with a busy GPU, at most with all unknown hours.

        If nothing is known of its use, every hour counts; if no GPU was measured, all use counts as the GPU's.
        """
        in_use = self.gpu_hours + self.used_hours
        max_hours = in_use + self.unknown_hours
        return WorkHours(self.gpu_hours or in_use or max_hours, in_use or max_hours, max_hours)


def past_machine(session: Session, name: str) -> PastMachine:
    """Return the latest machine of this name, also an ended one, with its hours.

    Raises InstanceNotFound for an unknown name, InvalidRequest if the catalogue does not know its GPU, or it was never
    in use.
    """
    machines, ended_usages = session.ledger.read(lambda view: (view.machines(), list(view.ended_usages(""))))
    matches = find_machine_or_nodes(
        [machine for machine in machines if not machine.is_named_resource], name, session.clock(), ended=True
    )
    machine = single_machine(matches, name, "a past run")
    spec, accelerator = _gpu_of(machine)
    usages = [(machine_id, use) for machine_id, use in ended_usages if machine_id == machine.id]
    hours = utilization_of(session, [machine], usages).get(machine.id, ())
    hours_by_kind = [
        Fraction(str(round(sum(getattr(hour, kind) for hour in hours), 6))) / 3600
        for kind in ("gpu_s", "used_s", "idle_s", "unknown_s")
    ]
    past = PastMachine(
        machine.id,
        machine.name,
        spec,
        accelerator.number * Fraction(accelerator.share).limit_denominator(8),
        accelerator.memory_gib or spec.memory_gib,
        *hours_by_kind,
    )
    if not past.work.hours:
        raise _never_used_error(past)
    return past


def past_machine_document(past: PastMachine) -> PastRun:
    """Return a past machine as plain values; the hours are billed hours."""
    return {
        "id": past.id,
        "name": past.name,
        "gpu": past.gpu.name,
        "gpus": float(past.gpus),
        "gpu_memory_gib": past.memory_gib,
        "gpu_hours": round(float(past.gpu_hours), 6),
        "used_hours": round(float(past.used_hours), 6),
        "idle_hours": round(float(past.idle_hours), 6),
        "unknown_hours": round(float(past.unknown_hours), 6),
    }


def _gpu_of(machine: Machine) -> tuple[GpuSpec, MachineGpus]:
    gpu_kinds = machine.accelerators or ()
    if len(gpu_kinds) != 1:
        gpus_text = f"{len(gpu_kinds)} kinds of GPU" if gpu_kinds else "no GPU"
        raise _no_gpu_error(
            machine, f"{machine.name} has {gpus_text}, so its hours cannot be converted to another GPU."
        )
    (gpus,) = gpu_kinds
    spec = _spec(gpus)
    if spec is None:
        raise _no_gpu_error(
            machine, f"The GPU of {machine.name} is {gpus.name!r}, of which the catalogue knows no speed."
        )
    return spec, gpus


def _spec(gpu: MachineGpus) -> GpuSpec | None:
    """Return the spec of a machine's GPU; if the name matches several, its memory decides."""
    by_name = catalog.gpu_by_name(gpu.name)
    if by_name is not None:
        return by_name
    try:
        matches = matching_gpus(gpu.name, catalog.gpus())
    except InvalidRequest:
        return None
    same_memory = [spec for spec in matches if gpu.memory_gib in (None, spec.memory_gib)]
    return same_memory[0] if len(same_memory) == 1 else None


def _no_gpu_error(machine: Machine, message: str) -> InvalidRequest:
    return InvalidRequest(
        message,
        field="--like",
        value=machine.name,
        next="Say how much work it is instead: --flops, or --hours-per-day.",
    )


def _never_used_error(past: PastMachine) -> InvalidRequest:
    why = (
        f"all of its {float(past.idle_hours):.2f} billed hours were idle" if past.idle_hours else "it was never billed"
    )
    return InvalidRequest(
        f"{past.name} did no work that could be repeated: {why}.",
        field="--like",
        value=past.name,
        next=f"Run: cloudgpu show {past.name} --why",
    )


def scale_hours(past: PastMachine, ratio: SpeedRatio, gpus: Fraction) -> WorkHours:
    """Return the hours of the same work on `gpus` GPUs, each `ratio` times as fast; linear in their number.

    At least: the hours with a busy GPU, at the highest ratio; at most: with all unknown hours, at the lowest ratio.
    """
    work, scale = past.work, past.gpus / gpus
    return WorkHours(work.low * scale / ratio.high, work.hours * scale / ratio.ratio, work.high * scale / ratio.low)


def with_resolved_type(request: EstimateQuery) -> EstimateQuery:
    """Return the request with its type as the catalogue writes it, and the type's provider."""
    if request.type is None:
        return request
    names = {
        _normalized_type(catalog_type.name): (catalog_type.provider, catalog_type.name)
        for catalog_type in catalog.instance_types(request.filters.provider)
        if request.filters.provider in (None, catalog_type.provider)
    }
    if _normalized_type(request.type) not in names:
        raise _unknown_type_error(request.type, [name for _, name in names.values()])
    provider, name = names[_normalized_type(request.type)]
    return replace(request, type=name, filters=replace(request.filters, provider=provider, with_legacy=True))


def _normalized_type(name: str) -> str:
    return name.lower().removeprefix("standard_")


def _unknown_type_error(name: str, types: list[str]) -> InvalidRequest:
    with_gpu = [
        type_name for type_name in types if _normalized_type(type_name).startswith(f"{_normalized_type(name)}+")
    ]
    if name and with_gpu:
        remedy = f"Say which is attached to it: {', '.join(with_gpu)}."
        return InvalidRequest(f"{name!r} has no GPU by itself.", field="--instance-type", value=name, next=remedy)
    type_elsewhere = next(
        (listed for listed in catalog.instance_types() if _normalized_type(listed.name) == _normalized_type(name)), None
    )
    if type_elsewhere is not None:
        remedy = f"Leave out --provider, or write {type_elsewhere.provider}."
        return InvalidRequest(
            f"{name!r} is a type of {type_elsewhere.provider}.", field="--instance-type", value=name, next=remedy
        )
    return unknown_word(
        f"The catalogue has no type {name!r}",
        name,
        types,
        field="--instance-type",
        use="Use {}.",
        next="See all: cloudgpu gpus --all",
    )


def offers_of(request: EstimateQuery) -> list[CatalogOffer]:
    """Return every offer that meets the request, in every region; legacy types can hardly be launched any more."""
    filters = request.filters
    offer_filters = (filters.provider, filters.region, filters.market, filters.gpu)
    return [
        offer
        for offer in catalog.offers(*offer_filters, with_legacy=filters.with_legacy, trust=filters.trust)
        if request.type in (None, offer.type.name) and filters.gpu_count in (None, offer.type.gpu.count)
    ]


def discontinued_types(request: EstimateQuery, offers: list[CatalogOffer]) -> list[str]:
    """Return the types of a named GPU that are not shown because they can probably not be launched any more."""
    if request.filters.gpu is None or request.filters.with_legacy:
        return []
    all_offers = offers_of(replace(request, filters=replace(request.filters, with_legacy=True)))
    shown = {(offer.type.provider, offer.type.name) for offer in offers}
    priced = {(offer.type.provider, offer.type.name) for offer in all_offers}
    return sorted(f"{provider} {name}" for provider, name in priced - shown)


# The value with which each filter leaves no offer out.
_UNSET_FILTERS: dict[str, Any] = {
    "gpu": None,
    "gpu_count": None,
    "provider": None,
    "region": None,
    "market": Market.ON_DEMAND,
    "with_legacy": True,
    "trust": Trust.COMMUNITY,
}


def relaxations(request: EstimateQuery) -> dict[str, tuple[int, Money]]:
    """Return, for each option without which there are offers, the number of their types and the lowest price."""
    relaxed = {
        name: replace(request, filters=replace(request.filters, **{name: unset_value}))
        for name, unset_value in _UNSET_FILTERS.items()
    }
    relaxed["type"] = replace(request, type=None)
    results = {}
    for name, relaxed_request in relaxed.items():
        offers = (
            []
            if relaxed_request == request or (request.type and name in ("provider", "with_legacy"))
            else offers_of(relaxed_request)
        )
        if offers:
            types = len({offer.type.name for offer in offers})
            results[name] = (types, by_price(offers)[0].listed.price.per_hour)
    return results


def precisions(offers: Iterable[CatalogOffer]) -> list[str]:
    """Return the precisions in which the peak of at least one GPU of these offers is known."""
    specs = {spec.name: spec for offer in offers if (spec := catalog.gpu_by_name(offer.type.gpu.name))}
    return [
        str(precision) for precision in ComputePrecision if any(peak_tflops(spec, precision) for spec in specs.values())
    ]
