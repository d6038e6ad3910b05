"""Why a machine at Google has ended: by its own `maxRunDuration`, or by the project's operations.

Google keeps system events among the operations: `compute.instances.preempted` ("Spot VMs", Compute Engine's guide, and
its sample "List preemption history"), `compute.instances.guestTerminate` (shut down from inside) and
`compute.instances.hostError`. That it keeps them for two weeks is unverified. No operation is documented for
a machine that has reached its `maxRunDuration`: its times show that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from cloudgpu.errors import AuthFailed, CloudgpuError
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import Gcp, Raw
from cloudgpu.providers.gcp.compute.translate import STOPPED, id_of, is_spot
from cloudgpu.providers.gcp.storage.resources import list_all_scopes, parse_time
from cloudgpu.providers.shared.calls import ask_each

PREEMPTED = "compute.instances.preempted"
REASONS = {  # why a machine has ended, by the type of the operation
    PREEMPTED: "interrupted",
    "compute.instances.guestTerminate": "shut down from inside",
    "compute.instances.hostError": "its host at Google failed",
    "compute.instances.terminateOnHostMaintenance": "stopped by Google for maintenance",
}
TIMER_REASON = "stopped by its timer at Google"
EVENT_RETENTION = timedelta(days=14)  # how long Google keeps its operations
MAX_EVENT_LAG = timedelta(minutes=10)  # between an event and the end that it brings; a preemption gives 30 seconds
# Around the time when `maxRunDuration` is over: Google stops a machine up to 30 s after it.
EARLY_TOLERANCE, LATE_TOLERANCE = timedelta(minutes=1), timedelta(minutes=2)
# The filter of Google's own sample; and one with a regular expression, as the reference of every list has it.
PREEMPTION_FILTER = f'operationType="{PREEMPTED}"'
OTHER_ENDS_FILTER = 'operationType eq "compute.instances.(guestTerminate|hostError|terminateOnHostMaintenance)"'


def end_reasons(gcp: Gcp, machines: Iterable[Raw]) -> Mapping[str, str]:
    """Return why each of these machines has ended, by our id; those of which nothing is known are missing.

    Running machines are skipped: without one that has ended lately no call is made. One call for spot machines, one for
    other ends; where the list of all zones does not answer, one for each of their zones. Operations that cannot be read
    raise nothing: then only ends by the machine's own timer are explained.
    """
    ended = [machine for machine in machines if machine.get("status") == STOPPED]
    reasons = {id_of(machine): TIMER_REASON for machine in ended if _is_stopped_by_timer(machine)}
    recent = [machine for machine in ended if _is_recent(machine, gcp.clock())]
    spot = [machine for machine in recent if is_spot(machine)]
    for event_filter, candidates in ((PREEMPTION_FILTER, spot), (OTHER_ENDS_FILTER, recent)):
        unexplained = [candidate for candidate in candidates if id_of(candidate) not in reasons]
        events = (
            _events(gcp, event_filter, sorted({ids.last_part(machine["zone"]) for machine in unexplained}))
            if unexplained
            else ()
        )
        reasons |= {
            id_of(machine): reason
            for machine in unexplained
            if (reason := reason_by_events(machine, events)) is not None
        }
    return reasons


def reason_by_events(machine: Raw, events: Sequence[Raw]) -> str | None:
    """Return the reason of the event nearest to the end of the machine's last run (without an end, the last event)."""
    started_at, stopped_at = parse_time(machine.get("lastStartTimestamp")), parse_time(machine.get("lastStopTimestamp"))
    timed_events = [(_event_time(event), event) for event in events if _is_about(event, machine)]
    events_of_run = [
        (event_at, event)
        for event_at, event in timed_events
        if event_at and (started_at is None or event_at >= started_at)
    ]
    if stopped_at is None:
        nearest = max(events_of_run, key=lambda event: event[0], default=None)
    else:
        near_end = [event for event in events_of_run if abs(event[0] - stopped_at) <= MAX_EVENT_LAG]
        nearest = min(near_end, key=lambda event: abs(event[0] - stopped_at), default=None)
    return None if nearest is None else REASONS[nearest[1]["operationType"]]


def _event_time(event: Raw) -> datetime | None:
    return parse_time(event.get("endTime")) or parse_time(event.get("startTime")) or parse_time(event.get("insertTime"))


def _is_recent(machine: Raw, now: datetime) -> bool:
    stopped_at = parse_time(machine.get("lastStopTimestamp"))
    return stopped_at is None or now - stopped_at < EVENT_RETENTION


def _is_stopped_by_timer(machine: Raw) -> bool:
    """Say whether a machine ended when its run had lasted as long as it may."""
    max_run_s = int(machine.get("scheduling", {}).get("maxRunDuration", {}).get("seconds") or 0)
    started_at = parse_time(machine.get("lastStartTimestamp") or machine.get("creationTimestamp"))
    stopped_at = parse_time(machine.get("lastStopTimestamp"))
    if not max_run_s or started_at is None or stopped_at is None:
        return False
    return -EARLY_TOLERANCE <= stopped_at - (started_at + timedelta(seconds=max_run_s)) <= LATE_TOLERANCE


def _is_about(event: Raw, machine: Raw) -> bool:
    if event.get("operationType") not in REASONS:
        return False
    if event.get("targetId") and machine.get("id"):  # a name may be used again, an id is not
        return bool(event["targetId"] == machine["id"])
    zone, name = ids.last_part(machine["zone"]), machine["name"]
    return str(event.get("targetLink")).endswith(f"/zones/{zone}/instances/{name}")


def _events(gcp: Gcp, event_filter: str, zones: Sequence[str]) -> Sequence[Raw]:
    """Return the events that match a filter, each list sent once; none where they cannot be read."""
    try:
        return list_all_scopes(gcp, "globalOperations", key="operations", filter=event_filter, sends=1)[0]
    except AuthFailed:
        return ()
    except CloudgpuError:  # as a whole it fails for one zone that cannot be reached ("aggregatedList", the reference)
        return _events_by_zone(gcp, event_filter, zones)


def _events_by_zone(gcp: Gcp, event_filter: str, zones: Sequence[str]) -> Sequence[Raw]:
    def ask(zone: str) -> list[Raw]:
        return list(gcp.items("compute.zoneOperations.list", zone, zone=zone, filter=event_filter, sends=1))

    try:
        answers, _ = ask_each(zones, ask)
    except CloudgpuError:
        return ()
    return [event for events in answers.values() for event in events]
