"""Makes a request at one offer exact: image, network, quota and volume looked up side by side; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from cloudgpu.catalog.read import listed_price
from cloudgpu.core.model.launch import LaunchRequest
from cloudgpu.core.model.offers import Available, Market, Note, NoteKind
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import AttachedResource, Resolved
from cloudgpu.providers.aws.client import KIND
from cloudgpu.providers.aws.compute.placement import data_volume, is_placeable
from cloudgpu.providers.aws.compute.request import ROOT_KIND, Call
from cloudgpu.providers.aws.compute.schedules import no_timer
from cloudgpu.providers.aws.market import quotas
from cloudgpu.providers.aws.network import network
from cloudgpu.providers.aws.storage import images
from cloudgpu.providers.aws.storage.disks import LARGEST_GB, SNAPSHOT
from cloudgpu.providers.aws.storage.images import Choice, Image
from cloudgpu.providers.shared.named_volumes import Data, attached
from cloudgpu.providers.shared.rules import AGENT, TIMER, Opening, disk_gb, in_the_cloud

if TYPE_CHECKING:
    from cloudgpu.providers.aws.client import Aws

DEFAULT_GB = 64
PUBLIC_ADDRESS = "public_ipv4"  # as the price list calls it
IN_THE_CLOUD = "AWS's own EventBridge Scheduler"


@dataclass(frozen=True, slots=True)
class _Found:
    """What the look-ups found."""

    choice: Choice
    subnet: network.Subnet
    callers: Mapping[str, str]
    openings: tuple[Opening, ...]
    quota: str | None
    volume: Data | None
    placement: bool


def resolve(aws: Aws, request: LaunchRequest, item: Available) -> Resolved:
    """Return the exact launch call of an offer, its attached costs and remarks. Reads only.

    Raises QuotaExceeded, AuthFailed, and InvalidRequest for an image, a disk, a network or a volume that cannot be.
    """
    found = _look_up(aws, request, item)
    disk_gb = _disk_gb(request, found.choice.image)
    call = Call(
        region=item.region,
        zone=item.zone,
        image=found.choice.image.id,
        root_device=found.choice.image.root_device,
        boot=found.choice.image.boot,
        disk_gb=disk_gb,
        subnet=found.subnet.id,
        vpc=found.subnet.vpc,
        group=request.setup.network.security_group,
        callers=found.callers,
        profile=aws.options.instance_profile,
        ssh_port=aws.options.ssh_port,
        volume=found.volume.id if found.volume else None,
        placement=found.placement,
    )
    return Resolved(
        call=asdict(call),
        attached=tuple(_attached(request, item, disk_gb, found.volume)),
        guards=_guards(aws, request, item),
        remarks=tuple(_remarks(aws, request, item, found, call)),
        driver=found.choice.driver,
        licence=found.choice.image.licence,
    )


def _look_up(aws: Aws, request: LaunchRequest, item: Available) -> _Found:
    setup, nodes = request.setup, request.cluster.nodes if request.cluster else 1
    vcpus = None if item.vcpus is None else nodes * item.vcpus
    with Pool(5) as pool:
        choice = pool.submit(images.chosen, aws, item, setup.image, request.template)
        placement = pool.submit(_choose_network, aws, request, item)
        quota = pool.submit(quotas.check, aws, item.region, item.instance_type, item.market, vcpus, nodes)
        volume = pool.submit(data_volume, aws, item, setup.volume)
        close = pool.submit(is_placeable, aws, item.region, item.instance_type) if nodes > 1 else None
        where = placement.result()  # the first fault in this order is said, whichever came first
        placed = close is not None and close.result()
        return _Found(choice.result(), *where, quota.result(), volume.result(), placed)


def _choose_network(
    aws: Aws, request: LaunchRequest, item: Available
) -> tuple[network.Subnet, Mapping[str, str], tuple[Opening, ...]]:
    wanted = request.setup.network
    subnet = network.subnet(aws, item.region, item.zone, wanted)
    if wanted.security_group is not None:
        network.check_group(aws, item.region, subnet, wanted.security_group)
        return subnet, {}, ()
    callers = network.ssh_sources(aws, item.region, subnet, wanted)
    return subnet, callers, network.openings(aws, item.region, subnet.vpc, request.owner)


def _disk_gb(request: LaunchRequest, image: Image) -> int:
    wished = request.setup.disk_gb
    return disk_gb(wished, image.name, image.size_gb, default=DEFAULT_GB, maximum=LARGEST_GB, whose="gp3")


def _attached(request: LaunchRequest, item: Available, disk_gb: int, volume: Data | None) -> Iterator[AttachedResource]:
    disk, *others = attached(request.setup, disk_gb, ROOT_KIND, PUBLIC_ADDRESS, volume, lambda _size: ROOT_KIND)
    yield replace(disk, while_stopped=item.stoppable)
    if request.setup.keep_disk and not item.stoppable:
        image = f"image of {disk_gb} GB while parked"
        yield AttachedResource(image, SNAPSHOT, disk_gb, while_stopped=True, while_running=False)
    yield from others


def _may_rise(item: Available) -> str:
    """Say what a spot machine may come to cost: EC2 caps it at the on-demand price where no maximum is named."""
    dearest = listed_price(KIND, item.instance_type, item.region, Market.ON_DEMAND)
    most = f"{dearest.per_hour.text(4)} an hour (listed {dearest.as_of:%Y-%m-%d})" if dearest else "not known here"
    return (
        f"the spot price can rise up to the on-demand price, {most}; above it EC2 takes the machine. --max-price sets "
        "a lower limit"
    )


def _guards(aws: Aws, request: LaunchRequest, item: Available) -> tuple[str, ...]:
    ends = item.market is Market.SPOT and not request.setup.persistent
    disk = "its disk stays" if request.setup.keep_disk or not ends else "its disk is deleted"
    does = "ends" if ends else "stops"
    cloud = () if no_timer(aws) else (in_the_cloud(IN_THE_CLOUD, does),)
    return AGENT, f"{TIMER}, which {does} it; {disk}", *cloud


def _remarks(aws: Aws, request: LaunchRequest, item: Available, found: _Found, call: Call) -> Iterator[str]:
    yield from (Note(one.risk, NoteKind.ACCESS) for one in found.openings)
    yield from found.choice.remarks
    if item.market is Market.SPOT and request.want.max_price is None:
        yield Note(_may_rise(item), NoteKind.MONEY)
    if request.setup.volume is not None:
        yield f"the volume {request.setup.volume.name} is bound to {item.zone}: only machines there can use it"
    if call.profile is None:
        yield (
            "without an instance profile the machine cannot report when it was last used, so idle cannot be evaluated "
            f"from outside. cloudgpu init aws makes one (accounts.{request.account}.instance_profile)"
        )
    if no_timer(aws):
        yield Note(no_timer(aws), NoteKind.GUARD)
    if found.quota is not None:
        yield found.quota
    if request.cluster is not None:
        yield from _of_cluster(request.cluster.nodes, request, item, found)


def _of_cluster(nodes: int, request: LaunchRequest, item: Available, found: _Found) -> Iterator[str]:
    if found.placement:
        yield f"the {nodes} machines are placed close together in {item.zone} (a cluster placement group, free)"
    elif nodes > 1:
        yield f"{item.instance_type} takes no cluster placement group, so the machines may be far from each other"
    if request.setup.network.public_ip:
        yield Note(
            f"each of the {nodes} machines has a public address; from outside, only SSH from the caller is let in",
            NoteKind.ACCESS,
        )
    if item.market is Market.SPOT and not request.setup.persistent:
        yield "no disk of a cluster's spot machines is kept when AWS takes one, or when it ends by itself"
