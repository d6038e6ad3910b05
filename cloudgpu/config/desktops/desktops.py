"""Owned desktops to compare with, as data: found by name, or read from a file that is named by its path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.config.files.user_files import data_dir, shown
from cloudgpu.config.files.yaml import Table, read_named_yaml, read_yaml
from cloudgpu.config.money.currencies import MAX_PER_USD, exchange_rate
from cloudgpu.core.advice.desktop import Depreciation, Desktop, years
from cloudgpu.core.values.currency import CODES, Currency
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import NAME, closest_match, did_you_mean, unknown_word
from cloudgpu.core.values.units import Power, QuotedAmount, Tariff
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.config.settings import Settings


KEYS = (
    "gpu",
    "gpus",
    "purchase_usd",
    "purchase",
    "currency",
    "per_usd",
    "rate_as_of",
    "rate_source",
    "life_years",
    "gpu_watts",
    "system_watts",
    "idle_watts",
    "usd_per_kwh",
    "per_kwh",
    "pue",
    "maintenance",
    "resale",
    "depreciation",
    "yearly_loss_percent",
    "source",
    "as_of",
)
REQUIRED_KEYS = ("gpu", "life_years", "system_watts", "idle_watts", "source", "as_of")
MAX_WATTS = 100_000
MAX_GPUS = 64
MAX_YEARS = 100
MAX_PUE = 10

BoardPowerLookup = Callable[
    [str], Power | None
]  # returns the power of a GPU's board by the GPU's name; None: not known


def load_desktop(
    name_or_path: str | Path,
    *,
    search: Sequence[Path] = (),
    settings: Settings | None = None,
    board_power: BoardPowerLookup | None = None,
    today: date | None = None,
) -> Desktop:
    """Return the desktop in a file, for a path (with a `/`, or ending in `.yaml`), else the desktop of that name.

    A name is looked for in the directories of `search`, then among the shipped ones. `settings` has the rates of
    currencies and `board_power` the power of GPUs for files that lack them; a user's file must have no date after
    `today`. Raises InvalidRequest for an unknown name, with the nearest one, and for an error in a file, with its line.
    """
    if isinstance(name_or_path, Path) or "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        return _load_file(_expand_path(name_or_path), settings, board_power, today)
    shipped = data_dir("policies") / "desktops"
    for directory in (*search, shipped):
        table = read_named_yaml(directory, name_or_path) if NAME.fullmatch(name_or_path) else None
        if table is not None:
            latest_day = (
                None if directory is shipped else today
            )  # where a clock is behind, these are no error of the user
            return desktop_from(table, name_or_path, settings=settings, board_power=board_power, today=latest_day)
    raise _unknown_desktop(name_or_path, desktop_names(search))


def desktop_names(search: Sequence[Path] = ()) -> list[str]:
    """Return the names of all desktops in these directories and among the shipped ones."""
    directories = (*search, data_dir("policies") / "desktops")
    return sorted({file.stem for each in directories for file in each.glob("*.yaml") if NAME.fullmatch(file.stem)})


def _expand_path(text: str | Path) -> Path:
    """Return the path with its `~` expanded; raise InvalidRequest for an impossible one."""
    try:
        if "\0" not in str(text):
            return Path(text).expanduser()
    except RuntimeError:  # no such user, as in ~nobody/
        pass
    raise InvalidRequest(
        f"{shown(str(text))} is not a path of a file.",
        field="desktop",
        value=shown(str(text)),
        next="Write the full path, like /home/me/mine.yaml or ./mine.yaml",
    )


def _load_file(
    path: Path, settings: Settings | None, board_power: BoardPowerLookup | None, today: date | None
) -> Desktop:
    try:
        table = read_yaml(path)
    except InvalidRequest as error:
        if error.field != path.name:
            raise  # a line of it
        problem, remedy = error.message, "Name a text file with the lines of a desktop, or a desktop by its name."
        raise InvalidRequest(problem, field="desktop", value=shown(str(path)), next=remedy) from None
    if table is None:
        raise InvalidRequest(
            f"There is no file {path}.",
            field="desktop",
            value=str(path),
            next="Name an existing file, or a desktop (a name without / and .yaml).",
        )
    return desktop_from(table, path.stem, settings=settings, board_power=board_power, today=today)


def _unknown_desktop(name: str, names: list[str]) -> InvalidRequest:
    return unknown_word(
        f"No desktop is called {name!r}",
        name,
        names,
        field="desktop",
        next=f"Use one of: {', '.join(names)}; or a file: ./mine.yaml",
    )


def desktop_from(
    table: Table,
    name: str,
    *,
    settings: Settings | None = None,
    board_power: BoardPowerLookup | None = None,
    today: date | None = None,
) -> Desktop:
    """Return the desktop that a file's table describes; raise InvalidRequest with the line of an error."""
    table.check_keys(KEYS, required=REQUIRED_KEYS)
    currency = currency_in(table, settings)
    if today is not None:
        check_not_future(table, currency, today)
    purchase, purchase_in_currency = purchase_in(table, currency)
    return Desktop(
        name=name,
        gpu=text_in(table, "gpu"),
        gpus=table.whole_number("gpus", minimum=1, maximum=MAX_GPUS) or 1,
        purchase=purchase,
        life=years(table.number("life_years", minimum=Decimal("0.1"), maximum=MAX_YEARS)),
        gpu_power=_gpu_power(table, board_power),
        rest_power=_power(table, "system_watts"),
        idle_power=_idle_power(table, board_power),
        tariff=tariff_in(table, currency),
        source=text_in(table, "source"),
        as_of=day_in(table, "as_of"),
        resale=resale_in(table, currency, purchase),
        depreciation=_depreciation(table),
        yearly_loss=Fraction(_number_or_default(table, "yearly_loss_percent", 0, 0, 100)) / 100,
        pue=Fraction(_number_or_default(table, "pue", 1, 1, MAX_PUE)),
        maintenance=money_in(table, "maintenance", currency) if "maintenance" in table.values else Money(0),
        purchase_in_currency=purchase_in_currency,
        resale_known="resale" in table.values,
    )


