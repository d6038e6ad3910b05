"""Turns the lines of one machine, in order, into usages: which resource was billed from when to when, at what price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from cloudgpu.core.billing.charges import Charge, charge
from cloudgpu.core.billing.rules import Rule, rule_of
from cloudgpu.core.events.log import Line, clock_ahead
from cloudgpu.core.events.metering_resources import (
    Meter,
    Metered,
    Record,
    end_uses,
    hourly_segment,
    open_use,
    resource_observed,
    resource_vanished,
    resources_retained,
    segment_of,
    traffic_counted,
    use_of,
)
from cloudgpu.core.model.usage import Resource, usage_of_record
from cloudgpu.core.values.times import from_iso, iso

_EMPTY = (0,) * 7
PriorFields = Mapping[str, Any]  # some fields of a machine's record before the line
STARTS_WITHIN = timedelta(minutes=1)  # up to this, uncertainty about a start is not billed; longer, it is in the amount
RUNS_WITHIN = timedelta(minutes=15)  # assumed: a machine seen starting runs at the latest so long after
_STARTING = "it was only seen to start, which is not billed"
_UNCERTAIN = "its cloud did not know its state, and answered that it is not billed"
_STOPPED, _SHUT_DOWN = "stopped:", ("stopped", "deallocated")
_SECOND = len("2026-11-20T11:00:00")  # the length of a ledger time in whole seconds, as clouds report times


def new_meter() -> Meter:
    """Return the empty meter of a machine: plain JSON values, from which its usages are made.

    `open` has the usages that are billed still, by key; `waiting` are ended runs whose price is not known yet. `prices`
    are the price intervals of the present launch, and `runs` counts its runs. `adopted`: its launch was never seen
    here. `over` is when the machine itself last ended, and `disk_since` since when its only disk was billed, which may
    be retained. `ends` is until when each key has been billed, so that no second is billed twice.
    """
    return {
        "open": {},
        "waiting": [],
        "prices": [],
        "runs": 0,
        "adopted": False,
        "over": None,
        "disk_since": None,
        "ends": {},
    }


def unsummed_usages(state: Meter) -> list[Metered]:
    """Return the usages that are in no total yet: those that are billed still, and those without a known price yet."""
    return [*state["waiting"], *state["open"].values()]


def meter(state: Meter, record: Record, line: Line, before: PriorFields) -> list[Metered]:
    """Apply a line to the meter, in place, and return the usages that it ended.

    `record` is the machine's record after that line; `before` has some of its fields before it.
    """
    step = _STEPS.get(line.kind)
    return [] if step is None else list(step(state, record, line, before))


def add_to_totals(totals: dict[str, list[int]], use: Metered) -> Charge:
    """Add a usage that has ended to the totals of its resource (`Machine.usage_totals`); return its charge."""
    cost = charge(usage_of_record(use), from_iso(use["end"]))
    amounts = (cost.low, cost.amount, cost.high, cost.list_cost or 0, cost.billed_us, int(cost.unpriced_us > 0))
    sums = totals.get(use["resource"], _EMPTY)
    totals[use["resource"]] = [
        old + amount for old, amount in zip(sums, (*amounts, int(cost.list_cost is None)), strict=True)
    ]
    return cost


def is_unpriced(record: Record) -> bool:
    """Say whether the machine itself has run, or runs, without a known price; or never had one."""
    if record["is_named_resource"]:
        return any(not use["segments"] for use in record["open_usage"])
    if record["price"] is None or record["usage_totals"].get("instance", _EMPTY)[5]:
        return True
    for use in record["open_usage"]:  # noqa: SIM110  (a loop is faster, and this is asked at every line)
        if use["resource"] == "instance" and not use["segments"]:
            return True
    return False


def _intended(state: Meter, record: Record, line: Line, _before: PriorFields) -> Iterator[Metered]:
    if line.body["attempt"] < record["attempt_number"]:
        return  # a late line of an earlier attempt
    if "instance" not in state["open"]:
        yield from state["waiting"]  # their price was never known, and is not that of the next launch
        state |= {"prices": [], "runs": 0, "waiting": [], "adopted": False}
    yield from _note_price(state, line)


def _adopted(state: Meter, _record: Record, line: Line, _before: PriorFields) -> Iterator[Metered]:
    state["adopted"] = True
    if not state["prices"]:  # a known price is kept
        yield from _note_price(state, line)


def _priced(state: Meter, _record: Record, line: Line, _before: PriorFields) -> Iterator[Metered]:
    run, listed = state["open"].get("instance"), line.body.get("on_demand")
    if run is not None and run["on_demand"] is None and listed is not None:
        run["on_demand"] = listed["nanos_per_hour"]
    yield from _note_price(state, line)


def _note_price(state: Meter, line: Line) -> Iterator[Metered]:
    """Add a price; the first one of a launch also applies to its earlier runs."""
    price = line.body["price"]
    if price is None:
        return
    segment = hourly_segment(price, line.occurred_at) | {"maybe_from": line.body.get("maybe_from")}
    state["prices"].append(segment)
    if "instance" in state["open"]:
        state["open"]["instance"]["segments"].append(segment)
    yield from (use | {"segments": [segment]} for use in state["waiting"])
    state["waiting"] = []


def _observed(state: Meter, record: Record, line: Line, before: PriorFields) -> Iterator[Metered]:
    body, maybe_until = line.body, None
    at = body.get("since") or line.occurred_at
    if body["state"] == "unknown":
        yield from _state_lost(state, record, line, before)
        return
    _move_begin(state, record, body.get("pending_at"))
    if body["billed"]:
        yield from _end_uncertainty(state, line, at)
    else:
        at, maybe_until = _end_times(record, line, before)
        _begin_unseen(state, record, line, before, at)
    if body["state"] == "terminated":
        yield from _all_ended(state, at, body.get("reason"), maybe_until)
        return
    if not body["billed"]:
        yield from _run_ended(state, at, body.get("reason"), maybe_until)
    elif body.get("alive_at") and body["alive_at"] < at:  # it was stopped and started again, and nobody saw that
        yield from _run_ended(state, body["alive_at"], None, at)
    since = _changed_since(state, line)
    if body.get("resized"):
        yield from _resized(state, line, at, since)
    begin, sure_from = _begin_times(state, record, line, before, at) if since is None else (line.occurred_at, None)
    yield from _update_stopped_costs(state, record, body, begin, at)
    open_before = set(state["open"])
    _begin(state, record, body.get("launched_at"), begin, sure_from, billed=body["billed"])
    if since is not None:
        _mark_earlier_change(state, since)
    if body["billed"] and _rule(record).from_running:
        _resolve_start(state, line, set(state["open"]) - open_before)
        if body["state"] == "pending":
            _move_begin(state, record, line.occurred_at)


def _state_lost(state: Meter, record: Record, line: Line, before: PriorFields) -> Iterator[Metered]:
    """End the certain usage of a machine in an unknown state that is not billed: its host is offline, for example.

    A usage that may cost nothing follows, as the machine may return unseen. If it is billed, nothing changes.
    """
    if line.body["billed"]:
        return
    at, _ = _end_times(record, line, before)
    if before["state"] == "pending":
        _move_begin(state, record, at)
    runs = {key: use for key, use in state["open"].items() if _only_runs(key) and use["why_maybe_less"] != _UNCERTAIN}
    yield from end_uses(state, list(runs), at, None)
    for key, use in runs.items():
        continued = {"begin": use["end"], "continues": use["continues"] or use["begin"], "segments": [*use["segments"]]}
        uncertain = {"end": None, "first": False, "sure_from": None, "maybe_since": None, "why_maybe_less": _UNCERTAIN}
        open_use(state, key, use | continued | uncertain)


def _end_uncertainty(state: Meter, line: Line, at: str) -> Iterator[Metered]:
    """End the uncertain usage of a machine that is billed again: at the cloud's time if that is within it, else now."""
    doubted = {key: use["begin"] for key, use in state["open"].items() if use["why_maybe_less"] == _UNCERTAIN}
    if doubted:
        yield from end_uses(state, list(doubted), at if at > max(doubted.values()) else line.occurred_at, None)


