"""JSON Schemas of Azure's bodies, derived from the models of the pinned SDKs by introspection, and a checker of them.

The SDKs' models take anything; their annotations say what Azure publishes. Two generations of models are read: those
with `rest_field` and, for authorization, those with `_attribute_map`. A request's schema lacks what is read-only.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import functools
import importlib
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

REF = "#/$defs/"
LOOSE = {  # enumerations that the SDK says are not complete
    "VirtualMachineSizeTypes",
}
_SCALARS = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "long": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "object": {},
    "iso-8601": {"type": "string"},
    "rfc-1123": {"type": "string"},
}
_PYTHON = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    decimal.Decimal: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "string"},
    dt.datetime: {"type": "string"},
    dt.date: {"type": "string"},
    dt.timedelta: {"type": "string"},
    dt.time: {"type": "string"},
    Any: {},
    type(None): {"type": "null"},
}
_TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


class Schemas:
    """The schemas of one SDK's models: `of(name, request=...)` is one, its parts are found in `definitions`."""

    def __init__(self, package: str) -> None:
        self.models = importlib.import_module(f"{package}.models")
        self.definitions: dict[str, dict[str, Any]] = {}

    def of(self, name: str, *, request: bool) -> dict[str, Any]:
        """Return the schema of a model as a request's body, or as an answer."""
        key = f"{name}.request" if request else name
        if key not in self.definitions:
            self.definitions[key] = {}  # a model may hold itself
            model = getattr(self.models, name)
            old = hasattr(model, "_attribute_map")
            self.definitions[key].update(self._old(model, request) if old else self._new(model, request))
        return {"$ref": f"{REF}{key}"}

    def whole(self, name: str, *, request: bool) -> dict[str, Any]:
        """Return one schema with all its parts, as a JSON Schema validator wants it."""
        return {**self.of(name, request=request), "$defs": self.definitions}

    def _new(self, model: Any, request: bool) -> dict[str, Any]:
        hints = typing.get_type_hints(model, localns={"_models": self.models})
        properties, required = {}, []
        for attribute, field in _fields(model):
            if request and field._visibility == ["read"]:
                continue
            hint = hints[attribute]
            optional = type(None) in typing.get_args(hint)
            name = field._rest_name_input or attribute
            properties[name] = self._hinted(hint, request)
            if not optional and field._visibility != ["read"]:
                required.append(name)
        return _object(properties, required)

    def _hinted(self, hint: Any, request: bool) -> dict[str, Any]:
        if hint in _PYTHON:
            return _PYTHON[hint]
        return self._class(hint, request) if isinstance(hint, type) else self._generic(hint, request)

    def _generic(self, hint: Any, request: bool) -> dict[str, Any]:
        origin, inner = typing.get_origin(hint), typing.get_args(hint)
        if origin in {typing.Union, types.UnionType}:
            return self._any([one for one in inner if one is not type(None)], request)
        if origin is list:
            return {"type": "array", "items": self._hinted(inner[0], request)}
        if origin is dict:
            return {"type": "object", "additionalProperties": self._hinted(inner[1], request)}
        if origin is typing.Literal:
            return {"enum": [one.value if isinstance(one, enum.Enum) else one for one in inner]}
        raise TypeError(f"no schema for {hint!r}")

    def _class(self, kind: type, request: bool) -> dict[str, Any]:
        if issubclass(kind, enum.Enum):
            return {"type": "string"} if kind.__name__ in LOOSE else {"enum": [one.value for one in kind]}
        if hasattr(self.models, kind.__name__):
            return self._variants(kind, request)
        raise TypeError(f"no schema for {kind!r}")

    def _any(self, inner: list[Any], request: bool) -> dict[str, Any]:
        enums = [one for one in inner if isinstance(one, type) and issubclass(one, enum.Enum)]
        meant = [one for one in inner if not (enums and one is str)]
        found = [self._hinted(one, request) for one in meant]
        return found[0] if len(found) == 1 else {"anyOf": found}

    def _variants(self, model: Any, request: bool) -> dict[str, Any]:
        children = {one.__name__ for one in getattr(model, "__mapping__", {}).values()}
        names = sorted(children & set(dir(self.models))) or [model.__name__]
        found = [self.of(one, request=request) for one in names]
        return found[0] if len(found) == 1 else {"anyOf": found}

    def _old(self, model: Any, request: bool) -> dict[str, Any]:
        rules, enums = model._validation, _enums_of(model)
        schema = _object({}, [])
        for attribute, facts in model._attribute_map.items():
            rule = rules.get(attribute, {})
            if request and rule.get("readonly"):
                continue
            inside, *path = reversed(re.split(r"(?<!\\)\.", facts["key"]))
            place = schema
            for part in reversed(path):
                place = place["properties"].setdefault(part, _object({}, []))
            place["properties"][inside] = self._named(facts["type"], enums.get(attribute), request)
            if rule.get("required"):
                place["required"].append(inside)
        if schema["properties"].get("properties", {}).get("required"):
            schema["required"].append("properties")
        return schema

    def _named(self, text: str, enumeration: str | None, request: bool) -> dict[str, Any]:
        if text.startswith("["):
            return {"type": "array", "items": self._named(text[1:-1], None, request)}
        if text.startswith("{"):
            return {"type": "object", "additionalProperties": self._named(text[1:-1], None, request)}
        if enumeration:
            return {"enum": [one.value for one in getattr(self.models, enumeration)]}
        return _SCALARS[text] if text in _SCALARS else self.of(text, request=request)


