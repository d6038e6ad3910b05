"""Owned desktops to compare with, as data: found by name, or read from a file that is named by its path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.config.files.user_files import data_dir, shown
from cloudgpu.config.files.yaml import Table, read_yaml
from cloudgpu.config.money.currencies import MAX_PER_USD, rate_of
from cloudgpu.core.advice.desktop import Depreciation, Desktop, years
from cloudgpu.core.values.currency import CODES, Currency
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import NAME, closest_match, did_you_mean, unknown_word
from cloudgpu.core.values.units import Power, QuotedAmount, Tariff
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.config.files.yaml import Table
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
NEEDED = ("gpu", "life_years", "system_watts", "idle_watts", "source", "as_of")
MAX_WATTS = 100_000
MAX_GPUS = 64
MAX_YEARS = 100
MAX_PUE = 10

Watts = Callable[[str], Power | None]  # the board's watts of a GPU by its name; None: not known


def load_desktop(
    name_or_path: str | Path,
    *,
    search: Sequence[Path] = (),
    settings: Settings | None = None,
    watts: Watts | None = None,
    today: date | None = None,
) -> Desktop:
    """Return a desktop: of the file where it is a path (with a `/`, or that ends in `.yaml`), else the one so called.

    A name is looked for in the directories of `search`, then among the shipped ones. `settings` has the rates of
    currencies for which a file has none, `watts` the board's watts of a GPU for which a file has none; no figure of a
    user's file can be of a day after `today`. Raises InvalidRequest for an unknown name, with the near one, and for a
    fault in the file, with its line.
    """
    if isinstance(name_or_path, Path) or "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        return _of_file(_path(name_or_path), settings, watts, today)
    shipped = data_dir("policies") / "desktops"
    for directory in (*search, shipped):
        table = read_yaml(directory / f"{name_or_path}.yaml") if NAME.fullmatch(name_or_path) else None
        if table is not None:
            day = None if directory is shipped else today  # where a clock is behind, these are no fault of the user
            return desktop_from(table, name_or_path, settings=settings, watts=watts, today=day)
    raise _unknown(name_or_path, desktop_names(search))


def desktop_names(search: Sequence[Path] = ()) -> list[str]:
    """Return the names of all desktops in these directories and among the shipped ones."""
    directories = (*search, data_dir("policies") / "desktops")
    return sorted({file.stem for each in directories for file in each.glob("*.yaml") if NAME.fullmatch(file.stem)})


def _path(text: str | Path) -> Path:
    """Return the path with its `~` read; raise InvalidRequest for one that no file has."""
    try:
        if "\0" not in str(text):
            return Path(text).expanduser()
    except RuntimeError:  # nobody is called so
        pass
    raise InvalidRequest(
        f"{shown(str(text))} is not a path of a file.",
        field="desktop",
        value=shown(str(text)),
        next="Write the full path, like /home/me/mine.yaml or ./mine.yaml",
    )


def _of_file(path: Path, settings: Settings | None, watts: Watts | None, today: date | None) -> Desktop:
    try:
        table = read_yaml(path)
    except InvalidRequest as error:
        if error.field != path.name:
            raise  # a line of it
        says, way_out = error.message, "Name a text file with the lines of a desktop, or a desktop by its name."
        raise InvalidRequest(says, field="desktop", value=shown(str(path)), next=way_out) from None
    if table is None:
        raise InvalidRequest(
            f"There is no file {path}.",
            field="desktop",
            value=str(path),
            next="Name an existing file, or a desktop (a name without / and .yaml).",
        )
    return desktop_from(table, path.stem, settings=settings, watts=watts, today=today)


def _unknown(name: str, names: list[str]) -> InvalidRequest:
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
    watts: Watts | None = None,
    today: date | None = None,
) -> Desktop:
    """Return the desktop that a file's table describes; raise InvalidRequest with the line of a fault."""
    table.check_keys(KEYS, required=NEEDED)
    currency = currency_in(table, settings)
    if today is not None:
        check_past(table, currency, today)
    purchase, quoted = purchase_in(table, currency)
    return Desktop(
        name=name,
        gpu=text_in(table, "gpu"),
        gpus=table.whole("gpus", least=1, most=MAX_GPUS) or 1,
        purchase=purchase,
        life=years(table.number("life_years", least=Decimal("0.1"), most=MAX_YEARS)),
        gpu_power=_gpu_power(table, watts),
        system_power=_power(table, "system_watts"),
        idle_power=_idle(table, watts),
        tariff=tariff_in(table, currency),
        source=text_in(table, "source"),
        as_of=day_in(table, "as_of"),
        resale=resale_in(table, currency, purchase),
        depreciation=_depreciation(table),
        yearly_loss=Fraction(_number(table, "yearly_loss_percent", 0, 0, 100)) / 100,
        pue=Fraction(_number(table, "pue", 1, 1, MAX_PUE)),
        maintenance=money_in(table, "maintenance", currency) if "maintenance" in table.values else Money(0),
        quoted=quoted,
        resale_known="resale" in table.values,
    )


