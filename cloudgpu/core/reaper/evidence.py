"""What is known of a machine's use when a run decides: by its samples, its own word, or its state. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from cloudgpu.core.activity.idle import Judged
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.policies.guards import has_no_agent
from cloudgpu.core.policies.policy import Rule
from cloudgpu.core.reaper.decisions import ACTIVE, IDLE, UNKNOWN, Evidence, MachineView
from cloudgpu.core.values.times import duration_text, from_iso

DEFAULT_AFTER = timedelta(hours=1)  # where no policy says for how long a sign of life counts
CLOCK_SLACK = timedelta(minutes=10)  # of ours, a machine's clock may be; what is later than that says nothing
MAX_IDLE = timedelta(days=366)  # without a sign of life: a machine with a wrong clock may say thousands of years
SHUT_DOWN = ("stopped", "deallocated")


def up_since(machine: Machine) -> datetime:
    """Return when the machine began to run, the latest that anybody says: it is better to spare one than to end it."""
    times = [machine.intended_at, machine.launched_at, machine.since if machine.state == "running" else None]
    times += [use.begin for use in machine.open_usage if use.resource == "instance" and not use.end]
    return from_iso(max(text for text in times if text))


def activity_evidence(view: MachineView, now: datetime) -> Evidence:
    """Return what is known of its use; of a node of a cluster what is known of the whole, where that was joined."""
    return own_activity_evidence(view, now) if view.whole is None else view.whole


def own_activity_evidence(view: MachineView, now: datetime) -> Evidence:
    """Return what is known of the use of this machine, whatever other nodes of its cluster do.

    A machine that is shut down and billed on is used by nobody. Samples that were read after the machine last wrote
    that it was in use say more than that word, and older ones that show use less; without samples a word within the
    window makes it ACTIVE, and an older one, or none, says nothing.
    """
    machine, judged = view.machine, view.judged
    if not view.answered:
        silent = f"{machine.region or machine.account} did not answer, so nothing is known of it"
        return Evidence(UNKNOWN, view.judged_fault or silent)
    if machine.state in SHUT_DOWN:
        return _shut_down(view, now)
    word = _word(view, now)
    if judged is None:
        return word or Evidence(UNKNOWN, _silence(view), asked=bool(view.judged_fault))
    quiet = min(timedelta(seconds=judged.ago), MAX_IDLE) if judged.ago >= 0 else None
    evidence = Evidence(str(judged.activity), evidence_text(judged), quiet)
    if word is None:
        return evidence
    if judged.activity == ACTIVE:
        return word if _is_later(word, evidence) and not _read_since(view) else evidence
    return evidence if judged.activity == IDLE and _read_since(view) else word


def evidence_text(judged: Judged) -> str:
    """Return why it was judged so, with the age of the last sign of life as people say it: `CPU, 1h 12m ago`.

    The agent has no room for such words; its own are seconds, and stay where it says what is missing.
    """
    seen = [signal for signal in judged.signals if signal.ago >= 0]
    if not seen or not judged.why.endswith(" s ago"):
        return judged.why
    last = min(seen, key=lambda one: (not one.counts, one.ago, one.what))
    return f"{last.what}, {duration_text(last.ago)} ago"


def window(view: MachineView) -> timedelta:
    """Return for how long a sign of life counts."""
    return DEFAULT_AFTER if view.policy is None else view.policy.idle.after


def _shut_down(view: MachineView, now: datetime) -> Evidence:
    machine = view.machine
    quiet = now - from_iso(machine.since or machine.seen_at or machine.intended_at)
    why = f"it is shut down, and billed on as its provider keeps its place, since {duration_text(quiet)}"
    if did_not_start(machine):
        why = f"its start was requested and did not happen: it is stopped since {duration_text(quiet)}"
    return Evidence(IDLE, why, quiet)


def did_not_start(machine: Machine) -> bool:
    """Say whether the start of a machine was requested, and it is stopped."""
    return machine.pending_action == "start" and machine.state in SHUT_DOWN and not machine.billed


def _word(view: MachineView, now: datetime) -> Evidence | None:
    """Return what the machine's own last word means; None: nothing."""
    if view.last_active is None:
        return None
    quiet = now - view.last_active
    if not -CLOCK_SLACK <= quiet < window(view):
        return None
    return Evidence(ACTIVE, f"it wrote {duration_text(max(quiet, timedelta(0)))} ago that it is in use", quiet)


def _is_later(word: Evidence, evidence: Evidence) -> bool:
    """Say whether the machine's own word tells of use after the last sign of life in its samples."""
    return word.quiet is not None and evidence.quiet is not None and word.quiet < evidence.quiet


def _read_since(view: MachineView) -> bool:
    """Say whether its samples were read after it last wrote that it is in use."""
    return view.reached_at is not None and view.last_active is not None and view.reached_at >= view.last_active


def _silence(view: MachineView) -> str:
    if has_no_agent(view.machine):
        return "no agent runs on it, so its use is not known"
    return view.judged_fault or "its use was not checked, as idle time could not end it now"


def warned_by_budget(machines: Sequence[Machine]) -> dict[str, int]:
    """Return how often each machine was warned that a budget is passed."""
    given = {row.id: row.warnings.get(Rule.BUDGET) for row in machines}
    return {machine: one.times for machine, one in given.items() if one}
