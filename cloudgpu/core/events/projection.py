"""Projects a machine's ledger lines to its current record and its usages.

The order of their arrival does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.billing.charges import NO_NOTE, note_with_charge
from cloudgpu.core.events import annotations as annotate, metering
from cloudgpu.core.events.log import Draft, EventSummary, Line
from cloudgpu.core.model.facts import ChargeNote, record_of
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.times import iso

Record = dict[str, Any]
State = dict[str, Any]
# When usages began again that a listing had missed: the outer key is the time of that listing, the inner one the key
# of the usage. The usage before was billed until then at most.
Cuts = dict[str, dict[str, str]]

_LAUNCH_FIELDS = (
    "key request name provider account region zone instance_type market accelerators price owner project "
    "policy template expires renew_until stoppable parkable stop_effect setup attached_costs on_demand max_price "
    "licence guards identity"
).split()
_OBSERVED_FIELDS = "provider_id state billed since launched_at address last_active".split()
_INSTANCE_FIELDS = "provider_id since launched_at address state_reason last_active".split()  # empty after a new launch
_RUNNING_STATES = ("pending", "running", "unknown")
_LEASE_FIELDS = ("expires", "renew_until", "hold_until")
_STATES_WHEN_DONE = {  # requested action -> the states in which it is done
    "stop": ("stopped", "deallocated", "terminated"),
    "start": ("running",),
    "terminate": ("terminated",),
    "park": ("terminated",),
}


@dataclass(frozen=True, slots=True)
class Projection:
    """The result of projecting lines: the state, as plain JSON values, and the usages that ended (`ended_usages`).

    `state["row"]` is the machine's current record; the rest is only needed to apply the next line.
    """

    state: State
    ended_usages: tuple[dict[str, Any], ...]


def project(events: Iterable[Line]) -> Projection | None:
    """Return the projection of these lines, which may come in any order; None if they are about no machine."""
    by_dedupe = {line.dedupe: line for line in sorted(events, key=_order, reverse=True)}  # a repeated line counts once
    lines, cuts = sorted(by_dedupe.values(), key=_order), Cuts()
    while True:  # it ends: a repetition only adds cuts or makes them earlier, and they are times of the lines
        result, new_cuts = _project_with_cuts(lines, cuts)
        if new_cuts == cuts:
            return result
        cuts = new_cuts


def _project_with_cuts(lines: Iterable[Line], cuts: Cuts) -> tuple[Projection | None, Cuts]:
    """Return the projection of these lines with these cuts, and the cuts that follow from the lines themselves."""
    state: State | None = None
    closed: list[dict[str, Any]] = []
    for line in lines:
        if state is None and (line.kind not in _STEPS or line.kind in _KINDS_WITHOUT_A_MACHINE):
            continue
        if state is None:
            state = {"row": _empty(line.subject, line.occurred_at), "last": ["", 0], "meter": metering.new_meter()}
            state["meter"]["cuts"] = {missed: {**known} for missed, known in cuts.items()}
        closed += _apply(state, line)
    if state is None:
        return None, cuts
    return Projection(state, tuple(closed)), state["meter"].pop("cuts")


def apply_event(state: State, line: Line) -> list[dict[str, Any]] | None:
    """Apply one more line to a state, in place, and return the usages that it ended.

    None if the line is older than others in it, or shows a machine again that one of them missed: then all lines have
    to be projected again.
    """
    at, seq = state["last"]
    if line.occurred_at <= at and (line.occurred_at < at or line.seq < seq):
        return None
    ended = _apply(state, line)
    return None if state["meter"].pop("cuts", None) else ended


def packed(state: State) -> State:
    """Return the part of a state that is not in its record, to store it beside that; `unpacked` is the inverse.

    Open usages are in the record, in their order, with the prices since their run (one time without a stop) began.
    `in_row`: these prices are in the record (`row`) and not packed a second time.
    """
    meter = state["meter"]
    run, prices = meter["open"].get("instance"), meter["prices"]
    run_price_count = 0 if run is None else len(run["segments"])
    run_prices_in_record = run_price_count > 0 and prices[-run_price_count:] == run["segments"]
    packed_meter = {"open": list(meter["open"]), "waiting": len(meter["waiting"]), "in_row": run_prices_in_record}
    packed_meter["prices"] = prices[:-run_price_count] if run_prices_in_record else prices
    return {"last": state["last"], "meter": meter | packed_meter}


def unpacked(record: Record, rest: State) -> State:
    """Return the state that was packed as `rest`, with its record."""
    meter, uses = rest["meter"], record["open_usage"]
    waiting = meter["waiting"]
    meter |= {"waiting": uses[:waiting], "open": dict(zip(meter["open"], uses[waiting:], strict=True))}
    if meter.pop("in_row"):
        meter["prices"] += meter["open"]["instance"]["segments"]
    return {"row": record, **rest}


def machine_of(events: Iterable[Line]) -> Machine | None:
    """Return the machine (or named resource) of these lines; None if they are about none."""
    projection = project(events)
    return None if projection is None else Machine.of(projection.state["row"])


def unlaunched_machine() -> Machine:
    """Return a machine of which nothing is known yet: what a launch plans replaces the fields that it knows."""
    return Machine.of(_empty("", "") | {"key": "", "name": ""})


def project_event(machine: Machine, line: Draft) -> Machine:
    """Return the machine as it would be with this line, without a change of its usages."""
    step = _STEPS.get(line.kind)
    if step is None:
        return machine
    record = record_of(machine)
    step(record, EventSummary(0, iso(line.occurred_at), line.kind, line.subject, line.dedupe, line.body))
    return Machine.of(record)


def _order(line: Line) -> tuple[str, int]:
    return line.occurred_at, line.seq


def _apply(state: State, line: Line) -> list[dict[str, Any]]:
    """Apply a line to the state, in place; return the usages that it ended."""
    step = _STEPS.get(line.kind)
    state["last"] = [line.occurred_at, line.seq]
    if step is None:
        return []
    record = state["row"]
    before = {name: record[name] for name in ("terminated_at", "seen_at", "pending_action", "billed", "state")}
    step(record, line)
    if line.kind not in metering.KINDS:
        return []
    closed = metering.meter(state["meter"], record, line, before)
    record["open_usage"] = metering.unsummed_usages(state["meter"])
    for use in closed:
        notes, resource = record["charge_notes"], use["resource"]
        before_it = ChargeNote.of(notes[resource]) if resource in notes else NO_NOTE
        notes[resource] = record_of(note_with_charge(before_it, metering.add_to_totals(record["usage_totals"], use)))
    record["unpriced"] = metering.is_unpriced(record)
    return closed


def _empty(subject: str, at: str) -> Record:
    record: Record = dict.fromkeys(
        (
            *_LAUNCH_FIELDS,
            *_OBSERVED_FIELDS,
            *_LEASE_FIELDS,
            "state_reason",
            "token",
            "settled_reason",
            "pending_action",
            "terminated_at",
            "seen_at",
        )
    )
    record |= {"id": subject, "attempt_number": 0, "launch_status": "made", "state": "unknown", "billed": False}
    record |= {"intended_at": at, "first_at": at}
    record |= {"unpriced": False, "action_reason": None, "renew_s": None}
    record |= {"retained": [], "parked": False, "discard": False, "seq": 0, "is_named_resource": False}
    record |= {"open_usage": [], "usage_totals": {}, "charge_notes": {}, "launch_failed": False, "traffic": None}
    return record


def _intended(record: Record, line: Line) -> None:
    if line.body["attempt"] < record["attempt_number"]:
        return
    record |= {name: line.body.get(name) for name in _LAUNCH_FIELDS}  # `guards` is missing without a safeguard
    record |= {"attempt_number": line.body["attempt"], "token": line.body["token"], "launch_status": "open"}
    record["renew_s"] = line.body.get("renew_s")
    annotate.set_policy(record, line)
    _of_cluster(record, line)
    for name in ("trust", "traffic_prices"):
        record.pop(name, None)
        if line.body.get(name):
            record[name] = line.body[name]
    record |= {"intended_at": line.occurred_at, "state": "unknown", "billed": False}
    record |= {"terminated_at": None, "pending_action": None}
    record |= {"discard": False, "launch_failed": False, "seq": line.body.get("seq", 0)} | dict.fromkeys(
        _INSTANCE_FIELDS
    )
    annotate.forget_run(record)
    record.pop("refused_action", None)
    record.pop("taken_at", None)
    record.pop("interrupted_at", None)


def _adopted(record: Record, line: Line) -> None:
    record |= {name: line.body.get(name) for name in _LAUNCH_FIELDS if record[name] is None}
    record |= {"launch_status": "made", "terminated_at": None}
    if "cluster" not in record:
        _of_cluster(record, line)


def _of_cluster(record: Record, line: Line) -> None:
    record.pop("cluster", None)
    if line.body.get("cluster"):
        record["cluster"] = line.body["cluster"]


def _resolve_launch(record: Record, line: Line) -> None:
    made, denied = record["launch_status"] == "made", line.body["outcome"] != "made"
    if line.body["token"] != record["token"] or (made and denied):
        return  # a machine that was seen exists: a listing without it came too early, or after its end
    record |= {"launch_status": line.body["outcome"], "settled_reason": line.body["why"]}
    record["parked"] = record["parked"] and denied
    if denied:
        record |= {"state": "terminated", "billed": False, "terminated_at": line.occurred_at}


def _observed(record: Record, line: Line) -> None:
    body = line.body
    annotate.set_unrequested_stop(
        record,
        line,
        over=body["state"] not in _RUNNING_STATES,
        ran=record["launched_at"] and record["state"] in _RUNNING_STATES,
    )
    if record["billed"] and not body["billed"]:
        annotate.forget_warnings(record)
    annotate.cancel_stop_if_started(record, body)
    for name in _OBSERVED_FIELDS:
        record[name] = body[name]
    record["state_reason"] = body["reason"]
    if (record.get("guards") or {}).get("tagged", True):  # else its tags are never updated
        record |= {name: body[name] for name in _LEASE_FIELDS if body.get(name) is not None}
    if body.get("resized"):
        _resized(record, body["resized"])
    record["seen_at"], record["launch_status"] = line.occurred_at, "made"
    record["terminated_at"] = line.occurred_at if body["state"] == "terminated" else None
    if body["state"] not in _RUNNING_STATES:
        record.pop("taken_at", None)
    if "refused_action" in record and body["state"] in _STATES_WHEN_DONE[record["refused_action"]["action"]]:
        del record["refused_action"]
    if record["pending_action"] is not None and body["state"] in _STATES_WHEN_DONE[record["pending_action"]]:
        record["pending_action"] = None


def _resized(record: Record, now: Mapping[str, Any]) -> None:
    record |= {name: now[name] for name in ("instance_type", "market", "accelerators", "on_demand")}
    record["price"] = now["prices"][-1] if now["prices"] else None


def _vanished(record: Record, line: Line) -> None:
    annotate.set_unrequested_stop(
        record, line, over=True, ran=record["launched_at"] and record["state"] in _RUNNING_STATES
    )
    record |= {"state": "terminated", "billed": False, "terminated_at": line.occurred_at, "seen_at": line.occurred_at}
    record |= {"pending_action": None, "address": None}
    record.pop("refused_action", None)
    record.pop("taken_at", None)
    annotate.forget_warnings(record)


def _requested(record: Record, line: Line) -> None:
    what = line.kind.removesuffix("_requested")
    record["action_reason"] = line.body["why"]
    annotate.set_last_request(record, line)
    record["launch_failed"] = record.get("launch_failed", False) or bool(line.body.get("failed"))
    if record["terminated_at"] is None:
        record["pending_action"] = None if line.body.get("running") else what
    if what == "start" and not line.body.get("running"):
        annotate.forget_warnings(record)
        record.pop("refused_action", None)
        _set_waiver(record, waived=bool(line.body.get("waived")))
    if what == "start":
        record["discard"] = False  # an end that was requested before is taken back
    if what in ("park", "terminate"):
        record |= {"parked": what == "park", "discard": what == "terminate"}


def _set_waiver(record: Record, *, waived: bool) -> None:
    """Set whether this start waives scheduled runs of the reaper (--no-guard); an earlier waiver ends."""
    guards = record.get("guards")
    if guards is not None and waived != guards.get("waived", False):
        plain = {name: value for name, value in guards.items() if name != "waived"}
        record["guards"] = {**plain, "waived": True} if waived else plain


def _start_refused(record: Record, _line: Line) -> None:
    record["pending_action"] = None if record["pending_action"] == "start" else record["pending_action"]


def _refused(record: Record, line: Line) -> None:
    if record["terminated_at"] is None:
        record |= {"pending_action": None, "parked": False, "discard": False, "refused_action": dict(line.body)}


def _retain(record: Record, line: Line) -> None:
    record["retained"] = line.body["retained"]
    record["parked"] = record["parked"] and (bool(record["retained"]) or record["terminated_at"] is None)


def _priced(record: Record, line: Line) -> None:
    if line.body["price"] is not None:
        record["price"] = line.body["price"]
    if line.body.get("on_demand") is not None:
        record["on_demand"] = line.body["on_demand"]


def _count_traffic(record: Record, line: Line) -> None:
    known = record["traffic"] or {}  # a line in which nothing was received does not say how much was before
    record["traffic"] = {**known, **{name: line.body.get(name) for name in ("until", "counted")}}
    if line.body.get("received"):
        record["traffic"]["received"] = line.body["received"]["counted"]


def _interruption(record: Record, line: Line) -> None:
    if record["terminated_at"] is None:
        record["taken_at"] = line.body["at"]


def _leased(record: Record, line: Line) -> None:
    record |= {"expires": line.body["expires"], "renew_until": line.body["renew_until"]}


def _held(record: Record, line: Line) -> None:
    record["hold_until"] = line.body["until"]


def _resource_observed(record: Record, line: Line) -> None:
    body = line.body
    record |= {"is_named_resource": True, "launch_status": "made", "state": body["kind"], "market": "on_demand"}
    record["seen_at"] = line.occurred_at
    record |= {name: body[name] for name in "name provider account region zone owner project".split()}
    record["identity"] = body.get("identity")
    record |= {"provider_id": body["id"], "instance_type": body["stored_as"], "terminated_at": None}
    record |= {
        "retained": [{name: value for name, value in body.items() if name not in ("owner", "project", "identity")}]
    }


def _resource_vanished(record: Record, line: Line) -> None:
    record |= {"terminated_at": line.occurred_at, "retained": []}


_STEPS = {
    "decision_made": annotate.set_decision,
    "warning_sent": annotate.add_warning,
    "warning_cleared": annotate.remove_warning,
    "timer_set": annotate.set_timer,
    "terms_set": annotate.set_terms,
    "resource_observed": _resource_observed,
    "resource_vanished": _resource_vanished,
    "traffic_observed": _count_traffic,
    "launch_intended": _intended,
    "launch_settled": _resolve_launch,
    "machine_adopted": _adopted,
    "instance_observed": _observed,
    "instance_vanished": _vanished,
    "stop_requested": _requested,
    "start_requested": _requested,
    "start_refused": _start_refused,
    "action_refused": _refused,
    "terminate_requested": _requested,
    "park_requested": _requested,
    "resources_retained": _retain,
    "price_observed": _priced,
    "lease_set": _leased,
    "hold_set": _held,
    "interruption_simulated": _interruption,
    "spot_interrupted": annotate.set_interruption,
    "machine_shared": annotate.add_shared_key,
    "machine_unshared": annotate.remove_shared_keys,
}
_KINDS_WITHOUT_A_MACHINE = frozenset(
    "decision_made interruption_simulated machine_shared machine_unshared spot_interrupted terms_set timer_set "
    "warning_sent warning_cleared".split()
)  # a subject that has only such lines has no record
