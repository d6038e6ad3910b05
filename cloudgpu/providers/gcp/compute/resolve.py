"""Makes the exact launch call of an offer: image, network, quota and volume are looked up in parallel. Reads only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cloudgpu.catalog.disktypes import HYPERDISK, accepts_disk, disk_type
from cloudgpu.core.model.instances import TAG_VOLUME
from cloudgpu.core.model.launch import LaunchRequest, Setup, Volume
from cloudgpu.core.model.offers import MachineConfiguration, Market, Note, NoteKind, Requirements
from cloudgpu.errors import CloudgpuError, InvalidRequest, NoCapacity
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import PlacementConstraint, Resolved
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.gcp.compute.machine_types import MachineSpec, spec_of_name
from cloudgpu.providers.gcp.compute.request import MAX_RUN, Call
from cloudgpu.providers.gcp.errors import is_gone
from cloudgpu.providers.gcp.market import quotas
from cloudgpu.providers.gcp.market.availability import named_region
from cloudgpu.providers.gcp.network import firewall, network
from cloudgpu.providers.gcp.storage import images
from cloudgpu.providers.gcp.storage.disks import DEVICE_NAME, MAX_DISK_GB, MIN_VOLUME_GB, data_disks
from cloudgpu.providers.gcp.storage.images import ImageChoice
from cloudgpu.providers.gcp.storage.resources import list_all_scopes, machine_of, our_tags
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
)

DEFAULT_DISK_GB = 64
CLOUD_TIMER = "Google's own maxRunDuration"
CLOUD_INIT_PARTS = ("cloud_init",)  # parts of a template that an image without cloud-init cannot run


@dataclass(frozen=True, slots=True)
class _Lookups:
    """The results of the look-ups."""

    image_choice: ImageChoice
    network_placement: network.NetworkPlacement
    callers: Mapping[str, str]
    risks: Sequence[str]  # sentences about other rules by which everybody can connect
    unchecked: Sequence[str]  # sentences about what could not be checked
    volume: DataVolume | None


def resolve(gcp: Gcp, request: LaunchRequest, offer: MachineConfiguration) -> Resolved:
    """Return the exact launch call of an offer, its attached costs and remarks. Reads only.

    Raises NoCapacity where the zone does not have the machine type, QuotaExceeded, AuthFailed, and InvalidRequest for
    an image, a disk, a network or a volume that is not possible.
    """
    cluster_notes = cluster_firewall_notes(request, "firewall rules for that tag have")
    spec = spec_of_name(offer.instance_type)
    lookups = _look_up(gcp, request, offer, spec)
    image = lookups.image_choice.image
    shielded = image.boots_uefi and image.processor != "arm64"  # whether Arm machines take it is unverified
    call = Call(
        project=gcp.project,
        zone=offer.zone,
        machine_type=spec.machine_type,
        image=image.id,
        disk_gb=disk_gb(
            request.setup.disk_gb,
            image.name,
            image.size_gb,
            default=DEFAULT_DISK_GB,
            maximum=MAX_DISK_GB,
            limited_by="Google",
        ),
        disk_type=disk_type(spec.machine_type),
        network=lookups.network_placement.network,
        subnet=lookups.network_placement.subnet,
        callers=lookups.callers,
        ssh_port=gcp.options.ssh_port,
        accelerator=spec.accelerator if spec.is_attached else "",
        accelerators=spec.gpu_count if spec.is_attached else 0,
        tag=request.setup.network.security_group,
        service_account=gcp.options.service_account,
        cloud_init=image.runs_cloud_init is not False,
        installs_driver=image.installs_driver and bool(offer.accelerators),
        shielded=shielded,
        secure_boot=shielded and not offer.accelerators,  # NVIDIA's modules are not signed for it
        volume=DEVICE_NAME if request.setup.volume else "",
        host_key="reads" if image.runs_cloud_init is False else "",
        scratch=spec.has_local_ssd,
    )
    attached_costs = attached_resources(
        request.setup, offer, call.disk_gb, call.disk_type, lookups.volume, lambda _size: call.disk_type
    )
    return Resolved(
        call=asdict(call),
        attached=tuple(attached_costs),
        guards=(
            AGENT_SENTENCE,
            f"{TIMER_SENTENCE}, which stops it; its disk stays",
            cloud_timer_sentence(CLOUD_TIMER, "stops"),
        ),
        remarks=(*cluster_notes, *_remarks(gcp, request, offer, lookups, call)),
        left_out=() if call.cloud_init else CLOUD_INIT_PARTS,
        driver=lookups.image_choice.driver,
        licence=image.licence,
    )


def _look_up(gcp: Gcp, request: LaunchRequest, offer: MachineConfiguration, spec: MachineSpec) -> _Lookups:
    setup, nodes = request.setup, request.cluster.nodes if request.cluster else 1
    with Pool(5) as pool:
        type_check = pool.submit(_check_offered, gcp, offer, spec)
        choice = pool.submit(images.choose_image, gcp, offer, setup.image, request.template)
        placement = pool.submit(_network_placement, gcp, request, offer)
        quota = pool.submit(quotas.check_quotas, gcp, offer.region, offer.instance_type, offer.market, nodes)
        volume = pool.submit(data_volume, gcp, offer, setup.volume)
        unchecked = type_check.result()  # of several errors, the first in this order is raised
        network_placement, callers, risks = placement.result()
        return _Lookups(
            choice.result(), network_placement, callers, risks, [*unchecked, *quota.result()], volume.result()
        )


def _check_offered(gcp: Gcp, offer: MachineConfiguration, spec: MachineSpec) -> list[str]:
    """Raise NoCapacity where a zone that has the GPU does not have the machine type. One call.

    Where that cannot be read, return a sentence for the plan: the launch itself will tell.
    """
    machine_type = spec.machine_type
    try:
        gcp.call(
            "compute.machineTypes.get", offer.zone, value=offer.instance_type, zone=offer.zone, machineType=machine_type
        )
    except CloudgpuError as error:
        if not is_gone(error):
            return [f"whether {offer.zone} has {machine_type} could not be asked: {error.message}"]
        message = f"Google Cloud has no {machine_type} in {offer.zone}."
        raise NoCapacity(message, field="offer", value=offer.zone) from error
    return []


def _network_placement(
    gcp: Gcp, request: LaunchRequest, offer: MachineConfiguration
) -> tuple[network.NetworkPlacement, Mapping[str, str], list[str]]:
    """Return the network of a machine, the CIDRs that may open SSH by label, and sentences about other open rules."""
    requested = request.setup.network
    placement = network.placement(gcp, offer.region, requested)
    callers = network.ssh_sources(gcp, offer.region, placement, requested)
    return placement, callers, [] if requested.security_group is not None else _risks(gcp, placement.network)


def _risks(gcp: Gcp, network: str) -> list[str]:
    try:
        return [rule.risk for rule in firewall.open_rules(gcp, network)]
    except CloudgpuError as error:
        return [f"whether a firewall rule lets everybody in could not be asked: {error.message}"]


def _remarks(
    gcp: Gcp, request: LaunchRequest, offer: MachineConfiguration, lookups: _Lookups, call: Call
) -> Iterator[str]:
    yield from (Note(risk, NoteKind.ACCESS) for risk in lookups.risks)
    yield from lookups.image_choice.remarks
    if offer.market is Market.SPOT:
        yield "Google can take a spot machine at any time, half a minute after it says so: its disk stays"
    if request.requirements.max_price is not None and offer.market is Market.SPOT:
        price_text = (
            "Google takes no maximum price: --max-price chose this offer, and does not end it when its price rises"
        )
        yield Note(price_text, NoteKind.MONEY)
    if request.setup.volume is not None:
        yield f"the volume {request.setup.volume.name} is bound to {offer.zone}: only machines there can use it"
    if call.disk_type == HYPERDISK:
        charge_text = (
            f"{call.machine_type} takes {HYPERDISK} disks alone, whose speed is charged in addition to their size"
        )
        yield Note(charge_text, NoteKind.MONEY)
    if request.renew_s > MAX_RUN.total_seconds():
        yield f"Google stops it after {MAX_RUN.days} days in any case: its timer cannot be set later"
    if gcp.options.service_account:
        yield f"what runs on it acts as {gcp.options.service_account}, as config.toml says"
    yield from lookups.unchecked


# A subnet as Google writes it: its region is in it, and its project where that is another one.
SUBNET = re.compile(r"(?:projects/[^/]+/)?regions/([a-z]+-[a-z]+\d+)/subnetworks/([a-z][-a-z0-9]{0,62})")


def constraint(gcp: Gcp, setup: Setup, requirements: Requirements) -> PlacementConstraint:
    """Return the zone of a volume, or the region of a subnet, of `setup`; no call without them.

    An image can be used in every region: it only has to exist. One call for a volume,
    and for a subnet that does not name its region; up to three for an image. Raises InvalidRequest for one that does
    not exist, or that is not where `requirements` or another of them is.
    """
    if setup.image is not None:
        images.find_image(gcp, setup.image)
    volume = _constraining_volume(gcp, setup.volume, requirements) if setup.volume is not None else None
    region = _subnet_region(gcp, setup.network.subnet, requirements) if setup.network.subnet is not None else None
    if volume is not None:
        if region not in (None, ids.region_of(volume.zone)):
            raise _different_regions_error(volume, str(setup.network.subnet), str(region))
        return PlacementConstraint(
            ids.region_of(volume.zone), volume.zone, why=f"the volume {volume.name} is in {volume.zone}"
        )
    return PlacementConstraint(region=region, why=f"the subnet {setup.network.subnet} is in {region}" if region else "")


def _different_regions_error(volume: DataVolume, subnet: str, region: str) -> InvalidRequest:
    message = f"The subnet {subnet} is in {region}, and the volume {volume.name} is in {volume.zone}."
    remedy = "Leave one of them out, or name a subnet of the volume's region."
    return InvalidRequest(message, field="--volume", value=volume.name, next=remedy)


def data_volume(gcp: Gcp, offer: MachineConfiguration, volume: Volume | None) -> DataVolume | None:
    """Return the data volume of this name in the offer's zone; None where it is still to be made, or none is wanted.

    Raises InvalidRequest where another machine uses it, or where the machine's type does not take such a disk:
    launched, this one would run without it.
    """
    found = free_volume(volume, offer.zone, lambda: _data_volumes(gcp))
    if found is not None and found.disk_type and not accepts_disk(offer.instance_type, found.disk_type):
        message = (
            f"The volume {found.name} is a disk of the kind {found.disk_type}, which {offer.instance_type} does not "
            "take."
        )
        remedy = "Name another volume, with a size: one of the right kind is made."
        raise InvalidRequest(message, field="--volume", value=found.name, next=remedy)
    return found


def _data_volumes(gcp: Gcp) -> list[DataVolume]:
    return [_data_volume(one) for one in data_disks(gcp, gcp.ledger)]


def _data_volume(raw: Mapping[str, Any]) -> DataVolume:
    return DataVolume(
        our_tags(raw)[TAG_VOLUME],
        raw["name"],
        ids.last_part(raw["zone"]),
        int(raw.get("sizeGb", 0)),
        machine_of(raw.get("users", ())),
        ids.last_part(raw.get("type", "")),
    )


def _constraining_volume(gcp: Gcp, volume: Volume, requirements: Requirements) -> DataVolume | None:
    """Return the data volume that pins a launch to its zone; None for one that is still to be made."""
    region = named_region(gcp, requirements)
    return existing_volume(
        volume,
        _data_volumes(gcp),
        requirements,
        region,
        region_of=ids.region_of,
        sizes_gb=(MIN_VOLUME_GB, MAX_DISK_GB),
        limit_sentence=f"Google has {MIN_VOLUME_GB} to {MAX_DISK_GB:,} GB",
    )


def _subnet_region(gcp: Gcp, subnet: str, requirements: Requirements) -> str | None:
    """Return the region of a subnet; None for a name that several regions have."""
    requested_region, match = named_region(gcp, requirements), SUBNET.fullmatch(subnet)
    if match is not None:
        return check_location("subnet", subnet, match[1], requested_region, "--region")
    if requested_region is not None:
        return requested_region
    subnets, unanswered = list_all_scopes(gcp, "subnetworks")
    regions = sorted({ids.last_part(raw["region"]) for raw in subnets if raw.get("name") == subnet})
    if not regions:
        raise not_found_error(
            "subnet", "--subnet", subnet, set(), unanswered, "See what there is: gcloud compute networks subnets list"
        )
    # a network in automatic mode has a subnet of its own name in every region: it ties to none
    return regions[0] if len(regions) == 1 else None
