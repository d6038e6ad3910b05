"""Explains why a machine counts as active, idle or unknown: from the samples kept here, or by querying it now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cloudgpu.control.activity.agents import ask_activity, probe
from cloudgpu.control.clusters.together import living_nodes
from cloudgpu.control.reaper.observe import cluster_nodes, view_without_report
from cloudgpu.core.activity.agent_status import DAY_S
from cloudgpu.core.activity.idle import ACTIVE, FRESH_S, UNKNOWN, ActivityVerdict, Signal, Thresholds, judge
from cloudgpu.core.clusters.engine import EngineStatus, is_queried, read_engine
from cloudgpu.core.model.machine import Machine, may_be_running
from cloudgpu.core.policies.policy import thresholds
from cloudgpu.core.reaper.clusters import with_cluster_activity
from cloudgpu.core.reaper.decide import RUN_INTERVAL, decide
from cloudgpu.core.reaper.decisions import MachineView, budget_warning_counts, evidence_text, up_since
from cloudgpu.core.reaper.seen import LastUseAtProvider, with_last_use_at_provider, with_provider_fault
from cloudgpu.core.values.times import duration_text, iso
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.ledger.samples.store import SampleStore
from cloudgpu.views.reaper import why_document

if TYPE_CHECKING:
    from cloudgpu.config.policies.chosen import ChosenPolicy
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.activity.report import Report
    from cloudgpu.core.budgets.enforcement import PlannedStop
    from cloudgpu.views.documents.automation.activity import WhyDocument

ENGINE_NOT_QUERIED = "its engine is not asked here; to ask it, add --refresh"
STALE_AFTER = 2 * RUN_INTERVAL  # older samples say nothing about now


@dataclass(frozen=True, slots=True)
class ActivitySource:
    """What is known of a machine's activity: the verdict as of `at` (None: nothing), and `how`: live, samples or none.

    `fault` is why nothing is known. Only a live answer has `scratch`, (path, bytes used) of disks that a stop erases,
    and `engine`, the state of the cluster's job queue.
    """

    judged: ActivityVerdict | None
    at: datetime | None
    how: str
    fault: str = ""
    scratch: tuple[tuple[str, int], ...] = ()
    engine: EngineStatus | None = None


def build_why_document(session: Session, machine: Machine, *, is_live: bool) -> WhyDocument:
    """Return why a machine counts as active or idle, and when it would be ended: the document of `show --why`.

    `is_live`: it is queried now over SSH and at its provider, and its samples are kept; else by the samples kept here.
    Writes nothing into the ledger and stops nothing. Raises InvalidRequest for a machine that has ended, and for a
    policy or limits that cannot be read.
    """
    from cloudgpu.config.policies.chosen import check_readable
    from cloudgpu.control.policies.resolve import policies_of

    if machine.terminated_at:
        raise InvalidRequest(
            f"{machine.name} has ended, so it is no longer checked for use.",
            field="--why",
            value=machine.name,
            next=f"To see why it ended, run: cloudgpu show {machine.name} --history",
        )
    nodes = living_nodes(session, machine)
    policies, now = policies_of(session, nodes), session.clock()
    check_readable(policies)
    activity_thresholds = {id_: _thresholds(policy) for id_, policy in policies.items()}
    is_live = is_live and may_be_running(machine)
    sources = (
        _query(session, nodes, activity_thresholds)
        if is_live
        else {node.id: stored_samples(session, node, activity_thresholds[node.id]) for node in nodes}
    )
    answers = ask_activity(session, nodes, store=False) if is_live else {}
    views = with_cluster_activity(
        [_view(node, policies[node.id], sources[node.id], answers.get(node.id), now) for node in nodes], now
    )
    machines = cluster_nodes(session, views, include_locked=False)
    decisions = decide(views, _budget_stops(session, nodes), now, interval=RUN_INTERVAL, machines=machines)
    view, decision = next(pair for pair in zip(views, decisions, strict=True) if pair[0].machine.id == machine.id)
    source = sources[machine.id]
    signals_source = (
        stored_samples(session, machine, activity_thresholds[machine.id])
        if source.judged is None and source.how == "live"
        else source
    )
    stop_reason = None if may_be_running(machine) else _stop_reason(session, machine)
    document = why_document(
        view, decision, now, at=source.at, how=source.how, judged=signals_source.judged, stop_reason=stop_reason
    )
    document["source"]["signals_at"] = iso(signals_source.at) if signals_source.at is not None else None
    return document


def _thresholds(policy: ChosenPolicy) -> Thresholds:
    return Thresholds() if policy.policy is None else thresholds(policy.policy)


def _view(
    machine: Machine, chosen: ChosenPolicy, source: ActivitySource, answer: LastUseAtProvider, now: datetime
) -> MachineView:
    """Return the machine as the reaper would evaluate it, by what is known of its activity."""
    view = with_last_use_at_provider(view_without_report(machine, chosen), answer)
    return with_provider_fault(with_source(view, source, now), answer)


def _stop_reason(session: Session, machine: Machine) -> str | None:
    """Return why a machine was asked to stop; None where nobody asked since it was last started."""
    kinds = ("stop_requested", "park_requested", "start_requested")
    events = [event for event in session.ledger.events(machine.id) if event.kind in kinds]
    return str(events[-1].body["why"]) if events and events[-1].kind != "start_requested" else None


def with_source(view: MachineView, source: ActivitySource, now: datetime) -> MachineView:
    """Return the view with what is known of its activity, unless that is too old."""
    if is_queried(view.machine):
        view = replace(view, engine=source.engine or EngineStatus(None, ENGINE_NOT_QUERIED, was_queried=False))
    if source.judged is None or source.at is None:
        return replace(view, unknown_reason=source.fault)
    if now - source.at > STALE_AFTER:
        return replace(view, unknown_reason=f"its samples were last read {duration_text(now - source.at)} ago")
    return replace(view, judged=source.judged, reached_at=source.at, scratch=source.scratch)


def _query(
    session: Session, machines: Sequence[Machine], activity_thresholds: Mapping[str, Thresholds]
) -> dict[str, ActivitySource]:
    """Query the running machines; return the sources of all, from stored samples where there is no answer."""
    reports = probe(session, [machine for machine in machines if may_be_running(machine)])
    stored = {
        machine.id: stored_samples(session, machine, activity_thresholds[machine.id])
        for machine in machines
        if machine.id not in reports
    }
    return {id_: _agent_source(report, activity_thresholds[id_]) for id_, report in reports.items()} | stored


def _agent_source(report: Report, activity_thresholds: Thresholds) -> ActivitySource:
    """Return what an agent has just reported, or why it did not."""
    engine = read_engine(report.engine) if report.engine else None
    if report.machine_now is None:
        return ActivitySource(None, None, "live", report.fault, engine=engine or EngineStatus(None, report.fault))
    return ActivitySource(
        report.judged(activity_thresholds), report.asked_at, "live", scratch=report.scratch, engine=engine
    )


def stored_samples(session: Session, machine: Machine, activity_thresholds: Thresholds) -> ActivitySource:
    """Return the activity by the samples kept here: as of now while they are fresh.

    Older samples are evaluated as of the last of them, and the ages in the result are counted up to now.
    """
    if not may_be_running(machine):
        return ActivitySource(None, None, "none", f"it is {machine.state}")
    store, began_s = SampleStore(session.home.samples, machine.id), up_since(machine).timestamp()
    last_s = store.last()
    if last_s <= began_s:
        return ActivitySource(None, None, "none", "this computer has no samples of it since its latest start")
    age_s = max(0.0, session.clock().timestamp() - last_s)
    fresh_s = age_s if age_s < FRESH_S else 0.0  # fresh samples count as of now
    judged = judge(store.read(last_s - DAY_S, last_s), activity_thresholds, last_s + fresh_s, began_s)
    return ActivitySource(
        _age_judgement(judged, age_s - fresh_s, activity_thresholds.after),
        datetime.fromtimestamp(last_s, UTC),
        "samples",
    )


def _age_judgement(judged: ActivityVerdict, age_s: float, window_s: float) -> ActivityVerdict:
    """Return an activity that was evaluated `age_s` seconds ago, with its ages as they are now.

    A machine that was active then, but whose last sign of life has left the window since, is UNKNOWN: there may have
    been another one of which no sample is kept here.
    """
    signals = tuple(_age_signal(signal, age_s, window_s) for signal in judged.signals)
    aged = judged._replace(ago=judged.ago + age_s if judged.ago >= 0 else judged.ago, signals=signals)
    if judged.activity != ACTIVE or aged.ago < window_s:
        return aged
    reason = f"{evidence_text(aged)}, and of the last {duration_text(age_s)} nothing is kept here"
    return aged._replace(activity=UNKNOWN, why=reason)


def _age_signal(signal: Signal, age_s: float, window_s: float) -> Signal:
    """Return a signal `age_s` seconds later: its age has grown, and it counts only within the window."""
    ago = signal.ago + age_s if signal.ago >= 0 else signal.ago
    is_age = signal.value is not None and signal.what in ("terminal input", "terminal output", "kernel", "start")
    value = signal.value + age_s if is_age else signal.value
    return signal._replace(ago=ago, value=value, counts=signal.counts and ago < window_s)


def _budget_stops(session: Session, machines: Sequence[Machine]) -> list[PlannedStop]:
    """Return the budgets' stops of these machines; none if a budget cannot be read."""
    from cloudgpu.control.budgets.store import budget_states, budgets
    from cloudgpu.core.budgets.enforcement import budget_stops

    with suppress(CloudgpuError):
        all_budgets = budgets(session)
        return (
            budget_stops(
                budget_states(session, all_budgets), machines, budget_warning_counts(machines), session.clock()
            )
            if all_budgets
            else []
        )
    return []
