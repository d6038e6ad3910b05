"""Resources that can exist without a machine: disks, snapshots, images, addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cloudgpu.core.model.identity import Unanswered


class Kind(StrEnum):
    """What kind of resource it is."""

    DISK = "disk"  # a machine's system disk
    VOLUME = "volume"  # a data disk with a name, kept until its user deletes it
    SNAPSHOT = "snapshot"  # not yet an image
    IMAGE = "image"
    # Only `HasOrphans` lists these, not `HasResources`: most cost nothing, some can launch machines.
    ADDRESS = "address"  # a public address that is kept
    INTERFACE = "interface"  # a network interface
    KEY_PAIR = "key_pair"
    SECURITY_GROUP = "security_group"
    SPOT_REQUEST = "spot_request"
    PLACEMENT_GROUP = "placement_group"  # keeps the machines of a cluster close together
    TIMER = "timer"  # a scheduled action at the provider
    GROUP = "resource_group"  # the Azure resource group of one launch, with all that is in it
    ROLE = "role_assignment"  # what a machine's own identity may do


@dataclass(frozen=True, slots=True)
class ProviderResource:
    """A resource that cloudgpu made and that exists without a living machine: a disk, a snapshot, an image, an address.

    `id` is the provider's; `name` is the user's for a named volume or image, else empty. `size_gb` is the most that is
    billed. `stored_as` is the kind of storage in the price list (`gp3`, `ebs_snapshot`, `public_ipv4`, ...), empty for
    what costs nothing. `ready`: it can be used or removed as it is. `attached_to` is the provider's id of the machine
    that uses it, None for none.
    """

    provider: str
    account: str
    region: str
    zone: str
    id: str
    kind: Kind
    name: str
    size_gb: int
    stored_as: str
    tags: Mapping[str, str]
    made_at: datetime | None = None
    ready: bool = True
    attached_to: str | None = None


@dataclass(frozen=True, slots=True)
class ResourceListing:
    """All resources of the scopes that answered, and the scopes that did not answer."""

    items: tuple[ProviderResource, ...]
    unanswered: tuple[Unanswered, ...] = ()
    regions: frozenset[str] | None = None  # those that were queried; None: all
