"""What a provider may be able to do beside `Provider`: one small protocol per ability, with its values.

Who has the methods of a protocol has the ability. Those of the account itself are in `account_abilities`, those for
several machines at once in `cluster_abilities`.
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
from cloudgpu.core.model.launch import LaunchRequest, Part, Setup, Volume
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import Available, Offer, Price, Requirements
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
    """The provider knows what its own offers cost now."""

    def prices(self, offers: Sequence[Available]) -> Sequence[Price | None]:
        """Return one price per item, in order; None where it has none."""


@runtime_checkable
class HasPriceHistory(Protocol):
    """The provider remembers what spot machines cost, and since when each price holds."""

    def price_history(self, items: Sequence[Available], since: datetime) -> Sequence[Sequence[Price]]:
        """Return for each spot item, in order, the prices that held from `since` (aware UTC) until now, oldest first.

        `as_of` is when a price began to hold: the first, at or before `since`, held at that time. None at all for an
        item on demand, or where nothing is known. Raises ProviderUnavailable where a part did not answer.
        """


@runtime_checkable
class HasPlacementScores(Protocol):
    """The provider says how likely a spot launch is to succeed in each of several places."""

    def placement_scores(self, items: Sequence[Available]) -> Sequence[int | None]:
        """Return for each spot item, in order, from 1 (unlikely) to 10 how likely it can be had now.

        None for an item of another type than the first, for one on demand, and where nothing is known: this account may
        not ask, say. An answer may be up to an hour old. One call at most, besides the names of zones. Raises nothing.
        """


@runtime_checkable
class HasMeteredPrice(Protocol):
    """Its machines cost the electricity that they draw, so that their own meter can tell their price."""

    def metered_price(self, item: Available, watts: Decimal, over: timedelta) -> Price | None:
        """Return what a machine costs whose GPUs drew so many watts on average, measured for `over` in all.

        None where the settings say what it draws, or say no tariff: then the price of `prices` holds.
        """


@runtime_checkable
class SharesComputer(Protocol):
    """Its machines share one computer, cost their parts of its electricity, and are never more than that together.

    `prices` gives the most that a machine can cost: all that the computer can draw.
    """

    def shared_price(self, item: Available, share: ComputerShare) -> Price | None:
        """Return what an hour cost a machine that bore this part of the computer; None where nobody may know it."""


@runtime_checkable
class HostLeaves(Protocol):
    """Its machines are on computers of others, who may take them away on a date that they have said."""

    def leaves_at(self, id: str) -> datetime | None:  # noqa: A002
        """Return when the machine's computer is taken away, aware UTC, by the last look at it; None: nobody says.

        Looks where there was no look yet; raises InstanceNotFound then.
        """


@runtime_checkable
class HasTimer(Protocol):
    """A timer on the provider's side ends a machine at `renew-until`, whatever else has died."""

    def timer(self, id: str) -> datetime | None:  # noqa: A002
        """Return when the timer fires, aware UTC; None when none is set. Raises InstanceNotFound."""


class TimerAction(StrEnum):
    """What a timer does with its machine."""

    STOP = "stop"
    STOP_AGAIN = "stop_again"  # stops it from then on whenever it runs: the cloud may start such a machine by itself
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
    """The timer is a thing of its own, apart from the machine: whoever launches sets it, moves it and drops it."""

    def no_timer(self) -> str:
        """Return why this account has no timers, as a sentence with the way out; empty where it has. Asks nothing."""

    def timer_limit(self, id: str) -> datetime | None:  # noqa: A002
        """Return the date, aware UTC, after which the timer cannot be moved: what was fixed at launch; None for none.

        Raises InstanceNotFound where it has to look.
        """

    def set_timer(self, id: str, at: datetime, *, does: TimerAction | None = None) -> bool:  # noqa: A002
        """Let the timer fire at `at` (aware UTC, to the minute), whether there was one or not. Idempotent.

        Return whether anything was changed: one that fires then already, or is fixed, stays as it is.

        A time that is over means at once. `does` is what it is to do, where the caller knows; else it is looked up.
        Raises InstanceNotFound where it has to look, InvalidRequest after `timer_limit`, or where `no_timer` says why.
        """

    def drop_timer(self, id: str) -> None:  # noqa: A002
        """Take the timer away; none is no error, nor is a machine that is gone, nor one that bears it for life."""

    def timers(self, region: str | None = None, *, of: Collection[str] | None = None) -> Mapping[str, datetime]:
        """Return when the timers of this ledger's machines fire, by the provider's id, of machines that are gone too.

        `of`: only those of these machines are wanted, in as few calls as they can be had; others may be there, too.
        Raises ProviderUnavailable naming a region that did not answer: a part would look like the whole.
        """


