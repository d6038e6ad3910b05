"""Makes a request at one offer exact: image, network, quota and volume looked up side by side; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from cloudgpu.catalog.disktypes import HYPERDISK, disk_type
from cloudgpu.core.model.launch import LaunchRequest
from cloudgpu.core.model.offers import Available, Market, Note, NoteKind
from cloudgpu.errors import CloudgpuError, NoCapacity
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import Resolved
from cloudgpu.providers.gcp.compute.machine_types import Shape, named
from cloudgpu.providers.gcp.compute.placement import data_volume
from cloudgpu.providers.gcp.compute.request import LONGEST, Call
from cloudgpu.providers.gcp.errors import is_gone
from cloudgpu.providers.gcp.market import quotas
from cloudgpu.providers.gcp.network import firewall as access
from cloudgpu.providers.gcp.network import network
from cloudgpu.providers.gcp.storage import images
from cloudgpu.providers.gcp.storage.images import Choice, Image
from cloudgpu.providers.gcp.storage.volumes import DEVICE, LARGEST_GB
from cloudgpu.providers.shared.named_volumes import attached
from cloudgpu.providers.shared.rules import AGENT, TIMER, by_their_rules, disk_gb, in_the_cloud

if TYPE_CHECKING:
    from cloudgpu.providers.gcp.client import Gcp
    from cloudgpu.providers.shared.named_volumes import Data

DEFAULT_GB = 64
ADDRESSES = {Market.ON_DEMAND: "external_ip_on_standard_vm", Market.SPOT: "external_ip_on_spot_vm"}
IN_THE_CLOUD = "Google's own maxRunDuration"
NEEDS_CLOUD_INIT = ("cloud_init",)  # what an image without it cannot run


@dataclass(frozen=True, slots=True)
class _Found:
    """What the look-ups found."""

    choice: Choice
    network_placement: network.NetworkPlacement
    callers: Mapping[str, str]
    risks: Sequence[str]  # who can connect beside them
    unchecked: Sequence[str]  # what could not be asked
    volume: Data | None


def resolve(gcp: Gcp, request: LaunchRequest, item: Available) -> Resolved:
    """Return the exact launch call of an offer, its attached costs and remarks. Reads only.

    Raises NoCapacity where the zone does not have the machine type, QuotaExceeded, AuthFailed, and InvalidRequest for
    an image, a disk, a network or a volume that cannot be.
    """
    notes = by_their_rules(request, "firewall rules for that tag have")
    wanted = named(item.instance_type)
    found = _look_up(gcp, request, item, wanted)
    image = found.choice.image
    shielded = image.shielded and image.machine != "arm64"  # whether Arm machines take it is unverified
    call = Call(
        project=gcp.project,
        zone=item.zone,
        machine_type=wanted.machine_type,
        image=image.id,
        disk_gb=_disk_gb(request, image),
        disk_type=disk_type(wanted.machine_type),
        network=found.network_placement.network,
        subnet=found.network_placement.subnet,
        callers=found.callers,
        ssh_port=gcp.options.ssh_port,
        accelerator=wanted.accelerator if wanted.attached else "",
        accelerators=wanted.count if wanted.attached else 0,
        tag=request.setup.network.security_group,
        service_account=gcp.options.service_account,
        cloud_init=image.cloud_init is not False,
        installs_driver=image.installs_driver and bool(item.accelerators),
        shielded=shielded,
        secure_boot=shielded and not item.accelerators,  # NVIDIA's modules are not signed for it
        volume=DEVICE if request.setup.volume else "",
        host_key="reads" if image.cloud_init is False else "",
        scratch=wanted.scratch,
    )
    kind, address = call.disk_type, ADDRESSES[item.market]
    billed = attached(request.setup, call.disk_gb, kind, address, found.volume, lambda _size: kind)
    return Resolved(
        call=asdict(call),
        attached=tuple(billed),
        guards=_guards(),
        remarks=(*notes, *_remarks(gcp, request, item, found, call)),
        left_out=() if call.cloud_init else NEEDS_CLOUD_INIT,
        driver=found.choice.driver,
        licence=image.licence,
    )


def _look_up(gcp: Gcp, request: LaunchRequest, item: Available, wanted: Shape) -> _Found:
    setup, nodes = request.setup, request.cluster.nodes if request.cluster else 1
    with Pool(5) as pool:
        offered = pool.submit(_check_offered, gcp, item, wanted)
        choice = pool.submit(images.chosen, gcp, item, setup.image, request.template)
        placement = pool.submit(_network_placement, gcp, request, item)
        quota = pool.submit(quotas.check, gcp, item.region, item.instance_type, item.market, nodes)
        volume = pool.submit(data_volume, gcp, item, setup.volume)
        unasked = offered.result()  # the first fault in this order is said, whichever came first
        where, callers, risks = placement.result()
        return _Found(choice.result(), where, callers, risks, [*unasked, *quota.result()], volume.result())


def _check_offered(gcp: Gcp, item: Available, wanted: Shape) -> list[str]:
    """Raise NoCapacity where a zone that has the GPU does not have the machine type. One call.

    Where it cannot be asked that is returned, for the plan: the launch itself will tell.
    """
    kind = wanted.machine_type
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
        return [one.risk for one in access.openings(gcp, network)]
    except CloudgpuError as error:
        return [f"whether a firewall rule lets everybody in could not be asked: {error.message}"]


def _disk_gb(request: LaunchRequest, image: Image) -> int:
    wished = request.setup.disk_gb
    return disk_gb(wished, image.name, image.size_gb, default=DEFAULT_GB, maximum=LARGEST_GB, whose="Google")


def _guards() -> tuple[str, ...]:
    return AGENT, f"{TIMER}, which stops it; its disk stays", in_the_cloud(IN_THE_CLOUD, "stops")


def _remarks(gcp: Gcp, request: LaunchRequest, item: Available, found: _Found, call: Call) -> Iterator[str]:
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
    if request.renew_s > LONGEST.total_seconds():
        yield f"Google stops it after {LONGEST.days} days in any case: its timer cannot be set later"
    if gcp.options.service_account:
        yield f"what runs on it acts as {gcp.options.service_account}, as config.toml says"
    yield from found.unchecked
