"""When the machine ends: by lease, hold, schedule or idle time, and by two clocks. Pure.

An end is over when it has passed by the wall clock for `grace` seconds, or when the monotonic clock reaches the moment
that was computed when the end was first seen. So a clock that is set back prolongs nothing, and a short jump ends
nothing. When the end is changed, that moment moves by the difference. An end that was over when first seen gets its
moment once the wall clock has the end ahead of it. A wall clock before `launched_at` counts as `launched_at`; one that
is fast ends an IDLE machine early. A schedule ends a machine only when both clocks say so; idle time counts by the
monotonic clock. `marks` is the saved state: per end (`expires`, `renew_until`, `hold_until`, `off` by schedule, `idle`)
a list [epoch, due, over_since]. `due` is when it ends, `over_since` since when the wall clock has said so; both are
seconds of the monotonic clock, None while not known. `now` is the epoch, `mono` seconds of the monotonic clock.
"""

from __future__ import annotations

from typing import Any

from cloudgpu.core.activity.idle import IDLE

LEASE_TAGS = ("cloudgpu-expires", "cloudgpu-renew-until", "cloudgpu-hold-until")


def lease_of(tags: dict[str, Any], renewed_until: float) -> dict[str, float]:
    """Return the lease in force as epochs, 0 for none: by the tags or the agent's renewal, at most renew-until."""
    expires, renew_until, hold = (float(tags.get(name, 0)) for name in LEASE_TAGS)
    renew_until = renew_until or expires
    return {
        "expires": min(max(expires, renewed_until) or renew_until, renew_until),
        "renew_until": renew_until,
        "hold_until": hold,
    }


def update_marks(
    marks: dict[str, Any], lease: dict[str, float], now: float, mono: float, launched_at: float
) -> dict[str, Any]:
    """Return the new marks: `lease` has the epoch of each end (0: not set), `marks` are those of the step before."""
    updated = {}
    for name, value in lease.items():
        old_value, due, over_since = marks.get(name) or (value, None, None)
        seconds_left = value - max(now, launched_at)
        if due is not None:
            due += value - old_value
        elif seconds_left > 0:
            due = mono + seconds_left
        over_since = (mono if over_since is None or old_value != value else over_since) if now >= value else None
        if value:
            updated[name] = [value, due, over_since]
    return updated


def has_ended(marks: dict[str, Any], name: str, mono: float, grace: float) -> bool:
    """Tell whether the end `name` has passed, by either clock; one that is not set has."""
    _, due, over_since = marks.get(name) or (0, 0, None)
    return (due is not None and mono >= due) or (over_since is not None and mono - over_since >= grace)


def has_ended_monotonic(marks: dict[str, Any], name: str, mono: float) -> bool:
    """Tell whether the end `name` is set and has passed by the monotonic clock."""
    return name in marks and marks[name][1] is not None and mono >= marks[name][1]


def decide(
    marks: dict[str, Any], activity: str, mono: float, grace: float, ending_activities: str = IDLE
) -> tuple[str, str]:
    """Return a verdict (keep, renew or end) and its reason. Precedence: renew-until, schedule, hold, lease, idle.

    `activity` is that of the last minutes. A lease ends a machine whose activity is in `ending_activities`, and renews
    it otherwise; "-" does neither, for nodes of a cluster, which end together.
    """
    if "renew_until" not in marks:
        return "keep", "no lease is known"
    if has_ended(marks, "renew_until", mono, grace):
        return "end", "renew-until"
    if has_ended_monotonic(marks, "off", mono) and marks["off"][2] is not None:
        return "end", "schedule"
    lease_ended = has_ended(marks, "expires", mono, grace)
    if not has_ended(marks, "hold_until", mono, grace):
        return "keep", "held" if lease_ended else "leased"
    if lease_ended:
        is_at_renew_until = marks["expires"][0] >= marks["renew_until"][0]
        verdict = "keep" if ending_activities == "-" else "renew"
        return ("end", "lease") if activity in ending_activities or is_at_renew_until else (verdict, activity)
    return ("end", "idle") if has_ended_monotonic(marks, "idle", mono) else ("keep", "leased")
