"""What a provider may be able to do beyond `Provider`: one small protocol for each ability, with its values.

A provider with the methods of a protocol has the ability. Those of the account itself are in `account_abilities`,
those for several machines at once in `cluster_abilities`. A `configuration` is what could be launched, without price.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from cloudgpu.core.activity.computer_share import ComputerShare
from cloudgpu.core.billing.rates import Rate
from cloudgpu.core.model.instances import Process
from cloudgpu.core.model.launch import BootPart, LaunchRequest, Setup, Volume
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import MachineConfiguration, Offer, Price, Requirements
from cloudgpu.core.model.records import GuardsRecord
from cloudgpu.core.model.resources import ProviderResource, ResourceListing
from cloudgpu.core.policies.guards import Agent, Safeguards, is_billed
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.base import Provider


@runtime_checkable
class Pausable(Protocol):
    """Machines that can be stopped and started again."""

    def stop(self, id: str) -> None:  # noqa: A002
        """Ask to stop, in the way that ends billing. Idempotent. Raises InstanceNotFound."""

    def start(self, id: str) -> None:  # noqa: A002
        """Ask to start a stopped machine. Idempotent. Raises InstanceNotFound, NoCapacity, InvalidRequest."""


@runtime_checkable
class Taggable(Protocol):
    """Tags can be changed after the launch."""

    def tag(self, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
        """Set these tags and leave every other alone. Raises InstanceNotFound."""


@runtime_checkable
class HasPrices(Protocol):
    """The provider itself says what its offers cost now."""

    def prices(self, offers: Sequence[MachineConfiguration]) -> Sequence[Price | None]:
        """Return one price for each offer, in order; None where the provider has none."""


@runtime_checkable
class HasPriceHistory(Protocol):
    """The provider remembers what spot machines cost, and since when each price holds."""

    def price_history(
        self, configurations: Sequence[MachineConfiguration], since: datetime
    ) -> Sequence[Sequence[Price]]:
        """Return for each spot item, in order, the prices that held from `since` (aware UTC) until now, oldest first.

        `as_of` is when a price began to hold: the first, at or before `since`, held at that time. Empty for an
        item on demand, or where nothing is known. Raises ProviderUnavailable where a region did not answer.
        """


@runtime_checkable
class HasPlacementScores(Protocol):
    """The provider says how likely a spot launch is to succeed in each of several zones."""

    def placement_scores(self, configurations: Sequence[MachineConfiguration]) -> Sequence[int | None]:
        """Return for each spot item, in order, from 1 (unlikely) to 10 how likely it can be had now.

        None for an item of another type than the first, for one on demand, and where nothing is known, for example
        without the permission. Cached for up to an hour. One call at most, besides the names of zones. Raises nothing.
        """


@runtime_checkable
class HasMeteredPrice(Protocol):
    """Its machines cost the electricity that they draw, so that their measured watts give their price."""

    def metered_price(
        self, configuration: MachineConfiguration, gpu_watts: Decimal, measured_for: timedelta
    ) -> Price | None:
        """Return what a machine costs whose GPUs drew `gpu_watts` on average, measured for `measured_for` in all.

        None where the settings give its watts, or no tariff: then the price of `prices` holds.
        """


@runtime_checkable
class SharesComputer(Protocol):
    """Its machines share one computer's electricity; `prices` is for all that it draws, the most that one can cost."""

    def shared_price(self, configuration: MachineConfiguration, share: ComputerShare) -> Price | None:
        """Return what an hour costs a machine with this share of the computer; None where the share is not known."""

    def agent_status(self, id: str, since: float) -> bytes:  # noqa: A002
        """Return what `agent status --since` (epoch seconds) prints on a machine, also a stopped one; may be empty."""


@runtime_checkable
class HostLeaves(Protocol):
    """Its machines are on other people's hosts, whose owners may announce a date on which a host goes offline."""

    def leaves_at(self, id: str) -> datetime | None:  # noqa: A002
        """Return when the machine's host goes offline, aware UTC, by its last listing; None: no date is announced.

        Fetches the machine where it was never listed; raises InstanceNotFound then.
        """


@runtime_checkable
class HasTimer(Protocol):
    """A timer on the provider's side ends a machine at `renew-until`, even if nothing of cloudgpu runs any more."""

    def timer(self, id: str) -> datetime | None:  # noqa: A002
        """Return when the timer fires, aware UTC; None when none is set. Raises InstanceNotFound."""


