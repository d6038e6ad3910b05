"""When each layer would end a machine, as lines of `ls -v` and of `show`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from cloudgpu.core.times import from_iso

_NOT_THERE = {"agent": "none, as a shutdown from inside does not end what it costs", "timer": "none"}
LAYERS = (("agent", "the agent"), ("timer", "the timer in the cloud"), ("reaper", "the reaper"))


def guards(value: dict[str, Any], now: datetime) -> str | None:
    """Return in words when each layer would end a machine; None for one that is not billed."""
    from cloudgpu.cli.render import rounded

    if value["ended"] or not value["billed"]:
        return None
    said = []
    for key, name in LAYERS:
        at = value["guards"][key]
        if at is None:
            said.append(f"{name}: {_NOT_THERE.get(key, 'nothing decided')}")
            continue
        left = (from_iso(at) - now).total_seconds()
        said.append(f"{name} {'in ' + rounded(left) if left > 0 else 'now'}")
    return "; ".join(said)


def guard_lines(values: Sequence[dict[str, Any]], last_pass: str | None, now: datetime) -> list[str]:
    """Return a line per machine that is billed, and one about passes."""
    from cloudgpu.cli.render import ago, facts

    shown = [(value["name"], said) for value in values if (said := guards(value, now)) is not None]
    passes = f"The last pass that succeeded was {ago(last_pass, now)}." if last_pass else "No pass has ever succeeded."
    return ["\nEnded by", facts(shown), passes] if shown else []
