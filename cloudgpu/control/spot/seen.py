"""What the ledger has seen of spot as traces of availability, one a place, for the backtest and for quotations."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from cloudgpu.control.spot.history import history
from cloudgpu.core.spot.replay.traces import Trace, trace_of_changes

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.spot.places import Place, Sighting

GAP_S = 600.0


def seen_traces(session: Session) -> list[Trace]:
    """Return availability as this ledger has seen it up to now, by place; asks no cloud.

    A machine that was launched says that spot was there, a refusal or an interruption that it was not, and each holds
    until something else was seen at that place. A place where nothing but one state was seen says too little, and is
    left out.
    """
    by_place: dict[Place, list[Sighting]] = defaultdict(list)
    for one in history(session.ledger):
        if one.kind != "ended":  # by its user: spot was there as before
            by_place[one.place].append(one)
    now = session.clock().timestamp()
    found = (_trace(place, seen, now) for place, seen in by_place.items())
    return [trace for trace in found if trace is not None and 0 < sum(trace.data) < len(trace.data)]


def _trace(place: Place, seen: list[Sighting], now: float) -> Trace | None:
    name = " ".join(filter(None, (place.account, place.zone or place.region, place.instance_type)))
    return trace_of_changes(name, [(one.at.timestamp(), one.kind == "made") for one in seen], now, GAP_S)
