"""Records the share of a computer's electricity that each machine on it drew, once that is known.

Until then each machine costs the most that it can (`max_price`). The cost of an interval of a run is recorded once,
when its samples are here; what comes after it costs the maximum again. So budgets never count less than can be spent,
and what was spent is as it was measured. What a killed process has not recorded is left to the next sync.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from cloudgpu.control.pricing.price_history import configuration_of
from cloudgpu.control.session.identity import AccountScope
from cloudgpu.control.session.session import Session
from cloudgpu.core.activity.agent_status import parse_agent_status
from cloudgpu.core.activity.computer_share import Presence, Run, draws_of, share_of
from cloudgpu.core.billing.discounts import effective_price
from cloudgpu.core.events.log import OWN_CLOCK, Draft
from cloudgpu.core.events.observations import price_observed
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.offers import Basis, Price
from cloudgpu.core.model.usage import Resource
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger.log.base import View
from cloudgpu.ledger.samples.readings import is_valid
from cloudgpu.ledger.samples.store import DAY_S, MINUTE_S, SampleStore
from cloudgpu.providers.abilities import SharesComputer
from cloudgpu.providers.attached_costs import discounted_prices

MIN_INTERVAL = timedelta(minutes=5)  # of a run, before its first cost; each interval is as long as all before it
MAX_INTERVAL = timedelta(hours=1)  # at most two events an hour
WAIT_FOR_SAMPLES = timedelta(days=1)  # for samples: an agent keeps a day of them
CORRECTION_WINDOW = timedelta(days=7)  # what ended before is left as it is
MIN_CHANGE = Fraction(1, 10)  # of the price in force: a smaller change of a running machine is not recorded


@dataclass(frozen=True, slots=True)
class _CostInterval:
    """An interval of a machine's run whose cost is to be recorded; `is_last`: the run ended with it."""

    machine: Machine
    begin: datetime
    end: datetime
    is_last: bool


def record_shared_costs(session: Session, provider: SharesComputer, scope: AccountScope) -> None:
    """Record what this account's machines cost since the last time, where they share a computer."""
    machines = scope.select(machine for machine in session.ledger.machines() if not machine.is_named_resource)
    now = session.clock()
    unrecorded = [machine for machine in machines if _may_have_unrecorded_cost(machine, now)]
    if unrecorded:
        for machine in unrecorded:
            if _needs_samples(session, machine, now):
                _store_samples(session, provider, machine)
        drafts = _cost_events(session, provider, scope.account, machines, unrecorded, now)
        priced_before = {machine.id: machine.price for machine in unrecorded}

        def build_events(view: View) -> Sequence[Draft]:
            """Leave out a machine that another process has written about since its price was read."""
            current = {subject: view.machine(subject) for subject in {draft.subject for draft in drafts}}
            unchanged = {
                subject for subject, latest in current.items() if latest and latest.price == priced_before[subject]
            }
            return [draft for draft in drafts if draft.subject in unchanged]

        if drafts:
            session.ledger.decide(build_events)


def store_samples_before_end(session: Session, machine: Machine) -> None:
    """Store the last samples of a machine whose files go with it, as they tell what it cost. Raises nothing."""
    with suppress(CloudgpuError):
        provider = session.provider_of(machine)
        if machine.accelerators and isinstance(provider, SharesComputer):
            _store_samples(session, provider, machine)


def _needs_samples(session: Session, machine: Machine, now: datetime) -> bool:
    """Say whether an interval of a run waits for samples that its agent has: at its end, or after MIN_INTERVAL.

    A machine that ended by itself, by an interruption, still has its files, too.
    """
    if not machine.accelerators or machine.provider_id is None:
        return False
    run_begin = _open_run_begin(machine)
    if run_begin is None or (machine.price is not None and machine.price.as_of < run_begin):
        return True  # a run has ended whose cost is not recorded yet
    last_sample = SampleStore(session.home.samples, machine.id).last()
    return now.timestamp() - max(last_sample, from_iso(run_begin).timestamp()) >= MIN_INTERVAL.total_seconds()


