"""Which calls our model of Azure Resource Manager knows, read from the text of the pinned SDKs' operations.

Per call: the method, the path, the query, the version, the models of its body and its answer, and the statuses that
the SDK takes for success. A call that `CALLS` lacks is answered 501. Five are in none of these SDKs: `BY_HAND`.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

AUTHORIZATION = "azure.mgmt.authorization.v2022_04_01"
CALLS = {
    "azure.mgmt.compute": {
        "VirtualMachines": """create_or_update get update delete list list_all list_by_location instance_view start
            deallocate power_off restart generalize simulate_eviction attach_detach_data_disks""",
        "VirtualMachineExtensions": "create_or_update get list delete",
        "VirtualMachineImages": "get list list_skus",
        "Disks": "create_or_update get update delete list list_by_resource_group",
        "Snapshots": "create_or_update get update delete list list_by_resource_group",
        "Images": "create_or_update get update delete list list_by_resource_group",
        "Galleries": "create_or_update get delete list list_by_resource_group",
        "GalleryImages": "create_or_update get delete list_by_gallery",
        "GalleryImageVersions": "create_or_update get update delete list_by_gallery_image",
        "ResourceSkus": "list",
        "Usage": "list",
    },
    "azure.mgmt.network": {
        "NetworkSecurityGroups": "create_or_update get update_tags delete list list_all",
        "SecurityRules": "create_or_update get delete list",
        "VirtualNetworks": "create_or_update get update_tags delete list list_all",
        "Subnets": "create_or_update get delete list",
        "PublicIPAddresses": "create_or_update get update_tags delete list list_all",
        "NetworkInterfaces": "create_or_update get update_tags delete list list_all",
    },
    "azure.mgmt.resource.resources": {
        "ResourceGroups": "create_or_update get update delete list check_existence",
        "Resources": "list list_by_resource_group",
        "Tags": "get_at_scope update_at_scope create_or_update_at_scope delete_at_scope",
        "Providers": "get list register",
    },
    AUTHORIZATION: {
        "RoleDefinitions": "create_or_update get delete list get_by_id",
        "RoleAssignments": """create get delete list_for_scope list_for_subscription list_for_resource_group
            list_for_resource create_by_id get_by_id delete_by_id""",
        "Permissions": "list_for_resource_group list_for_resource",
    },
    "azure.mgmt.computeschedule": {
        "ScheduledActions": """virtual_machines_submit_deallocate virtual_machines_cancel_operations
            virtual_machines_get_operation_status virtual_machines_get_operation_errors""",
    },
    "azure.mgmt.quota": {
        "Quota": "create_or_update update get list",
        "Usages": "get list",
        "QuotaRequestStatus": "get list",
    },
    "azure.mgmt.consumption": {"Budgets": "create_or_update get delete list"},
}
_FILES = {"Permissions": "_permissions", "RoleDefinitions": "_role_definitions", "RoleAssignments": "_role_assignments"}
_BODY = re.compile(r"Union\[\s*_models\.(\w+)")
_BY_ID = {"roleId": "roleDefinitions", "roleAssignmentId": "roleAssignments"}
_ANSWER = re.compile(r"\) -> ([^\n]+):\n")
_PAGED, _LISTED = ("ItemPaged", "Iterable["), ("List[", "list[")


class Shape(NamedTuple):
    """The model of a body or of an answer, and the SDK that has it: one, a `list`, or `pages` of them in `value`."""

    package: str
    model: str
    kind: str = "one"


@dataclass(frozen=True)
class Route:
    """One call: `action` is its name here (`VirtualMachines.CreateOrUpdate`)."""

    action: str
    method: str
    path: str
    version: str
    query: frozenset[str] = frozenset()
    body: Shape | None = None
    answer: Shape | None = None
    statuses: frozenset[int] = frozenset({200})

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """Return what the path of a request matches. Azure's paths know no capitals."""
        found = re.sub(r"\\{scope\\}", "(?P<scope>.+?)", re.escape(self.path))
        for name, kind in _BY_ID.items():
            found = found.replace(rf"\{{{name}\}}", rf"(?P<{name}>.+/Microsoft\.Authorization/{kind}/[^/]+)")
        return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", found), re.IGNORECASE)

    @property
    def weight(self) -> tuple[int, int]:
        """Return how exact the path is: routes are tried from the most exact."""
        free = len(re.findall(r"\{(?:scope|roleId|roleAssignmentId)\}", self.path))
        return -free, len(re.sub(r"\{\w+\}", "", self.path))


