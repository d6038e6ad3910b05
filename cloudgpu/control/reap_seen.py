"""Gathers what a pass decides by: each machine's row, its policy, and what its agent says where it could be idle."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from cloudgpu.control.hearing import Word, heard_of
from cloudgpu.control.samples import Report, probe
from cloudgpu.core.activity.idle import Thresholds
from cloudgpu.core.model.instances import State
from cloudgpu.core.policies.guards import has_no_agent
from cloudgpu.core.policies.policy import Act, Policy, Rule, thresholds
from cloudgpu.core.reaper.decisions import Seen
from cloudgpu.core.reaper.evidence import up_since
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError

if TYPE_CHECKING:
    from cloudgpu.control.policies import Held
    from cloudgpu.control.session import Session

Row = dict[str, Any]
SOON = timedelta(minutes=60)  # before the end of a lease people are told, unless the machine is in use
ASKED_WITHIN_S = 10.0  # over SSH
NAMED = 5  # machines in a sentence


def check_whole(held: Mapping[str, Held]) -> None:
    """Raise InvalidRequest for a policy that is there and has a fault: no pass runs with half a policy."""
    for one in held.values():
        if one.broken is not None:
            raise one.broken


def unresolved(held: Mapping[str, Held], rows: Sequence[Row]) -> tuple[str, ...]:
    """Return a sentence for each policy that is named and not there: of its machines the lease alone counts."""
    fault = {one.name: one.fault for one in held.values() if one.policy is None}
    names: dict[str, list[str]] = {name: [] for name in fault}
    for row in rows:
        if held[row["id"]].policy is None:
            names[held[row["id"]].name].append(row["name"])
    return tuple(f"{fault[name]}: only the lease counts for {_named(those)}" for name, those in names.items())


def _named(names: Sequence[str]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


def seen_of(
    session: Session, rows: Sequence[Row], held: Mapping[str, Held], answered: Collection[str], *, keep: bool = True
) -> tuple[list[Seen], dict[str, Report]]:
    """Return what is known of each machine, and what the agents said that were asked; `keep` that, too.

    Asked is who could be idle: a machine that runs long enough, is not held, has not said itself that it is in use, and
    whose policy ends idle machines or whose lease is near its end. First its provider, where that alone knows what the
    machine says of itself; then, where that leaves the question, the machine over SSH.
    """
    bare = [_bare(row, held[row["id"]], answered=row["id"] in answered) for row in rows]
    now = session.clock()
    words = heard_of(session, [dict(one.row) for one in bare if is_to_ask(one, now)], keep=keep)
    bare = [with_word(one, words.get(one.row["id"])) for one in bare]
    reports = probe_twice(session, [dict(one.row) for one in bare if is_to_ask(one, now)], keep=keep)
    found = [with_report(one, reports.get(one.row["id"])) for one in bare]
    return [with_silence(one, words.get(one.row["id"])) for one in found], reports


def with_word(seen: Seen, word: Word) -> Seen:
    """Return it with the machine's own word, where it has just said one."""
    return replace(seen, last_active=word) if isinstance(word, datetime) else seen


def with_silence(seen: Seen, word: Word) -> Seen:
    """Return it with why its provider did not tell its word either, where it was not reached."""
    if not isinstance(word, CloudgpuError) or not seen.judged_fault:
        return seen
    fault = f"{seen.judged_fault}; {seen.row['provider']} does not tell its word: {word.message.removesuffix('.')}"
    return replace(seen, judged_fault=fault)


def probe_twice(session: Session, rows: Sequence[Row], *, keep: bool = True) -> dict[str, Report]:
    """Ask each machine's agent; once more where it said nothing and its end was told: it waits for that answer alone.

    Another machine that said nothing is asked by the next pass: a dead one costs its time at every try. Both tries have
    the time of one.
    """
    begun = time.monotonic()
    reports = probe(session, rows, timeout=ASKED_WITHIN_S, keep=keep)
    left = ASKED_WITHIN_S - (time.monotonic() - begun)
    waiting = [row for row in rows if reports[row["id"]].machine_now is None and Rule.IDLE in row.get("warnings", {})]
    return reports | (probe(session, waiting, timeout=left, keep=keep) if waiting and left >= 1 else {})


def _bare(row: Row, held: Held, *, answered: bool) -> Seen:
    last = from_iso(row["last_active"]) if row["last_active"] else None
    return Seen(row, held.policy, held.why, last_active=last, answered=answered)


def gather(session: Session, rows: Sequence[Row]) -> int:
    """Ask these machines for what they have seen since the last time, to be kept; return how many said something.

    A machine in use is asked by no pass, and its agent forgets after a day: so a pass a night gathers. Raises nothing.
    """
    running = [row for row in rows if row["state"] == State.RUNNING and row["ended"] is None and row["address"]]
    return sum(one.machine_now is not None for one in probe(session, running).values())


def with_report(seen: Seen, report: Report | None) -> Seen:
    """Return it with what its agent has just said; as it is where that was not asked."""
    if report is None:
        return seen
    if report.machine_now is None:
        return replace(seen, judged=None, judged_fault=report.fault or "its agent said nothing")
    found = report.judged(_limits(seen.policy))
    return replace(seen, judged=found, reached_at=report.asked_at, scratch=report.scratch, judged_fault="")


def is_to_ask(seen: Seen, now: datetime) -> bool:
    """Say whether what this machine does can change what is decided, and only it can tell."""
    row, policy = seen.row, seen.policy
    runs = row["ended"] is None and row["state"] == State.RUNNING and row["attempt"] == "made"
    if not (runs and seen.answered) or has_no_agent(row) or _is_settled(row, now):
        return False
    window = policy.idle.after if policy is not None else timedelta(seconds=Thresholds().after)
    if seen.last_active is not None and timedelta(0) <= now - seen.last_active < window:
        return False
    return _could_be_idle(row, policy, window, now) or _ends_soon(row, now)


def _is_settled(row: Mapping[str, Any], now: datetime) -> bool:
    """Say whether what it does changes nothing: it is held, or past its renew-until."""
    held = row["hold_until"] is not None and from_iso(row["hold_until"]) > now
    return held or (row["renew_until"] is not None and from_iso(row["renew_until"]) <= now)


def _could_be_idle(row: Mapping[str, Any], policy: Policy | None, window: timedelta, now: datetime) -> bool:
    if policy is None or (policy.idle.do is Act.OFF and policy.unlabelled is None):
        return False
    return now - up_since(row) >= max(window, policy.idle.uptime)


def _ends_soon(row: Mapping[str, Any], now: datetime) -> bool:
    return row["expires"] is not None and from_iso(row["expires"]) - now <= SOON


def _limits(policy: Policy | None) -> Thresholds:
    return Thresholds() if policy is None else thresholds(policy)


def warned_by_budget(rows: Sequence[Row]) -> dict[str, int]:
    """Return how often each machine was warned that a budget is passed."""
    given = {row["id"]: row.get("warnings", {}).get(Rule.BUDGET) for row in rows}
    return {machine: int(one["count"]) for machine, one in given.items() if one}
