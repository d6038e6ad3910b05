"""Answers why a machine counts as what it does: from the samples kept here, or by asking it now."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cloudgpu.control.activity.agents import ask_activity, probe
from cloudgpu.control.reaper.observe import cluster_nodes
from cloudgpu.control.session.session import living_machines
from cloudgpu.core.activity.agent_status import DAY
from cloudgpu.core.activity.idle import FRESH_S, Judged, Signal, Thresholds, judge
from cloudgpu.core.clusters.engine import EngineSaid, read_engine, tells_queue
from cloudgpu.core.model.machine import Machine, may_be_running
from cloudgpu.core.policies.policy import thresholds
from cloudgpu.core.reaper.clusters import with_cluster_activity
from cloudgpu.core.reaper.decide import decide
from cloudgpu.core.reaper.decisions import ACTIVE, UNKNOWN, MachineView, evidence_text, up_since, warned_by_budget
from cloudgpu.core.reaper.seen import Word, with_silence, with_word
from cloudgpu.core.values.times import duration_text, from_iso, iso
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.ledger.samples.store import SampleStore
from cloudgpu.views.reaper import why_value

if TYPE_CHECKING:
    from cloudgpu.config.policies.chosen import ChosenPolicy
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.activity.report import Report
    from cloudgpu.core.budgets.enforcement import Stop
    from cloudgpu.views.documents.automation.activity import WhyDocument

INTERVAL = timedelta(minutes=10)  # how often runs come, where nobody says otherwise
ENGINE_NOT_QUERIED = "its engine is not asked here; to ask it, add --refresh"
STALE = 2 * INTERVAL  # samples that are older say what was, and nothing of now


@dataclass(frozen=True, slots=True)
class Source:
    """What is known of a machine's use: `judged` as of `at` (None: nothing), and `how` it came to be known."""

    judged: Judged | None
    at: datetime | None
    how: str
    fault: str = ""
    scratch: tuple[tuple[str, int], ...] = ()
    engine: EngineSaid | None = None


def why_document(session: Session, machine: Machine, *, ask: bool) -> WhyDocument:
    """Return why a machine counts as what it does and when it would be ended: a document, as `show --why` prints it.

    `ask`: over SSH and of its provider, now, keeping its samples; else from what is kept here. Writes no ledger and
    stops nothing. Raises InvalidRequest for a policy or limits that cannot be read.
    """
    from cloudgpu.control.policies.resolve import policy_of

    policy, now = policy_of(session, machine), session.clock()
    if policy.broken is not None:
        raise policy.broken
    limits = Thresholds() if policy.policy is None else thresholds(policy.policy)
    ask = ask and may_be_running(machine)
    nodes = [machine] if machine.cluster is None else _nodes(session, machine)
    sources = _query(session, nodes, limits) if ask else {one.id: stored_samples(session, one, limits) for one in nodes}
    answers = ask_activity(session, nodes, store=False) if ask else {}
    views = with_cluster_activity([_view(one, policy, sources[one.id], answers.get(one.id), now) for one in nodes], now)
    machines = cluster_nodes(session, views, at_work=False)
    decisions = decide(views, _budget_stops(session, nodes), now, interval=INTERVAL, machines=machines)
    view, decision = next(pair for pair in zip(views, decisions, strict=True) if pair[0].machine.id == machine.id)
    source = sources[machine.id]
    aged = stored_samples(session, machine, limits) if source.judged is None and source.how == "live" else source
    stop_reason = None if may_be_running(machine) else _stop_reason(session, machine)
    document = why_value(view, decision, now, at=source.at, how=source.how, judged=aged.judged, stop_reason=stop_reason)
    document["source"]["signals_at"] = iso(aged.at) if aged.at is not None else None
    return document


def _nodes(session: Session, machine: Machine) -> list[Machine]:
    """Return the machines that are judged with this node of a cluster, itself as it is given."""
    others = living_machines(session.ledger.machines())
    return [machine, *(one for one in others if one.id != machine.id and _cluster_id(one) == _cluster_id(machine))]


def _cluster_id(machine: Machine) -> str:
    return "" if machine.cluster is None else machine.cluster.id


def _view(machine: Machine, chosen: ChosenPolicy, source: Source, word: Word, now: datetime) -> MachineView:
    last_active = from_iso(machine.last_active) if machine.last_active else None
    view = with_word(MachineView(machine, chosen.policy, chosen.why, last_active=last_active), word)
    return with_silence(with_source(view, source, now), word)


