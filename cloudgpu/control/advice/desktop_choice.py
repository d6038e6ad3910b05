"""Finds the desktop to compare with: the figures of its file, and typed ones that replace them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudgpu.catalog.read import find_gpu
from cloudgpu.config.desktops.desktops import MAX_PUE, MAX_WATTS, MAX_YEARS, desktop_names, load_desktop
from cloudgpu.config.money.currencies import exchange_rate
from cloudgpu.control.inputs.periods import parse_currency
from cloudgpu.core.advice.desktop import Depreciation, Desktop, years
from cloudgpu.core.advice.numbers import RateLookup, parse_amount, parse_money, parse_number, parse_share
from cloudgpu.core.values.currency import Currency, check_code
from cloudgpu.core.values.typed import parse_member
from cloudgpu.core.values.units import Power, Tariff
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.advice.compare_basis import desktop_document

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.money.rent_or_buy import DesktopsDocument

DEFAULT_DESKTOP = "rtx3090"  # the default of the setting `desktop`
# The options that replace figures of a desktop's file.
DESKTOP_FIGURES = (
    "depreciation",
    "purchase",
    "watts",
    "system_watts",
    "idle_watts",
    "tariff",
    "pue",
    "maintenance",
    "resale",
    "life",
    "yearly_loss",
)


def load_desktop_of(session: Session, name: str | Path | None = None, currency: Currency | None = None) -> Desktop:
    """Return the desktop with this name or file (None: that of the settings). Raises InvalidRequest.

    A file in another currency that has no rate of its own takes the rate of `currency`.
    """
    if not isinstance(name, str | Path | None):
        raise InvalidRequest(
            f"{name!r} is not a desktop: that is text, its name or its file's path.",
            field="desktop",
            value=str(name),
            next=f"Use one of: {', '.join(desktop_names([session.home.root / 'desktops']))}; or a file: ./mine.yaml",
        )
    settings = session.settings
    if currency is not None:
        settings = replace(settings, currencies={**settings.currencies, currency.code: currency})
    return load_desktop(
        settings.desktop if name is None else name,
        search=[session.home.root / "desktops"],
        settings=settings,
        board_power=_board_power,
        today=session.clock().date(),
    )


def all_desktops(session: Session) -> list[Desktop]:
    """Return every desktop, the user's own and the shipped ones, sorted by name."""
    return [load_desktop_of(session, name) for name in desktop_names([session.home.root / "desktops"])]


def desktops_document(session: Session) -> DesktopsDocument:
    """Return the document of `compare --desktops`: every desktop with its figures."""
    return {"desktops": [desktop_document(desktop) for desktop in all_desktops(session)]}


def _board_power(name: str) -> Power | None:
    """Return the power of a GPU's board by the catalogue; None if it has none."""
    spec = find_gpu(name)
    return None if spec is None or spec.watts is None else Power.of(str(spec.watts))


def requested_desktop(
    session: Session, currency: Currency | None, options: Mapping[str, Any]
) -> tuple[Desktop, tuple[str, ...]]:
    """Return the requested desktop, and the options that replaced figures of its file."""
    desktop = load_desktop_of(session, options.get("desktop"), currency)
    typed_figures = {name: options[name] for name in DESKTOP_FIGURES if options.get(name) is not None}
    rates = rates_for(session, currency, "compare", options)
    for name, value in typed_figures.items():
        desktop = replace(desktop, **_desktop_fields(name, value, rates))
    _check_consistent(desktop, typed_figures)
    return desktop, tuple(_option(name) for name in typed_figures)


def is_desktop_chosen(session: Session, options: Mapping[str, Any]) -> bool:
    """Return whether the user chose the desktop: named it, set it in the settings, or typed its price or watts."""
    is_typed = any(options.get(name) is not None for name in ("desktop", "purchase", "watts", "system_watts"))
    return is_typed or session.settings.desktop != DEFAULT_DESKTOP


def command_text(verb: str, options: Mapping[str, Any]) -> str:
    """Return the command line with these options."""
    parts = [f"cloudgpu {verb}"]
    for name, value in options.items():
        if value is None or value is False:
            continue
        values = value if isinstance(value, list | tuple) else [value]
        parts += [
            _option(name) if option_value is True else f"{_option(name)} {shlex.quote(str(option_value))}"
            for option_value in values
        ]
    return " ".join(parts)


