"""Calls to Azure Resource Manager that none of its SDKs has: plain JSON, through the same client as all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloudgpu.providers.azure.client import Azure


def read(azure: Azure, action: str, path: str, version: str, **query: str) -> Mapping[str, Any]:
    """Return what a GET answers; `action` is the permission that it takes. One call."""
    client = azure.resources  # first: it says so where the SDK is not installed
    from azure.core.rest import HttpRequest

    with azure.said(action, ""):
        response = client.send_request(HttpRequest("GET", path, params={"api-version": version, **query}))
        response.raise_for_status()
        found: Mapping[str, Any] = response.json()
    return found


def pages(azure: Azure, action: str, path: str, version: str, **query: str) -> Iterator[Mapping[str, Any]]:
    """Yield each `value` of a list. A call per page."""
    found = read(azure, action, path, version, **query)
    yield from found.get("value", ())
    while found.get("nextLink"):
        found = _next(azure, action, str(found["nextLink"]))
        yield from found.get("value", ())


def _next(azure: Azure, action: str, link: str) -> Mapping[str, Any]:
    from azure.core.rest import HttpRequest

    with azure.said(action, ""):
        response = azure.resources.send_request(HttpRequest("GET", link))
        response.raise_for_status()
        found: Mapping[str, Any] = response.json()
    return found
