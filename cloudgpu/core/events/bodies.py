"""The bodies of ledger lines about machines and resources, as types. `core.events.kinds` maps kinds to them.

Every time inside a body is `times.iso` text; every amount is whole nano-dollars; nothing in a body is a secret. The
first line of a docstring is what `docs/ledger.md` says of the kind.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from cloudgpu.core.model.records import (
    AcceleratorRecord,
    AddressRecord,
    AttachedCostRecord,
    ClusterRecord,
    GuardsRecord,
    IdentityRecord,
    PriceRecord,
    RateRecord,
    RetainedRecord,
    SetupRecord,
    TermsRecord,
    TrafficPricesRecord,
)

Time = str  # as `times.iso` writes it
Nanos = int  # whole nano-dollars
Action = Literal["stop", "start", "park", "terminate"]
Outcome = Literal["made", "refused", "void"]


class RequestedBy(TypedDict, total=False):
    """In a team: `whose` machine it is, and by which right another member acted.

    `control.team.authorization.requester_record` makes it.
    """

    whose: str
    right: str


class BeforeTheEnd(TypedDict, total=False):
    """What is known of the time before a machine was seen to have ended.

    It was last seen to exist at `alive_at`, billed at `billed_at` and starting at `pending_at`; its end was requested
    at `asked_at`.
    """

    alive_at: Time
    billed_at: Time
    asked_at: Time
    pending_at: Time


class Resized(TypedDict):
    """The new type and market of a machine that was changed, at some time after `after`."""

    instance_type: str
    market: str
    accelerators: list[AcceleratorRecord]
    prices: list[PriceRecord]
    on_demand: PriceRecord | None
    after: Time | None


# -- a machine's launch


class MachinePlacement(TypedDict):
    """A machine's account, place, type and price."""

    provider: str
    account: str
    identity: IdentityRecord
    region: str
    zone: str | None
    instance_type: str | None
    market: str
    accelerators: list[AcceleratorRecord]
    price: PriceRecord | None


class LaunchIntended(MachinePlacement):
    """A launch, before its call is sent; `terms` are the texts of its policy and limits, `max_price` is for an hour.

    `attempt` counts the attempts of a launch, each with its `token`; `key` identifies the launch, and `request` is a
    hash of what was requested. `seq` is the number in its tags. `policy_by` is who chose the policy. `stop_effect` says
    what a stop keeps and costs. `renew_s` is the seconds from the launch to `renew_until`. `licence` is that of an
    operating system with billing rules of its own. `setup` is its software. `guards` are its safeguards. `trust` is who
    owns its computer (`datacenter` or `community`); without it, the cloud.
    """

    attempt: int
    seq: int
    token: str
    key: str
    request: str
    name: str
    on_demand: PriceRecord | None
    max_price: Nanos | None
    owner: str
    project: str
    policy: str
    policy_by: str
    terms: TermsRecord | None
    template: str | None
    expires: Time
    renew_until: Time
    renew_s: int
    stoppable: bool
    parkable: bool
    setup: SetupRecord
    stop_effect: str
    attached_costs: list[AttachedCostRecord]
    licence: str
    guards: NotRequired[GuardsRecord]
    cluster: NotRequired[ClusterRecord]
    trust: NotRequired[str]
    traffic_prices: NotRequired[TrafficPricesRecord]


class LaunchSettled(TypedDict):
    """The result of an attempt: it made a machine, was refused, or is void (it never made one)."""

    token: str
    outcome: Outcome
    why: str


class TaggedLaunch(TypedDict):
    """A machine's launch, as far as its tags record it; the fields are those of `LaunchIntended`."""

    key: str
    request: str
    name: str
    owner: str
    project: str
    policy: str
    template: str | None
    expires: Time | None
    renew_until: Time | None
    stoppable: bool | None
    setup: SetupRecord | None
    stop_effect: str | None
    cluster: NotRequired[ClusterRecord]


class EndAbilities(TypedDict):
    """How a machine can end (stop, park), and its safeguards, by what its provider can do."""

    stoppable: bool | None
    parkable: bool
    guards: GuardsRecord


class AdoptedByResource(TaggedLaunch, MachinePlacement):
    """A disk or an image of a machine that was found without a launch line; read from tags."""

    why: str


class MachineAdopted(AdoptedByResource):
    """A machine of this ledger, or a disk or an image of one, that was found without a launch line; read from tags."""

    on_demand: NotRequired[PriceRecord | None]
    max_price: NotRequired[None]
    attached_costs: NotRequired[list[AttachedCostRecord]]
    parkable: NotRequired[bool]
    guards: NotRequired[GuardsRecord]


# -- what a machine was seen to be


class InstanceObserved(BeforeTheEnd):
    """A change in how the provider reports a machine; `asked_at`: when its end was requested before."""

    provider_id: str
    state: str
    billed: bool
    since: Time | None
    launched_at: Time | None
    address: AddressRecord | None
    reason: str | None
    last_active: Time | None
    expires: Time | None
    renew_until: Time | None
    hold_until: Time | None
    resized: NotRequired[Resized]


