"""Gathers what is wrong with machines by the ledger (no lease, no proof, no price, a leap), and with price lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cloudgpu.config.alerts.alerts import PRICE_JUMP
from cloudgpu.control.alerting_home import found_at_home
from cloudgpu.control.alive import alive_at
from cloudgpu.control.published import lab_limits
from cloudgpu.control.session import living
from cloudgpu.core.alerts.alerts import Finding
from cloudgpu.core.alerts.findings import ended_findings, held_finding, machine_findings, price_leaps, unproved_since
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.machines import reason_of

if TYPE_CHECKING:
    from cloudgpu.control.session import Session


def found_here(session: Session) -> tuple[Finding, ...]:
    """Return every finding about machines, kept things and refreshed prices. Asks nobody; reads few histories."""
    now = session.clock()
    bills = session.ledger.bills()
    rows = [_as_seen(session, row, iso(now)) for row in living(bills)]
    of_machines = machine_findings(rows, dict(_asked_since(session, rows)), now)
    over = ended_findings((row | {"reason": reason_of(row)} for row in bills if "unasked" in row), now)
    return (*of_machines, *over, *price_leaps(rows, _factor_of(session)), *_held_back(session))


def _factor_of(session: Session) -> Callable[[Mapping[str, Any]], Fraction]:
    """Return what says at which factor a machine's price is news: the lab's, else that of the home that launched it."""
    published = None
    with suppress(InvalidRequest):  # published by another version: no reason to tell nothing
        published = lab_limits(session).price_jump

    def factor(row: Mapping[str, Any]) -> Fraction:
        return Fraction(published or Decimal((row.get("terms") or {}).get("price_jump", PRICE_JUMP)))

    return factor


def _held_back(session: Session) -> Iterator[Finding]:
    """Tell of prices that a refresh has not taken over, for having moved too far: one finding for a provider's list."""
    from cloudgpu.catalog.refreshed import stored
    from cloudgpu.catalog.rules import PROVIDERS

    for provider in PROVIDERS:
        with suppress(InvalidRequest):  # a damaged list is said by `catalog`, and prices nothing
            held = stored(provider).held
            if held:
                names = [f"{one.key.item} in {one.key.region}" for one in held]
                yield found_at_home(session, held_finding(provider, names))


def _as_seen(session: Session, row: dict[str, Any], now: str) -> dict[str, Any]:
    """Return the row of a machine past its renew-until with when a look last saw it: unchanged, that is in no line."""
    if not row["billed"] or row["renew_until"] is None or row["renew_until"] > now:
        return row
    return row | {"seen_at": alive_at(session.ledger, row)}


def _asked_since(session: Session, rows: list[dict[str, Any]]) -> Iterator[tuple[str, datetime]]:
    for row in rows:
        since = unproved_since(session.ledger.events(row["id"])) if row["asked"] else None
        if since is not None:
            yield row["id"], since
