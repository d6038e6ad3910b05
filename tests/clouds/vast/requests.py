"""Which requests our model of vast.ai takes: their paths, and what the bodies may hold."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.clouds.rest import Unmodelled

_ROUTES = [
    ("POST", r"/api/v0/bundles/", "search"),
    ("PUT", r"/api/v0/asks/(?P<ask>\d+)/", "rent"),
    ("GET", r"/api/v1/instances/", "list"),
    ("PUT", r"/api/v0/instances/request_logs/(?P<id>\d+)/?", "logs"),
    ("GET", r"/api/v0/instances/(?P<id>\d+)/", "get"),
    ("PUT", r"/api/v0/instances/(?P<id>\d+)/", "change"),
    ("DELETE", r"/api/v0/instances/(?P<id>\d+)/", "destroy"),
    ("GET", r"/api/v0/users/current/", "user"),
    ("GET", r"/logs/(?P<id>\d+)", "log"),
]
ROUTES = [(method, re.compile(pattern), action) for method, pattern, action in _ROUTES]
PAGE = 25
LABEL_AT_LAUNCH, LABEL_LATER, ENV, ARGS = 256, 1024, 32_768, 4096  # characters
LEAST_DISK = 8  # GB
RENTS = {  # what a request to rent may hold, and of which type each is
    "client_id": str,
    "image": str,
    "disk": (int, float),
    "label": str,
    "runtype": str,
    "env": dict,
    "onstart": str,
    "args": list,
    "price": (int, float),
    "target_state": str,
    "cancel_unavail": bool,
}
RUNTYPES = {"ssh", "ssh_direct", "ssh_proxy", "jupyter", "args"}
_PORT = re.compile(r"-p \d+:\d+(/udp)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def routed(method: str, path: str) -> tuple[str, dict[str, str]]:
    """Return the action of a request, and the parameters of its path. Raises Unmodelled."""
    for verb, pattern, action in ROUTES:
        found = pattern.fullmatch(path)
        if found and verb == method:
            return action, found.groupdict()
    message = f"{method} {path} is no call of vast.ai's that the notes name"
    raise Unmodelled(message)


def faults_of(action: str, query: dict[str, str], body: Any) -> list[str]:
    """Return what is wrong with a request, by its action."""
    check = {"rent": _rent, "list": _list, "change": _change, "logs": _logs, "search": _search}.get(action)
    if check is None:
        found = [f"{action} takes no body"] * (body is not None)
        return found + [f"{action} has no parameter {name}" for name in query if action != "log"]
    if action == "list":
        return list(_list(query))
    return [f"{action} has no parameter {name}" for name in query] + list(check(body))


def _rent(body: Any) -> Iterator[str]:
    if not isinstance(body, dict):
        yield "a request to rent is an object"
        return
    for name, value in body.items():
        if name not in RENTS or not isinstance(value, RENTS[name]) or (name != "cancel_unavail" and value is True):
            yield f"{name} cannot be {value!r}"
    yield from (f"{name} is missing" for name in ("client_id", "image", "disk", "runtype") if name not in body)
    if body.get("client_id") != "me":
        yield "client_id is always me"
    if body.get("runtype") not in RUNTYPES:
        yield f"no runtype {body.get('runtype')!r}"
    if isinstance(body.get("disk"), int | float) and body["disk"] < LEAST_DISK:
        yield f"disk is under {LEAST_DISK} GB"
    if len(body.get("label", "")) > LABEL_AT_LAUNCH:
        yield "label_too_long"
    yield from _environment(body.get("env", {}))
    if len(body.get("onstart", "")) + sum(map(len, body.get("args", []))) > ARGS:
        yield f"onstart and args have more than {ARGS} characters"


def _environment(env: dict[str, Any]) -> Iterator[str]:
    for name, value in env.items():
        if not isinstance(value, str) or not (_VARIABLE.fullmatch(name) or _PORT.fullmatch(name)):
            yield f"env has {name!r}: {type(value).__name__}"
    if sum(len(str(name)) + len(str(value)) for name, value in env.items()) > ENV:
        yield f"env has more than {ENV} characters"


def _list(query: dict[str, str]) -> Iterator[str]:
    for name, text in query.items():
        if name not in ("limit", "after_token", "select_filters", "select_cols", "order_by"):
            yield f"list has no parameter {name}"
        elif name == "limit" and not (text.isdigit() and 1 <= int(text) <= PAGE):
            yield f"limit is {text}: at most {PAGE}"
        elif name in ("select_filters", "order_by", "select_cols"):
            try:
                json.loads(text)
            except ValueError:
                yield f"{name} is no JSON"


def _change(body: Any) -> Iterator[str]:
    if not isinstance(body, dict) or len(body) != 1 or next(iter(body)) not in ("state", "label"):
        yield f"a change is of state or of label: {body!r}"
    elif "state" in body and body["state"] not in ("running", "stopped"):
        yield f"no state {body['state']!r}"
    elif not isinstance(next(iter(body.values())), str) or len(body.get("label", "")) > LABEL_LATER:
        yield "label_too_long"


def _logs(body: Any) -> Iterator[str]:
    if not isinstance(body, dict) or body.keys() - {"tail"} or not str(body.get("tail", "1")).isdigit():
        yield f"logs are asked for by tail alone: {body!r}"


def _search(body: Any) -> Iterator[str]:
    if not isinstance(body, dict):
        yield "a search is an object"
    elif "limit" not in body:
        yield "a search without a limit sees a part of the market"
