"""Decides which machines an exceeded budget stops, and what would fit if a budget refuses.

Nothing is stopped here: the result says which machines to stop or warn about, how and in which order. What would fit is
how long the same machine may run, or what an hour of it may cost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cloudgpu.core.budgets.admission import AdmissionRequest
from cloudgpu.core.budgets.budget import Action
from cloudgpu.core.budgets.commitments import compute_nanos
from cloudgpu.core.budgets.status import BudgetState
from cloudgpu.core.model.facts import HourlyPrice
from cloudgpu.core.model.machine import Machine, may_be_running, not_none
from cloudgpu.core.policies.guards import NOTHING_GENTLER, gentlest_ending
from cloudgpu.core.policies.policy import ReaperAction
from cloudgpu.core.team.rights import Authorization
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso, iso

MINUTE = timedelta(minutes=1)


def longest_admitted(request: AdmissionRequest, after: datetime | None = None) -> datetime | None:
    """Return the latest renew-until, in whole minutes from now, that every refusing budget admits; None: none.

    It is later than `after` (None: now) and not after the requested one. What is admitted up to a time is admitted up
    to every earlier one, so binary search finds it.
    """
    requested_until = from_iso(not_none(request.subject.renew_until))
    low = 0 if after is None or after <= request.now else -((request.now - after) // MINUTE)
    high = -((request.now - requested_until) // MINUTE)

    def fits(minutes: int) -> bool:
        until = min(requested_until, request.now + minutes * MINUTE)
        return not request.admission(lambda subject: subject._replace(renew_until=iso(until))).refusals

    fitting = bisect_left(range(low + 1, high), x=True, key=lambda minutes: not fits(minutes))
    return request.now + (low + fitting) * MINUTE if fitting else None


def highest_admitted_price(request: AdmissionRequest) -> Money | None:
    """Return the highest price an hour at which every refusing budget admits it for as long as requested; None: none.

    It is a multiple of 0.0001 dollars, as prices are shown.
    """
    step = 100_000  # nano-dollars
    high = max(2, 1 + (compute_nanos(request.subject, request.prices) or 0) // step)

    def fits(steps: int) -> bool:
        price = HourlyPrice(steps * step, source="", as_of="", basis="")
        return not request.admission(lambda subject: subject._replace(market="on_demand", price=price)).refusals

    fitting = bisect_left(range(1, high), x=True, key=lambda steps: not fits(steps))
    return Money(fitting * step) if fitting else None


MAX_WARNINGS = 2  # sent about a held machine before its budget stops it


@dataclass(frozen=True, slots=True)
class PlannedStop:
    """What to do (`action`) with a machine because a budget is exceeded, and why; `machine_id` is its id."""

    machine_id: str
    name: str
    budget: str
    action: ReaperAction
    why: str


def budget_stops(
    budget_states: Sequence[BudgetState], machines: Iterable[Machine], warned: Mapping[str, int], now: datetime
) -> list[PlannedStop]:
    """Return what budgets that are exceeded, and stop, do with machines: the newest first, each machine once.

    A machine that cannot be stopped is parked, and terminated where it cannot be parked either. The owner of a held one
    is warned first, and it is stopped only after `MAX_WARNINGS` warnings (`warned` counts them, by id). A machine whose
    launch is uncertain is left alone.
    """
    exceeded = [state for state in budget_states if Action.STOP in state.budget.actions and state.is_exceeded]
    running = [  # also one whose requested stop is not confirmed
        machine
        for machine in machines
        if machine.terminated_at is None
        and not machine.is_named_resource
        and machine.launch_status == "made"
        and may_be_running(machine)
    ]
    stops = []
    for machine in sorted(
        running, key=lambda machine: (machine.launched_at or machine.intended_at, machine.id), reverse=True
    ):
        exceeded_covering = [one for one in exceeded if one.budget.scope.covers(machine)]
        if exceeded_covering:
            stops.append(_stop(machine, exceeded_covering[0], warned.get(machine.id, 0), now))
    return stops


def _stop(machine: Machine, state: BudgetState, warned: int, now: datetime) -> PlannedStop:
    held = machine.hold_until is not None and from_iso(machine.hold_until) > now
    do = ReaperAction.WARN if held and warned < MAX_WARNINGS else gentlest_ending(machine)
    why = f"the budget {state.budget.name} is exceeded: {state.spent.text()} of {state.budget.limit.text()}"
    if do is ReaperAction.WARN:
        why += f"; held until {not_none(machine.hold_until)[:16]}, warning {warned + 1} of {MAX_WARNINGS}"
    if do is ReaperAction.TERMINATE:
        why += f"; {NOTHING_GENTLER}"
    return PlannedStop(machine.id, machine.name, state.budget.name, do, why)


def allowed_stops(
    authorization: Authorization,
    budget_states: Sequence[BudgetState],
    machines: Sequence[Machine],
    warned: Mapping[str, int],
    now: datetime,
) -> list[PlannedStop]:
    """Return what exceeded budgets do with machines, as `budget_stops`.

    For a member, a budget in a file of their home stops their own machines alone.
    """
    if not authorization.is_member:
        return budget_stops(budget_states, machines, warned, now)
    stops = budget_stops([state for state in budget_states if not state.budget.file], machines, warned, now)
    stopped_ids = {stop.machine_id for stop in stops}
    file_stops = budget_stops(
        [state for state in budget_states if state.budget.file],
        [machine for machine in machines if authorization.owns(machine)],
        warned,
        now,
    )
    return stops + [one for one in file_stops if one.machine_id not in stopped_ids]
