"""What RunPod's published schema (openapi.json of its REST API 2.0.0, 2026-08-20) says of requests, rule by rule.

A body that breaks the schema is 422 with every violation in `errors`; one that breaks a rule between fields is 400.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.clouds.rest import Refusal

CLOUDS = ("SECURE", "COMMUNITY")
ACTIONS = ("start", "stop", "restart", "terminate")
_CUDA = re.compile(r"\d+\.\d+")
_PORT = re.compile(r"[1-9]\d{0,4}/(?:tcp|http|udp)")  # the schema says "port/protocol"; which protocols is our belief
Check = Callable[[str, Any], Iterator[str]]


def _kind(wanted: type, words: str) -> Check:
    def check(at: str, value: Any) -> Iterator[str]:
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            yield f"{at}: got {type(value).__name__}, want {words}"

    return check


_text, _flag = _kind(str, "string"), _kind(bool, "boolean")


def _full_text(at: str, value: Any) -> Iterator[str]:
    yield from _text(at, value)
    if value == "":
        yield f"{at}: minLength: got 0, want 1"


def _least(number: int) -> Check:
    def check(at: str, value: Any) -> Iterator[str]:
        faults = list(_kind(int, "integer")(at, value))
        yield from faults
        if not faults and value < number:
            yield f"{at}: minimum: got {value}, want {number}"

    return check


def _one_of(words: tuple[str, ...]) -> Check:
    def check(at: str, value: Any) -> Iterator[str]:
        if value not in words:
            yield f"{at}: value must be one of {', '.join(map(repr, words))}"

    return check


def _list(each: Check, most: int | None = None) -> Check:
    def check(at: str, value: Any) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{at}: got {type(value).__name__}, want array"
            return
        for number, one in enumerate(value):
            yield from each(f"{at}/{number}", one)
        if most is not None and len(value) > most:
            yield f"{at}: maxItems: got {len(value)}, want {most}"

    return check


def _matching(pattern: re.Pattern[str]) -> Check:
    def check(at: str, value: Any) -> Iterator[str]:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            yield f"{at}: {value!r} does not match pattern {pattern.pattern!r}"

    return check


def _texts(at: str, value: Any) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{at}: got {type(value).__name__}, want object"
        return
    for name, one in value.items():
        yield from _text(f"{at}/{name}", one)


def _null_or(check: Check) -> Check:
    return lambda at, value: iter(()) if value is None else check(at, value)


def _object(fields: Mapping[str, Check], required: tuple[str, ...] = ()) -> Check:
    def check(at: str, value: Any) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{at}: got {type(value).__name__}, want object"
            return
        for name in required:
            if name not in value:
                yield f"{at}: missing property {name!r}"
        for name, one in value.items():
            if name in fields:
                yield from fields[name](f"{at}/{name}", one)
            else:
                yield f"{at}: additional properties {name!r} not allowed"

    return check


_GPU = _object(
    {
        "id": _text,
        "count": _least(1),
        "allowedCudaVersions": _list(_matching(_CUDA)),
        "minCudaVersion": _matching(_CUDA),
    },
    ("id",),
)
_MOUNTS = _object(
    {
        "persistent": _object({"size": _least(10), "path": _text}, ("size", "path")),
        "network": _list(_object({"volumeId": _text, "path": _text}, ("volumeId", "path")), 1),
    }
)
_CONTAINER: dict[str, Check] = {
    "args": _text,
    "disk": _least(1),
    "env": _texts,
    "image": _text,
    "ports": _list(_matching(_PORT)),
    "registry": _null_or(_text),
}
_CREATE = _object(
    {
        **_CONTAINER,
        "name": _full_text,
        "cloud": _one_of(CLOUDS),
        "cpu": _object({"id": _text, "vcpuCount": _least(1)}, ("id",)),
        "gpu": _GPU,
        "dataCenterIds": _list(_text),
        "globalNetworking": _flag,
        "mounts": _MOUNTS,
        "startJupyter": _flag,
        "startSsh": _flag,
        "templateId": _full_text,
    },
    ("name",),
)
_ACTION = _object({"action": _one_of(ACTIONS)}, ("action",))


def creation(body: Any) -> None:
    """Hold the body of `POST /v2/pods` to the schema and to the rules that its descriptions name. Raises Refusal."""
    _hold(_CREATE, body)
    if "templateId" not in body and "image" not in body:
        raise Refusal("schema", "Request validation failed.", 422, errors=["$: missing property 'image'"])
    if ("gpu" in body) == ("cpu" in body):
        raise Refusal("rule", "exactly one of gpu or cpu must be set", 400)
    mounts = body.get("mounts", {})
    if "persistent" in mounts and "network" in mounts:
        raise Refusal("rule", "mounts.persistent and mounts.network are mutually exclusive", 400)
    if "cpu" in body and "persistent" in mounts:
        raise Refusal("rule", "mounts.persistent is invalid for a CPU pod", 400)
    gpu = body.get("gpu", {})
    if gpu.get("allowedCudaVersions") and "minCudaVersion" in gpu:
        raise Refusal("rule", "gpu.allowedCudaVersions and gpu.minCudaVersion are mutually exclusive", 400)


def action(body: Any) -> str:
    """Return the action of `POST /v2/pods/{id}/action`. Raises Refusal."""
    _hold(_ACTION, body)
    return str(body["action"])


def catalogue(query: Mapping[str, str]) -> tuple[str, int] | None:
    """Return of which cloud and for how many GPUs stock is asked; None where it is not asked. Raises Refusal."""
    unknown = query.keys() - {"include", "product", "count", "cloud", "countryCodes", "cudaVersions", "minCudaVersion"}
    if unknown:  # whether RunPod refuses an unknown parameter is our belief
        raise Refusal("schema", f"unknown parameter {min(unknown)}", 422)
    if ("include" in query) != ("product" in query):
        raise Refusal("rule", "include=AVAILABILITY and product are valid only together", 400)
    if "include" not in query:
        if query:
            raise Refusal("rule", f"{min(query)} is valid only with include=AVAILABILITY", 400)
        return None
    if query["include"] != "AVAILABILITY" or query["product"] != "POD":
        raise Refusal("schema", "include has to be AVAILABILITY, and product POD in this model", 422)
    count = query.get("count", "1")
    if not count.isdigit() or int(count) < 1:
        raise Refusal("schema", f"count: got {count}, want an integer of at least 1", 422)
    cloud = query.get("cloud", "SECURE")
    if cloud not in CLOUDS:
        raise Refusal("schema", f"cloud: value must be one of {', '.join(CLOUDS)}", 422)
    return cloud, int(count)


def _hold(check: Check, body: Any) -> None:
    faults = list(check("$", body))
    if faults:
        raise Refusal("schema", "Request validation failed.", 422, errors=faults)
