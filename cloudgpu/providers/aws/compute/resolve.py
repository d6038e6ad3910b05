"""Resolves a request at one offer: looks up image, network, quota and volume at the same time; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from cloudgpu.core.model.instances import TAG_IMAGE, TAG_LEDGER, TAG_VOLUME
from cloudgpu.core.model.launch import LaunchRequest, Setup, Volume
from cloudgpu.core.model.offers import MachineConfiguration, Market, Note, NoteKind, Requirements
from cloudgpu.errors import InvalidRequest
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import AttachedResource, PlacementConstraint, Resolved
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.client import Aws, describe, describe_all
from cloudgpu.providers.aws.compute.request import ROOT_VOLUME_TYPE, Call
from cloudgpu.providers.aws.compute.schedules import why_no_timer
from cloudgpu.providers.aws.compute.translate import tags_of
from cloudgpu.providers.aws.market import quotas
from cloudgpu.providers.aws.market.availability import named_region
from cloudgpu.providers.aws.network import network
from cloudgpu.providers.aws.storage import images
from cloudgpu.providers.aws.storage.disks import LARGEST_GB, SNAPSHOT, attachment_of
from cloudgpu.providers.aws.storage.images import AMI, ImageChoice, describe_images, own_images
from cloudgpu.providers.shared.named_volumes import (
    DataVolume,
    ambiguous_name,
    attached_resources,
    check_location,
    existing_volume,
    free_volume,
    not_found_error,
)
from cloudgpu.providers.shared.rules import (
    AGENT_SENTENCE,
    TIMER_SENTENCE,
    OpenRule,
    cloud_timer_sentence,
    disk_gb,
    on_demand_cap,
)

DEFAULT_DISK_GB = 64
CLOUD_TIMER_NAME = "AWS's own EventBridge Scheduler"


@dataclass(frozen=True, slots=True)
class _Lookups:
    """What the look-ups of one launch found: its image, network, and data volume."""

    image_choice: ImageChoice
    subnet: network.Subnet
    callers: Mapping[str, str]  # the CIDR that may reach SSH, by its rule's label: `caller`, or a name of `share`
    open_rules: tuple[OpenRule, ...]  # rules made by hand that let everybody in
    quota_remark: str | None  # for the plan, where the quota could not be checked
    volume: DataVolume | None
    uses_placement_group: bool  # the nodes of the cluster share a placement group


def resolve(aws: Aws, request: LaunchRequest, configuration: MachineConfiguration) -> Resolved:
    """Return the exact launch call of an offer, its attached costs and remarks. Reads only.

    Raises QuotaExceeded, AuthFailed, and InvalidRequest for an image, a disk, a network or a volume that cannot be.
    """
    lookups = _look_up(aws, request, configuration)
    image = lookups.image_choice.image
    size_gb = disk_gb(
        request.setup.disk_gb, image.name, image.size_gb, default=DEFAULT_DISK_GB, maximum=LARGEST_GB, limited_by="gp3"
    )
    call = Call(
        region=configuration.region,
        zone=configuration.zone,
        image=image.id,
        root_device=image.root_device,
        boot=image.boot_tag,
        disk_gb=size_gb,
        subnet=lookups.subnet.id,
        vpc=lookups.subnet.vpc_id,
        group=request.setup.network.security_group,
        callers=lookups.callers,
        profile=aws.options.instance_profile,
        ssh_port=aws.options.ssh_port,
        volume=lookups.volume.id if lookups.volume else None,
        placement=lookups.uses_placement_group,
    )
    return Resolved(
        call=asdict(call),
        attached=tuple(_attached_resources(request, configuration, size_gb, lookups.volume)),
        guards=_guards(aws, request, configuration),
        remarks=tuple(_remarks(aws, request, configuration, lookups, call)),
        driver=lookups.image_choice.driver,
        licence=image.licence,
    )


def _look_up(aws: Aws, request: LaunchRequest, configuration: MachineConfiguration) -> _Lookups:
    setup, nodes = request.setup, request.cluster.nodes if request.cluster else 1
    vcpus = None if configuration.vcpus is None else nodes * configuration.vcpus
    with Pool(5) as pool:
        image_choice = pool.submit(images.choose_image, aws, configuration, setup.image, request.template)
        network_choice = pool.submit(_choose_network, aws, request, configuration)
        quota = pool.submit(
            quotas.check, aws, configuration.region, configuration.instance_type, configuration.market, vcpus, nodes
        )
        volume = pool.submit(
            free_volume, setup.volume, configuration.zone, partial(_volumes, aws, configuration.region)
        )
        placement_support = (
            pool.submit(supports_placement_groups, aws, configuration.region, configuration.instance_type)
            if nodes > 1
            else None
        )
        chosen_network = network_choice.result()  # of several errors, always the same one is raised
        has_placement_group = placement_support is not None and placement_support.result()
        return _Lookups(image_choice.result(), *chosen_network, quota.result(), volume.result(), has_placement_group)


def _choose_network(
    aws: Aws, request: LaunchRequest, configuration: MachineConfiguration
) -> tuple[network.Subnet, Mapping[str, str], tuple[OpenRule, ...]]:
    network_setup = request.setup.network
    subnet = network.subnet(aws, configuration.region, configuration.zone, network_setup)
    if network_setup.security_group is not None:
        network.check_group(aws, configuration.region, subnet, network_setup.security_group)
        return subnet, {}, ()
    callers = network.ssh_sources(aws, configuration.region, subnet, network_setup)
    return subnet, callers, network.open_rules(aws, configuration.region, subnet.vpc_id, request.owner)


def _attached_resources(
    request: LaunchRequest, configuration: MachineConfiguration, disk_gb: int, volume: DataVolume | None
) -> Iterator[AttachedResource]:
    system_disk, *others = attached_resources(
        request.setup, configuration, disk_gb, ROOT_VOLUME_TYPE, volume, lambda _size: ROOT_VOLUME_TYPE
    )
    yield replace(system_disk, while_stopped=configuration.stoppable)
    if request.setup.keep_disk and not configuration.stoppable:
        # Such a machine is parked by `stop`: it ends, and `start` launches it again from an image of its disk.
        image = f"image of {disk_gb} GB while parked"
        yield AttachedResource(image, SNAPSHOT, disk_gb, while_stopped=True, while_running=False)
    yield from others


def _max_spot_price_text(configuration: MachineConfiguration) -> str:
    """Return a sentence on what a spot machine costs at most: EC2 caps it at the on-demand price by default."""
    return (
        f"the spot price can rise up to the on-demand price, {on_demand_cap(configuration)}; above it EC2 takes the "
        "machine. --max-price sets a lower limit"
    )


def _guards(aws: Aws, request: LaunchRequest, configuration: MachineConfiguration) -> tuple[str, ...]:
    ends_it = configuration.market is Market.SPOT and not request.setup.persistent
    disk = "its disk stays" if request.setup.keep_disk or not ends_it else "its disk is deleted"
    action = "ends" if ends_it else "stops"
    timer = () if why_no_timer(aws) else (cloud_timer_sentence(CLOUD_TIMER_NAME, action),)
    return AGENT_SENTENCE, f"{TIMER_SENTENCE}, which {action} it; {disk}", *timer


def _remarks(
    aws: Aws, request: LaunchRequest, configuration: MachineConfiguration, lookups: _Lookups, call: Call
) -> Iterator[str]:
    yield from (Note(one.risk, NoteKind.ACCESS) for one in lookups.open_rules)
    yield from lookups.image_choice.remarks
    if configuration.market is Market.SPOT and request.requirements.max_price is None:
        yield Note(_max_spot_price_text(configuration), NoteKind.MONEY)
    if request.setup.volume is not None:
        yield f"the volume {request.setup.volume.name} is bound to {configuration.zone}: only machines there can use it"
    if call.profile is None:
        yield (
            "without an instance profile the machine cannot report when it was last used, so idle cannot be evaluated "
            f"from outside. cloudgpu init aws makes one (accounts.{request.account}.instance_profile)"
        )
    if why_no_timer(aws):
        yield Note(why_no_timer(aws), NoteKind.GUARD)
    if lookups.quota_remark is not None:
        yield lookups.quota_remark
    if request.cluster is not None:
        yield from _cluster_remarks(request.cluster.nodes, request, configuration, lookups)


def _cluster_remarks(
    nodes: int, request: LaunchRequest, configuration: MachineConfiguration, lookups: _Lookups
) -> Iterator[str]:
    if lookups.uses_placement_group:
        zone = configuration.zone
        yield f"the {nodes} machines are placed close together in {zone} (a cluster placement group, free)"
    elif nodes > 1:
        size = configuration.instance_type
        yield f"{size} takes no cluster placement group, so the machines may be far from each other"
    if request.setup.network.public_ip:
        yield Note(
            f"each of the {nodes} machines has a public address; from outside, only SSH from the caller is let in",
            NoteKind.ACCESS,
        )
    if configuration.market is Market.SPOT and not request.setup.persistent:
        yield "no disk of a cluster's spot machines is kept when AWS takes one, or when it ends by itself"


_USABLE_STATES_FILTER = {"Name": "status", "Values": ["creating", "available", "in-use"]}
_DATA_VOLUMES_FILTER = {"Name": "tag-key", "Values": [TAG_VOLUME]}


def constraint(aws: Aws, setup: Setup, requirements: Requirements) -> PlacementConstraint:
    """Return the region of an own image, the zone of a volume or a subnet of `setup`; no call without one.

    One call per region for a volume, and for an image or a subnet that is not named in a known region. Raises
    InvalidRequest for one that does not exist, or that lies elsewhere than `requirements` or another of them says.
    """
    region = _image_region(aws, setup.image, requirements) if setup.image is not None else None
    volume = _volume(aws, setup.volume, requirements) if setup.volume is not None else None
    if volume is not None:
        _check_same_region(setup.image, region, volume)
        return PlacementConstraint(
            ids.region_of(volume.zone), volume.zone, why=f"the volume {volume.name} is in {volume.zone}"
        )
    subnet = setup.network.subnet
    zone = _subnet_zone(aws, subnet, requirements, region) if subnet is not None and requirements.zone is None else None
    if zone is not None:
        return PlacementConstraint(ids.region_of(zone), zone, why=f"the subnet {subnet} is in {zone}")
    return PlacementConstraint(region=region, why=f"the image {setup.image} is in {region}" if region else "")


def _check_same_region(image: str | None, region: str | None, volume: DataVolume) -> None:
    if region not in (None, ids.region_of(volume.zone)):
        raise InvalidRequest(
            f"The image {image} is in {region}, and the volume {volume.name} is in {volume.zone}.",
            field="--volume",
            value=volume.name,
            next="Leave one of them out, or make the image in the volume's region.",
        )


# Images


def _image_region(aws: Aws, name_or_id: str, requirements: Requirements) -> str | None:
    """Return the one region of an image, by its id or name. For an id, a requested region is returned unchecked."""
    target_region, id_match = named_region(aws, requirements), AMI.fullmatch(name_or_id)
    if id_match and id_match["region"]:
        return check_location("image", name_or_id, id_match["region"], target_region, "--region")
    if id_match and target_region:
        return target_region
    answers, unanswered = aws.ask_each(
        aws.regions(), lambda region: _image_names(aws, region, id_match["id"] if id_match else None)
    )
    without_region = id_match["id"] if id_match else name_or_id
    regions = [region for region, names in answers.items() if without_region in names]
    if not regions:
        names_seen = {name for names in answers.values() for name in names}
        raise not_found_error("image", "--image", name_or_id, names_seen, unanswered, "See them: cloudgpu image ls")
    if target_region is None and len(regions) > 1:
        raise ambiguous_name(f"Images called {name_or_id!r}", sorted(regions), "--region")
    return (
        target_region
        if target_region in regions
        else check_location("image", name_or_id, regions[0], target_region, "--region")
    )


def _image_names(aws: Aws, region: str, id_: str | None) -> Sequence[str]:
    """Return the names of this ledger's images in a region, or this id where the region has it."""
    if id_ is not None:
        return [one.id for one in describe_images(aws, region, ImageIds=[id_])]
    return [one.tags[TAG_IMAGE] for one in own_images(aws, region, {"Name": "tag-key", "Values": [TAG_IMAGE]})]


