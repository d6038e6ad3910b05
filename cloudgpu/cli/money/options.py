"""The options that verbs about money share: a period and a currency; and those of `compare`: a desktop, or a use."""

from __future__ import annotations

from typing import Annotated

import typer

Since = Annotated[
    str | None,
    typer.Option("--since", metavar="WHEN", help="From this day, time, duration back (7d), day, week or month on."),
]
Until = Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Up to this day or time, and without it.")]
Tz = Annotated[
    str | None, typer.Option("--tz", metavar="ZONE", help="The time zone in which days begin; without it, the setting.")
]
Currency = Annotated[
    str | None, typer.Option("--currency", metavar="CODE", help="Show amounts in it: EUR, KRW, ... at a dated rate.")
]
Rate = Annotated[
    str | None, typer.Option("--rate", metavar="NUMBER", help="How many of it a dollar is; without it, the setting.")
]
RateDate = Annotated[str | None, typer.Option("--rate-date", metavar="DAY", help="The day of --rate.")]
Desktop = Annotated[
    str | None,
    typer.Option("--desktop", metavar="NAME|FILE", help="Which desktop; a file has a / or ends in .yaml."),
]
Desktops = Annotated[bool, typer.Option("--desktops", help="List the desktops that can be named, and no more.")]
Work = Annotated[
    str | None, typer.Option("--work", metavar="KIND", help="training or inference: which speeds to compare.")
]
Gpu = Annotated[
    str | None, typer.Option("--gpu", metavar="NAME[:COUNT]", help="Calculator: the GPU that is rented, like v100.")
]
Price = Annotated[
    str | None,
    typer.Option(
        "--price", metavar="AMOUNT", help="Calculator: the machine's price per hour; by default the catalogue's."
    ),
]
Spot = Annotated[bool, typer.Option("--spot", help="Calculator: the catalogue's spot price, not the on-demand one.")]
Utilization = Annotated[
    str | None,
    typer.Option(
        "--utilization",
        metavar="SHARE",
        help="Calculator: 15% of the time, or personal, phd-desktop, phd-cluster, company-cluster.",
    ),
]
HoursPerDay = Annotated[
    str | None, typer.Option("--hours-per-day", metavar="HOURS", help="Calculator: the same as hours a day.")
]
Years = Annotated[
    str | None,
    typer.Option("--years", metavar="YEARS", help="Calculator: how many years; by default the desktop's life."),
]
Purchase = Annotated[
    str | None,
    typer.Option("--purchase", metavar="AMOUNT", help="The desktop's price: 2200, or '7500000 KRW' at a known rate."),
]
Watts = Annotated[str | None, typer.Option("--watts", metavar="WATTS", help="Watts of one of its cards at work.")]
SystemWatts = Annotated[
    str | None, typer.Option("--system-watts", metavar="WATTS", help="Watts of the rest of it at work.")
]
IdleWatts = Annotated[
    str | None, typer.Option("--idle-watts", metavar="WATTS", help="Watts while it is idle; 0 if switched off.")
]
Tariff = Annotated[str | None, typer.Option("--tariff", metavar="AMOUNT", help="What a kilowatt-hour costs.")]
Pue = Annotated[
    str | None, typer.Option("--pue", metavar="NUMBER", help="Power with cooling, per watt of the desktop: 1 to 10.")
]
Maintenance = Annotated[str | None, typer.Option("--maintenance", metavar="AMOUNT", help="Other costs of it per year.")]
Resale = Annotated[
    str | None, typer.Option("--resale", metavar="AMOUNT", help="Its resale price at the end of its life.")
]
Life = Annotated[str | None, typer.Option("--life", metavar="YEARS", help="Years until it is replaced.")]
Depreciation = Annotated[
    str | None,
    typer.Option(
        "--depreciation",
        metavar="WAY",
        help="market (as used ones sell), none (as it is paid), straight-line or declining.",
    ),
]
YearlyLoss = Annotated[
    str | None,
    typer.Option("--yearly-loss", metavar="SHARE", help="With declining: how much value it loses a year, like 20%."),
]
Interest = Annotated[
    str | None, typer.Option("--interest", metavar="SHARE", help="The cost of capital a year, like 5%. [default: 0%]")
]
PriceDrift = Annotated[
    str | None,
    typer.Option("--price-drift", metavar="SHARE", help="How cloud prices change a year, like -10%. [default: 0%]"),
]
Vat = Annotated[
    str | None, typer.Option("--vat", metavar="SHARE", help="VAT on every purchase, like 19%. [default: 0%]")
]
Chart = Annotated[
    bool, typer.Option("--chart", help="Draw what the cloud and the desktop have cost over the years, for the table.")
]
Sources = Annotated[bool, typer.Option("--sources", help="Show where each figure is from, and of which day.")]
