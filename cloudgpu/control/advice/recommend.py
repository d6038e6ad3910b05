"""Makes a recommendation of GPUs to rent or buy, by the catalogue, the data of workloads and the user's desktop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Unpack

from cloudgpu import catalog
from cloudgpu.config.desktops.workloads import shipped_workload_data
from cloudgpu.control.advice.desktop_choice import DEFAULT_DESKTOP, load_desktop_of, rates_for
from cloudgpu.control.advice.recommend_request import TUNING, RecommendOptions, RecommendRequest, parse_recommend
from cloudgpu.control.catalog.market import Filters, matching_offers
from cloudgpu.control.inputs.periods import parse_currency
from cloudgpu.core.advice.desktop_build import desktop_break_even, possible_builds, power_supply
from cloudgpu.core.advice.model_memory import (
    PRECISIONS_BY_METHOD,
    Memory,
    Method,
    WeightPrecision,
    memory_given,
    memory_of,
    rule_memory,
)
from cloudgpu.core.advice.recommend import FittingOffer, WorkNeeds, excluded_gpus, exclusion_reason, fitting_machines
from cloudgpu.core.advice.recommendation import Recommendation
from cloudgpu.core.advice.workloads import KAGGLE_GPU, KAGGLE_GPUS, Figures, WorkloadData
from cloudgpu.core.catalog.catalog import CardPrices, CatalogOffer, GpuSpec
from cloudgpu.views.advice.recommend import recommendation

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.advice.desktop import Desktop
    from cloudgpu.core.values.money import Money
    from cloudgpu.views.documents.market.recommend import RecommendDocument

BASE_DESKTOP = "rtx3090-used"  # the shipped desktop whose other parts, idle power, tariff and life every build has
MAX_CHOICES = 6  # machines, and desktops, that are shown


def recommendation_document(
    session: Session, work: str | None, **options: Unpack[RecommendOptions]
) -> RecommendDocument:
    """Return the document of `recommend`: which GPU to rent or buy for this work, and why. Raises InvalidRequest."""
    workload_data, now = shipped_workload_data(), session.clock()
    currency = parse_currency(session.settings, now, options)
    rates = rates_for(session, currency, f"recommend {work or ''}".rstrip(), options)
    request = parse_recommend(workload_data, work, rates, **options)
    base = BASE_DESKTOP if session.settings.desktop == DEFAULT_DESKTOP else None
    return recommendation(answer(workload_data, request, load_desktop_of(session, base, currency), now), now, currency)


def answer(
    workload_data: WorkloadData, request: RecommendRequest, base: Desktop, now: datetime | None = None
) -> Recommendation:
    """Return the recommendation for a request; desktops have a card and the other parts of `base`.

    `now` is the date of the card prices that the user typed.
    """
    specs = _with_card_prices(catalog.gpus(), request.card_prices, now or datetime.now(UTC))
    figures, need = workload_data.figures, _need(workload_data, request)
    base = base if request.tariff is None else replace(base, tariff=request.tariff)
    offers = matching_offers(request.filters)
    machines = fitting_machines(offers, need, spec_of, figures, now)
    builds = possible_builds(specs, need, base, figures)
    budget = request.limits.budget
    affordable = [build for build in builds if budget is None or build.desktop.purchase <= budget]
    shown_builds = tuple(affordable[:MAX_CHOICES])
    return Recommendation(
        kind=request.kind,
        model=request.model,
        need=need,
        workload_data=workload_data,
        limits=request.limits,
        machines=tuple(machines[:MAX_CHOICES]),
        cheapest=min(
            (machine for machine in machines if machine.offer.type.gpu.count == machines[0].offer.type.gpu.count),
            key=lambda machine: machine.price,
            default=None,
        ),
        builds=shown_builds,
        break_evens=tuple(
            desktop_break_even(shown_build, machines[0], need, request.limits.hours) if machines else None
            for shown_build in shown_builds
        ),
        over_budget=tuple(build for build in builds if build not in affordable),
        unpriced=tuple(_cards_without_price(specs, need, figures)),
        left_out=excluded_gpus(offers, need, spec_of, figures),
        other_methods=tuple(_other_methods(request, figures)),
        power_supply=power_supply(shown_builds[0].cards, shown_builds[0].desktop.gpu_power, base.rest_power, figures)
        if shown_builds
        else None,
        hidden_types=0 if machines else len(_machines_without_limits(request, need, figures)),
        base=base,
        kaggle_gpus=_free_gpu_count(need, request, figures),
    )


def _with_card_prices(specs: Iterable[GpuSpec], prices: Mapping[str, Money], now: datetime) -> list[GpuSpec]:
    """Return the GPUs with the user's prices of cards in place of the catalogue's."""
    return [
        replace(spec, card_prices=CardPrices(None, None, None, f"{now:%Y-%m-%d}", now, users_own=prices[spec.name]))
        if spec.name in prices
        else spec
        for spec in specs
    ]


def _free_gpu_count(need: WorkNeeds, request: RecommendRequest, figures: Figures) -> int | None:
    """Return on how many of Kaggle's free T4s the work fits, within the free hours; None if it does not fit."""
    spec, hours = catalog.gpu_by_name(KAGGLE_GPU), request.limits.hours
    if (
        spec is None
        or exclusion_reason(spec, need, figures)
        or (hours is not None and hours > figures.kaggle_hours.value)
    ):
        return None
    return need.min_gpus(spec.memory_gib, KAGGLE_GPUS)