class TimerAction(StrEnum):
    """What a timer does with its machine."""

    STOP = "stop"
    STOP_AGAIN = "stop_again"  # stops it at that time and whenever it runs later: the cloud may restart it by itself
    TERMINATE = "terminate"


def timer_action(machine: Machine) -> TimerAction | None:
    """Return what a timer does with this machine; None where its launch is not known."""
    if machine.stoppable is None:
        return None
    if not machine.stoppable:
        return TimerAction.TERMINATE
    return TimerAction.STOP_AGAIN if machine.setup and machine.setup.persistent else TimerAction.STOP


@runtime_checkable
class SetsTimer(HasTimer, Protocol):
    """The timer is a resource of its own, apart from the machine: cloudgpu sets it, moves it and deletes it."""

    def why_no_timer(self) -> str:
        """Return why this account has no timers, as a sentence with the remedy; empty where it has. Sends nothing."""

    def timer_limit(self, id: str) -> datetime | None:  # noqa: A002
        """Return the latest time, aware UTC, to which the timer can be moved, fixed at launch; None: no limit.

        May raise InstanceNotFound where it has to fetch the machine.
        """

    def set_timer(self, id: str, at: datetime, *, action: TimerAction | None = None) -> bool:  # noqa: A002
        """Set the timer to fire at `at` (aware UTC, to the minute), whether there was one or not. Idempotent.

        Return whether anything was changed: a timer that fires then already, or is fixed, stays as it is. A time in
        the past means at once. `action` is what it is to do; None: it is looked up. Raises InstanceNotFound where it
        has to fetch the machine, InvalidRequest after `timer_limit`, or where `why_no_timer` gives a reason.
        """

    def drop_timer(self, id: str) -> None:  # noqa: A002
        """Delete the timer. No error where there is none, the machine is gone, or its timer is fixed at launch."""

    def timers(self, region: str | None = None, *, ids: Collection[str] | None = None) -> Mapping[str, datetime]:
        """Return when the timers of this ledger's machines fire, by instance id, those of ended machines included.

        `ids`: only the timers of these machines are wanted, in as few calls as possible; more may be returned.
        Raises ProviderUnavailable naming a region that did not answer: an incomplete answer would look complete.
        """


@runtime_checkable
class ReportsActivity(Protocol):
    """The activity that a machine reports is not in a listing: it is fetched, machine by machine."""

    def activity(self, ids: Sequence[str]) -> Mapping[str, datetime | CloudgpuError | None]:
        """Return when each was last in use as it reports itself, aware UTC; None where it has reported nothing yet.

        One call per machine, in parallel; the error of one that did not answer is in its place. Raises nothing itself.
        """


@runtime_checkable
class ReportsProcesses(Protocol):
    """The user's own computer, which stays on when its machine ends: the processes that end then can be listed."""

    def processes(self, id: str) -> Sequence[Process] | None:  # noqa: A002
        """Return the processes of this machine beside its agent; None where the computer does not say. Reads only.

        Raises InstanceNotFound.
        """


@runtime_checkable
class ReadsHostKeys(Protocol):
    """A machine whose image takes no host key makes its own; the provider's API returns it before we connect."""

    def host_keys(self, id: str) -> Sequence[str]:  # noqa: A002
        """Return the OpenSSH public key lines (type and key) that the machine published; none yet while it boots.

        Raises InstanceNotFound.
        """


@runtime_checkable
class CanRehearseInterruption(Protocol):
    """A spot interruption can be rehearsed."""

    def interrupt(self, id: str) -> datetime:  # noqa: A002
        """Send the interruption notice; return when the machine is reclaimed, aware UTC. Raises InstanceNotFound."""


@runtime_checkable
class KnowsHostKeys(Protocol):
    """Machines that have a host key already when they are launched, such as the user's own computers."""

    def host_key(self, configuration: MachineConfiguration) -> str | None:
        """Return the OpenSSH public line to pin for this offer; None: the launch gives the machine a new key.

        Raises InvalidRequest when the key is needed and nobody has confirmed it yet.
        """


