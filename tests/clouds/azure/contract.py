"""Holds each request and each answer against the models that the pinned SDKs publish."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.clouds.azure.routes import Route, Shape
from tests.clouds.azure.schemas import faults, schemas
from tests.clouds.rest import Reply, Request

IGNORED = {"api-version", "$skiptoken"}  # the second one is of the links to next pages
_OF_POLICIES = dict.fromkeys(("Providers.Register", "Providers.Get"), "2016-02-01")  # azure-mgmt-core asks by itself
_VALID: set[tuple[str, str]] = set()  # answers that were held against their models before


def of_request(route: Route, request: Request) -> list[str]:
    """Return what of a request Azure does not publish: queries, another version, fields, words, what is read-only."""
    known = route.query | IGNORED
    found = [f"the query {name} is unknown" for name in request.query if name not in known]
    version = request.query.get("api-version", "")
    by_sdk = request.headers.get("User-Agent", "").startswith("azsdk-python-mgmt")
    if not version or (by_sdk and version not in {route.version, _OF_POLICIES.get(route.action)}):
        found.append(f"the version {version!r} is not {route.version}")
    if route.body is not None and request.body is not None:
        found += _against(route.body, request.body, request=True)
    if route.body is None and request.body not in (None, {}, ""):
        found.append("it takes no body")
    return found


def of_answer(route: Route, reply: Reply) -> list[str]:
    """Return what of an answer of our model Azure does not publish, or its SDK would not take."""
    found = [] if reply.status in route.statuses else [f"the SDK takes no status {reply.status}"]
    if route.answer is None or reply.body is None or reply.status == 202:
        return found
    text = json.dumps(reply.body, sort_keys=True)
    if (route.action, text) not in _VALID:
        wrong = list(_against(route.answer, reply.body, request=False))
        found += wrong
        if not wrong:
            _VALID.add((route.action, text))
    return found


def _against(shape: Shape, body: Any, *, request: bool) -> Iterator[str]:
    known = schemas(shape.package)
    schema = known.of(shape.model, request=request)
    rows = [body] if shape.kind == "one" else body["value"] if shape.kind == "pages" else body
    for row in rows:
        yield from faults(row, schema, known.definitions)
