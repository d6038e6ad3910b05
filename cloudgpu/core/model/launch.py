"""The request for a launch, and one attempt at it, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cloudgpu.core.model.facts import ClusterNode
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.offers import Offer, Requirements
from cloudgpu.core.model.records import SetupRecord, TermsRecord


@dataclass(frozen=True, slots=True)
class Volume:
    """A data disk that outlives machines, found by its name. `size_gb` None: it has to exist already."""

    name: str
    size_gb: int | None = None


@dataclass(frozen=True, slots=True)
class Network:
    """Through which network a machine is reached, and by whom.

    `ssh_from` are CIDRs that may open SSH. Without any, only the provider's own network may: a machine without a public
    address, or behind a jump host, is reached from there. `subnet` and `security_group` are the provider's ids of
    somebody else's network (None: the account's default one, a group of our own). `jump` is a jump host,
    `user@host:port`.
    """

    ssh_from: tuple[str, ...] = ()
    subnet: str | None = None
    security_group: str | None = None
    public_ip: bool = True
    jump: str | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """What a machine is launched with besides its type: image, disks and network.

    `image` is a provider's id or the name of the user's image (None: the newest with CUDA). `disk_gb` is the system
    disk (None: the provider's default one). `persistent` asks for a spot request that can be stopped. `keep_disk`: when
    a machine that cannot be stopped ends, its system disk stays until it is used again or removed.
    """

    image: str | None = None
    disk_gb: int | None = None
    volume: Volume | None = None
    persistent: bool = False
    network: Network = Network()
    keep_disk: bool = True


def setup_to_json(setup: Setup) -> SetupRecord:
    """Return a setup as a ledger event stores it."""
    volume, net = setup.volume, setup.network
    return {
        "image": setup.image,
        "disk_gb": setup.disk_gb,
        "volume": None if volume is None else {"name": volume.name, "size_gb": volume.size_gb},
        "persistent": setup.persistent,
        "network": {
            "ssh_from": list(net.ssh_from),
            "subnet": net.subnet,
            "security_group": net.security_group,
            "public_ip": net.public_ip,
            "jump": net.jump,
        },
        "keep_disk": setup.keep_disk,
    }


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What the user wants, with the launch key that makes it idempotent.

    `lease_s` and `renew_s` are seconds from the launch: the lease, and how far it may be renewed. `policy_by` says, for
    people, who chose the policy; empty if that is not known. `terms` are the texts of its policy and limits
    (`config.policies.find`). `cluster` says which node of which cluster it is; in a plan, only the number of nodes and
    the engine are set.
    """

    key: str
    name: str
    provider: str
    account: str
    requirements: Requirements
    template: str
    owner: str
    project: str
    policy: str
    lease_s: int
    renew_s: int
    setup: Setup = Setup()
    policy_by: str = ""
    terms: TermsRecord | None = None
    cluster: ClusterNode | None = None


@dataclass(frozen=True, slots=True)
class BootPart:
    """A part of a template that runs at the first boot: `kind` is `on_start`, `packages`, `cloud_init`, ..."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Boot:
    """What a new machine gets at boot: template parts, the agent, keys. `jupyter` is a command, empty for none."""

    template: str
    parts: tuple[BootPart, ...]
    jupyter: tuple[str, ...]
    agent_source: str = field(repr=False)
    client_public_keys: tuple[str, ...]  # OpenSSH lines that may log in
    host_public_key: str  # OpenSSH line, pinned before the first connection
    host_private_key: str = field(repr=False)  # OpenSSH PEM, ed25519; empty for a machine that has its own key
    policy: Mapping[str, Any] = field(
        default_factory=dict
    )  # the part of the policy that the agent needs; empty: only the lease counts
    own_meter_source: str = field(
        default="", repr=False
    )  # the agent's second file, where the computer is shared with others


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a request with one offer: the whole call, as saved (mode 0600) before it is sent.

    `token` is at most 64 characters and makes the provider's call idempotent. `tags` are all
    that the machine gets, `ledger` is the id of the ledger that records it.
    `expires` and `renew_until` are aware UTC. `call` is what the provider's `resolve` returned, as plain JSON
    values. `identity` is the account that it is sent to (None: not queried).
    """

    token: str
    number: int
    machine: str  # cloudgpu-id
    ledger: str
    request: LaunchRequest
    offer: Offer
    tags: Mapping[str, str]
    boot: Boot = field(repr=False)
    made_at: datetime
    expires: datetime
    renew_until: datetime
    call: Mapping[str, Any] = field(default_factory=dict, repr=False)
    identity: AccountIdentity | None = None
