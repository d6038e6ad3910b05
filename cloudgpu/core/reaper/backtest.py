"""What a policy would have saved: the recorded usages of machines, billed as they were and as they would have been.

The time in which the machine would have been off is cut out of a usage, and each part is billed by its provider's rule,
with the minimum charge of a start; the saving is the difference. It ends where somebody used the machine again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter

from cloudgpu.core.billing.charges import Charge, charge
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.usage import Resource, Usage
from cloudgpu.core.policies.policy import Policy
from cloudgpu.core.reaper.replay import RecordedHistory, ReplayedEnd, Run, replay, seconds_covered
from cloudgpu.core.values.times import MICRO, from_iso, iso


@dataclass(frozen=True, slots=True)
class Amount:
    """Money in exact parts of a nano-dollar (`core.billing.rules.PARTS_PER_NANO`): `amount`, or `low` to `high`.

    `unpriced`: a part of it has no known price and is in no sum.
    """

    low: int = 0
    amount: int = 0
    high: int = 0
    unpriced: bool = False

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.low + other.low,
            self.amount + other.amount,
            self.high + other.high,
            self.unpriced or other.unpriced,
        )

    def __sub__(self, other: Amount) -> Amount:
        amount = self.amount - other.amount
        ends = (self.low - other.low, amount, self.high - other.high)  # the uncertain part is the same in both
        return Amount(min(ends), amount, max(ends), self.unpriced or other.unpriced)


@dataclass(frozen=True, slots=True)
class MachineHistory:
    """One machine, or a cluster as one: its current record, its past, and the usages billed while it runs.

    `ends` are the actual ends of its runs within the period, each with the reason that the ledger has.
    """

    machine: Machine
    recorded: RecordedHistory
    usages: tuple[Usage, ...]
    ends: tuple[tuple[datetime, str], ...] = ()


@dataclass(frozen=True, slots=True)
class EndEffect:
    """An end that the policy would have made, what it `saved`, and the minimum charge of the next start.

    `unsampled_s` is for how many of the seconds saved there are no samples, so that use is not known.
    """

    end: ReplayedEnd
    saved: Amount
    start_charge: Amount
    unsampled_s: float


@dataclass(frozen=True, slots=True)
class BacktestResult:
    """What the policy would have done with one machine. `unsampled_s` of its `seconds` have no samples."""

    history: MachineHistory
    seconds: float
    unsampled_s: float
    cost: Amount
    effects: tuple[EndEffect, ...]

    @property
    def saved(self) -> Amount:
        """What all the ends together would have saved."""
        return add_results(effect.saved for effect in self.effects)


def backtest(
    history: MachineHistory, policy: Policy, since: datetime, until: datetime, *, interval: timedelta
) -> BacktestResult:
    """Return what a policy would have done with one machine from `since` to `until`, runs coming every `interval`."""
    ends = replay(history.recorded, policy, since, interval=interval)
    runs = history.recorded.runs
    unsampled_s = sum(_unsampled_s(history.recorded, run.begin, run.end) for run in runs)
    cost, effects = _bill(history.usages, (), since, until), []
    remaining = cost
    for number, end in enumerate(ends, 1):
        without_ends = _bill(history.usages, [(earlier.at, earlier.until) for earlier in ends[:number]], since, until)
        start = _minimum_charge(history.usages, end.until, until) if end.work is not None else Amount()
        effects.append(
            EndEffect(end, remaining - without_ends, start, _unsampled_s(history.recorded, end.at, end.until))
        )
        remaining = without_ends
    return BacktestResult(
        history, sum((run.end - run.begin).total_seconds() for run in runs), unsampled_s, cost, tuple(effects)
    )


def add_results(amounts: Iterable[Amount]) -> Amount:
    """Return the sum."""
    return sum(amounts, Amount())


def runs_of(uses: Iterable[Usage], since: datetime, until: datetime) -> tuple[Run, ...]:
    """Return when a machine ran within a period, oldest first."""
    spans = sorted((from_iso(use.begin), _end(use, until)) for use in uses if use.resource is Resource.INSTANCE)
    inside = ((begin, end) for begin, end in spans if begin < until and end > since)
    return tuple(Run(max(begin, since), min(end, until), begin) for begin, end in inside)


def joined_runs(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return when any of several machines ran: their runs, with those that meet as one."""
    merged: list[Run] = []
    for run in sorted(runs, key=attrgetter("begin")):
        if merged and run.begin <= merged[-1].end:
            merged[-1] = replace(merged[-1], end=max(merged[-1].end, run.end))
        else:
            merged.append(run)
    return tuple(merged)


def only_while_it_runs(machine: Machine, usage: Usage) -> bool:
    """Say whether a use of this machine is billed only while that runs: the machine, a public address."""
    billed_while_running = {entry.what for entry in machine.attached_costs or () if not entry.kept}
    return usage.resource == Resource.INSTANCE or (
        usage.resource != Resource.DISK and usage.what in billed_while_running
    )


def cut_usage(usage: Usage, gaps: Sequence[tuple[datetime, datetime]], until: datetime) -> list[Usage]:
    """Return the parts of a usage outside these gaps, in order; `gaps` are in order and do not touch."""
    begin, end, parts = from_iso(usage.begin), _end(usage, until), []
    inside = [(max(gap[0], begin), min(gap[1], end)) for gap in gaps if gap[0] < end and gap[1] > begin]
    for gap_begin, gap_end in inside:
        if begin < gap_begin:
            parts.append(_part(usage, begin, gap_begin))
        begin = gap_end
    if begin < end or not inside:
        parts.append(
            usage._replace(begin=iso(begin), first=usage.first and not inside, sure_from=_sure_from(usage, begin))
        )
    return parts


def _part(usage: Usage, begin: datetime, end: datetime) -> Usage:
    first = usage.first and iso(begin) == usage.begin
    sure_from = _sure_from(usage, begin)
    return usage._replace(
        begin=iso(begin), end=iso(end), first=first, reason=None, maybe_until=None, sure_from=sure_from
    )


def _sure_from(usage: Usage, begin: datetime) -> str | None:
    return usage.sure_from if usage.sure_from is not None and usage.sure_from > iso(begin) else None


def _end(usage: Usage, until: datetime) -> datetime:
    return until if usage.end is None else from_iso(usage.end)


def _bill(uses: Sequence[Usage], gaps: Sequence[tuple[datetime, datetime]], since: datetime, until: datetime) -> Amount:
    parts = (part for use in uses for part in cut_usage(use, gaps, until))
    return add_results(_amount(charge(part, until, since=since, until=until)) for part in parts)


def _minimum_charge(uses: Sequence[Usage], at: datetime, until: datetime) -> Amount:
    """Return what starting the machine at `at` is billed at least, by its provider's rule."""
    running = [use for use in uses if from_iso(use.begin) <= at <= _end(use, until)]
    return add_results(_amount(charge(_part(use, at, at + MICRO), until)) for use in running)


def _amount(charge: Charge) -> Amount:
    return Amount(charge.low, charge.amount, charge.high, bool(charge.unpriced_us))


def _unsampled_s(recorded: RecordedHistory, begin: datetime, end: datetime) -> float:
    """Return for how many seconds there are no samples; of a cluster for the node that told least."""
    known = min(seconds_covered(node.samples, begin.timestamp(), end.timestamp()) for node in recorded.nodes)
    return max(0.0, (end - begin).total_seconds() - known)


def off_seconds(results: Iterable[BacktestResult]) -> float:
    """Return for how long the machines would have been off while they ran in truth."""
    return sum((effect.end.until - effect.end.at).total_seconds() for result in results for effect in result.effects)
