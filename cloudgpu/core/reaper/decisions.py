"""What a run knows about machines and their use (by samples, own reports or state), and its decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from cloudgpu.core.activity.idle import Judged
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.policies.guards import has_no_agent
from cloudgpu.core.policies.policy import Policy, ReaperAction, Rule
from cloudgpu.core.values.times import duration_text, from_iso

if TYPE_CHECKING:
    from cloudgpu.core.clusters.engine import EngineStatus

ACTIVE, IDLE, UNKNOWN = "ACTIVE", "IDLE", "UNKNOWN"
ENDINGS = frozenset(
    {ReaperAction.STOP, ReaperAction.PARK, ReaperAction.TERMINATE, ReaperAction.IMAGE, ReaperAction.REMOVE}
)


class Evidence(NamedTuple):
    """Whether a machine is used, why that is thought, and how long ago the last sign of life was (None: none seen).

    `asked`: somebody tried to find out; where nobody had to, UNKNOWN is no news.
    """

    activity: str
    why: str
    quiet: timedelta | None = None
    asked: bool = True


@dataclass(frozen=True, slots=True)
class MachineView:
    """All that is known of a machine when a run decides.

    `policy` None: its name cannot be resolved, `why_policy` says why; then only its lease counts. `judged` None:
    nothing is known of what it does, or it was not asked; `judged_fault` says why where asking failed, and is empty
    where nobody had to ask. `last_active` is when it reported use itself, as can be read without SSH, `reached_at` when
    its samples were last read; times are aware UTC. `scratch` are (path, bytes used) of disks that a stop erases.
    `answered`: the provider said in this sync what it is; where it did not, `judged_fault` may say why. `engine` is
    what the engine of its cluster said (None: it is not asked here), `whole` what is known of the use of the whole
    cluster.
    """

    machine: Machine
    policy: Policy | None
    why_policy: str = ""
    judged: Judged | None = None
    last_active: datetime | None = None
    reached_at: datetime | None = None
    scratch: tuple[tuple[str, int], ...] = ()
    answered: bool = True
    judged_fault: str = ""
    engine: EngineStatus | None = None
    whole: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Warned:
    """Something to tell a machine's people: that `rule` ends it at `due` (None: it does not), and why, a sentence."""

    rule: Rule
    due: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class Lifted:
    """A warning that holds no more, and why."""

    rule: Rule
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with one machine, and why: one sentence for people. It is carried out elsewhere.

    `at` is when it will be ended if nothing changes (None: nothing says so); of a renewal, the lease's new end.
    `after` is when a warning has been waited out: an end with an `after` that is still to come, by seconds at most
    (`MAX_WAIT`), is waited for in the run. Whatever is done, `warnings` are to be given and `lifted` ones taken back,
    each as a line. `urgent`: somebody should hear of it now. `cluster` names the one that it is decided of
    as a whole.
    """

    machine: str
    name: str
    do: ReaperAction
    rule: Rule
    why: str
    at: datetime | None = None
    after: datetime | None = None
    activity: str = UNKNOWN
    urgent: bool = False
    warnings: tuple[Warned, ...] = ()
    lifted: tuple[Lifted, ...] = ()
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

    A machine that is shut down and billed on is used by nobody. Samples read after the machine last reported use
    take precedence over that report; without newer samples, a report within the window makes it ACTIVE, and an older
    one, or none, says nothing.
    """
    machine, judged = view.machine, view.judged
    if not view.answered:
        problem = f"{machine.region or machine.account} did not answer, so nothing is known of it"
        return Evidence(UNKNOWN, view.judged_fault or problem)
    if machine.state in SHUT_DOWN:
        return _shut_down(view, now)
    self_report = _self_report_evidence(view, now)
    if judged is None:
        return self_report or Evidence(UNKNOWN, _why_unknown(view), asked=bool(view.judged_fault))
    quiet = min(timedelta(seconds=judged.ago), MAX_IDLE) if judged.ago >= 0 else None
    evidence = Evidence(str(judged.activity), evidence_text(judged), quiet)
    if self_report is None:
        return evidence
    if judged.activity == ACTIVE:
        return self_report if _is_later(self_report, evidence) and not _read_since(view) else evidence
    return evidence if judged.activity == IDLE and _read_since(view) else self_report


def evidence_text(judged: Judged) -> str:
    """Return why it was judged so, with the age of the last sign of life as people say it: `CPU, 1h 12m ago`.

    The agent's own texts, which must be short, give ages in seconds.
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


def _self_report_evidence(view: MachineView, now: datetime) -> Evidence | None:
    """Return what the machine's last report of use means; None: nothing."""
    if view.last_active is None:
        return None
    quiet = now - view.last_active
    if not -CLOCK_SLACK <= quiet < window(view):
        return None
    return Evidence(ACTIVE, f"it wrote {duration_text(max(quiet, timedelta(0)))} ago that it is in use", quiet)


def _is_later(self_report: Evidence, evidence: Evidence) -> bool:
    """Say whether the machine reported use after the last sign of life in its samples."""
    return self_report.quiet is not None and evidence.quiet is not None and self_report.quiet < evidence.quiet


def _read_since(view: MachineView) -> bool:
    """Say whether its samples were read after it last wrote that it is in use."""
    return view.reached_at is not None and view.last_active is not None and view.reached_at >= view.last_active


def _why_unknown(view: MachineView) -> str:
    if has_no_agent(view.machine):
        return "no agent runs on it, so its use is not known"
    return view.judged_fault or "its use was not checked, as idle time could not end it now"


def warned_by_budget(machines: Sequence[Machine]) -> dict[str, int]:
    """Return how often each machine was warned that a budget is passed."""
    return {row.id: row.warnings[Rule.BUDGET].times for row in machines if Rule.BUDGET in row.warnings}
