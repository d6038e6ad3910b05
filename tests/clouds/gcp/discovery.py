"""Google's own descriptions of its APIs as a router and as checks of bodies, both of requests and of our answers.

They are the discovery documents that google-api-python-client carries. They say which calls there are, with which
parameters and fields; what a call does is in no description, and stands in the other modules here.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCUMENTS = ("compute.v1", "cloudresourcemanager.v1", "cloudresourcemanager.v3", "serviceusage.v1", "cloudbilling.v1")
WHOLE = {"int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1), "int64": (-(2**63), 2**63 - 1)}
WHOLE["uint64"] = (0, 2**64 - 1)
BRACED = re.compile(r"\{\+?(\w+)\}")


@dataclass(frozen=True, repr=False)
class Method:
    """One call: its id (`compute.instances.insert`), its parameters, and the schemas of its bodies."""

    id: str
    http: str
    segments: tuple[re.Pattern[str], ...]
    parameters: Mapping[str, Mapping[str, Any]]
    schemas: Mapping[str, Any]
    request: str | None
    response: str | None

    def met(self, segments: list[str]) -> dict[str, str] | None:
        """Return the path's parameters when it is this call's path."""
        found: dict[str, str] = {}
        for pattern, text in zip(self.segments, segments, strict=True):
            one = pattern.fullmatch(text)
            if one is None:
                return None
            found |= one.groupdict()
        return found

    def faults_of_query(self, query: Mapping[str, str]) -> Iterator[str]:
        """Yield what is wrong with the parameters of a query."""
        for name, text in query.items():
            known = self.parameters.get(name)
            if known is None or known.get("location") != "query":
                yield f"Unknown name {name!r}: Cannot bind query parameter"
            elif known["type"] == "boolean":
                yield from () if text in {"true", "false"} else (f"Invalid value at {name!r}: {text!r}",)
            elif known["type"] == "integer":
                low, high = WHOLE[known.get("format", "int32")]
                yield from () if _whole(text, low, high) else (f"Invalid value at {name!r}: {text!r}",)
        for name, known in self.parameters.items():
            if known.get("location") == "query" and known.get("required") and name not in query:
                yield f"Required parameter: {name}"

    def faults_of_path(self, where: Mapping[str, str]) -> Iterator[str]:
        """Yield what is wrong with the parameters of a path."""
        for name, text in where.items():
            pattern = self.parameters.get(name, {}).get("pattern")
            if pattern and not re.fullmatch(pattern, text):
                yield f"Invalid value for field '{name}': '{text}'. Must be a match of regex '{pattern}'"

    def faults_of_request(self, body: Any) -> Iterator[str]:
        """Yield what is wrong with a request's body: what Google says first, and what it would say next."""
        if self.request is None:
            yield from () if body is None else ("This call takes no body",)
        elif not isinstance(body, dict):
            yield f"The body is no {self.request}"
        else:
            yield from _faults(self.schemas, {"$ref": self.request}, body, "", self.id)

    def faults_of_answer(self, body: Any) -> Iterator[str]:
        """Yield what is wrong with an answer's body."""
        if self.response is not None:
            yield from _faults(self.schemas, {"$ref": self.response}, body, "", None)


def _faults(schemas: Mapping[str, Any], schema: Mapping[str, Any], value: Any, at: str, call: str | None) -> Any:
    """Yield what is wrong with a value; `call` is the method that a request's value is for, None for an answer."""
    schema = schemas[schema["$ref"]] if "$ref" in schema else schema
    kind = schema.get("type", "any")
    if kind == "object":
        yield from _faults_of_object(schemas, schema, value, at, call)
    elif kind == "array":
        if not isinstance(value, list):
            yield f"{at}: {value!r} is no list"
            return
        for index, one in enumerate(value):
            yield from _faults(schemas, schema["items"], one, f"{at}[{index}]", call)
    elif not _fits(kind, schema, value, request=call is not None):
        yield f"{at}: {value!r} is no {schema.get('format', kind)}{_choice(schema)}"


