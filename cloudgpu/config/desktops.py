"""Owned desktops to compare with, as data: found by name, or read from a file that is named by its path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.config.currencies import rate_of
from cloudgpu.config.data import data_dir
from cloudgpu.config.yamlfile import Table, read_yaml
from cloudgpu.core.currency import CODES, Currency
from cloudgpu.core.desktop import Depreciation, Desktop, years
from cloudgpu.core.money import Money
from cloudgpu.core.names import NAME, near
from cloudgpu.core.units import Amount, Power, Tariff
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
    "rest_watts",
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
NEEDED = ("gpu", "life_years", "rest_watts", "idle_watts", "source", "as_of")
RATE = ("per_usd", "rate_as_of", "rate_source")
MOST_USD = 10_000_000
MOST_WATTS = 100_000
MOST_PER_USD = Decimal(10) ** 12  # of a currency for a dollar; no currency has come near
MOST_GPUS = 64
MOST_YEARS = 100
MOST_PUE = 10

Watts = Callable[[str], Power | None]  # the board's watts of a GPU by its name; None: not known


def load_desktop(
    name_or_path: str | Path,
    *,
    search: Sequence[Path] = (),
    settings: Settings | None = None,
    watts: Watts | None = None,
) -> Desktop:
    """Return a desktop: of the file where it is a path (with a `/`, or that ends in `.yaml`), else the one so called.

    A name is looked for in the directories of `search`, then among the shipped ones. `settings` has the rates of
    currencies for which a file has none, `watts` the board's watts of a GPU for which a file has none. Raises
    InvalidRequest for an unknown name, with the near one, and for a fault in the file, with its line.
    """
    if isinstance(name_or_path, Path) or "/" in name_or_path or name_or_path.endswith(".yaml"):
        return _of_file(Path(name_or_path).expanduser(), settings, watts)
    for directory in (*search, data_dir("policies") / "desktops"):
        table = read_yaml(directory / f"{name_or_path}.yaml") if NAME.fullmatch(name_or_path) else None
        if table is not None:
            return desktop_from(table, name_or_path, settings=settings, watts=watts)
    raise _unknown(name_or_path, desktop_names(search))


def desktop_names(search: Sequence[Path] = ()) -> list[str]:
    """Return the names of all desktops in these directories and among the shipped ones."""
    directories = (*search, data_dir("policies") / "desktops")
    return sorted({file.stem for each in directories for file in each.glob("*.yaml") if NAME.fullmatch(file.stem)})


def _of_file(path: Path, settings: Settings | None, watts: Watts | None) -> Desktop:
    table = read_yaml(path)
    if table is None:
        raise InvalidRequest(
            f"There is no desktop's file {path}.",
            field="desktop",
            value=str(path),
            next="Name a file that is there, or a desktop without / and .yaml.",
        )
    return desktop_from(table, path.stem, settings=settings, watts=watts)


def _unknown(name: str, names: list[str]) -> InvalidRequest:
    meant = near(name, names)
    return InvalidRequest(
        f"No desktop is called {name!r}" + (f"; did you mean {meant!r}?" if meant else "."),
        field="desktop",
        value=name,
        next=f"Use one of: {', '.join(names)}; or a file: ./mine.yaml",
    )


def desktop_from(table: Table, name: str, *, settings: Settings | None = None, watts: Watts | None = None) -> Desktop:
    """Return the desktop that a file's table describes; raise InvalidRequest with the line of a fault."""
    table.check_keys(KEYS, required=NEEDED)
    currency = _currency(table, settings)
    purchase, quoted = _purchase(table, currency)
    return Desktop(
        name=name,
        gpu=_text(table, "gpu"),
        gpus=table.whole("gpus", least=1, most=MOST_GPUS) or 1,
        purchase=purchase,
        life=years(table.number("life_years", least=Decimal("0.1"), most=MOST_YEARS)),
        gpu_power=_gpu_power(table, watts),
        rest_power=_power(table, "rest_watts"),
        idle_power=_idle(table, watts),
        tariff=_tariff(table, currency),
        source=_text(table, "source"),
        as_of=_day(table, "as_of"),
        resale=_resale(table, currency, purchase),
        depreciation=_depreciation(table),
        yearly_loss=Fraction(_number(table, "yearly_loss_percent", 0, 0, 100)) / 100,
        pue=Fraction(_number(table, "pue", 1, 1, MOST_PUE)),
        maintenance=_money(table, "maintenance", currency) if "maintenance" in table.values else Money(0),
        quoted=quoted,
    )


