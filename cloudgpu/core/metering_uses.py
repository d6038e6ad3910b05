"""Uses as the meter keeps them, as plain JSON values: how one is made, opened and ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Meter = dict[str, Any]
Made = dict[str, Any]
Row = dict[str, Any]


def segment_of(price: Mapping[str, Any], at: str) -> Made:
    """Return a price as it held from `at` on: `nanos` for one of what is billed."""
    known = {name: price.get(name) for name in ("nanos", "source", "as_of", "basis")}
    return {"at": at, "maybe_from": None, **known}


def use_of(row: Row, **facts: Any) -> Made:
    """Return a use with what is common to most; `market` is that of the machine, so that its rule is found."""
    usual = {"id": "", "quantity": 1, "end": None, "on_demand": None, "first": True, "reason": None}
    usual |= {"sure_from": None, "maybe_until": None, "at_most": "", "licence": "", "continues": None}
    usual["maybe_since"] = None
    return usual | {"provider": row["provider"] or "", "market": row["market"] or "on_demand"} | facts


def open_use(state: Meter, key: str, use: Made) -> None:
    """Begin a use, but not before the last one of the same thing ended: nothing is paid twice for the same second."""
    use["begin"] = max(use["begin"], state.get("ends", {}).get(key, ""))
    state["open"][key] = use


def end_uses(
    state: Meter, keys: list[str], at: str, reason: str | None, maybe_until: str | None = None
) -> Iterator[Made]:
    """End these uses and yield them, but for a run without a price: that waits, it may be told yet."""
    for key in keys:
        use = state["open"].pop(key)
        why = reason if key == "instance" else None
        use |= {"end": max(at, use["begin"]), "reason": why, "maybe_until": maybe_until}
        state.setdefault("ends", {})[key] = use["end"]
        if key == "instance" and not use["segments"]:
            state["waiting"].append(use)
        else:
            yield use