def _changed_since(state: Meter, line: Line) -> str | None:
    """Return since when a continuing run may have had another type; None without one, or without a change."""
    run, now = state["open"].get("instance"), line.body.get("resized")
    if run is None or now is None or not line.body["billed"]:
        return None
    return str(max(run["begin"], min(now["after"] or line.occurred_at, line.occurred_at)))


def _resized(state: Meter, line: Line, at: str, since: str | None) -> Iterator[Metered]:
    """End the run at the old price, and set the new prices, if they are known."""
    now = line.body["resized"]
    at = at if since is None else line.occurred_at
    new_prices = [hourly_segment(price, at) for price in now["prices"]]
    for segment in new_prices[1:]:
        segment["at"] = max(at, segment["as_of"])
    before = state["open"]["instance"]["segments"][-1:] if since is not None else []
    if since is not None:
        yield from _run_ended(state, since, None, None if new_prices else line.occurred_at)
    yield from state["waiting"]  # their price was never known, and is not that of what the machine is now
    if new_prices and before:
        new_prices[0]["maybe_from"] = since
        new_prices = [{**before[0], "at": since, "maybe_from": None}, *new_prices]
    state |= {"prices": new_prices, "waiting": []}


def _mark_earlier_change(state: Meter, since: str) -> None:
    """Mark usages that began with an observed change as perhaps begun at `since`, when it was last seen unchanged."""
    for key, use in state["open"].items():
        if _only_runs(key):
            use["maybe_since"] = since
    if len(state["prices"]) > 1 and state["prices"][1]["maybe_from"] == since:
        state["open"]["instance"]["segments"] = list(state["prices"])