def _currency(table: Table, settings: Settings | None) -> Currency | None:
    """Return the currency of the file's amounts at its own rate or at the configured one; None: US dollars."""
    code = table.line("currency", "USD")
    if code not in CODES:
        meant = near(code.upper(), (one.lower() for one in CODES))
        says = "is no currency of ISO 4217" + (f"; did you mean {meant.upper()!r}?" if meant else "")
        raise table.fault("currency", says, next="Write its three capital letters, like KRW.")
    given = [key for key in RATE if key in table.values]
    if code == "USD":
        if given:
            raise table.fault(given[0], "is of a currency, and none is named", next="Add currency: with three letters.")
        return None
    if given:
        table.check_keys(KEYS, required=RATE)
        rate = table.number("per_usd", least=1 / MOST_PER_USD, most=MOST_PER_USD)
        return Currency(code, rate, _day(table, "rate_as_of"), _text(table, "rate_source"))
    if settings is None or code not in settings.currencies:
        next_ = f"Add per_usd:, rate_as_of: and rate_source: here, or {code} under [currencies] of config.toml."
        raise table.fault("currency", f"is {code}, and no rate of it is known: none is fetched or guessed", next=next_)
    return rate_of(settings, code, field="currency")


def _purchase(table: Table, currency: Currency | None) -> tuple[Money, Amount | None]:
    """Return the purchase in dollars, and as it was quoted where that is in another currency."""
    key = "purchase_usd" if "purchase_usd" in table.values else "purchase"
    if key == "purchase" and key not in table.values:
        raise table.fault("purchase_usd", "is missing", next="Add a line that begins with purchase_usd:")
    if key == "purchase_usd" and "purchase" in table.values:
        raise table.fault("purchase", "says again what purchase_usd says", next="Keep one of the two.")
    if key == "purchase" and "currency" not in table.values:
        raise table.fault(key, "has no currency", next="Add currency: with three letters, or write purchase_usd:.")
    if key == "purchase_usd" or currency is None:
        return Money.usd(table.number(key, least=0, most=MOST_USD)), None
    quoted = Amount(table.number(key, least=0, most=_most(currency)), currency)
    return quoted.dollars, quoted


def _tariff(table: Table, currency: Currency | None) -> Tariff:
    key = "per_kwh" if "per_kwh" in table.values else "usd_per_kwh"
    if key == "per_kwh" and "usd_per_kwh" in table.values:
        raise table.fault(key, "says again what usd_per_kwh says", next="Keep one of the two.")
    if key == "per_kwh" and "currency" not in table.values:
        raise table.fault(key, "has no currency", next="Add currency: with three letters, or write usd_per_kwh:.")
    table.check_keys(KEYS, required=[key])
    if key == "usd_per_kwh" or currency is None:
        return Tariff(Money.usd(table.number(key, least=0, most=100)))
    return Tariff(Amount(table.number(key, least=0, most=100 * max(currency.per_usd, Decimal(1))), currency).dollars)


def _money(table: Table, key: str, currency: Currency | None) -> Money:
    """Return an amount in the file's currency in dollars."""
    if currency is None:
        return Money.usd(table.number(key, least=0, most=MOST_USD))
    return Amount(table.number(key, least=0, most=_most(currency)), currency).dollars


def _most(currency: Currency) -> Decimal:
    return MOST_USD * max(currency.per_usd, Decimal(1))


def _resale(table: Table, currency: Currency | None, purchase: Money) -> Money:
    if "resale" not in table.values:
        return Money(0)
    resale = _money(table, "resale", currency)
    if resale > purchase:
        raise table.fault("resale", "is more than it was bought for", next="Write what it is sold for after its life.")
    return resale


def _gpu_power(table: Table, watts: Watts | None) -> Power:
    if "gpu_watts" in table.values:
        return _power(table, "gpu_watts")
    found = watts(_text(table, "gpu")) if watts is not None else None
    if found is None:
        raise table.fault("gpu_watts", "is missing, and not known of this GPU", next="Add its power limit in watts.")
    return found


def _power(table: Table, key: str) -> Power:
    return Power.of(table.number(key, least=0, most=MOST_WATTS))


def _idle(table: Table, watts: Watts | None) -> Power:
    idle = _power(table, "idle_watts")
    number = table.whole("gpus", least=1, most=MOST_GPUS) or 1
    if idle > _gpu_power(table, watts).times(number) + _power(table, "rest_watts"):
        raise table.fault(
            "idle_watts", "is more than it takes at work", next="Write what all of it takes while it waits."
        )
    return idle


def _depreciation(table: Table) -> Depreciation:
    word = table.line("depreciation", Depreciation.NONE)
    if word not in list(Depreciation):
        meant = near(word, [str(one) for one in Depreciation])
        says = "is no way to depreciate" + (f"; did you mean {meant!r}?" if meant else "")
        raise table.fault("depreciation", says, next=f"Use one of: {', '.join(Depreciation)}.")
    if word == Depreciation.DECLINING:
        table.check_keys(KEYS, required=["yearly_loss_percent"])
    return Depreciation(word)


def _number(table: Table, key: str, default: int, least: int, most: int) -> Decimal:
    return table.number(key, least=least, most=most) if key in table.values else Decimal(default)


def _text(table: Table, key: str) -> str:
    text = table.line(key).strip()
    if not text:
        raise table.fault(key, "is empty", next="Write it in one line of text.")
    return text


def _day(table: Table, key: str) -> date:
    try:
        return date.fromisoformat(table.line(key))
    except ValueError:
        raise table.fault(key, "has to be a day", next="Write it as 2026-11-20.") from None
