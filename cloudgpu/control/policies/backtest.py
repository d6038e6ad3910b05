"""Replays a policy on the past as this home knows it: by the ledger's events and the samples that are kept here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudgpu.config.files.user_files import data_dir, zone_of
from cloudgpu.config.files.yaml import read_yaml
from cloudgpu.config.policies.find import FoundPolicy, policy_from
from cloudgpu.control.inputs.launch_request import parse_optional_duration
from cloudgpu.control.inputs.periods import Moment, parse_past_moment
from cloudgpu.control.policies.resolve import limits_of, policy_named
from cloudgpu.control.session.session import Session, find_machine_or_nodes
from cloudgpu.core.activity.agent_status import DAY_S
from cloudgpu.core.model.machine import Machine, node_of
from cloudgpu.core.model.usage import Resource, Usage
from cloudgpu.core.policies.policy import limit_policy
from cloudgpu.core.reaper.backtest import MachineHistory, backtest, joined_runs, only_while_it_runs, runs_of
from cloudgpu.core.reaper.replay import RecordedHistory
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import InvalidRequest
from cloudgpu.ledger.samples.store import RETENTION, SampleStore
from cloudgpu.views.advice.backtest import BacktestedPolicy, backtest_document

if TYPE_CHECKING:
    from cloudgpu.views.documents.automation.backtest import BacktestDocument

DEFAULT_SINCE, DEFAULT_EVERY = "30d", "10m"
MIN_INTERVAL, MAX_INTERVAL = timedelta(minutes=1), timedelta(days=1)  # between two runs of the reaper
REQUEST_WINDOW = timedelta(minutes=30)  # a request this long before an end is its cause
_STOP_REQUESTS = ("stop_requested", "park_requested", "terminate_requested")


def build_backtest_document(
    session: Session,
    policy: str,
    *,
    since: Moment = DEFAULT_SINCE,
    machine: str | None = None,
    every: str | timedelta = DEFAULT_EVERY,
) -> BacktestDocument:
    """Return what a policy (a name, or a YAML file) would have done since `since`: what `policy backtest` prints.

    With `machine`, to that one alone. A cluster is evaluated as one: it is in use when any node is. Reads the ledger
    and the samples kept here; asks no provider and changes nothing.
    Raises InvalidRequest for a fault in the policy or the options, InstanceNotFound for an unknown machine.
    """
    now = session.clock()
    begin = parse_past_moment(since, "--since", now, zone_of(session.settings.tz))
    interval = _interval(every)
    if begin >= now:
        raise InvalidRequest(
            f"--since is {iso(begin)[:16]}Z, which is in the future: nothing is recorded for it.",
            field="--since",
            value=str(since),
            next="Name a time in the past: --since 30d",
        )
    found_policy = _policy(session, policy)
    limited = limit_policy(found_policy.policy, limits_of(session))
    histories = _histories(session, machine, begin, now)
    replayed = [backtest(history, limited.policy, begin, now, interval=interval) for history in histories]
    # Sentences about what the limits took from the policy, and about missing samples.
    cuts = (*limited.cuts, *_missing_samples(begin, now))
    return backtest_document(
        BacktestedPolicy(
            found_policy.policy.name, found_policy.origin or str(found_policy.path), cuts, begin, now, interval
        ),
        replayed,
    )


def _policy(session: Session, name: str) -> FoundPolicy:
    """Return the policy of a file, or of a name."""
    path = Path(name)
    if "/" not in name and path.suffix not in (".yaml", ".yml"):
        return policy_named(session, name)
    table = read_yaml(path)
    if table is None:
        raise InvalidRequest(
            f"There is no file {name}.",
            field="FILE",
            value=name,
            next=f"Name a file, or a policy: {data_dir('policies')}",
        )
    return FoundPolicy(policy_from(table, path.stem, tz=session.settings.tz), path)


def _interval(every: str | timedelta) -> timedelta:
    interval = parse_optional_duration(every, "--every")
    if interval is None or not MIN_INTERVAL <= interval <= MAX_INTERVAL:
        raise InvalidRequest(
            f"--every is {every}; the reaper runs at least once a day and at most once a minute.",
            field="--every",
            value=str(every),
            next="Leave it out for 10m, which cron install uses.",
        )
    return interval


def _missing_samples(begin: datetime, now: datetime) -> tuple[str, ...]:
    sentence = f"Samples are kept for {RETENTION.days} days: nothing is known of how machines were used before that."
    return () if now - begin <= RETENTION else (sentence,)


def _histories(session: Session, name: str | None, begin: datetime, now: datetime) -> list[MachineHistory]:
    """Return the history of each machine, or of the named one; the nodes of a cluster as one."""
    machines, usages = session.ledger.read(lambda view: (view.machines(), list(view.ended_usages(iso(begin)))))
    machines = [machine for machine in machines if not machine.is_named_resource]
    if name is not None:
        machines = _machines_of_name(machines, name, now)
    ended_usages: dict[str, list[Usage]] = {machine.id: [] for machine in machines}
    for machine_id, usage in usages:
        if machine_id in ended_usages:
            ended_usages[machine_id].append(usage)
    by_unit: dict[str, list[MachineHistory]] = {}  # by the id of a cluster, or of a machine outside one
    for machine in machines:
        history = _history(session, machine, ended_usages[machine.id], begin, now)
        if history.recorded.runs:
            by_unit.setdefault(machine.id if machine.cluster_node is None else machine.cluster_node.id, []).append(
                history
            )
    return [_joined_history(nodes) for nodes in by_unit.values()]


def _machines_of_name(machines: list[Machine], name: str, now: datetime) -> list[Machine]:
    """Return the machine, or all nodes of the cluster, that this name means; a node stands for its cluster."""
    nodes = [machine for machine in machines if machine.cluster_node is not None and machine.cluster_node.name == name]
    latest = max(nodes, key=lambda machine: machine.intended_at, default=None)
    matches = list(find_machine_or_nodes(machines, name, now, ended=True)) if latest is None else [latest]
    ids, gangs = (
        {machine.id for machine in matches},
        {machine.cluster_node.id for machine in matches if machine.cluster_node is not None},
    )
    return [
        machine
        for machine in machines
        if machine.id in ids or (machine.cluster_node is not None and machine.cluster_node.id in gangs)
    ]


def _joined_history(nodes: Sequence[MachineHistory]) -> MachineHistory:
    """Return the histories of a cluster's nodes as one; that of a machine outside a cluster as it is."""
    nodes = sorted(nodes, key=lambda node: node_of(node.machine))
    first_node, *other_nodes = nodes
    if first_node.machine.cluster_node is None:
        return first_node
    recorded = replace(
        first_node.recorded,
        runs=joined_runs(run for node in nodes for run in node.recorded.runs),
        other_nodes=tuple(node.recorded for node in other_nodes),
    )
    usages = tuple(usage for node in nodes for usage in node.usages)
    return MachineHistory(
        first_node.machine._replace(name=first_node.machine.cluster_node.name), recorded, usages, first_node.ends
    )


