"""Why a machine of Google's has ended: by what its operations say, and by its own `maxRunDuration`. One call at most.

Google keeps system events among the operations: `compute.instances.preempted` ("Spot VMs", Compute Engine's guide, and
its sample "List preemption history"), `compute.instances.guestTerminate` (shut down from inside) and
`compute.instances.hostError`. That it keeps them for two weeks is unverified. That a machine has reached its
`maxRunDuration` no operation is documented to say: the times do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.things import aggregated, at

if TYPE_CHECKING:
    from cloudgpu.providers.gcp.client import Gcp

Raw = Mapping[str, Any]
PREEMPTED = "compute.instances.preempted"
REASONS = {
    PREEMPTED: "interrupted",
    "compute.instances.guestTerminate": "shut down from inside",
    "compute.instances.hostError": "its host at Google failed",
    "compute.instances.terminateOnHostMaintenance": "stopped by Google for maintenance",
}
TIMER = "stopped by its timer at Google"
KEPT = timedelta(days=14)
NEAR = timedelta(minutes=10)  # between an event and the end that it brings; a preemption gives 30 seconds
SOON, LATE = timedelta(minutes=1), timedelta(minutes=2)  # around the end of a run: Google stops up to 30 s after it
# All that is of use in one call; else, for whoever does not take that, the filter of Google's own sample.
FILTERS = (" OR ".join(f'(operationType = "{kind}")' for kind in REASONS), f'operationType="{PREEMPTED}"')


def told(gcp: Gcp, machines: Iterable[Raw]) -> Mapping[str, str]:
    """Return why each of these machines has ended, by our id; those of which nothing is known are missing.

    Machines that run are passed over: without one that is TERMINATED, nothing is asked. What cannot be read is not
    known: a look at machines does not fail for it.
    """
    ended = [one for one in machines if one.get("status") == "TERMINATED"]
    found = {_id(one): TIMER for one in ended if _by_timer(one)}
    asked = [one for one in ended if _id(one) not in found and _is_recent(one, gcp.clock())]
    events = _events(gcp) if asked else ()
    return found | {_id(one): why for one in asked if (why := reason(one, events)) is not None}


def reason(machine: Raw, events: Sequence[Raw]) -> str | None:
    """Return what the event of this run says that lies nearest to its end, or is the last; None where there is none."""
    began, end = at(machine.get("lastStartTimestamp")), at(machine.get("lastStopTimestamp"))
    moments = [(_moment(event), event) for event in events if _is_of(event, machine)]
    of_run = [(moment, event) for moment, event in moments if moment and (began is None or moment >= began)]
    if end is None:
        last = max(of_run, key=lambda one: one[0], default=None)
    else:
        near = [one for one in of_run if abs(one[0] - end) <= NEAR]
        last = min(near, key=lambda one: abs(one[0] - end), default=None)
    return None if last is None else REASONS[last[1]["operationType"]]


def _moment(event: Raw) -> datetime | None:
    return at(event.get("endTime")) or at(event.get("startTime")) or at(event.get("insertTime"))


def _id(machine: Raw) -> str:
    return ids.joined(ids.last(machine["zone"]), machine["name"])


def _is_recent(machine: Raw, now: datetime) -> bool:
    end = at(machine.get("lastStopTimestamp"))
    return end is None or now - end < KEPT


def _by_timer(machine: Raw) -> bool:
    """Say whether a machine ended when its run had lasted as long as it may."""
    most = int(machine.get("scheduling", {}).get("maxRunDuration", {}).get("seconds") or 0)
    began = at(machine.get("lastStartTimestamp") or machine.get("creationTimestamp"))
    end = at(machine.get("lastStopTimestamp"))
    if not most or began is None or end is None:
        return False
    return -SOON <= end - (began + timedelta(seconds=most)) <= LATE


def _is_of(event: Raw, machine: Raw) -> bool:
    if event.get("operationType") not in REASONS:
        return False
    if event.get("targetId") and machine.get("id"):  # a name may be used again, an id is not
        return bool(event["targetId"] == machine["id"])
    zone, name = ids.last(machine["zone"]), machine["name"]
    return str(event.get("targetLink")).endswith(f"/zones/{zone}/instances/{name}")


def _events(gcp: Gcp) -> Sequence[Raw]:
    """Return the events of all zones; none where they cannot be read."""
    for asked in FILTERS:
        try:
            return aggregated(gcp, "globalOperations", key="operations", filter=asked)[0]
        except InvalidRequest:
            continue
        except CloudgpuError:
            break
    return ()
