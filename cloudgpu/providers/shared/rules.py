"""Judges what is the same on every cloud: who may open SSH, which types, images, disks and regions a request means.

It also says how a plain image gets NVIDIA's driver, which layers end a machine that boots our data, in the words of the
plan, and what a plan and `doctor` say of rules that let everybody in and are not cloudgpu's.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cloudgpu.catalog import driver_for, instance_type, public_images
from cloudgpu.core.catalog.catalog import InstanceType
from cloudgpu.core.catalog.gpus import PublicImage
from cloudgpu.core.model.launch import LaunchRequest, Network
from cloudgpu.core.model.offers import Accelerator, Available, Requirements, same_gpu
from cloudgpu.core.values.network import MIN_PREFIX_LENGTH
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.account_abilities import Finding

CALLER = "caller"
INSIDE = "inside"  # the network's own addresses, where no address of a caller is known: behind a jump host


def gpus_of(kind: str, name: str) -> tuple[Accelerator, ...]:
    """Return the GPUs of a type by the catalogue; none for a type that it does not have."""
    try:
        return (instance_type(kind, name).gpu,)
    except InvalidRequest:
        return ()


def ssh_sources(network: Network, own_cidr: str) -> dict[str, str]:
    """Return who may open SSH at a launch, by label: `--ssh-from`, or the network itself where nobody is named.

    Nobody is named for a machine without a public address or behind a jump host: it is reached from the inside.
    """
    if not network.ssh_from:
        return {INSIDE: own_cidr}
    return {CALLER if number == 1 else f"{CALLER}-{number}": cidr for number, cidr in enumerate(network.ssh_from, 1)}


def time_of_tag(text: str) -> datetime | None:
    """Return the time that a tag holds in epoch seconds, aware UTC; None for a text that is none."""
    return datetime.fromtimestamp(int(text), UTC) if re.fullmatch(r"[1-9]\d{0,10}", text) else None


DRIVER_TEMPLATE = "cuda"  # it installs a driver itself, so its image must have none


def has_driver(item: Available, template: str) -> bool:
    """Say whether an image with today's driver is what this offer wants."""
    facts = driver_for(item.accelerators[0].name) if item.accelerators else None
    return facts is not None and facts.is_current and template != DRIVER_TEMPLATE


def wanted_images(kind: str, item: Available, machine: str, template: str) -> Sequence[PublicImage]:
    """Return the public images of a cloud for an offer, the preferred one first; `machine` is its processor."""
    if has_driver(item, template):
        return public_images(kind, "cuda", machine)
    plain = public_images(kind, "plain", machine)
    facts = driver_for(item.accelerators[0].name) if item.accelerators else None
    return tuple(one for one in plain if facts is None or one.system == (facts.system or one.system))


def installed(item: Available, image: str, template: str) -> tuple[Mapping[str, str] | None, tuple[str, ...]]:
    """Return how a plain image (its name) gets its driver, and what has to be said about it.

    The first are settings of the template that installs a driver; None: none is installed.
    """
    if not item.accelerators:
        return None, ()
    gpu = item.accelerators[0].name
    facts = driver_for(gpu)
    if facts is None:
        return None, (f"no NVIDIA driver for {gpu} is known, so none is installed on {image}",)
    wanted = {"driver": facts.driver, "toolkit": facts.toolkit}
    unverified = f" ({facts.unverified}: unverified)" if facts.unverified else ""
    if template == DRIVER_TEMPLATE:
        message = (
            f"the template {template} has to be set to driver {facts.driver} and toolkit {facts.toolkit} for {gpu}"
        )
        return None, (f"{message}{unverified}",) if facts.system else ()
    message = (
        f"{gpu} ({facts.family}) needs an older driver: cloud-init installs {facts.driver} and {facts.toolkit} in the "
        f"first minutes, on {image}{unverified}"
    )
    return wanted, (message,)


def is_meant(machine_type: InstanceType, requirements: Requirements) -> bool:
    """Say whether a type of the catalogue is what was wanted.

    A share of a GPU is meant only by its type's name. One that may not be launched any more is meant where it, or its
    GPU, was asked for: what the cloud offers decides, not the list.
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


AGENT = "the agent on the machine (idle time, lease; it renews while somebody works)"
TIMER = (
    "a timer on the machine, apart from the agent, that reads the lease from the machine's own tags and powers it off"
)


def in_the_cloud(what: str, does: str) -> str:
    """Return the sentence about a timer on the cloud's side: `what` it is, and what it `does` to the machine."""
    return f"a timer in the cloud, {what}, {does} it at its renew-until if everything else fails"


