"""Rent or own without a ledger: what was asked for, joined with the catalogue's GPUs and prices."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu import catalog
from cloudgpu.catalog.place import use as use_prices
from cloudgpu.catalog.read import gpu_named
from cloudgpu.core.advice.rent_or_buy import Calculation, Rent
from cloudgpu.core.catalog.catalog import CatalogOffer, by_price, meant_by
from cloudgpu.core.catalog.gpus import EQUAL, Work, faster
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.advice.rent_or_buy import calculated_value

if TYPE_CHECKING:
    from cloudgpu.control.advice.compare_request import CompareRequest, Rented
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.money.rent_or_buy import CalculatedDocument

MOST_DESKTOPS = 10_000


def calculated(session: Session, request: CompareRequest, rented: Rented) -> CalculatedDocument:
    """Return the comparison of a price and a use with a desktop; as `docs/compare.md` says. Reads no ledger.

    Raises InvalidRequest where the catalogue has no such GPU, no price of it, or no figure of both GPUs' speed.
    """
    found = calculation(session, request, rented)
    return calculated_value(found, session.clock(), changed=request.changed, currency=request.currency)


def calculation(session: Session, request: CompareRequest, rented: Rented) -> Calculation:
    """Return what was asked for as values of core."""
    use_prices(session.home.price_lists)
    rent = _rent(rented)
    own = gpu_named(request.desktop.gpu)
    fast = None if own is None or rent.spec is None else faster(own, rent.spec, request.work or Work.TRAINING)
    if request.work is not None and fast is None:
        raise _unknown_speed(request.desktop.gpu, rent, request.work)
    _check_number(request, rent, min(one.low for one in (fast, EQUAL) if one is not None))
    if request.work is None or fast is None:
        return Calculation(request.desktop, rent, own, EQUAL, None if fast == EQUAL else fast)
    return Calculation(request.desktop, rent, own, fast, work=request.work)


def _check_number(request: CompareRequest, rent: Rent, ratio: Fraction) -> None:
    """Refuse what takes more desktops than anybody would compare with."""
    number = max(rent.use.shares) * rent.gpus / (request.desktop.gpus * ratio)
    if number > MOST_DESKTOPS:
        raise InvalidRequest(
            f"This much use would take {math.ceil(number):,} desktops; compare handles at most {MOST_DESKTOPS:,}.",
            field="--utilization",
            value=rent.use.asked,
            next="Name fewer GPUs, or less use.",
        )


def _rent(rented: Rented) -> Rent:
    meant = [] if rented.model is None else meant_by(rented.model, catalog.gpus())
    means = tuple(each.name for each in meant)
    if rented.price is not None:
        measured = [each for each in meant if each.trains_vs_h100 is not None]
        spec = next(iter(measured or meant), None)
        return Rent(rented.price, rented.count, rented.use, rented.horizon, spec, means)
    offer = _offer(rented, means)
    spec = catalog.named_gpu(offer.type.gpu.name)
    return Rent(offer.listed.price.per_hour, rented.count, rented.use, rented.horizon, spec, (), offer)


def _offer(rented: Rented, means: tuple[str, ...]) -> CatalogOffer:
    """Return the cheapest offer of so many whole GPUs; what can hardly be launched any more where there is no other."""
    market = Market.SPOT if rented.spot else Market.ON_DEMAND
    for legacy in (False, True):
        found = [
            offer
            for offer in catalog.offers(market=market, gpu=rented.model, legacy=legacy)
            if offer.type.gpu.count == rented.count and offer.type.gpu.share == 1
        ]
        if found:
            return by_price(found)[0]
    kind = "spot" if rented.spot else "on-demand"
    raise InvalidRequest(
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
