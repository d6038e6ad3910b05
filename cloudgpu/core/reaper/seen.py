"""What is known of a machine before it is judged: its last use by its provider, and what its agent said over SSH."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from cloudgpu.core.activity.idle import Thresholds
from cloudgpu.core.activity.report import Report
from cloudgpu.core.clusters.engine import EngineStatus, is_queried, read_engine
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.machine import Machine, may_be_running
from cloudgpu.core.policies.guards import has_no_agent
from cloudgpu.core.policies.policy import Policy, RuleAction, thresholds
from cloudgpu.core.reaper.clusters import group_by_cluster
from cloudgpu.core.reaper.decisions import MachineView, up_since
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError

ASK_BEFORE_END = timedelta(minutes=60)  # before the end of a lease people are told, unless the machine is in use


# When a machine was last in use, as its provider passes it on from the machine, for one whose agent answers no SSH
# (that answer is a `Report`). The error where that could not be read; None: nothing yet.
LastUseAtProvider = datetime | CloudgpuError | None


def with_last_use_at_provider(view: MachineView, report: LastUseAtProvider) -> MachineView:
    """Return it with when the machine has just reported that it was in use, where it has."""
    return replace(view, last_active=report) if isinstance(report, datetime) else view


def with_provider_fault(view: MachineView, report: LastUseAtProvider) -> MachineView:
    """Return it with why its provider does not give the machine's report either, where its agent was not reached."""
    if not isinstance(report, CloudgpuError) or not view.unknown_reason:
        return view
    fault = f"{view.unknown_reason}; {view.machine.provider} does not tell its word: {report.message.removesuffix('.')}"
    return replace(view, unknown_reason=fault)


def with_report(view: MachineView, report: Report | None) -> MachineView:
    """Return it with what its agent has just said; as it is where that was not asked."""
    if report is None:
        return view
    if is_queried(view.machine):
        silent = EngineStatus(None, report.fault or "its machine did not tell it")
        view = replace(view, engine=read_engine(report.engine) if report.engine else silent)
    if report.machine_now is None:
        return replace(view, judged=None, unknown_reason=report.fault or "its agent reported nothing")
    judged = report.judged(Thresholds() if view.policy is None else thresholds(view.policy))
    return replace(view, judged=judged, reached_at=report.asked_at, scratch=report.scratch, unknown_reason="")


def to_ask(views: Sequence[MachineView], now: datetime) -> list[Machine]:
    """Return the machines to ask what they do: of a cluster all that run, or none, as they are judged together."""
    return [machine for group in group_by_cluster(views) for machine in _to_ask(group, now)]


def _to_ask(group: Sequence[MachineView], now: datetime) -> Iterator[Machine]:
    if not any(is_to_ask(view, now) for view in group):
        return
    if group[0].machine.cluster is not None and any(_has_reported_use(view, now) for view in group):
        return  # one node in use is enough
    for view in group:
        if is_to_ask(view, now) or (view.machine.cluster is not None and _can_tell(view)):
            yield view.machine


def is_to_ask(view: MachineView, now: datetime) -> bool:
    """Say whether what this machine does can change what is decided, and only it can tell."""
    machine, policy = view.machine, view.policy
    if not _can_tell(view) or _is_settled(machine, now) or _has_reported_use(view, now):
        return False
    ends_soon = machine.expires is not None and from_iso(machine.expires) - now <= ASK_BEFORE_END
    return ends_soon or _could_be_idle(machine, policy, _window(policy), now)


def _can_tell(view: MachineView) -> bool:
    """Say whether it runs, and has an agent that can say what it does."""
    machine = view.machine
    runs = (
        machine.terminated_at is None
        and machine.state == State.RUNNING
        and machine.launch_status == "made"
        and may_be_running(machine)
    )
    return runs and view.answered and not has_no_agent(machine)


def _has_reported_use(view: MachineView, now: datetime) -> bool:
    """Say whether its own latest report makes it a machine in use."""
    return view.last_active is not None and timedelta(0) <= now - view.last_active < _window(view.policy)


def _window(policy: Policy | None) -> timedelta:
    return policy.idle.after if policy is not None else timedelta(seconds=Thresholds().after)


def _is_settled(machine: Machine, now: datetime) -> bool:
    """Say whether what it does changes nothing: it is held, or past its renew-until."""
    held = machine.hold_until is not None and from_iso(machine.hold_until) > now
    return held or (machine.renew_until is not None and from_iso(machine.renew_until) <= now)


def _could_be_idle(machine: Machine, policy: Policy | None, window: timedelta, now: datetime) -> bool:
    if policy is None or (policy.idle.do is RuleAction.DISABLED and policy.unlabelled is None):
        return False
    return now - up_since(machine) >= max(window, policy.idle.uptime)


def with_machine(view: MachineView, machine: Machine) -> MachineView:
    """Return the view with a newer record of its machine; a report of use that the ledger lacks still counts."""
    written = from_iso(machine.last_active) if machine.last_active else None
    return replace(view, machine=machine, last_active=max(filter(None, (written, view.last_active)), default=None))