def _end_times(record: Record, line: Line, before: PriorFields) -> tuple[str, str | None]:
    """Return when a machine that is no longer billed ended, and until when it may have been billed (None: not longer).

    The cloud's time counts, unless a sync saw the machine billed later, by more than the launching clock was ahead. If
    that time may be of an end before the one that was requested, it may have been billed until the request.
    """
    body, now = line.body, line.occurred_at
    since = body.get("since")
    if since is None:
        last_alive_at = max(filter(None, (body.get("alive_at"), before["seen_at"])), default=now)
        return (min(last_alive_at, now), now) if body.get("alive_at") else (now, None)
    was_billed = before["billed"] and before["state"] != "pending"
    billed_at = max(filter(None, (body.get("billed_at"), before["seen_at"] if was_billed else None)), default="")
    if since[:_SECOND] < billed_at[:_SECOND]:
        earliest = iso(from_iso(billed_at) - clock_ahead(record["intended_at"], record["launched_at"]))
        return (min(billed_at, now), now) if since[:_SECOND] < earliest[:_SECOND] else (since, min(billed_at, now))
    asked_at = body.get("asked_at")
    return since, min(asked_at, now) if asked_at and since[:_SECOND] < asked_at[:_SECOND] else None


def _rule(record: Record) -> Rule:
    return rule_of(record["provider"] or "", record["market"] or "on_demand", Resource.INSTANCE)


def _resolve_start(state: Meter, line: Line, new_keys: set[str]) -> None:
    """Mark usages of a starting machine as perhaps not billed yet, and remove the mark once it was seen running.

    A cloud reports when it accepted the start; the machine ran at the latest when it was first seen running.
    """
    for key, use in state["open"].items():
        if line.body["state"] == "pending" and key in new_keys and _only_runs(key) and not use["why_maybe_less"]:
            use["why_maybe_less"] = _STARTING
        elif line.body["state"] != "pending" and use["why_maybe_less"] == _STARTING:
            use["why_maybe_less"] = ""
            _set_begin_of_run(use, line.occurred_at, line.body.get("pending_at"))


def _set_begin_of_run(use: Metered, seen: str, pending_at: str | None) -> None:
    """Set when a run began that was first seen running at `seen`, and was not billed before its `begin`.

    A short uncertain time is not in the amount; a longer one is, so that the amount is never much less than the bill.
    A machine that was last seen starting at `pending_at` is assumed to have run at most RUNS_WITHIN later.
    """
    sure_from = min(seen, iso(from_iso(max(use["begin"], pending_at or "")) + RUNS_WITHIN))
    if use["sure_from"] is not None:
        use["sure_from"] = max(use["sure_from"], sure_from)
    elif from_iso(seen) - from_iso(use["begin"]) > STARTS_WITHIN:
        use["sure_from"] = sure_from
    elif seen > use["begin"]:
        use |= {"begin": seen, "maybe_since": use["begin"]}