def _gpu_power(table: Table, board_power: BoardPowerLookup | None) -> Power:
    if "gpu_watts" in table.values:
        return _power(table, "gpu_watts")
    power = board_power(text_in(table, "gpu")) if board_power is not None else None
    if power is None:
        raise table.error("gpu_watts", "is missing, and not known of this GPU", next="Add its power limit in watts.")
    return power


def _power(table: Table, key: str) -> Power:
    return Power.of(table.number(key, minimum=0, maximum=MAX_WATTS))


def _idle_power(table: Table, board_power: BoardPowerLookup | None) -> Power:
    idle_power = _power(table, "idle_watts")
    gpu_count = table.whole_number("gpus", minimum=1, maximum=MAX_GPUS) or 1
    if idle_power > _gpu_power(table, board_power).times(gpu_count) + _power(table, "system_watts"):
        raise table.error(
            "idle_watts", "is more than it takes at work", next="Write what all of it takes while it waits."
        )
    return idle_power


def _depreciation(table: Table) -> Depreciation:
    depreciation = table.one_line("depreciation", Depreciation.NONE)
    if depreciation not in list(Depreciation):
        raise table.error(
            "depreciation",
            "is not a way to depreciate" + did_you_mean(closest_match(depreciation, Depreciation)),
            next=f"Use one of: {', '.join(Depreciation)}.",
        )
    if depreciation == Depreciation.DECLINING:
        table.check_keys(KEYS, required=["yearly_loss_percent"])
    return Depreciation(depreciation)


def _number_or_default(table: Table, key: str, default: int, minimum: int, maximum: int) -> Decimal:
    return table.number(key, minimum=minimum, maximum=maximum) if key in table.values else Decimal(default)


RATE_KEYS = ("per_usd", "rate_as_of", "rate_source")
MAX_USD = 10_000_000


def currency_in(table: Table, settings: Settings | None) -> Currency | None:
    """Return the currency of the file's amounts at its own rate or at the configured one; None: US dollars."""
    code = table.one_line("currency", "USD")
    if code not in CODES:
        raise table.error(
            "currency",
            "is not a currency of ISO 4217" + did_you_mean(closest_match(code, CODES)),
            next="Write its three capital letters, like KRW.",
        )
    rate_keys = [key for key in RATE_KEYS if key in table.values]
    if code == "USD":
        if rate_keys:
            raise table.error(
                rate_keys[0], "is of a currency, and none is named", next="Add currency: with three letters."
            )
        return None
    if rate_keys:
        table.check_keys(table.values, required=RATE_KEYS)
        rate = table.number("per_usd", minimum=1 / MAX_PER_USD, maximum=MAX_PER_USD)
        return Currency(code, rate, day_in(table, "rate_as_of"), text_in(table, "rate_source"))
    if settings is None or code not in settings.currencies:
        raise table.error(
            "currency",
            f"is {code}, and no rate of it is known: none is fetched or guessed",
            next=f"Add per_usd:, rate_as_of: and rate_source: here, or {code} under [currencies] of config.toml.",
        )
    return exchange_rate(settings.currencies, code, field="currency")


