"""Turns a request and an offer into the exact launch call, with attached costs and remarks, and that into its body.

The body has the commands with which the container reads its tags and stops itself. `CONTAINER_API_KEY` and
`CONTAINER_ID` are in every container, and that key can stop this one contract (OpenAPI files of vast.ai). That it can
also read its own label is unverified, so nothing relies on it: a container that cannot read its label does not see an
extended lease, and then only its renew-until ends it. The user's own key is never sent there.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from cloudgpu.core.billing.rates import Rate
from cloudgpu.core.model.launch import Attempt, LaunchRequest, Setup
from cloudgpu.core.model.offers import Basis, MachineConfiguration, Market, Note, NoteKind, Trust
from cloudgpu.core.model.usage import Per, Resource
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso, minute_text
from cloudgpu.errors import InvalidRequest, NoCapacity
from cloudgpu.providers.abilities import AttachedResource, PlacementConstraint, Resolved
from cloudgpu.providers.machine.container_start import TAGS_VARIABLE, ContainerSpec, image_to_run, pack_start
from cloudgpu.providers.shared import containers
from cloudgpu.providers.shared.rules import disk_gb
from cloudgpu.providers.vast import market
from cloudgpu.providers.vast.client import CLOUD, Vast
from cloudgpu.providers.vast.options import EXAMPLE_IMAGE

DEFAULT_GB, MIN_GB, MAX_GB = 40, 8, 4000  # of a container's disk, which cannot be resized
# Tags of NVIDIA's repository on Docker Hub, unverified; the second is for Blackwell.
DEFAULT_IMAGE, BLACKWELL_IMAGE = (
    "nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04",
    "nvidia/cuda:12.8.1-cudnn-devel-ubuntu22.04",
)
BLACKWELL_CUDA = 12.8
BLACKWELL_GPUS = ("B200", "B300", "RTX5080", "RTX5090", "RTXPRO6000")
LABEL_PREFIX = "cg-"  # prefix of the labels of our contracts, before the launch's token
DISK_KIND = "vast_disk"
# Of a container: the directory of the files that a stop keeps, the SSH port, and the user.
PERSISTENT_DIR, SSH_PORT, USER = "/workspace", 22, "root"
OWNER_READS = "the owner of that computer can read everything in the container, its memory and its disk"

STOPS_ITSELF_NOTE = (
    "it tries to stop itself at its lease's end with the key that vast.ai puts into it, which was never seen to work: "
    "rely on cloudgpu reap or watch"
)
MAX_ENV_LENGTH, MAX_LABEL_LENGTH = 32_768, 256  # characters (OpenAPI files)
_API_CALL = """
import json, os, urllib.request
base, method, body = BASE, METHOD, BODY
url = "%s/api/v0/instances/%d/" % (base, int(os.environ["CONTAINER_ID"]))
login = {"Authorization": "Bearer " + os.environ["CONTAINER_API_KEY"], "Content-Type": "application/json"}
call = urllib.request.Request(url, data=body, headers=login, method=method)
said = json.load(urllib.request.urlopen(call, timeout=20))
"""
_PRINT_TAGS = """
found = said.get("instances") or {}
tags = json.loads(os.environ["CLOUDGPU_TAGS"])
rest = str(found.get("label") or "").partition(" ")[2]
tags.update({"cloudgpu-" + name: value for name, value in json.loads(rest or "{}").items()})
if found:
    print(json.dumps(tags))
