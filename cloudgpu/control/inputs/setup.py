"""What a machine is to be set up with, as it was typed; refused where provider, market or another word rule it out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cloudgpu.config.files.text import shown
from cloudgpu.core.model.launch import Network, Setup, Volume
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.network import WIDEST, parse_cidr, parse_jump
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.abilities import HasVolumes, Reachable, Resolves
from cloudgpu.providers.base import Provider

MAX_GB = 65_536  # the largest disk that any cloud in the catalogue sells (64 TiB)
ANYWHERE = "0.0.0.0/0"
_VOLUME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def setup_of(options: Mapping[str, Any]) -> Setup:
    """Return the setup that these words of `up` stand for; raise InvalidRequest for the first that cannot be read."""
    _check_network_words(options)
    network = Network(
        ssh_from=_ssh_from(options.get("ssh_from"), anywhere=bool(options.get("ssh_from_anywhere"))),
        subnet=options.get("subnet"),
        security_group=options.get("security_group"),
        public_ip=not options.get("no_public_ip"),
        jump=_jump(options.get("jump")),
    )
    return Setup(
        image=options.get("image"),
        disk_gb=parse_size(options.get("disk"), "--disk"),
        volume=parse_volume(options.get("volume")),
        persistent=bool(options.get("persistent")),
        network=network,
    )


def parse_size(value: int | str | None, field: str) -> int | None:
    """Return whole GB, above zero: `100`, `100GB`; raise InvalidRequest that names `field` for anything else."""
    if value is None:
        return None
    found = re.fullmatch(r"([0-9]{1,6})(?:gb|gib|g)?", str(value).strip(), re.IGNORECASE | re.ASCII)
    if found and 1 <= int(found[1]) <= MAX_GB:
        return int(found[1])
    raise InvalidRequest(
        f"{shown(value)!r} is not a size of a disk: it is whole GB, from 1 to {MAX_GB:,}.",
        field=field,
        value=shown(value),
        next="For example --disk 100" if field == "--disk" else "For example --volume data:200",
    )


def parse_volume(text: str | None) -> Volume | None:
    """Return the data disk that `NAME` or `NAME:GB` names; raise InvalidRequest for anything else."""
    if text is None:
        return None
    name, colon, size = text.partition(":")
    if _VOLUME.fullmatch(name):
        return Volume(name, parse_size(size, "--volume") if colon else None)
    raise InvalidRequest(
        f"{shown(name)!r} cannot be a volume's name: use 1 to 63 of a-z, 0-9, _ and -, a letter or digit first.",
        field="--volume",
        value=shown(text),
        next="For example --volume data for one that is there, --volume data:200 for one of 200 GB.",
    )


def _ssh_from(text: str | None, *, anywhere: bool) -> tuple[str, ...]:
    if text is None:
        return (ANYWHERE,) if anywhere else ()
    network = parse_cidr(text, "--ssh-from", any_source=anywhere)
    if anywhere and int(network.partition("/")[2]) >= WIDEST:
        raise InvalidRequest(
            f"--ssh-from {text} and --ssh-from-anywhere contradict each other.",
            field="--ssh-from-anywhere",
            value=text,
            next="Leave one of them out.",
        )
    return (network,)


def _jump(text: str | None) -> str | None:
    if text is not None:
        parse_jump(text)
    return text


def _check_network_words(asked: Mapping[str, Any]) -> None:
    """Raise InvalidRequest for words about the network that contradict each other."""
    given = [option for option in ("--ssh-from", "--ssh-from-anywhere") if asked.get(option[2:].replace("-", "_"))]
    if asked.get("security_group") and given:
        raise InvalidRequest(
            f"{given[0]} contradicts --security-group: that group decides who may connect over SSH, not cloudgpu.",
            field=given[0],
            value=asked.get("ssh_from"),
            next=f"Leave {given[0]} out and let the address in yourself, or leave --security-group out.",
        )


def check_setup(provider: Provider, setup: Setup, market: Market, *, or_on_demand: bool) -> None:
    """Raise InvalidRequest for what was asked for and cannot mean anything at this provider or on this market.

    Nothing that was typed is ever ignored.
    """
    for option, given in (("--persistent", setup.persistent), ("--or-on-demand", or_on_demand)):
        if given and market is not Market.SPOT:
            raise InvalidRequest(
                f"{option} is for spot machines, and this one is on demand.",
                field=option,
                value=str(market),
                next=f"Add --spot, or leave {option} out.",
            )
    for option, what in _missing(provider, setup):
        raise InvalidRequest(
            f"The {provider.kind} provider has no {what}, so {option} cannot be used there.",
            field=option,
            value=provider.kind,
            next=f"Leave {option} out, or choose another --provider.",
        )


def setup_remarks(setup: Setup) -> tuple[str, ...]:
    """Return what has to be read before a machine is set up so."""
    if setup.network.public_ip:
        return ()
    fetches = "without a public address it can fetch packages only if its subnet has a NAT gateway or Cloud NAT"
    reached = "without a public address you reach it only from inside its network (a VPN, say) or through --jump HOST"
    return (fetches,) if setup.network.jump else (reached, fetches)


def _missing(provider: Provider, setup: Setup) -> Iterator[tuple[str, str]]:
    """Yield each option that was given and what it is about, where the provider has no such thing."""
    looks_up, network = isinstance(provider, Resolves), setup.network
    says_who = isinstance(provider, Reachable)
    words = (
        ("--image", setup.image, "images", looks_up),
        ("--disk", setup.disk_gb, "system disk of a chosen size", looks_up),
        ("--volume", setup.volume, "data disks", isinstance(provider, HasVolumes)),
        ("--subnet", network.subnet, "subnets", looks_up),
        ("--security-group", network.security_group, "security groups", says_who),
        ("--ssh-from", network.ssh_from, "rules about who may connect", says_who),
        ("--no-public-ip", not network.public_ip, "public addresses to leave out", looks_up),
        ("--jump", network.jump, "networks behind a jump host", looks_up),
        ("--persistent", setup.persistent, "spot requests", looks_up),
    )
    return ((option, what) for option, given, what, knows in words if given and not knows)
