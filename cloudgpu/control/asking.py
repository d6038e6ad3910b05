"""Who was asked: the accounts that an answer is about, and those that a credential here names and does not open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.core.model.identity import Asked, Unanswered
from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cloudgpu.control.session import Session


class Closed(Unanswered):
    """An account as a whole that let nobody in: its credential is refused, or lacks a part."""


def gap_of(account: str, fault: CloudgpuError) -> Unanswered:
    """Return the gap that this fault of a whole account leaves in an answer."""
    closed = isinstance(fault, AuthFailed | InvalidRequest)
    return (Closed if closed else Unanswered)(account, fault.message)


def told_apart(session: Session, gaps: Iterable[Unanswered]) -> tuple[list[Unanswered], list[Unanswered]]:
    """Return the gaps that make an answer incomplete, and the accounts that could not be asked and make none so.

    The latter are clouds that config.toml does not name and on which this user has never launched anything by this
    ledger: only a credential on this computer led there, or a colleague's launch, and it lets nobody in.
    """
    counted, closed = list[Unanswered](), list[Unanswered]()
    for gap in gaps:
        only_found = isinstance(gap, Closed) and gap.scope in session.found and not _is_used(session, gap.scope)
        (closed if only_found else counted).append(gap)
    return counted, closed


def _is_used(session: Session, account: str) -> bool:
    own = session.settings.owner
    return any(row["account"] == account and row["owner"] == own for row in session.ledger.bills())


def asked_of(session: Session, accounts: Iterable[str], closed: Iterable[Unanswered]) -> tuple[Asked, ...]:
    """Return those of these accounts that were asked: all but the closed ones."""
    out, known = {gap.scope for gap in closed}, session.settings.accounts
    return tuple(Asked(one, known[one].provider if one in known else "?") for one in accounts if one not in out)
