"""Parses the options of `recommend`, from the command line or the library."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar, Unpack

from cloudgpu import catalog
from cloudgpu.control.catalog.market import Filters, parse_filters
from cloudgpu.control.inputs.periods import CurrencyOptions
from cloudgpu.core.advice.model_memory import PRECISIONS_BY_METHOD, Method, WeightPrecision
from cloudgpu.core.advice.numbers import Number, RateLookup, parse_count, parse_money, parse_number, parse_whole_number
from cloudgpu.core.advice.recommendation import Limits, Model
from cloudgpu.core.advice.workloads import Source, SourceQuality, WorkKind, WorkloadData
from cloudgpu.core.catalog.catalog import matching_gpus
from cloudgpu.core.catalog.gpus import Workload
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.core.values.typed import check_keywords
from cloudgpu.core.values.units import Tariff
from cloudgpu.errors import InvalidRequest

Choice = TypeVar("Choice", WeightPrecision, Method)
MIN_PARAMETERS, MAX_PARAMETERS = 10**6, 10**13
MAX_CARDS = 64  # GPUs of one machine or desktop
MAX_GIB = 100_000  # of GPU memory
HOURS_A_WEEK = 168
TUNING, RUNNING = "fine-tuning", "inference"  # the kinds of work with a model, as WORK names them
_ALIASES = {"rl": "reinforcement-learning", "finetuning": TUNING, "finetune": TUNING, "fine-tune": TUNING,
          "images": "image-generation", "image": "image-generation", "computer-vision": "vision",
          "llm": RUNNING, "prototype": "prototyping"}  # fmt: skip


class RecommendOptions(CurrencyOptions, total=False):
    """The options of `recommend`, parsed as on the command line. None: left out."""

    params: str | int | None  # "7b", 7_000_000_000
    method: str | None  # "full", "lora", "qlora"
    precision: str | None  # "fp16", "int4"
    memory: Number | None  # GiB
    gpus: Number | None
    hours_per_week: Number | None
    budget: Number | None  # for a desktop, in US dollars or at a known rate
    max_price: str | None  # US dollars per hour
    provider: str | None
    region: str | None
    spot: bool
    trust: str | None  # "cloud", "datacenter" or "community"
    tariff: Number | None  # of a kWh, in US dollars or at a known rate: "0.35 EUR"
    card_price: str | Sequence[str] | None  # "3090=650": the price of a card; several: one for each card


@dataclass(frozen=True, slots=True)
class RecommendRequest:
    """The parsed request of `recommend`.

    `memory_gib` is the typed memory, None if not typed. `tariff` None is that of the settings' desktop. `card_prices`
    are typed prices of cards, by the catalogue's names.
    """

    kind: WorkKind
    model: Model | None
    memory_gib: Fraction | None
    gpu_count: int | None
    limits: Limits
    filters: Filters
    tariff: Tariff | None
    card_prices: Mapping[str, Money] = field(default_factory=dict)


def parse_recommend(
    workload_data: WorkloadData,
    work: str | None,
    rates: RateLookup | None = None,
    /,
    **options: Unpack[RecommendOptions],
) -> RecommendRequest:
    """Return the request of these options. Raises InvalidRequest that names the invalid option.

    `rates` finds the rate of an amount that is not in US dollars.
    """
    check_keywords("recommend", options, RecommendOptions.__annotations__)
    kind = _parse_kind(workload_data, work, options)
    typed = options.get("memory")
    memory_gib = (
        None if typed is None else parse_number(_without_gib(typed), "--memory", least="0.1", most=MAX_GIB, unit="GiB")
    )
    spot = bool(options.get("spot", False))
    filters = parse_filters(
        None,
        None,
        options.get("max_price"),
        options.get("provider"),
        options.get("region"),
        spot=spot,
        with_legacy=False,
        trust=options.get("trust"),
    )
    tariff, budget, gpus = options.get("tariff"), options.get("budget"), options.get("gpus")
    return RecommendRequest(
        kind=kind,
        model=_parse_model(kind, options),
        memory_gib=None if memory_gib is None else Fraction(memory_gib),
        gpu_count=None if gpus is None else parse_whole_number(gpus, "--gpus", 1, MAX_CARDS),
        limits=Limits(
            max_price=filters.max_price,
            budget=None if budget is None else parse_money(budget, "--budget", rates=rates),
            hours=_parse_hours(options.get("hours_per_week")),
            provider=filters.provider,
            region=filters.region,
            spot=spot,
        ),
        filters=filters,
        tariff=None if tariff is None else Tariff(parse_money(tariff, "--tariff", most=100, rates=rates)),
        card_prices=_parse_card_prices(options.get("card_price"), rates),
    )


def _parse_card_prices(typed: str | Sequence[str] | None, rates: RateLookup | None) -> dict[str, Money]:
    """Return the typed prices of cards (`3090=650`, `rtx4090=1500 EUR`) by the catalogue's names."""
    prices: dict[str, Money] = {}
    for text in [typed] if isinstance(typed, str) else typed or ():
        name, separator, amount = str(text).partition("=")
        if not (separator and name.strip() and amount.strip()):
            raise InvalidRequest(
                f"{str(text)!r} is not a card with its price.",
                field="--card-price",
                value=str(text),
                next="Write it like --card-price 3090=650",
            )
        spec = matching_gpus(name.strip(), catalog.gpus())[0]
        prices[spec.name] = parse_money(amount.strip(), "--card-price", rates=rates)
    return prices