BY_HAND = (
    Route(
        "Permissions.ListForSubscription",
        "GET",
        "/subscriptions/{subscriptionId}/providers/Microsoft.Authorization/permissions",
        "2022-04-01",
        answer=Shape(AUTHORIZATION, "Permission", kind="pages"),
    ),
    Route(
        "ActivityLogs.List",
        "GET",
        "/subscriptions/{subscriptionId}/providers/Microsoft.Insights/eventtypes/management/values",
        "2015-04-01",
        frozenset({"$filter", "$select"}),
    ),
    Route(
        "ManagementLocks.ListByScope",
        "GET",
        "/{scope}/providers/Microsoft.Authorization/locks",
        "2016-09-01",
        frozenset({"$filter"}),
    ),
    Route("Subscriptions.Get", "GET", "/subscriptions/{subscriptionId}", "2022-12-01"),
    Route("Subscriptions.ListLocations", "GET", "/subscriptions/{subscriptionId}/locations", "2022-12-01"),
)


@functools.cache
def routes() -> tuple[Route, ...]:
    """Return all of them, the most exact first. Reads 10 MB of text: 0.1 s, once per process."""
    found = [route for package, groups in CALLS.items() for route in _of_package(package, groups)]
    return tuple(sorted((*found, *BY_HAND), key=lambda one: one.weight, reverse=True))


def routed(method: str, path: str) -> tuple[Route, dict[str, str]] | None:
    """Return the call that a request is, and what its path says; None for one that is not modelled."""
    for route in routes():
        if route.method == method and (found := route.pattern.fullmatch(path)):
            return route, found.groupdict()
    return None


def _of_package(package: str, groups: dict[str, str]) -> Iterator[Route]:
    spec = importlib.util.find_spec(package)
    folder = Path(spec.origin).parent / "operations"
    for group, methods in groups.items():
        text = (folder / f"{_FILES.get(group, '') if package == AUTHORIZATION else ''}_operations.py").read_text()
        kind = text[text.index(f"\nclass {group}Operations") + 1 :]
        kind = kind.partition("\nclass ")[0]
        for method in methods.split():
            yield _route(package, f"{group}.{_pascal(method)}", method, kind, text)


def _route(package: str, action: str, method: str, kind: str, text: str) -> Route:
    parts = re.split(r"\n    (?=def |@)", kind)
    named = [one for one in parts if re.match(rf"def (_{method}_initial|{method}|begin_{method})\(", one)]
    sends = next(one for one in named if "build_" in one)
    shows = next(one for one in reversed(named) if not one.startswith("def _"))
    builder = re.search(r"= (build_\w+)\(", sends)[1]
    request = text[text.index(f"def {builder}(") :].partition("\n\n\n")[0]
    body = _BODY.search(sends) if "_content = None" in sends else None
    return Route(
        action,
        re.search(r'method="(\w+)"', request)[1],
        re.search(r'"(/[^"]*)"', request)[1],
        re.search(r'"(\d{4}-\d\d-\d\d(?:-preview)?)"', request)[1],
        frozenset(re.findall(r'_params\["([^"]+)"\] =', request)),
        body and Shape(package, body[1]),
        _answered(package, shows),
        frozenset(map(int, re.search(r"status_code not in \[([\d, ]+)\]", sends)[1].split(","))),
    )


def _answered(package: str, text: str) -> Shape | None:
    said = _ANSWER.search(text)[1]
    found = re.search(r"_models\.(\w+)", said)
    kinds = {"pages": _PAGED, "list": _LISTED}
    kind = next((name for name, words in kinds.items() if any(one in said for one in words)), "one")
    return Shape(package, found[1], kind) if found else None


def _pascal(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
