"""Things of ours that are no machines on Google Cloud: their ids, and what Google's answers say of all of them.

An id is scope, collection and name, `us-central1-a/disks/cg-3f9a...`: a scope is a zone, a region or `global`,
and collections are spelled as in Google's own addresses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.resources import Kind, ProviderResource
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.gcp.errors import is_gone
from cloudgpu.providers.gcp.operations import wait_for

Raw = Mapping[str, Any]
Answer = TypeVar("Answer")
GLOBAL = "global"
NOT_REACHED = "Google could not reach it"
TAG_PREFIX = "cloudgpu-"
# Warnings of a list that lacks something; "no results on this page" is none of these.
INCOMPLETE_WARNINGS = frozenset(("UNREACHABLE", "PARTIAL_SUCCESS", "LIST_OVERHEAD_QUOTA_EXCEED"))
_ID = re.compile(r"([a-z]+(?:-[a-z]+\d+(?:-[a-z])?)?)/([a-z][A-Za-z]+)/([a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)")


def joined(scope: str, collection: str, name: str) -> str:
    """Return our id of what Google calls `name` among its things of this sort (`disks`, `images`) in a scope."""
    return f"{scope}/{collection}/{name}"


def parse_id(id: str, *collections: str) -> tuple[str, str, str] | None:  # noqa: A002
    """Return scope, collection and name of one of ours of these collections; None for any other text."""
    found = _ID.fullmatch(id)
    return (found[1], found[2], found[3]) if found and found[2] in collections else None


def parse_resource_id(
    resource: ProviderResource, collections: Mapping[Kind, tuple[str, ...]], see: str
) -> tuple[str, str, str]:
    """Return scope, collection and name of a thing; raise InvalidRequest where its id is none of its kind's."""
    found = parse_id(resource.id, *collections.get(resource.kind, ()))
    if found is None:
        message = f"{resource.id!r} is not an id of a {resource.kind} on Google Cloud."
        raise InvalidRequest(message, field="id", value=resource.id, next=f"Run: {see}")
    return found


def scope_parameter(scope: str) -> dict[str, str]:
    """Return the parameter of a call that says where a thing lies: none for what is global."""
    if scope == GLOBAL:
        return {}
    return {"zone": scope} if ids.region_of(scope) else {"region": scope}


def our_tags(raw: Raw) -> dict[str, str]:
    """Return the labels that are ours."""
    return {key: value for key, value in raw.get("labels", {}).items() if key.startswith(TAG_PREFIX)}


def parse_time(text: str | None) -> datetime | None:
    """Return one of Google's times as aware UTC; None where it did not say, or said something else."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found.astimezone(UTC) if found.tzinfo is not None else None


def machine_of(links: Iterable[str]) -> str | None:
    """Return our id of the first machine among Google's links to who uses a thing; None for none."""
    machines = (link.split("/") for link in links if "/instances/" in link)
    return next((ids.joined(parts[-3], parts[-1]) for parts in machines), None)


def aggregated(gcp: Gcp, service: str, *, key: str = "", **parameters: Any) -> tuple[list[Raw], tuple[Unanswered, ...]]:
    """Return the things of all zones and regions that are asked for, and the scopes that did not answer: a call a page.

    `key` is what they are called in the answer, where that is not the service's name. Google names a scope that it
    could not reach by a warning in its place, or among `unreachables`; a warning of the whole list is the account's.
    """
    found: list[Raw] = []
    silent: dict[str, str] = {}
    for page in gcp.pages(f"compute.{service}.aggregatedList", **parameters):
        silent |= {ids.last(scope): NOT_REACHED for scope in page.get("unreachables", ())}
        silent |= missing_parts(gcp.account, page)
        for scope, answer in page.get("items", {}).items():
            zone = {"zone": ids.last(scope)} if scope.startswith("zones/") else {}
            found += [{**zone, **one} for one in answer.get(key or service, ())]
            silent |= missing_parts(ids.last(scope), answer)
    return found, tuple(Unanswered(scope, why) for scope, why in silent.items())


def missing_parts(scope: str, answer: Raw) -> dict[str, str]:
    """Return the scope, and why, where a warning says that something of it is missing here; else nothing."""
    warning = answer.get("warning", {})
    return {scope: warning.get("message") or NOT_REACHED} if warning.get("code") in INCOMPLETE_WARNINGS else {}


def silent_scopes(gcp: Gcp, silent: Iterable[Unanswered], region: str | None = None) -> tuple[Unanswered, ...]:
    """Return those of the silent scopes that count: in this region, None for all, and not left out by the settings."""
    return tuple(gap for gap in silent if _counts(gcp, gap.scope, region))


def _counts(gcp: Gcp, scope: str, region: str | None) -> bool:
    where = ids.region_of(scope) or scope
    if not ids.REGION.fullmatch(where):
        return True  # a list as a whole
    used = gcp.options.uses_zone(scope) if where != scope else gcp.options.uses(scope)
    return used and region in (None, where)


def change_and_wait(gcp: Gcp, action: str, where: str, *, value: str | None = None, **parameters: Any) -> Raw:
    """Make a change and return its operation once that is done. Raises what it failed with."""
    return wait_for(gcp, gcp.call(action, where, value=value, **parameters), action=action, value=value)


def if_found(call: Callable[[], Answer]) -> Answer | None:
    """Return what a call returns; None where Google answers that what it is about is not there."""
    try:
        return call()
    except CloudgpuError as error:
        if is_gone(error):
            return None
        raise
