"""What holds on every cloud: who may open SSH, and which types, images, disks and regions match a request.

Also how a plain image gets NVIDIA's driver, the plan's sentences about what ends a machine that boots our user data,
and what a plan and `doctor` say of firewall rules that let everybody in and are not cloudgpu's.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from cloudgpu.catalog import driver_for, instance_type, listed_price, public_images
from cloudgpu.core.catalog.catalog import InstanceType
from cloudgpu.core.catalog.gpus import PublicImage
from cloudgpu.core.model.account import Region
from cloudgpu.core.model.instances import TAG_ID, TAG_IMAGE, TAG_LEDGER, TAG_VOLUME
from cloudgpu.core.model.launch import LaunchRequest, Network
from cloudgpu.core.model.offers import Accelerator, MachineConfiguration, Market, Requirements, same_gpu
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.core.values.network import MIN_PREFIX_LENGTH
from cloudgpu.errors import CloudgpuError, InstanceNotFound, InvalidRequest
from cloudgpu.providers.account_abilities import AccountFinding

# Labels of firewall rules: of an address that the user connects from, and of the network's own addresses, where none is
# known (behind a jump host).
CALLER, INSIDE = "caller", "inside"


def gpus_of(kind: str, name: str) -> tuple[Accelerator, ...]:
    """Return the GPUs of an instance type (`name`) of the provider `kind`; none where the catalogue has not got it."""
    try:
        return (instance_type(kind, name).gpu,)
    except InvalidRequest:
        return ()


def ssh_sources(network: Network, *own_cidrs: str) -> dict[str, str]:
    """Return the CIDRs that may open SSH at a launch, by label: `--ssh-from`, or the network's `own_cidrs` without it.

    Nobody is named for a machine without a public address or behind a jump host: it is reached from the inside.
    """
    label, cidrs = (CALLER, network.ssh_from) if network.ssh_from else (INSIDE, own_cidrs)
    return {label if number == 1 else f"{label}-{number}": cidr for number, cidr in enumerate(cidrs, 1)}


def time_of_tag(text: str) -> datetime | None:
    """Return the time of a tag's value in epoch seconds, aware UTC; None for any other text."""
    return datetime.fromtimestamp(int(text), UTC) if re.fullmatch(r"[1-9]\d{0,10}", text) else None


DRIVER_TEMPLATE = "cuda"  # this template installs NVIDIA's driver itself, so its image must have none


def wants_driver_image(offer: MachineConfiguration, template: str) -> bool:
    """Say whether this offer is to boot an image with NVIDIA's current driver: its GPU and its template allow that."""
    driver = driver_for(offer.accelerators[0].name) if offer.accelerators else None
    return driver is not None and driver.is_current and template != DRIVER_TEMPLATE


def wanted_images(kind: str, offer: MachineConfiguration, architecture: str, template: str) -> Sequence[PublicImage]:
    """Return the public images of the provider `kind` for an offer, the preferred one first."""
    if wants_driver_image(offer, template):
        return public_images(kind, "cuda", architecture)
    plain = public_images(kind, "plain", architecture)
    driver = driver_for(offer.accelerators[0].name) if offer.accelerators else None
    return tuple(image for image in plain if driver is None or image.system == (driver.system or image.system))


def driver_install(
    offer: MachineConfiguration, image: str, template: str
) -> tuple[Mapping[str, str] | None, tuple[str, ...]]:
    """Return the settings with which DRIVER_TEMPLATE installs a driver on a plain image, and sentences for the plan.

    `image` is the image's name. No settings (None): no driver is installed.
    """
    if not offer.accelerators:
        return None, ()
    gpu = offer.accelerators[0].name
    driver = driver_for(gpu)
    if driver is None:
        return None, (f"no NVIDIA driver for {gpu} is known, so none is installed on {image}",)
    template_settings = {"driver": driver.driver, "toolkit": driver.toolkit}
    unverified_text = f" ({driver.unverified}: unverified)" if driver.unverified else ""
    if template == DRIVER_TEMPLATE:
        message = (
            f"the template {template} has to be set to driver {driver.driver} and toolkit {driver.toolkit} for {gpu}"
        )
        return None, (f"{message}{unverified_text}",) if driver.system else ()
    message = (
        f"{gpu} ({driver.family}) needs an older driver: cloud-init installs {driver.driver} and {driver.toolkit} in "
        f"the first minutes, on {image}{unverified_text}"
    )
    return template_settings, (message,)


def driver_remarks(offer: MachineConfiguration, image: str, tags: Mapping[str, str]) -> tuple[str, ...]:
    """Return the plan's remark on an image that the user named: its driver is not known; none for an image of ours.

    cloudgpu made an image with one of these tags from a machine, which had its driver.
    """
    if not offer.accelerators or TAG_ID in tags or TAG_IMAGE in tags:
        return ()
    return (f"whether the image {image} has a driver for {offer.accelerators[0].name} is not known",)


