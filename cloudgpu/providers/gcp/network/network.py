"""The network of a launch, looked up: which one, which subnet of the region, and who may open SSH. Reads only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.model.launch import Network
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.gcp.errors import is_gone
from cloudgpu.providers.shared.rules import ssh_sources as sources_by_label

_SUBNET = re.compile(
    r"(?:(?:projects/(?P<project>[a-z0-9.:-]+)/)?regions/(?P<region>[a-z]+-[a-z]+\d+)/subnetworks/)?"
    r"(?P<name>[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)"
)


@dataclass(frozen=True, slots=True)
class NetworkPlacement:
    """A network by its full name (`projects/P/global/networks/N`), and the subnet's; empty where Google chooses it."""

    network: str
    subnet: str = ""


def placement(gcp: Gcp, region: str, network: Network) -> NetworkPlacement:
    """Return the network and subnet of a machine in a region: by `--subnet`, else the account's network. One call.

    Raises InvalidRequest for a network or a subnet that does not exist, and where several subnets are possible.
    """
    if network.security_group is not None and not ids.NAME.fullmatch(network.security_group):
        message = f"{network.security_group!r} is not a network tag of Google Cloud's."
        remedy = "Name the tag by which your firewall rules know the machine."
        raise InvalidRequest(message, field="--security-group", value=network.security_group, next=remedy)
    return _named_placement(gcp, region, network.subnet) if network.subnet else _default_placement(gcp, region)


def ssh_sources(gcp: Gcp, region: str, network_placement: NetworkPlacement, network: Network) -> Mapping[str, str]:
    """Return the CIDRs that may open SSH, by label; without `--ssh-from` the subnet's own range, which is looked up."""
    if network.security_group is not None:
        return {}
    if network.ssh_from:
        return sources_by_label(network, "")
    if not network_placement.subnet:
        message = (
            f"{ids.last_part(network_placement.network)} has no subnet in {region} whose machines could reach this one."
        )
        raise InvalidRequest(message, field="--subnet", value=None, next="Name a subnet: --subnet NAME")
    return sources_by_label(network, _subnet(gcp, region, network_placement.subnet)["ipCidrRange"])


def _named_placement(gcp: Gcp, region: str, subnet: str) -> NetworkPlacement:
    match = _SUBNET.fullmatch(subnet)
    if match is None:
        message = f"{subnet!r} is not a subnet of Google Cloud's."
        remedy = "Write its name, or projects/HOST/regions/REGION/subnetworks/NAME for a shared network."
        raise InvalidRequest(message, field="--subnet", value=subnet, next=remedy)
    if match["region"] not in (None, region):
        message = f"The subnet {subnet} is in {match['region']}, not in {region}."
        remedy = f"Launch there (--region {match['region']}), or name a subnet of {region}."
        raise InvalidRequest(message, field="--subnet", value=subnet, next=remedy)
    full_name = f"projects/{match['project'] or gcp.project}/regions/{region}/subnetworks/{match['name']}"
    return NetworkPlacement(relative_name(_subnet(gcp, region, full_name)["network"]), full_name)


def _subnet(gcp: Gcp, region: str, full_name: str) -> dict[str, Any]:
    name, project = ids.last_part(full_name), full_name.split("/")[1]
    try:
        return gcp.call("compute.subnetworks.get", region, value=name, project=project, region=region, subnetwork=name)
    except InvalidRequest as error:
        if not is_gone(error):
            raise
        message = f"There is no subnet {name!r} in {region} (project {project})."
        remedy = f"See them: gcloud compute networks subnets list --regions {region}"
        raise InvalidRequest(message, field="--subnet", value=name, next=remedy) from error


def _default_placement(gcp: Gcp, region: str) -> NetworkPlacement:
    """Return the placement in the account's network: its only subnet in the region, or the one that Google chooses."""
    name = gcp.options.network
    network = _network(gcp, name)
    network_name = relative_name(network.get("selfLink") or f"projects/{gcp.project}/global/networks/{name}")
    subnets = [
        relative_name(subnetwork)
        for subnetwork in network.get("subnetworks", ())
        if f"/regions/{region}/" in subnetwork
    ]
    if len(subnets) == 1:
        return NetworkPlacement(network_name, subnets[0])
    if not subnets and (
        network.get("autoCreateSubnetworks") or "IPv4Range" in network or not network.get("subnetworks")
    ):
        return NetworkPlacement(network_name)
    names = ", ".join(sorted(map(ids.last_part, subnets)))
    problem = f"has several subnets in {region} ({names})" if subnets else f"has no subnet in {region}"
    remedy = "Name one: --subnet NAME" if subnets else "Name another network's: --subnet NAME, or another --region."
    raise InvalidRequest(f"The network {name} {problem}.", field="--subnet", value=None, next=remedy)


def _network(gcp: Gcp, name: str) -> dict[str, Any]:
    try:
        return gcp.call("compute.networks.get", value=name, network=name)
    except InvalidRequest as error:
        if not is_gone(error):
            raise
        message = f"The project {gcp.project} has no network {name!r}."
        raise InvalidRequest(
            message,
            field=f"accounts.{gcp.account}.network",
            value=name,
            next=f"Name another there, or a --subnet; or make it: gcloud compute networks create {name}",
        ) from error


def relative_name(url: str) -> str:
    """Return a resource's URL from `projects/` on (`projects/P/...`), which calls accept, too."""
    return url[url.index("projects/") :] if "projects/" in url else url
