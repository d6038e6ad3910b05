"""Ids of ours for disks, images and what else a launch leaves on Azure: `eastus/cloudgpu-3f9a.../disks/NAME`.

Region and group come first, as in a machine's id; the rest is Azure's own type and name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from cloudgpu.core.model.resources import Kind
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.calls import call_or_none
from cloudgpu.providers.azure.client import Azure
from cloudgpu.providers.shared.errors import invalid_id_error

NAMESPACES = {  # Azure's namespace of each type of resource
    "disks": "Microsoft.Compute",
    "snapshots": "Microsoft.Compute",
    "images": "Microsoft.Compute",
    "galleryImages": "Microsoft.Compute",
    "networkInterfaces": "Microsoft.Network",
    "publicIPAddresses": "Microsoft.Network",
    "resourceGroups": "Microsoft.Resources",
    "roleAssignments": "Microsoft.Authorization",
}
AZURE_TYPE_BY_KIND = {
    Kind.DISK: "disks",
    Kind.VOLUME: "disks",
    Kind.SNAPSHOT: "snapshots",
    Kind.IMAGE: "images",
    Kind.INTERFACE: "networkInterfaces",
    Kind.ADDRESS: "publicIPAddresses",
    Kind.GROUP: "resourceGroups",
    Kind.ROLE: "roleAssignments",
}
GLOBAL_REGION = "global"  # the region in our id of a resource without one
_OUR_ID = re.compile(rf"({ids.LOCATION.pattern})/([A-Za-z0-9_.()-]{{1,90}})/([a-zA-Z]+)/([A-Za-z0-9_.-]{{1,127}})")


@dataclass(frozen=True, slots=True)
class ResourceRef:
    """The parts of one of our ids: region, resource group, type as in NAMESPACES (`disks`), and name."""

    region: str
    group: str
    azure_type: str
    name: str

    @property
    def id(self) -> str:
        """Our id of it."""
        return f"{self.region}/{self.group}/{self.azure_type}/{self.name}"


def from_azure_id(region: str, azure_id: str) -> ResourceRef | None:
    """Return the resource of Azure's own id in this region; None for one of another type than in NAMESPACES."""
    found = ids.resource(azure_id)
    if found is None or found.rest:
        return None
    azure_type = next((one for one in NAMESPACES if f"{NAMESPACES[one]}/{one}".lower() == found.kind), None)
    return None if azure_type is None else ResourceRef(region, found.group, azure_type, found.name)


def parse(id: str, azure_type: str = "") -> ResourceRef | None:  # noqa: A002
    """Return the resource of one of our ids, of this type of Azure's where one is given; None for any other id."""
    found = _OUR_ID.fullmatch(id)
    if found is None or found[3] not in NAMESPACES or azure_type not in ("", found[3]):
        return None
    return ResourceRef(found[1], found[2], found[3], found[4])


def parse_or_raise(id: str, kind: Kind) -> ResourceRef:  # noqa: A002
    """Return the resource of one of our ids; raise InvalidRequest for one that is not of this kind."""
    found = parse(id, AZURE_TYPE_BY_KIND.get(kind, "-")) or (parse(id, "galleryImages") if kind is Kind.IMAGE else None)
    if found is None:
        raise invalid_id_error(id, f"a {kind} on Azure", "Run: cloudgpu ls --refresh")
    return found


def azure_id(subscription: str, ref: ResourceRef) -> str:
    """Return Azure's own id."""
    return ids.resource_id(subscription, ref.group, f"{NAMESPACES[ref.azure_type]}/{ref.azure_type}", ref.name)


def read(azure: Azure, operations: Any, ref: ResourceRef) -> Mapping[str, Any] | None:
    """Return a resource as Azure describes it; None for none. `operations` are the SDK's of its type. One call."""
    action, get = f"{NAMESPACES[ref.azure_type]}/{ref.azure_type}/read", partial(operations.get, ref.group, ref.name)
    return call_or_none(azure, action, lambda: get().as_dict(), region=ref.region, value=ref.id)


def delete(azure: Azure, operations: Any, ref: ResourceRef) -> None:
    """Ask to delete it; what is gone is no error. One call, not waited for."""
    action = f"{NAMESPACES[ref.azure_type]}/{ref.azure_type}/delete"
    send = partial(operations.begin_delete, ref.group, ref.name, polling=False)
    call_or_none(azure, action, send, region=ref.region, value=ref.id)
