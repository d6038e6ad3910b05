"""Folds a machine's ledger lines into its current row and what it has cost. Order of arrival does not matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from cloudgpu.core.events import Event
from cloudgpu.core.money import Money, charge
from cloudgpu.core.times import from_iso, iso

Row = dict[str, Any]

_LAUNCH = (
    "key request name provider account region zone instance_type market accelerators price owner project "
    "policy template expires renew_until stoppable stop_means"
).split()
_SEEN = "provider_id state billed since launched_at address reason last_active".split()
_LEASE = ("expires", "renew_until", "hold_until")


def machine_row(events: Iterable[Event]) -> Row | None:
    """Return the machine as these lines tell it, as plain JSON values; None when none of them is of a machine.

    `attempt` is `open`, `made`, `refused` or `void`; `ended` is when it was proved gone, else null.
    `closed_nanos` is what ended intervals cost, `closed_micros` how long they were; `open_since` and `price` say
    what is running now.
    `asked` is the last `stop`, `start` or `end` that was asked and not yet seen to be done.
    """
    lines = sorted(events, key=lambda line: (line.occurred_at, line.seq))
    row: Row = {}
    for line in lines:
        step = _STEPS.get(line.kind)
        if step is not None:
            if not row:
                row = _empty(line)
            step(row, line)
    if not row:
        return None
    _add_cost(row, lines)
    return row


def spent(row: Mapping[str, Any], now: datetime) -> Money:
    """Return what the machine has cost up to `now`, assuming that what ran at the last look still runs."""
    closed = Money(row["closed_nanos"])
    if row["open_since"] is None or row["price"] is None:
        return closed
    return closed + charge(Money(row["price"]["nanos_per_hour"]), _micros(row["open_since"], iso(now)))


def billed_micros(row: Mapping[str, Any], now: datetime) -> int:
    """Return for how many microseconds the machine was billed up to `now`, as `spent` counts them."""
    running = 0 if row["open_since"] is None else _micros(row["open_since"], iso(now))
    return int(row["closed_micros"]) + running


def _empty(line: Event) -> Row:
    row: Row = dict.fromkeys((*_LAUNCH, *_SEEN, *_LEASE, "token", "settled_why", "asked", "ended", "seen_at"))
    row |= {"id": line.subject, "number": 0, "attempt": "made", "state": "unknown", "billed": False}
    row |= {"intended_at": line.occurred_at, "unpriced": False, "why": None}
    return row


def _intended(row: Row, line: Event) -> None:
    if line.body["attempt"] < row["number"]:
        return
    row |= {name: line.body[name] for name in _LAUNCH}
    row |= {"number": line.body["attempt"], "token": line.body["token"], "attempt": "open"}
    row |= {"intended_at": line.occurred_at, "state": "unknown", "billed": False, "ended": None, "asked": None}


def _adopted(row: Row, line: Event) -> None:
    row |= {name: line.body[name] for name in _LAUNCH if row[name] is None}
    row |= {"attempt": "made", "ended": None}


def _settled(row: Row, line: Event) -> None:
    if line.body["token"] != row["token"]:
        return
    row |= {"attempt": line.body["outcome"], "settled_why": line.body["why"]}
    if line.body["outcome"] != "made":
        row |= {"state": "terminated", "billed": False, "ended": line.occurred_at}


def _observed(row: Row, line: Event) -> None:
    body = line.body
    row |= {name: body[name] for name in _SEEN}
    row |= {name: body[name] for name in _LEASE if body.get(name) is not None}
    row |= {"seen_at": line.occurred_at, "attempt": "made"}
    row["ended"] = line.occurred_at if body["state"] == "terminated" else None
    done = {"stop": ("stopped", "deallocated", "terminated"), "start": ("running",), "end": ("terminated",)}
    if row["asked"] and body["state"] in done[row["asked"]]:
        row["asked"] = None


def _vanished(row: Row, line: Event) -> None:
    row |= {"state": "terminated", "billed": False, "ended": line.occurred_at, "seen_at": line.occurred_at}
    row |= {"asked": None, "address": None}


def _asked(row: Row, line: Event) -> None:
    row |= {"asked": line.kind.removesuffix("_asked"), "why": line.body["why"]}


def _priced(row: Row, line: Event) -> None:
    row["price"] = line.body["price"]


def _leased(row: Row, line: Event) -> None:
    row |= {"expires": line.body["expires"], "renew_until": line.body["renew_until"]}


def _held(row: Row, line: Event) -> None:
    row["hold_until"] = line.body["until"]


_STEPS = {
    "launch_intended": _intended,
    "launch_settled": _settled,
    "machine_adopted": _adopted,
    "instance_observed": _observed,
    "instance_vanished": _vanished,
    "stop_asked": _asked,
    "start_asked": _asked,
    "end_asked": _asked,
    "price_observed": _priced,
    "lease_set": _leased,
    "hold_set": _held,
}


def _micros(start: str, end: str) -> int:
    span = from_iso(end) - from_iso(start)
    return max(0, (span.days * 86400 + span.seconds) * 1_000_000 + span.microseconds)


def _add_cost(row: Row, lines: list[Event]) -> None:
    """Price the billed intervals; where the provider says when a state began, its word ends the interval."""
    closed, micros, open_since, price = Money(0), 0, None, None

    def close(until: str) -> None:
        nonlocal closed, micros
        if open_since is not None:
            span = _micros(open_since, until)
            micros += span
            closed += charge(price, span) if price is not None else Money(0)

    for line in lines:
        body = line.body
        if line.kind in ("launch_intended", "machine_adopted", "price_observed"):
            if open_since is not None:
                close(line.occurred_at)
                open_since = max(open_since, line.occurred_at)
            if body["price"] is not None:
                price = Money(body["price"]["nanos_per_hour"])
        elif line.kind in ("instance_observed", "instance_vanished"):
            billed = line.kind == "instance_observed" and body["billed"]
            at = body.get("since") or line.occurred_at
            if billed and open_since is None:
                open_since = at
            elif not billed:
                close(at)
                open_since = None
    row |= {"closed_nanos": closed.nanos, "closed_micros": micros, "open_since": open_since}
    row["unpriced"] = price is None
