"""The timer in the cloud: `maxRunDuration` of a machine, after which Google stops it, whatever else has failed.

It counts from the machine's last start, from 30 seconds to 120 days, and fires up to 30 seconds late; it can be changed
only while the machine is stopped ("Limit the run time of a VM", Compute Engine's guide). So it is fixed from a start
to the next stop, and set anew before each start.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from cloudgpu.core.events.observations import tag_time
from cloudgpu.core.model.instances import TAG_LEDGER, TAG_RENEW_UNTIL
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.gcp.compute.listing import list_ours, read_machine
from cloudgpu.providers.gcp.compute.request import MAX_RUN, run_seconds
from cloudgpu.providers.gcp.compute.translate import STOPPED, has_scratch, id_of, labels_of
from cloudgpu.providers.gcp.storage.resources import change_machine, parse_time, relevant_gaps
from cloudgpu.providers.shared.calls import check_all_answered

TOLERANCE = timedelta(minutes=3)  # a start takes its time: a timer that differs by less counts as the requested one


def timer(gcp: Gcp, id: str) -> datetime | None:  # noqa: A002
    """Return when Google stops the machine, aware UTC; None where it has no timer. Raises InstanceNotFound.

    Of a stopped machine: its renew-until, to which the next start sets the timer.
    """
    return fires_at(read_machine(gcp, id))


def timer_limit(gcp: Gcp, id: str) -> datetime | None:  # noqa: A002
    """Return when the timer of a machine that runs fires; None for one that is stopped, whose timer can be set."""
    machine = read_machine(gcp, id)
    return None if machine.get("status") == STOPPED else fires_at(machine)


def set_timer(gcp: Gcp, id: str, at: datetime) -> bool:  # noqa: A002
    """Set the timer of a stopped machine for a start now; that of one that runs stays. Return whether it was set.

    Raises InstanceNotFound, and InvalidRequest for a later time than the timer of a running machine, unless that is
    already the maximum that Google accepts.
    """
    machine = read_machine(gcp, id)
    if machine.get("status") == STOPPED:
        _reschedule(gcp, id, machine, run_seconds(at - gcp.clock()))
        return True
    limit = fires_at(machine)
    is_at_maximum = _max_run_s(machine) >= MAX_RUN.total_seconds()
    if limit is None or (at > limit + TOLERANCE and not is_at_maximum):
        timer_text = f"fires at {limit:%Y-%m-%d %H:%M} UTC" if limit else "was never set"
        raise InvalidRequest(
            f"The timer of {id} {timer_text}: Google Cloud fixed that when the machine was started.",
            field="renew_until",
            value=at.isoformat(),
            next="It can be changed while the machine is stopped: cloudgpu stop, then cloudgpu start.",
        )
    return False


def timers(gcp: Gcp, region: str | None = None) -> dict[str, datetime]:
    """Return when the timer of each machine of this ledger fires, by our id: a call per 500 machines.

    Raises ProviderUnavailable naming what did not answer: a zone, say, or the account for a list that lacks some.
    """
    machines, unanswered = list_ours(gcp)
    check_all_answered(relevant_gaps(gcp, unanswered, region), "{scope} did not say which timers it has")
    fire_times = {id_of(machine): fires_at(machine) for machine in machines if _is_of_ledger(gcp, machine)}
    return {
        id_: at for id_, at in fire_times.items() if at and region in (None, ids.region_of(ids.zone_and_name(id_)[0]))
    }


def _is_of_ledger(gcp: Gcp, raw: Mapping[str, Any]) -> bool:
    return gcp.ledger in ("", labels_of(raw).get(TAG_LEDGER))


def renew(gcp: Gcp, id: str, raw: Mapping[str, Any]) -> None:  # noqa: A002
    """Before a start, set how long a stopped machine may run: until its renew-until.

    No call where it is set so already, nor without a renew-until in the future: whoever starts it sets that first.
    """
    renew_until_at = _renew_until(raw)
    remaining = renew_until_at - gcp.clock() if renew_until_at else timedelta(0)
    if remaining > timedelta(0) and abs(_max_run_s(raw) - run_seconds(remaining)) > TOLERANCE.total_seconds():
        _reschedule(gcp, id, raw, run_seconds(remaining))


def fires_at(raw: Mapping[str, Any]) -> datetime | None:
    """Return when the timer of a machine (in Google's format) fires, aware UTC; None for none."""
    scheduling = raw.get("scheduling", {})
    if raw.get("status") == STOPPED:
        return _renew_until(raw) if _max_run_s(raw) else None
    reported_text = raw.get("resourceStatus", {}).get("scheduling", {}).get("terminationTimestamp")
    reported_at = parse_time(reported_text) or parse_time(scheduling.get("terminationTime"))
    started_at = parse_time(raw.get("lastStartTimestamp")) or parse_time(raw.get("creationTimestamp"))
    if reported_at or not started_at or not _max_run_s(raw):
        return reported_at
    return started_at + timedelta(seconds=_max_run_s(raw))


def _max_run_s(raw: Mapping[str, Any]) -> int:
    return int(raw.get("scheduling", {}).get("maxRunDuration", {}).get("seconds") or 0)


def _renew_until(raw: Mapping[str, Any]) -> datetime | None:
    text = tag_time(labels_of(raw), TAG_RENEW_UNTIL)
    return None if text is None else from_iso(text)


def _reschedule(gcp: Gcp, id: str, raw: Mapping[str, Any], seconds: int) -> None:  # noqa: A002
    """Set how long a stopped machine may run; the rest of its scheduling is sent as it was."""
    scheduling = {key: value for key, value in raw.get("scheduling", {}).items() if key != "terminationTime"}
    scheduling |= {"maxRunDuration": {"seconds": str(seconds)}, "instanceTerminationAction": "STOP"}
    if has_scratch(raw):
        scheduling |= {"onInstanceStopAction": {"discardLocalSsd": True}}
    change_machine(gcp, id, "setScheduling", schedulingResource=scheduling)
