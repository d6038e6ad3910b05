"""Folds a machine's ledger lines into its current row and what it has cost. Order of arrival does not matter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from cloudgpu.core.events import Event
from cloudgpu.core.money import Money, charge, charges
from cloudgpu.core.times import from_iso, iso

Row = dict[str, Any]
_Prices = list[tuple[str, Money]]  # from when on, per hour, of one launch
_Interval = tuple[str, str, _Prices]

_LAUNCH = (
    "key request name provider account region zone instance_type market accelerators price owner project "
    "policy template expires renew_until stoppable stop_means setup beside"
).split()
_SEEN = "provider_id state billed since launched_at address reason last_active".split()
_OF_A_LIFE = "provider_id since launched_at address reason last_active".split()  # a new launch has none yet
_PRICING = ("launch_intended", "machine_adopted", "price_observed")
_LEASE = ("expires", "renew_until", "hold_until")


def machine_row(events: Iterable[Event]) -> Row | None:
    """Return the machine as these lines tell it, as plain JSON values; None when none of them is of a machine.

    `attempt` is `open`, `made`, `refused` or `void`; `ended` is when it was proved gone, else null.
    `closed_nanos` is what ended intervals cost, `closed_micros` how long they were; `open_since` and `price` say
    what is running now.
    `parked` says that its end was asked so that `start` can bring it back, `discard` that nothing of it is to stay;
    `kept` are the disks and images of it that stay without it. `asked` is the last `stop`, `start`, `park` or `end`
    that was asked and not yet seen to be done. `seq` is how long the ledger was at the latest launch, as the tags of
    that machine say.
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
    row |= {"intended_at": line.occurred_at, "unpriced": False, "why": None, "renew_s": None}
    row |= {"kept": [], "parked": False, "discard": False, "seq": 0}
    return row


def _intended(row: Row, line: Event) -> None:
    if line.body["attempt"] < row["number"]:
        return
    row |= {name: line.body.get(name) for name in _LAUNCH}  # a line of an earlier version lacks what came later
    row |= {"number": line.body["attempt"], "token": line.body["token"], "attempt": "open"}
    row["renew_s"] = line.body.get("renew_s")
    row |= {"intended_at": line.occurred_at, "state": "unknown", "billed": False, "ended": None, "asked": None}
    row |= {"discard": False, "seq": line.body.get("seq", 0)} | dict.fromkeys(_OF_A_LIFE)


def _adopted(row: Row, line: Event) -> None:
    row |= {name: line.body.get(name) for name in _LAUNCH if row[name] is None}
    row |= {"attempt": "made", "ended": None}


def _settled(row: Row, line: Event) -> None:
    if line.body["token"] != row["token"]:
        return
    row |= {"attempt": line.body["outcome"], "settled_why": line.body["why"]}
    row["parked"] = row["parked"] and line.body["outcome"] != "made"
    if line.body["outcome"] != "made":
        row |= {"state": "terminated", "billed": False, "ended": line.occurred_at}


def _observed(row: Row, line: Event) -> None:
    body = line.body
    row |= {name: body[name] for name in _SEEN}
    row |= {name: body[name] for name in _LEASE if body.get(name) is not None}
    row |= {"seen_at": line.occurred_at, "attempt": "made"}
    row["ended"] = line.occurred_at if body["state"] == "terminated" else None
    done = {"stop": ("stopped", "deallocated", "terminated"), "start": ("running",), "end": ("terminated",)}
    done["park"] = done["end"]
    if row["asked"] and body["state"] in done[row["asked"]]:
        row["asked"] = None


def _vanished(row: Row, line: Event) -> None:
    row |= {"state": "terminated", "billed": False, "ended": line.occurred_at, "seen_at": line.occurred_at}
    row |= {"asked": None, "address": None}


def _asked(row: Row, line: Event) -> None:
    what = line.kind.removesuffix("_asked")
    row["why"] = line.body["why"]
    if row["ended"] is None:
        row["asked"] = what
    if what in ("park", "end"):
        row |= {"parked": what == "park", "discard": what == "end"}


def _kept(row: Row, line: Event) -> None:
    row["kept"] = line.body["kept"]
    row["parked"] = row["parked"] and (bool(row["kept"]) or row["ended"] is None)


def _priced(row: Row, line: Event) -> None:
    if line.body["price"] is not None:
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
    "park_asked": _asked,
    "kept_observed": _kept,
    "price_observed": _priced,
    "lease_set": _leased,
    "hold_set": _held,
}


def _micros(start: str, end: str) -> int:
    span = from_iso(end) - from_iso(start)
    return max(0, (span.days * 86400 + span.seconds) * 1_000_000 + span.microseconds)


def _add_cost(row: Row, lines: list[Event]) -> None:
    """Price the billed intervals; where the provider says when a state began, its word ends the interval.

    What is still open is cut at the last price: `closed_nanos` has the part before, `open_since` begins the rest.
    """
    intervals: list[_Interval] = []
    open_since, prices = None, _Prices()
    for line in lines:
        if line.kind in _PRICING:
            if line.kind == "launch_intended" and open_since is None:
                prices = _Prices()
            _note_price(prices, line)
        elif line.kind in ("instance_observed", "instance_vanished"):
            billed = line.kind == "instance_observed" and line.body["billed"]
            at = line.body.get("since") or line.occurred_at
            if billed and open_since is None:
                open_since = at
            elif not billed and open_since is not None:
                intervals.append((open_since, at, prices))
                open_since = None
    row["unpriced"] = not prices or any(not known for _, _, known in intervals)
    if open_since is not None and prices:
        cut = max(open_since, prices[-1][0])
        intervals.append((open_since, cut, prices))
        open_since = cut
    pieces = (piece for interval in intervals for piece in _pieces(*interval))
    row |= {"closed_nanos": charges(pieces).nanos, "open_since": open_since}
    row["closed_micros"] = sum(_micros(begin, end) for begin, end, _ in intervals)


def _note_price(prices: _Prices, line: Event) -> None:
    """Add the line's price, if it has one; an adopted machine's only where none was known."""
    price = line.body["price"]
    if price is not None and not (prices and line.kind == "machine_adopted"):
        prices.append((line.occurred_at, Money(price["nanos_per_hour"])))


def _pieces(start: str, end: str, prices: _Prices) -> Iterator[tuple[Money, int]]:
    """Cut an interval where the price changed; the first price also holds for the time before it was known."""
    for number, (at, price) in enumerate(prices):
        begin = max(start, at) if number else start
        stop = min(end, prices[number + 1][0]) if number + 1 < len(prices) else end
        yield price, _micros(begin, stop)