def _history(
    session: Session, machine: Machine, ended_usages: Sequence[Usage], begin: datetime, now: datetime
) -> MachineHistory:
    """Return a machine's runs, events and samples since `begin`, and its actual ends."""
    usages = tuple(usage for usage in (*ended_usages, *machine.open_usage) if only_while_it_runs(machine, usage))
    runs = runs_of(usages, begin, now)
    if not runs:
        return MachineHistory(machine, RecordedHistory((), (), ()), ())
    events = list(session.ledger.events(machine.id))
    first_begin_s = runs[0].begin.timestamp()
    samples = SampleStore(session.home.samples, machine.id).read(first_begin_s - DAY_S, now.timestamp())
    return MachineHistory(
        machine, RecordedHistory(events, runs, samples), usages, tuple(_actual_ends(usages, events, begin, now))
    )


def _actual_ends(
    usages: Iterable[Usage], events: Sequence[Any], begin: datetime, now: datetime
) -> Iterable[tuple[datetime, str]]:
    """Yield when runs really ended, and why: the request shortly before, else the reason that the provider gave."""
    for usage in usages:
        if usage.resource is not Resource.INSTANCE or usage.end is None or not begin <= from_iso(usage.end) <= now:
            continue
        end = from_iso(usage.end)
        reasons = [
            event.body["why"]
            for event in events
            if event.kind in _STOP_REQUESTS and iso(end - REQUEST_WINDOW) <= event.occurred_at <= iso(end)
        ]
        why = reasons[-1] if reasons else usage.reason
        yield end, str(why or "nobody asked for it, and its provider gave no reason")
