"""Meters what is billed without a running machine: retained resources, named volumes and images, and traffic.

The meter (`metering.new_meter`) holds usages as plain JSON values: here is how one is made, opened and ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cloudgpu.core.events.log import Line

Meter = dict[str, Any]
Metered = dict[str, Any]  # a usage as JSON: the fields of `core.model.usage.Usage`
Record = dict[str, Any]


def segment_of(price: Mapping[str, Any], at: str) -> Metered:
    """Return a price interval from `at` on, with `nanos` per unit."""
    known = {name: price.get(name) for name in ("nanos", "source", "as_of", "basis")}
    return {"at": at, "maybe_from": None, "list_nanos": known["nanos"], **known}


def hourly_segment(price: Mapping[str, Any], at: str) -> Metered:
    """Return a price interval from `at` on, of a machine's price (a `PriceRecord`)."""
    nanos = price["nanos_per_hour"]
    listed = price.get("list_nanos_per_hour") if price.get("is_negotiated") else nanos
    return segment_of(price, at) | {"nanos": nanos, "list_nanos": listed}


def use_of(record: Record, **facts: Any) -> Metered:
    """Return a usage with these fields and defaults for the others; the machine's market finds its billing rule."""
    defaults = {"id": "", "quantity": 1, "end": None, "on_demand": None, "first": True, "reason": None}
    defaults |= {"sure_from": None, "maybe_until": None, "why_maybe_less": "", "licence": "", "continues": None}
    defaults["maybe_since"] = None
    return defaults | {"provider": record["provider"] or "", "market": record["market"] or "on_demand"} | facts


def open_use(state: Meter, key: str, use: Metered) -> None:
    """Open a usage, but not before the last one with this key ended: no second is billed twice.

    If the machine was missing in between, the last one may have been billed until this one begins, and no longer:
    `cuts` has that time, by when the machine was missed. It counts when the lines are projected again.
    """
    use["begin"] = max(use["begin"], state.get("ends", {}).get(key, ""))
    state["open"][key] = use
    missed_at, until = state.get("missed", {}).pop(key, ("", ""))
    if use["begin"] < until:
        state.setdefault("cuts", {}).setdefault(missed_at, {})[key] = use["begin"]


def end_uses(
    state: Meter, keys: list[str], at: str, reason: str | None, maybe_until: str | None = None, missed: str = ""
) -> Iterator[Metered]:
    """End these usages and yield them; a run without a price waits instead, as one may still be recorded.

    `missed` is when the machine was no longer found, if it is not known when it ended.
    """
    for key in keys:
        use = state["open"].pop(key)
        why = reason if key == "instance" else None
        use |= {"end": max(at, use["begin"]), "reason": why, "maybe_until": maybe_until}
        if missed:
            _note_missed(state, key, use, missed)
        state.setdefault("ends", {})[key] = use["end"]
        if key == "instance" and not use["segments"]:
            state["waiting"].append(use)
        else:
            yield use


def _note_missed(state: Meter, key: str, use: Metered, at: str) -> None:
    until = state.get("cuts", {}).get(at, {}).get(key, use["maybe_until"])
    use["maybe_until"] = until if until > use["end"] else None
    state.setdefault("missed", {})[key] = [at, until]


_GROWN_REASON = "when it was made larger is not known"


def resources_retained(state: Meter, record: Record, line: Line, _before: Mapping[str, Any]) -> Iterator[Metered]:
    """Open usages of retained resources, and end those of resources that are gone.

    Until the machine ended, its disk was billed with it; a snapshot or image is billed since it was created. An image
    that replaces a snapshot was made of it: the same blocks stay billed.
    """
    entries = {f"resource:{entry['id']}": entry for entry in line.body["retained"]}
    gone = [key for key in state["open"] if key.startswith("resource:") and key not in entries]
    last_seen_at = line.body.get("alive_at")  # when a resource that others removed was last seen
    ended = list(
        end_uses(state, gone, last_seen_at or line.occurred_at, None, line.occurred_at if last_seen_at else None)
    )
    yield from ended
    for key, entry in entries.items():
        if key not in state["open"]:
            begin = _since(state, entry, line.occurred_at)
            is_same_disk = entry["kind"] == "disk" and begin == state.get("over")
            usage = _resource_usage(record, entry, begin) | {"continues": state["disk_since"] if is_same_disk else None}
            open_use(state, key, usage | _continued_from_snapshot(usage, ended))
        else:
            yield from _changed(state, record, key, entry, line, None)