def _gpu_power(table: Table, watts: Watts | None) -> Power:
    if "gpu_watts" in table.values:
        return _power(table, "gpu_watts")
    found = watts(text_in(table, "gpu")) if watts is not None else None
    if found is None:
        raise table.fault("gpu_watts", "is missing, and not known of this GPU", next="Add its power limit in watts.")
    return found


def _power(table: Table, key: str) -> Power:
    return Power.of(table.number(key, least=0, most=MAX_WATTS))


def _idle(table: Table, watts: Watts | None) -> Power:
    idle = _power(table, "idle_watts")
    number = table.whole("gpus", least=1, most=MAX_GPUS) or 1
    if idle > _gpu_power(table, watts).times(number) + _power(table, "system_watts"):
        raise table.fault(
            "idle_watts", "is more than it takes at work", next="Write what all of it takes while it waits."
        )
    return idle


def _depreciation(table: Table) -> Depreciation:
    word = table.line("depreciation", Depreciation.NONE)
    if word not in list(Depreciation):
        says = "is not a way to depreciate" + did_you_mean(closest_match(word, Depreciation))
        raise table.fault("depreciation", says, next=f"Use one of: {', '.join(Depreciation)}.")
    if word == Depreciation.DECLINING:
        table.check_keys(KEYS, required=["yearly_loss_percent"])
    return Depreciation(word)


def _number(table: Table, key: str, default: int, least: int, most: int) -> Decimal:
    return table.number(key, least=least, most=most) if key in table.values else Decimal(default)


RATE = ("per_usd", "rate_as_of", "rate_source")
MAX_USD = 10_000_000


def currency_in(table: Table, settings: Settings | None) -> Currency | None:
    """Return the currency of the file's amounts at its own rate or at the configured one; None: US dollars."""
    code = table.line("currency", "USD")
    if code not in CODES:
        says = "is not a currency of ISO 4217" + did_you_mean(closest_match(code, CODES))
        raise table.fault("currency", says, next="Write its three capital letters, like KRW.")
    given = [key for key in RATE if key in table.values]
    if code == "USD":
        if given:
            raise table.fault(given[0], "is of a currency, and none is named", next="Add currency: with three letters.")
        return None
    if given:
        table.check_keys(table.values, required=RATE)
        rate = table.number("per_usd", least=1 / MAX_PER_USD, most=MAX_PER_USD)
        return Currency(code, rate, day_in(table, "rate_as_of"), text_in(table, "rate_source"))
    if settings is None or code not in settings.currencies:
        next_ = f"Add per_usd:, rate_as_of: and rate_source: here, or {code} under [currencies] of config.toml."
        raise table.fault("currency", f"is {code}, and no rate of it is known: none is fetched or guessed", next=next_)
    return rate_of(settings.currencies, code, field="currency")


