"""A policy as JSON lines: each line is a request, and is answered by one line. `cloudgpu spot serve` reads and writes.

`{"op": "reset", "job": {...}}` is answered `{"ok": true}`, and `{"op": "decide", "state": {...}}` is answered
`{"action": "spot", "zone": null}`. A line that cannot be answered gets `{"error": "..."}`, and the next one counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import cast

from cloudgpu.core.spot.situation import JobFacts, Policy, State, is_finite
from cloudgpu.errors import CloudgpuError, InvalidRequest

LONGEST_LINE = 16_000_000  # characters: a history of a year in many zones fits
_OPS = '"reset" or "decide"'
_MODES = ("wait", "spot", "on_demand")


class Serving:
    """Answers the lines of one conversation with one policy."""

    def __init__(self, make: Callable[[], Policy]) -> None:
        self._make = make
        self._policy: Policy | None = None

    def answer(self, line: str | bytes) -> str:
        """Return the answer to one line, without its line end; it never raises for what the line holds."""
        try:
            reply = self._reply_to(_request(line))
        except CloudgpuError as error:
            reply = {"error": f"{error} {error.next or ''}".strip()}
        except RecursionError:
            reply = {"error": "The line is nested too deeply."}
        except Exception as error:  # noqa: BLE001  (the conversation goes on, whatever a policy trips over)
            reply = {"error": f"The policy failed: {type(error).__name__}: {error}"}
        return json.dumps(reply)

    def _reply_to(self, request: Mapping[str, object]) -> dict[str, object]:
        op = request.get("op")
        if op == "reset":
            self._policy = None  # a reset that fails leaves no job behind
            policy = self._make()
            policy.reset(cast("JobFacts", _object_at(request, "job")))
            self._policy = policy
            return {"ok": True}
        if op != "decide":
            raise _wrong("op", op, f"is not {_OPS}")
        if self._policy is None:
            raise InvalidRequest(
                "No job has begun.", field="op", value="decide", next='Send {"op": "reset", "job": {...}} first.'
            )
        answer = self._policy.decide(cast("State", checked_state(_object_at(request, "state"))))
        return {"action": answer["action"], "zone": answer["zone"]}


def checked_state(state: Mapping[str, object]) -> dict[str, object]:
    """Return the state of a `decide` with every key that a policy reads; raise InvalidRequest for a wrong one."""
    zones = state.get("zones_available")
    if zones is not None:
        zones = _zones(zones)
    mode = state.get("mode")
    if mode not in _MODES:
        raise _wrong("mode", mode, "is not wait, spot or on_demand")
    return {
        **state,
        "elapsed_h": _number(state, "elapsed_h", minimum=0),
        "work_left_h": _number(state, "work_left_h", minimum=0),
        "time_left_h": _number(state, "time_left_h"),
        "spot_available": any(zones) if zones else _flag(state.get("spot_available"), "spot_available"),
        "zones_available": zones,
        "mode": mode,
        "zone": _zone(state.get("zone"), zones),
        "pending_h": _number({"pending_h": 0, **state}, "pending_h", minimum=0),
    }


def _request(line: str | bytes) -> Mapping[str, object]:
    if len(line) > LONGEST_LINE:
        raise InvalidRequest("The line is too long.", field="line", value=None, next=f"Send an op: {_OPS}.")
    try:
        parsed = json.loads(line)
    except ValueError as error:  # UnicodeDecodeError is one
        raise InvalidRequest(
            f"The line is not JSON ({error}).", field="line", value=None, next=f"Send an op: {_OPS}."
        ) from None
    if not isinstance(parsed, dict):
        raise InvalidRequest("The line holds no JSON object.", field="line", value=None, next=f"Send an op: {_OPS}.")
    return parsed


def _object_at(request: Mapping[str, object], key: str) -> dict[str, object]:
    value = request.get(key)
    if not isinstance(value, dict):
        raise _wrong(key, value, "is not an object")
    return value


def _number(state: Mapping[str, object], key: str, *, minimum: float = -math.inf) -> float:
    value = state.get(key)
    if not is_finite(value) or value < minimum:
        raise _wrong(key, value, "is not a number" if minimum < 0 else f"is not a number of at least {minimum:g}")
    return float(value)


def _zones(value: object) -> list[bool]:
    if not isinstance(value, list) or not value:
        raise _wrong("zones_available", value, "is neither null nor a list of at least one flag")
    return [_flag(one, "zones_available") for one in value]


def _flag(value: object, key: str) -> bool:
    if value not in (True, False):  # 1 and 0 too
        raise _wrong(key, value, "is neither true nor false")
    return bool(value)


def _zone(value: object, zones: list[bool] | None) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < len(zones or [True]):
        raise _wrong("zone", value, "is neither null nor the place of a zone")
    return value


def _wrong(key: str, value: object, problem: str) -> InvalidRequest:
    shown = json.dumps(value, default=repr)[:60]
    return InvalidRequest(f"{key} {shown} {problem}.", field=key, value=shown, next="See docs/spot.md.")
