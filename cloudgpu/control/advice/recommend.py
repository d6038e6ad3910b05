"""Joins the catalogue, the rules and the settings' desktop into a recommendation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from cloudgpu import catalog
from cloudgpu.config.desktops.workloads import shipped_rules
from cloudgpu.control.advice.desktop_choice import desktop_named
from cloudgpu.control.advice.recommend_request import TUNING, Wish, wish_of
from cloudgpu.control.catalog.market import Filters, matching
from cloudgpu.control.inputs.periods import currency_wish
from cloudgpu.core.advice.desktop_build import Build, Supply, builds, even, supply
from cloudgpu.core.advice.model_memory import ALLOWED, Memory, Method, Precision, memory_given, memory_of, memory_ruled
from cloudgpu.core.advice.recommend import Machine, Need, left_out, machines, why_not
from cloudgpu.core.advice.recommendation import Answer
from cloudgpu.core.advice.workloads import Figures, Rules
from cloudgpu.core.catalog.catalog import CatalogOffer, GpuSpec
from cloudgpu.views.advice.recommend import recommendation

if TYPE_CHECKING:
    from typing import Unpack

    from cloudgpu.control.advice.recommend_request import AskedOfRecommend
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.advice.desktop import Desktop
    from cloudgpu.views.documents.market.recommend import RecommendDocument

SHOWN = 6  # machines, and desktops; more do not help to choose


def recommended(session: Session, work: str | None, **given: Unpack[AskedOfRecommend]) -> RecommendDocument:
    """Return which GPU for this work, to rent or to buy, and why, as a document; raise InvalidRequest."""
    rules = shipped_rules()
    wish, now = wish_of(rules, work, **given), session.clock()
    currency = currency_wish(session.settings, now, given)
    return recommendation(answer(rules, wish, desktop_named(session, currency=currency)), now, currency)


def answer(rules: Rules, wish: Wish, base: Desktop) -> Answer:
    """Return all that is recommended for a wish, beside a desktop whose other parts are those of `base`."""
    figures, need = rules.figures, _need(rules, wish)
    base = base if wish.tariff is None else replace(base, tariff=wish.tariff)
    offers = matching(wish.filters)
    found = machines(offers, need, spec_of, figures)
    made = builds(catalog.gpus(), need, base, figures)
    within = [one for one in made if wish.bounds.budget is None or one.desktop.purchase <= wish.bounds.budget]
    shown = tuple(within[:SHOWN])
    return Answer(
        kind=wish.kind,
        model=wish.model,
        need=need,
        rules=rules,
        bounds=wish.bounds,
        machines=tuple(found[:SHOWN]),
        cheapest=min((one for one in found if _alike(one, found[0])), key=lambda one: one.price, default=None),
        builds=shown,
        evens=tuple(even(one, found[0], need, wish.bounds.hours) if found else None for one in shown),
        dear=tuple(one for one in made if one not in within),
        unpriced=tuple(_unpriced(catalog.gpus(), need, figures)),
        left_out=left_out(offers, need, spec_of, figures),
        others=tuple(_others(wish, figures)),
        supply=_supply(within, base, figures),
        hidden=0 if found else len(_anywhere(wish, need, figures)),
        base=base,
    )


def _alike(one: Machine, first: Machine) -> bool:
    """Say whether a machine has no more GPUs than the first."""
    return one.offer.type.gpu.count == first.offer.type.gpu.count


def spec_of(offer: CatalogOffer) -> GpuSpec | None:
    """Return what the catalogue knows of an offer's GPU."""
    return catalog.named_gpu(offer.type.gpu.name)


def _need(rules: Rules, wish: Wish) -> Need:
    model = wish.model
    precision = None if model is None else model.precision
    return Need(_memory(rules, wish), wish.kind.speed, wish.cards, precision)


def _memory(rules: Rules, wish: Wish) -> Memory:
    model = wish.model
    if wish.gib is not None:
        return memory_given(wish.gib, rules.figures)
    if model is not None:
        return memory_of(model.parameters, model.method, model.precision, rules.figures)
    return memory_ruled(wish.kind.memory_gib or Fraction(0), wish.kind.source)


def _supply(made: list[Build], base: Desktop, figures: Figures) -> Supply | None:
    return supply(made[0].cards, made[0].desktop.gpu_power, base.rest_power, figures) if made else None


def _unpriced(specs: Iterable[GpuSpec], need: Need, figures: Figures) -> Iterable[str]:
    """Yield the cards for desktops that hold the work on one of them, and whose price nobody has listed."""
    for spec in specs:
        is_card = spec.name.startswith(("RTX", "GTX", "A4000", "A5000", "A6000", "Quadro"))
        if is_card and spec.card is None and not why_not(spec, need, figures) and need.gpus(spec.memory_gib, 1):
            yield spec.name


def _others(wish: Wish, figures: Figures) -> Iterable[tuple[Method, Precision, Memory]]:
    """Yield the other ways to train the same model, each with the precision that is usual for it."""
    if wish.model is None or wish.kind.name != TUNING or wish.gib is not None:
        return
    for method in (Method.FULL, Method.LORA, Method.QLORA):
        if method is not wish.model.method:
            usual = ALLOWED[method][0]
            yield method, usual, memory_of(wish.model.parameters, method, usual, figures)


def _anywhere(wish: Wish, need: Need, figures: Figures) -> list[Machine]:
    """Return what holds the work at any price and anywhere, on the same market."""
    return machines(matching(Filters(market=wish.filters.market)), need, spec_of, figures)