# Volumes


def _volume(aws: Aws, volume: Volume, requirements: Requirements) -> DataVolume | None:
    requested = named_region(aws, requirements)
    answers, unanswered = aws.ask_each(aws.regions(), lambda region: _volumes(aws, region))
    volumes = [one for region in sorted(answers) for one in answers[region]]
    return existing_volume(
        volume,
        volumes,
        requirements,
        requested,
        region_of=ids.region_of,
        sizes_gb=(1, LARGEST_GB),
        limit_sentence=f"gp3 has {LARGEST_GB:,} GB at most",
        unanswered=unanswered,
    )


def _volumes(aws: Aws, region: str) -> list[DataVolume]:
    """Return the data volumes of a region: those of this ledger, since another's are not attached either."""
    filters = [
        _USABLE_STATES_FILTER,
        _DATA_VOLUMES_FILTER,
        *([{"Name": f"tag:{TAG_LEDGER}", "Values": [aws.ledger]}] if aws.ledger else []),
    ]
    return [_to_volume(region, one) for one in describe_all(aws, "DescribeVolumes", region, Filters=filters)]


def _to_volume(region: str, raw: Mapping[str, Any]) -> DataVolume:
    attachment = attachment_of(raw)
    return DataVolume(
        tags_of(raw)[TAG_VOLUME],
        raw["VolumeId"],
        raw["AvailabilityZone"],
        raw["Size"],
        ids.join_id(region, attachment["InstanceId"]) if attachment and attachment["State"] != "detaching" else None,
    )


