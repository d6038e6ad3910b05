"""Operations: whatever changes something answers with one at once, and is done, or fails, when that has ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.clouds.gcp.errors import OperationFailed
from tests.clouds.gcp.model import REMEMBERED, ROOT, Key, Model, Thing, check_request_id, shown
from tests.clouds.rest import Call, Refusal

USER = "someone@example.com"
Done = Callable[[], None]


def known(model: Model, call: Call) -> Thing | None:
    """Return the operation that the same request id has made before; None for a new one, or one of long ago.

    For 60 minutes the same request with the same id does nothing more. What Google says to another request with an id
    that is taken is unverified; here it is an error.
    """
    text = call.query.get("requestId")
    if text is None:
        return None
    check_request_id(text)
    found = model.requests.get(text)
    if found is None or model.clock.now() - found[2] >= REMEMBERED:
        return None
    if found[0] != _asked(call):
        raise Refusal("invalid", f"Invalid value for field 'requestId': '{text}' was used for another request.")
    return get(model, found[1])


def begin(model: Model, call: Call, target: Key, kind: str, done: Done | None = None) -> Thing:
    """Begin an operation, and return it as the answer; `done` happens when its time is over, and may fail."""
    made = _made(model, target, kind)
    if text := call.query.get("requestId"):
        made["clientOperationId"] = text
        model.requests[text] = (_asked(call), _key(made, target), model.clock.now())
    state = _dwell(model, target, kind)
    if model.clock.dwell_s.get(state, 0.0) < 0:  # done before it is answered
        finish(model, made, done)
        return shown(made)
    model.clock.later(made["name"], state, lambda: finish(model, made, done))
    answer = shown(made)
    made["status"] = "RUNNING"  # whoever asks again sees it further on
    return answer


def of_system(model: Model, target: Key, kind: str, status: str = "") -> Thing:
    """Keep the operation of something that Google did by itself: `compute.instances.preempted`, say."""
    made = _made(model, target, kind)
    made |= {"user": "system", "statusMessage": status} if status else {"user": "system"}
    finish(model, made, None)
    return made


def finish(model: Model, made: Thing, done: Done | None) -> None:
    """End an operation, well or not."""
    try:
        if done is not None:
            done()
    except OperationFailed as failed:
        made.update(failed.fields())
    made.update(status="DONE", progress=100, endTime=model.now())


def get(model: Model, key: Key) -> Thing:
    """Return an operation as it is now."""
    if key not in model.operations:
        raise Refusal("notFound", f"The resource '{key.path}' was not found")
    made = model.operations[key]
    return shown(made)


def hurry(model: Model, target: Key) -> None:
    """Let the operations that a resource waits for end now."""
    for made in list(model.operations.values()):
        if made["targetLink"] == target.link and model.clock.when(made["name"]) is not None:
            model.clock.hurry(made["name"])


def _dwell(model: Model, target: Key, kind: str) -> str:
    """Return by which name it is said how long this lasts: `instances.insert`, else `insert`, else `operation`."""
    names = (f"{target.collection}.{kind}", kind)
    return next((name for name in names if name in model.clock.dwell_s), "operation")


def _made(model: Model, target: Key, kind: str) -> Thing:
    number = model.number()
    name = f"operation-{int(model.clock.now().timestamp() * 1000)}-{number[-12:]}"
    made: dict[str, Any] = {
        "kind": "compute#operation",
        "id": number,
        "name": name,
        "operationType": kind,
        "targetLink": target.link,
        "targetId": model.resources.get(target, {}).get("id", number),
        "status": "PENDING",
        "user": USER,
        "progress": 0,
        "insertTime": model.now(),
        "startTime": model.now(),
    }
    if target.scope != "global":
        made[target.scope.partition("s/")[0]] = f"{ROOT}/projects/{target.project}/{target.scope}"
    key = _key(made, target)
    made["selfLink"] = key.link
    model.operations[key] = made
    return made


def _key(made: Thing, target: Key) -> Key:
    return Key("operations", target.project, target.scope, made["name"])


def _asked(call: Call) -> str:
    query = {name: one for name, one in call.query.items() if name != "requestId"}
    return json.dumps([call.action, call.where, query, call.body], sort_keys=True)
