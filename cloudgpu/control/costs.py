"""What machines have cost, beside an owned desktop; and the settling of a ledger that misses a part of its past."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from cloudgpu.config.desktops import load_desktop
from cloudgpu.control.look import Look, look_at_all
from cloudgpu.core.compare import desktop_cost, said
from cloudgpu.core.facts import Unanswered
from cloudgpu.core.fold import billed_micros, spent
from cloudgpu.core.money import ZERO
from cloudgpu.core.times import from_iso, iso
from cloudgpu.errors import CloudgpuError, LedgerUnavailable
from cloudgpu.report.values import machine_value, usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudgpu.control.session import Session


def settle_ledger(session: Session, doubt: str) -> Look:
    """Ask every account, take up what is there, and take the ledger's present end as the true one.

    Raises LedgerUnavailable when an account did not answer: what it has is then not known.
    """
    if session.ledger.head()[0] == 0:  # the file is gone: a look can only be written into a new one
        _check_complete(session, [gap for account in session.settings.accounts for gap in _gaps(session, account)])
        session.ledger.settle(doubt)
        return look_at_all(session)
    look = look_at_all(session)
    _check_complete(session, look.unanswered)
    session.ledger.settle(doubt)
    return look


def _gaps(session: Session, account: str) -> Sequence[Unanswered]:
    try:
        return session.provider(account).list().unanswered
    except CloudgpuError as fault:
        return [Unanswered(account, fault.message)]


def _check_complete(session: Session, gaps: Sequence[Unanswered]) -> None:
    if gaps:
        raise LedgerUnavailable(
            f"The ledger cannot be settled while {gaps[0].scope} does not answer: {gaps[0].why}",
            field="ledger",
            value=str(session.home.ledger),
            next="Try again when it answers, or take that account out of config.toml.",
        )


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
        "as_of": iso(now),
        "desktop": desktop(session, rows),
    }


def desktop(session: Session, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the billed hours of these machines would have cost on the owned desktop of the settings.

    A first figure: one GPU is counted as fast as another, and every billed hour as an hour of work.
    """
    now = session.clock()
    owned = load_desktop(session.settings.desktop, search=[session.home.root / "desktops"])
    worked = timedelta(microseconds=sum(billed_micros(row, now) for row in rows))
    began = min((from_iso(row["intended_at"]) for row in rows), default=now)
    cost = desktop_cost(owned, worked, max(timedelta(0), now - began))
    return {
        "name": owned.name,
        "gpu": owned.gpu,
        "hours": f"{worked / timedelta(hours=1):.4f}",
        "electricity_usd": usd(cost.electricity),
        "purchase_share_usd": usd(cost.purchase_share),
        "purchase_usd": usd(cost.purchase),
        "total_usd": usd(cost.total),
        "source": owned.source,
        "as_of": owned.as_of.isoformat(),
        "sentence": said(owned, cost),
    }