def check_not_future(table: Table, currency: Currency | None, today: date) -> None:
    """Raise InvalidRequest for figures or a rate of a future day; tomorrow is accepted, as it is that day somewhere."""
    days = {"as_of": day_in(table, "as_of")}
    if currency is not None:
        days["rate_as_of" if "rate_as_of" in table.values else "currency"] = currency.as_of
    for key, day in days.items():
        if day > today + timedelta(days=1):
            problem = f"is of {day}" if key == "currency" else f"is {day}"
            raise table.error(
                key,
                f"{problem}, a day that is still to come",
                next="Write a day that has been, like 2026-11-20; of a currency in config.toml, there.",
            )


def purchase_in(table: Table, currency: Currency | None) -> tuple[Money, QuotedAmount | None]:
    """Return the purchase price in dollars, and in the file's currency if that is another one."""
    key = "purchase_usd" if "purchase_usd" in table.values else "purchase"
    if key == "purchase" and key not in table.values:
        raise table.error("purchase_usd", "is missing", next="Add a line that begins with purchase_usd:")
    if key == "purchase_usd" and "purchase" in table.values:
        raise table.error("purchase", "says again what purchase_usd says", next="Keep one of the two.")
    if key == "purchase" and "currency" not in table.values:
        raise table.error(key, "has no currency", next="Add currency: with three letters, or write purchase_usd:.")
    if key == "purchase_usd" or currency is None:
        return Money.usd(table.number(key, minimum=0, maximum=MAX_USD)), None
    quoted = QuotedAmount(table.number(key, minimum=0, maximum=_max_amount(currency)), currency)
    return quoted.in_usd, quoted


def tariff_in(table: Table, currency: Currency | None) -> Tariff:
    """Return the price of a kilowatt-hour in dollars."""
    key = "per_kwh" if "per_kwh" in table.values else "usd_per_kwh"
    if key == "per_kwh" and "usd_per_kwh" in table.values:
        raise table.error(key, "says again what usd_per_kwh says", next="Keep one of the two.")
    if key == "per_kwh" and "currency" not in table.values:
        raise table.error(key, "has no currency", next="Add currency: with three letters, or write usd_per_kwh:.")
    table.check_keys(table.values, required=[key])
    if key == "usd_per_kwh" or currency is None:
        return Tariff(Money.usd(table.number(key, minimum=0, maximum=100)))
    return Tariff(
        QuotedAmount(table.number(key, minimum=0, maximum=100 * max(currency.per_usd, Decimal(1))), currency).in_usd
    )


def money_in(table: Table, key: str, currency: Currency | None) -> Money:
    """Return the amount at a key, which is in the file's currency, in dollars."""
    if currency is None:
        return Money.usd(table.number(key, minimum=0, maximum=MAX_USD))
    return QuotedAmount(table.number(key, minimum=0, maximum=_max_amount(currency)), currency).in_usd


def _max_amount(currency: Currency) -> Decimal:
    return MAX_USD * max(currency.per_usd, Decimal(1))


def resale_in(table: Table, currency: Currency | None, purchase: Money) -> Money:
    """Return the resale value after the desktop's life in dollars: zero if the file has none."""
    if "resale" not in table.values:
        return Money(0)
    resale = money_in(table, "resale", currency)
    if resale > purchase:
        raise table.error("resale", "is more than it was bought for", next="Write what it is sold for after its life.")
    return resale


def text_in(table: Table, key: str) -> str:
    """Return the text at a key, of one line that is not empty."""
    text = table.one_line(key).strip()
    if not text:
        raise table.error(key, "is empty", next="Write it in one line of text.")
    return text


def day_in(table: Table, key: str) -> date:
    """Return the day at a key."""
    try:
        return date.fromisoformat(table.one_line(key))
    except ValueError:
        raise table.error(key, "has to be a day", next="Write it as 2026-11-20.") from None
