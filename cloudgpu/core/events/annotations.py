"""Adds ledger entries to the optional fields of a machine's record: policy, warnings, decision, timer, shared keys.

A field without a value is left out, so that most records are short.
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
    """Forget all of it: what was said of one life of a machine is not true of the next."""
    for name in ("warnings", "decision", "timer", "shared", "unrequested_stop", "last_request"):
        record.pop(name, None)


def forget_warnings(record: Record) -> None:
    """Forget what people were warned of: it has happened, or is out of date."""
    record.pop("warnings", None)


def chosen(record: Record, line: Line) -> None:
    """Take who chose the policy of a launch, and what that policy said; of an adopted machine nobody knows either."""
    record.pop("policy_by", None)
    if line.body.get("policy_by"):
        record["policy_by"] = line.body["policy_by"]
    record.pop("terms", None)
    terms_set(record, line)


def terms_set(record: Record, line: Line) -> None:
    """Take the texts of the policy and limits that a machine is under."""
    if line.body.get("terms"):
        record["terms"] = line.body["terms"]


def decided(record: Record, line: Line) -> None:
    """Take what a run decided; `since` is when it began to be that for that reason, `activity_since` that use."""
    body, at = line.body, line.occurred_at
    now = {name: body[name] for name in ("do", "rule", "why", "activity", "at")} | {"since": at, "activity_since": at}
    before = record.get("decision")
    if before is not None and before["activity"] == now["activity"]:
        now["activity_since"] = before["activity_since"]
        if (before["do"], before["rule"]) == (now["do"], now["rule"]):
            now["since"] = before["since"]
    record["decision"] = now


def warned(record: Record, line: Line) -> None:
    """Take a warning; one of another end is the first of that."""
    rule, due, at = line.body["rule"], line.body["due"], line.occurred_at
    before = record.get("warnings", {}).get(rule)
    if before is None or before["due"] != due:
        before = {"at": at, "count": 0}
    fields = {"at": before["at"], "last": at, "due": due, "count": before["count"] + 1, "why": line.body.get("why")}
    record["warnings"] = record.get("warnings", {}) | {rule: fields}


def lifted(record: Record, line: Line) -> None:
    """Take that a warning holds no more."""
    left = {rule: said for rule, said in record.get("warnings", {}).items() if rule != line.body["rule"]}
    record["warnings"] = left
    if not left:
        forget_warnings(record)


def timed(record: Record, line: Line) -> None:
    """Take when the cloud ends it by itself."""
    record["timer"] = line.body["at"]
    if record["timer"] is None:
        del record["timer"]


def stopped_unrequested(record: Record, line: Line, *, over: bool, ran: object) -> None:
    """Take that a machine runs no more though nobody had asked for it, or that it runs again.

    A spot interruption that is being rehearsed was asked for, too.
    """
    if not over:
        record.pop("unrequested_stop", None)
    elif ran and record["terminated_at"] is None and record["pending_action"] is None and "taken_at" not in record:
        record["unrequested_stop"] = {"at": line.occurred_at, "seq": line.seq}


def requested(record: Record, line: Line) -> None:
    """Take what is asked, and that it was before its effect was written, by a clock ahead of the one that saw it.

    What a user asked and was not done stays theirs when the reaper asks it again.
    """
    what, before = line.kind.removesuffix("_requested"), record.pop("last_request", None)
    if line.body.get("running"):
        record["last_request"] = {"what": "start", "at": line.occurred_at, "judged": False}
    else:
        again = before is not None and record["pending_action"] == what
        judged = bool(line.body.get("judged")) and not (again and not before["judged"])
        record["last_request"] = {"what": what, "at": line.occurred_at, "judged": judged}
    if "unrequested_stop" in record and line.seq < record["unrequested_stop"]["seq"]:
        del record["unrequested_stop"]


def started_by_hand(record: Record, body: Mapping[str, Any]) -> None:
    """Take that a machine which was to stop was started again since it stopped: that takes its cluster's stop back.

    Where its provider says when it was started; `record` is as it was before.
    """
    last, since = record.get("last_request"), body["since"]
    if last is None or last["what"] != "stop" or body["state"] not in ("pending", "running"):
        return
    if since is not None and since != record["since"] and since > last["at"]:
        record["pending_action"] = None
        record["last_request"] = {"what": "start", "at": since, "judged": False}


def interrupted(record: Record, line: Line) -> None:
    """Take that its interruption is written down."""
    record["interrupted_at"] = line.occurred_at


def shared(record: Record, line: Line) -> None:
    """Take whose key was let in, and the host key that came with it."""
    text = {name: line.body[name] for name in ("label", "from", "host_key")} | {"at": line.occurred_at}
    record["shared"] = record.get("shared", {}) | {line.body["key"]: text}


def unshared(record: Record, line: Line) -> None:
    """Take that a key, or every shared one, was taken out."""
    key = line.body["key"]
    left = {one: said for one, said in record.pop("shared", {}).items() if key is not None and one != key}
    if left:
        record["shared"] = left


def not_before_last(machine: Machine | None, now: datetime) -> datetime:
    """Return `now`, or when a run last said something of this machine where this clock is behind that.

    Lines are folded by their time: what a clock that was set back takes back would else count as said before.
    """
    times = [] if machine is None else [warning.last for warning in machine.warnings.values()]
    times += [machine.decision.since] if machine is not None and machine.decision else []
    return max([now, *map(from_iso, times)])
