"""Groups what the ledger's machines and usages cost, and adds up each group's charges.

Groups are by machine, owner, location, kind, calendar period or job. The totals that each machine has of its ended
usages count too. The caller names which job a machine is for, and when: `AssignmentsByMachine`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum
from itertools import chain

from cloudgpu.core.billing.assignments import NO_JOBS, UNASSIGNED, AssignmentsByMachine, charges_by_key
from cloudgpu.core.billing.charges import (
    NO_NOTE,
    Charge,
    billed_span,
    charge,
    join_marks,
    note_with_charge,
    period_charges,
)
from cloudgpu.core.model.facts import ChargeNote
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import EndedUsage, Resource, Usage
from cloudgpu.core.values.naming import tag_value
from cloudgpu.core.values.times import from_iso, iso, periods

NO_TIME = timedelta(0)
_BILLED_US_INDEX = 4  # in `Machine.usage_totals`


@dataclass(slots=True)
class CostTotals:
    """Sums in exact parts of a nano-dollar (`core.billing.rules.PARTS_PER_NANO`) and microseconds.

    `billed_us` is how long machines were billed, `all_billed_us` how long anything was. `list_cost` is what the runs
    with a known on-demand price would have cost at it, `cost_of_runs_with_list_price` what they did cost;
    `runs_without_list_price` counts the others. `unpriced` names what has no price, `without_price` counts it.
    `reasons` say why low and high differ, each with the difference that it accounts for. `interrupted` and `failed` are
    (low, amount, high, billed microseconds, number) of runs that the provider interrupted and of launches that gave no
    usable machine. `price_marks` are the signs of uncertain prices in the sums, as docs/catalog.md explains them.
    """

    low: int = 0
    amount: int = 0
    high: int = 0
    billed_us: int = 0
    all_billed_us: int = 0
    list_cost: int = 0
    cost_of_runs_with_list_price: int = 0
    runs_without_list_price: int = 0
    without_price: int = 0
    unpriced: dict[str, None] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    interrupted: list[int] = field(default_factory=lambda: [0] * 5)
    failed: list[int] = field(default_factory=lambda: [0] * 5)
    price_marks: str = ""
    _failed_ids: set[str] = field(default_factory=set, repr=False)

    @property
    def is_unpriced(self) -> bool:
        """Whether something was billed and nothing of it has a known price: then the sums are unknown, and not zero."""
        return bool(self.without_price) and not self.high

    def add(self, machine: Machine, charge: Charge, note: ChargeNote, *, already_counted: bool = False) -> None:
        """Add a charge with the note on it; `already_counted`: a part of its usage was added before."""
        sums = (charge.low, charge.amount, charge.high, charge.list_cost or 0, charge.billed_us)
        counts = (bool(charge.unpriced_us) and not already_counted, charge.list_cost is None and not already_counted)
        self._add(machine, charge.usage.resource, (*sums, *map(int, counts)), note)
        self.interrupted[4] -= already_counted and note.interrupted[4]
        if charge.unpriced_us:
            self.unpriced[f"{machine.name} ({charge.usage.resource})"] = None

    def add_ended(self, machine: Machine, resource: str) -> None:
        """Add the totals of a machine's ended usages of one resource."""
        self._add(machine, resource, machine.usage_totals[resource], machine.charge_notes.get(resource, NO_NOTE))

    def _add(self, machine: Machine, resource: str, sums: Sequence[int], note: ChargeNote) -> None:
        low, amount, high, list_cost, billed_us, unpriced, uncompared = sums
        self.low, self.amount, self.high = self.low + low, self.amount + amount, self.high + high
        self.all_billed_us += billed_us
        self.without_price += unpriced
        if note.marks:
            self.price_marks = join_marks(self.price_marks, note.marks)
        if unpriced:
            self.unpriced[f"{machine.name} ({resource})"] = None
        for reason in note.reasons:
            text = f"{machine.name} ({resource}): {reason}"
            self.reasons[text] = self.reasons.get(text, 0) + high - low
        if resource == Resource.INSTANCE:
            self.billed_us += billed_us
            self.list_cost += list_cost
            self.cost_of_runs_with_list_price += note.compared
            self.runs_without_list_price += uncompared
        if note.interrupted[4]:
            self.interrupted = [old + part for old, part in zip(self.interrupted, note.interrupted, strict=True)]
        if is_failed(machine):
            parts = (low, amount, high, billed_us * (resource == Resource.INSTANCE), machine.id not in self._failed_ids)
            self.failed = [old + int(part) for old, part in zip(self.failed, parts, strict=True)]
            self._failed_ids.add(machine.id)


