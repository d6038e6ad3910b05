"""A machine that is gone: says when it ended and what it cost, so that no verb acts on what was known before."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from cloudgpu.core.bill import spent
from cloudgpu.core.rows import comes_back, stays
from cloudgpu.core.times import minute
from cloudgpu.errors import InstanceNotFound, ProviderUnavailable
from cloudgpu.report.values import unpriced_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from cloudgpu.control.session import Session

Row = dict[str, Any]


def gone(row: Row, now: datetime) -> InstanceNotFound:
    """Return the error about a machine that has ended: when, what it cost, and what can be done now."""
    name, reason = row["name"], f" ({row['reason']})" if row["reason"] else ""
    kept = " Something of it is kept." if stays(row) else ""
    return InstanceNotFound(
        f"{name} ended at {minute(row['ended'])}{reason}. {cost_text(row, now)}.{kept}",
        field="name",
        value=name,
        next=_next(row),
    )


def cost_text(row: Row, now: datetime) -> str:
    """Return what a machine has cost, as a sentence without its full stop."""
    missing = unpriced_of(row)
    if not missing:
        return f"It cost {spent(row, now).text(4)}"
    known = spent(row, now)
    return f"It cost {known.text(4) + ' and ' if known.nanos else ''}an unknown amount for its {' and '.join(missing)}"


def looked_at(session: Session, row: Row) -> Row:
    """Ask the machine's provider and return its row of now. Raises InstanceNotFound, as `gone`, where it has ended.

    A machine whose launch is not settled, or that was known to have ended, is not asked about. Raises
    ProviderUnavailable where nothing could be learned.
    """
    from cloudgpu.control.look import refresh

    if row["ended"] is None and row["provider_id"] is not None:
        row = refresh(session, row)
    if row["ended"] is not None:
        raise gone(row, session.clock())
    return row


@contextmanager
def told_if_gone(session: Session, row: Row) -> Iterator[None]:
    """Let a provider's "no such machine" become `gone`, once another look has recorded that the machine has ended."""
    try:
        yield
    except InstanceNotFound:
        row = session.ledger.machine(row["id"]) or row
        with suppress(ProviderUnavailable):
            looked_at(session, row)
        raise


def _next(row: Row) -> str:
    name = row["name"]
    if comes_back(row):
        return f"Run: cloudgpu start {name} (to bring it back), or: cloudgpu down {name} (to remove what is kept)"
    return f"Run: cloudgpu show {name} (its record), or: cloudgpu up --name {name} (a new machine)"
