"""When each layer would end a machine, as lines of `ls -v` and of `show`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from cloudgpu.cli.render import ago, facts, rounded
from cloudgpu.core.values.times import from_iso

_NO_AGENT = {
    "none": "none, as nothing of cloudgpu runs on it",
    "tells": "none, as a shutdown from inside does not end what it costs",
}
_TIMERS = {"own": "its own timer, a process beside it"}
ONLY_PASSES = "only a pass of cloudgpu reap or watch ends it"


def guards(value: dict[str, Any], now: datetime) -> str | None:
    """Return in words when each layer would end a machine; None for one that is not billed."""
    if value["ended"] or not value["billed"]:
        return None
    found = value["guards"]
    said = [
        _said("the agent", found["agent"], _NO_AGENT.get(found["agent_is"], "none"), now),
        *([] if _has_no_cloud(value) else [_said(_timer(found), found["timer"], "none", now)]),
        _said("the reaper", found["reaper"], "nothing decided", now),
    ]
    if found["agent_is"] in _NO_AGENT and found["timer_is"] == "none":
        said.append(ONLY_PASSES)
    return "; ".join(said)


def _timer(found: dict[str, Any]) -> str:
    return _TIMERS.get(found["timer_is"], "the timer in the cloud")


def _has_no_cloud(value: dict[str, Any]) -> bool:
    """Say whether there is no timer, nor a cloud that could have one."""
    from cloudgpu.control.session.accounts import is_owned

    return is_owned(value) and value["guards"]["timer_is"] == "none"


def _said(name: str, at: str | None, absent: str, now: datetime) -> str:
    if at is None:
        return f"{name}: {absent}"
    left = (from_iso(at) - now).total_seconds()
    return f"{name} {'in ' + rounded(left) if left > 0 else 'now'}"


def guard_lines(values: Sequence[dict[str, Any]], last_pass: str | None, now: datetime) -> list[str]:
    """Return a line per machine that is billed, and one about passes."""
    shown = [(value["name"], said) for value in values if (said := guards(value, now)) is not None]
    passes = f"The last pass that succeeded was {ago(last_pass, now)}." if last_pass else "No pass has ever succeeded."
    return ["\nEnded by", facts(shown), passes] if shown else []
