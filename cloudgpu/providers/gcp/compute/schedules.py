"""The timer in the cloud: `maxRunDuration` of a machine, after which Google stops it when all of ours is dead.

It counts from the machine's last start, from 30 seconds to 120 days, and fires up to 30 seconds late; it can be changed
only while the machine is stopped ("Limit the run time of a VM", Compute Engine's guide). So it is fixed from a start
to the next stop, and set anew before each start.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from cloudgpu.core.model.instances import TAG_LEDGER, TAG_RENEW_UNTIL
from cloudgpu.core.values.times import from_epoch
from cloudgpu.errors import InvalidRequest, ProviderUnavailable
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.gcp.compute.listing import list_ours, raw
from cloudgpu.providers.gcp.compute.request import MAX_RUN, run_seconds
from cloudgpu.providers.gcp.compute.translate import has_scratch, id_of, labels_of
from cloudgpu.providers.gcp.storage.resources import change_and_wait, parse_time

TOLERANCE = timedelta(minutes=3)  # a start takes its time, and a timer that is so near is the one that was meant
STOPPED = "TERMINATED"


def timer(gcp: Gcp, id: str) -> datetime | None:  # noqa: A002
    """Return when Google stops the machine, aware UTC; None where it has no timer. Raises InstanceNotFound.

    Of a stopped machine: the time to which the next start sets it.
    """
    return fires_at(raw(gcp, id))


def timer_limit(gcp: Gcp, id: str) -> datetime | None:  # noqa: A002
    """Return when the timer of a machine that runs fires; None for one that is stopped, whose timer can be set."""
    found = raw(gcp, id)
    return None if found.get("status") == STOPPED else fires_at(found)


def set_timer(gcp: Gcp, id: str, at: datetime) -> bool:  # noqa: A002
    """Set the timer of a stopped machine for a start now; that of one that runs stays. Return whether it was set.

    Raises InstanceNotFound, and InvalidRequest for a time after the one that was fixed when it was started; not where
    that is as late as any that Google takes.
    """
    found = raw(gcp, id)
    if found.get("status") == STOPPED:
        _reschedule(gcp, id, found, run_seconds(at - gcp.clock()))
        return True
    limit = fires_at(found)
    is_last = _max_run_s(found) >= MAX_RUN.total_seconds()
    if limit is None or (at > limit + TOLERANCE and not is_last):
        says = f"fires at {limit:%Y-%m-%d %H:%M} UTC" if limit else "was never set"
        raise InvalidRequest(
            f"The timer of {id} {says}: Google Cloud fixed that when the machine was started.",
            field="renew_until",
            value=at.isoformat(),
            next="It can be changed while the machine is stopped: cloudgpu stop, then cloudgpu start.",
        )
    return False


def timers(gcp: Gcp, region: str | None = None) -> dict[str, datetime]:
    """Return when the timer of each machine of this ledger fires, by our id: a call per 500 machines.

    Raises ProviderUnavailable naming a zone that did not answer.
    """
    found, silent = list_ours(gcp)
    silent = tuple(gap for gap in silent if region is None or gap.scope.startswith(region))
    if silent:
        message = f"{silent[0].scope} did not say which timers it has: {silent[0].why}"
        raise ProviderUnavailable(message, field="provider", value=silent[0].scope)
    firing = {id_of(one): fires_at(one) for one in found if _is_of_ledger(gcp, one)}
    return {id_: at for id_, at in firing.items() if at and region in (None, ids.region_of(ids.machine(id_)[0]))}


def _is_of_ledger(gcp: Gcp, raw: Mapping[str, Any]) -> bool:
    return gcp.ledger in ("", labels_of(raw).get(TAG_LEDGER))


def renew(gcp: Gcp, id: str, raw: Mapping[str, Any]) -> None:  # noqa: A002
    """Before a start, set how long a stopped machine may run to what is left until its renew-until.

    No call where it is that already; nothing for a machine without a renew-until, or one that is over: who starts that
    has to set it.
    """
    until = _renew_until(raw)
    left = until - gcp.clock() if until else timedelta(0)
    if left > timedelta(0) and abs(_max_run_s(raw) - run_seconds(left)) > TOLERANCE.total_seconds():
        _reschedule(gcp, id, raw, run_seconds(left))


def fires_at(raw: Mapping[str, Any]) -> datetime | None:
    """Return when the timer of a machine (as Google tells of it) fires; None for none."""
    scheduling = raw.get("scheduling", {})
    if raw.get("status") == STOPPED:
        return _renew_until(raw) if _max_run_s(raw) else None
    reported = raw.get("resourceStatus", {}).get("scheduling", {}).get("terminationTimestamp")
    fixed = parse_time(reported) or parse_time(scheduling.get("terminationTime"))
    began = parse_time(raw.get("lastStartTimestamp")) or parse_time(raw.get("creationTimestamp"))
    if fixed or not began or not _max_run_s(raw):
        return fixed
    return began + timedelta(seconds=_max_run_s(raw))


def _max_run_s(raw: Mapping[str, Any]) -> int:
    return int(raw.get("scheduling", {}).get("maxRunDuration", {}).get("seconds") or 0)


def _renew_until(raw: Mapping[str, Any]) -> datetime | None:
    text = labels_of(raw).get(TAG_RENEW_UNTIL, "")
    return from_epoch(text) if text.isdigit() and int(text) else None


def _reschedule(gcp: Gcp, id: str, raw: Mapping[str, Any], seconds: int) -> None:  # noqa: A002
    """Set how long a stopped machine may run; all else of its scheduling is said again as it is."""
    zone, name = ids.machine(id)
    wanted = {key: value for key, value in raw.get("scheduling", {}).items() if key != "terminationTime"}
    wanted |= {"maxRunDuration": {"seconds": str(seconds)}, "instanceTerminationAction": "STOP"}
    if has_scratch(raw):
        wanted |= {"onInstanceStopAction": {"discardLocalSsd": True}}
    action = "compute.instances.setScheduling"
    change_and_wait(gcp, action, zone, value=id, zone=zone, instance=name, schedulingResource=wanted)
