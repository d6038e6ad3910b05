"""Settles a ledger that misses a part of its past: every account is asked, and what is there is taken up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.control.look import Look, look_at_all
from cloudgpu.core.facts import Unanswered
from cloudgpu.errors import CloudgpuError, LedgerUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudgpu.control.session import Session


def settle_ledger(session: Session, doubt: str) -> Look:
    """Ask every account, take up what is there, and take the ledger's present end as the true one.

    Raises LedgerUnavailable when an account did not answer: what it has is then not known.
    """
    if session.ledger.head()[0] == 0:  # the file is gone: a look can only be written into a new one
        accounts = sorted(session.settings.accounts)
        _check_complete(session, [gap for account in accounts for gap in _gaps(session, account)])
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
