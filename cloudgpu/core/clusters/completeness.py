"""Whether a cluster is whole: which machines it has, which were lost, and when a part of it must not go on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from cloudgpu.core.model.machine import Machine, has_retained_resources, latest_launch
from cloudgpu.core.values.times import from_iso

GRACE = timedelta(minutes=10)  # after the latest launch or end of a node, in which a command may still be at it


def why_part(machines: Sequence[Machine], now: datetime) -> str:
    """Return why these rows are only a part of a cluster, a clause; empty where they are none.

    They are one where some live though others of their launch never did, or were ended for good. `machines` are all
    machines of one cluster that the ledger knows, also those that were refused or have ended. They are no part while a
    launch or an end may still be on its way: for GRACE after the latest one. A command that still works on it holds its
    lock, which the caller checks. A node that was lost makes no part: `is_lost` says that. Nor does one that had ended
    when its user started the others.
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
    if now - from_iso(max([machine.intended_at for machine in machines] + ended)) < GRACE:
        return ""
    name, why = next(iter(absent.items()))
    return f"{name} {why}" + (f", and {len(absent) - 1} more" if len(absent) > 1 else "")


def _last_start(machines: Iterable[Machine]) -> str:
    """Return when one of these machines that exist was last to be started; empty where none was since its launch."""
    last = [one.last_request for one in machines if node_exists(one) and one.last_request is not None]
    return max((request.at for request in last if request.what == "start"), default="")


def node_exists(machine: Machine) -> bool:
    """Say whether a machine was made and is not proved gone."""
    return machine.launch_status == "made" and machine.terminated_at is None


def is_lost(machine: Machine) -> bool:
    """Say whether a node was made, and is gone or stopped though nobody had asked for it.

    One that its own agent or timer ended at its renew-until is not lost.
    """
    seen = machine.unrequested_stop
    if machine.cluster is None or seen is None:
        return False
    return machine.renew_until is None or seen.at < machine.renew_until


def lost_nodes(machines: Iterable[Machine]) -> list[Machine]:
    """Return the nodes of one cluster that were lost, where others of it still live and are not stopped."""
    nodes = list(machines)
    return [node for node in nodes if is_lost(node)] if any(node.billed and not is_lost(node) for node in nodes) else []


def unfinished_stop(machines: Sequence[Machine]) -> str:
    """Return which nodes of one cluster run on though their stop was requested, a clause; empty where none does.

    None, too, where another node was started after that: what was started by hand is not stopped for its cluster.
    """
    started = _last_start(machines)
    nodes = [row for row in machines if row.pending_action == "stop" and row.billed]
    return _requested("stop", [row for row in nodes if row.last_request is not None and row.last_request.at > started])


def unfinished_end(machines: Iterable[Machine]) -> str:
    """Return which nodes of one cluster exist though their end was requested, a clause; empty where none does.

    Those, too, that were proved gone by a cloud's wrong word, and are there again.
    """
    last = [row for row in machines if row.last_request is not None and row.last_request.what == "terminate"]
    return _requested("end", [row for row in last if row.discard])


def _requested(what: str, machines: Iterable[Machine]) -> str:
    nodes = [row for row in machines if row.gang is not None and row.state != "stopping" and node_exists(row)]
    names = [row.name for row in nodes if row.last_request is not None and not row.last_request.judged]
    if not names:
        return ""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"the {what} of {names[0]}{more} was requested and is not done"


class PartlyStarted(NamedTuple):
    """A start of a cluster that is not complete: when it was requested, which nodes are missing, and which run.

    Of those `started` run by this start; others ran before it, and somebody may use them.
    """

    at: datetime
    missing: tuple[Machine, ...]
    running: tuple[Machine, ...]
    started: tuple[Machine, ...]

    @property
    def ran_before(self) -> bool:
        """Whether nodes run that had not to be started."""
        return len(self.started) < len(self.running)

    @property
    def why(self) -> str:
        """Which nodes do not run, a clause."""
        more = f" and {len(self.missing) - 1} more" if len(self.missing) > 1 else ""
        return f"the start of {self.missing[0].name}{more} was not completed"


def partly_started(machines: Iterable[Machine]) -> PartlyStarted | None:
    """Return what the latest start of one cluster has left: some nodes run, others never did since; None otherwise.

    One start is requested of all its nodes at one moment.
    """
    nodes = [one for one in machines if node_exists(one)]
    starts = {one.id: one.last_request.at for one in nodes if one.last_request and one.last_request.what == "start"}
    off = [one for one in nodes if one.id in starts and _is_off_since(one, starts[one.id])]
    running = tuple(one for one in nodes if one.billed)
    if not off or not running:
        return None
    at = max(starts[one.id] for one in off)
    missing = tuple(one for one in off if starts[one.id] == at)
    return PartlyStarted(from_iso(at), missing, running, tuple(one for one in running if starts.get(one.id) == at))


def _is_off_since(machine: Machine, at: str) -> bool:
    """Say whether a machine is stopped and was never seen to run since."""
    ran = machine.unrequested_stop is not None and machine.unrequested_stop.at > at
    return not machine.billed and machine.state in ("stopped", "deallocated") and not ran


def has_run_before(machine: Machine) -> bool:
    """Say whether a machine was stopped or kept before it ran as it does now: it may hold somebody's work."""
    ended = any(use.end is not None for use in machine.open_usage)
    return bool(machine.usage_totals or machine.retained) or ended


def _why_absent(machine: Machine) -> str:
    """Return how a machine never came to be, or was ended so that nothing of it stays; empty where neither is so."""
    if machine.launch_status == "open":
        return "was launched, and whether that made a machine is not known"
    if machine.terminated_at is None or has_retained_resources(machine):
        return ""
    if machine.launch_status in ("refused", "void") and not (machine.usage_totals or machine.open_usage):
        return "was never made"
    return "did not come up" if machine.launch_failed else "was ended" if machine.discard else ""
