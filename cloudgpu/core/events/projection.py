"""Folds a machine's ledger lines into its current row and what it has used. Order of arrival does not matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

from cloudgpu.core.billing import charge_notes as aside
from cloudgpu.core.events import annotations as told
from cloudgpu.core.events import metering
from cloudgpu.core.events.log import Draft, Line, Said
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.times import iso

Row = dict[str, Any]
State = dict[str, Any]

_LAUNCH = (
    "key request name provider account region zone instance_type market accelerators price owner project "
    "policy template expires renew_until stoppable parkable stop_means setup beside on_demand max_price licence "
    "guards identity"
).split()
_SEEN = "provider_id state billed since launched_at address reason last_active".split()
_OF_A_LIFE = "provider_id since launched_at address reason last_active".split()  # a new launch has none yet
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
    """What lines fold to: the state, as plain JSON values, and the uses that ended meanwhile.

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


def follow(state: State, line: Line) -> list[dict[str, Any]] | None:
    """Take one more line into a state, and return the uses that it ended.

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


def unpacked(row: Row, rest: State) -> State:
    """Return the state that was packed as `rest`, with its row."""
    meter, uses = rest["meter"], row["uses"]
    waiting = meter["waiting"]
    meter |= {"waiting": uses[:waiting], "open": dict(zip(meter["open"], uses[waiting:], strict=True))}
    if meter.pop("in_row"):
        meter["prices"] += meter["open"]["instance"]["segments"]
    return {"row": row, **rest}


def machine_row(events: Iterable[Line]) -> Machine | None:
    """Return the machine (or kept thing) as these lines tell it, as plain JSON values; None when none is of one.

    `attempt` is `open`, `made`, `refused` or `void`; `ended` is when it was proved gone, else null.
    `uses` are the uses that are still billed, `totals` the sums of those that ended, by resource: [low, amount, high,
    on_demand, micros, unpriced, not_on_demand] as `core.billing.charges.Sum` has them; `aside` is what those do not say
    (`core.billing.charge_notes`).
    `parked` says that its end was asked so that `start` can bring it back, `discard` that nothing of it is to stay;
    `kept` are the disks and images of it that stay without it. `asked` is the last `stop`, `start`, `park` or
    `terminate` that was asked and not yet seen to be done. `seq` is how long the ledger was at the latest launch, as
    the tags of that machine say. `thing` says that this is no machine but a volume or image that is kept by name.
    There only where something was said: `warnings`, by rule {at, last, due, count, why} (when people were first and
    last told that it ends at `due`, how often, and why; a stop or a start forgets them), `decision` {do, rule, why,
    activity, at, since, activity_since} (what a pass last decided), `timer` (when its cloud ends it by itself).
    `failed` says that it was ended because it never came up. `traffic` is until when its bytes out are counted, and
    what the machine's own counter said then; null where they never were. `refused` {action, why, next}, there only
    while it is so: the provider refused its end, or its stop, as something protects it. `taken_at`, there only while it
    is so: a spot interruption is rehearsed, and this is when the machine is taken. `shared` {label, from, host_key,
    at}, by the fingerprint of each key that was let in, there only where there is one. `unasked` {at, seq}, there only
    while it is so: it was seen not to run any more, and nobody had asked for that. `terms` are the texts of the policy
    and limits that it is under, as `launch_intended` has them; there only where its launch is known.
    """
    found = folded(events)
    return None if found is None else cast("Machine", found.state["row"])


def as_told(row: Machine, line: Draft) -> Machine:
    """Return the row as it would be with this line; what the machine has used is not counted anew."""
    seen = cast("Row", deepcopy(row))
    step = _STEPS.get(line.kind)
    if step is not None:
        step(seen, Said(0, iso(line.occurred_at), line.kind, line.subject, line.dedupe, line.body))
    return cast("Machine", seen)


def _order(line: Line) -> tuple[str, int]:
    return line.occurred_at, line.seq


def _apply(state: State, line: Line) -> list[dict[str, Any]]:
    """Take a line into the state; return the uses that it ended."""
    step = _STEPS.get(line.kind)
    state["last"] = [line.occurred_at, line.seq]
    if step is None:
        return []
    row = state["row"]
    if line.kind not in metering.KINDS:
        step(row, line)
        return []
    before = {name: row[name] for name in ("ended", "seen_at", "asked", "billed", "state")}
    step(row, line)
    closed = metering.meter(state["meter"], row, line, before)
    row["uses"] = metering.unsummed(state["meter"])
    for use in closed:
        aside.note(row["aside"].setdefault(use["resource"], aside.empty()), metering.add_to(row["totals"], use))
    row["unpriced"] = metering.is_unpriced(row)
    return closed


def _empty(line: Line) -> Row:
    row: Row = dict.fromkeys((*_LAUNCH, *_SEEN, *_LEASE, "token", "settled_why", "asked", "ended", "seen_at"))
    row |= {"id": line.subject, "number": 0, "attempt": "made", "state": "unknown", "billed": False}
    row |= {"intended_at": line.occurred_at, "first_at": line.occurred_at}
    row |= {"unpriced": False, "why": None, "renew_s": None}
    row |= {"kept": [], "parked": False, "discard": False, "seq": 0, "thing": False}
    row |= {"uses": [], "totals": {}, "aside": {}, "failed": False, "traffic": None}
    return row


def _intended(row: Row, line: Line) -> None:
    if line.body["attempt"] < row["number"]:
        return
    row |= {name: line.body.get(name) for name in _LAUNCH}  # a line of an earlier version lacks what came later
    row |= {"number": line.body["attempt"], "token": line.body["token"], "attempt": "open"}
    row["renew_s"] = line.body.get("renew_s")
    told.chosen(row, line)
    row |= {"intended_at": line.occurred_at, "state": "unknown", "billed": False, "ended": None, "asked": None}
    row |= {"discard": False, "failed": False, "seq": line.body.get("seq", 0)} | dict.fromkeys(_OF_A_LIFE)
    told.forget_run(row)
    row.pop("refused", None)
    row.pop("taken_at", None)


def _adopted(row: Row, line: Line) -> None:
    row |= {name: line.body.get(name) for name in _LAUNCH if row[name] is None}
    row |= {"attempt": "made", "ended": None}


def _settled(row: Row, line: Line) -> None:
    been = row["attempt"] == "made" and row["ended"] is not None
    if line.body["token"] != row["token"] or (been and line.body["outcome"] != "made"):
        return  # whoever finds no trace of a machine that has been and gone may take it for one that was never made
    row |= {"attempt": line.body["outcome"], "settled_why": line.body["why"]}
    row["parked"] = row["parked"] and line.body["outcome"] != "made"
    if line.body["outcome"] != "made":
        row |= {"state": "terminated", "billed": False, "ended": line.occurred_at}


def _observed(row: Row, line: Line) -> None:
    body = line.body
    told.unasked(row, line, over=body["state"] not in _RUNS, ran=row["launched_at"] and row["state"] in _RUNS)
    if row["billed"] and not body["billed"]:
        told.forget_warnings(row)
    for name in _SEEN:
        row[name] = body[name]
    for name in _LEASE:
        if body.get(name) is not None:
            row[name] = body[name]
    if body.get("resized"):
        _resized(row, body["resized"])
    row["seen_at"], row["attempt"] = line.occurred_at, "made"
    row["ended"] = line.occurred_at if body["state"] == "terminated" else None
    if body["state"] not in _RUNS:
        row.pop("taken_at", None)
    if "refused" in row and body["state"] in _DONE[row["refused"]["action"]]:
        del row["refused"]
    if row["asked"] is not None and body["state"] in _DONE[row["asked"]]:
        row["asked"] = None


def _resized(row: Row, now: Mapping[str, Any]) -> None:
    row |= {name: now[name] for name in ("instance_type", "market", "accelerators", "on_demand")}
    row["price"] = now["prices"][-1] if now["prices"] else None


def _vanished(row: Row, line: Line) -> None:
    told.unasked(row, line, over=True, ran=row["launched_at"] and row["state"] in _RUNS)
    row |= {"state": "terminated", "billed": False, "ended": line.occurred_at, "seen_at": line.occurred_at}
    row |= {"asked": None, "address": None}
    row.pop("refused", None)
    row.pop("taken_at", None)
    told.forget_warnings(row)


def _requested(row: Row, line: Line) -> None:
    what = line.kind.removesuffix("_requested")
    row["why"] = line.body["why"]
    told.asked(row, line)
    row["failed"] = row.get("failed", False) or bool(line.body.get("failed"))
    if row["ended"] is None:
        row["asked"] = what
    if what == "start":
        told.forget_warnings(row)
        row.pop("refused", None)
    if what in ("park", "terminate"):
        row |= {"parked": what == "park", "discard": what == "terminate"}


def _start_refused(row: Row, _line: Line) -> None:
    row["asked"] = None if row["asked"] == "start" else row["asked"]


def _refused(row: Row, line: Line) -> None:
    if row["ended"] is None:
        row |= {"asked": None, "parked": False, "discard": False, "refused": dict(line.body)}


def _kept(row: Row, line: Line) -> None:
    row["kept"] = line.body["kept"]
    row["parked"] = row["parked"] and (bool(row["kept"]) or row["ended"] is None)


def _priced(row: Row, line: Line) -> None:
    if line.body["price"] is not None:
        row["price"] = line.body["price"]
    if line.body.get("on_demand") is not None:
        row["on_demand"] = line.body["on_demand"]


def _counted(row: Row, line: Line) -> None:
    row["traffic"] = {name: line.body.get(name) for name in ("until", "counted")}


def _interruption(row: Row, line: Line) -> None:
    if row["ended"] is None:
        row["taken_at"] = line.body["at"]


def _leased(row: Row, line: Line) -> None:
    row |= {"expires": line.body["expires"], "renew_until": line.body["renew_until"]}


def _held(row: Row, line: Line) -> None:
    row["hold_until"] = line.body["until"]


def _thing(row: Row, line: Line) -> None:
    body = line.body
    row |= {"thing": True, "attempt": "made", "state": body["kind"], "market": "on_demand", "seen_at": line.occurred_at}
    row |= {name: body[name] for name in "name provider account region zone owner project".split()}
    row["identity"] = body.get("identity")
    row |= {"provider_id": body["id"], "instance_type": body["stored_as"], "ended": None}
    row |= {"kept": [{name: value for name, value in body.items() if name not in ("owner", "project", "identity")}]}


def _thing_gone(row: Row, line: Line) -> None:
    row |= {"ended": line.occurred_at, "kept": []}


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
    "machine_shared": told.shared,
    "machine_unshared": told.unshared,
}
_OF_ANOTHER = frozenset(
    "decision_made interruption_simulated machine_shared machine_unshared terms_set timer_set warning_sent "
    "warning_cleared".split()
)  # alone they tell of no row
