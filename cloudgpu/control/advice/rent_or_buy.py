"""Compares renting with owning without a ledger, by the catalogue's GPUs and prices."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu import catalog
from cloudgpu.catalog.location import use_directory as use_prices
from cloudgpu.catalog.read import find_gpu
from cloudgpu.control.advice.desktop_choice import all_desktops, load_desktop_of, requested_desktop
from cloudgpu.core.advice.desktop import Desktop, multiply_desktop, with_terms
from cloudgpu.core.advice.rent_or_buy import Calculation, Rent
from cloudgpu.core.catalog.catalog import CatalogOffer, GpuSpec, by_price, matching_gpus, spot_uncertainty
from cloudgpu.core.catalog.gpus import EQUAL_SPEED, Workload, speed_ratio
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.advice.rent_or_buy import rent_or_buy_document

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.control.advice.compare_request import CompareRequest, RentedInputs
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.money.rent_or_buy import RentOrBuyDocument

MAX_DESKTOPS = 10_000
LARGE_DESKTOPS = ("a6000",)  # shipped desktops with a card of more memory, the smallest first
USABLE_MEMORY = 0.9  # the part of a board's memory that drivers and error correction leave to programs
MAX_HOURS_RATIO = 2  # at most so many hours of a substitute for one hour of the requested GPU


def build_rent_or_buy_document(session: Session, request: CompareRequest, rented: RentedInputs) -> RentOrBuyDocument:
    """Return the document of `compare` with a price and a use, as described in docs/compare.md. Reads no ledger.

    Raises InvalidRequest if the catalogue has no such GPU, no price for it, or does not have both GPUs' speed.
    """
    calculated = calculation(session, request, rented)
    return rent_or_buy_document(calculated, session.clock(), changed=request.changed, currency=request.currency)


def calculation(session: Session, request: CompareRequest, rented: RentedInputs) -> Calculation:
    """Return the comparison of the rented machine with a desktop."""
    use_prices(session.home.price_lists)
    work, terms = request.work or Workload.TRAINING, rented.terms
    rent = _rent(rented, work, session.clock())
    desktop, matched_memory_gib = request.desktop, None
    if not request.is_desktop_chosen and rent.substitute_for is not None:
        desktop = _desktop_with_gpu(session, request, rent.substitute_for)
    elif not request.is_desktop_chosen and rent.spec is not None:
        larger = _desktop_with_memory(session, request, rent, work)
        if larger is not None:
            desktop, matched_memory_gib = larger, rent.spec.memory_gib
    desktop_gpu = find_gpu(desktop.gpu)
    known_ratio = None if desktop_gpu is None or rent.spec is None else speed_ratio(desktop_gpu, rent.spec, work)
    if request.work is not None and known_ratio is None:
        raise _unknown_speed_error(desktop.gpu, rent, request.work)
    _check_desktop_count(desktop, rent, min(ratio.low for ratio in (known_ratio, EQUAL_SPEED) if ratio is not None))
    # The speed ratio decides only if the user asked for it, or if the GPUs differ by this module's choice.
    must_count_speed = request.work is not None or matched_memory_gib is not None or rent.substitute_for is not None
    counts_speed = must_count_speed and known_ratio is not None
    speed = known_ratio if counts_speed and known_ratio is not None else EQUAL_SPEED
    return Calculation(
        desktop=with_terms(desktop, terms.interest, terms.vat),
        rent=replace(rent, per_hour=rent.per_hour.scaled(1 + terms.vat)),
        desktop_gpu=desktop_gpu,
        speed_ratio=speed,
        known_ratio=None if counts_speed or known_ratio == EQUAL_SPEED else known_ratio,
        work=work if counts_speed else None,
        terms=terms,
        matched_memory_gib=matched_memory_gib,
        deducts_market_resale=request.deducts_market_resale,
    )


def _desktop_with_gpu(session: Session, request: CompareRequest, spec: GpuSpec) -> Desktop:
    """Return the shipped desktop with this GPU; the default one if no other has it, or it has it itself."""
    default_gpu = find_gpu(request.desktop.gpu)
    if default_gpu is None or default_gpu.name == spec.name:
        return request.desktop
    for desktop in all_desktops(session):
        gpu = find_gpu(desktop.gpu)
        if desktop.gpus == 1 and gpu is not None and gpu.name == spec.name:
            return requested_desktop(session, request.currency, {**request.typed, "desktop": desktop.name})[0]
    return request.desktop


def _desktop_with_memory(session: Session, request: CompareRequest, rent: Rent, work: Workload) -> Desktop | None:
    """Return a desktop with the memory of the rented GPUs; None if the default one has it, or its speed is not known.

    First a shipped one whose GPU has that memory; else so many default ones that they do the work of the rented machine
    and have its usable memory.
    """
    desktop, rented_gpu = request.desktop, rent.spec
    desktop_gpu = find_gpu(desktop.gpu)
    if desktop_gpu is None or rented_gpu is None or desktop_gpu.memory_gib >= rented_gpu.memory_gib:
        return None
    for name in LARGE_DESKTOPS:
        large = find_gpu(load_desktop_of(session, name).gpu)
        if (
            large is not None
            and large.memory_gib >= rented_gpu.memory_gib
            and speed_ratio(large, rented_gpu, work) is not None
        ):
            return requested_desktop(session, request.currency, {**request.typed, "desktop": name})[0]
    ratio = speed_ratio(desktop_gpu, rented_gpu, work)
    if ratio is None:
        return None
    desktop_gib, needed_gib = desktop_gpu.memory_gib * desktop.gpus, rented_gpu.memory_gib * rent.gpus * USABLE_MEMORY
    desktop_count = max(math.ceil(rent.gpus / (desktop.gpus * ratio.ratio)), math.ceil(needed_gib / desktop_gib))
    return multiply_desktop(desktop, desktop_count)


def _check_desktop_count(desktop: Desktop, rent: Rent, ratio: Fraction) -> None:
    """Raise InvalidRequest for work that would take more than MAX_DESKTOPS."""
    desktop_count = max(rent.use.shares) * rent.gpus * desktop.computers / (desktop.gpus * ratio)
    if desktop_count > MAX_DESKTOPS:
        raise InvalidRequest(
            f"This much use would take {math.ceil(desktop_count):,} desktops; "
            f"compare handles at most {MAX_DESKTOPS:,}.",
            field="--utilization",
            value=rent.use.text,
            next="Name fewer GPUs, or less use.",
        )


def _rent(rented: RentedInputs, work: Workload, now: datetime) -> Rent:
    """Return the rented machine with a price: the typed one, that of the cheapest offer, or of a substitute."""
    matching_specs = [] if rented.model is None else matching_gpus(rented.model, catalog.gpus())
    names = tuple(each.name for each in matching_specs)
    if rented.price is not None:
        measured = [each for each in matching_specs if each.trains_vs_h100 is not None]
        spec = next(iter(measured or matching_specs), None)
        return Rent(rented.price, rented.count, rented.use, rented.horizon, spec, names)
    listed_offer = _cheapest_offer(rented, now)
    if listed_offer is not None:
        spec = catalog.gpu_by_name(listed_offer.type.gpu.name)
        return Rent(
            listed_offer.listed.price.per_hour, rented.count, rented.use, rented.horizon, spec, (), listed_offer
        )
    substitution = None if not matching_specs or _is_sold(rented) else substitute(rented, matching_specs[0], work, now)
    if substitution is None:
        raise _no_price_error(rented, names)
    offer, ratio = substitution
    use = replace(rented.use, shares=tuple(share * ratio for share in rented.use.shares))
    spec = catalog.gpu_by_name(offer.type.gpu.name)
    return Rent(offer.listed.price.per_hour, rented.count, use, rented.horizon, spec, (), offer, matching_specs[0])


def _is_sold(rented: RentedInputs) -> bool:
    """Return whether any cloud sells this GPU, in any number and on any market."""
    markets = (Market.ON_DEMAND, Market.SPOT)
    return any(catalog.offers(market=market, gpu=rented.model, with_legacy=True) for market in markets)


def substitute(
    rented: RentedInputs, wanted: GpuSpec, work: Workload, now: datetime
) -> tuple[CatalogOffer, Fraction] | None:
    """Return the cheapest offer for the work of the GPU `wanted`, and how many of its hours replace one hour of that.

    The offer's GPU has at least the memory and half the speed. None if no cloud has such a machine.
    """
    candidates = []
    for offer in catalog.offers(market=Market.SPOT if rented.spot else Market.ON_DEMAND):
        gpu, spec = offer.type.gpu, catalog.gpu_by_name(offer.type.gpu.name)
        if spec is None or gpu.share != 1 or gpu.count != rented.count or (gpu.memory_gib or 0) < wanted.memory_gib:
            continue
        ratio = speed_ratio(wanted, spec, work)
        if ratio is not None and ratio.ratio <= MAX_HOURS_RATIO:
            cost = offer.listed.price.per_hour.scaled(ratio.ratio)
            candidates.append((bool(spot_uncertainty(offer, now)), cost, offer.type.name, offer, ratio.ratio))
    if not candidates:
        return None
    *_, offer, ratio_of_best = min(candidates, key=lambda candidate: candidate[:3])
    return offer, ratio_of_best


def _cheapest_offer(rented: RentedInputs, now: datetime) -> CatalogOffer | None:
    """Return the cheapest offer of so many whole GPUs; None if there is none.

    Uncertain spot prices, and types that can hardly be launched any more, only if there is no other offer.
    """
    market = Market.SPOT if rented.spot else Market.ON_DEMAND
    for with_legacy in (False, True):
        offers = [
            offer
            for offer in catalog.offers(market=market, gpu=rented.model, with_legacy=with_legacy)
            if offer.type.gpu.count == rented.count and offer.type.gpu.share == 1
        ]
        if offers:
            return min(by_price(offers), key=lambda offer: bool(spot_uncertainty(offer, now)))
    return None


def _no_price_error(rented: RentedInputs, names: tuple[str, ...]) -> InvalidRequest:
    kind = "spot" if rented.spot else "on-demand"
    return InvalidRequest(
        f"The catalogue has no {kind} price of a machine with {rented.count} {' or '.join(names)}.",
        field="--price",
        value=None,
        next=f"Add --price with what an hour costs; what there is: cloudgpu gpus --gpu {rented.model}",
    )


def _unknown_speed_error(desktop_gpu: str, rent: Rent, work: Workload) -> InvalidRequest:
    rented_gpu = rent.spec.name if rent.spec else "the rented GPU"
    return InvalidRequest(
        f"How fast {desktop_gpu} is compared with {rented_gpu} at {work} is not known: no source has both.",
        field="--work",
        value=str(work),
        next="Leave --work out: one GPU is then counted as fast as the other.",
    )
