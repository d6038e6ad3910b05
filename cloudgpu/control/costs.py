"""What machines have cost, beside an owned desktop; and the settling of a ledger that misses a part of its past."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudgpu.control.look import Look, look_at_all
from cloudgpu.core.fold import spent
from cloudgpu.core.money import ZERO
from cloudgpu.errors import LedgerUnavailable
from cloudgpu.report.values import machine_value, usd

if TYPE_CHECKING:
    from cloudgpu.control.session import Session


def settle_ledger(session: Session, doubt: str) -> Look:
    """Ask every account, take up what is there, and take the ledger's present end as the true one.

    Raises LedgerUnavailable when an account did not answer: what it has is then not known.
    """
    look = look_at_all(session)
    if look.unanswered:
        gap = look.unanswered[0]
        raise LedgerUnavailable(
            f"The ledger cannot be settled while {gap.scope} does not answer: {gap.why}",
            field="ledger",
            value=str(session.home.ledger),
            next="Try again when it answers, or take that account out of config.toml.",
        )
    session.ledger.settle(doubt)
    return look


def costs(session: Session) -> dict[str, Any]:
    """Return what every machine has cost up to now, their total, and the same hours on the owned desktop."""
    now = session.clock()
    rows = [row for row in session.ledger.machines() if row["provider_id"]]
    priced = [row for row in rows if not row["unpriced"]]
    total = sum((spent(row, now) for row in priced), ZERO)
    return {
        "machines": [machine_value(row, now) for row in rows],
        "total_usd": usd(total),
        "unpriced": [row["name"] for row in rows if row["unpriced"]],
        "as_of": machine_time(session),
        "desktop": desktop(session, rows),
    }


def machine_time(session: Session) -> str:
    """Return the present as ledger time."""
    from cloudgpu.core.times import iso

    return iso(session.clock())


def desktop(session: Session, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the billed hours of these machines would have cost on the owned desktop."""
    raise NotImplementedError
