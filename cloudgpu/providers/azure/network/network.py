"""The network of a launch: one of its own, or the subnet and the security group of somebody else's. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.model.launch import Network
from cloudgpu.errors import InvalidRequest
from cloudgpu.parallel import Pool
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.calls import find, properties_of
from cloudgpu.providers.azure.client import Azure
from cloudgpu.providers.azure.compute.request import NETWORK
from cloudgpu.providers.shared.rules import ssh_sources

Raw = Mapping[str, Any]
_NETWORKS, _GROUPS = "microsoft.network/virtualnetworks", "microsoft.network/networksecuritygroups"


@dataclass(frozen=True, slots=True)
class NetworkPlacement:
    """Where a machine hangs: Azure's ids of somebody else's subnet and group, None for those of its own launch.

    `callers` are the CIDRs that may open SSH, by label; none where somebody else's group decides.
    """

    subnet: str | None
    group: str | None
    callers: Mapping[str, str]
    remarks: tuple[str, ...] = ()


def placement(azure: Azure, region: str, wanted: Network) -> NetworkPlacement:
    """Return where a launch's machine hangs. No call for a network of its own, one for each thing that was named.

    Raises InvalidRequest for a subnet or a group that is not there, or lies in another region.
    """
    with Pool(2) as pool:
        network = pool.submit(_network, azure, region, wanted.subnet)
        pool.submit(_check_group, azure, region, wanted.security_group).result()
    found = network.result()
    if wanted.security_group is not None:
        return NetworkPlacement(wanted.subnet, wanted.security_group, {})
    cidr = _cidr(found) if found else NETWORK
    return NetworkPlacement(wanted.subnet, None, ssh_sources(wanted, cidr), _about_subnet(found, wanted.subnet))


def _network(azure: Azure, region: str, subnet: str | None) -> Raw | None:
    if subnet is None:
        return None
    of, networks = network_of_subnet(subnet), azure.network.virtual_networks
    action = "Microsoft.Network/virtualNetworks/read"
    found: Raw | None = find(
        azure, action, lambda: networks.get(of.group, of.name).as_dict(), region=region, value=subnet
    )
    if found is None or _subnet(found, subnet) is None:
        remedy = "See what there is: az network vnet list"
        raise InvalidRequest(f"There is no subnet {subnet}.", field="--subnet", value=subnet, next=remedy)
    _check_region(found, region, "--subnet", subnet)
    return found


def network_of_subnet(subnet: str) -> ids.Resource:
    """Return the network of a subnet, by Azure's id of that; raise InvalidRequest for what is no such id."""
    found = ids.resource(subnet)
    if found is None or found.kind != _NETWORKS or not found.rest.lower().startswith("/subnets/"):
        message = f"{subnet!r} is not an id of a subnet on Azure."
        remedy = "See yours: az network vnet subnet list --resource-group GROUP --vnet-name NETWORK --query [].id"
        raise InvalidRequest(message, field="--subnet", value=subnet, next=remedy)
    return found


def _subnet(network: Raw, id_: str) -> Raw | None:
    name = id_.rpartition("/")[2].lower()
    subnets = properties_of(network).get("subnets") or ()
    return next((one for one in subnets if str(one.get("name") or "").lower() == name), None)


def _cidr(network: Raw) -> str:
    spaces = (properties_of(network).get("addressSpace") or {}).get("addressPrefixes") or ()
    return next((str(one) for one in spaces if ":" not in str(one)), NETWORK)


def _about_subnet(network: Raw | None, subnet: str | None) -> tuple[str, ...]:
    """Return what has to be said of a subnet that has a security group itself: both have to let a caller in."""
    found = _subnet(network, subnet) if network and subnet else None
    if not properties_of(found or {}).get("networkSecurityGroup"):
        return ()
    return (
        "the subnet has a security group of its own, which has to let the caller in, too: cloudgpu leaves it alone",
    )


def _check_group(azure: Azure, region: str, id_: str | None) -> None:
    """Raise InvalidRequest for somebody else's group that is not there, or lies in another region."""
    if id_ is None:
        return
    of = ids.resource(id_)
    if of is None or of.kind != _GROUPS or of.rest:
        message = f"{id_!r} is not an id of a network security group on Azure."
        remedy = "See yours: az network nsg list --query [].id"
        raise InvalidRequest(message, field="--security-group", value=id_, next=remedy)
    groups = azure.network.network_security_groups
    action = "Microsoft.Network/networkSecurityGroups/read"
    found = find(azure, action, lambda: groups.get(of.group, of.name).as_dict(), region=region, value=id_)
    if found is None:
        message = f"There is no network security group {of.name} in the resource group {of.group}."
        raise InvalidRequest(
            message, field="--security-group", value=id_, next="See what there is: az network nsg list"
        )
    _check_region(found, region, "--security-group", id_)


def _check_region(raw: Raw, region: str, option: str, value: str) -> None:
    location = str(raw.get("location") or region).lower()
    if location != region:
        message = f"{value.rpartition('/')[2]} is in {location}, not in {region}."
        raise InvalidRequest(message, field=option, value=value, next=f"Launch there: --region {location}")
