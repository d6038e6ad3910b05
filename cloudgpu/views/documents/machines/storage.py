"""Documents of `image`, `volume` and `orphans`."""

from typing import Annotated, Literal, TypedDict

from cloudgpu.core.resources.orphan import Cleanup as _Do
from cloudgpu.views.documents.machines.machines import RetainedPart
from cloudgpu.views.documents.parts import AccountCoverage, Fault, IncompleteAnswer, NamedMachine, OfAccount, Time, Usd

OrphanAction = Annotated[str, _Do]
OrphanKind = Annotated[
    str,
    Literal[
        "disk",
        "volume",
        "snapshot",
        "image",
        "address",
        "interface",
        "key_pair",
        "security_group",
        "spot_request",
        "placement_group",
        "timer",
        "resource_group",
        "role_assignment",
        "stopped_machine",
        "allocated_machine",
    ],
]


class NamedResource(RetainedPart, OfAccount):
    """A named volume or image."""

    name: str
    """Its name."""
    attached_to: str | None
    """The provider's id of the machine that uses it."""


class ImagesDocument(IncompleteAnswer):
    """The named images."""

    images: list[NamedResource]
    """The named images."""


class VolumesDocument(IncompleteAnswer):
    """The data volumes."""

    volumes: list[NamedResource]
    """The data volumes."""


class LaunchOrigin(NamedMachine):
    """The launch that a resource came from."""

    project: str
    """Its project."""


class SavedImage(TypedDict):
    """An image that is made of a disk before the disk is removed."""

    name: str
    """The image's name."""
    usd_per_month: Usd | None
    """What it costs a month at most; null where no price is known."""


class Orphan(OfAccount):
    """An [orphaned resource](../orphans.md): it costs money, and nothing uses it."""

    kind: OrphanKind
    """`disk`, `volume`, `snapshot`, `image`, `address`, `interface`, `key_pair`, `security_group`, `spot_request`,
    `placement_group`, `timer`, `resource_group`, `role_assignment`, `stopped_machine` or `allocated_machine`.
    """
    id: str
    """The provider's id."""
    name: str | None
    """The provider's or the user's name."""
    region: str
    """Its region."""
    zone: str | None
    """Its zone, if it is bound to one."""
    size_gb: float | None
    """Its size; null for what has none."""
    usd_per_month: Usd | None
    """What it costs a month; null where no price is known."""
    at_most: bool
    """It may cost less."""
    price_source: str | None
    """The source of the price."""
    launch: LaunchOrigin | None
    """Which launch it came from; null where that is not known."""
    owner: str | None
    """Whose it is."""
    ledger: str | None
    """The ledger it belongs to."""
    since: Time | None
    """Since when it is orphaned; null where that is not known."""
    why: str
    """Why it counts as orphaned."""
    do: OrphanAction
    """What `--clean` does: `remove`, `end` (a stopped machine) or `stay`."""
    stay_reason: str | None
    """Why it stays."""
    next: str | None
    """The command that removes it, or uses it again."""
    image: SavedImage | None
    """With `--snapshot`: the image that is made of it before it is removed."""


class OrphansDocument(AccountCoverage, IncompleteAnswer):
    """Orphaned resources."""

    orphans: list[Orphan]
    """The orphaned resources; after `--clean`, those that stay."""
    usd_per_month: Usd
    """What all of these cost a month, as far as prices are known."""
    removable_usd_per_month: Usd
    """The part of that which `--clean` saves."""
    unpriced: int
    """How many have no known price, and are in neither sum."""
    removed: list[Orphan]
    """With `--clean`: what is verified gone."""
    failed: list[Fault]
    """With `--clean`: what could not be removed, or is not verified gone."""


class RemovedDocument(TypedDict):
    """The removal of an image or a volume."""

    removed: NamedResource
    """What is verified gone."""
