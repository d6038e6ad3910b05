"""Resources on Google Cloud other than machines: their ids, and what is common to Google's answers about them.

An id is scope, collection and name, `us-central1-a/disks/cg-3f9a...`: a scope is a zone, a region or `global`,
and collections are spelled as in Google's own addresses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.errors import CloudgpuError
from cloudgpu.parallel import Pool
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import Gcp, Raw
from cloudgpu.providers.gcp.errors import is_gone
from cloudgpu.providers.gcp.operations import wait_for
from cloudgpu.providers.shared.calls import result_or_error
from cloudgpu.providers.shared.errors import invalid_id_error

# The resources of one list, and the scopes that did not answer.
PartialListing = tuple[list[ProviderResource], tuple[Unanswered, ...]]
ListReader = Callable[[], PartialListing]
Answer = TypeVar("Answer")
GLOBAL = "global"
NOT_REACHED = "Google could not reach it"
TAG_PREFIX = "cloudgpu-"
# Warnings of a list that lacks something; "no results on this page" is none of these.
INCOMPLETE_WARNINGS = frozenset(("UNREACHABLE", "PARTIAL_SUCCESS", "LIST_OVERHEAD_QUOTA_EXCEED"))
_SCOPE = rf"{GLOBAL}|{ids.REGION.pattern}|{ids.ZONE.pattern}"
_ID = re.compile(rf"(?P<scope>{_SCOPE})/(?P<collection>[a-z][A-Za-z]+)/(?P<name>[a-z](?:[-a-z0-9]{{0,61}}[a-z0-9])?)")


def resource_id(scope: str, collection: str, name: str) -> str:
    """Return our id of the resource that Google calls `name` in a collection (`disks`, `images`) of a scope."""
    return f"{scope}/{collection}/{name}"


def parse_id(id: str, *collections: str) -> tuple[str, str, str] | None:  # noqa: A002
    """Return scope, collection and name of a resource's id in one of these collections; None for any other text."""
    match = _ID.fullmatch(id)
    return (
        (match["scope"], match["collection"], match["name"]) if match and match["collection"] in collections else None
    )


def parse_resource_id(
    resource: ProviderResource, collections: Mapping[Kind, tuple[str, ...]], list_command: str
) -> tuple[str, str, str]:
    """Return scope, collection and name of a resource; raise InvalidRequest where its id does not fit its kind.

    `list_command` is the remedy: it lists the valid ids.
    """
    parts = parse_id(resource.id, *collections.get(resource.kind, ()))
    if parts is None:
        raise invalid_id_error(resource.id, f"a {resource.kind} on Google Cloud", f"Run: {list_command}")
    return parts


def scope_parameter(scope: str) -> dict[str, str]:
    """Return the parameter of a call for the scope of a resource, `zone` or `region`: none for a global one."""
    if scope == GLOBAL:
        return {}
    return {"zone": scope} if ids.region_of(scope) else {"region": scope}


def our_tags(raw: Raw) -> dict[str, str]:
    """Return the labels of a resource that are cloudgpu's."""
    return {key: value for key, value in raw.get("labels", {}).items() if key.startswith(TAG_PREFIX)}


def parse_time(text: str | None) -> datetime | None:
    """Return a time of Google's as aware UTC; None for no text, or any other text."""
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return time.astimezone(UTC) if time.tzinfo is not None else None


def machine_of(links: Iterable[str]) -> str | None:
    """Return our id of the first machine among Google's `users` links of a resource; None for none."""
    machines = (link.split("/") for link in links if "/instances/" in link)
    return next((ids.machine_id(parts[-3], parts[-1]) for parts in machines), None)


