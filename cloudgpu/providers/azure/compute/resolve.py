"""Makes a request at one offer exact: image, network, limits and volume looked up side by side; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from cloudgpu.catalog.disktypes import tier
from cloudgpu.catalog.read import listed_price
from cloudgpu.core.model.launch import LaunchRequest
from cloudgpu.core.model.offers import Available, Market, Note, NoteKind
from cloudgpu.core.policies.guards import Agent
from cloudgpu.errors import CloudgpuError, NoCapacity
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import AttachedResource, Resolved
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.account import permissions
from cloudgpu.providers.azure.client import KIND
from cloudgpu.providers.azure.compute.placement import data_volume
from cloudgpu.providers.azure.compute.request import Call
from cloudgpu.providers.azure.compute.schedules import no_timer
from cloudgpu.providers.azure.ids import Sku
from cloudgpu.providers.azure.market import quotas
from cloudgpu.providers.azure.market.skus import skus
from cloudgpu.providers.azure.network import network
from cloudgpu.providers.azure.storage import images
from cloudgpu.providers.azure.storage.disks import LARGEST_GB
from cloudgpu.providers.azure.storage.images import Choice, Image
from cloudgpu.providers.azure.storage.volumes import SKU as VOLUME_SKU
from cloudgpu.providers.shared import rules as layers
from cloudgpu.providers.shared.named_volumes import attached
from cloudgpu.providers.shared.rules import disk_gb

if TYPE_CHECKING:
    from cloudgpu.providers.azure.client import Azure
    from cloudgpu.providers.shared.named_volumes import Data

DEFAULT_GB = 128
PREMIUM, PLAIN = "Premium_LRS", "StandardSSD_LRS"
PUBLIC_ADDRESS = "public_ip_standard_static_regional"  # as the price list calls it
OWN = "its own identity deallocates it, so that a shutdown from inside ends what it costs"
NO_IDENTITY = (
    "the machine has no identity, so it cannot deallocate itself: a shutdown from inside (idle time, lease) does not "
    "end what it costs; only cloudgpu reap or watch does. It cannot report when it was last used, so idle cannot be "
    "evaluated from outside"
)
ABSENT = "none on the machine: its agent can only shut it down, which does not end what Azure bills"
GIVES = "Microsoft.Authorization/roleAssignments/write"


@dataclass(frozen=True, slots=True)
class _Found:
    """What the look-ups found."""

    sku: Sku
    choice: Choice
    network_placement: network.NetworkPlacement
    limits: str | None
    volume: Data | None
    role: bool


def resolve(azure: Azure, request: LaunchRequest, item: Available) -> Resolved:
    """Return the exact launch call of an offer, its attached costs and remarks. Reads only.

    Raises NoCapacity (withheld there), QuotaExceeded, AuthFailed, and InvalidRequest for an image, a disk, a network or
    a volume that cannot be.
    """
    notes = layers.by_their_rules(request, "security group has")
    found = _look_up(azure, request, item)
    call = _call(azure, request, item, found)
    return Resolved(
        call=asdict(call),
        attached=tuple(_attached(request, call, found.volume)),
        guards=_guards(azure, call),
        remarks=(*notes, *_remarks(azure, request, item, found)),
        driver=found.choice.driver,
        licence=found.choice.image.licence,
        agent=Agent.ENDS if call.role else Agent.TELLS,
    )


def _look_up(azure: Azure, request: LaunchRequest, item: Available) -> _Found:
    setup, sku, nodes = request.setup, _sku(azure, item), request.cluster.nodes if request.cluster else 1
    with Pool(5) as pool:
        choice = pool.submit(images.choose_image, azure, item, sku, setup.image, request.template)
        placement = pool.submit(network.placement, azure, item.region, setup.network)
        limits = pool.submit(quotas.check, azure, item.region, sku, item.market, nodes)
        volume = pool.submit(data_volume, azure, item, setup.volume)
        role = pool.submit(_gives_roles, azure)
        # the first fault in this order is said, whichever came first
        return _Found(sku, choice.result(), placement.result(), limits.result(), volume.result(), role.result())


def _gives_roles(azure: Azure) -> bool:
    """Say whether the machine gets an identity with a role: the settings name one, and this login may give it.

    One call, none where they name none. What Azure does not tell is tried: only a clear no is one.
    """
    if not azure.options.machine_role:
        return False
    try:
        return permissions.allows(permissions.rights(azure), GIVES) is not False
    except CloudgpuError:
        return True


def _sku(azure: Azure, item: Available) -> Sku:
    """Return the size as the region sells it; raise NoCapacity where it does not, or not to this subscription."""
    sku, number = skus(azure, item.region).get(item.instance_type.lower()), ids.number_of(item.zone)
    if sku is None or sku.withheld or (number is not None and number not in sku.zones):
        why = f" ({sku.withheld})" if sku and sku.withheld else ""
        message = f"Azure does not sell {item.instance_type} in {item.zone} to this subscription{why}."
        raise NoCapacity(message, field="offer", value=item.instance_type)
    return sku


def _call(azure: Azure, request: LaunchRequest, item: Available, found: _Found) -> Call:
    image, sku = found.choice.image, found.sku
    return Call(
        region=item.region,
        number=ids.number_of(item.zone),
        image=dict(image.reference),
        plan=image.plan,
        disk_gb=_disk_gb(request, image),
        disk_sku=PREMIUM if sku.premium else PLAIN,
        subnet=found.network_placement.subnet,
        group=found.network_placement.group,
        callers=dict(found.network_placement.callers),
        ssh_port=azure.options.ssh_port,
        trusted=image.trusted and sku.trusted,
        secure_boot=not item.accelerators,  # NVIDIA's modules are not signed for it
        role=found.role,
        host_at=azure.options.encryption_at_host and sku.encrypts_at_host,
        extension=found.choice.extension,
    )


def _disk_gb(request: LaunchRequest, image: Image) -> int:
    wished = request.setup.disk_gb
    return disk_gb(wished, image.name, image.size_gb, default=DEFAULT_GB, maximum=LARGEST_GB, whose="Azure")


def _attached(request: LaunchRequest, call: Call, volume: Data | None) -> Iterator[AttachedResource]:
    """Yield what is billed with the machine: a disk by its size class, an address whether it is used or not."""
    kind = tier(call.disk_sku, call.disk_gb)
    for one in attached(request.setup, call.disk_gb, kind, PUBLIC_ADDRESS, volume, lambda size: tier(VOLUME_SKU, size)):
        yield replace(one, while_stopped=True)


def _guards(azure: Azure, call: Call) -> tuple[str, ...]:
    own = f"{layers.TIMER}, which stops it; its disk stays"
    inside = (layers.AGENT, own, OWN) if call.role else (ABSENT,)
    cloud = () if no_timer(azure) else (layers.in_the_cloud("Azure's own scheduled actions", "deallocates"),)
    return *inside, *cloud


def _remarks(azure: Azure, request: LaunchRequest, item: Available, found: _Found) -> Iterator[str]:
    yield from found.choice.remarks
    yield from found.network_placement.remarks
    if found.sku.temp_gb:
        erased = f"its temporary disk (/mnt, {found.sku.temp_gb:,.0f} GB) is erased whenever it is deallocated"
        yield Note(erased, NoteKind.ERASURE)
    if item.market is Market.SPOT:
        yield from _about_spot(request, item)
    if request.setup.volume is not None:
        yield f"the volume {request.setup.volume.name} is bound to {item.zone}: only machines there can use it"
    if not azure.options.machine_role:
        yield f"{NO_IDENTITY}. cloudgpu init azure prepares one (accounts.{request.account}.machine_role)"
    elif not found.role:
        yield f"{NO_IDENTITY}. This login may not give it the role: cloudgpu doctor names who may"
    if no_timer(azure):
        yield Note(no_timer(azure), NoteKind.GUARD)
    if azure.options.encryption_at_host and not found.sku.encrypts_at_host:
        yield f"{item.instance_type} has no encryption at host: its disks are encrypted at rest alone"
    if found.limits is not None:
        yield found.limits


def _about_spot(request: LaunchRequest, item: Available) -> Iterator[str]:
    yield "Azure takes a spot machine with 30 seconds' notice: it is deallocated then, and its disk stays"
    if request.want.max_price is None:
        dearest = listed_price(KIND, item.instance_type, item.region, Market.ON_DEMAND)
        most = f"{dearest.per_hour.text(4)} an hour (listed {dearest.as_of:%Y-%m-%d})" if dearest else "not known here"
        yield (
            f"the spot price can rise up to the on-demand price, {most}, and Azure does not take the machine for its "
            "price. --max-price sets a limit"
        )
