"""Joins the catalogue, the rules and the settings' desktop into a recommendation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Unpack

from cloudgpu import catalog
from cloudgpu.config.desktops.workloads import shipped_rules
from cloudgpu.control.advice.desktop_choice import DEFAULT_DESKTOP, desktop_named, rates_for
from cloudgpu.control.advice.recommend_request import TUNING, RecommendOptions, RecommendRequest, parse_recommend
from cloudgpu.control.catalog.market import Filters, matching
from cloudgpu.control.inputs.periods import parse_currency
from cloudgpu.core.advice.desktop_build import Build, PowerSupply, desktop_break_even, possible_builds, power_supply
from cloudgpu.core.advice.model_memory import ALLOWED, Memory, Method, Precision, memory_given, memory_of, rule_memory
from cloudgpu.core.advice.recommend import Machine, WorkNeeds, excluded_gpus, exclusion, fitting_machines
from cloudgpu.core.advice.recommendation import Answer
from cloudgpu.core.advice.workloads import Figures, Rules
from cloudgpu.core.catalog.catalog import CardPrices, CatalogOffer, GpuSpec
from cloudgpu.views.advice.recommend import recommendation

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.advice.desktop import Desktop
    from cloudgpu.core.values.money import Money
    from cloudgpu.views.documents.market.recommend import RecommendDocument

BUILT = "rtx3090-used"  # the shipped desktop whose rest, idle power, tariff and life every build has
KAGGLE_GPU, KAGGLE_GPUS = "T4", 2  # of a Kaggle notebook; the P100 is older than today's frameworks
MAX_CHOICES = 6  # machines, and desktops; more do not help to choose


def recommendation_document(session: Session, work: str | None, **given: Unpack[RecommendOptions]) -> RecommendDocument:
    """Return which GPU for this work, to rent or to buy, and why, as a document; raise InvalidRequest."""
    rules = shipped_rules()
    now = session.clock()
    currency = parse_currency(session.settings, now, given)
    rates = rates_for(session, currency, f"recommend {work or ''}".rstrip(), given)
    request = parse_recommend(rules, work, rates, **given)
    base = BUILT if session.settings.desktop == DEFAULT_DESKTOP else None
    return recommendation(answer(rules, request, desktop_named(session, base, currency), now), now, currency)


def answer(rules: Rules, request: RecommendRequest, base: Desktop, now: datetime | None = None) -> Answer:
    """Return all that is recommended for a request, beside a desktop whose other parts are those of `base`.

    `now` is of when the user's prices of cards are.
    """
    specs = _with_card_prices(catalog.gpus(), request.cards_priced, now or datetime.now(UTC))
    figures, need = rules.figures, _need(rules, request)
    base = base if request.tariff is None else replace(base, tariff=request.tariff)
    offers = matching(request.filters)
    machines = fitting_machines(offers, need, spec_of, figures, now)
    builds = possible_builds(specs, need, base, figures)
    within = [one for one in builds if request.bounds.budget is None or one.desktop.purchase <= request.bounds.budget]
    shown = tuple(within[:MAX_CHOICES])
    return Answer(
        kind=request.kind,
        model=request.model,
        need=need,
        rules=rules,
        bounds=request.bounds,
        machines=tuple(machines[:MAX_CHOICES]),
        cheapest=min(
            (one for one in machines if _has_no_more_gpus(one, machines[0])), key=lambda one: one.price, default=None
        ),
        builds=shown,
        break_evens=tuple(
            desktop_break_even(one, machines[0], need, request.bounds.hours) if machines else None for one in shown
        ),
        over_budget=tuple(one for one in builds if one not in within),
        unpriced=tuple(_cards_without_price(specs, need, figures)),
        left_out=excluded_gpus(offers, need, spec_of, figures),
        others=tuple(_other_methods(request, figures)),
        power_supply=_supply(within, base, figures),
        hidden=0 if machines else len(_without_limits(request, need, figures)),
        base=base,
        free=_free_gpu_count(need, request, figures),
    )


def _with_card_prices(specs: Iterable[GpuSpec], prices: Mapping[str, Money], now: datetime) -> list[GpuSpec]:
    """Return the GPUs with the user's prices of cards in place of the catalogue's."""
    return [
        replace(spec, card=CardPrices(None, None, None, f"{now:%Y-%m-%d}", now, users_own=prices[spec.name]))
        if spec.name in prices
        else spec
        for spec in specs
    ]


def _free_gpu_count(need: WorkNeeds, request: RecommendRequest, figures: Figures) -> int | None:
    """Return on how many of Kaggle's free T4s the work fits within its free hours; None where it does not."""
    spec, hours = catalog.named_gpu(KAGGLE_GPU), request.bounds.hours
    if spec is None or exclusion(spec, need, figures) or (hours is not None and hours > figures.kaggle_hours.value):
        return None
    return need.gpus(spec.memory_gib, KAGGLE_GPUS)


def _has_no_more_gpus(machine: Machine, first: Machine) -> bool:
    """Say whether a machine has no more GPUs than the first."""
    return machine.offer.type.gpu.count == first.offer.type.gpu.count


def spec_of(offer: CatalogOffer) -> GpuSpec | None:
    """Return what the catalogue knows of an offer's GPU."""
    return catalog.named_gpu(offer.type.gpu.name)


def _need(rules: Rules, request: RecommendRequest) -> WorkNeeds:
    model = request.model
    precision = None if model is None else model.precision
    return WorkNeeds(_memory(rules, request), request.kind.speed, request.cards, precision)


def _memory(rules: Rules, request: RecommendRequest) -> Memory:
    model = request.model
    if request.gib is not None:
        return memory_given(request.gib, rules.figures)
    if model is not None:
        return memory_of(model.parameters, model.method, model.precision, rules.figures)
    return rule_memory(request.kind.memory_gib or Fraction(0), request.kind.source)


def _supply(builds: list[Build], base: Desktop, figures: Figures) -> PowerSupply | None:
    return power_supply(builds[0].cards, builds[0].desktop.gpu_power, base.system_power, figures) if builds else None


def _cards_without_price(specs: Iterable[GpuSpec], need: WorkNeeds, figures: Figures) -> Iterable[str]:
    """Yield the cards for desktops that hold the work on one of them, and whose price nobody has listed."""
    for spec in specs:
        is_card = spec.name.startswith(("RTX", "GTX", "A4000", "A5000", "A6000", "Quadro"))
        if is_card and spec.card is None and not exclusion(spec, need, figures) and need.gpus(spec.memory_gib, 1):
            yield spec.name


def _other_methods(request: RecommendRequest, figures: Figures) -> Iterable[tuple[Method, Precision, Memory]]:
    """Yield the other ways to train the same model, each with the precision that is usual for it."""
    if request.model is None or request.kind.name != TUNING or request.gib is not None:
        return
    for method in (Method.FULL, Method.LORA, Method.QLORA):
        if method is not request.model.method:
            default_precision = ALLOWED[method][0]
            yield method, default_precision, memory_of(request.model.parameters, method, default_precision, figures)


def _without_limits(request: RecommendRequest, need: WorkNeeds, figures: Figures) -> list[Machine]:
    """Return what holds the work at any price and anywhere, on the same market."""
    return fitting_machines(
        matching(Filters(market=request.filters.market, trust=request.filters.trust)), need, spec_of, figures
    )