"""


@dataclass(frozen=True, slots=True)
class Call:
    """The exact launch call, saved with the attempt as JSON.

    `offer` is the id of the ask, `per_hour` its price in USD when it was read, `bid` the bid in USD an hour for spot.
    `ends` is when the host's contract ends, in epoch seconds (None: not known). `base` is the address of the API, which
    the container uses too. `host_key`: it is read from the container's log.
    """

    offer: int
    image: str
    disk_gb: int
    per_hour: str
    bid: str | None
    ends: float | None
    base: str
    host_key: str = "reads"


def constraint(setup: Setup) -> PlacementConstraint:
    """Return an empty constraint: no setup limits the zone. Raises InvalidRequest for what vast.ai does not have."""
    return containers.placement_constraint(CLOUD, setup, EXAMPLE_IMAGE)


def resolve(vast: Vast, request: LaunchRequest, offer: MachineConfiguration) -> Resolved:
    """Return the exact launch call of an offer, its attached costs and remarks. One call.

    Raises NoCapacity if the offer is gone, has become more expensive, or ends before the lease.
    """
    notes = containers.cluster_remarks(
        request,
        f"The containers of a cluster on {CLOUD} cannot reach each other",
        f"machines cannot reach each other: on {CLOUD}, containers have no network in common",
    )
    setup = request.setup
    constraint(setup)
    containers.check_setup(CLOUD, setup)
    size_gb = disk_gb(setup.disk_gb, CLOUD, MIN_GB, default=DEFAULT_GB, maximum=MAX_GB, limited_by=CLOUD)
    planned_price = vast.offer_prices.get((offer.zone, offer.instance_type, str(offer.market)))
    ask = market.find_ask(vast, offer, size_gb)
    if ask is None:
        raise NoCapacity(f"{CLOUD} does not offer {offer.instance_type} on {offer.zone} now.", field="offer")
    current_price = market.per_hour(ask, offer.market)
    if planned_price is not None and current_price > Decimal(planned_price):
        message = (
            f"{offer.instance_type} on {offer.zone} costs ${current_price} an hour now, no longer ${planned_price}."
        )
        raise NoCapacity(message, field="offer", next="Run it again to see the new prices.")
    _check_end(vast, request, offer, ask)
    call = Call(
        offer=int(ask["id"]),
        image=setup.image or vast.options.image or _default_image(offer, ask),
        disk_gb=size_gb,
        per_hour=str(current_price),
        bid=str(current_price) if offer.market is Market.SPOT else None,
        ends=None if (host_end := market.host_end(ask)) is None else host_end.timestamp(),
        base=vast.base_url,
    )
    disk_resource = AttachedResource(
        f"disk of {size_gb} GB on its host", DISK_KIND, size_gb, while_stopped=True, rate=_rate(vast, ask, size_gb)
    )
    return Resolved(asdict(call), (disk_resource,), (), (*notes, *_remarks(vast, request, offer, ask)))


def _check_end(vast: Vast, request: LaunchRequest, offer: MachineConfiguration, ask: Mapping[str, Any]) -> None:
    host_end = market.host_end(ask)
    if host_end is not None and host_end < vast.clock() + timedelta(seconds=request.lease_s):
        message = f"The host of {offer.zone} leaves {CLOUD} at {minute_text(iso(host_end))}, before the lease ends."
        raise NoCapacity(message, field="offer", value=offer.zone, next="Ask for a shorter --lease, or another --gpu.")


def _default_image(offer: MachineConfiguration, ask: Mapping[str, Any]) -> str:
    if offer.accelerators[0].name not in BLACKWELL_GPUS:
        return DEFAULT_IMAGE
    if float(ask.get("cuda_max_good") or 0) < BLACKWELL_CUDA:
        message = (
            f"The driver of {offer.zone} is too old for {offer.accelerators[0].name}: it has no CUDA {BLACKWELL_CUDA}."
        )
        raise NoCapacity(message, field="offer", value=offer.zone)
    return BLACKWELL_IMAGE


def _rate(vast: Vast, ask: Mapping[str, Any], disk_gb: int) -> Rate:
    """Return the rate of the container's disk: the host's price per GB and month, billed by the second."""
    price = Money.usd(Decimal(str(ask["storage_cost"])))
    source = "vast.ai's own offer (storage_cost)"
    return Rate(Resource.DISK, DISK_KIND, disk_gb, Per.MONTH, price, source, vast.clock(), Basis.QUOTED)


def _remarks(vast: Vast, request: LaunchRequest, offer: MachineConfiguration, ask: Mapping[str, Any]) -> Iterator[str]:
    if offer.trust is not Trust.COMMUNITY:  # every plan says it of community hosts
        yield Note(OWNER_READS, NoteKind.ACCESS)
    if offer.traffic is None:  # else the plan has the price
        yield Note("what its traffic costs is not known", NoteKind.MONEY)
    yield Note("what it costs stopped is its disk, until it is destroyed", NoteKind.MONEY)
    host_end = market.host_end(ask)
    if host_end is None:
        yield "when its host leaves vast.ai is not known"
    elif host_end < vast.clock() + timedelta(seconds=request.renew_s):
        yield Note(
            f"its host leaves {CLOUD} at {minute_text(iso(host_end))}, before renew-until: it stops then",
            NoteKind.GUARD,
        )
    else:
        yield f"its host leaves {CLOUD} at {minute_text(iso(host_end))}, and it stops then: that timer is not ours"
    yield Note(STOPS_ITSELF_NOTE, NoteKind.GUARD)
    if offer.market is Market.SPOT:
        yield Note("a higher bid stops it at once, without notice; its disk stays, and costs on", NoteKind.ERASURE)


def launch_body(attempt: Attempt) -> dict[str, Any]:
    """Return the body of the call that rents the offer of an attempt; deterministic.

    Raises InvalidRequest if the template is too large for a container's environment.
    """
    call = Call(**attempt.call)
    container = ContainerSpec(
        end_command=stop_command(call.base),
        tags_command=tags_command(call.base),
        persistent_dir=PERSISTENT_DIR,
        ssh_port=SSH_PORT,
    )
    start = pack_start(attempt, container)
    env = {
        f"-p {SSH_PORT}:{SSH_PORT}": "1",
        TAGS_VARIABLE: json.dumps(dict(attempt.tags), sort_keys=True),
        **start.env,
    }
    size = sum(len(name) + len(value) for name, value in env.items())  # characters
    if size > MAX_ENV_LENGTH:
        message = (
            f"The template {attempt.boot.template} is too large for {CLOUD}: {size:,} of {MAX_ENV_LENGTH:,} characters."
        )
        remedy = "Take a smaller template, and copy the rest with cloudgpu cp."
        raise InvalidRequest(message, field="template", value=attempt.boot.template, next=remedy)
    request_body: dict[str, Any] = {
        "client_id": "me",
        "image": image_to_run(attempt, call.image),
        "disk": call.disk_gb,
        "label": f"{LABEL_PREFIX}{attempt.token}"[:MAX_LABEL_LENGTH],
        "runtype": "args",
        "onstart": "/bin/sh",  # with `args`, this replaces the entrypoint of the image (as dstack does)
        "args": ["-c", start.command],
        "env": env,
        "target_state": "running",
        "cancel_unavail": True,
    }
    return request_body if call.bid is None else {**request_body, "price": float(call.bid)}


def stop_command(base: str) -> str:
    """Return a shell command that stops this container's contract; its disk stays and is billed."""
    return _python_command(_container_program(base, "PUT", b'{"state": "stopped"}'))


def tags_command(base: str) -> str:
    """Return a shell command that prints the machine's current tags as a JSON object; nothing on an error."""
    return _python_command(_container_program(base, "GET", None) + _PRINT_TAGS)


def _container_program(base: str, method: str, request_body: bytes | None) -> str:
    return _API_CALL.replace("BASE", repr(base)).replace("METHOD", repr(method)).replace("BODY", repr(request_body))


def _python_command(program: str) -> str:
    loop = 'for one in "$python" python3 /opt/conda/bin/python3 /usr/bin/python3; do'
    condition = 'if [ -n "$one" ] && command -v "$one" >/dev/null; then'
    return f'{loop} {condition} exec "$one" -c {shlex.quote(program.strip())}; fi; done; exit 127'
