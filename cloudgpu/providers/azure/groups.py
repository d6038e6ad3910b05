"""Manages resource groups, and the registration of Azure's resource providers, which they need before they answer.

Each launch has a group with all that it has made; volumes and images share one group. A resource provider is a service
of Azure, such as Microsoft.Compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.calls import call_or_none, invoke, provisioning_state, read_list
from cloudgpu.providers.azure.client import Azure, Raw

READ, WRITE, DELETE = (f"Microsoft.Resources/subscriptions/resourceGroups/{one}" for one in ("read", "write", "delete"))
LIST = "Microsoft.Resources/subscriptions/resourceGroups/resources/read"
TAG_DISK_RETAINED = "cloudgpu-kept"  # on a launch's group: its machine was ended, and its disk is retained
_DISK = "microsoft.compute/disks"
# Types of resources of a launch that cost nothing, and hold no data.
_FREE_TYPES = frozenset(
    "microsoft.network/networksecuritygroups microsoft.network/virtualnetworks "
    "microsoft.network/networkinterfaces".split()
)


def launch_groups(raws: Sequence[Raw]) -> list[Raw]:
    """Return those of these groups that are a launch's, of any ledger, without those that are being deleted."""
    return [one for one in raws if ids.GROUP.fullmatch(str(one["name"]).lower()) and not is_being_deleted(one)]


def cluster_groups(azure: Azure) -> list[Raw]:
    """Return the groups with the network of a cluster, of any ledger, also while they are deleted. A call per page."""
    return [one for one in listed(azure) if ids.CLUSTER_GROUP.fullmatch(str(one["name"]).lower())]


def listed(azure: Azure) -> list[Raw]:
    """Return all groups of the subscription, whoever made them. A call per page."""
    return read_list(azure, READ, azure.resources.resource_groups.list)


def is_being_deleted(raw: Raw) -> bool:
    """Say whether Azure is deleting a group."""
    return provisioning_state(raw) == "deleting"


def tags_by_group(azure: Azure) -> dict[str, Mapping[str, str]]:
    """Return the tags of each launch's group, and of that of volumes and images, by name. A call per page."""
    ours = [one for one in listed(azure) if _is_ours(str(one["name"]).lower()) and not is_being_deleted(one)]
    return {str(one["name"]).lower(): one.get("tags") or {} for one in ours}


def tags_of(azure: Azure, group: str) -> Mapping[str, str]:
    """Return the tags of a group; none where it does not exist. One call."""
    found = call_or_none(azure, READ, lambda: azure.resources.resource_groups.get(group).as_dict(), value=group)
    return (found or {}).get("tags") or {}


def tag(azure: Azure, group: str, tags: Mapping[str, str]) -> None:
    """Set tags of a group and leave its others alone. One call."""
    merge_tags(azure, ids.group_id(azure.subscription, group), tags, value=group)


def merge_tags(azure: Azure, scope: str, tags: Mapping[str, str], *, region: str = "", value: str) -> None:
    """Set tags of the resource with this Azure id, and leave its others alone, by the Tags API's Merge. One call."""
    body, api = {"operation": "Merge", "properties": {"tags": dict(tags)}}, azure.resources.tags
    action = "Microsoft.Resources/tags/write"
    invoke(azure, action, lambda: api.begin_update_at_scope(scope, body, polling=False), region=region, value=value)


def ensure_shared_group(azure: Azure, region: str) -> None:
    """Create the group of volumes and images, where it is missing. One call, two the first time.

    It is in the region of its first resource; the others may be in any region.
    """
    groups = azure.resources.resource_groups
    if call_or_none(azure, READ, lambda: groups.get(ids.SHARED_GROUP)) is None:
        body = {"location": region, "tags": {"cloudgpu-shared": "volumes-and-images"}}
        invoke(azure, WRITE, lambda: groups.create_or_update(ids.SHARED_GROUP, body), region=region)


def delete_if_empty(azure: Azure, region: str, group: str, *, deleted_disk: str) -> None:
    """Delete a launch's group that has only free resources of the launch left: a network and its rules.

    `deleted_disk` is the name of a disk that is being deleted. Two calls, one where the group is not deleted.
    """
    found, disk = resources_in(azure, region, group), (_DISK, deleted_disk.lower())
    if found is not None and all(_is_free(one, group) or one == disk for one in map(_type_and_name, found)):
        delete(azure, region, group)


def resources_in(azure: Azure, region: str, group: str, *, value: str | None = None) -> list[Raw] | None:
    """Return the resources in a group, as Resource Manager lists them; None for no group. One call."""
    listed = azure.resources.resources.list_by_resource_group
    return call_or_none(
        azure, LIST, lambda: [one.as_dict() for one in listed(group)], region=region, value=value or group
    )


def _is_free(type_and_name: tuple[str, str], group: str) -> bool:
    """Say whether a resource of this type and name is a free one of the launch."""
    resource_type, name = type_and_name
    return resource_type in _FREE_TYPES and name.startswith(group)


def _type_and_name(raw: Raw) -> tuple[str, str]:
    return str(raw.get("type") or "").lower(), str(raw.get("name") or "").lower()


def delete(azure: Azure, region: str, group: str) -> None:
    """Ask to delete a group with all that is in it; one that is gone is no error. One call, not waited for."""
    groups = azure.resources.resource_groups
    call_or_none(azure, DELETE, lambda: groups.begin_delete(group, polling=False), region=region, value=group)


def _is_ours(name: str) -> bool:
    return name == ids.SHARED_GROUP or ids.GROUP.fullmatch(name) is not None


COMPUTE, NETWORK, TIMERS, QUOTA = (
    "Microsoft.Compute",
    "Microsoft.Network",
    "Microsoft.ComputeSchedule",
    "Microsoft.Quota",
)
REGISTERED_STATES = ("registered", "registering")


def registration_state(azure: Azure, namespace: str) -> str:
    """Return the registration state of a resource provider: `Registered`, `NotRegistered`, ... One call."""
    action, providers = "Microsoft.Resources/subscriptions/providers/read", azure.resources.providers
    return str(invoke(azure, action, lambda: providers.get(namespace), value=namespace).registration_state or "")


def is_registered(azure: Azure, namespace: str) -> bool:
    """Say whether a resource provider is registered, or is just being registered. One call."""
    return registration_state(azure, namespace).lower() in REGISTERED_STATES


def register(azure: Azure, namespace: str) -> None:
    """Register a resource provider for the subscription, where it is not. It is free, and takes Azure a minute."""
    if not is_registered(azure, namespace):
        invoke(azure, f"{namespace}/register/action", lambda: azure.resources.providers.register(namespace))


def register_command(namespace: str) -> str:
    """Return the command that registers a resource provider."""
    return f"az provider register --namespace {namespace}"
