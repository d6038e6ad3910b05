"""Decides what to do with each machine that a pass has looked at, and why: the strongest rule that acts. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from cloudgpu.core.budgets.commitments import runs_on
from cloudgpu.core.budgets.enforcement import Stop
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.policies.policy import Do, Rule
from cloudgpu.core.reaper.cases import Case, Found, Stage, clock
from cloudgpu.core.reaper.decisions import ENDS, UNKNOWN, Decision, Lifted, Seen
from cloudgpu.core.reaper.evidence import Known, known, up_since
from cloudgpu.core.reaper.rules import RULES, image_since, stopped_since
from cloudgpu.core.values.times import from_iso

MAX_IDLE_STOPS = 20  # of a pass: what was judged wrongly for all of them must not stop all of them
_STRENGTH = {one.rule: place for place, one in enumerate(RULES)}


def decide(
    seen: Sequence[Seen],
    stops: Sequence[Stop],
    now: datetime,
    *,
    interval: timedelta,
    max_idle_stops: int = MAX_IDLE_STOPS,
) -> list[Decision]:
    """Return one decision per machine, in their order; "keep" has its reason, too.

    `stops` are what budgets that are passed do (`core.budgets.enforcement`), `interval` is how often passes come. The
    rules are tried in the order of RULES. Idle time, with a label missing or without, ends at most `max_idle_stops`
    machines in a pass, those that are idle longest.
    """
    over = {stop.machine: stop for stop in stops}
    found = [_decided(one, over.get(one.machine.id), now, interval) for one in seen]
    put_off = _put_off(seen, found, now, max_idle_stops)
    return [_later(one, now + interval, max_idle_stops) if one.machine in put_off else one for one in found]


def _decided(seen: Seen, stop: Stop | None, now: datetime, interval: timedelta) -> Decision:
    machine = seen.machine
    if machine.terminated_at is not None and image_since(machine) is None:
        return _left(seen, f"it ended {clock(from_iso(machine.terminated_at), now)}")
    if machine.launch_status == "open":
        return _left(seen, "the outcome of its launch is not known yet; the next sync finds out")
    if machine.state == "stopping":
        return _left(seen, "it is stopping")
    case = _case(seen, stop, now, interval)
    if not seen.answered:
        at = case.time("renew_until") if runs_on(machine) else None  # by the machine's own timer
        return replace(_left(seen, f"{case.known.why}: it is left alone"), at=at)
    return _joined(case, [found for one in RULES for found in one.found(case)])


def _case(seen: Seen, stop: Stop | None, now: datetime, interval: timedelta) -> Case:
    row, stage = seen.machine, _stage(seen.machine)
    held = from_iso(row.hold_until) if row.hold_until else None
    kept = image_since(row) if stage is Stage.IMAGE else None
    started = kept or (up_since(row) if runs_on(row) else stopped_since(row))
    return Case(
        seen=seen,
        stage=stage,
        known=known(seen, now) if runs_on(row) else Known(UNKNOWN, "it is stopped", asked=False),
        started=started,
        stop=stop,
        now=now,
        interval=interval,
        held=held if held is not None and held > now else None,
    )


def _stage(machine: Machine) -> Stage:
    if machine.terminated_at is not None or machine.is_named_resource:
        return Stage.IMAGE
    return Stage.RUNNING if runs_on(machine) else Stage.STOPPED


def _joined(case: Case, found: Sequence[Found]) -> Decision:
    """Return what follows from what the rules find: the strongest end, else a renewal, else what is told, else keep."""
    warnings = [one.warn for one in found if one.warn is not None]
    first = min(found, key=_order, default=None)
    base = Decision(
        machine=case.seen.machine.id,
        name=case.seen.machine.name,
        do=Do.KEEP,
        rule=Rule.NONE,
        why=case.known.why,
        at=min((one.at for one in found if one.at is not None and one.do is not Do.RENEW), default=None),
        activity=case.known.activity,
        lifted=tuple(_lifted(case, found)),
    )
    if first is not None and first.do in ENDS:
        return _with_policy(case, replace(_of(base, first), at=first.at, after=first.after, lifted=()))
    if first is not None and first.do is Do.RENEW:
        return _with_policy(case, replace(_of(base, first), at=first.at, warnings=tuple(warnings)))
    if first is not None and first.stands:
        do = Do.WARN if warnings else Do.KEEP
        return _with_policy(case, replace(_of(base, first), do=do, after=first.after, warnings=tuple(warnings)))
    held = [replace(base, rule=Rule.HOLD, why=one.why) for one in found if one.rule is Rule.HOLD]
    return _with_policy(case, held[0] if held else base)


def _order(found: Found) -> tuple[int, float, int]:
    """Return what is sorted by: ends and a renewal by strength, then what is told now, and what was, by its time."""
    kind = 0 if found.do in ENDS else 1 if found.do is Do.RENEW else 2 if found.warn else 3 if found.stands else 4
    soon = 0.0 if kind <= 1 else found.at.timestamp() if found.at else math.inf
    return kind, soon, _STRENGTH[found.rule]


def _of(base: Decision, found: Found) -> Decision:
    return replace(base, do=found.do, rule=found.rule, why=found.why, urgent=found.urgent)


def _with_policy(case: Case, decision: Decision) -> Decision:
    """Say where no policy can be resolved that only the lease counts."""
    if case.policy is not None:
        return decision
    return replace(
        decision, why=f"{decision.why}; only its lease counts, as {case.seen.why_policy or 'it has no policy'}"
    )


def _lifted(case: Case, found: Sequence[Found]) -> Iterator[Lifted]:
    """Yield the warnings that hold no more, each with why."""
    holding = {one.rule for one in found if one.stands or one.do in ENDS}
    for rule in map(Rule, case.seen.machine.warnings):
        if rule not in holding:
            yield Lifted(rule, _why_lifted(case, rule))


def _why_lifted(case: Case, rule: Rule) -> str:
    if case.held is not None and (rule is Rule.SCHEDULE or _STRENGTH[rule] > _STRENGTH[Rule.HOLD]):
        return f"it is held until {clock(case.held, case.now)}"
    if rule in (Rule.RENEW_UNTIL, Rule.SCHEDULE, Rule.BUDGET):
        return {Rule.BUDGET: "no budget is passed any more"}.get(rule, f"its {rule} is another one now")
    return f"{case.known.activity}: {case.known.why}"


def _left(seen: Seen, why: str) -> Decision:
    return Decision(seen.machine.id, seen.machine.name, Do.KEEP, Rule.NONE, why)


def _put_off(seen: Sequence[Seen], found: Sequence[Decision], now: datetime, most: int) -> set[str]:
    """Return the machines that idle time would end beyond the number of a pass: those that are idle shortest."""
    ends = [
        (known(one, now).quiet or timedelta.max, decision.machine)
        for one, decision in zip(seen, found, strict=True)
        if decision.rule in (Rule.IDLE, Rule.UNLABELLED) and decision.ends
    ]
    return {machine for _, machine in sorted(ends, reverse=True)[most:]}


def _later(decision: Decision, then: datetime, most: int) -> Decision:
    why = f"{decision.why}; it waits for a later run, as one run stops at most {most} machines for idle time"
    return replace(decision, do=Do.KEEP, why=why, at=then, after=None)
