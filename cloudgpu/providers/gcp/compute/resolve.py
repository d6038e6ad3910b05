"""Makes a request at one offer exact: image, network, quota and volume looked up side by side; nothing is changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cloudgpu.catalog.disktypes import HYPERDISK, accepts_disk, disk_type
from cloudgpu.core.model.instances import TAG_VOLUME
from cloudgpu.core.model.launch import LaunchRequest, Setup, Volume
from cloudgpu.core.model.offers import Available, Market, Note, NoteKind, Requirements
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
from cloudgpu.providers.gcp.storage.disks import DEVICE, LARGEST_GB, check_size, listed
from cloudgpu.providers.gcp.storage.images import Image, ImageChoice
from cloudgpu.providers.gcp.storage.resources import aggregated, machine_of, our_tags
from cloudgpu.providers.shared.named_volumes import (
    DataVolume,
    attached_resources,
    check_location,
    existing_volume,
    not_found_error,
    volume_in_use_error,
)
from cloudgpu.providers.shared.rules import (
    AGENT_SENTENCE,
    TIMER_SENTENCE,
    cloud_timer_sentence,
    cluster_firewall_notes,
    disk_gb,
)

DEFAULT_GB = 64
ADDRESSES = {Market.ON_DEMAND: "external_ip_on_standard_vm", Market.SPOT: "external_ip_on_spot_vm"}
IN_THE_CLOUD = "Google's own maxRunDuration"
NEEDS_CLOUD_INIT = ("cloud_init",)  # what an image without it cannot run


@dataclass(frozen=True, slots=True)
class _Lookups:
    """What the look-ups found."""

    choice: ImageChoice
    network_placement: network.NetworkPlacement
    callers: Mapping[str, str]
    risks: Sequence[str]  # who can connect beside them
    unchecked: Sequence[str]  # what could not be asked
    volume: DataVolume | None


def resolve(gcp: Gcp, request: LaunchRequest, item: Available) -> Resolved:
    """Return the exact launch call of an offer, its attached costs and remarks. Reads only.

    Raises NoCapacity where the zone does not have the machine type, QuotaExceeded, AuthFailed, and InvalidRequest for
    an image, a disk, a network or a volume that cannot be.
    """
    notes = cluster_firewall_notes(request, "firewall rules for that tag have")
    spec = spec_of_name(item.instance_type)
    found = _look_up(gcp, request, item, spec)
    image = found.choice.image
    shielded = image.shielded and image.machine != "arm64"  # whether Arm machines take it is unverified
    call = Call(
        project=gcp.project,
        zone=item.zone,
        machine_type=spec.machine_type,
        image=image.id,
        disk_gb=_disk_gb(request, image),
        disk_type=disk_type(spec.machine_type),
        network=found.network_placement.network,
        subnet=found.network_placement.subnet,
        callers=found.callers,
        ssh_port=gcp.options.ssh_port,
        accelerator=spec.accelerator if spec.attached else "",
        accelerators=spec.count if spec.attached else 0,
        tag=request.setup.network.security_group,
        service_account=gcp.options.service_account,
        cloud_init=image.cloud_init is not False,
        installs_driver=image.installs_driver and bool(item.accelerators),
        shielded=shielded,
        secure_boot=shielded and not item.accelerators,  # NVIDIA's modules are not signed for it
        volume=DEVICE if request.setup.volume else "",
        host_key="reads" if image.cloud_init is False else "",
        scratch=spec.scratch,
    )
    kind, address = call.disk_type, ADDRESSES[item.market]
    billed = attached_resources(request.setup, call.disk_gb, kind, address, found.volume, lambda _size: kind)
    return Resolved(
        call=asdict(call),
        attached=tuple(billed),
        guards=(
            AGENT_SENTENCE,
            f"{TIMER_SENTENCE}, which stops it; its disk stays",
            cloud_timer_sentence(IN_THE_CLOUD, "stops"),
        ),
        remarks=(*notes, *_remarks(gcp, request, item, found, call)),
        left_out=() if call.cloud_init else NEEDS_CLOUD_INIT,
        driver=found.choice.driver,
        licence=image.licence,
    )


def _look_up(gcp: Gcp, request: LaunchRequest, item: Available, spec: MachineSpec) -> _Lookups:
    setup, nodes = request.setup, request.cluster.nodes if request.cluster else 1
    with Pool(5) as pool:
        offered = pool.submit(_check_offered, gcp, item, spec)
        choice = pool.submit(images.choose_image, gcp, item, setup.image, request.template)
        placement = pool.submit(_network_placement, gcp, request, item)
        quota = pool.submit(quotas.check, gcp, item.region, item.instance_type, item.market, nodes)
        volume = pool.submit(data_volume, gcp, item, setup.volume)
        unasked = offered.result()  # the first fault in this order is said, whichever came first
        where, callers, risks = placement.result()
        return _Lookups(choice.result(), where, callers, risks, [*unasked, *quota.result()], volume.result())


def _check_offered(gcp: Gcp, item: Available, spec: MachineSpec) -> list[str]:
    """Raise NoCapacity where a zone that has the GPU does not have the machine type. One call.

    Where it cannot be asked that is returned, for the plan: the launch itself will tell.
    """
    kind = spec.machine_type
    try:
        gcp.call("compute.machineTypes.get", item.zone, value=item.instance_type, zone=item.zone, machineType=kind)
    except CloudgpuError as error:
        if not is_gone(error):
            return [f"whether {item.zone} has {kind} could not be asked: {error.message}"]
        message = f"Google Cloud has no {kind} in {item.zone}."
        raise NoCapacity(message, field="offer", value=item.zone) from error
    return []


def _network_placement(
    gcp: Gcp, request: LaunchRequest, item: Available
) -> tuple[network.NetworkPlacement, Mapping[str, str], list[str]]:
    """Return where it hangs, who may connect, and who can beside that."""
    wanted = request.setup.network
    found = network.placement(gcp, item.region, wanted)
    callers = network.ssh_sources(gcp, item.region, found, wanted)
    return found, callers, [] if wanted.security_group is not None else _risks(gcp, found.network)


def _risks(gcp: Gcp, network: str) -> list[str]:
    try:
        return [one.risk for one in firewall.openings(gcp, network)]
    except CloudgpuError as error:
        return [f"whether a firewall rule lets everybody in could not be asked: {error.message}"]


def _disk_gb(request: LaunchRequest, image: Image) -> int:
    return disk_gb(
        request.setup.disk_gb, image.name, image.size_gb, default=DEFAULT_GB, maximum=LARGEST_GB, whose="Google"
    )


def _remarks(gcp: Gcp, request: LaunchRequest, item: Available, found: _Lookups, call: Call) -> Iterator[str]:
    yield from (Note(risk, NoteKind.ACCESS) for risk in found.risks)
    yield from found.choice.remarks
    if item.market is Market.SPOT:
        yield "Google can take a spot machine at any time, half a minute after it says so: its disk stays"
    if request.want.max_price is not None and item.market is Market.SPOT:
        rises = "Google takes no maximum price: --max-price chose this offer, and does not end it when its price rises"
        yield Note(rises, NoteKind.MONEY)
    if request.setup.volume is not None:
        yield f"the volume {request.setup.volume.name} is bound to {item.zone}: only machines there can use it"
    if call.disk_type == HYPERDISK:
        charged = f"{call.machine_type} takes {HYPERDISK} disks alone, whose speed is charged in addition to their size"
        yield Note(charged, NoteKind.MONEY)
    if request.renew_s > MAX_RUN.total_seconds():
        yield f"Google stops it after {MAX_RUN.days} days in any case: its timer cannot be set later"
    if gcp.options.service_account:
        yield f"what runs on it acts as {gcp.options.service_account}, as config.toml says"
    yield from found.unchecked


# A subnet as Google writes it: its region is in it, and its project where that is another one.
SUBNET = re.compile(r"(?:projects/[^/]+/)?regions/([a-z]+-[a-z]+\d+)/subnetworks/([a-z][-a-z0-9]{0,62})")


def constraint(gcp: Gcp, setup: Setup, requirements: Requirements) -> PlacementConstraint:
    """Return the zone of a volume, or the region of a subnet, of `setup`; none of them: nothing is asked.

    An image of Google's can be used in every region and ties to none: it only has to be there. One call for a volume,
    and for a subnet that does not name its region; up to three for an image. Raises InvalidRequest for one that does
    not exist, or that lies elsewhere than `requirements` or another of them says.
    """
    if setup.image is not None:
        images.find_image(gcp, setup.image)
    volume = _volume(gcp, setup.volume, requirements) if setup.volume is not None else None
    region = _subnet_region(gcp, setup.network.subnet, requirements) if setup.network.subnet is not None else None
    if volume is not None:
        if region not in (None, ids.region_of(volume.zone)):
            raise _different_regions(volume, str(setup.network.subnet), str(region))
        return PlacementConstraint(
            ids.region_of(volume.zone), volume.zone, why=f"the volume {volume.name} is in {volume.zone}"
        )
    return PlacementConstraint(region=region, why=f"the subnet {setup.network.subnet} is in {region}" if region else "")


def _different_regions(volume: DataVolume, subnet: str, region: str) -> InvalidRequest:
    message = f"The subnet {subnet} is in {region}, and the volume {volume.name} is in {volume.zone}."
    remedy = "Leave one of them out, or name a subnet of the volume's region."
    return InvalidRequest(message, field="--volume", value=volume.name, next=remedy)


def data_volume(gcp: Gcp, item: Available, volume: Volume | None) -> DataVolume | None:
    """Return the data volume of this name in the offer's zone; None where it is still to be made, or none is wanted.

    Raises InvalidRequest where another machine uses it, or where the machine's type does not take such a disk:
    launched, this one would run without it.
    """
    if volume is None:
        return None
    volumes = ((one, _data(one)) for one in listed(gcp, gcp.ledger))
    raw, found = next(
        ((raw, one) for raw, one in volumes if (one.name, one.zone) == (volume.name, item.zone)), ({}, None)
    )
    if found is not None and found.used_by is not None:
        raise volume_in_use_error(volume, found.used_by)
    kind = ids.last(str(raw.get("type", "")))
    if kind and not accepts_disk(item.instance_type, kind):
        message = f"The volume {volume.name} is a disk of the kind {kind}, which {item.instance_type} does not take."
        remedy = "Name another volume, with a size: one of the right kind is made."
        raise InvalidRequest(message, field="--volume", value=volume.name, next=remedy)
    return found


def _data(raw: Mapping[str, Any]) -> DataVolume:
    size, zone = int(raw.get("sizeGb", 0)), ids.last(raw["zone"])
    return DataVolume(our_tags(raw)[TAG_VOLUME], raw["name"], zone, size, machine_of(raw.get("users", ())))


def _volume(gcp: Gcp, volume: Volume, requirements: Requirements) -> DataVolume | None:
    region, volumes = named_region(gcp, requirements), [_data(one) for one in listed(gcp, gcp.ledger)]
    return existing_volume(volume, volumes, requirements, region, region_of=ids.region_of, check_size=check_size)


def _subnet_region(gcp: Gcp, named: str, requirements: Requirements) -> str | None:
    """Return the region of a subnet; None where the region that is meant does not have it: resolving says so."""
    requested_region, whole = named_region(gcp, requirements), SUBNET.fullmatch(named)
    if whole is not None:
        return check_location("subnet", named, whole[1], requested_region, "--region")
    if requested_region is not None:
        return requested_region
    found, silent = aggregated(gcp, "subnetworks")
    regions = sorted({ids.last(one["region"]) for one in found if one.get("name") == named})
    if not regions:
        raise not_found_error(
            "subnet", "--subnet", named, set(), silent, "See what there is: gcloud compute networks subnets list"
        )
    # a network in automatic mode has a subnet of its own name in every region: it ties to none
    return regions[0] if len(regions) == 1 else None
