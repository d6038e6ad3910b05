"""Moves a lease's end and sets or releases a hold: on the machine first, then in the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cloudgpu.control.lifecycle import lease_line
from cloudgpu.control.look import refresh
from cloudgpu.control.session import Session
from cloudgpu.core.events import Draft
from cloudgpu.core.money import ZERO, Money
from cloudgpu.core.plan import Lease, extended, hold_tags, run_cost
from cloudgpu.core.times import from_iso, iso, minute
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.base import Taggable

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Extension:
    """What a longer lease means: both its ends, whether `renew-until` moves, and what the added time costs."""

    row: Row
    lease: Lease
    moves_renew_until: bool
    added_cost: Money


def plan_extension(session: Session, row: Row, by: timedelta) -> Extension:
    """Return what extending would do; raise InvalidRequest for a machine that has no lease or is over."""
    _check_living(row)
    now = session.clock().replace(microsecond=0)
    if row["expires"] is None or row["renew_until"] is None:
        lease = Lease(now + by, now + by)
    else:
        lease = extended(from_iso(row["expires"]), from_iso(row["renew_until"]), by, now)
    moves = row["renew_until"] is None or lease.renew_until > from_iso(row["renew_until"])
    return Extension(row, lease, moves, _cost(row, by))


def extend(session: Session, extension: Extension) -> Row:
    """Carry out an extension and return the machine's new row."""
    row = extension.row
    _taggable(session, row).tag(row["provider_id"], extension.lease.tags())
    session.ledger.append([lease_line(row, extension.lease, "extend", session.clock())])
    return session.ledger.machine(row["id"]) or row


def set_hold(session: Session, row: Row, until: datetime | None) -> Row:
    """Set a hold that ends at `until`, or release it (None); return the machine's new row."""
    _check_living(row)
    until = until and until.replace(microsecond=0)  # as a tag can carry it
    provider = _taggable(session, row)
    provider.tag(row["provider_id"], hold_tags(until))
    now = session.clock()
    body = {"until": iso(until) if until else None, "why": "asked"}
    session.ledger.append([Draft("hold_set", row["id"], body, now, f"hold:{row['id']}:{iso(now)}")])
    return session.ledger.machine(row["id"]) or row


def check_hold(name: str, until: object, *, release: bool) -> None:
    """Raise InvalidRequest unless exactly one is meant: an end, or the release."""
    if release == (until is not None):
        raise InvalidRequest(
            "A hold has an end: say until when, or --release.",
            field="UNTIL",
            value=None if until is None else str(until),
            next=f"For example: cloudgpu hold {name} 2h, or: cloudgpu hold {name} --release",
        )


def hold_loses_to(row: Row, until: datetime) -> str | None:
    """Return the sentence that says where a hold does not help, or None."""
    if row["renew_until"] and from_iso(row["renew_until"]) < until:
        end = from_iso(row["renew_until"])
        return f"renew-until ends it at {end:%Y-%m-%d %H:%M} UTC all the same; extend moves that"
    return None


def _taggable(session: Session, row: Row) -> Taggable:
    provider = session.provider(row["account"])
    if not isinstance(provider, Taggable):
        raise InvalidRequest(
            f"The lease of a machine on {row['provider']} cannot be changed.", field="name", value=row["name"]
        )
    refresh(session, row)
    return provider


def _check_living(row: Row) -> None:
    if row["ended"] or row["provider_id"] is None:
        raise InvalidRequest(
            f"{row['name']} has no lease to change: "
            + (f"it ended at {minute(row['ended'])}." if row["ended"] else "its launch is not settled."),
            field="name",
            value=row["name"],
            next="Run: cloudgpu ls --refresh",
        )


def _cost(row: Row, by: timedelta) -> Money:
    return run_cost(Money(row["price"]["nanos_per_hour"]), by) if row["price"] else ZERO
