"""Owned desktops to compare with, as data, found by name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path

from cloudgpu.config.data import data_dir
from cloudgpu.config.yamlfile import Table, read_yaml
from cloudgpu.core.desktop import YEAR, Desktop
from cloudgpu.core.money import Money
from cloudgpu.core.names import NAME, near
from cloudgpu.core.units import Power, Tariff
from cloudgpu.errors import InvalidRequest

KEYS = (
    "gpu",
    "purchase_usd",
    "gpu_watts",
    "rest_watts",
    "idle_watts",
    "usd_per_kwh",
    "life_years",
    "source",
    "as_of",
)
MOST_USD = 10_000_000
MOST_WATTS = 100_000


def load_desktop(name: str, *, search: Sequence[Path] = ()) -> Desktop:
    """Return the desktop called `name`: the first in the directories of `search`, else the shipped one.

    Raises InvalidRequest for an unknown name, with the near one, and for a fault in the file, with its line.
    """
    directories = (*search, data_dir("policies") / "desktops")
    if NAME.fullmatch(name):
        for directory in directories:
            table = read_yaml(directory / f"{name}.yaml")
            if table is not None:
                return desktop_from(table, name)
    names = sorted(file.stem for directory in directories for file in directory.glob("*.yaml"))
    meant = near(name, names)
    raise InvalidRequest(
        f"No desktop is called {name!r}" + (f"; did you mean {meant!r}?" if meant else "."),
        field="desktop",
        value=name,
        next=f"Use one of: {', '.join(names)}.",
    )


def desktop_from(table: Table, name: str) -> Desktop:
    """Return the desktop that a file's table describes; raise InvalidRequest with the line of a fault."""
    table.check_keys(KEYS, required=KEYS)
    return Desktop(
        name=name,
        gpu=table.line("gpu"),
        gpus=1,
        purchase=Money.usd(table.number("purchase_usd", least=0, most=MOST_USD)),
        life=YEAR * float(table.number("life_years", least=Decimal("0.1"), most=100)),
        gpu_power=Power.of(table.number("gpu_watts", least=0, most=MOST_WATTS)),
        rest_power=Power.of(table.number("rest_watts", least=0, most=MOST_WATTS)),
        idle_power=Power.of(table.number("idle_watts", least=0, most=MOST_WATTS)),
        tariff=Tariff(Money.usd(table.number("usd_per_kwh", least=0, most=100))),
        source=table.line("source"),
        as_of=_day(table, "as_of"),
    )


def _day(table: Table, key: str) -> date:
    try:
        return date.fromisoformat(table.line(key))
    except ValueError:
        raise table.fault(key, "has to be a day", next="Write it as 2026-11-20.") from None