def rates_for(session: Session, currency: Currency | None, verb: str, options: Mapping[str, Any]) -> RateLookup:
    """Return a function that finds the rate of a currency, or raises InvalidRequest with how to give one."""

    def find_rate(code: str) -> Currency:
        upper_code = check_code(code, "--currency")
        if currency is not None and currency.code == upper_code:
            return currency
        if upper_code == "USD" or upper_code in session.settings.currencies:
            return parse_currency(session.settings, session.clock(), {"currency": upper_code}) or exchange_rate(
                session.settings.currencies, upper_code
            )
        today = session.clock().date()
        command = command_text(verb, {**options, "currency": upper_code, "rate": "RATE", "rate_date": today})
        raise InvalidRequest(
            f"There is no rate for {upper_code}: none is ever fetched or guessed.",
            field="--currency",
            value=upper_code,
            next=(
                f"Add this line under [currencies] in {session.home.root / 'config.toml'}, with your rate in "
                f'place of RATE ({upper_code} for one US dollar): {upper_code} = {{ per_usd = "RATE", as_of = {today}, '
                f'source = "SOURCE" }}. Or run once: {command}'
            ),
        )

    return find_rate


def _desktop_fields(name: str, value: object, rates: RateLookup) -> dict[str, Any]:
    """Return the fields of the desktop that a typed figure replaces."""
    option = _option(name)
    if name == "resale":
        return {"resale": parse_money(value, option, rates=rates), "resale_known": True}
    if name == "purchase":
        return dict(zip(("purchase", "purchase_in_currency"), parse_amount(value, option, rates=rates), strict=True))
    field, parse = _PARSERS[name]
    return {field: parse(value, option, rates)}


def _watts(value: object, option: str, _rates: RateLookup) -> Power:
    return Power.of(parse_number(value, option, most=MAX_WATTS, unit="watts"))


def _check_consistent(desktop: Desktop, typed: Mapping[str, object]) -> None:
    """Raise InvalidRequest for figures that contradict each other, at the one that was typed."""
    if desktop.resale > desktop.purchase:
        name = "resale" if "resale" in typed else "purchase"
        message = f"A resale of {desktop.resale.text()} is more than the purchase of {desktop.purchase.text()}."
        raise _option_error(name, typed, message, "Write what it is sold for after its life: --resale 300")
    power_at_work = desktop.gpu_power.times(desktop.gpus) + desktop.rest_power
    if desktop.idle_power > power_at_work:
        name = next(figure for figure in ("idle_watts", "watts", "system_watts") if figure in typed)
        message = f"It would take {desktop.idle_power.watts} W while it waits, and {power_at_work.watts} W at work."
        raise _option_error(name, typed, message, "Write what all of it takes while it waits: --idle-watts 60")
    if desktop.depreciation is Depreciation.DECLINING and not desktop.yearly_loss:
        message = f"What part of its worth {desktop.name} loses a year is not in its file."
        raise InvalidRequest(message, field="--yearly-loss", value=None, next="Add --yearly-loss 20%.")
    if desktop.depreciation is not Depreciation.DECLINING and "yearly_loss" in typed:
        chosen = "without any" if desktop.depreciation is Depreciation.NONE else desktop.depreciation
        message = f"What a desktop loses of its worth a year is for declining depreciation, and this is {chosen}."
        raise _option_error("yearly_loss", typed, message, "Add --depreciation declining, or leave it out.")


def _option_error(name: str, typed: Mapping[str, object], message: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(message, field=_option(name), value=str(typed[name]), next=remedy)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# By figure: the field of Desktop, and the parser of the typed text.
_PARSERS: dict[str, tuple[str, Callable[[object, str, RateLookup], object]]] = {
    "watts": ("gpu_power", _watts),
    "system_watts": ("rest_power", _watts),
    "idle_watts": ("idle_power", _watts),
    "tariff": ("tariff", lambda value, option, rates: Tariff(parse_money(value, option, most=100, rates=rates))),
    "maintenance": ("maintenance", lambda value, option, rates: parse_money(value, option, rates=rates)),
    "pue": ("pue", lambda value, option, _rates: Fraction(parse_number(value, option, least=1, most=MAX_PUE))),
    "life": ("life", lambda value, option, _rates: years(parse_number(value, option, least="0.1", most=MAX_YEARS))),
    "yearly_loss": ("yearly_loss", lambda value, option, _rates: parse_share(value, option)),
    "depreciation": (
        "depreciation",
        lambda value, _option, _rates: parse_member(Depreciation, str(value), "way to depreciate", "--depreciation"),
    ),
}
