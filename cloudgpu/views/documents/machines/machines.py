"""Documents of `up`, `ls`, `show`, `stop`, `start`, `extend`, `hold` and `spot`."""

from typing import Annotated, Literal, NotRequired, TypedDict

from cloudgpu.views.documents.automation.activity import WhyDocument
from cloudgpu.views.documents.machines.plans import AttachedCost, Plan
from cloudgpu.views.documents.money.budgets import CreditDocument
from cloudgpu.views.documents.parts import (
    AccountCoverage,
    Address,
    AgentGuard,
    Fault,
    Identity,
    IncompleteAnswer,
    MachineOrPlan,
    NamedMachine,
    OfAccount,
    OfMachine,
    PendingAction,
    Price,
    State,
    Time,
    TimerGuard,
    UnansweredScope,
    Usd,
)


class Guards(TypedDict):
    """When each safeguard would end a machine."""

    agent: Time | None
    """When the agent ends it at the latest, by its lease; null where it is not billed, or the agent cannot end it."""
    timer: Time | None
    """When its [timer](../timer.md) fires; null where it has none."""
    reaper: Time | None
    """When it would be ended by what the last run of the reaper decided; null where it would not."""
    agent_is: AgentGuard | None
    """What the agent can do, as in a [plan](#planned_guards); null where its launch is not known."""
    timer_is: TimerGuard | None
    """What its timer is: `cloud`, `own` or `none`; null where its launch is not known."""
    waived: bool
    """Launched or started with `--no-guard`, so without a scheduled run of the reaper."""


class RetainedPart(TypedDict):
    """A disk or an image that stays without its machine."""

    id: str
    """The provider's id."""
    kind: str
    """`disk`, `snapshot` or `image`; of a named resource `volume` or `image`."""
    region: str
    """Its region."""
    zone: str | None
    """Its zone; empty for what is not bound to one."""
    size_gb: float
    """The size that is billed, at most."""
    created_at: Time | None
    """When it was made."""
    ready: bool
    """It can be used."""
    usd_per_month: Usd | None
    """What it costs a month, at most for snapshots and images."""


# A key that is a keyword of Python, which no class can declare.
_SharedKeyKeywords = TypedDict(
    "_SharedKeyKeywords",
    {"from": Annotated[str | None, "The network that it was let in from; null where a key is enough."]},
)


class SharedKey(_SharedKeyKeywords):
    """A key that `share` let in."""

    key: str
    """Its fingerprint."""
    label: str | None
    """Its comment."""
    at: Time
    """When."""


class NodeOfCluster(TypedDict):
    """Which node of which cluster a machine is."""

    name: str
    """The cluster's name."""
    id: str
    """The cluster's id, with which the ids of its machines begin."""
    node: int
    """Its number, from 0 on."""
    nodes: int
    """How many nodes were launched."""
    engine: Annotated[str, Literal["slurm", "none"]]
    """What schedules its jobs: `slurm` or `none`."""
    on_node_loss: Annotated[str, Literal["wait", "stop"]]
    """What happens to the other nodes if one is lost: `wait`, they run on; `stop`, they are stopped."""


class MachineDocument(NamedMachine, MachineOrPlan):
    """A machine."""

    cloud_id: str | None
    """The id that the provider's console shows: `i-...` on AWS, the VM's name on Google Cloud and Azure (on Azure its
    resource group has the same name); null until the provider has returned it.
    """
    state: State
    """`pending`, `running`, `stopping`, `stopped`, `deallocated`, `terminated` or `unknown`."""
    billed: bool
    """This state costs compute money."""
    identity: Identity | None
    """The account or computer that it is in, as the provider identifies it; null where that is not known."""
    reachable: bool | None
    """Whether this home has that account, as far as that is known without a query; null if unknown."""
    absent: str | None
    """Why it cannot be queried, if `config.toml` no longer names its account or host, and what to do; `state` is then
    as last seen.
    """
    region: str | None
    """Where."""
    zone: str | None
    """Where, exactly."""
    instance_type: str | None
    """As the provider calls it."""
    gpu_users: list[str]
    """With `ls --refresh`, who uses the GPUs of the own machine that it is on, one line each; else empty."""
    price: Price | None
    """What an hour costs."""
    spent_usd: Usd | None
    """What it has cost so far with its disks and addresses, as of the last update."""
    unpriced: list[str]
    """Its resources without a known price: they are in no sum."""
    policy: str
    """The [policy](../policies.md) under which it was launched."""
    template: str | None
    """The launch template; null for a machine that was adopted without its launch record."""
    key: str
    """The idempotency key of its launch: a repeated request with it returns this machine; another one is refused."""
    launched_at: Time | None
    """When the provider made it."""
    expires: Time | None
    """The end of its lease."""
    lease_ends: bool
    """Its lease and idle time end it; else they only warn, since that would delete its disk: `renew_until` ends it."""
    renew_until: Time | None
    """Until when use may renew the lease."""
    held_until: Time | None
    """Until when it is held."""
    last_active_at: Time | None
    """When its agent last reported use, by what is recorded: the next report is recorded 15 minutes later or more."""
    reason: str | None
    """Why it stopped unrequested: `lease`, `renew-until`, `interrupted`, `died` (its process or host ended), ..."""
    seen_at: Time | None
    """When it was last checked, whether it had changed or not."""
    address: Address | None
    """Where its SSH server answers."""
    terminated_at: Time | None
    """When it was verified gone."""
    launch_uncertain: bool
    """Its launch was interrupted, and it is not known yet whether the machine exists."""
    pending_action: PendingAction | None
    """What was requested and is not confirmed yet: `stop`, `start`, `park`, `terminate`."""
    taken_at: Time | None
    """When a rehearsed spot interruption ends it; null where there is none."""
    shared: list[SharedKey]
    """The keys that `share` let in: `key` (fingerprint), `label`, `from` (network or null) and `at`."""
    parked: bool
    """It was ended so that `start` can bring it back."""
    retained: list[RetainedPart]
    """Its disks and images that stay without it."""
    retained_usd_per_month: Usd | None
    """What these cost a month, for images at most; just after a park, what its disk costs; null: not known."""
    attached_costs: list[AttachedCost] | None
    """What is paid in addition to the machine; null if its launch did not say."""
    stopped_usd_per_month: Usd | None
    """What of that is paid while it is stopped; null when that is not known."""
    guards: Guards
    """When each safeguard would end it, as of now."""
    activity_unknown_reason: str | None
    """Why `reap` cannot know whether it is used, once that was reported; null if it can, or did not query it."""
    cluster: NodeOfCluster | None
    """Which node of which cluster it is; null for a machine that is not in a cluster."""


