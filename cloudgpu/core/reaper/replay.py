"""Replays what was recorded of one machine under a policy: at which runs it would have been ended. Pure.

Judged and decided is by the very functions of a run (`core.activity.idle.judge`, `core.reaper.decide.decide`); what
is assumed here is only what follows from an end that did not happen. A machine that was ended is off until somebody
used it in truth: then it is taken as started again, under a new lease. Budgets of the lab are not replayed: they are
over all machines. A cluster is replayed as one: it is in use when any node is. What waited in its queue is not
recorded, so a job counts once a node works on it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from cloudgpu.core.activity.idle import METERS, Judged, Thresholds, judge
from cloudgpu.core.clusters.engine import EngineStatus, has_engine
from cloudgpu.core.clusters.queue import Queue
from cloudgpu.core.events.log import Line
from cloudgpu.core.events.projection import apply_event, folded
from cloudgpu.core.model.facts import SentWarning
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.policies.policy import Policy, ReaperAction, thresholds
from cloudgpu.core.reaper.decide import decide
from cloudgpu.core.reaper.decisions import Decision, MachineView
from cloudgpu.core.values.times import from_iso, iso

Sample = dict[str, Any]
DAY_S = 86400.0
WORK_PAUSE_S = 600.0  # seconds: work that pauses for no longer is one piece of work
SAME_WORK_GAP_S = 60.0  # seconds: work that begins so soon after an end was under way


@dataclass(frozen=True, slots=True)
class Run:
    """An actual run of a machine, cut to the period; it was started at `started`, maybe before the period."""

    begin: datetime
    end: datetime
    started: datetime


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is known of one machine's past: its ledger's lines, its runs in order, and its samples by our clock.

    Of a cluster these are of its first node, the runs of the whole; `others` are its other nodes.
    """

    lines: Sequence[Line]
    runs: Sequence[Run]
    samples: Sequence[Sample]
    others: tuple[Recorded, ...] = ()

    @property
    def nodes(self) -> tuple[Recorded, ...]:
        """All nodes of a cluster, the first one first; a machine of its own alone."""
        return (self, *self.others)


@dataclass(frozen=True, slots=True)
class Work:
    """Use that the samples show after an end: from when to when, `seconds` of it in all, and by which signals (`what`).

    `under_way`: it was going on when the machine would have been ended.
    """

    begin: datetime
    end: datetime
    seconds: float
    what: tuple[str, ...]
    under_way: bool


@dataclass(frozen=True, slots=True)
class WouldEnd:
    """An end that this policy would have made at `at`: what, by which rule, why; and the machine off until `until`.

    `work` is what it would have cut off, or what somebody came back for: the machine is taken as started again then.
    None: nobody used it until its run ended in truth.
    """

    do: ReaperAction
    rule: str
    why: str
    at: datetime
    until: datetime
    work: Work | None


def replay(recorded: Recorded, policy: Policy, since: datetime, *, interval: timedelta) -> list[WouldEnd]:
    """Return the ends that the policy would have made, oldest first; runs come every `interval` from `since` on."""
    nodes = [
        _Node(_PastMachine(node.lines), _SampleHistory(node.samples, thresholds(policy))) for node in recorded.nodes
    ]
    return [end for run in recorded.runs for end in _ends_in_run(run, policy, nodes, _Ticks(since, interval))]