def _move_begin(state: Meter, record: Record, seen: str | None) -> None:
    """Move the begin of a usage to `seen`, when a sync saw the machine still starting, if its cloud bills no start.

    Not for a machine that has reported activity since, so it ran, nor for an adopted one, which may have run before.
    """
    may_have_run = state["adopted"] and state["runs"] == 1
    if seen is None or may_have_run or not _rule(record).from_running or _rule(record).maybe_starting:
        return
    not_before = iso(from_iso(seen) - clock_ahead(record["intended_at"], record["launched_at"]))
    for key, use in state["open"].items():
        if _only_runs(key) and use["why_maybe_less"] == _STARTING and (record["last_active"] or "") <= use["begin"]:
            use["begin"] = max(use["begin"], not_before)


def _begin_times(state: Meter, record: Record, line: Line, before: PriorFields, at: str) -> tuple[str, str | None]:
    """Return when a newly seen run began, and from when on that is certain (None: from its begin).

    A launch whose answer was lost may have begun when the cloud accepted it, or as early as the call.
    """
    body = line.body
    if body.get("since") or not body["billed"] or state["runs"] or state["adopted"]:
        return at, None
    began = body.get("launched_at") or _not_before(record, before) or at
    return (at, None) if from_iso(at) - from_iso(began) <= STARTS_WITHIN else (began, at)


def _not_before(record: Record, before: PriorFields) -> str | None:
    """Return the ledger's own time before which the present launch was not billed: its call, or a sync since."""
    return max(filter(None, (record["intended_at"], before["seen_at"])), default=None)


def _run_ended(state: Meter, at: str, reason: str | None, maybe_until: str | None) -> Iterator[Metered]:
    _forget_prices(state)
    yield from end_uses(state, [key for key in state["open"] if _only_runs(key)], at, reason, maybe_until)


def _begin_unseen(state: Meter, record: Record, line: Line, before: PriorFields, at: str) -> None:
    """Open the run of a machine that has ended when it is first seen: it was billed since its launch all the same.

    If it is not known when that was, it may have run since the call, and may not have run at all.
    """
    launched = line.body.get("launched_at")
    begin = launched or (None if line.body["state"] == "pending" else _not_before(record, before))
    if state["runs"] or "instance" in state["open"] or not begin:
        return
    at_once = line.body["state"] == "terminated" and begin[:_SECOND] == at[:_SECOND]  # the minimum of a start is billed
    if begin >= at and not at_once:
        return
    _begin(state, record, launched, min(begin, at), billed=True)
    if state["adopted"] or not launched:
        state["open"]["instance"]["sure_from"] = at  # it may have been stopped before, unseen


def _begin(
    state: Meter, record: Record, since: str | None, at: str, sure_from: str | None = None, *, billed: bool
) -> None:
    """Open usages that the observed state bills, or that are billed while the machine exists, if not open yet."""
    open_usages = state["open"]
    if billed and "instance" not in open_usages:
        is_first_of_adopted = state["adopted"] and not state["runs"]
        begin = min(at, since) if is_first_of_adopted and since else at
        open_use(state, "instance", _run(state, record, begin, max(at, begin) if is_first_of_adopted else sure_from))
        state["runs"] += 1
    for number, entry in enumerate(record["attached_costs"] or ()):
        kept = entry["kept"]
        key = f"kept:{number}" if kept else f"runs:{number}"
        if key in open_usages or not (kept or billed) or entry.get("named"):
            continue  # open already, not billed in this state, or a named volume, which has usages of its own
        if entry.get("running", True):
            begin = (since or at) if kept else at
            open_use(state, key, _attached_usage(record, entry, begin))


def _update_stopped_costs(state: Meter, record: Record, body: PriorFields, began: str, at: str) -> Iterator[Metered]:
    """End or open usages that are billed only while a machine is stopped, like a disk that costs more then."""
    if body["billed"]:
        yield from end_uses(state, [key for key in state["open"] if key.startswith(_STOPPED)], began, None, None)
        return
    if body["state"] not in _SHUT_DOWN or record.get("stoppable") is False:
        return
    for number, entry in enumerate(record["attached_costs"] or ()):
        key = f"{_STOPPED}{number}"
        if entry["kept"] and not entry.get("running", True) and key not in state["open"]:
            open_use(state, key, _attached_usage(record, entry, at))