class ClusterDocument(MachineDocument):
    """A cluster. Amounts are sums over its nodes, a flag is true if any node's is, all else is its first node's."""

    there: int
    """How many of its nodes exist, running or stopped."""
    degraded: bool
    """A node that was launched is gone."""
    queue: str | None
    """The jobs in its queue, in words; null where it has no queue, or it was not queried."""
    nodes: list[str]
    """The ids of its existing machines, in order; of a cluster that has ended, all."""


class RequestDifference(TypedDict):
    """An option in which a request differs from a machine."""

    option: str
    """The option, like `--lease`."""
    requested: str
    """What this request specified."""
    current: str
    """What the machine has."""
    next: str
    """How to get what was requested."""


class UpDocument(TypedDict):
    """A launch: the machine, launched now or found."""

    machine: MachineDocument
    """The machine, launched now or found; of a cluster its first node."""
    nodes: list[MachineDocument]
    """All machines of a cluster, in their order; empty for a single machine."""
    found: bool
    """It existed already, launched by the same request."""
    differences: list[RequestDifference]
    """With `found`: how this request differs from the one that launched it."""
    on_start: Annotated[str, Literal["running", "done", "failed"]] | None
    """`running`, `done` or `failed`: the template's script; null where it has none, or that is not known."""
    plan: Plan
    """What was launched."""


class PlannedUpDocument(TypedDict):
    """What `up` would do."""

    plan: Plan
    """What would be launched."""
    existing: MachineDocument | None
    """The living machine that `up` would return instead."""
    differences: list[RequestDifference]
    """How this request differs from the one that launched `existing`."""


class ForeignMachine(OfAccount):
    """A machine of another ledger on the same accounts."""

    provider_id: str
    """The provider's id, with region or zone."""
    cloud_id: str | None
    """The id that the provider's console shows."""
    region: str
    """Where."""
    zone: str
    """Where, exactly."""
    state: State
    """As it was seen."""
    billed: bool
    """This state costs compute money."""
    name: str | None
    """Its name; null where it has none."""
    ledger: str | None
    """The ledger it belongs to."""
    owner: str | None
    """Whose it is."""


class LsDocument(AccountCoverage, IncompleteAnswer):
    """The machines; accounts are queried with `--refresh`."""

    machines: list[MachineDocument]
    """Machines that exist or are retained, nodes of clusters, too; with `--all` also those that have ended."""
    clusters: list[ClusterDocument]
    """The clusters that these machines are the nodes of."""
    view_as_of: Time | None
    """The oldest update among the existing machines; null when there is none."""
    last_run: Time | None
    """When a run of `reap` or `watch` last succeeded; null for never."""
    credits: list[CreditDocument]
    """The balances of prepaid accounts, when a run last read them."""
    foreign: list[ForeignMachine]
    """With `--refresh`: machines of another ledger on the same accounts, never touched."""
    integrity_problem: str | None
    """Why the ledger cannot be trusted, so that machines may be missing; null when it can."""
    elsewhere: list[UnansweredScope]
    """With `--refresh`: other computers with local machines, which can be seen only from there; shown as last seen."""


class InterruptionDocument(OfMachine):
    """A rehearsed spot interruption."""

    taken_at: Time
    """When it will be ended."""


class HistoryLine(TypedDict):
    """A line of the ledger."""

    seq: int
    """Its number in the ledger."""
    occurred_at: Time
    """When it happened."""
    clock: str
    """Whose clock that time is from."""
    recorded_at: Time
    """When it was written."""
    actor: str
    """Who wrote it."""
    kind: str
    """An event, in the past tense."""
    body: dict[str, object]
    """What the event says."""


class ShownDocument(MachineDocument):
    """One [machine](#machine); `show` adds what its options ask for."""

    history: NotRequired[list[HistoryLine]]
    """With `--history`: what the ledger says of it, line by line."""
    why: NotRequired[WhyDocument]
    """With `--why`: why it counts as in use, or not."""


class ClusterMachinesDocument(ClusterDocument):
    """A cluster with its machines: the answer of a command that changed all of them."""

    machines: list[MachineDocument]
    """Its nodes, in order."""
    failed: list[Fault]
    """An error for each node that failed; the exit code is that of the worst."""


class ShownNode(ShownDocument):
    """A node of a cluster that is shown."""


class ShownClusterDocument(ClusterDocument, ShownDocument):
    """A cluster, if `show` is given its name; each of its nodes has what the options ask for."""

    machines: list[ShownNode]
    """Its nodes, in order."""
