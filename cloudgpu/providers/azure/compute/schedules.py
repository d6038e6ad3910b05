"""The timer in the cloud: a deallocation that is submitted to Azure's scheduled actions for one machine and time.

Azure gives each submission an id and has no list of them, so the machine has the id with its time in the tag
`cloudgpu-timer`, as `EPOCH_ID`: it goes with the machine, and an action on a machine that is gone does nothing. A timer
is moved by submitting another one, tagging the machine and cancelling the previous one, in this order: a crash in
between leaves two, and the earlier stops the machine. Azure's timers can only deallocate: of a machine that is to be
terminated, disk and address are billed until a run of the reaper ends it. How far ahead Azure accepts a timer is
unverified.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from cloudgpu.core.model.instances import TAG_LEDGER
from cloudgpu.errors import InstanceNotFound, InvalidRequest
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.calls import call_or_none, invoke
from cloudgpu.providers.azure.client import Azure, Raw
from cloudgpu.providers.azure.compute import machine, power

TIMER_TAG = "cloudgpu-timer"
NO_TIMER_VALUE = "none"
MIN_DELAY = timedelta(minutes=2)
MAX_IDS = 100  # ids in one call
ENDED_OPERATION_STATES = ("succeeded", "failed", "cancelled", "blocked")  # a blocked one ends nothing
# Azure sends a call that failed again.
RETRY_POLICY = {"retryCount": 5, "retryWindowInMinutes": 60}
_ACTION_PREFIX = "Microsoft.ComputeSchedule/locations"
_TIMER_TAG_VALUE = re.compile(r"([1-9]\d{0,10})_([0-9a-zA-Z-]{1,50})")


def why_no_timer(azure: Azure) -> str:
    """Return why this account has no timers; empty where its settings say that it has."""
    if azure.options.timers:
        return ""
    return (
        "no timer in the cloud ends it if its agent and the reaper both fail. cloudgpu init azure prepares them "
        f"(accounts.{azure.account}.timers)"
    )


def set_timer(azure: Azure, id: str, at: datetime) -> bool:  # noqa: A002
    """Submit the machine's deallocation at `at`, in place of the one there is. Three calls, four where there was one.

    Raises InstanceNotFound, and InvalidRequest where Azure does not take it.
    """
    if why_no_timer(azure):
        field = f"accounts.{azure.account}.timers"
        raise InvalidRequest(f"{id} gets none: {why_no_timer(azure)}.", field=field, next="Run: cloudgpu init azure")
    previous = _tagged_timer(machine.read(azure, id))
    fires_at = max(at, azure.clock() + MIN_DELAY).astimezone(UTC).replace(microsecond=0)
    region, _ = ids.split_machine_id(id)
    if previous is not None and previous[0] == fires_at and previous[1] in _pending(azure, region, [previous[1]]):
        return False
    operation_id = _submit(azure, id, fires_at)
    power.tag(azure, id, {TIMER_TAG: f"{int(fires_at.timestamp())}_{operation_id}"})
    if previous is not None:
        _cancel(azure, region, previous[1])
    return True


def drop_timer(azure: Azure, id: str) -> None:  # noqa: A002
    """Cancel the machine's deallocation; none is no error, nor is a machine that is gone. Up to three calls."""
    if why_no_timer(azure):
        return
    try:
        previous = _tagged_timer(machine.read(azure, id))
    except InstanceNotFound:
        return
    if previous is not None:
        _cancel(azure, ids.split_machine_id(id)[0], previous[1])
        power.tag(azure, id, {TIMER_TAG: NO_TIMER_VALUE})


def timer(azure: Azure, id: str) -> datetime | None:  # noqa: A002
    """Return when the machine is deallocated; None for never. Two calls, one where it has no tag."""
    scheduled = _tagged_timer(machine.read(azure, id))
    if scheduled is None or why_no_timer(azure):
        return None
    return scheduled[0] if scheduled[1] in _pending(azure, ids.split_machine_id(id)[0], [scheduled[1]]) else None