WIDEST_6 = 16  # bits: the largest IPv6 networks that registries give to one holder are far smaller
EVERYBODY = ("*", "any", "internet")  # as Azure writes it
CHECK = "rules made by hand"


@dataclass(frozen=True, slots=True)
class Opening:
    """A rule that lets everybody in: `says` is a clause about it, `close` the command that takes it away."""

    says: str
    close: str

    @property
    def risk(self) -> str:
        """The sentence for a plan."""
        return f"RISK: {self.says}. Close it: {self.close}"


def is_wide(source: str) -> bool:
    """Say whether a network is everybody's, or so wide that no one holder has it."""
    if source.lower() in EVERYBODY:
        return True
    try:
        found = ipaddress.ip_network(source, strict=False)
    except ValueError:
        return False
    return found.prefixlen < (MIN_PREFIX_LENGTH if found.version == 4 else WIDEST_6)  # noqa: PLR2004  (IPv4)


def finding(openings: Sequence[Opening], good: str) -> Finding:
    """Return what doctor says: what is open and how to close it, or that nothing is."""
    if not openings:
        return Finding(CHECK, good=True, says=good)
    says, remedy = "; ".join(one.says for one in openings), "; ".join(one.close for one in openings)
    return Finding(CHECK, good=False, says=says, next=f"If nobody needs it: {remedy}")


def disk_gb(requested: int | None, image: str, minimum: int, *, default: int, maximum: int, whose: str) -> int:
    """Return how large the system disk is to be, in GB: what was requested, else the default.

    `minimum` is what `image` needs, `maximum` what `whose` disks have. Raises InvalidRequest for a size outside them.
    """
    if requested is None:
        return max(default, minimum)
    if minimum <= requested <= maximum:
        return requested
    says = f"{image} needs {minimum}" if requested < minimum else f"{whose} has {maximum:,}"
    bound = "at least" if requested < minimum else "at most"
    raise InvalidRequest(
        f"A system disk of {requested:,} GB cannot be: {says} GB {bound}.",
        field="--disk",
        value=str(requested),
        next=f"Ask for {max(1, minimum)} to {maximum} GB.",
    )


def region(requirements: Requirements, region_of: Callable[[str], str | None], no_zone: str, remedy: str) -> str | None:
    """Return the region that a wish names, by itself or by its zone; None for no wish. Asks nobody.

    Raises InvalidRequest for a zone that is none (`no_zone` says of whom, `remedy` how one is written), or that lies in
    another region than the one that is named.
    """
    if requirements.zone is None:
        return requirements.region
    found = region_of(requirements.zone)
    if found is None:
        raise InvalidRequest(
            f"{requirements.zone!r} is {no_zone}.", field="--zone", value=requirements.zone, next=remedy
        )
    if requirements.region not in (None, found):
        message = f"The zone {requirements.zone} is in {found}, not in {requirements.region}."
        raise InvalidRequest(
            message, field="--zone", value=requirements.zone, next=f"Leave --region out, or name {found}."
        )
    return found


def unused_error(account: str, option: str, place: str, settings: str = "regions or exclude_regions") -> InvalidRequest:
    """Return the error for a region or a zone that an account's settings leave out."""
    message = f"Account {account} does not use {place}: its settings leave it out, so ls would miss the machine."
    remedy = f"Change {settings} of accounts.{account} in config.toml."
    return InvalidRequest(message, field=option, value=place, next=remedy)


def by_their_rules(request: LaunchRequest, have: str) -> Sequence[str]:
    """Return what the plan of a cluster says where somebody else's rules decide who reaches its machines.

    `have` is the clause's end of who has to let them, with a verb: "firewall rules for that tag have".
    """
    cluster = request.cluster
    if cluster is None or cluster.nodes == 1 or request.setup.network.security_group is None:
        return ()
    return (f"your {have} to let the {cluster.nodes} machines reach each other on every port: cloudgpu opens none",)
