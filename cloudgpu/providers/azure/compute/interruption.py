"""When Azure took a spot machine, by the subscription's activity log: the machine itself does not tell.

An evicted machine is deallocated like one that somebody has stopped. The log has `evictSpotVM` for it, and
`simulateEviction` for a rehearsal, with the moment; a deallocation that somebody asked for is there by its own name.
That a machine of its own, and not only one of a scale set, is logged so is seen in public programs that read it, and
unverified here. The log is kept for 90 days and may be some minutes late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cloudgpu.core.model.instances import Instance, State
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.client import Azure, get_values
from cloudgpu.providers.shared.calls import by_item

Raw = Mapping[str, Any]
VERSION = "2015-04-01"  # of Microsoft.Insights/eventtypes
LOG_KEPT = timedelta(days=89)
AT_ONCE = 8
REASON = "interrupted"
_ACTION = "Microsoft.Insights/eventtypes/values/read"
_EVICTIONS, _OTHER_ENDS = ("evictspotvm", "simulateeviction"), ("deallocate", "poweroff")
_FAILED = ("failed", "cancelled")


def with_causes(azure: Azure, instances: Sequence[Instance]) -> list[Instance]:
    """Return these machines; those on spot that are deallocated for no known cause with what the log says of them.

    One call for each of these, none where there are none. What the log does not say, or was not answered, stays as it
    was: how a machine is, matters more than why.
    """
    candidates = [one.id for one in instances if _has_no_cause(one)]
    evicted_at = by_item(candidates, lambda one: _evicted_at(azure, one), AT_ONCE)
    return [_with_cause(one, evicted_at.get(one.id)) for one in instances]


def _has_no_cause(instance: Instance) -> bool:
    return instance.market is Market.SPOT and instance.state is State.DEALLOCATED and instance.reason is None


def _with_cause(instance: Instance, at: datetime | None) -> Instance:
    return instance if at is None else replace(instance, reason=REASON, since=instance.since or at)


def _evicted_at(azure: Azure, id: str) -> datetime | None:  # noqa: A002
    """Return when Azure took a machine; None where something else was its last end, or nobody knows."""
    try:
        found = list(_events(azure, ids.machine(id)[1]))
    except CloudgpuError:
        return None
    return last_eviction(found)


def _events(azure: Azure, group: str) -> Iterable[Raw]:
    path = f"/subscriptions/{azure.subscription}/providers/Microsoft.Insights/eventtypes/management/values"
    since = (azure.clock() - LOG_KEPT).astimezone(UTC)
    events_of_group = f"eventTimestamp ge '{since:%Y-%m-%dT%H:%M:%SZ}' and resourceGroupName eq '{group}'"
    more = {"$filter": events_of_group, "$select": "eventTimestamp,operationName,status,resourceId"}
    return get_values(azure, _ACTION, path, VERSION, **more)


def last_eviction(events: Iterable[Raw]) -> datetime | None:
    """Return when the last end in a log was an eviction; None where it was another one, or there is none."""
    ends = sorted(
        (_at(one), _name(one)) for one in events if _name(one) in (*_EVICTIONS, *_OTHER_ENDS) and _happened(one)
    )
    return ends[-1][0] if ends and ends[-1][1] in _EVICTIONS else None


def _happened(event: Raw) -> bool:
    return str((event.get("status") or {}).get("value") or "").lower() not in _FAILED


def _name(event: Raw) -> str:
    """Return what was done, in small letters: the operation is `Microsoft.Compute/virtualMachines/NAME/action`."""
    parts = str((event.get("operationName") or {}).get("value") or "").lower().split("/")
    return parts[-2] if parts[-1] == "action" and len(parts) > 1 else parts[-1]


def _at(event: Raw) -> datetime:
    return datetime.fromisoformat(str(event["eventTimestamp"])).astimezone(UTC)
