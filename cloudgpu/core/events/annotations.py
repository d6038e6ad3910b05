"""Adds ledger entries to the optional fields of a machine's record: policy, warnings, decision, timer, shared keys.

Most functions here apply one kind of entry (`line`) to a record, in place. A field without a value is left out, so that
most records are short.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from cloudgpu.core.events.log import Line
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.times import from_iso

Record = dict[str, Any]


def forget_run(record: Record) -> None:
    """Remove what applies to one run of a machine only."""
    for name in ("warnings", "decision", "timer", "shared", "unrequested_stop", "last_request"):
        record.pop(name, None)


def forget_warnings(record: Record) -> None:
    """Remove the warnings: what they warned of has happened, or is out of date."""
    record.pop("warnings", None)


def set_policy(record: Record, line: Line) -> None:
    """Set who chose the policy of a launch, and that policy's text; both are missing for an adopted machine."""
    record.pop("policy_by", None)
    if line.body.get("policy_by"):
        record["policy_by"] = line.body["policy_by"]
    record.pop("terms", None)
    set_terms(record, line)


def set_terms(record: Record, line: Line) -> None:
    """Set the texts of the policy and limits that apply to a machine."""
    if line.body.get("terms"):
        record["terms"] = line.body["terms"]


def set_decision(record: Record, line: Line) -> None:
    """Set the reaper's decision; `since`: that action and rule apply since then, `activity_since`: that activity."""
    body, at = line.body, line.occurred_at
    now = {name: body[name] for name in ("do", "rule", "why", "activity", "at")} | {"since": at, "activity_since": at}
    before = record.get("decision")
    if before is not None and before["activity"] == now["activity"]:
        now["activity_since"] = before["activity_since"]
        if (before["do"], before["rule"]) == (now["do"], now["rule"]):
            now["since"] = before["since"]
    record["decision"] = now


def add_warning(record: Record, line: Line) -> None:
    """Add a warning to those of its rule; one with another due time begins a new count."""
    rule, due, at = line.body["rule"], line.body["due"], line.occurred_at
    before = record.get("warnings", {}).get(rule)
    if before is None or before["due"] != due:
        before = {"at": at, "count": 0}
    fields = {"at": before["at"], "last": at, "due": due, "count": before["count"] + 1, "why": line.body.get("why")}
    record["warnings"] = record.get("warnings", {}) | {rule: fields}


def remove_warning(record: Record, line: Line) -> None:
    """Remove a warning that no longer applies."""
    remaining = {rule: warning for rule, warning in record.get("warnings", {}).items() if rule != line.body["rule"]}
    record["warnings"] = remaining
    if not remaining:
        forget_warnings(record)


def set_timer(record: Record, line: Line) -> None:
    """Set when the cloud ends the machine by itself."""
    record["timer"] = line.body["at"]
    if record["timer"] is None:
        del record["timer"]


def set_unrequested_stop(record: Record, line: Line, *, over: bool, ran: object) -> None:
    """Record that a machine stopped (`over`) without a request, or that it runs again; `ran`: it ran before.

    A simulated spot interruption counts as a request.
    """
    if not over:
        record.pop("unrequested_stop", None)
    elif ran and record["terminated_at"] is None and record["pending_action"] is None and "taken_at" not in record:
        record["unrequested_stop"] = {"at": line.occurred_at, "seq": line.seq}


def set_last_request(record: Record, line: Line) -> None:
    """Set the last request; a stop that was recorded before it, by a clock that is behind, was not unrequested.

    If the reaper repeats a user's request that is not done yet, it remains the user's (`judged`: the reaper's).
    """
    what, before = line.kind.removesuffix("_requested"), record.pop("last_request", None)
    if line.body.get("running"):
        record["last_request"] = {"what": "start", "at": line.occurred_at, "judged": False}
    else:
        is_repeated = before is not None and record["pending_action"] == what
        judged = bool(line.body.get("judged")) and not (is_repeated and not before["judged"])
        record["last_request"] = {"what": what, "at": line.occurred_at, "judged": judged}
    if "unrequested_stop" in record and line.seq < record["unrequested_stop"]["seq"]:
        del record["unrequested_stop"]


def cancel_stop_if_started(record: Record, body: Mapping[str, Any]) -> None:
    """Cancel a requested stop if the machine was started again since, as its provider says: so its cluster's, too.

    `record` is as it was before this observation.
    """
    last, since = record.get("last_request"), body["since"]
    if last is None or last["what"] != "stop" or body["state"] not in ("pending", "running"):
        return
    if since is not None and since != record["since"] and since > last["at"]:
        record["pending_action"] = None
        record["last_request"] = {"what": "start", "at": since, "judged": False}


def set_interruption(record: Record, line: Line) -> None:
    """Set when the provider interrupted it."""
    record["interrupted_at"] = line.occurred_at


def add_shared_key(record: Record, line: Line) -> None:
    """Add a shared key: who may log in with it, and the machine's host key."""
    text = {name: line.body[name] for name in ("label", "from", "host_key")} | {"at": line.occurred_at}
    record["shared"] = record.get("shared", {}) | {line.body["key"]: text}


def remove_shared_keys(record: Record, line: Line) -> None:
    """Remove a shared key, or all of them."""
    key = line.body["key"]
    remaining = {one: share for one, share in record.pop("shared", {}).items() if key is not None and one != key}
    if remaining:
        record["shared"] = remaining


def not_before_last(machine: Machine | None, now: datetime) -> datetime:
    """Return `now`, or the time of the reaper's last entry on this machine if this clock is behind that.

    Entries are applied in the order of their times: one from a clock that was set back would be applied too early.
    """
    times = [] if machine is None else [warning.last for warning in machine.warnings.values()]
    times += [machine.decision.since] if machine is not None and machine.decision else []
    return max([now, *map(from_iso, times)])