def _forget_prices(state: Meter) -> None:
    """Forget the prices before the run that ends now: what begins later needs none of them."""
    run = state["open"].get("instance")
    known = [number for number, segment in enumerate(state["prices"]) if run and segment["at"] <= run["begin"]]
    if known:
        state["prices"] = state["prices"][known[-1] :]


def _only_runs(key: str) -> bool:
    """Say whether a usage is billed only while the machine runs."""
    return key == "instance" or key.startswith("runs:")


def _run(state: Meter, record: Record, begin: str, sure_from: str | None) -> Metered:
    on_demand_price = record.get("on_demand") or (record["price"] if record["market"] == "on_demand" else None)
    prices = state["prices"]
    known = [number for number, segment in enumerate(prices) if segment["at"] <= begin]
    return use_of(
        record,
        resource="instance",
        id=record["provider_id"] or "",
        what=f"{record['instance_type']} {'spot' if record['market'] == 'spot' else 'on demand'}",
        kind=record["instance_type"] or "",
        per="hour",
        begin=begin,
        segments=prices[known[-1] if known else 0 :],
        on_demand=on_demand_price and on_demand_price["nanos_per_hour"],
        first=not state["runs"] and not state["adopted"],
        licence=record.get("licence") or "",
        sure_from=sure_from if sure_from is not None and sure_from > begin else None,
    )


def _attached_usage(record: Record, entry: PriorFields, begin: str) -> Metered:
    return use_of(
        record,
        resource=entry.get("resource", "disk"),
        what=entry["what"],
        kind=entry.get("stored_as", ""),
        quantity=entry.get("quantity", 1),
        per=entry.get("per", "month"),
        begin=begin,
        segments=[] if entry.get("nanos") is None else [segment_of(entry, begin)],
        why_maybe_less=entry.get("why_maybe_less") or "",
    )


def _vanished(state: Meter, record: Record, line: Line, before: PriorFields) -> Iterator[Metered]:
    """End all usages at the cloud's time, else when it was last seen; without `alive_at`, at the request."""
    ended_at = line.body.get("ended_at")
    if ended_at is None and before["pending_action"] in ("terminate", "park") and not line.body.get("alive_at"):
        ended_at = line.occurred_at
    last_alive_at = max(filter(None, (line.body.get("alive_at"), before["seen_at"])), default=line.occurred_at)
    _move_begin(state, record, line.body.get("alive_at"))
    at = ended_at or min(last_alive_at, line.occurred_at)
    uncertainty = () if ended_at else (line.occurred_at, line.occurred_at)
    yield from _all_ended(state, at, record.get("state_reason"), *uncertainty)


def _resolve_launch(state: Meter, record: Record, line: Line, _before: PriorFields) -> Iterator[Metered]:
    if record["launch_status"] in ("refused", "void") and record["token"] == line.body["token"]:
        yield from _all_ended(state, line.occurred_at, None)


def _all_ended(state: Meter, at: str, reason: str | None, *uncertainty: Any) -> Iterator[Metered]:
    """End the usages of the machine itself, not of retained resources.

    `uncertainty`: `maybe_until`, `missed` of `end_uses`.
    """
    keys = [key for key in state["open"] if not key.startswith("resource:")]
    if keys:
        disks = [state["open"][key] for key in keys if state["open"][key]["resource"] == "disk"]
        state |= {"over": at, "disk_since": disks[0]["begin"] if len(disks) == 1 else None}
    yield from end_uses(state, keys, at, reason, *uncertainty)


_STEPS = {
    "launch_intended": _intended,
    "machine_adopted": _adopted,
    "price_observed": _priced,
    "instance_observed": _observed,
    "instance_vanished": _vanished,
    "launch_settled": _resolve_launch,
    "resources_retained": resources_retained,
    "resource_observed": resource_observed,
    "resource_vanished": resource_vanished,
    "traffic_observed": traffic_counted,
}
KINDS = frozenset(_STEPS)  # the lines that may change what is billed; others change the record only