def _continued_from_snapshot(image: Metered, ended: list[Metered]) -> Metered:
    """Return the begin and the continued usage of an image that replaces its own snapshot; empty for any other."""
    same = ("kind", "quantity")
    for use in ended if image["resource"] == "image" else ():
        if use["resource"] == "snapshot" and all(use[name] == image[name] for name in same):
            return {"begin": use["end"], "continues": use["continues"] or use["begin"]}
    return {}


def _since(state: Meter, entry: Mapping[str, Any], at: str) -> str:
    """Return since when a resource is billed as retained: a disk, since the machine itself ended."""
    made, over = entry["made_at"] or at, state.get("over")
    return max(made, over) if entry["kind"] == "disk" and over else made


def _changed(
    state: Meter, record: Record, key: str, entry: Mapping[str, Any], line: Line, since: str | None
) -> Iterator[Metered]:
    """Apply another size or price to an open usage; `since` is when the old one was last seen."""
    use, now = state["open"][key], _resource_usage(record, entry, line.occurred_at)
    if use["quantity"] != now["quantity"]:  # it was made larger, some time since the last sync
        yield from end_uses(state, [key], line.occurred_at, None)
        more = now["quantity"] - use["quantity"]
        if since is not None and more > 0:
            yield now | {"quantity": more, "begin": since, "end": line.occurred_at, "why_maybe_less": _GROWN_REASON}
        state["open"][key] = now
        return
    old = [segment["nanos"] for segment in use["segments"][-1:]]
    if old != [segment["nanos"] for segment in now["segments"]]:
        use["segments"] += [segment | {"maybe_from": since} for segment in now["segments"]]


def _resource_usage(record: Record, entry: Mapping[str, Any], begin: str) -> Metered:
    return use_of(
        record,
        resource="disk" if entry["kind"] == "volume" else entry["kind"],
        id=entry["id"],
        what=f"{entry['kind']} of {entry['size_gb']} GB",
        kind=entry["stored_as"],
        quantity=entry["size_gb"] if entry.get("by_size", True) else 1,
        per=entry.get("per") or "month",
        begin=begin,
        segments=[] if entry.get("nanos") is None else [segment_of(entry, begin)],
        why_maybe_less=entry.get("why_maybe_less") or "",
    )


def resource_observed(state: Meter, record: Record, line: Line, before: Mapping[str, Any]) -> Iterator[Metered]:
    """Open the usage of a named volume or image, since it was created, or apply its new size or price."""
    key, body = f"resource:{line.body['id']}", line.body
    if key in state["open"]:
        yield from _changed(state, record, key, body, line, body.get("alive_at") or before["seen_at"])
    else:
        open_use(state, key, _resource_usage(record, body, body["made_at"] or line.occurred_at))


def resource_vanished(state: Meter, _record: Record, line: Line, before: Mapping[str, Any]) -> Iterator[Metered]:
    """End a named resource at the cloud's time, else when last seen; then perhaps billed until it was missed."""
    ended_at = line.body.get("ended_at")
    at = ended_at or max(filter(None, (line.body.get("alive_at"), before["seen_at"])), default=line.occurred_at)
    yield from end_uses(state, list(state["open"]), at, None, None if ended_at else line.occurred_at)


def traffic_counted(_state: Meter, record: Record, line: Line, _before: Mapping[str, Any]) -> Iterator[Metered]:
    """Yield the counted bytes as an ended usage; some of them may not be charged."""
    received = line.body.get("received")
    if line.body["bytes_out"] or not received:
        yield _bytes(record, line, "bytes out", line.body["bytes_out"])
    if received:
        yield _bytes(record, line, "bytes in", received["bytes_in"])


def _bytes(record: Record, line: Line, what: str, number: int) -> Metered:
    """Return so many bytes of one direction as a usage; with an offer's own price, all of them are charged."""
    body = line.body
    rate = body["received"] if what == "bytes in" else body
    has_own_price = bool(record.get("traffic_prices"))
    return use_of(
        record,
        resource="traffic",
        id=record["provider_id"] or "",
        what=what,
        kind=rate.get("stored_as", ""),
        quantity=number,
        per="gb",
        begin=body["since"],
        end=body["until"],
        segments=[segment_of(rate, body["since"])] if rate.get("nanos") is not None else [],
        why_maybe_less=rate.get("why_maybe_less")
        or ("" if has_own_price else "what leaves the region is not counted apart from what does not"),
    )
