"""Resolves a request at one offer: looks up image, network, limits and volume at the same time; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from cloudgpu.catalog.disktypes import billed_tier
from cloudgpu.core.model.instances import TAG_VOLUME
from cloudgpu.core.model.launch import LaunchRequest, Setup, Volume
from cloudgpu.core.model.offers import MachineConfiguration, Market, Note, NoteKind, Requirements
from cloudgpu.core.policies.guards import Agent
from cloudgpu.errors import CloudgpuError, InvalidRequest, NoCapacity
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import AttachedResource, PlacementConstraint, Resolved
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.account import permissions
from cloudgpu.providers.azure.calls import call_or_none, properties_of
from cloudgpu.providers.azure.client import Azure, Raw
from cloudgpu.providers.azure.compute import machine
from cloudgpu.providers.azure.compute.request import Call
from cloudgpu.providers.azure.compute.schedules import why_no_timer
from cloudgpu.providers.azure.ids import Sku
from cloudgpu.providers.azure.market import quotas
from cloudgpu.providers.azure.market.availability import named_region
from cloudgpu.providers.azure.market.skus import skus
from cloudgpu.providers.azure.network import network
from cloudgpu.providers.azure.storage import disks, images, resources
from cloudgpu.providers.azure.storage.disks import LARGEST_GB, VOLUME_SKU
from cloudgpu.providers.azure.storage.images import ImageChoice
from cloudgpu.providers.shared.named_volumes import (
    DataVolume,
    attached_resources,
    check_location,
    existing_volume,
    free_volume,
    not_found_error,
)
from cloudgpu.providers.shared.rules import (
    AGENT_SENTENCE,
    TIMER_SENTENCE,
    cloud_timer_sentence,
    cluster_firewall_notes,
    disk_gb,
    on_demand_cap,
)

DEFAULT_DISK_GB = 128
PREMIUM, STANDARD = "Premium_LRS", "StandardSSD_LRS"
DEALLOCATES_ITSELF = "its own identity deallocates it, so that a shutdown from inside ends what it costs"
NO_IDENTITY = (
    "the machine has no identity, so it cannot deallocate itself: a shutdown from inside (idle time, lease) does not "
    "end what it costs; only cloudgpu reap or watch does. It cannot report when it was last used, so idle cannot be "
    "evaluated from outside"
)
NO_AGENT = "none on the machine: its agent can only shut it down, which does not end what Azure bills"
ASSIGN_ROLE = "Microsoft.Authorization/roleAssignments/write"


@dataclass(frozen=True, slots=True)
class _Lookups:
    """What the look-ups of one launch found: its size, image, network and data volume."""

    sku: Sku
    image_choice: ImageChoice
    network_placement: network.NetworkPlacement
    quota_remark: str | None  # a remark for the plan, where the quotas could not be checked
    volume: DataVolume | None
    role: bool  # the machine gets an identity with a role


def resolve(azure: Azure, request: LaunchRequest, configuration: MachineConfiguration) -> Resolved:
    """Return the exact launch call of an offer, its attached costs and remarks. Reads only.

    Raises NoCapacity (withheld there), QuotaExceeded, AuthFailed, and InvalidRequest for an image, a disk, a network or
    a volume that cannot be.
    """
    notes = cluster_firewall_notes(request, "security group has")
    lookups = _look_up(azure, request, configuration)
    call = _call(azure, request, configuration, lookups)
    return Resolved(
        call=asdict(call),
        attached=tuple(_attached_resources(request, configuration, call, lookups.volume)),
        guards=_guards(azure, call),
        remarks=(*notes, *_remarks(azure, request, configuration, lookups)),
        driver=lookups.image_choice.driver,
        licence=lookups.image_choice.image.licence,
        agent=Agent.ENDS if call.role else Agent.TELLS,
    )


def _look_up(azure: Azure, request: LaunchRequest, configuration: MachineConfiguration) -> _Lookups:
    setup, sku, nodes = request.setup, _sku(azure, configuration), request.cluster.nodes if request.cluster else 1
    with Pool(5) as pool:
        image_choice = pool.submit(images.choose_image, azure, configuration, sku, setup.image, request.template)
        network_placement = pool.submit(network.placement, azure, configuration.region, setup.network)
        quota_check = pool.submit(quotas.check, azure, configuration.region, sku, configuration.market, nodes)
        volume = pool.submit(data_volume, azure, configuration, setup.volume)
        role = pool.submit(_may_assign_role, azure)
        # of several errors, always the same one is raised
        return _Lookups(
            sku, image_choice.result(), network_placement.result(), quota_check.result(), volume.result(), role.result()
        )


def _may_assign_role(azure: Azure) -> bool:
    """Say whether the machine gets an identity with a role: the settings name one, and this login may give it.

    One call, none where they name none. Where it is not known, the role is tried.
    """
    if not azure.options.machine_role:
        return False
    try:
        return permissions.allows(permissions.rights(azure), ASSIGN_ROLE) is not False
    except CloudgpuError:
        return True


def _sku(azure: Azure, configuration: MachineConfiguration) -> Sku:
    """Return the size as the region sells it; raise NoCapacity where it does not, or not to this subscription."""
    sku, number = (
        skus(azure, configuration.region).get(configuration.instance_type.lower()),
        ids.zone_number(configuration.zone),
    )
    if sku is None or sku.restriction or (number is not None and number not in sku.zones):
        why = f" ({sku.restriction})" if sku and sku.restriction else ""
        message = (
            f"Azure does not sell {configuration.instance_type} in {configuration.zone} to this subscription{why}."
        )
        raise NoCapacity(message, field="offer", value=configuration.instance_type)
    return sku


def _call(azure: Azure, request: LaunchRequest, configuration: MachineConfiguration, lookups: _Lookups) -> Call:
    image, sku = lookups.image_choice.image, lookups.sku
    return Call(
        region=configuration.region,
        number=ids.zone_number(configuration.zone),
        image=dict(image.reference),
        plan=image.plan,
        disk_gb=disk_gb(
            request.setup.disk_gb,
            image.name,
            image.size_gb,
            default=DEFAULT_DISK_GB,
            maximum=LARGEST_GB,
            limited_by="Azure",
        ),
        disk_sku=PREMIUM if sku.premium else STANDARD,
        subnet=lookups.network_placement.subnet,
        security_group=lookups.network_placement.security_group,
        callers=dict(lookups.network_placement.callers),
        ssh_port=azure.options.ssh_port,
        trusted=image.trusted and sku.trusted,
        secure_boot=not configuration.accelerators,  # NVIDIA's modules are not signed for it
        role=lookups.role,
        host_at=azure.options.encryption_at_host and sku.encrypts_at_host,
        extension=lookups.image_choice.extension,
    )


def _attached_resources(
    request: LaunchRequest, configuration: MachineConfiguration, call: Call, volume: DataVolume | None
) -> Iterator[AttachedResource]:
    """Yield what is billed with the machine: a disk by its size class, an address whether it is used or not."""
    storage_kind = billed_tier(call.disk_sku, call.disk_gb)
    for one in attached_resources(
        request.setup, configuration, call.disk_gb, storage_kind, volume, lambda size: billed_tier(VOLUME_SKU, size)
    ):
        yield replace(one, while_stopped=True)


def _guards(azure: Azure, call: Call) -> tuple[str, ...]:
    agent_guards = (
        (AGENT_SENTENCE, f"{TIMER_SENTENCE}, which stops it; its disk stays", DEALLOCATES_ITSELF)
        if call.role
        else (NO_AGENT,)
    )
    timer_guards = (
        () if why_no_timer(azure) else (cloud_timer_sentence("Azure's own scheduled actions", "deallocates"),)
    )
    return *agent_guards, *timer_guards


def _remarks(
    azure: Azure, request: LaunchRequest, configuration: MachineConfiguration, lookups: _Lookups
) -> Iterator[str]:
    yield from lookups.image_choice.remarks
    yield from lookups.network_placement.remarks
    if lookups.sku.temp_disk_gb:
        erasure_text = (
            f"its temporary disk (/mnt, {lookups.sku.temp_disk_gb:,.0f} GB) is erased whenever it is deallocated"
        )
        yield Note(erasure_text, NoteKind.ERASURE)
    if configuration.market is Market.SPOT:
        yield from _spot_remarks(request, configuration)
    if request.setup.volume is not None:
        yield f"the volume {request.setup.volume.name} is bound to {configuration.zone}: only machines there can use it"
    if not azure.options.machine_role:
        yield f"{NO_IDENTITY}. cloudgpu init azure prepares one (accounts.{request.account}.machine_role)"
    elif not lookups.role:
        yield f"{NO_IDENTITY}. This login may not give it the role: cloudgpu doctor names who may"
    if why_no_timer(azure):
        yield Note(why_no_timer(azure), NoteKind.GUARD)
    if azure.options.encryption_at_host and not lookups.sku.encrypts_at_host:
        yield f"{configuration.instance_type} has no encryption at host: its disks are encrypted at rest alone"
    if lookups.quota_remark is not None:
        yield lookups.quota_remark


def _spot_remarks(request: LaunchRequest, configuration: MachineConfiguration) -> Iterator[str]:
    yield "Azure takes a spot machine with 30 seconds' notice: it is deallocated then, and its disk stays"
    if request.requirements.max_price is None:
        yield (
            f"the spot price can rise up to the on-demand price, {on_demand_cap(configuration)}, and Azure does not "
            "take the machine for its price. --max-price sets a limit"
        )


_READ_NETWORKS = "Microsoft.Network/virtualNetworks/read"


def constraint(azure: Azure, setup: Setup, requirements: Requirements) -> PlacementConstraint:
    """Return the region of an own image or a subnet, the zone of a volume of `setup`; no call without one.

    One call each. Raises InvalidRequest for one that does not exist, or that lies elsewhere than the requirements or
    another of them says.
    """
    requested = named_region(azure, requirements)
    volume = _volume(azure, setup.volume, requirements, requested) if setup.volume is not None else None
    constraints = [_Constraint("volume", volume.name, volume.zone)] if volume is not None else []
    image, subnet = setup.image or "", setup.network.subnet or ""
    constraints += [_Constraint("image", image, region) for region in _image_region(azure, image)]
    constraints += [_Constraint("subnet", subnet, region) for region in _subnet_region(azure, subnet)]
    for one in constraints:
        check_location(one.resource_kind, one.name, one.region, requested, "--region")
        if one.region != constraints[0].region:
            raise _different_places_error(constraints[0], one)
    if not constraints:
        return PlacementConstraint()
    first_constraint = constraints[0]
    zone = first_constraint.location if volume is not None else None
    return PlacementConstraint(
        first_constraint.region,
        zone,
        why=f"the {first_constraint.resource_kind} {first_constraint.name} is in {first_constraint.location}",
    )


def data_volume(azure: Azure, configuration: MachineConfiguration, volume: Volume | None) -> DataVolume | None:
    """Return the ledger's volume of this name in the offer's zone; None: not made yet, or not requested.

    Raises InvalidRequest where another machine uses it, so that this one would run without it.
    """
    return free_volume(volume, configuration.zone or configuration.region, lambda: _volumes(azure))


@dataclass(frozen=True, slots=True)
class _Constraint:
    """A resource that pins a launch: its kind (`volume`), its name, and the zone or region in which it is."""

    resource_kind: str
    name: str
    location: str

    @property
    def region(self) -> str:
        return ids.region_of(self.location) or self.location


def _different_places_error(first_constraint: _Constraint, other: _Constraint) -> InvalidRequest:
    first_text = f"The {first_constraint.resource_kind} {first_constraint.name} is in {first_constraint.location}"
    message = f"{first_text}, and the {other.resource_kind} {other.name} in {other.location}."
    return InvalidRequest(message, field=f"--{other.resource_kind}", value=other.name, next="Leave one of them out.")


# Images


def _image_region(azure: Azure, name_or_id: str) -> Iterator[str]:
    """Yield the region of an own image; nothing for one that is in many: a public one, or one of a gallery."""
    if not name_or_id or name_or_id.count(":") in (2, 3) or "galleries/" in name_or_id.lower():
        return
    ref = resources.parse(name_or_id)
    if ref is not None:
        yield ref.region
        return
    lookups = images.own_image(azure, name_or_id)
    if lookups is not None:
        yield str(lookups["location"])


# Volumes


def _volumes(azure: Azure) -> list[DataVolume]:
    """Return the data volumes of this ledger, since another's are not attached either."""
    return [_to_volume(one) for one in disks.named_disks(azure, azure.ledger)]


