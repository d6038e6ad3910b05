"""Renews the leases that a pass has decided to renew: of machines in use whose agent cannot do that itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cloudgpu.control.lease import latest_of, relet
from cloudgpu.control.reap_carry import Item, each_alone
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.policies.policy import Do
from cloudgpu.core.reaper.decisions import Decision, Seen
from cloudgpu.core.reaper.result import Done, Left
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, LedgerUnavailable, Silent

if TYPE_CHECKING:
    from cloudgpu.control.session import Session

Row = dict[str, Any]


def renew(session: Session, seen: Sequence[Seen], decisions: Sequence[Decision]) -> tuple[list[Done], list[Left]]:
    """Move the leases' ends, and return those that were moved and those that were not, with why."""
    pairs = zip(seen, decisions, strict=True)
    items = [Item(one, decision) for one, decision in pairs if decision.do is Do.RENEW and decision.at is not None]
    done, left = list[Done](), list[Left]()
    silent: dict[tuple[str, str], str] = {}  # by account and region: what did not answer there
    with each_alone(session, items) as (mine, busy):
        left += busy
        for item in mine:
            place = (item.row["account"], item.row["region"])
            if place in silent:
                left.append(item.left(silent[place]))
                continue
            try:
                row = _renewed(session, item)
            except LedgerUnavailable:
                raise
            except CloudgpuError as fault:
                left.append(item.left(f"its lease could not be renewed: {fault.message}"))
                silent |= {place: left[-1].why} if isinstance(fault, Silent) else {}
            else:
                done.append(item.done(row["expires"]))
    return done, left


def _renewed(session: Session, item: Item) -> Row:
    row = latest_of(session, session.ledger.machine(item.id) or item.row)
    end = item.decision.at
    if end is None or (row["expires"] and from_iso(row["expires"]) >= end):  # its agent was quicker
        return row
    last = from_iso(row["renew_until"]) if row["renew_until"] else end
    return relet(session, row, Lease(end, max(last, end)), item.decision.why)
