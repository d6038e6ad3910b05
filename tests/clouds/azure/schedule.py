"""Microsoft.ComputeSchedule: one-time deallocations that fire on the model's clock.

How far ahead one may be submitted is not in what we could read (`Model.timer_limit_s`), nor what becomes of one whose
machine is gone: here it fails. That a machine in two of them is deallocated by the earlier one follows from both.
"""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

from tests.clouds.azure.handlers import answers
from tests.clouds.azure.model import SUBSCRIPTION, Ask, Model, stamp
from tests.clouds.azure.operations import overtake
from tests.clouds.rest import Refusal, Reply

OPEN = {"PendingScheduling", "Scheduled"}


@answers("ScheduledActions.VirtualMachinesSubmitDeallocate")
def submit(model: Model, ask: Ask) -> Reply:
    _check_registered(model)
    schedule = ask.body["schedule"]
    written = schedule.get("deadline") or schedule.get("deadLine")
    if written is None:
        raise Refusal("BadRequest", "The deadline of the schedule is missing.")
    at = datetime.fromisoformat(written)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    ahead = (at - model.now()).total_seconds()
    if ahead <= 0 or ahead > model.timer_limit_s:
        raise Refusal("BadRequest", f"The deadline {written} is over, or too far ahead.")
    rows = [_submitted(model, ask, one, at) for one in ask.body["resources"]["ids"]]
    said = {"description": "Deallocate Resource request", "type": "VirtualMachines", "location": _location(ask)}
    return Reply(200, {**said, "results": rows})


def _check_registered(model: Model) -> None:
    space = "Microsoft.ComputeSchedule"
    if model.providers.get(space, "Registered") != "Registered":
        sentence = f"The subscription is not registered to use namespace '{space}'."
        raise Refusal("MissingSubscriptionRegistration", sentence)


def _location(ask: Ask) -> str:
    return ask.where["locationparameter"]


def _submitted(model: Model, ask: Ask, resource: str, at: datetime) -> dict[str, Any]:
    machine = model.resources.get(resource.lower())
    if machine is None or machine.region != _location(ask):
        return {"resourceId": resource, "errorCode": "ResourceNotFound", "errorDetails": "There is no such machine."}
    number = model.uuid("timer")
    timer = {
        "operationId": number,
        "resourceId": resource,
        "opType": "Deallocate",
        "subscriptionId": SUBSCRIPTION,
        "deadline": stamp(at),
        "deadlineType": ask.body["schedule"]["deadlineType"],
        "state": "PendingScheduling",
        "timezone": "UTC",
        "retryPolicy": ask.body["executionParameters"].get("retryPolicy") or {},
    }
    model.timers[number] = timer
    model.clock.at(f"timer:{number}", at, lambda: _fire(model, number))
    return {"resourceId": resource, "operation": copy.deepcopy(timer)}


def _fire(model: Model, number: str) -> None:
    from tests.clouds.azure.power import end_deallocated

    timer = model.timers[number]
    machine = model.resources.get(timer["resourceId"].lower())
    timer["completedAt"] = stamp(model.now())
    if machine is None or machine.facts["provisioningState"] in {"Deleting", "Failed"}:
        timer["state"] = "Failed"
        timer["resourceOperationError"] = {"errorCode": "ResourceNotFound", "errorDetails": "There is no such machine."}
        return
    timer["state"] = "Succeeded"
    if machine.hidden["power"] != "deallocated":
        overtake(model, machine.id)
        model.log(machine.id, "Microsoft.Compute/virtualMachines/deallocate/action")
        end_deallocated(model, machine)


@answers("ScheduledActions.VirtualMachinesCancelOperations")
def cancel(model: Model, ask: Ask) -> Reply:
    rows = []
    for number in ask.body["operationIds"]:
        timer = model.timers.get(number)
        if timer is not None and timer["state"] in OPEN:
            timer["state"] = "Cancelled"
            model.clock.cancel(f"timer:{number}")
        rows.append(_row(timer))
    return Reply(200, {"results": rows})


@answers("ScheduledActions.VirtualMachinesGetOperationStatus")
def status(model: Model, ask: Ask) -> Reply:
    return Reply(200, {"results": [_row(model.timers.get(one)) for one in ask.body["operationIds"]]})


@answers("ScheduledActions.VirtualMachinesGetOperationErrors")
def errors(model: Model, ask: Ask) -> Reply:
    known = [model.timers[one] for one in ask.body["operationIds"] if one in model.timers]
    rows = [{"operationId": one["operationId"], "operationErrors": []} for one in known]
    return Reply(200, {"results": rows})


def _row(timer: dict[str, Any] | None) -> dict[str, Any]:
    if timer is None:
        return {"errorCode": "OperationNotFound", "errorDetails": "There is no such operation."}
    return {"resourceId": timer["resourceId"], "operation": copy.deepcopy(timer)}