@runtime_checkable
class ReportsActivity(Protocol):
    """What a machine says of its use is not in a listing: it is asked for, machine by machine."""

    def activity(self, ids: Sequence[str]) -> Mapping[str, datetime | CloudgpuError | None]:
        """Return when each was last in use by its own word, aware UTC; None where it has said nothing yet.

        One call per machine, side by side; the error of one that did not answer is in its place. Raises nothing
        but defects.
        """


@runtime_checkable
class ReportsProcesses(Protocol):
    """The computer goes on when its machine ends: what still runs of the machine, and ends with it, can be told."""

    def processes(self, id: str) -> Sequence[Process] | None:  # noqa: A002
        """Return what runs of this machine beside its agent; None where the computer does not tell. Reads only.

        Raises InstanceNotFound.
        """


@runtime_checkable
class ReadsHostKeys(Protocol):
    """A machine whose image takes no host key makes its own, and the provider's API tells it before we connect."""

    def host_keys(self, id: str) -> Sequence[str]:  # noqa: A002
        """Return the OpenSSH public lines (type and key) that the machine has said; none yet while it boots.

        Raises InstanceNotFound.
        """


@runtime_checkable
class CanRehearseInterruption(Protocol):
    """A spot interruption can be rehearsed."""

    def interrupt(self, id: str) -> datetime:  # noqa: A002
        """Give the machine its notice and return when it will be taken, aware UTC. Raises InstanceNotFound."""


@runtime_checkable
class KnowsHostKeys(Protocol):
    """Machines that have a host key already when they are launched: the user's own, say."""

    def host_key(self, item: Available) -> str | None:
        """Return the OpenSSH public line to pin for this offer; None: the launch gives the machine a new key.

        Raises InvalidRequest when the key is needed and nobody has confirmed it yet.
        """


@runtime_checkable
class LeavesFiles(Protocol):
    """A machine that is the user's own: an end takes away what cloudgpu put there, and the rest stays."""

    @property
    def end_effect(self) -> str:
        """What `terminate` takes away and what it leaves, in whole sentences, for whoever is asked first."""


@dataclass(frozen=True, slots=True)
class RemainingFiles:
    """Files of a machine that ended which its owner has made or changed: in which directory, how many, some of them."""

    where: str
    files: tuple[str, ...]
    count: int


@runtime_checkable
class WritesAtHome(Protocol):
    """A machine is a directory in the home of somebody who works there, too: what is written there is said before."""

    def writes(self, name: str, *, template: bool) -> Sequence[str]:
        """Return what a launch of that name writes there and what becomes of it, a sentence each. Asks nobody.

        `template`: it has a script to run.
        """

    def remains(self, id: str) -> RemainingFiles | None:  # noqa: A002
        """Return what `terminate` on this very object has left of the machine; None for nothing. Asks nobody."""


@dataclass(frozen=True, slots=True)
class AttachedResource:
    """A disk, image or address billed with a machine: `quantity` of `stored_as` in the catalogue's storage prices.

    `while_running` says whether it costs while the machine runs, `while_stopped` whether it costs while the machine is
    stopped or parked. `what` is for people. `named`: a volume that the user keeps by name; it is billed with or without
    a machine. `rate` is its price where the offer itself says one (None: the catalogue's).
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
    """The region and zone that the parts of a setup pin a launch to, and why, as a sentence. None: not pinned."""

    region: str | None = None
    zone: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A request at one offer made exact: what the launch call will say, looked up and not guessed.

    `call` is plain JSON values that `launch` reads from `Attempt.call`. `guards` are the layers that end the machine.
    `remarks` are sentences for the plan: what is bound, lost or could not be checked. `licence` is that of the image's
    system where it changes how the machine is billed (`core.billing.rules`: `suse`, `rhel`), else empty. `agent` is
    what the agent can do on this machine, where that is less than `Provider.guards` says.
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
    """A launch needs things looked up first: an image, a network, a quota. Looking up changes nothing."""

    def placement_constraint(self, setup: Setup, requirements: Requirements) -> PlacementConstraint:
        """Return the region and zone that an image, a volume or a subnet of `setup` pins the launch to. Reads only.

        Raises InvalidRequest for one that does not exist, or where the requirements name another place.
        """

    def resolve(self, request: LaunchRequest, item: Available) -> Resolved:
        """Look up what the exact call needs. Reads only.

        Raises NoCapacity (not offered there), QuotaExceeded, InvalidRequest, AuthFailed.
        """


@runtime_checkable
class Reachable(Protocol):
    """Who may connect is the provider's to say."""

    def allowed(self, id: str) -> Mapping[str, str]:  # noqa: A002
        """Return the CIDR per label (`caller`, or a name given by `share`) that may reach SSH. InstanceNotFound.

        Empty where somebody else's security group decides.
        """

    def allow(self, id: str, label: str, cidr: str | None) -> None:  # noqa: A002
        """Let this CIDR in under this label in place of the one before; None takes it out.

        Raises InstanceNotFound, InvalidRequest where somebody else's security group decides.
        """


