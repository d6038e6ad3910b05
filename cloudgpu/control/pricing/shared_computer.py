"""Writes what machines on one computer drew of its electricity, once that is known: each its part of the whole.

Until then each costs the most that it can. What a part of a run cost is written once, when its samples are here, and
never again; what comes behind it costs the most again. So budgets never count less than can be spent, and what was
spent is as it was measured. A process that dies before it has written leaves all of it to the next sync.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from cloudgpu.control.pricing.price_history import available
from cloudgpu.control.session.identity import AccountScope
from cloudgpu.control.session.session import Session
from cloudgpu.core.activity.computer_share import Presence, Run, draws_of, share_of
from cloudgpu.core.billing.discounts import agreed_price
from cloudgpu.core.events.log import OWN_CLOCK, Draft
from cloudgpu.core.events.observations import price_observed
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import Basis, Price
from cloudgpu.core.model.usage import Resource
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger.log.base import View
from cloudgpu.ledger.samples.readings import can_be_read
from cloudgpu.ledger.samples.store import SampleStore
from cloudgpu.providers.abilities import SharesComputer
from cloudgpu.providers.attached_costs import discounted_prices

FIRST_PART = timedelta(
    minutes=5
)  # of a run, before its first part is written; each part is then as long as all before it
LONGEST_PART = timedelta(hours=1)  # up to this: two lines an hour at most
WAIT_FOR_SAMPLES = timedelta(days=1)  # for samples: an agent keeps a day of them
LOOK_BACK = timedelta(days=7)  # what ended before is left as it is
MIN_CHANGE = Fraction(1, 10)  # of the price in force: what is off by no more is no line of a machine that runs on


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a machine's run that is to be written; `is_last`: the run has ended with it."""

    machine: Machine
    begin: datetime
    end: datetime
    is_last: bool


def record_shared_costs(session: Session, provider: SharesComputer, scope: AccountScope) -> None:
    """Write what this account's machines cost since that was last written, where they share a computer."""
    machines = scope.own(machine for machine in session.ledger.machines() if not machine.is_named_resource)
    now = session.clock()
    unsettled = [machine for machine in machines if _may_have_unrecorded_cost(machine, now)]
    if unsettled:
        lines = _lines(session, provider, scope.account, machines, unsettled, now)
        before = {machine.id: machine.price for machine in unsettled}

        def decision(view: View) -> Sequence[Draft]:
            """Leave out a machine that another process has written about since its price was read."""
            current = {subject: view.machine(subject) for subject in {line.subject for line in lines}}
            same = {subject for subject, found in current.items() if found and found.price == before[subject]}
            return [line for line in lines if line.subject in same]

        if lines:
            session.ledger.decide(decision)


def may_cost_less(session: Session, machine: Machine) -> bool:
    """Say whether what a machine has cost may become less: its part of its computer's electricity is written later."""
    try:
        if not isinstance(session.provider_of(machine), SharesComputer):
            return False
    except CloudgpuError:  # not to be asked from here: what is known counts
        return False
    if machine.price is None or not _may_have_unrecorded_cost(machine, session.clock()):
        return False
    begin = machine.launched_at or machine.intended_at
    neighbours = (one for one in session.ledger.machines() if one.account == machine.account and one.id != machine.id)
    return machine.price.basis == Basis.ASSUMED or any(
        one.provider_id and (one.terminated_at is None or one.terminated_at > begin) for one in neighbours
    )


def _may_have_unrecorded_cost(machine: Machine, now: datetime) -> bool:
    """Say whether some of what a machine has cost may not be written yet."""
    if machine.price is None:
        return False
    if _open_run_begin(machine):
        return True
    ended = machine.terminated_at or machine.since
    return ended is not None and ended > machine.price.as_of and from_iso(ended) > now - LOOK_BACK


def _open_run_begin(machine: Machine) -> str | None:
    """Return since when a machine runs; None where it does not."""
    return next((use.begin for use in machine.open_usage if use.resource == Resource.INSTANCE), None)


def _lines(
    session: Session,
    provider: SharesComputer,
    account: str,
    machines: Sequence[Machine],
    unsettled: Sequence[Machine],
    now: datetime,
) -> list[Draft]:
    items = [replace(available(machine), account=account) for machine in unsettled]
    priced_until = {machine.id: (machine.price and machine.price.as_of) or "" for machine in unsettled}
    runs = _runs(session, machines, min(priced_until.values()))
    until = _samples_complete_until(session, machines, now)
    parts = [_parts(machine, runs[machine.id], until, now) for machine in unsettled]
    if not any(parts):
        return []
    computer = _presences(session, machines, runs, min(part.begin for each in parts for part in each), now)
    prices = discounted_prices(session.provider(account), items, session.settings.discounts, now)
    drafts: list[Draft] = []
    for item, most, each in zip(items, prices, parts, strict=True):
        for part in each:
            share = share_of(part.machine.id, computer, part.begin.timestamp(), part.end.timestamp())
            cost = agreed_price(session.settings.discounts, item, provider.shared_price(item, share), now)
            if cost is not None and most is not None and _is_to_record(part, cost, most, alone=share.machines == 1):
                drafts += _events(part, cost, most)
    return drafts