def _store_samples(session: Session, provider: SharesComputer, machine: Machine) -> None:
    """Fetch a machine's samples that are complete and not stored yet, and store them. Raises nothing."""
    store, now = SampleStore(session.home.samples, machine.id), session.clock()
    with suppress(CloudgpuError, OSError):  # what cannot be read is waited for, and assumed in the end
        since = max(0.0, store.last() - DAY_S)  # a day earlier: the machine's clock may be behind this session's
        status = parse_agent_status(provider.agent_status(not_none(machine.provider_id), since))
        if status.now is not None:
            # Finished ones, which the agent does not change any more: `keep` leaves out those of the last minute.
            complete = [sample for sample in status.samples if sample["s"] >= MINUTE_S]
            store.keep(complete, status.now + MINUTE_S, now + timedelta(seconds=MINUTE_S))


def may_cost_less(session: Session, machine: Machine) -> bool:
    """Say whether the cost of a machine may still decrease, since its share of the electricity is recorded later."""
    try:
        if not isinstance(session.provider_of(machine), SharesComputer):
            return False
    except CloudgpuError:  # its provider cannot be asked from here: the recorded cost counts
        return False
    if machine.price is None or not _may_have_unrecorded_cost(machine, session.clock()):
        return False
    begin = machine.launched_at or machine.intended_at
    neighbours = (
        other for other in session.ledger.machines() if other.account == machine.account and other.id != machine.id
    )
    return machine.price.basis == Basis.ASSUMED or any(
        other.provider_id and (other.terminated_at is None or other.terminated_at > begin) for other in neighbours
    )


def _may_have_unrecorded_cost(machine: Machine, now: datetime) -> bool:
    """Say whether some of what a machine has cost may not be recorded yet."""
    if machine.price is None:
        return False
    if _open_run_begin(machine):
        return True
    ended = machine.terminated_at or machine.since
    return ended is not None and ended > machine.price.as_of and from_iso(ended) > now - CORRECTION_WINDOW


def _open_run_begin(machine: Machine) -> str | None:
    """Return since when a machine runs; None where it does not."""
    return next((usage.begin for usage in machine.open_usage if usage.resource == Resource.INSTANCE), None)


def _cost_events(
    session: Session,
    provider: SharesComputer,
    account: str,
    machines: Sequence[Machine],
    unrecorded: Sequence[Machine],
    now: datetime,
) -> list[Draft]:
    """Return the price events of all intervals of these machines' runs whose samples are complete."""
    configurations = [replace(configuration_of(machine), account=account) for machine in unrecorded]
    priced_until = {machine.id: (machine.price and machine.price.as_of) or "" for machine in unrecorded}
    runs = _runs(session, machines, min(priced_until.values()))
    complete_until = _samples_complete_until(session, machines, now)
    intervals_by_machine = [_cost_intervals(machine, runs[machine.id], complete_until, now) for machine in unrecorded]
    if not any(intervals_by_machine):
        return []
    presences = _presences(
        session,
        machines,
        runs,
        min(interval.begin for intervals in intervals_by_machine for interval in intervals),
        now,
    )
    max_prices = discounted_prices(session.provider(account), configurations, session.settings.discounts, now)
    drafts: list[Draft] = []
    for configuration, max_price, intervals in zip(configurations, max_prices, intervals_by_machine, strict=True):
        for interval in intervals:
            share = share_of(interval.machine.id, presences, interval.begin.timestamp(), interval.end.timestamp())
            cost = effective_price(
                session.settings.discounts, configuration, provider.shared_price(configuration, share), now
            )
            if (
                cost is not None
                and max_price is not None
                and _should_record(interval, cost, max_price, is_alone=share.machines == 1)
            ):
                drafts += _interval_events(interval, cost, max_price)
    return drafts