def is_failed(machine: Machine) -> bool:
    """Say whether a launch was refused, created no machine, or created one that never came up and was removed."""
    return bool(machine.launch_failed) or machine.launch_status in ("refused", "void")


class Grouping(StrEnum):
    """What costs are grouped by."""

    INSTANCE = "instance"
    PROJECT = "project"
    OWNER = "owner"
    ACCOUNT = "account"
    PROVIDER = "provider"
    REGION = "region"
    MARKET = "market"
    RESOURCE = "resource"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    JOB = "job"


CALENDAR = (Grouping.DAY, Grouping.WEEK, Grouping.MONTH)
# Groupings whose key never changes for a machine, so that the totals of its ended usages are enough.
_FIXED_GROUPINGS = (
    Grouping.INSTANCE,
    Grouping.PROJECT,
    Grouping.OWNER,
    Grouping.ACCOUNT,
    Grouping.REGION,
    Grouping.RESOURCE,
)


@dataclass(frozen=True, slots=True)
class CostQuery:
    """A grouping of the costs within [`since`, `until`), if given; calendar periods are those of `zone`."""

    by: Grouping
    zone: tzinfo
    since: datetime | None = None
    until: datetime | None = None
    owner: str | None = None  # only this owner's machines; None: everybody's

    @property
    def totals_suffice(self) -> bool:
        """Whether the totals stored with each machine suffice; else every ended usage has to be read."""
        return self.since is None and self.until is None and self.by in _FIXED_GROUPINGS


@dataclass(frozen=True, slots=True)
class Costs:
    """The groups in their order, by key, and their total. The key of a period is the ledger time of its begin."""

    groups: Mapping[str, CostTotals]
    total: CostTotals


def costs(
    machines: Iterable[Machine],
    ended: Iterable[EndedUsage],
    now: datetime,
    query: CostQuery,
    assigned: AssignmentsByMachine = NO_JOBS,
) -> Costs:
    """Return what these machines (`View.billable_machines`) cost as of `now`.

    `ended` are the usages that have ended (`View.ended_usages`, from `query.since` on).
    The groups add up to the total exactly, calendar periods and jobs too: a usage is cut at their bounds. `assigned`
    says which job each machine is for; it counts `Grouping.JOB` alone, and what it does not name is in the group "".
    """
    groups: dict[str, CostTotals] = {}
    total = CostTotals()
    for part in _cost_parts(with_full_names(list(machines), query.by), ended, now, query, assigned):
        group = groups.setdefault(part.key, CostTotals())
        if isinstance(part.charge_or_resource, str):
            group.add_ended(part.machine, part.charge_or_resource)
            total.add_ended(part.machine, part.charge_or_resource)
        else:
            note = note_with_charge(NO_NOTE, part.charge_or_resource)
            group.add(part.machine, part.charge_or_resource, note)
            total.add(part.machine, part.charge_or_resource, note, already_counted=part.already_counted)
    order = sorted(groups) if query.by in CALENDAR else sorted(groups, key=lambda key: (-groups[key].amount, key))
    return Costs({key: groups[key] for key in order}, total)


def with_full_names(machines: list[Machine], by: Grouping) -> list[Machine]:
    """Return the machines with the full owner or project in place of its tag, which is shortened.

    A tag is replaced if exactly one launch name matches it. This concerns named volumes and images, and adopted
    machines.
    """
    if by not in (Grouping.OWNER, Grouping.PROJECT):
        return machines
    full_names: dict[str, list[str]] = {}
    for name in {tag for machine in machines if (tag := _tag_of(machine, by))}:
        full_names.setdefault(tag_value(name), []).append(name)
    candidates = {tag: [name for name in names if name != tag] for tag, names in full_names.items()}
    tagged = (machine for machine in machines if machine.is_named_resource or not machine.template)
    full = {
        machine.id: candidates[_tag_of(machine, by)][0]
        for machine in tagged
        if len(candidates.get(_tag_of(machine, by), ())) == 1
    }
    return [_with_name(machine, by, full[machine.id]) if machine.id in full else machine for machine in machines]


def _tag_of(machine: Machine, by: Grouping) -> str:
    return (machine.owner if by is Grouping.OWNER else machine.project) or ""


def _with_name(machine: Machine, by: Grouping, name: str) -> Machine:
    return machine._replace(owner=name) if by is Grouping.OWNER else machine._replace(project=name)


def of_owner(
    machines: list[Machine], ended: Iterable[EndedUsage], owner: str
) -> tuple[list[Machine], list[EndedUsage]]:
    """Return an owner's machines and ended usages; the name is the full one or that of tags."""
    with_owners = with_full_names(machines, Grouping.OWNER)
    owned = [machine for machine in with_owners if machine.owner and tag_value(machine.owner) == tag_value(owner)]
    ids = {machine.id for machine in owned}
    return owned, [one for one in ended if one[0] in ids]


