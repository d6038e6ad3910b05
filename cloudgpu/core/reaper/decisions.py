"""What a run knows about machines and their use (by samples, own reports or state), and its decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from cloudgpu.core.activity.idle import ACTIVE, IDLE, UNKNOWN, ActivityVerdict
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.policies.guards import has_no_agent
from cloudgpu.core.policies.policy import Policy, ReaperAction, Rule
from cloudgpu.core.values.times import duration_text, from_iso

if TYPE_CHECKING:
    from cloudgpu.core.clusters.engine import EngineStatus

ENDINGS = frozenset(
    {ReaperAction.STOP, ReaperAction.PARK, ReaperAction.TERMINATE, ReaperAction.IMAGE, ReaperAction.REMOVE}
)


class Evidence(NamedTuple):
    """Whether a machine is used, why that is thought, and how long ago its last use was (None: none was seen).

    `activity` is ACTIVE, IDLE or UNKNOWN. `asked`: somebody tried to find out; where nobody had to, UNKNOWN is no
    reason to tell anybody.
    """

    activity: str
    why: str
    unused_for: timedelta | None = None
    asked: bool = True


@dataclass(frozen=True, slots=True)
class MachineView:
    """All that is known of a machine when a run decides.

    `policy` None: its name cannot be resolved, `why_policy` says why; then only its lease counts. `judged` is what its
    samples show of its use (None: there are none, or it was not asked); `unknown_reason` says why where asking failed,
    and is empty where nobody had to ask. `last_active` is when it reported use itself, as can be read without SSH,
    `reached_at` when its samples were last read; times are aware UTC. `scratch` are (path, bytes used) of disks that a
    stop erases. `answered`: the provider said in this sync what it is; where it did not, `unknown_reason` may say why.
    `engine` is what the engine of its cluster said (None: it is not asked here), `cluster_evidence` what is known of
    the use of the whole cluster.
    """

    machine: Machine
    policy: Policy | None
    why_policy: str = ""
    judged: ActivityVerdict | None = None
    last_active: datetime | None = None
    reached_at: datetime | None = None
    scratch: tuple[tuple[str, int], ...] = ()
    answered: bool = True
    unknown_reason: str = ""
    engine: EngineStatus | None = None
    cluster_evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class DueWarning:
    """A warning to give a machine's people now: `rule` ends it at `due` (None: it does not), and why."""

    rule: Rule
    due: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class WithdrawnWarning:
    """A warning that no longer applies, and why."""

    rule: Rule
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The action to take with one machine (`do`), by which rule and why: one sentence for people. Executed elsewhere.

    `at` is when it will be ended if nothing changes (None: nothing says so); of a renewal, the lease's new end. `after`
    is when a warning has been waited out: an end with an `after` that is still to come, by seconds at most
    (`MAX_WAIT`), is waited for in the run. Whatever is done, `warnings` are to be given and `withdrawn` ones taken
    back, each as a line. `urgent`: somebody should hear of it now. `cluster` names the one that it is decided of as a
    whole. `runs`: the machine runs or may run; `activity` says nothing of another one.
    """

    machine: str
    name: str
    do: ReaperAction
    rule: Rule
    why: str
    at: datetime | None = None
    after: datetime | None = None
    activity: str = UNKNOWN
    runs: bool = True
    urgent: bool = False
    warnings: tuple[DueWarning, ...] = ()
    withdrawn: tuple[WithdrawnWarning, ...] = ()
    cluster: str = ""

    @property
    def display_name(self) -> str:
        """What people call what it is decided of: the cluster, or the machine."""
        return self.cluster or self.name

    @property
    def ends(self) -> bool:
        """Whether something is stopped, ended or removed by it."""
        return self.do in ENDINGS


DEFAULT_AFTER = timedelta(hours=1)  # where no policy says for how long a sign of life counts
CLOCK_SLACK = timedelta(minutes=10)  # a machine's clock may be ahead of ours by so much; a later report is ignored
MAX_IDLE = timedelta(days=366)  # without a sign of life: a machine with a wrong clock may say thousands of years
STOPPED_STATES = ("stopped", "deallocated")
STOPS_WITHIN = timedelta(minutes=30)  # a shutdown that takes longer hangs, and some clouds bill it until it is over


def up_since(machine: Machine) -> datetime:
    """Return when the machine began to run, the latest that anybody says: it is better to spare one than to end it."""
    times = [machine.intended_at, machine.launched_at, machine.since if machine.state == "running" else None]
    times += [use.begin for use in machine.open_usage if use.resource == "instance" and not use.end]
    return from_iso(max(text for text in times if text))


def stopped_since(machine: Machine) -> datetime:
    """Return when a machine stopped: at the latest when it was seen so."""
    return from_iso(machine.since or machine.seen_at or machine.intended_at)


def image_since(machine: Machine) -> datetime | None:
    """Return since when the newest image of a machine that is gone, or one that is kept by name, is there."""
    made = [entry.made_at for entry in machine.retained if entry.kind == Kind.IMAGE]
    known = [text for text in made if text]
    return (
        from_iso(max(known))
        if known
        else from_iso(not_none(machine.terminated_at or machine.seen_at))
        if made
        else None
    )


def activity_evidence(view: MachineView, now: datetime) -> Evidence:
    """Return what is known of its use; of a node of a cluster what is known of the whole, where that was joined."""
    return own_activity_evidence(view, now) if view.cluster_evidence is None else view.cluster_evidence


def own_activity_evidence(view: MachineView, now: datetime) -> Evidence:
    """Return what is known of the use of this machine, whatever other nodes of its cluster do.

    A machine that is shut down and billed on is used by nobody. Samples read after the machine last reported use
    take precedence over that report; without newer samples, a report within the window makes it ACTIVE, and an older
    one, or none, says nothing.
    """
    machine, judged = view.machine, view.judged
    if not view.answered:
        problem = f"{machine.region or machine.account} did not answer, so nothing is known of it"
        return Evidence(UNKNOWN, view.unknown_reason or problem)
    if machine.state in STOPPED_STATES or hangs_in_stop(machine, now):
        return _shut_down_evidence(view, now)
    self_report = _self_report_evidence(view, now)
    if judged is None:
        return self_report or Evidence(UNKNOWN, _why_unknown(view), asked=bool(view.unknown_reason))
    unused_for = min(timedelta(seconds=judged.ago), MAX_IDLE) if judged.ago >= 0 else None
    evidence = Evidence(str(judged.activity), evidence_text(judged), unused_for)
    if self_report is None:
        return evidence
    if judged.activity == ACTIVE:
        return self_report if _is_later(self_report, evidence) and not _read_since(view) else evidence
    return evidence if judged.activity == IDLE and _read_since(view) else self_report


def evidence_text(judged: ActivityVerdict) -> str:
    """Return why it was judged so, with the age of the last sign of life as people say it: `CPU, 1h 12m ago`.

    The agent's own texts, which must be short, give ages in seconds.
    """
    seen_signals = [signal for signal in judged.signals if signal.ago >= 0]
    if not seen_signals or not judged.why.endswith(" s ago"):
        return judged.why
    last = min(seen_signals, key=lambda signal: (not signal.counts, signal.ago, signal.what))
    return f"{last.what}, {duration_text(last.ago)} ago"


def activity_window(view: MachineView) -> timedelta:
    """Return for how long a sign of life counts."""
    return DEFAULT_AFTER if view.policy is None else view.policy.idle.after


def hangs_in_stop(machine: Machine, now: datetime) -> bool:
    """Say whether a machine has been stopping for longer than any does, and is billed on. Not a cluster's node."""
    is_stopping = machine.state == "stopping" and bool(machine.billed) and machine.cluster is None
    return is_stopping and now - stopped_since(machine) >= STOPS_WITHIN


