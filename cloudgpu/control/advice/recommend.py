"""Joins the catalogue, the rules and the settings' desktop into a recommendation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu import catalog
from cloudgpu.config.desktops.workloads import shipped_rules
from cloudgpu.control.advice.desktop_choice import desktop_named
from cloudgpu.control.advice.recommend_request import TUNING, RecommendRequest, parse_recommend
from cloudgpu.control.catalog.market import Filters, matching
from cloudgpu.control.inputs.periods import parse_currency
from cloudgpu.core.advice.desktop_build import Build, Supply, builds, even, supply
from cloudgpu.core.advice.model_memory import ALLOWED, Memory, Method, Precision, memory_given, memory_of, memory_ruled
from cloudgpu.core.advice.recommend import Machine, Need, left_out, machines, why_not
from cloudgpu.core.advice.recommendation import Answer
from cloudgpu.core.advice.workloads import Figures, Rules
from cloudgpu.core.catalog.catalog import CatalogOffer, GpuSpec
from cloudgpu.views.advice.recommend import recommendation

if TYPE_CHECKING:
    from typing import Unpack

    from cloudgpu.control.advice.recommend_request import RecommendOptions
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.advice.desktop import Desktop
    from cloudgpu.views.documents.market.recommend import RecommendDocument

SHOWN = 6  # machines, and desktops; more do not help to choose


def recommended(session: Session, work: str | None, **given: Unpack[RecommendOptions]) -> RecommendDocument:
    """Return which GPU for this work, to rent or to buy, and why, as a document; raise InvalidRequest."""
    rules = shipped_rules()
    request, now = parse_recommend(rules, work, **given), session.clock()
    currency = parse_currency(session.settings, now, given)
    return recommendation(answer(rules, request, desktop_named(session, currency=currency)), now, currency)


def answer(rules: Rules, request: RecommendRequest, base: Desktop) -> Answer:
    """Return all that is recommended for a wish, beside a desktop whose other parts are those of `base`."""
    figures, need = rules.figures, _need(rules, request)
    base = base if request.tariff is None else replace(base, tariff=request.tariff)
    offers = matching(request.filters)
    found = machines(offers, need, spec_of, figures)
    made = builds(catalog.gpus(), need, base, figures)
    within = [one for one in made if request.bounds.budget is None or one.desktop.purchase <= request.bounds.budget]
    shown = tuple(within[:SHOWN])
    return Answer(
        kind=request.kind,
        model=request.model,
        need=need,
        rules=rules,
        bounds=request.bounds,
        machines=tuple(found[:SHOWN]),
        cheapest=min((one for one in found if _alike(one, found[0])), key=lambda one: one.price, default=None),
        builds=shown,
        evens=tuple(even(one, found[0], need, request.bounds.hours) if found else None for one in shown),
        dear=tuple(one for one in made if one not in within),
        unpriced=tuple(_unpriced(catalog.gpus(), need, figures)),
        left_out=left_out(offers, need, spec_of, figures),
        others=tuple(_others(request, figures)),
        supply=_supply(within, base, figures),
        hidden=0 if found else len(_anywhere(request, need, figures)),
        base=base,
    )


def _alike(one: Machine, first: Machine) -> bool:
    """Say whether a machine has no more GPUs than the first."""
    return one.offer.type.gpu.count == first.offer.type.gpu.count


def spec_of(offer: CatalogOffer) -> GpuSpec | None:
    """Return what the catalogue knows of an offer's GPU."""
    return catalog.named_gpu(offer.type.gpu.name)


def _need(rules: Rules, request: RecommendRequest) -> Need:
    model = request.model
    precision = None if model is None else model.precision
    return Need(_memory(rules, request), request.kind.speed, request.cards, precision)


def _memory(rules: Rules, request: RecommendRequest) -> Memory:
    model = request.model
    if request.gib is not None:
        return memory_given(request.gib, rules.figures)
    if model is not None:
        return memory_of(model.parameters, model.method, model.precision, rules.figures)
    return memory_ruled(request.kind.memory_gib or Fraction(0), request.kind.source)


def _supply(made: list[Build], base: Desktop, figures: Figures) -> Supply | None:
    return supply(made[0].cards, made[0].desktop.gpu_power, base.rest_power, figures) if made else None


def _unpriced(specs: Iterable[GpuSpec], need: Need, figures: Figures) -> Iterable[str]:
    """Yield the cards for desktops that hold the work on one of them, and whose price nobody has listed."""
    for spec in specs:
        is_card = spec.name.startswith(("RTX", "GTX", "A4000", "A5000", "A6000", "Quadro"))
        if is_card and spec.card is None and not why_not(spec, need, figures) and need.gpus(spec.memory_gib, 1):
            yield spec.name


def _others(request: RecommendRequest, figures: Figures) -> Iterable[tuple[Method, Precision, Memory]]:
    """Yield the other ways to train the same model, each with the precision that is usual for it."""
    if request.model is None or request.kind.name != TUNING or request.gib is not None:
        return
    for method in (Method.FULL, Method.LORA, Method.QLORA):
        if method is not request.model.method:
            usual = ALLOWED[method][0]
            yield method, usual, memory_of(request.model.parameters, method, usual, figures)


def _anywhere(request: RecommendRequest, need: Need, figures: Figures) -> list[Machine]:
    """Return what holds the work at any price and anywhere, on the same market."""
    return machines(matching(Filters(market=request.filters.market)), need, spec_of, figures)