@dataclass(frozen=True, slots=True)
class _CostPart:
    """A charge, or the resource whose totals are added; `already_counted`: a part of its usage was added before."""

    key: str
    machine: Machine
    charge_or_resource: Charge | str
    already_counted: bool = False


def _cost_parts(
    machines: list[Machine],
    ended: Iterable[EndedUsage],
    now: datetime,
    query: CostQuery,
    assigned: AssignmentsByMachine,
) -> Iterator[_CostPart]:
    if query.by in CALENDAR or query.by is Grouping.JOB:
        yield from _parts_by_period_or_job(machines, ended, now, query, assigned)
        return
    charges = period_charges(machines, ended, now, since=query.since, until=query.until)
    if query.totals_suffice:
        charges = period_charges(machines, (), now)
        yield from (
            _CostPart(_key(query.by, machine, resource), machine, resource)
            for machine in machines
            for resource in machine.usage_totals
        )
    for one in charges:
        use = one.charge.usage
        yield _CostPart(_key(query.by, one.machine, use.resource, use), one.machine, one.charge)


def _key(by: Grouping, machine: Machine, resource: str, usage: Usage | None = None) -> str:
    """Return the group of a charge, or of a machine's totals; empty if the machine has none."""
    if by is Grouping.INSTANCE:
        return str(machine.id)
    if by is Grouping.RESOURCE:
        return str(resource)
    if usage is not None and by in (Grouping.MARKET, Grouping.PROVIDER):
        return str(usage.market if by is Grouping.MARKET else usage.provider)
    return str(getattr(machine, by) or "")


def _parts_by_period_or_job(
    machines: list[Machine],
    ended: Iterable[EndedUsage],
    now: datetime,
    query: CostQuery,
    assigned: AssignmentsByMachine,
) -> Iterator[_CostPart]:
    """Yield each usage split by period or job; a group has one part of a usage at most."""
    by_id = {machine.id: machine for machine in machines}
    ended_usages = ((by_id[machine_id], use) for machine_id, use in ended)
    for machine, usage in chain(ended_usages, ((one, use) for one in machines for use in one.open_usage)):
        already_counted = False
        assignments = assigned.get(machine.id, UNASSIGNED)
        by_job = query.by is Grouping.JOB
        charges = charges_by_key(usage, now, assignments, since=query.since, until=query.until) if by_job else {}
        for key, piece in charges.items() if by_job else _pieces(usage, now, query):
            yield _CostPart(key, machine, piece, already_counted)
            already_counted = True


def _pieces(usage: Usage, now: datetime, query: CostQuery) -> Iterator[tuple[str, Charge]]:
    """Yield what a usage costs in each period in which it is or may be billed; empty pieces are left out."""
    first, last = billed_span(usage, now)
    first, last = _within(query, first, last)
    for period in periods(query.by, first, last, query.zone) if first <= last else ():
        begin, end = _within(query, period.begin, period.end)
        piece = charge(usage, now, since=begin, until=end)
        if piece.billed_us or piece.high or piece.unpriced_us:
            yield iso(period.begin), piece


def _within(query: CostQuery, begin: datetime, end: datetime) -> tuple[datetime, datetime]:
    """Return the part of an interval that is within the query's period."""
    return max(filter(None, (begin, query.since))), min(filter(None, (end, query.until)))


def billed_within(
    machines: Sequence[Machine], ended: Iterable[EndedUsage], query: CostQuery, now: datetime
) -> dict[str, timedelta]:
    """Return how long each machine was billed within the period, by its id."""
    billed = {machine.id: NO_TIME for machine in machines}
    if query.totals_suffice:
        for machine in machines:
            sums = machine.usage_totals.get(Resource.INSTANCE)
            billed[machine.id] += timedelta(microseconds=sums[_BILLED_US_INDEX] if sums else 0)
    for machine_id, use in (
        *(one for one in ended if one[0] in billed),
        *((machine.id, use) for machine in machines for use in machine.open_usage),
    ):
        if use.resource == Resource.INSTANCE:
            begin, end = _within(query, from_iso(use.begin), now if use.end is None else from_iso(use.end))
            billed[machine_id] += max(NO_TIME, end - begin)
    return billed


def time_owned_within(machines: Sequence[Machine], query: CostQuery, now: datetime) -> timedelta:
    """Return how long a desktop would have been owned: since the period's begin or the first launch."""
    first = min((from_iso(machine.first_at) for machine in machines if machine.provider_id), default=now)
    begin, end = _within(query, first, now)
    return max(NO_TIME, end - begin)
