"""Whether a cluster is complete: which of its nodes exist, which were lost, and which must not run on alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from cloudgpu.core.model.machine import Machine, has_retained_resources, latest_launch
from cloudgpu.core.values.naming import first_few
from cloudgpu.core.values.times import from_iso

LAUNCH_GRACE = timedelta(
    minutes=10
)  # after the latest launch or end of a node, while a command may still work on the cluster


def why_incomplete(machines: Sequence[Machine], now: datetime) -> str:
    """Return why a cluster exists only in part, as a clause; empty if it is complete, or does not exist at all.

    It does if some of its nodes exist while others of the same launch were never created, or were terminated for good.
    `machines` are all machines of one cluster that the ledger knows, also those that were refused or have ended. For
    LAUNCH_GRACE after the latest launch or end it counts as complete: a command may still work on it. Such a command
    holds the cluster's lock, which the caller checks. A lost node (`is_lost`) does not count as missing, nor does one
    that had ended when its user started the others.
    """
    if not any(node_exists(machine) for machine in machines):
        return ""
    machines = latest_launch(machines)
    started = _last_start(machines)
    absent = {
        one.name: why for one in machines if (why := _why_absent(one)) and (one.terminated_at or started) >= started
    }
    if not absent:
        return ""
    ended = [at for machine in machines if machine.name in absent and (at := machine.terminated_at)]
    if now - from_iso(max([machine.intended_at for machine in machines] + ended)) < LAUNCH_GRACE:
        return ""
    name, why = next(iter(absent.items()))
    return f"{name} {why}" + (f", and {len(absent) - 1} more" if len(absent) > 1 else "")


def _last_start(machines: Iterable[Machine]) -> str:
    """Return when a start of one of these machines was last requested; empty if none was since its launch."""
    last = [one.last_request for one in machines if node_exists(one) and one.last_request is not None]
    return max((request.at for request in last if request.what == "start"), default="")


def node_exists(machine: Machine) -> bool:
    """Return whether a machine was created and its termination is not confirmed."""
    return machine.launch_status == "made" and machine.terminated_at is None


def is_lost(machine: Machine) -> bool:
    """Say whether a node is gone or stopped without a request.

    One that its own agent or timer ended at its renew-until is not lost.
    """
    unrequested = machine.unrequested_stop
    if machine.cluster is None or unrequested is None:
        return False
    return machine.renew_until is None or unrequested.at < machine.renew_until


def lost_nodes(machines: Iterable[Machine]) -> list[Machine]:
    """Return the lost nodes of one cluster, if others of it still run."""
    nodes = list(machines)
    return [node for node in nodes if is_lost(node)] if any(node.billed and not is_lost(node) for node in nodes) else []


def unfinished_stop(machines: Sequence[Machine]) -> str:
    """Return which nodes of one cluster still run after a requested stop, as a clause; empty if none does.

    Empty, too, if another node was started after that: a node that was started by hand is not stopped for its cluster.
    """
    started = _last_start(machines)
    nodes = [machine for machine in machines if machine.pending_action == "stop" and machine.billed]
    return _unfinished_clause(
        "stop", [machine for machine in nodes if machine.last_request is not None and machine.last_request.at > started]
    )


def unfinished_end(machines: Iterable[Machine]) -> str:
    """Return which nodes of one cluster still exist after a requested termination, as a clause; empty if none does.

    Also those that a cloud reported as gone by mistake, and that exist again.
    """
    last = [
        machine for machine in machines if machine.last_request is not None and machine.last_request.what == "terminate"
    ]
    return _unfinished_clause("end", [machine for machine in last if machine.discard])


def _unfinished_clause(what: str, machines: Iterable[Machine]) -> str:
    nodes = [
        machine
        for machine in machines
        if machine.cluster_node is not None and machine.state != "stopping" and node_exists(machine)
    ]
    names = [machine.name for machine in nodes if machine.last_request is not None and not machine.last_request.judged]
    if not names:
        return ""
    return f"the {what} of {first_few(names, 1)} was requested and is not done"


class PartlyStarted(NamedTuple):
    """An incomplete start of a cluster: when it was requested, which nodes are missing, and which run.

    `just_started` are the running nodes that this start started; others ran before it, and may be in use.
    """

    at: datetime
    missing: tuple[Machine, ...]
    running: tuple[Machine, ...]
    just_started: tuple[Machine, ...]

    @property
    def ran_before(self) -> bool:
        """Whether some nodes already ran before the start."""
        return len(self.just_started) < len(self.running)

    @property
    def why(self) -> str:
        """Why the cluster is incomplete, as a clause."""
        return f"the start of {first_few([machine.name for machine in self.missing], 1)} was not completed"


def partly_started(machines: Iterable[Machine]) -> PartlyStarted | None:
    """Return the latest start of one cluster if some nodes run and others never did since; None otherwise.

    One start has the same request time on all its nodes.
    """
    nodes = [one for one in machines if node_exists(one)]
    starts = {one.id: one.last_request.at for one in nodes if one.last_request and one.last_request.what == "start"}
    not_running = [one for one in nodes if one.id in starts and _is_off_since(one, starts[one.id])]
    running = tuple(one for one in nodes if one.billed)
    if not not_running or not running:
        return None
    at = max(starts[one.id] for one in not_running)
    missing = tuple(one for one in not_running if starts[one.id] == at)
    return PartlyStarted(from_iso(at), missing, running, tuple(one for one in running if starts.get(one.id) == at))


def _is_off_since(machine: Machine, at: str) -> bool:
    """Say whether a machine is stopped and was not seen to run since `at`."""
    ran = machine.unrequested_stop is not None and machine.unrequested_stop.at > at
    return not machine.billed and machine.state in ("stopped", "deallocated") and not ran


def has_run_before(machine: Machine) -> bool:
    """Say whether a machine was stopped or parked before its present run, so that it may hold somebody's work."""
    has_ended_usage = any(use.end is not None for use in machine.open_usage)
    return bool(machine.usage_totals or machine.retained) or has_ended_usage


def _why_absent(machine: Machine) -> str:
    """Return why a machine does not exist (never created, or terminated for good), as a clause; empty if it does."""
    if machine.launch_status == "open":
        return "was launched, and whether that made a machine is not known"
    if machine.terminated_at is None or has_retained_resources(machine):
        return ""
    if machine.launch_status in ("refused", "void") and not (machine.usage_totals or machine.open_usage):
        return "was never made"
    return "did not come up" if machine.launch_failed else "was ended" if machine.discard else ""
