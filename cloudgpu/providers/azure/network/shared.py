"""What the machines of one cluster share on Azure: a virtual network, in a resource group of its own.

A launch's own group is deleted with its machine, and Azure refuses to delete a network that another machine uses: so
the shared network is in none of these. A security group's default rules let a network's machines reach each other
("Network security groups", AllowVnetInBound), and our rules only deny the Internet. A network costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from cloudgpu.core.model.cluster import node_name, node_of_tags
from cloudgpu.core.model.instances import TAG_CLUSTER, TAG_ID, TAG_LEDGER, TAG_OWNER
from cloudgpu.core.model.launch import Attempt
from cloudgpu.providers.azure import groups, ids
from cloudgpu.providers.azure.calls import call_or_none, complete, invoke, properties_of, read_list
from cloudgpu.providers.azure.client import Azure, Raw
from cloudgpu.providers.azure.compute import power
from cloudgpu.providers.azure.compute.request import Body, Call, network, network_group

_NETWORKS, _INTERFACES = "Microsoft.Network/virtualNetworks", "Microsoft.Network/networkInterfaces"


def make_shared(azure: Azure, attempt: Attempt, call: Call, *, deadline: datetime) -> None:
    """Create the network of this attempt's cluster, where it is missing. One call where it exists.

    The network's name is its group's. Raises Azure's error where it cannot be created.
    """
    name = network_group(attempt, call)
    networks, resources = azure.network.virtual_networks, azure.resources.resource_groups
    cluster_groups = call_or_none(
        azure, f"{_NETWORKS}/read", lambda: networks.get(name, name).as_dict(), region=call.region, value=name
    )
    if cluster_groups is not None and properties_of(cluster_groups).get("provisioningState") == "Succeeded":
        return
    tags = _tags(attempt)
    body = {"location": call.region, "tags": tags}
    invoke(azure, groups.WRITE, lambda: resources.create_or_update(name, body), region=call.region, value=name)
    network_body: Body = {**network(attempt, call, name), "tags": tags}
    complete(
        azure,
        f"{_NETWORKS}/write",
        lambda polling: networks.begin_create_or_update(name, name, network_body, polling=polling),
        deadline=deadline,
        region=call.region,
    )


def _tags(attempt: Attempt) -> dict[str, str]:
    """Return the tags of what all nodes share: the id of node 0, its ledger, owner and cluster."""
    node = node_of_tags(attempt.tags)
    first_node_id = node_name(node.id, 0) if node else attempt.machine
    return {TAG_ID: first_node_id} | {key: attempt.tags[key] for key in (TAG_LEDGER, TAG_OWNER, TAG_CLUSTER)}


def read_users_by_network(azure: Azure) -> Mapping[str, str]:
    """Return what uses each cluster network, by its group: Azure's id of one machine, or else of one interface."""
    return users_by_network(read_list(azure, f"{_INTERFACES}/read", azure.network.network_interfaces.list_all))


def users_by_network(interfaces: Sequence[Raw]) -> Mapping[str, str]:
    """Return what `read_users_by_network` does, from interfaces that were read already. Pure."""
    cluster_groups: dict[str, str] = {}
    for one in interfaces:
        properties = properties_of(one)
        for ip_configuration in properties.get("ipConfigurations") or ():
            subnet = ids.resource(str((properties_of(ip_configuration).get("subnet") or {}).get("id") or ""))
            if subnet is not None and ids.CLUSTER_GROUP.fullmatch(subnet.group):
                cluster_groups[subnet.group] = str((properties.get("virtualMachine") or {}).get("id") or one.get("id"))
    return cluster_groups


def clear_shared(azure: Azure, cluster: str, region: str) -> bool:
    """Ask to delete a cluster's networks with their groups; return whether none was found.

    A network that a machine uses stays, and so does a group into which somebody has put a resource of their own;
    neither is an error. One call; where there are some, one more, and two for each.
    """
    cluster_groups = [
        one
        for one in groups.cluster_groups(azure)
        if (one.get("tags") or {}).get(TAG_ID) == node_name(cluster, 0) and str(one["location"]).lower() == region
    ]
    group_names = [str(one["name"]).lower() for one in cluster_groups if not groups.is_being_deleted(one)]
    users = read_users_by_network(azure) if group_names else {}
    for name in group_names:
        contents = [] if name in users else groups.resources_in(azure, region, name) or []
        if name not in users and all(power.is_ours(one, name) for one in contents):
            groups.delete(azure, region, name)
    return not cluster_groups