@runtime_checkable
class HasResources(Protocol):
    """Disks, snapshots and images that go on costing money when the machine is gone."""

    def resources(self, region: str | None = None) -> ResourceListing:
        """Return all of ours, of any ledger, those that a machine uses included."""

    def remove(self, resource: ProviderResource) -> None:
        """Ask to delete it, an image with its snapshots. Idempotent. Raises InvalidRequest while it is in use."""


@runtime_checkable
class HasOrphans(Protocol):
    """Launches leave more than disks: addresses, interfaces, security groups, key pairs, requests for spot machines.

    Most of these cost nothing. None of them is in `HasResources.resources`: nothing is listed twice.
    """

    def orphans(self, region: str | None = None) -> ResourceListing:
        """Return all of ours, of any ledger, those in use included; each bears the tag of its ledger.

        A part (a region) that did not answer is named; when none did, its error is raised.
        """

    def remove_orphan(self, orphan: ProviderResource) -> None:
        """Ask to delete one of these. Idempotent; a machine goes on. Raises InvalidRequest while something uses it."""


@runtime_checkable
class Imageable(Protocol):
    """A machine or its disk can be kept as an image, from which it can be launched again."""

    def save_image(self, source: str, name: str, tags: Mapping[str, str], *, restart: bool = True) -> ProviderResource:
        """Go on making the image `name` of a machine or a disk (the provider's id), and return what there is of it.

        Called again until it is `ready`; never makes a second one, also when `source` has gone meanwhile. `name` is the
        image's full name, unique in its region; a disk keeps its tags for itself, the image gets `tags`. A running
        machine is restarted for it where the provider needs that to be consistent and `restart` allows it. Data
        volumes are no part of it. Raises InstanceNotFound, InvalidRequest.
        """

    def end_keeping_disk(self, id: str) -> None:  # noqa: A002
        """Ask to end the machine while its system disk stays as a leftover. Idempotent; an unknown id is no error.

        The proof is a later `get`: InstanceNotFound or `terminated`.
        """


@runtime_checkable
class HasVolumes(Protocol):
    """Data disks that outlive machines."""

    def attach(self, id: str, volume: Volume, tags: Mapping[str, str]) -> ProviderResource:  # noqa: A002
        """Make sure that the volume exists and is attached to this running machine. Idempotent.

        Raises InvalidRequest for one that is used by another machine, lies in another zone, or is not there while
        `size_gb` is None.
        """


def keeps_images(provider: Provider) -> bool:
    """Say whether this provider can keep the disk of a machine that ends as an image, and say what there is."""
    return isinstance(provider, Imageable) and isinstance(provider, HasResources)


def as_able(provider: Provider, item: Available) -> Available:
    """Return what is available with how it can end: no more than its provider is able to."""
    stoppable = item.stoppable and isinstance(provider, Pausable)
    return replace(item, stoppable=stoppable, parkable=keeps_images(provider))


def written_at_home(provider: Provider, name: str, parts: Iterable[Part]) -> Sequence[str]:
    """Return what a launch writes in the home of somebody's own computer, a sentence each; nothing elsewhere."""
    if not isinstance(provider, WritesAtHome):
        return ()
    return provider.writes(name, template=any(part.kind == "on_start" for part in parts))


def guarding(provider: Provider, resolved: Resolved) -> Safeguards:
    """Return what can end a machine of this launch, beside passes from outside."""
    found = provider.guards
    set_by_us = isinstance(provider, SetsTimer) and not provider.no_timer()
    return replace(
        found,
        agent=resolved.agent or found.agent,
        follows=not set_by_us,
        tagged=isinstance(provider, Taggable),
        alone=found.only_reaper,
    )


def guards_record(provider: Provider, offer: Offer, resolved: Resolved, *, waived: bool) -> GuardsRecord:
    """Return what guards a machine of this launch, as the ledger stores it.

    `waived`: it was agreed that none of the runs that it would need guards it.
    """
    found = guarding(provider, resolved).to_json()
    return {**found, "waived": True} if waived and needs_run(provider, offer, resolved) else found


def needs_run(provider: Provider, offer: Offer, resolved: Resolved) -> bool:
    """Say whether only runs of the reaper would end what this launch costs, by all that its place has."""
    return guarding(provider, resolved).alone and is_billed(provider.kind, offer.price.per_hour.nanos)