def check_processor(image: str, image_processor: str, offer: MachineConfiguration, processor: str) -> None:
    """Raise InvalidRequest for an image of another processor (`x86_64`, `arm64`) than the offer has."""
    if image_processor != processor:
        raise InvalidRequest(
            f"The image {image} is for {image_processor} processors, and {offer.instance_type} has an {processor} one.",
            field="--image",
            value=image,
            next=f"Name an image for {processor}, or leave --image out.",
        )


def on_demand_cap(offer: MachineConfiguration) -> str:
    """Return the on-demand price of an offer, to which its spot price can rise, as words for the plan."""
    listed = listed_price(offer.provider, offer.instance_type, offer.region, Market.ON_DEMAND)
    return f"{listed.per_hour.text(4)} an hour (listed {listed.as_of:%Y-%m-%d})" if listed else "not known here"


def matches_requirements(machine_type: InstanceType, requirements: Requirements) -> bool:
    """Say whether a type of the catalogue is what the request asks for.

    A type with a share of a GPU matches only by its name. A legacy type, which may not be launched any more, matches
    where it, or its GPU, was asked for: what the cloud offers decides, not the catalogue.
    """
    if requirements.instance_type is not None and requirements.instance_type != machine_type.name:
        return False
    if requirements.gpu is not None and not (
        same_gpu(machine_type.gpu.name, requirements.gpu) and machine_type.gpu.count == requirements.gpu_count
    ):
        return False
    if requirements.instance_type is None and machine_type.gpu.share < 1:
        return False
    return not machine_type.legacy_reason or requirements.gpu is not None or requirements.instance_type is not None


# What a plan says of what ends the machine.
AGENT_SENTENCE = "the agent on the machine (idle time, lease; it renews while somebody works)"
TIMER_SENTENCE = (
    "a timer on the machine, apart from the agent, that reads the lease from the machine's own tags and powers it off"
)


def cloud_timer_sentence(what: str, does: str) -> str:
    """Return the plan's sentence about a timer in the cloud: `what` it is, and its verb (`does`: "stops", say)."""
    return f"a timer in the cloud, {what}, {does} it at its renew-until if everything else fails"


MIN_IPV6_PREFIX_LENGTH = 16  # the largest IPv6 networks that registries give to one holder are far smaller
ANY_SOURCE_NAMES = ("*", "any", "internet")  # what Azure writes for every address
OPEN_RULES_FINDING = "rules made by hand"  # the name of doctor's finding


@dataclass(frozen=True, slots=True)
class OpenRule:
    """A firewall rule that lets everybody in: `message` is a clause about it, `delete_command` deletes it."""

    message: str
    delete_command: str

    @property
    def risk(self) -> str:
        """The sentence for a plan."""
        return f"RISK: {self.message}. Close it: {self.delete_command}"


def is_open_to_all(source: str) -> bool:
    """Say whether a source (a CIDR, or a name of ANY_SOURCE_NAMES) is everybody, or too wide to have one holder."""
    if source.lower() in ANY_SOURCE_NAMES:
        return True
    try:
        network = ipaddress.ip_network(source, strict=False)
    except ValueError:
        return False
    return network.prefixlen < (MIN_PREFIX_LENGTH if network.version == 4 else MIN_IPV6_PREFIX_LENGTH)  # noqa: PLR2004  (IPv4)


def open_rules_finding(open_rules: Sequence[OpenRule], ok_message: str) -> AccountFinding:
    """Return doctor's finding: which rules are open and how to close them, or the sentence `ok_message` for none."""
    if not open_rules:
        return AccountFinding(OPEN_RULES_FINDING, is_ok=True, message=ok_message)
    message, remedy = (
        "; ".join(rule.message for rule in open_rules),
        "; ".join(rule.delete_command for rule in open_rules),
    )
    return AccountFinding(OPEN_RULES_FINDING, is_ok=False, message=message, next=f"If nobody needs it: {remedy}")


def unknown_finding(what: str, error: CloudgpuError) -> AccountFinding:
    """Return doctor's finding of a check (`what`) that was not possible."""
    return AccountFinding(what, is_ok=None, message=error.message, next=error.next or "Run it again.")


