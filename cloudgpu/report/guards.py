"""Which layers would end a machine when, by what its row says: the agent on it, its timer, the reaper."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from cloudgpu.core.policies.endings import is_spared
from cloudgpu.core.policies.guards import Agent, Timer, guards_of
from cloudgpu.core.values.times import from_iso

Row = dict[str, Any]
FIRES_WITHIN = timedelta(minutes=5)  # clouds fire to the minute, and a machine takes a while to be stopped
NOT_KNOWN = "none"  # the rule of the warning that nothing is known of a machine: it ends nothing
BY_TIMER = "renew-until: the timer in the cloud"


def guards_value(row: Row) -> dict[str, Any]:
    """Return when each layer would end the machine as things stand, null for a layer that would not, and what it is.

    The agent may be sooner, for one that is idle; the reaper's is what its last pass has decided.
    """
    found = guards_of(row)
    what = {"agent_is": found and str(found.agent), "timer_is": found and str(found.timer)}
    if row["ended"] is not None or not row["billed"]:
        return {"agent": None, "timer": None, "reaper": None} | what
    return {
        "agent": _agents_end(row) if ends_itself(row) else None,
        "timer": timer_of(row),
        "reaper": (row.get("decision") or {}).get("at"),
    } | what


def _agents_end(row: Row) -> str | None:
    """Return when the agent ends it at the latest, if nobody uses it; its lease may be no reason for that."""
    spared = is_spared(row, None)
    end: str | None = row["renew_until"] if spared else row["expires"]
    return end


def ends_itself(row: Row) -> bool:
    """Say whether the agent's shutdown ends what the machine costs; where its launch is not known, it may."""
    found = guards_of(row)
    return found is None or found.agent is Agent.ENDS


def unjudged(row: Row) -> str | None:
    """Return why passes do not know whether a machine is used, once its people were told so; None where they do."""
    told = row.get("warnings", {}).get(NOT_KNOWN)
    return str(told["why"]) if told is not None and row["ended"] is None and row["billed"] else None


def timer_of(row: Row) -> str | None:
    """Return when its timer fires, as far as the ledger knows; None for none."""
    found = guards_of(row)
    follows = found is not None and found.follows and found.timer is not Timer.NONE
    at: str | None = row["renew_until"] if follows else row.get("timer")
    return at


def reason_of(row: Row) -> str | None:
    """Return why a machine is over, where that was not asked: its provider's word, else its timer's time."""
    at, since = row.get("timer"), row["since"]
    if row["reason"] is not None or row["billed"] or at is None or since is None:
        return None if row["reason"] is None else str(row["reason"])
    return BY_TIMER if _is_at(from_iso(since), from_iso(at)) else None


def _is_at(since: datetime, at: datetime) -> bool:
    return at <= since <= at + FIRES_WITHIN
