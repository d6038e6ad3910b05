"""Finds when Azure evicted a spot machine by the subscription's activity log: the machine itself does not say.

An evicted machine is deallocated like one that somebody has stopped. The log has `evictSpotVM` for it, and
`simulateEviction` for a rehearsal, with the time; a deallocation that somebody requested is there by its own name.
That single machines, and not only those of scale sets, are logged so is known from public programs that read the log,
and unverified here. The log is kept for 90 days and may be some minutes late.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from cloudgpu.core.model.instances import Instance, State
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.client import MAX_PARALLEL, Azure, Raw, get_values
from cloudgpu.providers.shared.calls import by_item

VERSION = "2015-04-01"  # of Microsoft.Insights/eventtypes
LOG_RETENTION = timedelta(days=89)
EVICTION_REASON = "interrupted"
_ACTION = "Microsoft.Insights/eventtypes/values/read"
_EVICTION_ACTIONS, _OTHER_STOP_ACTIONS = ("evictspotvm", "simulateeviction"), ("deallocate", "poweroff")
_FAILED_STATUSES = ("failed", "cancelled")


def with_end_causes(azure: Azure, instances: Sequence[Instance]) -> list[Instance]:
    """Return these machines, deallocated spot machines without a known cause with the cause in the activity log.

    One call for each of these, none where there are none. A cause that the log does not have, or a call that is not
    answered, is no error: the state of a machine matters more than its cause.
    """
    candidates = [one.id for one in instances if _lacks_cause(one)]
    evicted_at = by_item(candidates, lambda one: _evicted_at(azure, one), MAX_PARALLEL)
    return [_with_cause(one, evicted_at.get(one.id)) for one in instances]


def _lacks_cause(instance: Instance) -> bool:
    return instance.market is Market.SPOT and instance.state is State.DEALLOCATED and instance.reason is None


def _with_cause(instance: Instance, evicted_at: datetime | None) -> Instance:
    return (
        instance
        if evicted_at is None
        else replace(instance, reason=EVICTION_REASON, since=instance.since or evicted_at)
    )


def _evicted_at(azure: Azure, id: str) -> datetime | None:  # noqa: A002
    """Return when Azure evicted a machine; None where it was stopped otherwise since, or the log does not say."""
    try:
        log_events = list(_events(azure, ids.split_machine_id(id)[1]))
    except CloudgpuError:
        return None
    return last_eviction(log_events)


def _events(azure: Azure, group: str) -> Iterable[Raw]:
    path = f"/subscriptions/{azure.subscription}/providers/Microsoft.Insights/eventtypes/management/values"
    since = (azure.clock() - LOG_RETENTION).astimezone(UTC)
    log_filter = f"eventTimestamp ge '{since:%Y-%m-%dT%H:%M:%SZ}' and resourceGroupName eq '{group}'"
    query = {"$filter": log_filter, "$select": "eventTimestamp,operationName,status,resourceId"}
    return get_values(azure, _ACTION, path, VERSION, **query)


def last_eviction(events: Iterable[Raw]) -> datetime | None:
    """Return when the machine was evicted, if that is the last stop in the log; None otherwise.

    Events without a time are left out: one of them is no reason to list no machine at all.
    """
    stop_events = sorted(
        (at, _action_of(one))
        for one in events
        if _action_of(one) in (*_EVICTION_ACTIONS, *_OTHER_STOP_ACTIONS) and _succeeded(one) and (at := _time_of(one))
    )
    return stop_events[-1][0] if stop_events and stop_events[-1][1] in _EVICTION_ACTIONS else None


def _succeeded(event: Raw) -> bool:
    return str((event.get("status") or {}).get("value") or "").lower() not in _FAILED_STATUSES


def _action_of(event: Raw) -> str:
    """Return the NAME of an event's operation, in small letters: `Microsoft.Compute/virtualMachines/NAME/action`."""
    parts = str((event.get("operationName") or {}).get("value") or "").lower().split("/")
    return parts[-2] if parts[-1] == "action" and len(parts) > 1 else parts[-1]


def _time_of(event: Raw) -> datetime | None:
    try:
        return datetime.fromisoformat(str(event.get("eventTimestamp"))).astimezone(UTC)
    except (ValueError, OverflowError):  # the year 0 or 10000 in UTC
        return None