class InstanceVanished(TypedDict):
    """A machine is proved gone: some time after `alive_at`, or at `ended_at` as the provider reports."""

    provider_id: str
    proof: str
    alive_at: Time | None
    ended_at: Time | None


class ResourcesRetained(TypedDict):
    """The retained resources of a machine; `alive_at`: when one that others have removed was last seen."""

    retained: list[RetainedRecord]
    alive_at: NotRequired[Time]


class PriceObserved(TypedDict):
    """A price of a machine, in force since the line's time, or perhaps since `maybe_from`."""

    price: PriceRecord
    maybe_from: NotRequired[Time | None]
    on_demand: NotRequired[PriceRecord]


class ReceivedTraffic(RateRecord):
    """Bytes that a machine received, if they cost; `counted` is its counter's total.

    `stored_as` is the name of the price in the price list.
    """

    bytes_in: int
    counted: int
    stored_as: str


class TrafficObserved(RateRecord):
    """Bytes that a machine has sent since the last count; `counted` is its counter's total.

    `received` is set if its offer has a price for received bytes. `stored_as` is the name of the price in the list.
    """

    bytes_out: int
    since: Time
    until: Time
    counted: int
    stored_as: str
    received: NotRequired[ReceivedTraffic]


class TermsSet(TypedDict):
    """The policy or limits of a machine have changed in the home that launched it."""

    terms: TermsRecord


# -- what somebody asked of a machine


class Requested(RequestedBy):
    """Written before the request is sent, for the reason `why`, on the client computer `host`.

    `judged`: the reaper decided it, and each of its runs decides again until it is done.
    """

    why: str
    host: str
    judged: NotRequired[Literal[True]]


class TerminateRequested(Requested):
    """Written before a termination is requested; `failed`: the machine never came up."""

    failed: NotRequired[Literal[True]]


class StartRequested(Requested):
    """Written before a start is requested; `waived`: with --no-guard, so without scheduled runs of the reaper.

    `running`: it runs, and nothing is sent; a requested stop or end that is not done is cancelled.
    """

    waived: NotRequired[Literal[True]]
    running: NotRequired[Literal[True]]


AnyRequested = Requested | TerminateRequested | StartRequested


class StartRefused(TypedDict):
    """A requested start has certainly not begun."""

    why: str


class ActionRefused(TypedDict):
    """The provider refused an action, as the machine is protected; `next` lifts the protection."""

    action: Action
    why: str
    next: str | None


class LeaseSet(RequestedBy):
    """A lease was set; null: it does not end by itself."""

    expires: Time | None
    renew_until: Time | None
    why: str
    host: str


class HoldSet(RequestedBy):
    """A hold was set; null: it was released."""

    until: Time | None
    why: str
    host: str


class InterruptionSimulated(TypedDict):
    """A spot interruption is simulated: when the machine will be taken."""

    at: Time


InterruptionSource = Literal["notice", "provider", "vanished"]


class SpotInterrupted(TypedDict):
    """The provider took a spot machine; the line occurred when it was gone.

    `how` it became known: by its `notice`, from the provider afterwards (`provider`), or because it `vanished`. `ran_s`
    is how long it had run. `nanos` is its cost with attached resources; `free` says why its run is not charged.
    """

    how: InterruptionSource
    noticed_at: Time | None
    ran_s: float
    nanos: Nanos
    free: str


_Shared = TypedDict("_Shared", {"key": str, "label": str, "from": str | None, "host_key": str | None, "host": str})


class MachineShared(_Shared, RequestedBy):
    """A public key may log in until the next launch: its fingerprint, its owner, and from which network."""


class MachineUnshared(RequestedBy):
    """A shared key was removed; null: all of them."""

    key: str | None
    host: str


class TimerSet(TypedDict):
    """When a machine's cloud ends it by itself; null: never any more."""

    at: Time | None
    why: str


# -- what the reaper said of a machine


class DecisionMade(RequestedBy):
    """A run's decision about a machine, if it differs from the last one; `at`: when it ends if nothing changes.

    `do` is what to do with it, `rule` the rule of the reaper that says so; `host` is the computer that decided.
    """

    do: str
    rule: str
    why: str
    activity: str | None
    at: Time | None
    host: str


class WarningSent(TypedDict):
    """A warning was sent that a machine ends at `due` (null: it does not), by `how`."""

    rule: str
    due: Time | None
    why: str
    how: list[str]
    host: str


class WarningCleared(TypedDict):
    """A warning no longer applies."""

    rule: str
    why: str
    host: str


# -- resources


class ResourceObserved(RetainedRecord):
    """A named volume or image that has changed."""

    identity: IdentityRecord
    owner: str
    project: str


class ResourceVanished(RequestedBy):
    """A named volume or image is gone: at `ended_at`, or some time after `alive_at`."""

    id: str
    proof: str
    alive_at: Time | None
    ended_at: Time | None


class OrphanRemoved(TypedDict):
    """An orphan was removed; `image` is the image that was made of it before."""

    what: str
    id: str
    name: str
    account: str
    region: str
    nanos_per_month: Nanos | None
    image: str | None
    why: str
    host: str