def _stop_reason(session: Session, machine: Machine) -> str | None:
    """Return why a machine was asked to stop; None where nobody asked since it was last started."""
    kinds = ("stop_requested", "park_requested", "start_requested")
    lines = [line for line in session.ledger.events(machine.id) if line.kind in kinds]
    return str(lines[-1].body["why"]) if lines and lines[-1].kind != "start_requested" else None


def with_source(view: MachineView, source: Source, now: datetime) -> MachineView:
    """Return it with what is known of its use; what is known of too long ago is no knowledge of now."""
    if tells_queue(view.machine):
        view = replace(view, engine=source.engine or EngineSaid(None, ENGINE_NOT_QUERIED, asked=False))
    if source.judged is None or source.at is None:
        return replace(view, judged_fault=source.fault)
    if now - source.at > STALE:
        return replace(view, judged_fault=f"its samples were last read {duration_text(now - source.at)} ago")
    return replace(view, judged=source.judged, reached_at=source.at, scratch=source.scratch)


def _query(session: Session, machines: Sequence[Machine], limits: Thresholds) -> dict[str, Source]:
    """Ask the machines; of a cluster that one is of which a user wants to know, the others that run are asked, too."""
    running = [one for one in machines if may_be_running(one)]
    reports = probe(session, running)
    stored = {one.id: stored_samples(session, one, limits) for one in machines if one.id not in reports}
    return {one: _agent_source(report, limits) for one, report in reports.items()} | stored


def _agent_source(report: Report, limits: Thresholds) -> Source:
    engine = read_engine(report.engine) if report.engine else None
    if report.machine_now is None:
        return Source(None, None, "live", report.fault, engine=engine or EngineSaid(None, report.fault))
    return Source(report.judged(limits), report.asked_at, "live", scratch=report.scratch, engine=engine)


def stored_samples(session: Session, machine: Machine, limits: Thresholds) -> Source:
    """Return what the samples kept here say: now, while they are as fresh as an agent's own have to be.

    Those that are older are judged as of the last of them, and their ages are counted up to now.
    """
    if not may_be_running(machine):
        return Source(None, None, "none", f"it is {machine.state}")
    store, began = SampleStore(session.home.samples, machine.id), up_since(machine).timestamp()
    last_at = store.last()
    if last_at <= began:
        return Source(None, None, "none", "this computer has no samples of it since its latest start")
    age = max(0.0, session.clock().timestamp() - last_at)
    fresh = age if age < FRESH_S else 0.0
    judged = judge(store.read(last_at - DAY, last_at), limits, last_at + fresh, began)
    return Source(_age_judgement(judged, age - fresh, limits.after), datetime.fromtimestamp(last_at, UTC), "samples")


def _age_judgement(judged: Judged, age: float, after: float) -> Judged:
    """Return what was judged `age` seconds ago with its ages as they are now.

    One that was in use then, and whose last sign of life has left the window since, is UNKNOWN: it may have shown
    another one of which nothing is kept here.
    """
    signals = tuple(_age_signal(one, age, after) for one in judged.signals)
    aged = judged._replace(ago=judged.ago + age if judged.ago >= 0 else judged.ago, signals=signals)
    if judged.activity != ACTIVE or aged.ago < after:
        return aged
    reason = f"{evidence_text(aged)}, and of the last {duration_text(age)} nothing is kept here"
    return aged._replace(activity=UNKNOWN, why=reason)


def _age_signal(signal: Signal, age: float, after: float) -> Signal:
    ago = signal.ago + age if signal.ago >= 0 else signal.ago
    value = signal.value + age if _is_age(signal.what, signal.value) else signal.value
    return signal._replace(ago=ago, value=value, counts=signal.counts and ago < after)


def _is_age(what: str, value: Any) -> bool:
    return value is not None and what in ("terminal input", "terminal output", "kernel", "start")


def _budget_stops(session: Session, machines: Sequence[Machine]) -> list[Stop]:
    """Return the budgets' stops of these machines; none if a budget cannot be read."""
    from cloudgpu.control.budgets.store import budget_states, budgets
    from cloudgpu.core.budgets.enforcement import budget_stops

    with suppress(CloudgpuError):
        all_budgets = budgets(session)
        return (
            budget_stops(budget_states(session, all_budgets), machines, warned_by_budget(machines), session.clock())
            if all_budgets
            else []
        )
    return []


def explain_machine(session: Session, machine: Machine, *, refresh: bool) -> WhyDocument:
    """Return `why_document` for a machine that there is; raise InvalidRequest for one that has ended."""
    if machine.terminated_at:
        raise InvalidRequest(
            f"{machine.name} has ended, so it is no longer checked for use.",
            field="--why",
            value=machine.name,
            next=f"To see why it ended, run: cloudgpu show {machine.name} --history",
        )
    return why_document(session, machine, ask=refresh)
