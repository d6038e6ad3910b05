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
from cloudgpu.providers.shared.rules import ssh_sources as callers_of

_SUBNET = re.compile(
    r"(?:(?:projects/(?P<project>[a-z0-9.:-]+)/)?regions/(?P<region>[a-z]+-[a-z]+\d+)/subnetworks/)?"
    r"(?P<name>[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)"
)
TAG = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class NetworkPlacement:
    """A network by its whole name (`projects/P/global/networks/N`), and the subnet; empty where Google chooses it."""

    network: str
    subnet: str = ""


def placement(gcp: Gcp, region: str, network: Network) -> NetworkPlacement:
    """Return where in the network a machine of a region is put: `--subnet`, else the account's network. One call.

    Raises InvalidRequest for a network or a subnet that is not there, and where it is not clear which subnet is meant.
    """
    if network.security_group is not None and not TAG.fullmatch(network.security_group):
        message = f"{network.security_group!r} is not a network tag of Google Cloud's."
        remedy = "Name the tag by which your firewall rules know the machine."
        raise InvalidRequest(message, field="--security-group", value=network.security_group, next=remedy)
    return _named_placement(gcp, region, network.subnet) if network.subnet else _default_placement(gcp, region)


def ssh_sources(gcp: Gcp, region: str, placed: NetworkPlacement, network: Network) -> Mapping[str, str]:
    """Return who may open SSH, by label; where nobody is named it is the subnet itself, whose range is looked up."""
    if network.security_group is not None:
        return {}
    if network.ssh_from:
        return callers_of(network, "")
    if not placed.subnet:
        message = f"{ids.last(placed.network)} has no subnet in {region} whose machines could reach this one."
        raise InvalidRequest(message, field="--subnet", value=None, next="Name a subnet: --subnet NAME")
    return callers_of(network, _subnet(gcp, region, placed.subnet)["ipCidrRange"])


def _named_placement(gcp: Gcp, region: str, typed: str) -> NetworkPlacement:
    found = _SUBNET.fullmatch(typed)
    if found is None:
        message = f"{typed!r} is not a subnet of Google Cloud's."
        remedy = "Write its name, or projects/HOST/regions/REGION/subnetworks/NAME for a shared network."
        raise InvalidRequest(message, field="--subnet", value=typed, next=remedy)
    if found["region"] not in (None, region):
        message = f"The subnet {typed} is in {found['region']}, not in {region}."
        remedy = f"Launch there (--region {found['region']}), or name a subnet of {region}."
        raise InvalidRequest(message, field="--subnet", value=typed, next=remedy)
    whole = f"projects/{found['project'] or gcp.project}/regions/{region}/subnetworks/{found['name']}"
    return NetworkPlacement(relative_name(_subnet(gcp, region, whole)["network"]), whole)


def _subnet(gcp: Gcp, region: str, whole: str) -> dict[str, Any]:
    name, project = ids.last(whole), whole.split("/")[1]
    try:
        return gcp.call("compute.subnetworks.get", region, value=name, project=project, region=region, subnetwork=name)
    except InvalidRequest as error:
        if not is_gone(error):
            raise
        message = f"There is no subnet {name!r} in {region} (project {project})."
        remedy = f"See them: gcloud compute networks subnets list --regions {region}"
        raise InvalidRequest(message, field="--subnet", value=name, next=remedy) from error


def _default_placement(gcp: Gcp, region: str) -> NetworkPlacement:
    """Return the place in the account's network: its only subnet in the region, or that which Google chooses."""
    name = gcp.options.network
    found = _network(gcp, name)
    whole = relative_name(found.get("selfLink") or f"projects/{gcp.project}/global/networks/{name}")
    here = [relative_name(one) for one in found.get("subnetworks", ()) if f"/regions/{region}/" in one]
    if len(here) == 1:
        return NetworkPlacement(whole, here[0])
    if not here and (found.get("autoCreateSubnetworks") or "IPv4Range" in found or not found.get("subnetworks")):
        return NetworkPlacement(whole)
    names = ", ".join(sorted(map(ids.last, here)))
    says = f"has several subnets in {region} ({names})" if here else f"has no subnet in {region}"
    remedy = "Name one: --subnet NAME" if here else "Name another network's: --subnet NAME, or another --region."
    raise InvalidRequest(f"The network {name} {says}.", field="--subnet", value=None, next=remedy)


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
    """Return an address of Google's from its project on (`projects/P/...`), as calls take it too."""
    return url[url.index("projects/") :] if "projects/" in url else url
