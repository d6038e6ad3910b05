"""Machines as providers report them, and the tags that cloudgpu sets on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from cloudgpu.core.model.identity import AccountIdentity, Unanswered
from cloudgpu.core.model.offers import Accelerator, Market
from cloudgpu.core.values.money import Money


class State(StrEnum):
    """What a provider says a machine is doing. Silence is UNKNOWN, never absence."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    DEALLOCATED = "deallocated"
    TERMINATED = "terminated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a machine's SSH server answers, and as whom to log in."""

    host: str
    port: int
    user: str


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine as the provider reports it now.

    `id` is the provider's. `billed` says whether this state costs compute money there. `since` is when the state began
    and `launched_at` when the machine was created, as the provider reports (None: it does not, and the ledger's own
    times count); times are aware UTC. `last_active` is what the machine itself reported, where that can be read
    without SSH. `reason` is the provider's, for a machine that stopped by itself (`lease`, `interrupted`, `died`, ...)
    or NEVER_RAN. `per_hour` is what this machine costs while it runs, without attached costs, if the provider says it.
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
    per_hour: Money | None = None
    gpus_now: tuple[str, ...] = ()  # a text for each GPU of its computer in use now and by whom, if known


@dataclass(frozen=True, slots=True)
class Process:
    """A process on a machine: its id there, its command line, and for how many seconds it has run."""

    pid: int
    command: str
    seconds: int


@dataclass(frozen=True, slots=True)
class Listing:
    """All instances that cloudgpu launched in the scopes that answered, and the scopes that did not answer.

    `identities` is for an account whose regions are SSH hosts: the identity of each region that answered.
    """

    instances: tuple[Instance, ...]
    unanswered: tuple[Unanswered, ...] = ()
    regions: frozenset[str] | None = None  # those that were queried; None: all
    identities: Mapping[str, AccountIdentity] = field(default_factory=dict)

    def is_complete_in(self, region: str) -> bool:
        """Say whether a whole region has answered. A host is a region of its own, so no other one matters to it."""
        return not self.unanswered or region in self.identities


NEVER_RAN = "never ran"  # the reason of a stopped machine that never ran, as its provider reports
# Prefix of the reason of a machine that a refused launch created, and that was terminated at once.
REFUSED_PREFIX = "refused: "
TAG_ID = "cloudgpu-id"
TAG_NAME = "cloudgpu-name"
TAG_LEDGER = "cloudgpu-ledger"  # the id of the ledger that has the launch
TAG_SEQ = "cloudgpu-seq"  # the number of ledger entries at the launch
TAG_KEY = "cloudgpu-key"  # the launch key, which makes the request idempotent
TAG_OWNER = "cloudgpu-owner"
TAG_PROJECT = "cloudgpu-project"
TAG_POLICY = "cloudgpu-policy"
TAG_EXPIRES = "cloudgpu-expires"
TAG_RENEW_UNTIL = "cloudgpu-renew-until"
TAG_HOLD_UNTIL = "cloudgpu-hold-until"
TAG_LAST_ACTIVE = "cloudgpu-last-active"
TAG_VOLUME = "cloudgpu-volume"  # the name of a data disk that is kept until its user deletes it
TAG_CLUSTER = "cloudgpu-cluster"  # how many nodes its cluster has, and what it is set up with
TAG_NODE = "cloudgpu-node"  # its number in that cluster; missing where one call launched all nodes
TAG_IMAGE = "cloudgpu-image"  # the name of an image that is kept until its user deletes it