@runtime_checkable
class LeavesFiles(Protocol):
    """A machine that is the user's own: `terminate` removes what cloudgpu put there, and leaves the rest."""

    @property
    def end_effect(self) -> str:
        """What `terminate` removes and what it leaves, in whole sentences, shown before the user confirms."""


@dataclass(frozen=True, slots=True)
class RemainingFiles:
    """Files of an ended machine that its owner made or changed: their directory, some of them, and how many."""

    directory: str
    files: tuple[str, ...]
    count: int


@runtime_checkable
class WritesAtHome(Protocol):
    """A machine is a directory in somebody's home directory: the user is told before a launch what is written there."""

    def writes(self, name: str, *, template: bool) -> Sequence[str]:
        """Return what a launch of that name writes there and what becomes of it, a sentence each. Sends nothing.

        `template`: it has a script to run.
        """

    def remains(self, id: str) -> RemainingFiles | None:  # noqa: A002
        """Return the files that `terminate`, called on this provider object before, left; None for none."""


@dataclass(frozen=True, slots=True)
class AttachedResource:
    """A disk, image or address billed with a machine; `what` describes it to people.

    `stored_as` is the catalogue's name of the kind of storage that it is billed as (`gp3`, `ebs_snapshot`), `quantity`
    how much of it. `while_running` says whether it costs while the machine runs, `while_stopped` whether it costs while
    the machine is stopped or parked. `named`: a volume that the user retains by name; it is billed with or without a
    machine. `rate` is its price where the offer itself has one (None: the catalogue's).
    """

    what: str
    stored_as: str
    quantity: float  # GB, or how many addresses
    while_stopped: bool
    while_running: bool = True
    named: bool = False
    rate: Rate | None = None


@dataclass(frozen=True, slots=True)
class PlacementConstraint:
    """The region and zone to which an image, volume or subnet pins a launch; `why` is a sentence. None: not pinned."""

    region: str | None = None
    zone: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """All that the launch call needs for a request at one offer, looked up and not guessed.

    `call` has the arguments of the launch call as JSON values; `launch` reads them from `Attempt.call`. `guards` are
    the safeguards that end the machine, as sentences. `remarks` are sentences for the plan: what is pinned, lost or
    could not be checked. `licence` is that of the image's operating system where it changes how the machine is billed
    (`core.billing.rules`: `suse`, `rhel`), else empty. `agent`: what the agent can do, if less than `Provider.guards`.
    """

    call: Mapping[str, Any]
    attached: tuple[AttachedResource, ...] = ()
    guards: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # kinds of template parts that this image cannot run
    driver: Mapping[str, str] | None = None  # settings of the template that installs one; None: the image has one
    licence: str = ""
    agent: Agent | None = None


@runtime_checkable
class Resolves(Protocol):
    """A launch needs an image, a network or a quota looked up first. Looking up changes nothing."""

    def placement_constraint(self, setup: Setup, requirements: Requirements) -> PlacementConstraint:
        """Return the region and zone that an image, a volume or a subnet of `setup` pins the launch to. Reads only.

        Raises InvalidRequest for one that does not exist, or where the requirements name another region or zone.
        """

    def resolve(self, request: LaunchRequest, configuration: MachineConfiguration) -> Resolved:
        """Look up what the exact call needs. Reads only.

        Raises NoCapacity (not offered there), QuotaExceeded, InvalidRequest, AuthFailed.
        """


@runtime_checkable
class HasFirewall(Protocol):
    """The provider has a firewall that decides who may connect to its machines, and that cloudgpu can change."""

    def allowed(self, id: str) -> Mapping[str, str]:  # noqa: A002
        """Return the CIDR that may reach SSH for each label (`caller`, or a name given to `share`).

        Empty where a security group that is not ours decides. Raises InstanceNotFound.
        """

    def allow(self, id: str, label: str, cidr: str | None) -> None:  # noqa: A002
        """Allow this CIDR under this label in place of the one before; None removes it.

        Raises InstanceNotFound, InvalidRequest where a security group that is not ours decides.
        """


@runtime_checkable
class HasResources(Protocol):
    """Disks, snapshots and images that keep costing money when the machine is gone."""

    def resources(self, region: str | None = None) -> ResourceListing:
        """Return all that cloudgpu made, in any ledger, those that a machine uses included."""

    def remove(self, resource: ProviderResource) -> None:
        """Request its deletion, an image's with its snapshots. Idempotent. Raises InvalidRequest while it is in use."""


