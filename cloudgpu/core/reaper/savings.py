"""Says what the ends that rules made have saved at most, and what machines cost while nobody used them. Pure.

What ran would have gone on costing until somebody ended it. An end that a person asked for saves nothing here. What
counts is an end by a rule: one that a run decided, and asked for right after; or one that the machine's own agent
made, where its provider's word, its lease or a rule's warning says so. What nobody asked for and nothing explains is
left out.

Idle cost is the idle part of each billed hour, at what that hour cost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain

from cloudgpu.core.activity.utilization import Hour
from cloudgpu.core.billing.charges import CostTimeline
from cloudgpu.core.billing.daily import CostRange
from cloudgpu.core.billing.rules import FAR_FUTURE_US, PARTS_PER_NANO, SECOND_US, RateInterval, intervals_cost, to_us
from cloudgpu.core.events.log import EventSummary
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.usage import Usage
from cloudgpu.core.policies.policy import Rule
from cloudgpu.core.reaper.decisions import ENDINGS
from cloudgpu.core.values.money import HOUR_MICROS
from cloudgpu.core.values.naming import lock_name
from cloudgpu.core.values.times import from_iso, iso

SAVING_RULES = frozenset({Rule.BUDGET, Rule.SCHEDULE, Rule.LEASE, Rule.IDLE, Rule.UNLABELLED})
KINDS = (  # the kinds of line that `policy_stops` reads
    "stop_requested", "park_requested", "terminate_requested", "decision_made", "warning_sent",
    "launch_intended", "machine_adopted", "lease_set",
)  # fmt: skip
RULE = (  # how savings are counted, for people
    "For every stop by a policy (idle, schedule, lease, budget): the machine's price at that time, until the first of "
    "these: it was started, launched again or terminated, its renew-until, or now. It is an upper bound: somebody "
    "might have stopped it before. A stop that a person requested does not count."
)
# Kinds of line: requests for an end; decisions and requests; what sets a lease.
_ASKED = ("stop_requested", "park_requested", "terminate_requested")
_DECIDED = ("decision_made", *_ASKED)
_LEASED = ("launch_intended", "machine_adopted", "lease_set")
_ENDS = frozenset(map(str, ENDINGS))
# The reasons of a usage that ended without a request of ours to the provider; the second is Azure's.
_SHUT_DOWN = ("shut down from inside", "shut down, not deallocated")
_CLOCK_SKEW = timedelta(minutes=5)  # between an end by the provider's clock, and the line that asked for it by ours
_MAX_DELAY = timedelta(minutes=30)  # between a decision, or a line that asks, and what comes of it
_MAX_DEVIATION = timedelta(minutes=15)  # between the end that a rule had announced, and the one that came
_UNUSED_BEFORE_END = timedelta(minutes=15)  # a person who shuts a machine down has used it just before


@dataclass(frozen=True, slots=True)
class Stop:
    """An end by a rule, and until when the machine would have run on at most.

    `exact_avoided_cost` is what that would have cost, in exact parts (`core.billing.rules.PARTS_PER_NANO`); None where
    its price is not known.
    """

    machine: str
    name: str
    rule: str
    at: datetime
    until: datetime
    exact_avoided_cost: int | None

    @property
    def saved_time(self) -> timedelta:
        """How much longer it would have run at most."""
        return self.until - self.at


def policy_stops(
    all_machines: Iterable[Machine],
    ended_usages: Iterable[tuple[str, Usage]],
    lines: Iterable[EventSummary],
    now: datetime,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Stop]:
    """Return every end by a rule within [`since`, `until`), by time, as far as it has saved any time until then.

    `ended_usages` are those that have ended, `lines` those of the `KINDS`, by seq; all of `all_machines`.
    """
    runs: dict[str, list[Usage]] = {}
    for subject, usage in ended_usages:
        if usage.resource == "instance" and usage.end is not None:
            runs.setdefault(subject, []).append(usage)
    events: dict[str, list[EventSummary]] = {}
    for line in lines:
        if line.subject in runs:
            events.setdefault(line.subject, []).append(line)
    end_of_period, machines = iso(now if until is None else min(now, until)), list(all_machines)
    launched = _launched(machines, runs)
    stops = (
        stop
        for machine in machines
        if machine.id in runs
        for stop in _stops(
            machine, runs[machine.id], events.get(machine.id, ()), launched.get(_request(machine), ()), end_of_period
        )
    )
    return sorted(
        (stop for stop in stops if since is None or stop.at >= since), key=lambda stop: (stop.at, stop.machine)
    )


def _launched(machines: Iterable[Machine], runs: Mapping[str, Sequence[Usage]]) -> dict[str, list[str]]:
    """Return when machines began to run, by the request that they were launched for, in order."""
    begins_by_request: dict[str, list[str]] = {}
    for machine in machines:
        begins = (use.begin for use in (*runs.get(machine.id, ()), *machine.open_usage) if use.resource == "instance")
        begins_by_request.setdefault(_request(machine), []).extend(begins)
    return {request: sorted(begins) for request, begins in begins_by_request.items()}


def _request(machine: Machine) -> str:
    """Return a key that all machines launched for one request share, one after the other."""
    return lock_name(machine.key) if machine.key else machine.id


def _stops(
    machine: Machine, runs: Sequence[Usage], lines: Sequence[EventSummary], launched: Sequence[str], end_of_period: str
) -> Iterator[Stop]:
    """Yield the ends by rules of one machine; `launched` is when it, and others for the same request, began to run."""
    begins = sorted(use.begin for use in (*runs, *machine.open_usage) if use.resource == "instance")
    history = _History(sorted(lines, key=lambda line: (line.occurred_at, line.seq)))
    for use in runs:
        rule = history.rule_of(machine, use, is_last=use.begin == begins[-1])
        if rule not in SAVING_RULES:
            continue
        ended = not_none(use.end)
        following = bisect_right(launched, ended)
        bounds = (*launched[following : following + 1], history.lease_at(ended)[1], history.removed(machine, ended))
        until = min(filter(None, (end_of_period, *bounds)))
        if until > ended:
            end, would_have_ended = _time(ended), _time(until)
            cost = _cost(use, would_have_ended - end)
            if cost != 0:  # an end of what is free saves no money
                yield Stop(machine.id, machine.name, str(rule), end, would_have_ended, cost)


def _cost(usage: Usage, span: timedelta) -> int | None:
    """Return what the machine alone would have cost for so much longer, at its last price."""
    if not usage.segments:
        return None
    micros = (span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds
    return int(usage.quantity) * int(usage.segments[-1].nanos) * micros * (PARTS_PER_NANO // HOUR_MICROS)


class _History:
    """The ledger entries ("lines") of one machine in the order of time, queried for one end at a time.

    Ledger times are compared as they stand: their text sorts by time.
    """

    def __init__(self, lines: Sequence[EventSummary]) -> None:
        self._lines = lines
        self._times = [line.occurred_at for line in lines]

    def rule_of(self, machine: Machine, usage: Usage, *, is_last: bool) -> str | None:
        """Return the rule that ended a run; None where a person asked for it, or nothing says why."""
        ended = not_none(usage.end)
        end = _time(ended)
        asked_index = self._asked(usage.begin, ended, end)
        if asked_index is not None and end - _time(self._times[asked_index]) <= _MAX_DELAY:
            return self._decided(asked_index, usage.begin)
        reason = str(usage.reason or "")
        if reason in SAVING_RULES:
            return reason  # reported by the agent
        if reason not in _SHUT_DOWN:
            return None
        return self._announced(end) or self._by_lease(end) or (_by_idle_time(machine, end) if is_last else None)

    def _asked(self, begin: str, end: str, moment: datetime) -> int | None:
        """Return the index of the last line of a run that requested its end; by our clock that may be just after it."""
        latest, index = None, bisect_right(self._times, end)
        while index < len(self._lines) and _time(self._times[index]) - moment <= _CLOCK_SKEW:
            latest = index if self._lines[index].kind in _ASKED else latest
            index += 1
        return self._last(_ASKED, begin, end) if latest is None else latest

    def removed(self, machine: Machine, end: str) -> str | None:
        """Return when a machine that had been stopped was ended for good: it would have cost no more from then on."""
        late = iso(_time(end) + _CLOCK_SKEW)
        index = bisect_right(self._times, late)
        later = range(index, len(self._lines))  # no slice: there are many lines, and the next that asks is near
        asked = (self._times[number] for number in later if self._lines[number].kind in _ASKED)
        terminated_at = machine.terminated_at if machine.terminated_at and machine.terminated_at > late else None
        return min(filter(None, (next(asked, None), terminated_at)), default=None)

    def lease_at(self, moment: str) -> tuple[str | None, str | None]:
        """Return the lease's end and the renew-until that held then."""
        index = self._last(_LEASED, "", moment)
        body = {} if index is None else self._lines[index].body
        return body.get("expires"), body.get("renew_until")

    def _decided(self, asked: int, since: str) -> str | None:
        """Return the rule by which a run asked for it; None where somebody else did.

        The reason is the decision's own, or the same one told anew: a last sync before the end counts minutes again.
        """
        line, index = self._lines[asked], self._last(_DECIDED, since, "", before=asked)
        decision = None if index is None else self._lines[index]
        if decision is None or decision.kind != "decision_made" or decision.body["do"] not in _ENDS:
            return None
        if _time(line.occurred_at) - _time(decision.occurred_at) > _MAX_DELAY:
            return None
        why, asked_why = str(decision.body["why"]), str(line.body["why"])
        same = why == asked_why or why.split()[:2] == asked_why.split()[:2]
        return str(decision.body["rule"]) if same else None

    def _announced(self, end: datetime) -> str | None:
        """Return the rule whose end, as people were warned or a run foresaw it, is the one that came."""
        for kind, key in (("warning_sent", "due"), ("decision_made", "at")):
            index = self._last((kind,), iso(end - timedelta(days=1)), iso(end))
            body = {} if index is None else self._lines[index].body
            due = body.get(key)
            if due is not None and abs(from_iso(due) - end) <= _MAX_DEVIATION and body["rule"] in SAVING_RULES:
                return str(body["rule"])
        return None

    def _by_lease(self, end: datetime) -> str | None:
        expires = self.lease_at(iso(end))[0]
        return Rule.LEASE if expires is not None and timedelta(0) <= end - from_iso(expires) <= _MAX_DEVIATION else None

    def _last(self, kinds: Sequence[str], since: str, until: str, before: int | None = None) -> int | None:
        """Return the index of the last line of these kinds within [`since`, `until`], and below the index `before`."""
        index = bisect_right(self._times, until) if before is None else before
        while index and self._times[index - 1] >= since:
            index -= 1
            if self._lines[index].kind in kinds:
                return index
        return None


