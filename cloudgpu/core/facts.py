"""The nouns of cloudgpu: offers, requests, attempts, instances, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from cloudgpu.core.money import Money


class State(StrEnum):
    """What a provider says a machine is doing. Silence is UNKNOWN, never absence."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    DEALLOCATED = "deallocated"
    TERMINATED = "terminated"
    UNKNOWN = "unknown"


class Market(StrEnum):
    """How a machine is bought."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"


class Basis(StrEnum):
    """How far a price can be trusted; shown wherever the price is."""

    ASKED = "asked"  # the provider's own answer, now
    LISTED = "listed"  # a dated price list
    DERIVED = "derived"  # computed from other figures
    RECALLED = "recalled"  # from memory, unverified
    SETTING = "setting"  # the user's own figure
    MEASURED = "measured"  # read from a meter on the machine


@dataclass(frozen=True, slots=True)
class Accelerator:
    """`count` GPUs of one kind; `memory_gib` is per GPU; `share` below 1 is a fraction of one."""

    name: str
    count: int
    memory_gib: float | None = None
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Price:
    """A price per hour with where it came from and when that was true."""

    per_hour: Money
    source: str
    as_of: datetime
    basis: Basis


@dataclass(frozen=True, slots=True)
class Want:
    """What the user is looking for; None means no wish."""

    gpu: str | None = None
    gpu_count: int = 1
    instance_type: str | None = None
    region: str | None = None
    zone: str | None = None
    market: Market = Market.ON_DEMAND
    max_price: Money | None = None


@dataclass(frozen=True, slots=True)
class Available:
    """Something a provider could launch, not yet priced."""

    provider: str
    account: str
    region: str
    zone: str
    instance_type: str
    market: Market
    accelerators: tuple[Accelerator, ...] = ()
    vcpus: int | None = None
    memory_gib: float | None = None
    stoppable: bool = True  # False: `stop` has to park or terminate it (a one-time spot instance)
    stop_means: str = ""  # one sentence for the plan: what `stop` keeps, loses and goes on costing


@dataclass(frozen=True, slots=True)
class Offer:
    """Something that can be bought: what is available, joined with its price."""

    available: Available
    price: Price


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What the user wants, with the launch key that makes it idempotent.

    `lease_s` and `renew_s` are seconds from the launch: the lease, and how far it may be renewed.
    """

    key: str
    name: str
    provider: str
    account: str
    want: Want
    template: str
    owner: str
    project: str
    policy: str
    lease_s: int
    renew_s: int


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a template for the machine's first minutes: `kind` is `on_start`, `packages`, `cloud_init`, ..."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Boot:
    """What a new machine is given: template parts, the agent, the keys. `jupyter` is a command, empty for none."""

    template: str
    parts: tuple[Part, ...]
    jupyter: tuple[str, ...]
    agent_source: str = field(repr=False)
    user: str
    client_public_keys: tuple[str, ...]  # OpenSSH lines that may log in
    host_public_key: str  # OpenSSH line, pinned before the first connection
    host_private_key: str = field(repr=False)  # OpenSSH PEM, ed25519; empty for a machine that has its own key


@dataclass(frozen=True, slots=True)
class Attempt:
    """One exact try of a request at one offer: the whole call, as it is saved (0600) before it is sent.

    `token` is at most 64 characters and makes the provider's call idempotent. `tags` are complete.
    `expires` and `renew_until` are aware UTC.
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


@dataclass(frozen=True, slots=True)
class Address:
    """Where a machine's SSH server answers, and as whom to log in."""

    host: str
    port: int
    user: str


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine as the provider reports it now.

    `id` is the provider's. `billed` says whether this state costs compute money there. `since` is when the
    state began in the provider's own words (None: it did not say); times are aware UTC. `last_active` is what
    the machine itself last wrote where it can be read without SSH. `reason` is the provider's, for a machine
    that stopped by itself (`lease`, `interrupted`, `died`, ...).
    """

    provider: str
    account: str
    id: str
    state: State
    billed: bool
    tags: Mapping[str, str]
    region: str
    zone: str
    instance_type: str
    market: Market
    launched_at: datetime | None = None
    since: datetime | None = None
    address: Address | None = None
    accelerators: tuple[Accelerator, ...] = ()
    last_active: datetime | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A scope (a region, an account) that did not answer a listing, and why."""

    scope: str
    why: str


@dataclass(frozen=True, slots=True)
class Listing:
    """All instances of ours that answered, and by name all that did not. Never a silent part."""

    instances: tuple[Instance, ...]
    unanswered: tuple[Unanswered, ...] = ()


TAG_ID = "cloudgpu-id"
TAG_NAME = "cloudgpu-name"
TAG_LEDGER = "cloudgpu-ledger"
TAG_SEQ = "cloudgpu-seq"
TAG_KEY = "cloudgpu-key"
TAG_OWNER = "cloudgpu-owner"
TAG_PROJECT = "cloudgpu-project"
TAG_POLICY = "cloudgpu-policy"
TAG_EXPIRES = "cloudgpu-expires"
TAG_RENEW_UNTIL = "cloudgpu-renew-until"
TAG_HOLD_UNTIL = "cloudgpu-hold-until"
TAG_LAST_ACTIVE = "cloudgpu-last-active"
