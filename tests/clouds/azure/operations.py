"""Long-running operations: 201 or 202 with `Azure-AsyncOperation` and `Location`, and their end on the model's clock.

A failed one is found at its own address with status 200 and an error inside (REST reference, "Async operations").
What happens to an operation that another one on the same machine overtakes is belief.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tests.clouds.azure.errors import MESSAGES
from tests.clouds.azure.model import Ask, Model, Operation, stamp
from tests.clouds.rest import Refusal, Reply

POLL = re.compile(
    r"/subscriptions/[^/]+/providers/[^/]+/locations/[^/]+/(operations|operationresults)/([^/]+)", re.IGNORECASE
)
VERSION = "2024-07-01"


def begin(
    model: Model,
    ask: Ask,
    dwell: str,
    then: Callable[[], None],
    *,
    status: int = 202,
    body: Any = None,
    fail: Callable[[str], None] | None = None,
    followed: str = "both",
) -> Reply:
    """Answer a call whose work ends later, when the dwell `dwell` is over: then `then` happens.

    A standing fault with the effect `operation` makes it fail at that time, and `fail` happens instead, with its code.
    `followed` is which address is told: `both`, or `location` alone (resource groups).
    """
    made = Operation(model.uuid("operation"), ask.id, model.now(), result=body if status == 202 else None)
    model.operations[made.id] = made
    overtake(model, ask.id)
    fault = ask.fault if ask.fault is not None and ask.fault.effect == "operation" else None

    def end() -> None:
        made.ended = model.now()
        if fault is not None:
            made.state, made.code = "Failed", fault.error
            made.message = fault.message or MESSAGES.get(fault.error, fault.error)
            if fail is not None:
                fail(fault.error)
            return
        try:
            then()
            made.state = "Succeeded"
        except Refusal as refusal:
            made.state, made.code, made.message = "Failed", refusal.code, refusal.message

    model.clock.later(f"operation:{ask.id.lower()}", dwell, end)
    return Reply(status, body, _headers(model, ask, made, followed))


def overtake(model: Model, id_: str) -> None:
    """End what is on its way for a thing, because something else begins there."""
    key = f"operation:{id_.lower()}"
    if model.clock.when(key) is not None:
        model.clock.cancel(key)
        for one in model.operations.values():
            if one.of.lower() == id_.lower() and one.state == "InProgress" and one.ended is None:
                one.state, one.code, one.ended = "Canceled", "OperationPreempted", model.now()
                one.message = "The operation has been preempted by a more recent operation."
                return


def poll(model: Model, kind: str, number: str) -> Reply:
    """Answer at an operation's address."""
    found = model.operations.get(number)
    if found is None:
        raise Refusal("ResourceNotFound", f"The operation '{number}' was not found.")
    if kind.lower() == "operationresults":
        return _at_location(found)
    said = {"name": found.id, "status": found.state, "startTime": stamp(found.began)}
    if found.ended is not None:
        said["endTime"] = stamp(max(found.ended, found.began + timedelta(microseconds=1)))
    if found.code:
        said["error"] = {"code": found.code, "message": found.message}
    return Reply(200, said)


def _at_location(found: Operation) -> Reply:
    if found.state == "InProgress":
        return Reply(202)
    if found.code:
        raise Refusal(found.code, found.message)
    return Reply(204) if found.result is None else Reply(200, found.result)


def _headers(model: Model, ask: Ask, made: Operation, followed: str) -> dict[str, str]:
    space = re.search(r"/providers/([^/]+)", ask.id)
    region = "westus" if space is None else _region(model, ask)
    base = f"{ask.url}{'/'.join(ask.id.split('/')[:3])}/providers/{space[1] if space else 'Microsoft.Resources'}"
    places = {
        "Azure-AsyncOperation": f"{base}/locations/{region}/operations/{made.id}?api-version={VERSION}",
        "Location": f"{base}/locations/{region}/operationresults/{made.id}?api-version={VERSION}",
    }
    if followed == "location":
        del places["Azure-AsyncOperation"]
    wait = {} if model.operation_retry_s is None else {"Retry-After": str(model.operation_retry_s)}
    return {**places, **wait}


def _region(model: Model, ask: Ask) -> str:
    thing = model.resources.get(ask.id.lower())
    return thing.region if thing is not None else str((ask.body or {}).get("location") or "eastus")