def list_all_scopes(
    gcp: Gcp, service: str, *, key: str = "", **parameters: Any
) -> tuple[list[Raw], tuple[Unanswered, ...]]:
    """Return a service's resources in all zones and regions, and the scopes that did not answer: a call a page.

    `key` has the resources in the answer, where that is not the service's name. Google reports a scope that it could
    not reach by a warning in its place, or among `unreachables`; a warning for the whole list counts for the account.
    """
    resources: list[Raw] = []
    unanswered: dict[str, str] = {}
    for page in gcp.pages(f"compute.{service}.aggregatedList", **parameters):
        unanswered |= {ids.last_part(scope): NOT_REACHED for scope in page.get("unreachables", ())}
        unanswered |= missing_parts(gcp.account, page)
        for scope, answer in page.get("items", {}).items():
            zone = {"zone": ids.last_part(scope)} if scope.startswith("zones/") else {}
            resources += [{**zone, **raw} for raw in answer.get(key or service, ())]
            unanswered |= missing_parts(ids.last_part(scope), answer)
    return resources, tuple(Unanswered(scope, why) for scope, why in unanswered.items())


def read_lists(
    gcp: Gcp, region: str | None, needed: Sequence[ListReader], optional: Sequence[ListReader] = ()
) -> ResourceListing:
    """Return what these lists have in a region (None: all), read in parallel, and what did not answer.

    Raises the first error where none of `needed` answered. One of `optional` that does not answer is left out.
    """
    with Pool(len(needed) + len(optional)) as pool:
        answers = list(pool.map(result_or_error, [*needed, *optional]))
    errors = [answer for answer in answers[: len(needed)] if isinstance(answer, CloudgpuError)]
    if len(errors) == len(needed):
        raise errors[0]
    answered = [answer for answer in answers if not isinstance(answer, CloudgpuError)]
    unanswered = [Unanswered(region or gcp.account, error.message) for error in errors]
    unanswered += [gap for _, gaps in answered for gap in relevant_gaps(gcp, gaps, region)]
    items = tuple(resource for listed, _ in answered for resource in listed if region in (None, resource.region))
    return ResourceListing(items, tuple(unanswered), None if region is None else frozenset((region,)))


def missing_parts(scope: str, answer: Raw) -> dict[str, str]:
    """Return the scope and the warning's message where a warning says that the answer lacks something; else nothing."""
    warning = answer.get("warning", {})
    return {scope: warning.get("message") or NOT_REACHED} if warning.get("code") in INCOMPLETE_WARNINGS else {}


def relevant_gaps(gcp: Gcp, unanswered: Iterable[Unanswered], region: str | None = None) -> tuple[Unanswered, ...]:
    """Return the unanswered scopes in this region (None: any) that the settings do not leave out."""
    return tuple(gap for gap in unanswered if _is_relevant(gcp, gap.scope, region))


def _is_relevant(gcp: Gcp, scope: str, region: str | None) -> bool:
    region_name = ids.region_of(scope) or scope
    if scope == gcp.account or not ids.REGION.fullmatch(region_name):  # an account may have a name like a region's
        return True  # a list as a whole
    is_used = gcp.options.uses_zone(scope) if region_name != scope else gcp.options.uses(scope)
    return is_used and region in (None, region_name)


def change_and_wait(gcp: Gcp, action: str, where: str, *, value: str | None = None, **parameters: Any) -> Raw:
    """Make a change and return its operation once that is done. Raises the error that it ended with."""
    operation = gcp.call(action, where, value=value, **parameters)
    return wait_for(gcp, operation, action=action, value=value, project=parameters.get("project"))


def change_machine(gcp: Gcp, id: str, verb: str, **parameters: Any) -> None:  # noqa: A002
    """Make a change of a machine, and wait until it is done."""
    zone, name = ids.zone_and_name(id)
    change_and_wait(gcp, f"compute.instances.{verb}", zone, value=id, zone=zone, instance=name, **parameters)


def if_found(call: Callable[[], Answer]) -> Answer | None:
    """Return what a call returns; None where Google answers that what it is about does not exist."""
    try:
        return call()
    except CloudgpuError as error:
        if is_gone(error):
            return None
        raise