def _faults_of_object(schemas: Mapping[str, Any], schema: Mapping[str, Any], value: Any, at: str, call: Any) -> Any:
    if not isinstance(value, dict):
        yield f"{at}: {value!r} is no {schema.get('id', 'object')}"
        return
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    for name, one in value.items():
        if name not in known and more is None:
            yield f"Unknown name {name!r} at {at or 'the body'!r}: Cannot find field"
        else:
            yield from _faults(schemas, known.get(name, more), one, f"{at}.{name}".lstrip("."), call)
    for name, one in known.items():
        if call is not None and call in one.get("annotations", {}).get("required", ()) and name not in value:
            yield f"Required field '{at}.{name}' not specified".replace("'.", "'")


def _fits(kind: str, schema: Mapping[str, Any], value: Any, *, request: bool) -> bool:
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "integer" or schema.get("format") in WHOLE:
        return _fits_whole(kind, schema, value, request=request)
    if kind != "string":
        return True
    pattern = schema.get("pattern") if request else None
    enumerated = value in schema["enum"] if "enum" in schema else True
    return isinstance(value, str) and enumerated and (pattern is None or bool(re.fullmatch(pattern, value)))


def _fits_whole(kind: str, schema: Mapping[str, Any], value: Any, *, request: bool) -> bool:
    """Say whether a value is a whole number; 64 bits travel as text, and Google takes either in a request."""
    low, high = WHOLE[schema.get("format", "int32")]
    if isinstance(value, bool) or not isinstance(value, int | str):
        return False
    if not request and isinstance(value, int) != (kind == "integer"):
        return False
    return _whole(str(value), low, high)


def _whole(text: str, low: int, high: int) -> bool:
    return bool(re.fullmatch(r"-?\d+", text)) and low <= int(text) <= high


def _choice(schema: Mapping[str, Any]) -> str:
    return f" of {', '.join(schema['enum'][:6])} ..." if "enum" in schema else ""


class Router:
    """All calls of the documents, by the method and the number of parts of their paths."""

    def __init__(self) -> None:
        self._methods: dict[tuple[str, int], list[Method]] = {}
        self.by_id: dict[str, Method] = {}
        for name in DOCUMENTS:
            for method in _methods_of(document(name)):
                self._methods.setdefault((method.http, len(method.segments)), []).append(method)
                self.by_id[method.id] = method

    def find(self, http: str, path: str) -> tuple[Method, dict[str, str]] | None:
        """Return the call that a request asks for with the parameters of its path; None for no such call."""
        segments = path.strip("/").split("/")
        for method in self._methods.get((http, len(segments)), ()):
            if (where := method.met(segments)) is not None:
                return method, where
        return None


@functools.cache
def router() -> Router:
    """Return the router: once per process, it takes a few tenths of a second."""
    return Router()


@functools.cache
def document(name: str) -> dict[str, Any]:
    """Return a discovery document."""
    import googleapiclient.discovery_cache

    folder = Path(str(googleapiclient.discovery_cache.__file__)).parent / "documents"
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return found


def _methods_of(read: Mapping[str, Any]) -> Iterator[Method]:
    for raw in _walk(read):
        path = read["servicePath"] + raw.get("flatPath", raw["path"])
        yield Method(
            raw["id"].replace(read["name"], f"{read['name']}.v1") if _is_older(read) else raw["id"],
            raw["httpMethod"],
            tuple(_segment(one) for one in path.strip("/").split("/")),
            {**read.get("parameters", {}), **raw.get("parameters", {})},
            read["schemas"],
            raw.get("request", {}).get("$ref"),
            raw.get("response", {}).get("$ref"),
        )


def _is_older(read: Mapping[str, Any]) -> bool:
    """Say whether it describes an older version of an API that another document describes too."""
    return str(read["name"]) == "cloudresourcemanager" and str(read["version"]) == "v1"


def _walk(resource: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from resource.get("methods", {}).values()
    for one in resource.get("resources", {}).values():
        yield from _walk(one)


@functools.cache
def _segment(text: str) -> re.Pattern[str]:
    parts = BRACED.split(text)
    named = [re.escape(part) if index % 2 == 0 else f"(?P<{part}>[^/]+?)" for index, part in enumerate(parts)]
    return re.compile("".join(named))
