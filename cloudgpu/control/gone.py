"""Asks for a machine before a verb acts on it, so that none acts on what was known of one that is gone by now."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from cloudgpu.control.ended import gone
from cloudgpu.errors import InstanceNotFound, ProviderUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudgpu.control.session import Session

Row = dict[str, Any]


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
