"""Parses and checks the options of `up`, from the command line or the library, before any call to a provider.

It also parses durations and times, and the options of clusters: nodes, engine, what happens when a node is lost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TypedDict, Unpack, cast, get_args

from cloudgpu.config.files.user_files import shown
from cloudgpu.config.settings import MAX_NAME_LENGTH
from cloudgpu.core.launch.trust import check_exposure, parse_trust
from cloudgpu.core.model.cluster import MAX_NODES, node_key, node_name
from cloudgpu.core.model.facts import ClusterNode, Engine, OnNodeLoss
from cloudgpu.core.model.launch import Network, Setup, Volume
from cloudgpu.core.model.offers import Requirements, Trust
from cloudgpu.core.values.naming import NAME, NAME_RULE, tag_value, unknown_word
from cloudgpu.core.values.network import EVERYBODY, MIN_PREFIX_LENGTH, parse_cidr, parse_jump_host
from cloudgpu.core.values.times import from_iso, parse_duration
from cloudgpu.core.values.typed import check_keywords, parse_gpu, parse_price
from cloudgpu.errors import InvalidRequest

_DEFAULT_SETUP = Setup()
MAX_DURATION = timedelta(days=3660)  # also the longest that `parse_duration` accepts
_MAX_KEY_LENGTH = 63  # of a launch key, which becomes a tag
MAX_DISK_GB = 65_536  # the largest disk that any cloud in the catalogue sells (64 TiB)
_VOLUME_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_FOR_LARGER_CLUSTERS = "AWS ParallelCluster, Google's cluster-toolkit, Azure CycleCloud, Kueue and SkyPilot"


@dataclass(frozen=True, slots=True)
class UpRequest:
    """The parsed options of `up`."""

    requirements: Requirements
    setup: Setup = _DEFAULT_SETUP
    spot: bool | None = None  # None: the market of the settings
    account: str | None = None
    provider: str | None = None
    name: str | None = None
    key: str | None = None  # the launch key: a repeated request with it returns the same machine
    new: bool = False  # a second machine of the same request
    template: str | None = None
    policy: str | None = None
    lease: timedelta | None = None  # from the launch
    renew_until: timedelta | None = None  # how long after the launch the lease may be extended to, at most
    owner: str | None = None
    project: str | None = None
    override: str | None = None  # why it may exceed a budget
    no_guard: bool = False  # launch although only runs of the reaper would end it, and none is recorded
    cluster: ClusterRequest | None = None
    trust: Trust | None = None  # the lowest level that is accepted; None: that of the settings
    expose: bool = False  # secrets and volumes may go to a computer of an unknown owner
    interactive: bool = False  # launched for interactive work: no job starts again after an interruption


def validate_request(request: UpRequest) -> None:
    """Raise InvalidRequest for the first invalid option."""
    _check_name(request.name)
    _check_key(request.key, new=request.new)
    check_line("--owner", request.owner)
    check_line("--project", request.project)
    check_reason(request.override)
    check_exposure(request.trust, ["--volume"] * (request.setup.volume is not None), expose=request.expose)
    if request.cluster is not None:
        check_cluster(request.cluster, request.name, request.key, request.setup)
    for option, text in {
        "--provider": request.provider,
        "--account": request.account,
        "--template": request.template,
        "--policy": request.policy,
        "--instance-type": request.requirements.instance_type,
        "--region": request.requirements.region,
        "--zone": request.requirements.zone,
        "--image": request.setup.image,
        "--subnet": request.setup.network.subnet,
        "--security-group": request.setup.network.security_group,
    }.items():
        if text is not None and not text.strip():  # for example an unset variable in a script
            raise InvalidRequest(
                f"{option} is empty.", field=option, value=text, next=f"Name one, or leave {option} out."
            )


def _check_name(name: str | None) -> None:
    if name is not None and not NAME.fullmatch(name):
        raise InvalidRequest(
            f"{shown(name)!r} cannot be a machine's name: {NAME_RULE}.",
            field="--name",
            value=name,
            next="Choose a name like brave-otter, or leave it out.",
        )


def _check_key(key: str | None, *, new: bool) -> None:
    if key is None:
        return
    if not key or tag_value(key) != key or key.startswith("auto-"):
        raise InvalidRequest(
            f"{shown(key)!r} cannot be a launch key: use 1 to 63 of a-z, 0-9, _ and -, not beginning with auto-.",
            field="--key",
            value=key,
            next="For example --key experiment-7",
        )
    if new:
        raise InvalidRequest(
            "--new and --key contradict each other: a key launches one machine only.",
            field="--new",
            value=key,
            next="Leave one of them out.",
        )


def check_reason(reason: str | None) -> str | None:
    """Return the reason of an override. Raises InvalidRequest unless it is one line of text."""
    check_line("--override", reason)
    return reason and reason.strip()


def check_line(option: str, text: str | None) -> None:
    """Raise InvalidRequest for text that is not one line of printable characters."""
    if text is None or (text.strip() and text.isprintable() and len(text) <= MAX_NAME_LENGTH):
        return
    raise InvalidRequest(
        f"{option} has to be one line of 1 to {MAX_NAME_LENGTH} characters, not {shown(text)}.",
        field=option,
        value=shown(text),
        next=f"Write it in plain text, or leave {option} out.",
    )


class UpOptions(TypedDict, total=False):
    """The options of `up`, parsed as on the command line. None, unless stated: no requirement."""

    provider: str | None  # where to launch: "local", ...; "any": at the cheapest of all cloud accounts
    account: str | None  # which configured account of the provider
    gpu: str | None  # "v100", "a100:8"
    instance_type: str | None
    region: str | None
    zone: str | None
    spot: bool | None  # None: the market of the settings
    or_on_demand: bool  # on demand if spot has no capacity
    persistent: bool  # a spot request that can be stopped
    max_price: Decimal | str | float | None  # USD per hour
    template: str | None
    image: str | None  # the provider's id, or the name of an image of yours; None: the newest with CUDA
    disk: int | str | None  # GB of the system disk
    volume: str | None  # "data", or "data:200" to create one of 200 GB
    ssh_from: str | None  # the network that may open SSH, "203.0.113.0/24"; None: this client's address
    ssh_from_anywhere: bool
    subnet: str | None
    security_group: str | None
    no_public_ip: bool
    jump: str | None  # "user@host:port" of an SSH jump host
    name: str | None  # None: a random one of two words
    key: str | None  # the launch key: a repeated request with it returns the same machine
    new: bool  # a second machine of the same request
    policy: str | None  # None: that of the settings
    lease: timedelta | str | None  # how long the machine lives, unless the lease is renewed
    renew_until: timedelta | str | None  # how long it lives at most, however often the lease is renewed
    owner: str | None  # None: the owner of the settings
    project: str | None
    override: str | None  # why a budget may be exceeded, if it can be overridden
    no_guard: bool  # launch although only runs of the reaper would end it, and none is recorded
    trust: str | None  # whose computers are accepted: "cloud", "datacenter" or "community"; None: as the settings say
    expose: bool  # with "community": its owner may read secrets and volumes
    nodes: int | str | None  # the number of machines under one name, launched all or none
    engine: str | None  # what queues their jobs: "slurm" or "none"; None: as the template says
    on_node_loss: str | None  # "wait" or "stop": what the other nodes do when one is lost


def parse_request(**options: Unpack[UpOptions]) -> UpRequest:
    """Return the request of these options. Raises InvalidRequest for an option that cannot be parsed."""
    check_keywords("up", options, UpOptions.__annotations__)
    return UpRequest(
        requirements=_requirements(options),
        setup=_setup(options),
        spot=options.get("spot"),
        account=options.get("account"),
        provider=options.get("provider"),
        name=options.get("name"),
        key=options.get("key"),
        new=options.get("new", False),
        template=options.get("template"),
        policy=options.get("policy"),
        lease=parse_optional_duration(options.get("lease"), "--lease"),
        renew_until=parse_optional_duration(options.get("renew_until"), "--renew-until"),
        owner=options.get("owner"),
        project=options.get("project"),
        override=options.get("override"),
        no_guard=options.get("no_guard", False),
        cluster=cluster_request(options.get("nodes"), options.get("engine"), options.get("on_node_loss")),
        trust=parse_trust(options.get("trust")),
        expose=options.get("expose", False),
    )


def _requirements(options: UpOptions) -> Requirements:
    model, count = parse_gpu(options.get("gpu"))
    max_price = options.get("max_price")
    return Requirements(
        gpu=model,
        gpu_count=count or 1,
        instance_type=options.get("instance_type"),
        region=options.get("region"),
        zone=options.get("zone"),
        max_price=None if max_price is None else parse_price(str(max_price)),
        or_on_demand=options.get("or_on_demand", False),
        persistent=options.get("persistent", False),
    )


def _setup(options: Mapping[str, Any]) -> Setup:
    """Return the setup of these options. Raises InvalidRequest for the first that is invalid."""
    _check_network_options(options)
    network = Network(
        ssh_from=_parse_ssh_from(options.get("ssh_from"), anywhere=bool(options.get("ssh_from_anywhere"))),
        subnet=options.get("subnet"),
        security_group=options.get("security_group"),
        public_ip=not options.get("no_public_ip"),
        jump=_parse_jump(options.get("jump")),
    )
    return Setup(
        image=options.get("image"),
        disk_gb=parse_size(options.get("disk"), "--disk"),
        volume=parse_volume(options.get("volume")),
        persistent=bool(options.get("persistent")),
        network=network,
    )


def parse_size(value: int | str | None, field: str) -> int | None:
    """Return a whole number of GB, above zero: `100`, `100GB`. Raises InvalidRequest that names the option `field`."""
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]{1,6})(?:gb|gib|g)?", str(value).strip(), re.IGNORECASE | re.ASCII)
    if match and 1 <= int(match[1]) <= MAX_DISK_GB:
        return int(match[1])
    raise InvalidRequest(
        f"{shown(value)!r} is not a size of a disk: it is whole GB, from 1 to {MAX_DISK_GB:,}.",
        field=field,
        value=shown(value),
        next="For example --disk 100" if field == "--disk" else "For example --volume data:200",
    )


def parse_volume(text: str | None) -> Volume | None:
    """Return the data volume of `NAME` or `NAME:GB`. Raises InvalidRequest for anything else."""
    if text is None:
        return None
    name, colon, size = text.partition(":")
    if _VOLUME_NAME.fullmatch(name):
        return Volume(name, parse_size(size, "--volume") if colon else None)
    raise InvalidRequest(
        f"{shown(name)!r} cannot be a volume's name: use 1 to 63 of a-z, 0-9, _ and -, a letter or digit first.",
        field="--volume",
        value=shown(text),
        next="For example --volume data for one that is there, --volume data:200 for one of 200 GB.",
    )


def _parse_ssh_from(text: str | None, *, anywhere: bool) -> tuple[str, ...]:
    if text is None:
        return (EVERYBODY,) if anywhere else ()
    network = parse_cidr(text, "--ssh-from", any_source=anywhere)
    if anywhere and int(network.partition("/")[2]) >= MIN_PREFIX_LENGTH:
        raise InvalidRequest(
            f"--ssh-from {text} and --ssh-from-anywhere contradict each other.",
            field="--ssh-from-anywhere",
            value=text,
            next="Leave one of them out.",
        )
    return (network,)


def _parse_jump(text: str | None) -> str | None:
    if text is not None:
        parse_jump_host(text)
    return text


def _check_network_options(options: Mapping[str, Any]) -> None:
    """Raise InvalidRequest for network options that contradict each other."""
    ssh_options = [name for name in ("--ssh-from", "--ssh-from-anywhere") if options.get(name[2:].replace("-", "_"))]
    if options.get("security_group") and ssh_options:
        option = ssh_options[0]
        raise InvalidRequest(
            f"{option} contradicts --security-group: that group decides who may connect over SSH, not cloudgpu.",
            field=option,
            value=options.get("ssh_from"),
            next=f"Leave {option} out and let the address in yourself, or leave --security-group out.",
        )


def parse_optional_duration(value: timedelta | str | None, field: str) -> timedelta | None:
    """Return a duration above zero and up to ten years; None for None. Raises InvalidRequest that names the option."""
    if value is None or (isinstance(value, timedelta) and timedelta(0) < value <= MAX_DURATION):
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return parse_duration(value)
    raise InvalidRequest(
        f"{str(value)!r} is not a duration.",
        field=field,
        value=str(value),
        next="Write it like 90m, 8h, 1h30m or 3d.",
    )


def parse_future_moment(value: datetime | timedelta | str, field: str, now: datetime) -> datetime:
    """Return the future time of a duration from now, or of a time with its zone. Raises InvalidRequest."""
    moment_at = _parse_moment(value, field, now)
    if not now < moment_at <= now + MAX_DURATION:
        raise InvalidRequest(
            f"{value} {'is in the past' if moment_at <= now else 'is more than ten years away'}.",
            field=field,
            value=str(value),
            next="Name a time in the near future.",
        )
    return moment_at


def _parse_moment(value: datetime | timedelta | str, field: str, now: datetime) -> datetime:
    try:
        if isinstance(value, datetime):
            return from_iso(value.isoformat())
        return now + (value if isinstance(value, timedelta) else parse_duration(value))
    except OverflowError:
        return datetime.max.replace(tzinfo=now.tzinfo)
    except ValueError:
        pass
    try:
        return from_iso(str(value))
    except ValueError:
        raise InvalidRequest(
            f"{str(value)!r} is neither a duration nor a time with its zone.",
            field=field,
            value=str(value),
            next="Write it like 2h, or like 2026-11-20T19:00+01:00.",
        ) from None


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """The options of a cluster. `engine` None: that of the template, or Slurm if the template has none."""

    nodes: int
    engine: Engine | None = None
    on_node_loss: OnNodeLoss = "wait"

    def first_node(self, template_engine: Engine | None) -> ClusterNode | None:
        """Return the cluster of a launch, as its node 0; None for one machine without an engine.

        `template_engine` is the engine of the template, None if it has none.
        """
        engine = self.engine or template_engine or ("slurm" if self.nodes > 1 else "none")
        if self.nodes == 1 and engine == "none":
            return None
        return ClusterNode("", "", 0, self.nodes, engine, self.on_node_loss)


def cluster_request(nodes: int | str | None, engine: str | None, on_node_loss: str | None) -> ClusterRequest | None:
    """Return the options of a cluster; None if no option was given. Raises InvalidRequest for an invalid one."""
    if nodes is None and engine is None and on_node_loss is None:
        return None
    return ClusterRequest(
        1 if nodes is None else _parse_nodes(nodes),
        None if engine is None else cast("Engine", _parse_choice("--engine", engine, get_args(Engine))),
        "wait"
        if on_node_loss is None
        else cast("OnNodeLoss", _parse_choice("--on-node-loss", on_node_loss, get_args(OnNodeLoss))),
    )


def _parse_nodes(nodes: int | str) -> int:
    text = str(nodes).strip()
    number = int(text) if text.isascii() and text.isdigit() and len(text) < len("1000000") else 0
    if 1 <= number <= MAX_NODES:
        return number
    is_too_many = text.isascii() and text.isdigit() and text.strip("0")
    raise InvalidRequest(
        f"{nodes} nodes are more than cloudgpu launches under one name, which is {MAX_NODES}."
        if is_too_many
        else f"{str(nodes)!r} is not a number of nodes, a whole number from 1 to {MAX_NODES}.",
        field="--nodes",
        value=str(nodes),
        next=f"For larger clusters there are {_FOR_LARGER_CLUSTERS}." if is_too_many else "For example --nodes 4",
    )


def check_count(option: str, value: int, minimum: int, maximum: int) -> int:
    """Return the whole number of an option; raise InvalidRequest for one that is not from `minimum` to `maximum`."""
    if isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum:
        return value
    raise InvalidRequest(
        f"{option} {value} is not a whole number from {minimum} to {maximum:,}.",
        field=option,
        value=str(value),
        next=f"For example {option} {max(minimum, min(5, maximum))}",
    )


def _parse_choice(option: str, text: str, choices: tuple[str, ...]) -> str:
    if text in choices:
        return text
    raise unknown_word(f"{option} {text!r} is not known", text, choices, field=option)


def check_cluster(cluster: ClusterRequest, name: str | None, key: str | None, setup: Setup) -> None:
    """Raise InvalidRequest for a name or key that is too long for the node's number, and for a volume."""
    if cluster.nodes == 1:
        return
    last_number = cluster.nodes - 1
    if name is not None and NAME.fullmatch(name) and not NAME.fullmatch(node_name(name, last_number)):
        message = (
            f"{name!r} is too long for a cluster: its last machine would be called {node_name(name, last_number)}."
        )
        raise InvalidRequest(message, field="--name", value=name, next="Choose one of up to 37 characters.")
    if key is not None and len(node_key(key, last_number)) > _MAX_KEY_LENGTH:
        message = f"{key!r} is too long for the key of a cluster."
        raise InvalidRequest(message, field="--key", value=key, next="Choose one of up to 59 characters.")
    if setup.volume is not None:
        raise InvalidRequest(
            f"--volume {setup.volume.name} cannot be attached to {cluster.nodes} machines: a volume belongs to one.",
            field="--volume",
            value=setup.volume.name,
            next="Leave it out, and copy the data to every node, or read it from a bucket.",
        )