def disk_gb(
    requested: int | None,
    image: str,
    minimum: int,
    *,
    default: int,
    maximum: int,
    limited_by: str,
    disk: str = "system disk",
) -> int:
    """Return how large the system disk is to be, in GB: what was requested, else the default.

    `minimum` is what `image` needs, `maximum` what `limited_by` (a type of disks, a provider) has; `disk` names the
    disk in messages. Raises InvalidRequest for a size outside them.
    """
    if requested is None:
        return max(default, minimum)
    if minimum <= requested <= maximum:
        return requested
    limit = f"{image} needs {minimum}" if requested < minimum else f"{limited_by} has {maximum:,}"
    bound = "at least" if requested < minimum else "at most"
    raise InvalidRequest(
        f"A {disk} of {requested:,} GB cannot be: {limit} GB {bound}.",
        field="--disk",
        value=str(requested),
        next=f"Ask for {max(1, minimum)} to {maximum} GB.",
    )


def check_saved_image(name: str, found: Mapping[str, str], tags: Mapping[str, str], region: str) -> None:
    """Raise InvalidRequest where an image or snapshot that was found by its name is not the one to be saved.

    `found` are its tags, `tags` those that the image gets. It may be of another ledger, or of another machine: somebody
    else saves under the same name just now, or a snapshot was left whose image was never made.
    """
    if found.get(TAG_LEDGER) != tags.get(TAG_LEDGER):
        message = f"An image called {name} is in {region} already, and it is not of this ledger."
        raise InvalidRequest(message, field="--name", value=name, next="Choose another --name.")
    if found.get(TAG_ID) and tags.get(TAG_ID) and found[TAG_ID] != tags[TAG_ID]:
        message = f"An image called {name} is in {region} already, and it is of another machine."
        remedy = f"Choose another --name, or remove that one: cloudgpu image rm {found.get(TAG_IMAGE, name)}"
        raise InvalidRequest(message, field="--name", value=name, next=remedy)


def source_not_found_error(cloud: str, source: str) -> InstanceNotFound:
    """Return the error for an id from which an image is to be made, and which names no machine and no disk."""
    message = f"{cloud} has no machine and no disk {source}."
    return InstanceNotFound(message, field="id", value=source, next="Run: cloudgpu ls --refresh")


def check_is_system_disk(id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
    """Raise InvalidRequest where an image is to be made of a data volume."""
    if TAG_VOLUME in tags:
        message = f"{id} is a data volume: it holds no system to start from."
        raise InvalidRequest(message, field="id", value=id, next="Name a machine.")


def requested_region(
    requirements: Requirements,
    region_of: Callable[[str], str | None],
    no_zone: str,
    remedy: str,
    *,
    check: Callable[[str], None],
) -> str | None:
    """Return the region that the request names, itself or by its zone; None where it names none.

    `region_of` returns a zone's region, None for what is no zone; `check` raises for a region that the account does not
    use. Raises InvalidRequest for what is no zone (`no_zone` completes "'x' is ...", `remedy` says how one is written),
    or for a zone of another region than the requested one.
    """
    zone, region = requirements.zone, requirements.region
    if zone is not None:
        zone_region = region_of(zone)
        if zone_region is None:
            raise InvalidRequest(f"{zone!r} is {no_zone}.", field="--zone", value=zone, next=remedy)
        if region not in (None, zone_region):
            message = f"The zone {zone} is in {zone_region}, not in {region}."
            remedy = f"Leave --region out, or name {zone_region}."
            raise InvalidRequest(message, field="--zone", value=zone, next=remedy)
        region = zone_region
    if region is not None:
        check(region)
    return region


def check_region_exists(
    region: str, known: Collection[str], read_regions: Callable[[], Sequence[str]], message: str
) -> None:
    """Raise InvalidRequest, with `message` and a similar name, for a region that is neither `known` nor read.

    No call for one that is known.
    """
    if region in known:
        return
    names = read_regions()
    if region not in names:
        raise unknown_word(message, region, names, field="--region", use="Use {}.")


def region_at(name: str, url: str) -> Region:
    """Return a region with the host and port of a URL that answers there."""
    parts = urlsplit(url)
    return Region(name, parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443))


def excluded_place_error(
    account: str, option: str, name: str, settings: str = "regions or exclude_regions"
) -> InvalidRequest:
    """Return the error for a region or a zone that an account's settings leave out."""
    message = f"Account {account} does not use {name}: its settings leave it out, so ls would miss the machine."
    remedy = f"Change {settings} of accounts.{account} in config.toml."
    return InvalidRequest(message, field=option, value=name, next=remedy)


def cluster_firewall_notes(request: LaunchRequest, have: str) -> Sequence[str]:
    """Return the plan's note for a cluster whose firewall rules are the user's own (`--security-group`); none else.

    `have` completes "your ... to let the machines reach each other": "firewall rules for that tag have".
    """
    cluster = request.cluster
    if cluster is None or cluster.nodes == 1 or request.setup.network.security_group is None:
        return ()
    return (f"your {have} to let the {cluster.nodes} machines reach each other on every port: cloudgpu opens none",)
