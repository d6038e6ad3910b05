"""Why a machine of Google's has ended: by its own `maxRunDuration`, and by what the project's operations say.

Google keeps system events among the operations: `compute.instances.preempted` ("Spot VMs", Compute Engine's guide, and
its sample "List preemption history"), `compute.instances.guestTerminate` (shut down from inside) and
`compute.instances.hostError`. That it keeps them for two weeks is unverified. That a machine has reached its
`maxRunDuration` no operation is documented to say: the times do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from cloudgpu.errors import AuthFailed, CloudgpuError
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.gcp.compute.translate import id_of
from cloudgpu.providers.gcp.storage.resources import aggregated, parse_time
from cloudgpu.providers.shared.calls import ask_each

Raw = Mapping[str, Any]
PREEMPTED = "compute.instances.preempted"
REASONS = {
    PREEMPTED: "interrupted",
    "compute.instances.guestTerminate": "shut down from inside",
    "compute.instances.hostError": "its host at Google failed",
    "compute.instances.terminateOnHostMaintenance": "stopped by Google for maintenance",
}
TIMER = "stopped by its timer at Google"
EVENTS_KEPT = timedelta(days=14)
MAX_EVENT_LAG = timedelta(minutes=10)  # between an event and the end that it brings; a preemption gives 30 seconds
SOON, LATE = timedelta(minutes=1), timedelta(minutes=2)  # around the end of a run: Google stops up to 30 s after it
# The filter of Google's own sample; and one with a regular expression, as the reference of every list has it.
PREEMPTION_FILTER = f'operationType="{PREEMPTED}"'
OTHER_ENDS_FILTER = 'operationType eq "compute.instances.(guestTerminate|hostError|terminateOnHostMaintenance)"'


def causes(gcp: Gcp, machines: Iterable[Raw]) -> Mapping[str, str]:
    """Return why each of these machines has ended, by our id; those of which nothing is known are missing.

    Machines that run are passed over: without one that has ended lately nothing is asked. One call for spot machines,
    one for those that ended otherwise; where the list of all zones does not answer, one for each zone of theirs. What
    cannot be read is not known: a look at machines does not fail for it.
    """
    ended = [one for one in machines if one.get("status") == "TERMINATED"]
    found = {id_of(one): TIMER for one in ended if _is_stopped_by_timer(one)}
    recent = [one for one in ended if _is_recent(one, gcp.clock())]
    spot = [one for one in recent if is_spot(one)]
    for event_filter, candidates in ((PREEMPTION_FILTER, spot), (OTHER_ENDS_FILTER, recent)):
        rest = [one for one in candidates if id_of(one) not in found]
        events = _events(gcp, event_filter, sorted({ids.last(one["zone"]) for one in rest})) if rest else ()
        found |= {id_of(one): why for one in rest if (why := reason(one, events)) is not None}
    return found


def is_spot(machine: Raw) -> bool:
    """Say whether a machine is one that Google may take back."""
    scheduling = machine.get("scheduling", {})
    return bool(scheduling.get("provisioningModel") == "SPOT" or scheduling.get("preemptible"))


def reason(machine: Raw, events: Sequence[Raw]) -> str | None:
    """Return what the event of this run says that lies nearest to its end, or is the last; None where there is none."""
    began, end = parse_time(machine.get("lastStartTimestamp")), parse_time(machine.get("lastStopTimestamp"))
    moments = [(_moment(event), event) for event in events if _is_about(event, machine)]
    of_run = [(moment, event) for moment, event in moments if moment and (began is None or moment >= began)]
    if end is None:
        last = max(of_run, key=lambda one: one[0], default=None)
    else:
        near = [one for one in of_run if abs(one[0] - end) <= MAX_EVENT_LAG]
        last = min(near, key=lambda one: abs(one[0] - end), default=None)
    return None if last is None else REASONS[last[1]["operationType"]]


def _moment(event: Raw) -> datetime | None:
    return parse_time(event.get("endTime")) or parse_time(event.get("startTime")) or parse_time(event.get("insertTime"))


def _is_recent(machine: Raw, now: datetime) -> bool:
    end = parse_time(machine.get("lastStopTimestamp"))
    return end is None or now - end < EVENTS_KEPT


def _is_stopped_by_timer(machine: Raw) -> bool:
    """Say whether a machine ended when its run had lasted as long as it may."""
    max_run_s = int(machine.get("scheduling", {}).get("maxRunDuration", {}).get("seconds") or 0)
    began = parse_time(machine.get("lastStartTimestamp") or machine.get("creationTimestamp"))
    end = parse_time(machine.get("lastStopTimestamp"))
    if not max_run_s or began is None or end is None:
        return False
    return -SOON <= end - (began + timedelta(seconds=max_run_s)) <= LATE


def _is_about(event: Raw, machine: Raw) -> bool:
    if event.get("operationType") not in REASONS:
        return False
    if event.get("targetId") and machine.get("id"):  # a name may be used again, an id is not
        return bool(event["targetId"] == machine["id"])
    zone, name = ids.last(machine["zone"]), machine["name"]
    return str(event.get("targetLink")).endswith(f"/zones/{zone}/instances/{name}")


def _events(gcp: Gcp, event_filter: str, zones: Sequence[str]) -> Sequence[Raw]:
    """Return the events that a filter means, each list asked once; none where they cannot be read."""
    try:
        return aggregated(gcp, "globalOperations", key="operations", filter=event_filter, sends=1)[0]
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