def _time(text: str) -> datetime:
    """Return a ledger time, which is UTC."""
    return datetime.fromisoformat(text)


def _by_idle_time(machine: Machine, end: datetime) -> str | None:
    """Return the idle rule where the machine itself reported no use for a while before its end."""
    last = machine.last_active
    return Rule.IDLE if last and end - from_iso(last) >= _UNUSED_BEFORE_END else None


def idle_cost(
    hours: Sequence[Hour], runs: Iterable[CostTimeline], since: int = 0, until: int = FAR_FUTURE_US
) -> CostRange:
    """Return what a machine (its `runs`) cost for the time in which it was idle, in exact parts.

    The `hours` are of [`since`, `until`), microseconds since 1970.

    Each hour is shared by its seconds. `low` counts none of the time of which nothing is known, and `high` all of it;
    beside that, each has the low and the high of the price.
    """
    timelines = list(runs)
    if not any(hour.gpu_s or hour.used_s or hour.idle_s for hour in hours):
        return CostRange(
            0, 0, sum(intervals_cost(timeline.high, since, until) for timeline in timelines) if hours else 0
        )
    idle_hours = [hour for hour in hours if hour.idle_s or hour.unknown_s]
    begins = [to_us(hour.at) for hour in idle_hours]
    amounts = _by_hour(begins, chain.from_iterable(timeline.amount for timeline in timelines), since, until)
    low_amounts, high_amounts = amounts, amounts
    if any(timeline.low is not timeline.high for timeline in timelines):
        low_amounts = _by_hour(begins, chain.from_iterable(timeline.low for timeline in timelines), since, until)
        high_amounts = _by_hour(begins, chain.from_iterable(timeline.high for timeline in timelines), since, until)
    low = middle = high = 0
    for hour, least, exact, most in zip(idle_hours, low_amounts, amounts, high_amounts, strict=True):
        gpu, used, idle, unknown = (
            round(seconds * SECOND_US) for seconds in (hour.gpu_s, hour.used_s, hour.idle_s, hour.unknown_s)
        )
        billed = max(1, gpu + used + idle + unknown)
        low += least * idle // billed
        middle += exact * idle // billed
        high += most * (idle + unknown) // billed
    return CostRange(low, middle, high)


def _by_hour(begins: Sequence[int], intervals: Iterable[RateInterval], since: int, until: int) -> list[int]:
    """Return what rate intervals cost in each of these hours, which are in order, within [since, until)."""
    costs = [0] * len(begins)
    first = 0
    for begin, end, rate in sorted(intervals):
        begin, end = max(begin, since), min(end, until)  # noqa: PLW2901  (the inner loop)
        while first < len(begins) and begins[first] + HOUR_MICROS <= begin:
            first += 1
        hour = first
        while hour < len(begins) and begins[hour] < end:
            costs[hour] += rate * (min(end, begins[hour] + HOUR_MICROS) - max(begin, begins[hour]))
            hour += 1
    return costs
