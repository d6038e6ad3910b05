"""When the machine ends: lease, hold, schedule and idle time, by two clocks. Pure.

An end has come when the wall clock has said so for `grace` seconds, or when the monotonic clock reaches the
moment fixed when the end was first seen; so a clock set back prolongs nothing and a short jump ends nothing.
A later value moves that moment by the difference. An end first seen as over is fixed once the wall clock has it
ahead. A clock before the launch (`made`) counts as the launch; one that is ahead ends an IDLE machine early.
A schedule ends a machine only once both clocks say so, and idle time counts by the monotonic one alone.
"""

from __future__ import annotations

from typing import Any

from cloudgpu.core.activity.idle import IDLE

TAGS = ("cloudgpu-expires", "cloudgpu-renew-until", "cloudgpu-hold-until")


def lease_of(tags: dict[str, Any], own: float) -> dict[str, float]:
    """Return the lease in force: the tag or our own renewal, never over renew-until. 0: none."""
    ends, until, hold = (float(tags.get(name, 0)) for name in TAGS)
    until = until or ends
    return {"expires": min(max(ends, own) or until, until), "renew_until": until, "hold_until": hold}


def mark(marks: dict[str, Any], lease: dict[str, float], now: float, mono: float, made: float) -> dict[str, Any]:
    """Return per end [value, due by the monotonic clock, since when the wall clock says that it is over]."""
    fresh = {}
    for name, value in lease.items():
        was, due, since = marks.get(name) or (value, None, None)
        left = value - max(now, made)
        if due is not None:
            due += value - was
        elif left > 0:
            due = mono + left
        since = (mono if since is None or was != value else since) if now >= value else None
        if value:
            fresh[name] = [value, due, since]
    return fresh


def has_ended(marks: dict[str, Any], name: str, mono: float, grace: float) -> bool:
    """Tell whether an end has come, by either clock; one that nobody set is over."""
    _, due, since = marks.get(name) or (0, 0, None)
    return (due is not None and mono >= due) or (since is not None and mono - since >= grace)


def has_surely_ended(marks: dict[str, Any], name: str, mono: float) -> bool:
    """Tell whether an end that somebody set has come by the clock that nobody sets."""
    return name in marks and marks[name][1] is not None and mono >= marks[name][1]


def decide(marks: dict[str, Any], activity: str, mono: float, grace: float, ends: str = IDLE) -> tuple[str, str]:
    """Return (keep, why), (renew, why) or (end, reason). Precedence: renew-until, schedule, hold, lease, idle.

    `activity` is that of the last minutes; `ends` names those that a lease ends, and "-" leaves the lease to others:
    this is one node of several. The mark `idle` is where the warning ends that no activity took back.
    """
    if "renew_until" not in marks:
        return "keep", "no lease is known"
    if has_ended(marks, "renew_until", mono, grace):
        return "end", "renew-until"
    if has_surely_ended(marks, "off", mono) and marks["off"][2] is not None:
        return "end", "schedule"
    ended = has_ended(marks, "expires", mono, grace)
    if not has_ended(marks, "hold_until", mono, grace):
        return "keep", "held" if ended else "leased"
    if ended:
        over_all = marks["expires"][0] >= marks["renew_until"][0]
        goes_on = "keep" if ends == "-" else "renew"
        return ("end", "lease") if activity in ends or over_all else (goes_on, activity)
    return ("end", "idle") if has_surely_ended(marks, "idle", mono) else ("keep", "leased")
