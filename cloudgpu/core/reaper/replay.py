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

from cloudgpu.core.activity.idle import METERS, ActivityVerdict, Thresholds, judge
from cloudgpu.core.clusters.engine import EngineStatus, has_engine
from cloudgpu.core.clusters.queue import Queue
from cloudgpu.core.events.log import Line
from cloudgpu.core.events.projection import apply_event, project
from cloudgpu.core.model.facts import SentWarning
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.policies.policy import Policy, ReaperAction, thresholds
from cloudgpu.core.reaper.decide import decide
from cloudgpu.core.reaper.decisions import Decision, MachineView
from cloudgpu.core.values.times import from_iso, iso

Sample = dict[str, Any]  # as `agent_status.Sample`: `t` is its end in epoch seconds, `s` how many seconds it covers
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
class RecordedHistory:
    """What is known of one machine's past: its ledger's lines, its runs in order, and its samples by our clock.

    Of a cluster these are of its first node, the runs of the whole; `other_nodes` are the pasts of the others.
    """

    lines: Sequence[Line]
    runs: Sequence[Run]
    samples: Sequence[Sample]
    other_nodes: tuple[RecordedHistory, ...] = ()

    @property
    def nodes(self) -> tuple[RecordedHistory, ...]:
        """All nodes of a cluster, the first one first; a machine of its own alone."""
        return (self, *self.other_nodes)


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
class ReplayedEnd:
    """An end that this policy would have made at `at`: the action `do`, by which rule, why; and until when it was off.

    `work` is what it would have cut off, or what somebody came back for: the machine is taken as started again then.
    None: nobody used it until its run ended in truth.
    """

    do: ReaperAction
    rule: str
    why: str
    at: datetime
    until: datetime
    work: Work | None


def replay(recorded: RecordedHistory, policy: Policy, since: datetime, *, interval: timedelta) -> list[ReplayedEnd]:
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

    def at_or_after(self, at: datetime) -> datetime:
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
        assumed = machine._replace(state="running", billed=True, terminated_at=None, pending_action=None, discard=False)
        assumed = assumed._replace(launch_status="made", since=iso(self.started), warnings=warnings)
        if self.lease is None:
            return assumed
        expires, until = (iso(lease_time) for lease_time in self.lease)
        return assumed._replace(
            expires=max(expires, machine.expires or ""), renew_until=max(until, machine.renew_until or "")
        )

    def apply(self, decision: Decision, machine: Machine, now: datetime) -> None:
        """Apply a decision (its warnings, withdrawals, a renewed lease) as `events.annotations` folds lines."""
        for withdrawn in decision.withdrawn:
            self.warnings.pop(str(withdrawn.rule), None)
        for warning in decision.warnings:
            due, earlier = iso(warning.due) if warning.due else None, self.warnings.get(str(warning.rule))
            if earlier is None or earlier.due != due:
                earlier = SentWarning(iso(now), iso(now), due, times=0, why=None)
            self.warnings[str(warning.rule)] = earlier._replace(last=iso(now), times=earlier.times + 1)
        if decision.do is ReaperAction.RENEW and decision.at is not None:
            self.lease = (decision.at, from_iso(machine.renew_until) if machine.renew_until else decision.at)


def _ends_in_run(run: Run, policy: Policy, nodes: Sequence[_Node], ticks: _Ticks) -> Iterator[ReplayedEnd]:
    replayed, now = _ReplayState(run.started), ticks.at_or_after(run.begin)
    while now < run.end:
        end = _run_once(replayed, policy, nodes, _Moment(now, run, ticks.every))
        now += ticks.every
        if end is None:
            continue
        yield end
        replayed = _ReplayState(end.until, (end.until + policy.lease, end.until + policy.renew_until))
        now = max(now, ticks.at_or_after(end.until))


@dataclass(frozen=True, slots=True)
class _Moment:
    """The time of one run of the reaper, the machine's own run that it falls in, and how often the reaper runs."""

    now: datetime
    run: Run
    interval: timedelta


