"""Makes and reads our ids on Azure, and defines the options of an azure account in config.toml.

An id is the region and the resource group of a launch, `eastus/cloudgpu-3f9a...`. The machine has the name of its
group, so that no request has to search.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudgpu.core.values.naming import digest
from cloudgpu.providers.registry import read_table
from cloudgpu.providers.shared.errors import invalid_id_error
from cloudgpu.providers.shared.options import flag, matching, port, several, text

GUID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
SUBSCRIPTION = re.compile(GUID)
LOCATION = re.compile(r"[a-z][a-z0-9]{2,39}")
GROUP = re.compile(r"cloudgpu-[0-9a-f]{20}")
CLUSTER_GROUP = re.compile(r"cloudgpu-net-[0-9a-f]{20}")  # the network that the machines of a cluster share
SHARED_GROUP = "cloudgpu"  # volumes and images, which outlive machines
ZONE = re.compile(r"([a-z][a-z0-9]{2,39})-([1-9])")
_MACHINE = re.compile(rf"({LOCATION.pattern})/({GROUP.pattern})")
_COMPUTE, _NETWORK = "Microsoft.Compute", "Microsoft.Network"
_ARM = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourceGroups/(?P<group>[^/]+)"
    r"/providers/(?P<kind>[^/]+/[^/]+)/(?P<name>[^/]+)(?P<rest>(?:/[^/]+)*)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Sku:
    """A size in a region. `zones` are those that have it and that the subscription may use.

    `restriction` is Azure's reason why the subscription may not use it there (`NotAvailableForSubscription`), or empty.
    `generations` are those of images that it boots (`V1`, `V2`). A stop erases its temporary disk of `temp_disk_gb`.
    `premium`: it takes Premium SSDs; `trusted`: it can have Trusted Launch; `spot`: it is sold on spot.
    """

    name: str
    family: str
    vcpus: int | None
    memory_gib: float | None
    gpus: int
    zones: tuple[str, ...]
    restriction: str
    generations: frozenset[str]
    temp_disk_gb: float
    architecture: str = "x86_64"  # of its processor; or `arm64`
    premium: bool = False
    trusted: bool = True
    spot: bool = True
    encrypts_at_host: bool = False


def group_of(token: str) -> str:
    """Return the name of a launch's resource group, which its resources are named after.

    It is a hash of the idempotency token (`Attempt.token`): a group of that name proves that the launch was sent.
    """
    return f"cloudgpu-{digest('azure', token)[:20]}"


def cluster_group(cluster: str, number: int) -> str:
    """Return the name of the group with the network of a cluster (`ClusterNode.id`), one for each attempt to launch it.

    So a late deletion of an earlier attempt's network does not affect the next one.
    """
    return f"cloudgpu-net-{digest('azure', cluster, str(number))[:20]}"


def join_id(region: str, group: str) -> str:
    """Return our id of the machine of a group."""
    return f"{region}/{group}"


def split_machine_id(id: str) -> tuple[str, str]:  # noqa: A002
    """Return the region and the resource group of a machine, which has the machine's name.

    Raises InvalidRequest for any other text, not InstanceNotFound: Azure was not asked, so no machine is proved gone.
    """
    match = _MACHINE.fullmatch(id)
    if match is None:
        raise invalid_id_error(
            id, "a machine on Azure", "It looks like eastus/cloudgpu-0123456789abcdef0123.", field="instance"
        )
    return match[1], match[2]


def region_of(zone: str) -> str | None:
    """Return the region of `eastus` (anywhere in it) or `eastus-1` (its zone 1); None for any other text."""
    numbered = ZONE.fullmatch(zone)
    if numbered:
        return numbered[1]
    return zone if LOCATION.fullmatch(zone) else None


def zone_number(zone: str) -> str | None:
    """Return the number of a zone as Azure counts it within a region; None for a region as a whole."""
    numbered = ZONE.fullmatch(zone)
    return numbered[2] if numbered else None


# Azure's own ids


def group_id(subscription: str, group: str) -> str:
    """Return Azure's id of a resource group."""
    return f"/subscriptions/{subscription}/resourceGroups/{group}"


def machine_id(subscription: str, group: str) -> str:
    """Return Azure's id of the machine of a group."""
    return resource_id(subscription, group, f"{_COMPUTE}/virtualMachines", group)


def resource_id(subscription: str, group: str, kind: str, name: str) -> str:
    """Return Azure's id of a resource in a group: `kind` is `Microsoft.Network/virtualNetworks`."""
    return f"{group_id(subscription, group)}/providers/{kind}/{name}"


@dataclass(frozen=True, slots=True)
class Resource:
    """The parts of an Azure resource id: `kind` is its type (`microsoft.compute/disks`), `group` its resource group.

    Both are in small letters. `rest` is the path below it, such as `/versions/1.0.0`.
    """

    subscription: str
    group: str
    kind: str
    name: str
    rest: str = ""


def resource(id: str) -> Resource | None:  # noqa: A002
    """Return what an id of Azure's names; None for any id that is not in a resource group."""
    found = _ARM.fullmatch(id)
    if found is None:
        return None
    return Resource(found["subscription"], found["group"].lower(), found["kind"].lower(), found["name"], found["rest"])


SSH_PORT = 22
_ROLE = re.compile(
    rf"(?:/subscriptions/{GUID})?/providers/Microsoft\.Authorization/roleDefinitions/{GUID}", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class AzureOptions:
    """The options of an account. `regions` empty: those in which the catalogue has a price of the requested type.

    `subscription` empty: that of AZURE_SUBSCRIPTION_ID. `machine_role` is the id of the role definition that lets a
    machine deallocate and tag itself (None: machines have no identity). `timers`: the subscription may use scheduled
    actions. `encryption_at_host`: it has that feature, and machines are launched with it.
    """

    subscription: str | None = None
    tenant: str | None = None
    regions: tuple[str, ...] = ()
    exclude_regions: tuple[str, ...] = ()
    ssh_port: int = SSH_PORT
    machine_role: str | None = None
    timers: bool = False
    encryption_at_host: bool = False


def azure_options(account: str, table: Mapping[str, Any]) -> AzureOptions:
    """Return the options of an account's table; raise InvalidRequest for the first that is unknown or invalid."""
    return AzureOptions(**read_table("azure", account, table, _READERS))


_region = matching(LOCATION, "a region", "eastus")
_regions = several(_region, "regions", "eastus")
_READERS = {
    "subscription": matching(SUBSCRIPTION, "a subscription's id", '"00000000-0000-0000-0000-000000000000"'),
    "tenant": text,
    "regions": _regions,
    "exclude_regions": _regions,
    "ssh_port": port,
    "machine_role": matching(
        _ROLE, "a role definition's id", "/subscriptions/.../roleDefinitions/...: cloudgpu init azure does"
    ),
    "timers": flag,
    "encryption_at_host": flag,
}
