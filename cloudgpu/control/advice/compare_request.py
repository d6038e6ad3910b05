"""Parses the options of `compare`, from the command line or the library.

They name a desktop, and either a period of the ledger, or a price and a utilization for the calculator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, tzinfo
from fractions import Fraction
from pathlib import Path
from typing import Unpack

from cloudgpu.control.advice.desktop_choice import (
    DESKTOP_FIGURES,
    command_text,
    is_desktop_chosen,
    rates_for,
    requested_desktop,
)
from cloudgpu.control.inputs.periods import PeriodOptions, parse_period_request
from cloudgpu.control.session.session import Session
from cloudgpu.core.advice.desktop import NO_TERMS, Desktop, FinanceTerms, years
from cloudgpu.core.advice.numbers import (
    MAX_PRICE,
    Number,
    RateLookup,
    parse_money,
    parse_number,
    parse_share,
    parse_utilization,
    parse_yearly_change,
)
from cloudgpu.core.advice.rent_or_buy import Utilization
from cloudgpu.core.catalog.gpus import Workload
from cloudgpu.core.values.currency import Currency
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.typed import check_keywords, parse_gpu, parse_member
from cloudgpu.errors import InvalidRequest

MAX_YEARS = 100
_CALCULATOR_MODE = ("price", "utilization", "hours_per_day")  # one of these selects the calculator
_CALCULATOR_ONLY = ("gpu", "spot", "years", "interest", "price_drift", "vat")
_LEDGER_ONLY = ("since", "until", "tz")
# The options that take text, each with an example for the error.
_TEXT_EXAMPLES = {"work": "training", "depreciation": "declining", "currency": "KRW", "tz": "Asia/Seoul"}


class CompareOptions(PeriodOptions, total=False):
    """The options of `compare`, parsed as on the command line. With a price or a use, no ledger is read."""

    desktop: str | Path | None  # a name, or a file's path; None: the setting
    work: str | None  # "training", "inference"
    depreciation: str | None  # "none", "straight-line", "declining"; None: as the desktop's file has it
    gpu: str | None  # "v100", "a100:8"
    price: Number | None  # dollars per hour for the machine; "2 EUR" at a known rate
    spot: bool
    utilization: Number | Fraction | None  # "15%", 0.15, "phd-desktop"
    hours_per_day: Number | None
    years: Number | None  # for how long the machine is needed; None: the life of the desktop
    purchase: Number | None  # dollars; from here to `yearly_loss`: figures that replace those of the desktop's file
    watts: Number | None  # of one GPU at work
    system_watts: Number | None  # of the other parts at work
    idle_watts: Number | None  # of all of it while it waits
    tariff: Number | None  # dollars a kilowatt-hour
    pue: Number | None  # power usage effectiveness: total power by that of the computer
    maintenance: Number | None  # dollars a year
    resale: Number | None  # dollars that the desktop is sold for after its life
    life: Number | None  # years
    yearly_loss: Number | Fraction | None  # "20%", 0.2
    interest: Number | Fraction | None  # cost of capital a year: "5%", 0.05
    price_drift: Number | Fraction | None  # of cloud prices a year: "-10%", -0.1
    vat: Number | Fraction | None  # on all that is bought: "19%", 0.19


@dataclass(frozen=True, slots=True)
class RentedInputs:
    """The rented machine of the calculator: `count` GPUs of a `model`, for `price` per hour. One of both may be None.

    `use` is how much it is used, `horizon` for how long in all, `terms` are interest, price drift and VAT.
    """

    model: str | None
    count: int
    price: Money | None
    spot: bool
    use: Utilization
    horizon: timedelta
    terms: FinanceTerms = NO_TERMS


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """The parsed request of `compare`.

    `changed` are the options that replaced figures of the desktop's file, `typed` these figures as they were typed.
    `is_desktop_chosen` is whether the user chose the desktop: then no other desktop is compared.
    `deducts_market_resale` is False if `--depreciation` was typed. `zone` is the time zone in which days begin, `tz`
    its name. `work` is None if it was not typed, `currency` is None for dollars, `rented` is None for a comparison
    with the ledger.
    """

    desktop: Desktop
    changed: tuple[str, ...]
    work: Workload | None
    currency: Currency | None
    zone: tzinfo
    tz: str
    since: datetime | None = None
    until: datetime | None = None
    rented: RentedInputs | None = None
    is_desktop_chosen: bool = False
    deducts_market_resale: bool = True
    typed: Mapping[str, object] = field(default_factory=dict)


def parse_compare(session: Session, **options: Unpack[CompareOptions]) -> CompareRequest:
    """Return the request of these options. Raises InvalidRequest that names the invalid option."""
    check_keywords("compare", options, CompareOptions.__annotations__)
    _check_texts(options)
    _check_mode(options)
    period = parse_period_request(session.settings, session.clock(), options)
    desktop, changed = requested_desktop(session, period.currency, options)
    kind_text, work_text = "kind of work that decides about speed", options.get("work")
    work = None if work_text is None else parse_member(Workload, work_text, kind_text, "--work")
    return CompareRequest(
        desktop=desktop,
        changed=changed,
        work=work,
        currency=period.currency,
        zone=period.zone,
        tz=period.tz,
        since=period.since,
        until=period.until,
        rented=_rented_inputs(options, desktop, work, rates_for(session, period.currency, "compare", options))
        if _is_calculator(options)
        else None,
        is_desktop_chosen=is_desktop_chosen(session, options),
        deducts_market_resale=options.get("depreciation") is None,
        typed={name: options[name] for name in DESKTOP_FIGURES if options.get(name) is not None},  # type: ignore[literal-required]
    )


def _is_calculator(options: CompareOptions) -> bool:
    return any(options.get(name) is not None for name in _CALCULATOR_MODE)


def _check_texts(options: CompareOptions) -> None:
    """Raise InvalidRequest for a value that is not text; numbers, GPUs and desktops are checked when parsed."""
    time_examples = dict.fromkeys(("since", "until"), "2026-11-20")
    for name, example in {**_TEXT_EXAMPLES, **time_examples}.items():
        value = options.get(name)
        if value is None or isinstance(value, str | date | timedelta if name in time_examples else str):
            continue
        option = f"--{name}"
        raise InvalidRequest(
            f"{value!r} is not text, and {option} takes text.",
            field=option,
            value=str(value),
            next=f"Pass {name}={example!r}.",
        )


def _check_mode(options: CompareOptions) -> None:
    """Raise InvalidRequest for an option that the selected mode, ledger or calculator, would ignore."""
    is_calculator = _is_calculator(options)
    for name in _LEDGER_ONLY if is_calculator else _CALCULATOR_ONLY:
        value = options.get(name)
        if value is None or value is False:
            continue
        option = f"--{name.replace('_', '-')}"
        if is_calculator:
            given = [
                f"--{mode_option.replace('_', '-')}"
                for mode_option in _CALCULATOR_MODE
                if options.get(mode_option) is not None
            ]
            message = f"{option} cannot be combined with {' or '.join(given)}."
            remedy = f"Leave it out, or {' and '.join(given)}."
        else:
            message = f"{option} needs --hours-per-day, --utilization or --price."
            command = command_text("compare", {**options, "hours_per_day": 3})
            remedy = f"Leave it out, or say how much is used. Run: {command}"
        raise InvalidRequest(message, field=option, value=str(value), next=remedy)


def _rented_inputs(options: CompareOptions, desktop: Desktop, work: Workload | None, rates: RateLookup) -> RentedInputs:
    gpu, price = options.get("gpu"), options.get("price")
    if gpu is None and price is None:
        message, remedy = "Neither a GPU nor a price was given.", "Add --gpu v100, or --price 2.14, or both."
        raise InvalidRequest(message, field="--gpu", value=None, next=remedy)
    if work is not None and gpu is None:
        message = f"How fast a GPU is at {work} depends on which one it is."
        raise InvalidRequest(message, field="--gpu", value=None, next="Add --gpu v100.")
    if price is not None and options.get("spot"):
        message = "--spot asks the catalogue for a spot price, and --price says one."
        raise InvalidRequest(message, field="--spot", value=None, next="Keep one of the two.")
    model, count = parse_gpu(gpu)
    horizon = options.get("years")
    return RentedInputs(
        model=model,
        count=count or 1,
        price=None if price is None else parse_money(price, "--price", most=MAX_PRICE, above_zero=True, rates=rates),
        spot=bool(options.get("spot")),
        use=parse_utilization(options.get("utilization"), options.get("hours_per_day")),
        terms=_terms(options),
        horizon=desktop.life
        if horizon is None
        else years(parse_number(horizon, "--years", least="0.1", most=MAX_YEARS)),
    )


def _terms(options: CompareOptions) -> FinanceTerms:
    interest, drift, vat = options.get("interest"), options.get("price_drift"), options.get("vat")
    return FinanceTerms(
        interest=Fraction(0) if interest is None else parse_share(interest, "--interest"),
        drift=Fraction(0) if drift is None else parse_yearly_change(drift, "--price-drift"),
        vat=Fraction(0) if vat is None else parse_share(vat, "--vat"),
    )