@dataclass(frozen=True, slots=True)
class _Ticks:
    """The times of the reaper's runs."""

    first: datetime
    every: timedelta

    def from_on(self, at: datetime) -> datetime:
        """Return the first one at or after `at`."""
        passed = max(timedelta(0), at - self.first)
        return self.first + self.every * -(-passed // self.every)


@dataclass(slots=True)
class _ReplayState:
    """What the replay assumes of a run: since when it is on, warnings given, a new lease (expires, renew-until)."""

    started: datetime
    lease: tuple[datetime, datetime] | None = None
    warnings: dict[str, SentWarning] = field(default_factory=dict)

    def machine(self, machine: Machine) -> Machine:
        """Return the machine as it would have been."""
        warnings = MappingProxyType(dict(self.warnings))
        made = machine._replace(state="running", billed=True, terminated_at=None, pending_action=None, discard=False)
        made = made._replace(launch_status="made", since=iso(self.started), warnings=warnings)
        if self.lease is None:
            return made
        expires, until = (iso(own) for own in self.lease)
        return made._replace(
            expires=max(expires, machine.expires or ""), renew_until=max(until, machine.renew_until or "")
        )

    def take(self, decision: Decision, machine: Machine, now: datetime) -> None:
        """Take what was decided (warnings given and lifted, a lease renewed) as `events.annotations` folds lines."""
        for lifted in decision.lifted:
            self.warnings.pop(str(lifted.rule), None)
        for warning in decision.warnings:
            due, before = iso(warning.due) if warning.due else None, self.warnings.get(str(warning.rule))
            if before is None or before.due != due:
                before = SentWarning(iso(now), iso(now), due, times=0, why=None)
            self.warnings[str(warning.rule)] = before._replace(last=iso(now), times=before.times + 1)
        if decision.do is ReaperAction.RENEW and decision.at is not None:
            self.lease = (decision.at, from_iso(machine.renew_until) if machine.renew_until else decision.at)


def _ends_in_run(run: Run, policy: Policy, nodes: Sequence[_Node], ticks: _Ticks) -> Iterator[WouldEnd]:
    replayed, now = _ReplayState(run.started), ticks.from_on(run.begin)
    while now < run.end:
        end = _run_once(replayed, policy, nodes, _Moment(now, run, ticks.every))
        now += ticks.every
        if end is None:
            continue
        yield end
        replayed = _ReplayState(end.until, (end.until + policy.lease, end.until + policy.renew_until))
        now = max(now, ticks.from_on(end.until))


@dataclass(frozen=True, slots=True)
class _Moment:
    now: datetime
    run: Run
    interval: timedelta


def _run_once(replayed: _ReplayState, policy: Policy, nodes: Sequence[_Node], at: _Moment) -> WouldEnd | None:
    """Make one run over the machine, or all nodes; return the end that it would have made within the run."""
    now = at.now
    first = _view_of(nodes[0], replayed, policy, now)
    if first is None:
        return None
    seen = [first, *(view for node in nodes[1:] if (view := _view_of(node, replayed, policy, now)) is not None)]
    decision = decide(seen, (), now, interval=at.interval)[0]
    replayed.take(decision, first.machine, now)
    when = max(now, decision.after or now)
    if not decision.ends or when >= at.run.end:
        return None
    works = [work for node in nodes if (work := node.watch.work(when, at.run.end)) is not None]
    work = min(works, key=attrgetter("begin"), default=None)
    until = at.run.end if work is None else work.begin
    return WouldEnd(decision.do, str(decision.rule), decision.why, when, until, work)


@dataclass(frozen=True, slots=True)
class _Node:
    """One node of what is replayed: what its lines, and its samples, say of it."""

    past: _PastMachine
    watch: _SampleHistory


def _view_of(node: _Node, replayed: _ReplayState, policy: Policy, now: datetime) -> MachineView | None:
    """Return what a run sees of one node; None before anything was known of it."""
    recorded_machine = node.past.at(now)
    if recorded_machine is None:
        return None
    machine = replayed.machine(recorded_machine)
    judged = node.watch.judged(now.timestamp(), replayed.started.timestamp())
    reported_at = from_iso(machine.last_active) if machine.last_active else None
    engine = EngineStatus(Queue()) if has_engine(machine) else None
    return MachineView(machine, policy, judged=judged, last_active=reported_at, reached_at=now, engine=engine)


class _PastMachine:
    """A machine as it was, by its lines; asked for ever later moments."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = deque(sorted(lines, key=lambda line: (line.occurred_at, line.seq)))
        self._state: dict[str, Any] | None = None
        self._machine: Machine | None = None

    def at(self, moment: datetime) -> Machine | None:
        """Return the machine of then; None before anything was known."""
        text, left = iso(moment), len(self._lines)
        while self._lines and self._lines[0].occurred_at <= text:
            line = self._lines.popleft()
            if self._state is not None:
                apply_event(self._state, line)
            elif (begun := folded([line])) is not None:
                self._state = begun.state
        if self._state is not None and len(self._lines) < left:
            self._machine = Machine.of(self._state["row"])
        return self._machine


class _SampleHistory:
    """What the samples show; judged at ever later moments.

    `judge` is given the samples of its window, and of the day before only the one that has its lowest CPU: that is all
    that it takes of older ones to say ACTIVE, IDLE or UNKNOWN.
    """

    def __init__(self, samples: Sequence[Sample], limits: Thresholds) -> None:
        self._samples = list(samples)
        self._times = [sample["t"] for sample in samples]
        self._limits = limits
        self._lowest: deque[Sample] = deque()  # of the day before the window, with rising CPU
        self._next = 0

    def judged(self, now: float, up_since: float) -> Judged:
        """Return whether the machine was in use then."""
        first = bisect_right(self._times, now - self._limits.after)
        window = self._samples[first : bisect_right(self._times, now)]
        return judge([*self._base(first, now - DAY_S), *window], self._limits, now, up_since)

    def _base(self, first: int, oldest: float) -> list[Sample]:
        """Return the sample with the lowest CPU before the window, none where there is none."""
        for sample in self._samples[self._next : first]:
            if sample.get("cpu") is not None:
                while self._lowest and self._lowest[-1]["cpu"] >= sample["cpu"]:
                    self._lowest.pop()
                self._lowest.append(sample)
        self._next = max(self._next, first)
        while self._lowest and self._lowest[0]["t"] <= oldest:
            self._lowest.popleft()
        return [self._lowest[0]] if self._lowest else []

    def work(self, at: datetime, end: datetime) -> Work | None:
        """Return the first use after `at` that the samples show, by the policy's limits or the defaults."""
        begin, signs, last, seconds = None, dict[str, None](), 0.0, 0.0
        stop = end.timestamp()
        for sample in self._samples[bisect_right(self._times, at.timestamp()) :]:
            if sample["t"] - sample["s"] >= stop or (
                begin is not None and sample["t"] - sample["s"] - last > WORK_PAUSE_S
            ):
                break
            shown = signs_of(sample, self._limits) or signs_of(sample, Thresholds())
            if shown:
                begin = max(at.timestamp(), sample["t"] - sample["s"]) if begin is None else begin
                signs |= dict.fromkeys(shown)
                last = min(sample["t"], stop)
                seconds += max(0.0, last - max(begin, sample["t"] - sample["s"]))
        if begin is None:
            return None
        return Work(_utc(begin), _utc(last), seconds, tuple(signs), begin <= at.timestamp() + SAME_WORK_GAP_S)


def signs_of(sample: Sample, limits: Thresholds) -> tuple[str, ...]:
    """Return what one sample alone shows of use."""
    alone = limits._replace(after=sample["s"] + 1.0, uptime=0.0, share=0.0)
    return tuple(signal.what for signal in judge([sample], alone, sample["t"], 0.0).signals if signal.counts)


def seconds_covered(samples: Sequence[Sample], begin: float, end: float) -> float:
    """Return for how many seconds of a period the samples say all that they can; a fault says nothing."""
    times = [sample["t"] for sample in samples]
    known, reach = 0.0, begin
    for sample in samples[bisect_left(times, begin) :]:
        if sample["t"] - sample["s"] >= end:
            break
        if not (sample.get("fault") or any(sample.get(name, 0) is None for name in METERS)):
            known += max(0.0, min(sample["t"], end) - max(sample["t"] - sample["s"], reach))
        reach = max(reach, min(sample["t"], end))
    return known


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