def _shut_down_evidence(view: MachineView, now: datetime) -> Evidence:
    machine = view.machine
    unused_for = now - from_iso(machine.since or machine.seen_at or machine.intended_at)
    why = f"it is shut down, and billed on as its provider keeps its place, since {duration_text(unused_for)}"
    if machine.state not in STOPPED_STATES:
        why = f"it has been stopping for {duration_text(unused_for)}, and is billed on"
    if did_not_start(machine):
        why = f"its start was requested and did not happen: it is stopped since {duration_text(unused_for)}"
    return Evidence(IDLE, why, unused_for)


def did_not_start(machine: Machine) -> bool:
    """Say whether the start of a machine was requested, and it is stopped."""
    return machine.pending_action == "start" and machine.state in STOPPED_STATES and not machine.billed


def _self_report_evidence(view: MachineView, now: datetime) -> Evidence | None:
    """Return what the machine's last report of use means; None: nothing."""
    if view.last_active is None:
        return None
    unused_for = now - view.last_active
    if not -CLOCK_SLACK <= unused_for < activity_window(view):
        return None
    return Evidence(
        ACTIVE, f"it wrote {duration_text(max(unused_for, timedelta(0)))} ago that it is in use", unused_for
    )


def _is_later(self_report: Evidence, evidence: Evidence) -> bool:
    """Say whether the machine reported use after the last sign of life in its samples."""
    return (
        self_report.unused_for is not None
        and evidence.unused_for is not None
        and self_report.unused_for < evidence.unused_for
    )


def _read_since(view: MachineView) -> bool:
    """Say whether its samples were read after it last wrote that it is in use."""
    return view.reached_at is not None and view.last_active is not None and view.reached_at >= view.last_active


def _why_unknown(view: MachineView) -> str:
    if has_no_agent(view.machine):
        return "no agent runs on it, so its use is not known"
    return view.unknown_reason or "its use was not checked, as idle time could not end it now"


def budget_warning_counts(machines: Sequence[Machine]) -> dict[str, int]:
    """Return how often each machine was warned that a budget is passed."""
    return {machine.id: machine.warnings[Rule.BUDGET].times for machine in machines if Rule.BUDGET in machine.warnings}
