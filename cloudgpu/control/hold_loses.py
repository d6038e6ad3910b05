"""Says what ends a held machine all the same: its renew-until, a schedule, a budget. Said when a hold is set."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cloudgpu.control.budgets import budgets
from cloudgpu.control.policies import policy_of
from cloudgpu.core.budgets.budget import Action
from cloudgpu.core.budgets.enforcement import WARNINGS
from cloudgpu.core.policies.endings import agreed, at_last, gentlest, only_warned
from cloudgpu.core.policies.policy import Act, Do, Policy
from cloudgpu.core.policies.schedule import next_off
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.providers.abilities import SetsTimer

if TYPE_CHECKING:
    from cloudgpu.control.session import Session

Row = dict[str, Any]


def hold_loses_to(session: Session, row: Row, until: datetime) -> str | None:
    """Return the sentence that says where a hold until then does not help, or None. It refuses no hold."""
    try:
        policy = policy_of(session, row).policy
        said = [*_moments(session, row, policy, until), *_spent(session, row, policy)]
    except InvalidRequest as fault:  # a hold keeps a machine from being ended: no broken file is to be in its way
        return f"whether something ends it all the same is not known: {fault.message}"
    return "; ".join(said) or None


def _moments(session: Session, row: Row, policy: Policy | None, until: datetime) -> Iterator[str]:
    end = from_iso(row["renew_until"]) if row["renew_until"] else None
    off = None
    if policy is not None and not only_warned(row, policy):
        off = next_off(policy.schedules, session.clock())
    if off is not None and off < until and (end is None or off < end):
        erased = agreed(row, policy) is Do.TERMINATE
        back = "its disk is deleted" if erased else "start brings it back until the next off"
        yield f"its schedule ends it at {off:%Y-%m-%d %H:%M} UTC all the same; {back}"
    if end is not None and end < until:
        lost = " and deletes its disk" if at_last(row, policy) is Do.TERMINATE else ""
        yield f"renew-until ends it at {end:%Y-%m-%d %H:%M} UTC all the same{lost}{_moved(session, row)}"


def _moved(session: Session, row: Row) -> str:
    """Return what moves a machine's renew-until, as the end of a sentence."""
    try:
        provider = session.provider_of(row)
        fixed = isinstance(provider, SetsTimer) and provider.timer_limit(row["provider_id"]) is not None
    except CloudgpuError:
        return ""  # extend says it
    return f": {row['provider']} has fixed that until it is stopped" if fixed else "; extend moves that"


def _spent(session: Session, row: Row, policy: Policy | None) -> Iterator[str]:
    stops = [one.name for one in budgets(session) if Action.STOP in one.actions and one.scope.covers(row)]
    if stops:
        names = f"the budget{'s' * (len(stops) > 1)} {', '.join(stops)}"
        yield f"{names} may end it once it is spent, after {WARNINGS} warnings{_lost(row)}"
    if policy is not None and policy.budget is not None and policy.budget.do is Act.STOP:
        yield f"its policy ends it once it has cost {policy.budget.limit.text()}, after {WARNINGS} warnings{_lost(row)}"


def _lost(row: Row) -> str:
    return "; its disk is deleted then" if gentlest(row) is Do.TERMINATE else ""