def _runs(session: Session, machines: Sequence[Machine], since: str) -> dict[str, list[tuple[str, str | None]]]:
    """Return when each machine ran, oldest first, as far as that ended after `since`; the end of what still runs: None.

    What may have run after its proved end is left out: it costs what it did.
    """
    runs: dict[str, list[tuple[str, str | None]]] = {machine.id: [] for machine in machines}
    for subject, use in session.ledger.ended_usages(since):
        if subject in runs and use.resource == Resource.INSTANCE:
            runs[subject].append((use.begin, use.end))
    for machine in machines:
        runs[machine.id] += [(use.begin, None) for use in machine.open_usage if use.resource == Resource.INSTANCE]
    return {machine: sorted(each, key=lambda run: run[0]) for machine, each in runs.items()}


def _samples_complete_until(session: Session, machines: Sequence[Machine], now: datetime) -> datetime:
    """Return up to when the samples of all that run are here; none is waited for longer than a day."""
    complete_until = now
    for machine in machines:
        run_begin = _open_run_begin(machine)
        if run_begin is not None and machine.accelerators:
            last = SampleStore(session.home.samples, machine.id).last()
            complete_until = min(complete_until, max(datetime.fromtimestamp(last, UTC), from_iso(run_begin)))
    return max(complete_until, now - WAIT_FOR_SAMPLES)


def _parts(machine: Machine, runs: Sequence[tuple[str, str | None]], until: datetime, now: datetime) -> list[_Part]:
    """Return the parts of a machine's runs of which it is time to write what they cost."""
    parts = []
    for first, last in runs:
        begin = from_iso(max(first, machine.price.as_of if machine.price else first))
        is_last = last is not None and from_iso(last) <= until
        end = from_iso(last) if last is not None and is_last else min(until, now)
        if begin < end and (is_last or _is_due(from_iso(first), begin, end)):
            parts.append(_Part(machine, begin, end, is_last))
    return parts


def _is_due(first: datetime, begin: datetime, end: datetime) -> bool:
    return end - begin >= min(LONGEST_PART, max(FIRST_PART, (end - first) / 2))


def _presences(
    session: Session,
    machines: Sequence[Machine],
    runs: Mapping[str, Sequence[tuple[str, str | None]]],
    since: datetime,
    now: datetime,
) -> dict[str, Presence]:
    """Return all machines that ran on the computer since then, with their samples."""
    begin, end, found = since.timestamp(), now.timestamp(), {}
    for machine in machines:
        times = list(_times(runs[machine.id], end))
        if times and max(last for _, last in times) > begin:
            gpus = bool(machine.accelerators)
            samples = SampleStore(session.home.samples, machine.id).read(begin, end) if gpus else ()
            found[machine.id] = Presence(times, draws_of(sample for sample in samples if can_be_read(sample)), gpus)
    return found


def _times(runs: Sequence[tuple[str, str | None]], now: float) -> Iterator[Run]:
    for first, last in runs:
        yield from_iso(first).timestamp(), now if last is None else from_iso(last).timestamp()


def _is_to_record(part: _Part, cost: Price, max_price: Price, *, alone: bool) -> bool:
    """Say whether what a part cost is to be written: the last of a run, a long one, and else what is off by a tenth."""
    nanos = part.machine.price.nanos_per_hour if part.machine.price else 0
    if part.is_last:
        return bool(part.machine.accelerators) or not alone or cost.per_hour.nanos != nanos
    if part.machine.accelerators and part.end - part.begin >= WAIT_FOR_SAMPLES:
        return True  # else every sync would sum up a longer part again
    return abs(cost.per_hour.nanos - nanos) > nanos * MIN_CHANGE or max_price.per_hour.nanos != nanos


def _events(part: _Part, cost: Price, max_price: Price) -> list[Draft]:
    """Return the line of what a part cost, and that what comes behind it costs the most again."""
    lines = [price_observed(part.machine.id, replace(cost, as_of=part.end), part.begin, clock=OWN_CLOCK)]
    if not part.is_last:
        lines.append(price_observed(part.machine.id, replace(max_price, as_of=part.end), part.end, clock=OWN_CLOCK))
    return lines