def _runs(session: Session, machines: Sequence[Machine], since: str) -> dict[str, list[tuple[str, str | None]]]:
    """Return when each machine ran, oldest first, if it ended after `since`; the end is None while it runs."""
    runs: dict[str, list[tuple[str, str | None]]] = {machine.id: [] for machine in machines}
    for machine_id, usage in session.ledger.ended_usages(since):
        if machine_id in runs and usage.resource == Resource.INSTANCE:
            runs[machine_id].append((usage.begin, usage.end))
    for machine in machines:
        runs[machine.id] += [(usage.begin, None) for usage in machine.open_usage if usage.resource == Resource.INSTANCE]
    return {machine: sorted(machine_runs, key=lambda run: run[0]) for machine, machine_runs in runs.items()}


def _samples_complete_until(session: Session, machines: Sequence[Machine], now: datetime) -> datetime:
    """Return up to when the samples of all running machines are here; it waits for none longer than a day."""
    complete_until = now
    for machine in machines:
        run_begin = _open_run_begin(machine)
        if run_begin is not None and machine.accelerators:
            last_sample = SampleStore(session.home.samples, machine.id).last()
            complete_until = min(complete_until, max(datetime.fromtimestamp(last_sample, UTC), from_iso(run_begin)))
    return max(complete_until, now - WAIT_FOR_SAMPLES)


def _cost_intervals(
    machine: Machine, runs: Sequence[tuple[str, str | None]], complete_until: datetime, now: datetime
) -> list[_CostInterval]:
    """Return the intervals of a machine's runs whose cost is due to be recorded."""
    intervals = []
    for began_at, ended_at in runs:
        begin = from_iso(max(began_at, machine.price.as_of if machine.price else began_at))
        is_last = ended_at is not None and from_iso(ended_at) <= complete_until
        end = from_iso(ended_at) if ended_at is not None and is_last else min(complete_until, now)
        min_length = min(MAX_INTERVAL, max(MIN_INTERVAL, (end - from_iso(began_at)) / 2))
        if begin < end and (is_last or end - begin >= min_length):
            intervals.append(_CostInterval(machine, begin, end, is_last))
    return intervals


def _presences(
    session: Session,
    machines: Sequence[Machine],
    runs: Mapping[str, Sequence[tuple[str, str | None]]],
    since: datetime,
    now: datetime,
) -> dict[str, Presence]:
    """Return all machines that ran on the computer since then, with their samples."""
    begin, now_s, presences = since.timestamp(), now.timestamp(), {}
    for machine in machines:
        run_times: list[Run] = [
            (from_iso(began_at).timestamp(), now_s if ended_at is None else from_iso(ended_at).timestamp())
            for began_at, ended_at in runs[machine.id]
        ]
        if run_times and max(ended_at for _, ended_at in run_times) > begin:
            has_gpus = bool(machine.accelerators)
            samples = SampleStore(session.home.samples, machine.id).read(begin, now_s) if has_gpus else ()
            presences[machine.id] = Presence(
                run_times, draws_of(sample for sample in samples if is_valid(sample)), has_gpus
            )
    return presences


def _should_record(interval: _CostInterval, cost: Price, max_price: Price, *, is_alone: bool) -> bool:
    """Say whether to record a cost: that of a run's last interval, of a long one, else what differs by a tenth."""
    nanos = interval.machine.price.nanos_per_hour if interval.machine.price else 0
    if interval.is_last:
        return bool(interval.machine.accelerators) or not is_alone or cost.per_hour.nanos != nanos
    if interval.machine.accelerators and interval.end - interval.begin >= WAIT_FOR_SAMPLES:
        return True  # else every sync would sum up a longer interval again
    return abs(cost.per_hour.nanos - nanos) > nanos * MIN_CHANGE or max_price.per_hour.nanos != nanos


def _interval_events(interval: _CostInterval, cost: Price, max_price: Price) -> list[Draft]:
    """Return the price event of an interval, and the one by which what comes after it costs the maximum again."""
    prices = [(cost, interval.begin)] if interval.is_last else [(cost, interval.begin), (max_price, interval.end)]
    return [
        price_observed(interval.machine.id, replace(price, as_of=interval.end), since, clock=OWN_CLOCK)
        for price, since in prices
    ]
