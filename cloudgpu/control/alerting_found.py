"""Gathers what the ledger says is wrong with machines: no lease, an unproved stop, no price, a price that leapt."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cloudgpu.control.alive import alive_at
from cloudgpu.control.session import living
from cloudgpu.core.alert_findings import machine_findings, price_leaps, unproved_since
from cloudgpu.core.alerts import Finding
from cloudgpu.core.times import iso

if TYPE_CHECKING:
    from cloudgpu.control.session import Session


def found_in_ledger(session: Session) -> tuple[Finding, ...]:
    """Return every finding about machines and kept things. Asks nobody; reads few histories."""
    now, factor = session.clock(), Fraction(session.settings.alerts.price_jump)
    rows = [_as_seen(session, row, iso(now)) for row in living(session.ledger.bills())]
    return (*machine_findings(rows, dict(_asked_since(session, rows)), now), *price_leaps(rows, factor))


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