def _to_volume(raw: Raw) -> DataVolume:
    size = int(properties_of(raw).get("diskSizeGB") or 0)
    return DataVolume(
        raw["tags"][TAG_VOLUME], str(raw["id"]), machine.zone_of(raw), size, used_by=disks.machine_using(raw)
    )


def _volume(azure: Azure, volume: Volume, requirements: Requirements, region: str | None) -> DataVolume | None:
    return existing_volume(
        volume,
        _volumes(azure),
        requirements,
        region,
        region_of=ids.region_of,
        sizes_gb=(1, LARGEST_GB),
        limit_sentence=f"a managed disk has {LARGEST_GB:,} GB at most",
    )


# Subnets


def _subnet_region(azure: Azure, name_or_id: str) -> Iterator[str]:
    """Yield the region of a subnet (Azure's id of it): that of its network. One call; none where none is named."""
    if not name_or_id:
        return
    network_ref, networks = network.network_of_subnet(name_or_id), azure.network.virtual_networks
    lookups = call_or_none(
        azure, _READ_NETWORKS, lambda: networks.get(network_ref.group, network_ref.name), value=name_or_id
    )
    if lookups is None:
        raise not_found_error("subnet", "--subnet", name_or_id, set(), (), "See what there is: az network vnet list")
    yield str(lookups.as_dict()["location"])
