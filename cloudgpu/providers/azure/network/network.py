"""The network of a launch: one of its own, or a subnet and a security group that the user named. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cloudgpu.core.model.launch import Network
from cloudgpu.errors import InvalidRequest
from cloudgpu.parallel import Pool
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.calls import call_or_none, properties_of
from cloudgpu.providers.azure.client import Azure, Raw
from cloudgpu.providers.azure.compute.request import NETWORK_CIDR
from cloudgpu.providers.shared.rules import ssh_sources

_NETWORKS, _SECURITY_GROUPS = "microsoft.network/virtualnetworks", "microsoft.network/networksecuritygroups"


@dataclass(frozen=True, slots=True)
class NetworkPlacement:
    """A machine's network: Azure's ids of the subnet and security group that the user named; None: the launch's own.

    `callers` are the CIDRs that may reach SSH, by label; none where the user's security group decides.
    """

    subnet: str | None
    security_group: str | None
    callers: Mapping[str, str]
    remarks: tuple[str, ...] = ()


def placement(azure: Azure, region: str, network_setup: Network) -> NetworkPlacement:
    """Return the network of a launch: no call for one of its own, one for each named subnet or security group.

    Raises InvalidRequest for a subnet or a security group that does not exist, or is in another region.
    """
    with Pool(2) as pool:
        pending_network = pool.submit(_network, azure, region, network_setup.subnet)
        pool.submit(_check_security_group, azure, region, network_setup.security_group).result()
    named_network = pending_network.result()
    own_cidrs = _ipv4_cidrs(named_network) if named_network else [NETWORK_CIDR]
    return NetworkPlacement(
        network_setup.subnet,
        network_setup.security_group,
        {} if network_setup.security_group is not None else ssh_sources(network_setup, *own_cidrs),
        _subnet_remarks(named_network, network_setup.subnet),
    )


def _network(azure: Azure, region: str, subnet: str | None) -> Raw | None:
    if subnet is None:
        return None
    ref, networks = network_of_subnet(subnet), azure.network.virtual_networks
    action = "Microsoft.Network/virtualNetworks/read"
    network: Raw | None = call_or_none(
        azure, action, lambda: networks.get(ref.group, ref.name).as_dict(), region=region, value=subnet
    )
    if network is None or _subnet(network, subnet) is None:
        remedy = "See what there is: az network vnet list"
        raise InvalidRequest(f"There is no subnet {subnet}.", field="--subnet", value=subnet, next=remedy)
    _check_region(network, region, "--subnet", subnet)
    return network


def network_of_subnet(subnet: str) -> ids.Resource:
    """Return the network of a subnet, by Azure's id of that; raise InvalidRequest for any other text."""
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


def _ipv4_cidrs(network: Raw) -> list[str]:
    spaces = (properties_of(network).get("addressSpace") or {}).get("addressPrefixes") or ()
    return [str(one) for one in spaces if ":" not in str(one)] or [NETWORK_CIDR]


def _subnet_remarks(network: Raw | None, subnet: str | None) -> tuple[str, ...]:
    """Return a remark on a subnet with a security group of its own: both groups have to let a caller in."""
    found = _subnet(network, subnet) if network and subnet else None
    if not properties_of(found or {}).get("networkSecurityGroup"):
        return ()
    return (
        "the subnet has a security group of its own, which has to let the caller in, too: cloudgpu leaves it alone",
    )


def _check_security_group(azure: Azure, region: str, id_: str | None) -> None:
    """Raise InvalidRequest for a security group of the user's that is not there, or lies in another region."""
    if id_ is None:
        return
    ref = ids.resource(id_)
    if ref is None or ref.kind != _SECURITY_GROUPS or ref.rest:
        message = f"{id_!r} is not an id of a network security group on Azure."
        remedy = "See yours: az network nsg list --query [].id"
        raise InvalidRequest(message, field="--security-group", value=id_, next=remedy)
    security_groups = azure.network.network_security_groups
    action = "Microsoft.Network/networkSecurityGroups/read"
    raw_group = call_or_none(
        azure, action, lambda: security_groups.get(ref.group, ref.name).as_dict(), region=region, value=id_
    )
    if raw_group is None:
        message = f"There is no network security group {ref.name} in the resource group {ref.group}."
        raise InvalidRequest(
            message, field="--security-group", value=id_, next="See what there is: az network nsg list"
        )
    _check_region(raw_group, region, "--security-group", id_)


def _check_region(raw: Raw, region: str, option: str, value: str) -> None:
    location = str(raw.get("location") or region).lower()
    if location != region:
        message = f"{value.rpartition('/')[2]} is in {location}, not in {region}."
        raise InvalidRequest(message, field=option, value=value, next=f"Launch there: --region {location}")
