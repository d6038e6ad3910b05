"""The nouns of cloudgpu: offers, requests, attempts, instances, as frozen values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from cloudgpu.core.money import Money

NOT_HERE = "not reachable from here"


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
    ASSUMED = "assumed"  # a usual figure of ours, where nobody has said one


@dataclass(frozen=True, slots=True)
class Accelerator:
    """`count` GPUs of one kind; `memory_gib` is per GPU; `share` below 1 is a fraction of one.

    `of` is how many GPUs the computer has, where the machine uses only some of them.
    """

    name: str
    count: int
    memory_gib: float | None = None
    share: float = 1.0
    of: int | None = None


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
    or_on_demand: bool = False  # on demand too, where spot has no capacity
    persistent: bool = False  # a spot machine that can be stopped, where the provider has such


@dataclass(frozen=True, slots=True)
class Volume:
    """A data disk that outlives machines, found by its name. `size_gb` is None where it has to be there already."""

    name: str
    size_gb: int | None = None


@dataclass(frozen=True, slots=True)
class Network:
    """Through which network a machine is reached, and by whom.

    `ssh_from` are CIDRs that may open SSH (none: the provider's network itself, from which a machine without a public
    address or behind a jump host is reached). `subnet` and `security_group` are the provider's ids of somebody else's
    network (None: the account's usual one, a group of our own). `jump` is `user@host:port` of a host in between.
    """

    ssh_from: tuple[str, ...] = ()
    subnet: str | None = None
    security_group: str | None = None
    public_ip: bool = True
    jump: str | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """What a machine is set up with beside its type.

    `image` is a provider's id or the name of an own image (None: the newest with CUDA). `disk_gb` is the system disk
    (None: the provider's usual one). `persistent` asks for a spot request that can be stopped. `keep_disk`: when a
    machine that cannot be stopped ends, its system disk stays until it is taken up or removed.
    """

    image: str | None = None
    disk_gb: int | None = None
    volume: Volume | None = None
    persistent: bool = False
    network: Network = Network()
    keep_disk: bool = True


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
    parkable: bool = True  # False: no image of its disk can be kept. Of both, control knows what the provider can do
    after: tuple[str, ...] = ()  # why it is tried after all others: somebody uses it, say
    gpus_now: tuple[str, ...] = ()  # who uses the GPUs of that computer now, in words, where the provider can tell


@dataclass(frozen=True, slots=True)
class Offer:
    """Something that can be bought: what is available, joined with its price."""

    available: Available
    price: Price


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What the user wants, with the launch key that makes it idempotent.

    `lease_s` and `renew_s` are seconds from the launch: the lease, and how far it may be renewed. `policy_by` is who
    chose the policy, for people; empty where nobody knows any more. `terms` are the texts of the policy and limits that
    it is under (`control.terms`).
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
    setup: Setup = Setup()
    policy_by: str = ""
    terms: Mapping[str, Any] | None = None


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
    policy: Mapping[str, Any] = field(default_factory=dict)  # what the agent is told of it; nothing: the lease alone
    own_source: str = field(default="", repr=False)  # the agent's second file, where the computer is shared with others


@dataclass(frozen=True, slots=True)
class AccountIdentity:
    """What an account is by its provider's own word, whatever the settings call it.

    `kind` says what `id` names: "aws account", "google project", "azure subscription", "computer", "ssh host". `id` is
    compared as a whole. `words` is for sentences: "AWS account 123456789012". None of them is a secret.
    """

    kind: str
    id: str
    words: str

    def to_json(self) -> dict[str, str]:
        """Return it as a ledger line carries it."""
        return {"kind": self.kind, "id": self.id, "words": self.words}

    def is_of(self, recorded: Mapping[str, str] | None) -> bool:
        """Say whether this is the account that a ledger line recorded; one that was never recorded is no match."""
        return recorded is not None and (self.kind, self.id) == (recorded["kind"], recorded["id"])


@dataclass(frozen=True, slots=True)
class Attempt:
    """One exact try of a request at one offer: the whole call, as it is saved (0600) before it is sent.

    `token` is at most 64 characters and makes the provider's call idempotent. `tags` are complete.
    `expires` and `renew_until` are aware UTC. `call` is what the provider looked up for it, as plain JSON values.
    `identity` is the account that it is sent to (None: nobody has asked).
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
    state began in the provider's own words, `launched_at` when the machine was made (None: it did not say, and the
    ledger's own times count, as a range where they leave one); times are aware UTC. `last_active` is what
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
    gpus_now: tuple[str, ...] = ()  # who uses the GPUs of its computer now, in words, where the provider can tell


@dataclass(frozen=True, slots=True)
class Process:
    """Something that runs on a machine: its number there, its command line, and for how many seconds it has run."""

    pid: int
    command: str
    seconds: int


@dataclass(frozen=True, slots=True)
class Asked:
    """An account that was asked what it has, and its kind of provider."""

    account: str
    provider: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A scope (a zone, a region, an account) that did not answer a listing, and why."""

    scope: str
    why: str


@dataclass(frozen=True, slots=True)
class Elsewhere(Unanswered):
    """An account with machines of this ledger that no account of this computer is: `why` begins with `NOT_HERE`.

    `tended`: from where it can be reached, it was asked within the last day.
    """

    tended: bool = False


def gap_text(scope: str, why: str) -> str:
    """Return a gap as a sentence without its full stop."""
    return f"{scope} is {why}" if why.startswith(NOT_HERE) else f"{scope} did not answer: {why}"


def is_hidden(silent: Iterable[str], account: str, region: str | None) -> bool:
    """Say whether what lies in a region may be missing for these scopes: a silent zone (`REGION-a`) is enough."""
    return any(scope in (account, region) or scope.startswith(f"{region}-") for scope in silent)


@dataclass(frozen=True, slots=True)
class Listing:
    """All instances of ours that answered, and by name all that did not. Never a silent part.

    `identities` is for an account whose regions are computers of their own (hosts): who each is that answered.
    """

    instances: tuple[Instance, ...]
    unanswered: tuple[Unanswered, ...] = ()
    regions: frozenset[str] | None = None  # those that were asked, where that may not be all
    identities: Mapping[str, AccountIdentity] = field(default_factory=dict)

    def is_whole(self, region: str) -> bool:
        """Say whether all of a region has answered: one that is a computer of its own depends on no other one."""
        return not self.unanswered or region in self.identities


@dataclass(frozen=True, slots=True)
class Stock:
    """What could be launched where it was asked, unpriced and in no order, and by name all that did not answer."""

    items: tuple[Available, ...]
    unanswered: tuple[Unanswered, ...] = ()


class Kind(StrEnum):
    """What a leftover is."""

    DISK = "disk"  # a machine's system disk
    VOLUME = "volume"  # a data disk with a name, kept on purpose
    SNAPSHOT = "snapshot"  # not yet an image
    IMAGE = "image"
    # What `HasOrphans` tells of, and `HasLeftovers` does not: most of it costs nothing, some of it can launch machines.
    ADDRESS = "address"  # a public address that is kept
    INTERFACE = "interface"  # a network interface
    KEY_PAIR = "key_pair"
    SECURITY_GROUP = "security_group"
    SPOT_REQUEST = "spot_request"
    TIMER = "timer"  # of the provider's own
    GROUP = "resource_group"  # of one launch on Azure, with all that is in it
    ROLE = "role_assignment"  # what a machine's own identity may do


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something of ours that is there without a living machine: a disk, a snapshot, an image, an address.

    `id` is the provider's; `name` the user's for what was kept on purpose, else empty. `size_gb` is what is billed at
    most. `stored_as` is the kind of storage in the price list (`gp3`, `ebs_snapshot`, `public_ipv4`, ...), empty for
    what costs nothing. `ready`: it can be used or removed as it is. `attached_to` is the provider's id of the machine
    that uses it, None for none.
    """

    provider: str
    account: str
    region: str
    zone: str
    id: str
    kind: Kind
    name: str
    size_gb: int
    stored_as: str
    tags: Mapping[str, str]
    made_at: datetime | None = None
    ready: bool = True
    attached_to: str | None = None


@dataclass(frozen=True, slots=True)
class Leftovers:
    """All leftovers that answered, and by name all that did not."""

    items: tuple[Leftover, ...]
    unanswered: tuple[Unanswered, ...] = ()
    regions: frozenset[str] | None = None  # those that were asked, where that may not be all


@dataclass(frozen=True, slots=True)
class Quota:
    """How much of a kind an account may run at once in a region. `limit` None: the provider did not say.

    `used` None: not known. `unit` is the provider's (`vCPU`, ...); `code` names it where it can be raised.
    """

    provider: str
    account: str
    region: str
    code: str
    name: str
    market: Market
    unit: str
    limit: float | None
    used: float | None = None


@dataclass(frozen=True, slots=True)
class Region:
    """A region of an account, and the public endpoint whose round trip tells how far it is. `port` is TCP."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Permission:
    """An action of the provider's, whether this credential may do it (None: not known), and what needs it.

    `used_for` goes on after "needed to". `said` is why nothing is known. `needed`: nothing is launched without it.
    """

    action: str
    allowed: bool | None
    used_for: str
    said: str = ""
    needed: bool = True


@dataclass(frozen=True, slots=True)
class RolePart:
    """A part of a machine role; `there`: it exists as it should be; `ours` False: somebody else's bears this name."""

    what: str
    name: str
    there: bool
    ours: bool


@dataclass(frozen=True, slots=True)
class MachineRole:
    """A role under which machines say when they were last in use, in the account that `where` names.

    `options` is what an account's table of config.toml says about it, so that launches give it to machines.
    """

    where: str
    parts: tuple[RolePart, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BudgetAlert:
    """A budget of the provider's own: it mails `emails` as a month of the whole account nears and passes `per_month`.

    It stops nothing, and needs nothing of ours alive.
    """

    per_month: Money
    emails: tuple[str, ...]


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
TAG_VOLUME = "cloudgpu-volume"  # the name of a data disk that is kept on purpose
TAG_IMAGE = "cloudgpu-image"  # the name of an image that is kept on purpose