def spec_of(offer: CatalogOffer) -> GpuSpec | None:
    """Return the catalogue's specification of an offer's GPU; None if it has none."""
    return catalog.gpu_by_name(offer.type.gpu.name)


def _need(workload_data: WorkloadData, request: RecommendRequest) -> WorkNeeds:
    """Return what the work needs: memory, kind of speed, and number of GPUs."""
    model, figures = request.model, workload_data.figures
    if request.memory_gib is not None:
        memory = memory_given(request.memory_gib, figures)
    elif model is not None:
        memory = memory_of(model.parameters, model.method, model.precision, figures)
    else:
        memory = rule_memory(request.kind.memory_gib or Fraction(0), request.kind.source)
    precision = None if model is None else model.precision
    return WorkNeeds(memory, request.kind.speed_workload, request.gpu_count, precision)


def _cards_without_price(specs: Iterable[GpuSpec], need: WorkNeeds, figures: Figures) -> Iterable[str]:
    """Yield the cards for desktops of which one has enough memory for the work, and whose price is not known."""
    for spec in specs:
        is_card = spec.name.startswith(("RTX", "GTX", "A4000", "A5000", "A6000", "Quadro"))
        if (
            is_card
            and spec.card_prices is None
            and not exclusion_reason(spec, need, figures)
            and need.min_gpus(spec.memory_gib, 1)
        ):
            yield spec.name


def _other_methods(request: RecommendRequest, figures: Figures) -> Iterable[tuple[Method, WeightPrecision, Memory]]:
    """Yield the other methods to train the same model, each with its default precision."""
    if request.model is None or request.kind.name != TUNING or request.memory_gib is not None:
        return
    for method in (Method.FULL, Method.LORA, Method.QLORA):
        if method is not request.model.method:
            default_precision = PRECISIONS_BY_METHOD[method][0]
            yield method, default_precision, memory_of(request.model.parameters, method, default_precision, figures)


def _machines_without_limits(request: RecommendRequest, need: WorkNeeds, figures: Figures) -> list[FittingOffer]:
    """Return the machines that fit the work at any price and in any region, on the same market."""
    return fitting_machines(
        matching_offers(Filters(market=request.filters.market, trust=request.filters.trust)), need, spec_of, figures
    )