def check_past(table: Table, currency: Currency | None, today: date) -> None:
    """Refuse figures and a rate of a day that is still to come. Somewhere on Earth it is tomorrow."""
    days = {"as_of": day_in(table, "as_of")}
    if currency is not None:
        days["rate_as_of" if "rate_as_of" in table.values else "currency"] = currency.as_of
    for key, day in days.items():
        if day > today + timedelta(days=1):
            says = f"is of {day}" if key == "currency" else f"is {day}"
            next_ = "Write a day that has been, like 2026-11-20; of a currency in config.toml, there."
            raise table.fault(key, f"{says}, a day that is still to come", next=next_)


def purchase_in(table: Table, currency: Currency | None) -> tuple[Money, QuotedAmount | None]:
    """Return the purchase in dollars, and as it was quoted where that is in another currency."""
    key = "purchase_usd" if "purchase_usd" in table.values else "purchase"
    if key == "purchase" and key not in table.values:
        raise table.fault("purchase_usd", "is missing", next="Add a line that begins with purchase_usd:")
    if key == "purchase_usd" and "purchase" in table.values:
        raise table.fault("purchase", "says again what purchase_usd says", next="Keep one of the two.")
    if key == "purchase" and "currency" not in table.values:
        raise table.fault(key, "has no currency", next="Add currency: with three letters, or write purchase_usd:.")
    if key == "purchase_usd" or currency is None:
        return Money.usd(table.number(key, least=0, most=MAX_USD)), None
    quoted = QuotedAmount(table.number(key, least=0, most=_most(currency)), currency)
    return quoted.in_usd, quoted


def tariff_in(table: Table, currency: Currency | None) -> Tariff:
    """Return what a kilowatt-hour costs, in dollars."""
    key = "per_kwh" if "per_kwh" in table.values else "usd_per_kwh"
    if key == "per_kwh" and "usd_per_kwh" in table.values:
        raise table.fault(key, "says again what usd_per_kwh says", next="Keep one of the two.")
    if key == "per_kwh" and "currency" not in table.values:
        raise table.fault(key, "has no currency", next="Add currency: with three letters, or write usd_per_kwh:.")
    table.check_keys(table.values, required=[key])
    if key == "usd_per_kwh" or currency is None:
        return Tariff(Money.usd(table.number(key, least=0, most=100)))
    return Tariff(
        QuotedAmount(table.number(key, least=0, most=100 * max(currency.per_usd, Decimal(1))), currency).in_usd
    )


def money_in(table: Table, key: str, currency: Currency | None) -> Money:
    """Return an amount in the file's currency in dollars."""
    if currency is None:
        return Money.usd(table.number(key, least=0, most=MAX_USD))
    return QuotedAmount(table.number(key, least=0, most=_most(currency)), currency).in_usd


def _most(currency: Currency) -> Decimal:
    return MAX_USD * max(currency.per_usd, Decimal(1))


def resale_in(table: Table, currency: Currency | None, purchase: Money) -> Money:
    """Return in dollars what it is sold for after its life: nothing where the file has no such line."""
    if "resale" not in table.values:
        return Money(0)
    resale = money_in(table, "resale", currency)
    if resale > purchase:
        raise table.fault("resale", "is more than it was bought for", next="Write what it is sold for after its life.")
    return resale


def text_in(table: Table, key: str) -> str:
    """Return the text at a key, of one line that is not empty."""
    text = table.line(key).strip()
    if not text:
        raise table.fault(key, "is empty", next="Write it in one line of text.")
    return text


def day_in(table: Table, key: str) -> date:
    """Return the day at a key."""
    try:
        return date.fromisoformat(table.line(key))
    except ValueError:
        raise table.fault(key, "has to be a day", next="Write it as 2026-11-20.") from None
