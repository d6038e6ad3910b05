"""Which layers would end a machine when, by what its row says: the agent on it, the timer in the cloud, the reaper."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from cloudgpu.core.times import from_iso

Row = dict[str, Any]
TIMED_BY_TAG = frozenset({"local"})  # whose own timer follows renew-until, and is set by nobody
FIRES_WITHIN = timedelta(minutes=5)  # clouds fire to the minute, and a machine takes a while to be stopped
NOT_KNOWN = "none"  # the rule of the warning that nothing is known of a machine: it ends nothing
BY_TIMER = "renew-until: the timer in the cloud"


def guards_value(row: Row) -> dict[str, str | None]:
    """Return when each layer would end the machine as things stand, null for a layer that would not.

    The agent may be sooner, for one that is idle; the reaper's is what its last pass has decided.
    """
    if row["ended"] is not None or not row["billed"]:
        return {"agent": None, "timer": None, "reaper": None}
    return {
        "agent": row["expires"] if ends_itself(row) else None,
        "timer": timer_of(row),
        "reaper": (row.get("decision") or {}).get("at"),
    }


def ends_itself(row: Row) -> bool:
    """Say whether the agent's shutdown ends what the machine costs; a line of an earlier version does not say so."""
    return row.get("ends_itself") is not False


def unjudged(row: Row) -> str | None:
    """Return why passes do not know whether a machine is used, once its people were told so; None where they do."""
    told = row.get("warnings", {}).get(NOT_KNOWN)
    return str(told["why"]) if told is not None and row["ended"] is None and row["billed"] else None


def timer_of(row: Row) -> str | None:
    """Return when the timer on the provider's side fires, as far as the ledger knows; None for none."""
    return row["renew_until"] if row["provider"] in TIMED_BY_TAG else row.get("timer")


def reason_of(row: Row) -> str | None:
    """Return why a machine is over, where that was not asked: its provider's word, else its timer's time."""
    at, since = row.get("timer"), row["since"]
    if row["reason"] is not None or row["billed"] or at is None or since is None:
        return None if row["reason"] is None else str(row["reason"])
    return BY_TIMER if _is_at(from_iso(since), from_iso(at)) else None


def _is_at(since: datetime, at: datetime) -> bool:
    return at <= since <= at + FIRES_WITHIN
