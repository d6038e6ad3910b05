"""Lists as Google gives them: pages of at most 500, filters by field, and lists over all zones with their warnings."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.clouds.gcp.model import ROOT, Thing, shown
from tests.clouds.rest import Call, Refusal, Unmodelled

MOST = 500
TERM = re.compile(
    r"""\s*\(?\s*(?P<field>[A-Za-z_][\w.-]*)\s*(?P<operator>!=|=|:|\beq\b|\bne\b)\s*"""
    r"""(?P<value>"[^"]*"|'[^']*'|[^\s()]+)\s*\)?\s*(?:(?P<and>AND\b)\s*)?"""
)


def page(call: Call, items: Sequence[Thing], kind: str) -> dict[str, Any]:
    """Return one page of a list of one place."""
    chosen = matching(call, items)
    begin, end = _bounds(call)
    made: dict[str, Any] = {"kind": f"compute#{kind}List", "id": "list", "selfLink": f"{ROOT}/list"}
    if chosen[begin:end]:
        made["items"] = [shown(one) for one in chosen[begin:end]]
    return made | _more(chosen, end)


def aggregated(
    call: Call, by_scope: Mapping[str, Sequence[Thing]], collection: str, silent: Iterable[str] = ()
) -> dict[str, Any]:
    """Return one page of a list over all scopes; those that are `silent` bear the warning UNREACHABLE.

    A page holds at most 500 resources, of whatever scopes they are; a scope with none on it bears a warning. That a
    scope which cannot be reached is named so, beside the others, is documented for the warning's code; what such an
    answer looks like as a whole is unverified.
    """
    silent = set(silent)
    flat = [
        (scope, one) for scope, some in by_scope.items() for one in ([] if scope in silent else matching(call, some))
    ]
    begin, end = _bounds(call)
    items: dict[str, Any] = {scope: _warned(scope, silent) for scope in by_scope}
    for scope, one in flat[begin:end]:
        items[scope].pop("warning", None)
        items[scope].setdefault(collection, []).append(shown(one))
    singular = collection.removesuffix("es") if collection.endswith("sses") else collection.removesuffix("s")
    made: dict[str, Any] = {"kind": f"compute#{singular}AggregatedList", "id": "list", "items": items}
    if silent:
        made["unreachables"] = sorted(silent)
    return made | _more(flat, end)


def _warned(scope: str, silent: set[str]) -> dict[str, Any]:
    code = "UNREACHABLE" if scope in silent else "NO_RESULTS_ON_PAGE"
    said = "could not be reached" if scope in silent else "There are no results for scope on this page."
    return {"warning": {"code": code, "message": f"{said} '{scope}'", "data": [{"key": "scope", "value": scope}]}}


def _bounds(call: Call) -> tuple[int, int]:
    asked = int(call.query.get("maxResults", MOST))
    if not 0 <= asked <= MOST:
        raise Refusal("invalid", f"Invalid value for field 'maxResults': '{asked}'. Must be between 0 and 500.")
    begin = 0
    if text := call.query.get("pageToken"):
        try:
            begin = int(base64.b64decode(text, validate=True))
        except ValueError:
            raise Refusal("invalid", "Invalid value for field 'pageToken'") from None
    return begin, begin + (asked or MOST)


def _more(items: Sequence[Any], end: int) -> dict[str, str]:
    return {"nextPageToken": base64.b64encode(str(end).encode()).decode()} if end < len(items) else {}


def matching(call: Call, items: Iterable[Thing]) -> list[Thing]:
    """Return the resources that the filter of a call means, by name. Raises Unmodelled for a filter it cannot read."""
    terms = _terms(call.query.get("filter", ""))
    found = [one for one in items if all(_fits(one, *term) for term in terms)]
    newest = call.query.get("orderBy") == "creationTimestamp desc"
    return sorted(found, key=_created if newest else _name, reverse=newest)


def _name(one: Thing) -> str:
    return str(one["name"])


def _created(one: Thing) -> str:
    return str(one.get("creationTimestamp") or one.get("insertTime"))


def _terms(text: str) -> list[tuple[str, str, str]]:
    """Return the terms of a filter (fields, `=`, `!=`, `:`, `eq`, `ne`), all of which are to hold."""
    terms: list[tuple[str, str, str]] = []
    rest = text
    while rest.strip():
        found = TERM.match(rest)
        if found is None or re.search(r"\bOR\b|\bNOT\b|<|>", rest):
            raise Unmodelled(f"the filter {text!r}")
        terms.append((found["field"], found["operator"], found["value"].strip("\"'")))
        rest = rest[found.end() :]
    return terms


def _fits(one: Thing, field: str, operator: str, value: str) -> bool:
    held = _field(one, field)
    if operator in {"eq", "ne"}:
        return (held is not None and bool(re.fullmatch(value, held))) == (operator == "eq")
    if operator == ":":
        return held is not None and (value == "*" or _like(held, value) or value in held)
    return (held is not None and _like(held, value)) == (operator == "=")


def _like(held: str, value: str) -> bool:
    """Say whether a text is a value in which a star stands for anything."""
    return bool(re.fullmatch(".*".join(re.escape(part) for part in value.split("*")), held))


def _field(one: Thing, path: str) -> str | None:
    found: Any = one
    for part in path.split("."):
        if not isinstance(found, dict) or part not in found:
            return None
        found = found[part]
    return str(found).lower() if isinstance(found, bool) else str(found)
