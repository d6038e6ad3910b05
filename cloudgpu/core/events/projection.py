"""Folds a machine's ledger lines into its current row and what it has used. Order of arrival does not matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.billing import charge_notes as aside
from cloudgpu.core.events import annotations as told
from cloudgpu.core.events import metering
from cloudgpu.core.events.log import Draft, EventSummary, Line
from cloudgpu.core.model.facts import ChargeNote, record_of
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.times import iso

Record = dict[str, Any]
State = dict[str, Any]

_LAUNCH = (
    "key request name provider account region zone instance_type market accelerators price owner project "
    "policy template expires renew_until stoppable parkable stop_effect setup attached_costs on_demand max_price "
    "licence guards identity"
).split()
_SEEN = "provider_id state billed since launched_at address last_active".split()
_OF_A_LIFE = "provider_id since launched_at address state_reason last_active".split()  # a new launch has none yet
_RUNS = ("pending", "running", "unknown")
_LEASE = ("expires", "renew_until", "hold_until")
_DONE = {  # what was asked -> the states in which it is done
    "stop": ("stopped", "deallocated", "terminated"),
    "start": ("running",),
    "terminate": ("terminated",),
    "park": ("terminated",),
}


@dataclass(frozen=True, slots=True)
class Folded:
    """What lines fold to: the state, as plain JSON values, and the usages that ended meanwhile.

    `state["row"]` is the current row; the rest is what the next line needs, and nobody else.
    """

    state: State
    closed: tuple[dict[str, Any], ...]


def folded(events: Iterable[Line]) -> Folded | None:
    """Return what these lines fold to, in whatever order they come; None when none of them says what a row is of."""
    state: State | None = None
    closed: list[dict[str, Any]] = []
    once = {line.dedupe: line for line in sorted(events, key=_order, reverse=True)}  # what was sent twice counts once
    for line in sorted(once.values(), key=_order):
        if state is None and (line.kind not in _STEPS or line.kind in _OF_ANOTHER):
            continue
        if state is None:
            state = {"row": _empty(line), "last": ["", 0], "meter": metering.new()}
        closed += _apply(state, line)
    return None if state is None else Folded(state, tuple(closed))


def apply_event(state: State, line: Line) -> list[dict[str, Any]] | None:
    """Take one more line into a state, and return the usages that it ended.

    None where it comes before others that are in it: then everything has to be folded anew.
    """
    at, seq = state["last"]
    if line.occurred_at <= at and (line.occurred_at < at or line.seq < seq):
        return None
    return _apply(state, line)


def packed(state: State) -> State:
    """Return what the next line needs and the row does not say, to be kept beside it: `unpacked` is the way back.

    The uses that are billed stand in the row, in their order; so do the prices since their run began.
    """
    meter = state["meter"]
    run, prices = meter["open"].get("instance"), meter["prices"]
    since = 0 if run is None else len(run["segments"])
    in_row = since > 0 and prices[-since:] == run["segments"]
    kept = {"open": list(meter["open"]), "waiting": len(meter["waiting"]), "in_row": in_row}
    kept["prices"] = prices[:-since] if in_row else prices
    return {"last": state["last"], "meter": meter | kept}


def unpacked(row: Record, rest: State) -> State:
    """Return the state that was packed as `rest`, with its row."""
    meter, uses = rest["meter"], row["open_usage"]
    waiting = meter["waiting"]
    meter |= {"waiting": uses[:waiting], "open": dict(zip(meter["open"], uses[waiting:], strict=True))}
    if meter.pop("in_row"):
        meter["prices"] += meter["open"]["instance"]["segments"]
    return {"row": row, **rest}


def machine_of(events: Iterable[Line]) -> Machine | None:
    """Return the machine (or the resource that is kept by name) of these lines; None when none is of one."""
    found = folded(events)
    return None if found is None else Machine.of(found.state["row"])


def project_event(machine: Machine, line: Draft) -> Machine:
    """Return the machine as it would be with this line; what it has used is not counted anew."""
    step = _STEPS.get(line.kind)
    if step is None:
        return machine
    row = record_of(machine)
    step(row, EventSummary(0, iso(line.occurred_at), line.kind, line.subject, line.dedupe, line.body))
    return Machine.of(row)


def _order(line: Line) -> tuple[str, int]:
    return line.occurred_at, line.seq


def _apply(state: State, line: Line) -> list[dict[str, Any]]:
    """Take a line into the state; return the usages that it ended."""
    step = _STEPS.get(line.kind)
    state["last"] = [line.occurred_at, line.seq]
    if step is None:
        return []
    row = state["row"]
    if line.kind not in metering.KINDS:
        step(row, line)
        return []
    before = {name: row[name] for name in ("terminated_at", "seen_at", "pending_action", "billed", "state")}
    step(row, line)
    closed = metering.meter(state["meter"], row, line, before)
    row["open_usage"] = metering.unsummed_usages(state["meter"])
    for use in closed:
        notes, resource = row["charge_notes"], use["resource"]
        before_it = ChargeNote.of(notes[resource]) if resource in notes else aside.NO_NOTE
        notes[resource] = record_of(aside.note_with_charge(before_it, metering.add_to(row["usage_totals"], use)))
    row["unpriced"] = metering.is_unpriced(row)
    return closed


def _empty(line: Line) -> Record:
    row: Record = dict.fromkeys(
        (
            *_LAUNCH,
            *_SEEN,
            *_LEASE,
            "state_reason",
            "token",
            "settled_reason",
            "pending_action",
            "terminated_at",
            "seen_at",
        )
    )
    row |= {"id": line.subject, "attempt_number": 0, "launch_status": "made", "state": "unknown", "billed": False}
    row |= {"intended_at": line.occurred_at, "first_at": line.occurred_at}
    row |= {"unpriced": False, "action_reason": None, "renew_s": None}
    row |= {"retained": [], "parked": False, "discard": False, "seq": 0, "is_named_resource": False}
    row |= {"open_usage": [], "usage_totals": {}, "charge_notes": {}, "launch_failed": False, "traffic": None}
    return row


def _intended(row: Record, line: Line) -> None:
    if line.body["attempt"] < row["attempt_number"]:
        return
    row |= {name: line.body.get(name) for name in _LAUNCH}  # `guards` is there only where something guards it
    row |= {"attempt_number": line.body["attempt"], "token": line.body["token"], "launch_status": "open"}
    row["renew_s"] = line.body.get("renew_s")
    told.chosen(row, line)
    _of_cluster(row, line)
    for name in ("trust", "traffic_prices"):
        row.pop(name, None)
        if line.body.get(name):
            row[name] = line.body[name]
    row |= {"intended_at": line.occurred_at, "state": "unknown", "billed": False}
    row |= {"terminated_at": None, "pending_action": None}
    row |= {"discard": False, "launch_failed": False, "seq": line.body.get("seq", 0)} | dict.fromkeys(_OF_A_LIFE)
    told.forget_run(row)
    row.pop("refused_action", None)
    row.pop("taken_at", None)
    row.pop("interrupted_at", None)


def _adopted(row: Record, line: Line) -> None:
    row |= {name: line.body.get(name) for name in _LAUNCH if row[name] is None}
    row |= {"launch_status": "made", "terminated_at": None}
    if "cluster" not in row:
        _of_cluster(row, line)


def _of_cluster(row: Record, line: Line) -> None:
    row.pop("cluster", None)
    if line.body.get("cluster"):
        row["cluster"] = line.body["cluster"]


def _settled(row: Record, line: Line) -> None:
    made, denied = row["launch_status"] == "made", line.body["outcome"] != "made"
    if line.body["token"] != row["token"] or (made and denied):
        return  # who saw it knows better than one whose listing lacks it: that was asked too early, or after its end
    row |= {"launch_status": line.body["outcome"], "settled_reason": line.body["why"]}
    row["parked"] = row["parked"] and denied
    if denied:
        row |= {"state": "terminated", "billed": False, "terminated_at": line.occurred_at}


def _observed(row: Record, line: Line) -> None:
    body = line.body
    told.stopped_unrequested(
        row, line, over=body["state"] not in _RUNS, ran=row["launched_at"] and row["state"] in _RUNS
    )
    if row["billed"] and not body["billed"]:
        told.forget_warnings(row)
    for name in _SEEN:
        row[name] = body[name]
    row["state_reason"] = body["reason"]
    if (row.get("guards") or {}).get("tagged", True):  # else its tags are of its launch
        row |= {name: body[name] for name in _LEASE if body.get(name) is not None}
    if body.get("resized"):
        _resized(row, body["resized"])
    row["seen_at"], row["launch_status"] = line.occurred_at, "made"
    row["terminated_at"] = line.occurred_at if body["state"] == "terminated" else None
    if body["state"] not in _RUNS:
        row.pop("taken_at", None)
    if "refused_action" in row and body["state"] in _DONE[row["refused_action"]["action"]]:
        del row["refused_action"]
    if row["pending_action"] is not None and body["state"] in _DONE[row["pending_action"]]:
        row["pending_action"] = None


def _resized(row: Record, now: Mapping[str, Any]) -> None:
    row |= {name: now[name] for name in ("instance_type", "market", "accelerators", "on_demand")}
    row["price"] = now["prices"][-1] if now["prices"] else None


def _vanished(row: Record, line: Line) -> None:
    told.stopped_unrequested(row, line, over=True, ran=row["launched_at"] and row["state"] in _RUNS)
    row |= {"state": "terminated", "billed": False, "terminated_at": line.occurred_at, "seen_at": line.occurred_at}
    row |= {"pending_action": None, "address": None}
    row.pop("refused_action", None)
    row.pop("taken_at", None)
    told.forget_warnings(row)


def _requested(row: Record, line: Line) -> None:
    what = line.kind.removesuffix("_requested")
    row["action_reason"] = line.body["why"]
    told.requested(row, line)
    row["launch_failed"] = row.get("launch_failed", False) or bool(line.body.get("failed"))
    if row["terminated_at"] is None:
        row["pending_action"] = None if line.body.get("running") else what
    if what == "start" and not line.body.get("running"):
        told.forget_warnings(row)
        row.pop("refused_action", None)
        _guard_anew(row, waived=bool(line.body.get("waived")))
    if what in ("park", "terminate"):
        row |= {"parked": what == "park", "discard": what == "terminate"}


def _guard_anew(row: Record, *, waived: bool) -> None:
    """Note whether this start does without a run from outside; what was agreed to before counts no more."""
    guards = row.get("guards")
    if guards is not None and waived != guards.get("waived", False):
        plain = {name: value for name, value in guards.items() if name != "waived"}
        row["guards"] = {**plain, "waived": True} if waived else plain


def _start_refused(row: Record, _line: Line) -> None:
    row["pending_action"] = None if row["pending_action"] == "start" else row["pending_action"]


def _refused(row: Record, line: Line) -> None:
    if row["terminated_at"] is None:
        row |= {"pending_action": None, "parked": False, "discard": False, "refused_action": dict(line.body)}


def _kept(row: Record, line: Line) -> None:
    row["retained"] = line.body["retained"]
    row["parked"] = row["parked"] and (bool(row["retained"]) or row["terminated_at"] is None)


def _priced(row: Record, line: Line) -> None:
    if line.body["price"] is not None:
        row["price"] = line.body["price"]
    if line.body.get("on_demand") is not None:
        row["on_demand"] = line.body["on_demand"]


def _counted(row: Record, line: Line) -> None:
    row["traffic"] = {name: line.body.get(name) for name in ("until", "counted")}
    if line.body.get("received"):
        row["traffic"]["received"] = line.body["received"]["counted"]


def _interruption(row: Record, line: Line) -> None:
    if row["terminated_at"] is None:
        row["taken_at"] = line.body["at"]


def _leased(row: Record, line: Line) -> None:
    row |= {"expires": line.body["expires"], "renew_until": line.body["renew_until"]}


def _held(row: Record, line: Line) -> None:
    row["hold_until"] = line.body["until"]


def _thing(row: Record, line: Line) -> None:
    body = line.body
    row |= {"is_named_resource": True, "launch_status": "made", "state": body["kind"], "market": "on_demand"}
    row["seen_at"] = line.occurred_at
    row |= {name: body[name] for name in "name provider account region zone owner project".split()}
    row["identity"] = body.get("identity")
    row |= {"provider_id": body["id"], "instance_type": body["stored_as"], "terminated_at": None}
    row |= {"retained": [{name: value for name, value in body.items() if name not in ("owner", "project", "identity")}]}


def _thing_gone(row: Record, line: Line) -> None:
    row |= {"terminated_at": line.occurred_at, "retained": []}


_STEPS = {
    "decision_made": told.decided,
    "warning_sent": told.warned,
    "warning_cleared": told.lifted,
    "timer_set": told.timed,
    "terms_set": told.terms_set,
    "resource_observed": _thing,
    "resource_vanished": _thing_gone,
    "traffic_observed": _counted,
    "launch_intended": _intended,
    "launch_settled": _settled,
    "machine_adopted": _adopted,
    "instance_observed": _observed,
    "instance_vanished": _vanished,
    "stop_requested": _requested,
    "start_requested": _requested,
    "start_refused": _start_refused,
    "action_refused": _refused,
    "terminate_requested": _requested,
    "park_requested": _requested,
    "resources_retained": _kept,
    "price_observed": _priced,
    "lease_set": _leased,
    "hold_set": _held,
    "interruption_simulated": _interruption,
    "spot_interrupted": told.interrupted,
    "machine_shared": told.shared,
    "machine_unshared": told.unshared,
}
_OF_ANOTHER = frozenset(
    "decision_made interruption_simulated machine_shared machine_unshared spot_interrupted terms_set timer_set "
    "warning_sent warning_cleared".split()
)  # alone they tell of no row