# Subnets


def _subnet_zone(aws: Aws, id_: str, requirements: Requirements, region: str | None) -> str | None:
    """Return the zone of a subnet; None where the requested region does not have it: `resolve` raises for it."""
    region = region or named_region(aws, requirements)
    if region is not None:
        return _subnet_zone_in(aws, region, id_)
    answers, unanswered = aws.ask_each(aws.regions(), lambda name: _subnet_zone_in(aws, name, id_))
    zones = [zone for zone in answers.values() if zone is not None]
    if not zones:
        remedy = "See what there is: aws ec2 describe-subnets --region REGION"
        raise not_found_error("subnet", "--subnet", id_, set(), unanswered, remedy)
    return zones[0]


def _subnet_zone_in(aws: Aws, region: str, id_: str) -> str | None:
    filters = [{"Name": "subnet-id", "Values": [id_]}]  # by a filter one that is not there is no error
    found = describe(aws, "DescribeSubnets", region, value=id_, Filters=filters)
    return str(found[0]["AvailabilityZone"]) if found else None


def supports_placement_groups(aws: Aws, region: str, name: str) -> bool:
    """Say whether machines of a type can be in a cluster placement group. One call."""
    found = describe(aws, "DescribeInstanceTypes", region, value=name, InstanceTypes=[name])
    return any("cluster" in one.get("PlacementGroupInfo", {}).get("SupportedStrategies", ()) for one in found)
