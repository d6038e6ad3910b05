"""Rent or own without a ledger: what was asked for, joined with the catalogue's GPUs and prices."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu import catalog
from cloudgpu.catalog.location import use as use_prices
from cloudgpu.catalog.read import gpu_named
from cloudgpu.control.advice.desktop_choice import all_desktops, desktop_named, requested_desktop
from cloudgpu.core.advice.desktop import Desktop, multiply_desktop, with_terms
from cloudgpu.core.advice.rent_or_buy import Calculation, Rent
from cloudgpu.core.catalog.catalog import CatalogOffer, GpuSpec, by_price, matching_gpus, spot_uncertainty
from cloudgpu.core.catalog.gpus import EQUAL, Work, speed_ratio
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.advice.rent_or_buy import calculated_value

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.control.advice.compare_request import CompareRequest, Rented
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.money.rent_or_buy import CalculatedDocument

MAX_DESKTOPS = 10_000
LARGE = ("a6000",)  # shipped desktops with a card of more memory, the smallest first
REPORTED = 0.9  # of a board's memory: what programs can count on beside the driver and error correction
SLOWEST = 2  # hours of a machine that stands in for one hour of the GPU that was named


def rent_or_buy_document(session: Session, request: CompareRequest, rented: Rented) -> CalculatedDocument:
    """Return the comparison of a price and a use with a desktop; as `docs/compare.md` says. Reads no ledger.

    Raises InvalidRequest where the catalogue has no such GPU, no price of it, or no figure of both GPUs' speed.
    """
    found = calculation(session, request, rented)
    return calculated_value(found, session.clock(), changed=request.changed, currency=request.currency)


def calculation(session: Session, request: CompareRequest, rented: Rented) -> Calculation:
    """Return what was asked for as values of core."""
    use_prices(session.home.price_lists)
    work, terms = request.work or Work.TRAINING, rented.terms
    rent = _rent(rented, work, session.clock())
    desktop, chosen_for = request.desktop, None
    if not request.is_chosen and rent.substitute_for is not None:
        desktop = _with_its_card(session, request, rent.substitute_for)
    elif not request.is_chosen and rent.spec is not None:
        found = _that_holds(session, request, rent, work)
        if found is not None:
            desktop, chosen_for = found, rent.spec.memory_gib
    own = gpu_named(desktop.gpu)
    fast = None if own is None or rent.spec is None else speed_ratio(own, rent.spec, work)
    if request.work is not None and fast is None:
        raise _unknown_speed(desktop.gpu, rent, request.work)
    _check_number(desktop, rent, min(ratio.low for ratio in (fast, EQUAL) if ratio is not None))
    by_speed = request.work is not None or chosen_for is not None or rent.substitute_for is not None
    counted = by_speed and fast is not None
    main = fast if counted and fast is not None else EQUAL
    return Calculation(
        desktop=with_terms(desktop, terms.interest, terms.vat),
        rent=replace(rent, per_hour=rent.per_hour.scaled(1 + terms.vat)),
        desktop_gpu=own,
        speed_ratio=main,
        known_ratio=None if counted or fast == EQUAL else fast,
        work=work if counted else None,
        terms=terms,
        matched_memory_gib=chosen_for,
        counts_resale=request.sells,
    )


def _with_its_card(session: Session, request: CompareRequest, spec: GpuSpec) -> Desktop:
    """Return the shipped desktop with the card that was named; the default one where no card is named, or it has it."""
    own = gpu_named(request.desktop.gpu)
    if own is None or own.name == spec.name:
        return request.desktop
    for one in all_desktops(session):
        its = gpu_named(one.gpu)
        if one.gpus == 1 and its is not None and its.name == spec.name:
            return requested_desktop(session, request.currency, {**request.typed, "desktop": one.name})[0]
    return request.desktop


def _that_holds(session: Session, request: CompareRequest, rent: Rent, work: Work) -> Desktop | None:
    """Return a desktop that holds what the rented GPUs hold, where the default one has too little memory.

    First a shipped one with a card of that memory; else as many default ones as do the work of the rented machine
    and have its memory, less what drivers keep of it. None where the default one has the memory, or its speed is not
    known.
    """
    desktop, its = request.desktop, rent.spec
    own = gpu_named(desktop.gpu)
    if own is None or its is None or own.memory_gib >= its.memory_gib:
        return None
    for name in LARGE:
        large = gpu_named(desktop_named(session, name).gpu)
        if large is not None and large.memory_gib >= its.memory_gib and speed_ratio(large, its, work) is not None:
            return requested_desktop(session, request.currency, {**request.typed, "desktop": name})[0]
    fast = speed_ratio(own, its, work)
    if fast is None:
        return None
    each, wanted = own.memory_gib * desktop.gpus, its.memory_gib * rent.gpus * REPORTED
    number = max(math.ceil(rent.gpus / (desktop.gpus * fast.ratio)), math.ceil(wanted / each))
    return multiply_desktop(desktop, number)


def _check_number(desktop: Desktop, rent: Rent, ratio: Fraction) -> None:
    """Refuse what takes more desktops than anybody would compare with."""
    number = max(rent.use.shares) * rent.gpus * desktop.boxes / (desktop.gpus * ratio)
    if number > MAX_DESKTOPS:
        raise InvalidRequest(
            f"This much use would take {math.ceil(number):,} desktops; compare handles at most {MAX_DESKTOPS:,}.",
            field="--utilization",
            value=rent.use.text,
            next="Name fewer GPUs, or less use.",
        )


def _rent(rented: Rented, work: Work, now: datetime) -> Rent:
    meant = [] if rented.model is None else matching_gpus(rented.model, catalog.gpus())
    means = tuple(each.name for each in meant)
    if rented.price is not None:
        measured = [each for each in meant if each.trains_vs_h100 is not None]
        spec = next(iter(measured or meant), None)
        return Rent(rented.price, rented.count, rented.use, rented.horizon, spec, means)
    found = _offer(rented, now)
    if found is not None:
        spec = catalog.named_gpu(found.type.gpu.name)
        return Rent(found.listed.price.per_hour, rented.count, rented.use, rented.horizon, spec, (), found)
    other = None if not meant or _is_sold(rented) else substitute(rented, meant[0], work, now)
    if other is None:
        raise _no_price(rented, means)
    offer, ratio = other
    use = replace(rented.use, shares=tuple(share * ratio for share in rented.use.shares))
    spec = catalog.named_gpu(offer.type.gpu.name)
    return Rent(offer.listed.price.per_hour, rented.count, use, rented.horizon, spec, (), offer, meant[0])


def _is_sold(rented: Rented) -> bool:
    """Say whether any cloud sells this GPU, in whatever number and on whatever market."""
    markets = (Market.ON_DEMAND, Market.SPOT)
    return any(catalog.offers(market=market, gpu=rented.model, with_legacy=True) for market in markets)


def substitute(rented: Rented, wanted: GpuSpec, work: Work, now: datetime) -> tuple[CatalogOffer, Fraction] | None:
    """Return the offer that does a GPU's work cheapest, with its memory at least, and how many of its hours that takes.

    Its GPU does the work at half the speed at least: more hours than there are in a day help nobody. None where no
    cloud has such a machine.
    """
    found = []
    for offer in catalog.offers(market=Market.SPOT if rented.spot else Market.ON_DEMAND):
        gpu, spec = offer.type.gpu, catalog.named_gpu(offer.type.gpu.name)
        if spec is None or gpu.share != 1 or gpu.count != rented.count or (gpu.memory_gib or 0) < wanted.memory_gib:
            continue
        ratio = speed_ratio(wanted, spec, work)
        if ratio is not None and ratio.ratio <= SLOWEST:
            cost = offer.listed.price.per_hour.scaled(ratio.ratio)
            found.append((bool(spot_uncertainty(offer, now)), cost, offer.type.name, offer, ratio.ratio))
    if not found:
        return None
    *_, offer, ratio_of_best = min(found, key=lambda one: one[:3])
    return offer, ratio_of_best


def _offer(rented: Rented, now: datetime) -> CatalogOffer | None:
    """Return the cheapest offer of so many whole GPUs; a spot price that may not hold only where there is no other.

    So it is with what can hardly be launched any more.
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


def _no_price(rented: Rented, means: tuple[str, ...]) -> InvalidRequest:
    kind = "spot" if rented.spot else "on-demand"
    return InvalidRequest(
        f"The catalogue has no {kind} price of a machine with {rented.count} {' or '.join(means)}.",
        field="--price",
        value=None,
        next=f"Add --price with what an hour costs; what there is: cloudgpu gpus --gpu {rented.model}",
    )


def _unknown_speed(own: str, rent: Rent, work: Work) -> InvalidRequest:
    other = rent.spec.name if rent.spec else "the rented GPU"
    return InvalidRequest(
        f"How fast {own} is compared with {other} at {work} is not known: no source has both.",
        field="--work",
        value=str(work),
        next="Leave --work out: one GPU is then counted as fast as the other.",
    )
