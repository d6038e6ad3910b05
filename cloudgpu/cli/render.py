"""Values as text for a terminal of 80 columns. Nothing here asks or decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from cloudgpu.core.money import Money
from cloudgpu.core.times import duration_text, from_iso

TEN_MINUTES = 600


def table(rows: Sequence[Sequence[str]], headings: Sequence[str], right: Iterable[int] = ()) -> str:
    """Return aligned columns with two spaces between them; `right` names the columns aligned to the right."""
    lines = [headings, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    flush = set(right)

    def cell(column: int, text: str) -> str:
        return text.rjust(widths[column]) if column in flush else text.ljust(widths[column])

    return "\n".join("  ".join(cell(i, text) for i, text in enumerate(line)).rstrip() for line in lines)


def facts(pairs: Iterable[tuple[str, str | None]]) -> str:
    """Return `label  text` lines, wrapped under the text; pairs without a text are left out."""
    from textwrap import fill

    said = [(label, text) for label, text in pairs if text]
    width = max((len(label) for label, _ in said), default=0) + 4
    return "\n".join(
        fill(text, 80, initial_indent=f"  {label}".ljust(width), subsequent_indent=" " * width) for label, text in said
    )


def paragraph(text: str) -> str:
    """Return prose in lines of at most 80 columns."""
    from textwrap import fill

    return fill(text, 80)


def dollars(text: str | None, places: int = 2) -> str:
    """Return decimal USD text for people; a missing amount is `?`, never zero."""
    return "?" if text is None else Money.usd(Decimal(text)).text(places)


def when(text: str | None, now: datetime) -> str:
    """Return a ledger time for people, with its distance from now: `2026-11-20 19:00 UTC (in 8h)`."""
    if text is None:
        return "never"
    at = from_iso(text)
    distance = (at - now).total_seconds()
    about = f"in {rounded(distance)}" if distance >= 0 else f"{rounded(-distance)} ago"
    return f"{at:%Y-%m-%d %H:%M} UTC ({about})"


def rounded(seconds: float) -> str:
    """Return a distance in time for people: to the minute from ten minutes on, to the second below."""
    return duration_text(round(seconds / 60) * 60 if seconds >= TEN_MINUTES else round(seconds))


def ago(text: str | None, now: datetime) -> str:
    """Return how long ago a ledger time was."""
    if text is None:
        return "never"
    seconds = (now - from_iso(text)).total_seconds()
    return "just now" if seconds < 1 else f"{rounded(seconds)} ago"


def gpus(value: dict[str, Any]) -> str:
    """Return the GPUs of a machine or plan: `2x V100 (16 GiB each)`, or `no GPU`."""
    shown = []
    for gpu in value["gpus"]:
        share = "" if gpu["share"] == 1 else f" (a share of {gpu['share']:g})"
        memory = f" ({gpu['memory_gib']:g} GiB each)" if gpu["memory_gib"] else ""
        shown.append(f"{gpu['count']}x {gpu['name']}{memory}{share}")
    return ", ".join(shown) or "no GPU"


def price(value: dict[str, Any] | None) -> str:
    """Return a price with its source, date and basis; a missing one says so."""
    if value is None:
        return "not known"
    trust = {"setting": ", not measured", "derived": ", derived", "recalled": ", unverified"}.get(value["basis"], "")
    return f"{dollars(value['usd_per_hour'], 4)} an hour: {value['source']}, as of {value['as_of'][:10]}{trust}"


def machines(values: Sequence[dict[str, Any]], now: datetime) -> str:
    """Return the table of `ls`."""
    rows = []
    for value in values:
        state = "unsettled" if value["unsettled"] else value["state"]
        hourly = dollars(value["price"] and value["price"]["usd_per_hour"], 4)
        rows.append(
            [
                value["name"],
                state + ("" if value["billed"] or value["ended"] else " (free)" if value["state"] == "stopped" else ""),
                value["provider"],
                _what(value),
                "spot" if value["market"] == "spot" else "",
                hourly,
                dollars(value["spent_usd"]),
                _lease(value, now),
            ]
        )
    return table(rows, ["NAME", "STATE", "AT", "WHAT", "", "$/H", "SPENT", "LEASE"], right=(5, 6))


def _what(value: dict[str, Any]) -> str:
    return ",".join(f"{gpu['count']}x{gpu['name']}"[:14] for gpu in value["gpus"]) or str(value["instance_type"])


def _lease(value: dict[str, Any], now: datetime) -> str:
    if value["ended"]:
        return f"ended {ago(value['ended'], now)}"
    if value["hold_until"] and from_iso(value["hold_until"]) > now:
        return f"held {rounded((from_iso(value['hold_until']) - now).total_seconds())}"
    if value["expires"] is None:
        return "none"
    left = from_iso(value["expires"]) - now
    seconds = left.total_seconds()
    return f"{rounded(seconds)} left" if seconds > 0 else f"over {rounded(-seconds)}"


def machine(value: dict[str, Any], now: datetime) -> str:
    """Return what `show` says of one machine."""
    address = value["address"]
    access = f"{address['user']}@{address['host']} port {address['port']}" if address else None
    billed = "billed" if value["billed"] else "not billed"
    reason = f": {value['reason']}" if value["reason"] else ""
    state = "launch interrupted, not settled" if value["unsettled"] else f"{value['state']} ({billed}){reason}"
    return facts(
        [
            ("name", f"{value['name']}  ({value['id']})"),
            ("state", state),
            ("seen", ago(value["seen_at"], now)),
            ("what", f"{value['instance_type']}, {gpus(value)}, {value['market'].replace('_', '-')}"),
            ("where", f"{value['provider']} (account {value['account']}), {value['region']}/{value['zone']}"),
            ("price", price(value["price"])),
            ("spent", f"{dollars(value['spent_usd'], 4)} so far"),
            ("lease", None if value["ended"] else f"until {when(value['expires'], now)}"),
            ("renewable", None if value["ended"] else f"until {when(value['renew_until'], now)}"),
            ("held", when(value["hold_until"], now) if value["hold_until"] else None),
            ("last active", when(value["last_active"], now) if value["last_active"] else None),
            ("ssh", access),
            ("template", value["template"]),
            ("owner", f"{value['owner']}, project {value['project']}"),
            ("ended", when(value["ended"], now) if value["ended"] else None),
        ]
    )
