"""Gathers what the ledger says is wrong with machines: no lease, an unproved stop, no price, a price that leapt."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cloudgpu.control.session import living
from cloudgpu.core.alert_findings import machine_findings, price_leaps, unproved_since
from cloudgpu.core.alerts import Finding

if TYPE_CHECKING:
    from cloudgpu.control.session import Session


def found_in_ledger(session: Session) -> tuple[Finding, ...]:
    """Return every finding about machines and kept things. Asks nobody; reads few histories."""
    rows = living(session.ledger.bills())
    factor = Fraction(session.settings.alerts.price_jump)
    now = session.clock()
    return (*machine_findings(rows, dict(_asked_since(session, rows)), now), *price_leaps(rows, factor))


def _asked_since(session: Session, rows: list[dict[str, Any]]) -> Iterator[tuple[str, datetime]]:
    for row in rows:
        since = unproved_since(session.ledger.events(row["id"])) if row["asked"] else None
        if since is not None:
            yield row["id"], since