def _run_once(replayed: _ReplayState, policy: Policy, nodes: Sequence[_Node], at: _Moment) -> ReplayedEnd | None:
    """Make one run over the machine, or all nodes; return the end that it would have made within the run."""
    now = at.now
    first = _view_of(nodes[0], replayed, policy, now)
    if first is None:
        return None
    views = [first, *(view for node in nodes[1:] if (view := _view_of(node, replayed, policy, now)) is not None)]
    decision = decide(views, (), now, interval=at.interval)[0]
    replayed.apply(decision, first.machine, now)
    when = max(now, decision.after or now)
    if not decision.ends or when >= at.run.end:
        return None
    works = [work for node in nodes if (work := node.samples.work(when, at.run.end)) is not None]
    work = min(works, key=attrgetter("begin"), default=None)
    until = at.run.end if work is None else work.begin
    return ReplayedEnd(decision.do, str(decision.rule), decision.why, when, until, work)


@dataclass(frozen=True, slots=True)
class _Node:
    """One node of what is replayed: what its ledger entries, and its samples, say of it."""

    past: _PastMachine
    samples: _SampleHistory


def _view_of(node: _Node, replayed: _ReplayState, policy: Policy, now: datetime) -> MachineView | None:
    """Return what a run sees of one node; None before anything was known of it."""
    recorded_machine = node.past.at(now)
    if recorded_machine is None:
        return None
    machine = replayed.machine(recorded_machine)
    judged = node.samples.judged(now.timestamp(), replayed.started.timestamp())
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
        text, pending_count = iso(moment), len(self._lines)
        while self._lines and self._lines[0].occurred_at <= text:
            line = self._lines.popleft()
            if self._state is not None:
                apply_event(self._state, line)
            elif (projected := project([line])) is not None:
                self._state = projected.state
        if self._state is not None and len(self._lines) < pending_count:
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
        self._next = 0  # the index of the first sample that `_lowest` has not seen

    def judged(self, now: float, up_since: float) -> ActivityVerdict:
        """Return whether the machine was in use then."""
        first = bisect_right(self._times, now - self._limits.after)
        window = self._samples[first : bisect_right(self._times, now)]
        return judge([*self._baseline_sample(first, now - DAY_S), *window], self._limits, now, up_since)

    def _baseline_sample(self, first: int, oldest: float) -> list[Sample]:
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
        begin_s, signals, last_s, seconds = None, dict[str, None](), 0.0, 0.0
        end_s = end.timestamp()
        for sample in self._samples[bisect_right(self._times, at.timestamp()) :]:
            if sample["t"] - sample["s"] >= end_s or (
                begin_s is not None and sample["t"] - sample["s"] - last_s > WORK_PAUSE_S
            ):
                break
            sample_signals = signs_of(sample, self._limits) or signs_of(sample, Thresholds())
            if sample_signals:
                begin_s = max(at.timestamp(), sample["t"] - sample["s"]) if begin_s is None else begin_s
                signals |= dict.fromkeys(sample_signals)
                last_s = min(sample["t"], end_s)
                seconds += max(0.0, last_s - max(begin_s, sample["t"] - sample["s"]))
        if begin_s is None:
            return None
        return Work(_utc(begin_s), _utc(last_s), seconds, tuple(signals), begin_s <= at.timestamp() + SAME_WORK_GAP_S)


def signs_of(sample: Sample, limits: Thresholds) -> tuple[str, ...]:
    """Return the signals of use that one sample shows by itself: `GPU`, `terminal`, ..."""
    one_sample_limits = limits._replace(after=sample["s"] + 1.0, uptime=0.0, share=0.0)
    return tuple(
        signal.what for signal in judge([sample], one_sample_limits, sample["t"], 0.0).signals if signal.counts
    )


def seconds_covered(samples: Sequence[Sample], begin: float, end: float) -> float:
    """Return for how many seconds of a period the samples say all that they can; a fault says nothing."""
    times = [sample["t"] for sample in samples]
    covered_s, covered_until = 0.0, begin
    for sample in samples[bisect_left(times, begin) :]:
        if sample["t"] - sample["s"] >= end:
            break
        if not (sample.get("fault") or any(sample.get(name, 0) is None for name in METERS)):
            covered_s += max(0.0, min(sample["t"], end) - max(sample["t"] - sample["s"], covered_until))
        covered_until = max(covered_until, min(sample["t"], end))
    return covered_s


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