@runtime_checkable
class HasOrphans(Protocol):
    """Launches leave more than disks: addresses, interfaces, security groups, key pairs, requests for spot machines.

    Most of these cost nothing. None of them is in `HasResources.resources`: nothing is listed twice.
    """

    def orphans(self, region: str | None = None) -> ResourceListing:
        """Return all that cloudgpu made, in any ledger, those in use included; each has the tag of its ledger.

        A region that did not answer is named; when none did, the error of one is raised.
        """

    def remove_orphan(self, orphan: ProviderResource) -> None:
        """Request its deletion. Idempotent; ends no machine. Raises InvalidRequest while something uses it."""


@runtime_checkable
class Imageable(Protocol):
    """A machine or its disk can be kept as an image, from which it can be launched again."""

    def save_image(self, source: str, name: str, tags: Mapping[str, str], *, restart: bool = True) -> ProviderResource:
        """Make the image `name` of a machine or a disk (`source`, a provider's id); return its state so far.

        Call it again until the image is `ready`; it never makes a second one, even if `source` is gone by then. `name`
        is the image's full name, unique in its region. The image gets `tags`, and none of a disk's. A running machine
        is restarted where the provider needs that for consistency and `restart` allows it. Data volumes are not
        included. Raises InstanceNotFound, InvalidRequest.
        """

    def terminate_keeping_disk(self, id: str) -> None:  # noqa: A002
        """Request the end of the machine; its system disk is retained. Idempotent; an unknown id is no error.

        A later `get` proves the end: InstanceNotFound or `terminated`.
        """


@runtime_checkable
class HasVolumes(Protocol):
    """Data disks that outlive machines."""

    def attach(self, id: str, volume: Volume, tags: Mapping[str, str]) -> ProviderResource:  # noqa: A002
        """Make sure that the volume exists and is attached to this running machine. Idempotent.

        Raises InvalidRequest for one that another machine uses, one in another zone, and a missing one without a size.
        """


def can_keep_images(provider: Provider) -> bool:
    """Say whether this provider can save the disk of a machine that ends as an image, and list such images."""
    return isinstance(provider, Imageable) and isinstance(provider, HasResources)


def limited_to_abilities(provider: Provider, configuration: MachineConfiguration) -> MachineConfiguration:
    """Return an available item, `stoppable` and `parkable` only if its provider has these abilities."""
    stoppable = configuration.stoppable and isinstance(provider, Pausable)
    return replace(configuration, stoppable=stoppable, parkable=can_keep_images(provider))


def user_directory_write_remarks(provider: Provider, name: str, parts: Iterable[BootPart]) -> Sequence[str]:
    """Return what a launch writes in a home directory of the user's own computer, a sentence each; else nothing."""
    if not isinstance(provider, WritesAtHome):
        return ()
    return provider.writes(name, template=any(part.kind == "on_start" for part in parts))


def launch_safeguards(provider: Provider, resolved: Resolved) -> Safeguards:
    """Return what can end a machine of this launch, beside runs of the reaper elsewhere.

    `follows`: its timer follows renew-until by itself, and is set by nobody. `alone`: only runs of the reaper end it.
    """
    guards = provider.guards
    sets_timer = isinstance(provider, SetsTimer) and not provider.why_no_timer()
    return replace(
        guards,
        agent=resolved.agent or guards.agent,
        follows=not sets_timer,
        tagged=isinstance(provider, Taggable),
        alone=guards.only_reaper,
    )


def guards_record(provider: Provider, offer: Offer, resolved: Resolved, *, waived: bool) -> GuardsRecord:
    """Return the safeguards of a machine of this launch, as the ledger stores them.

    `waived`: the user accepted that no scheduled run of the reaper guards it, though it needs one.
    """
    guards = launch_safeguards(provider, resolved).to_json()
    return {**guards, "waived": True} if waived and needs_reaper_run(provider, offer, resolved) else guards


def needs_reaper_run(provider: Provider, offer: Offer, resolved: Resolved) -> bool:
    """Say whether the launch costs money and only runs of the reaper would end it."""
    return launch_safeguards(provider, resolved).alone and is_billed(provider.kind, offer.price.per_hour.nanos)
