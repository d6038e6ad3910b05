"""The options that verbs about money share: a period, a currency and a desktop."""

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
Work = Annotated[
    str | None, typer.Option("--work", metavar="KIND", help="training or inference: which speeds to compare.")
]
Sources = Annotated[bool, typer.Option("--sources", help="Show where each figure is from, and of which day.")]