@functools.cache
def schemas(package: str) -> Schemas:
    """Return the schemas of an SDK, made once per process and part by part."""
    return Schemas(package)


def faults(value: Any, schema: dict[str, Any], definitions: dict[str, Any], at: str = "") -> Iterator[str]:
    """Yield what is wrong with a value, each with its place; it knows the words that `Schemas` writes and no others."""
    if ref := schema.get("$ref"):
        yield from faults(value, definitions[ref.removeprefix(REF)], definitions, at)
    elif "anyOf" in schema:
        tries = [list(faults(value, one, definitions, at)) for one in schema["anyOf"]]
        yield from min(tries, key=len)
    elif "enum" in schema:
        if value not in schema["enum"]:
            yield f"{at or 'body'}: {value!r} is none of {', '.join(map(str, schema['enum']))}"
    elif "type" in schema:
        yield from _typed(value, schema, definitions, at)


def _typed(value: Any, schema: dict[str, Any], definitions: dict[str, Any], at: str) -> Iterator[str]:
    wrong_number = isinstance(value, bool) and schema["type"] in {"integer", "number"}
    if wrong_number or not isinstance(value, _TYPES[schema["type"]]):
        yield f"{at or 'body'}: {value!r} is no {schema['type']}"
    elif schema["type"] == "array":
        for number, one in enumerate(value):
            yield from faults(one, schema["items"], definitions, f"{at}[{number}]")
    elif schema["type"] == "object":
        yield from _fields_of(value, schema, definitions, at)


def _fields_of(value: dict[str, Any], schema: dict[str, Any], definitions: dict[str, Any], at: str) -> Iterator[str]:
    known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", []):
        if name not in value:
            yield f"{at or 'body'}: {name} is missing"
    for name, one in value.items():
        if name in known:
            yield from faults(one, known[name], definitions, f"{at}.{name}")
        elif more is False:
            yield f"{at or 'body'}: {name} is unknown"
        elif isinstance(more, dict):
            yield from faults(one, more, definitions, f"{at}.{name}")


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _fields(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a model and of those that it extends."""
    seen = set()
    for base in model.__mro__:
        for name, field in vars(base).items():
            if type(field).__name__ == "_RestField" and name not in seen:
                seen.add(name)
                yield name, field


def _enums_of(model: Any) -> dict[str, str]:
    """Return the enumerations that a docstring of the older models names, by attribute."""
    found = re.findall(r":vartype (\w+): str or\s+~[\w.]*\.(\w+)", model.__doc__ or "")
    return dict(found)