def timers(azure: Azure, region: str | None = None) -> dict[str, datetime]:
    """Return when each machine of this ledger is deallocated: one listing, and a call per region and hundred of them.

    Timers of machines that are gone are left out: they are not known, and do nothing.
    """
    if why_no_timer(azure):
        return {}
    ledger_machines = [
        one for one in machine.listed(azure) if _is_of_ledger(azure, one) and region in (None, one["location"])
    ]
    scheduled = {machine.id_of(one): found for one in ledger_machines if (found := _tagged_timer(one)) is not None}
    by_region: dict[str, list[str]] = {}
    for one, (_, operation_id) in sorted(scheduled.items()):
        by_region.setdefault(ids.split_machine_id(one)[0], []).append(operation_id)
    pending = {
        operation_id
        for region_name, listed in by_region.items()
        for operation_id in _pending(azure, region_name, listed)
    }
    return {one: fires_at for one, (fires_at, operation_id) in scheduled.items() if operation_id in pending}


def _is_of_ledger(azure: Azure, raw: Raw) -> bool:
    return azure.ledger in ("", (raw.get("tags") or {}).get(TAG_LEDGER))


def _tagged_timer(raw: Raw) -> tuple[datetime, str] | None:
    """Return when a machine's timer fires and the id of its operation at Azure, as its tag has them; None for none."""
    match = _TIMER_TAG_VALUE.fullmatch(str((raw.get("tags") or {}).get(TIMER_TAG, "")))
    return None if match is None else (datetime.fromtimestamp(int(match[1]), UTC), match[2])


def _submit(azure: Azure, id: str, fires_at: datetime) -> str:  # noqa: A002
    """Submit the deallocation; return Azure's id of it."""
    region, group = ids.split_machine_id(id)
    body = {
        "schedule": {"deadline": f"{fires_at:%Y-%m-%dT%H:%M:%SZ}", "timezone": "UTC", "deadlineType": "InitiateAt"},
        "executionParameters": {"retryPolicy": RETRY_POLICY},
        "resources": {"ids": [ids.machine_id(azure.subscription, group)]},
        "correlationid": str(uuid4()),
    }
    results = _call_scheduled_actions(azure, region, "SubmitDeallocate", body)
    operation_id: Raw = next((one["operation"] for one in results if one.get("operation")), {})
    if operation_id.get("operationId"):
        return str(operation_id["operationId"])
    why = next((f"{one.get('errorCode')}: {one.get('errorDetails')}" for one in results), "it gave no id")
    message = f"Azure takes no timer of {id} at {fires_at:%Y-%m-%d %H:%M} UTC ({why})."
    raise InvalidRequest(
        message, field="renew_until", value=f"{fires_at:%Y-%m-%dT%H:%M:%SZ}", next="Choose an earlier time."
    )


def _cancel(azure: Azure, region: str, operation_id: str) -> None:
    _call_scheduled_actions(
        azure, region, "CancelOperations", {"operationIds": [operation_id], "correlationid": str(uuid4())}
    )


def _pending(azure: Azure, region: str, operations: list[str]) -> set[str]:
    """Return those of these operations that are not over yet."""
    pending = set[str]()
    for start in range(0, len(operations), MAX_IDS):
        body = {"operationIds": operations[start : start + MAX_IDS], "correlationid": str(uuid4())}
        answers = [
            one["operation"]
            for one in _call_scheduled_actions(azure, region, "GetOperationStatus", body)
            if one.get("operation")
        ]
        pending |= {
            str(one["operationId"])
            for one in answers
            if str(one.get("state", "")).lower() not in ENDED_OPERATION_STATES
        }
    return pending


def _call_scheduled_actions(azure: Azure, region: str, name: str, body: Raw) -> list[Raw]:
    """Call Azure's scheduled actions; return the results, none where it does not know the ids."""
    method_suffix = "".join(f"_{one.lower()}" if one.isupper() else one for one in name)
    call = getattr(azure.client("computeschedule").scheduled_actions, f"virtual_machines{method_suffix}")
    action = f"{_ACTION_PREFIX}/virtualMachines{name}/action"
    if name == "SubmitDeallocate":
        answer = invoke(azure, action, lambda: call(region, body), region=region)
    else:
        answer = call_or_none(azure, action, lambda: call(region, body), region=region)
    return [] if answer is None else list(answer.as_dict().get("results") or ())