def _without_gib(value: Number) -> Number:
    """Return a typed memory without its unit."""
    return re.sub(r"(?i)\s*(g|gb|gib)$", "", value) if isinstance(value, str) else value


def _parse_hours(value: Number | None) -> Fraction | None:
    if value is None:
        return None
    return Fraction(parse_number(value, "--hours-per-week", least="0.1", most=HOURS_A_WEEK, unit="hours"))


def _parse_kind(workload_data: WorkloadData, work: str | None, options: Mapping[str, object]) -> WorkKind:
    if work is None:
        if options.get("params") is not None:
            return workload_data.kinds[TUNING]
        if options.get("memory") is not None:
            source = Source("as you gave it", workload_data.kinds[TUNING].source.as_of, SourceQuality.ASSUMED)
            return WorkKind("", "work of your own", None, Workload.TRAINING, source)
        raise InvalidRequest(
            "WORK is missing: what is the GPU for?",
            field="WORK",
            value=None,
            next=f"Use one of: {', '.join(workload_data.kinds)}.",
        )
    name = re.sub(r"[\s_]+", "-", work.strip().lower())
    name = _ALIASES.get(name, name)
    if name in workload_data.kinds:
        return workload_data.kinds[name]
    raise unknown_word(
        f"{work!r} is not a kind of work",
        name,
        workload_data.kinds,
        field="WORK",
        value=work,
        next=f"Use one of: {', '.join(workload_data.kinds)}; or say --memory GIB.",
    )


def _parse_model(kind: WorkKind, options: Mapping[str, object]) -> Model | None:
    """Return the model of fine-tuning or inference; None for other work, or if the memory was typed instead."""
    parameters = options.get("params")
    if kind.name not in (TUNING, RUNNING):
        _check_unused(kind, options)
        return None
    if parameters is None and options.get("memory") is None:
        raise InvalidRequest(
            f"The size of the model is missing; the memory for {kind.title} depends on it.",
            field="--params",
            value=None,
            next="Add --params 7b, or the memory itself: --memory 24",
        )
    precision = _parse_choice(options.get("precision"), "--precision", WeightPrecision)
    method = _parse_method(kind, precision, options.get("method"))
    if parameters is None:
        return None
    model_precision = precision or PRECISIONS_BY_METHOD[method][0]
    if model_precision not in PRECISIONS_BY_METHOD[method]:
        raise InvalidRequest(
            f"{method} does not hold weights in {model_precision}.",
            field="--precision",
            value=str(model_precision),
            next=_method_remedy(method),
        )
    return Model(parse_count(parameters, "--params", MIN_PARAMETERS, MAX_PARAMETERS, "7b"), method, model_precision)


def _method_remedy(method: Method) -> str:
    names = ", ".join(PRECISIONS_BY_METHOD[method])
    if method is Method.QLORA:
        return f"Use one of: {names}; in 16 bits it is --method lora."
    return f"Use one of: {names}; for weights in fewer bits it is --method qlora."


def _parse_method(kind: WorkKind, precision: WeightPrecision | None, text: object) -> Method:
    if kind.name == RUNNING:
        if text is not None:
            message = "Nothing is trained when a model is only run."
            raise InvalidRequest(message, field="--method", value=str(text), next="Leave --method out.")
        return Method.INFERENCE
    chosen = _parse_choice(text, "--method", Method)
    if chosen is Method.INFERENCE:
        message = "inference trains nothing."
        raise InvalidRequest(message, field="--method", value=str(text), next="Say: cloudgpu recommend inference")
    if chosen is not None:
        return chosen
    return Method.QLORA if precision in (WeightPrecision.INT4, WeightPrecision.INT8) else Method.FULL


def _parse_choice(value: object, option: str, choices: type[Choice]) -> Choice | None:
    if value is None:
        return None
    text = str(value).strip().lower()
    if text in list(choices):
        return choices(text)
    raise unknown_word(
        f"{str(value)!r} is none that is known",
        text,
        choices,
        field=option,
        value=str(value),
        next=f"Use one of: {', '.join(choice for choice in choices if choice is not Method.INFERENCE)}.",
    )


def _check_unused(kind: WorkKind, options: Mapping[str, object]) -> None:
    why = f"the memory for {kind.title} is a rule of thumb" if kind.name else "none was named"
    for name in ("params", "method", "precision"):
        if options.get(name) is not None:
            option = f"--{name}"
            raise InvalidRequest(
                f"{option} is about a model, and {why}.",
                field=option,
                value=str(options[name]),
                next=f"Say {TUNING} or {RUNNING}, or leave {option} out.",
            )
