"""The provider seam: one small protocol that all implement, and one small protocol per further ability.

A provider is made by a factory `(ProviderSettings) -> Provider` found under the entry-point group
`cloudgpu.providers`. Making one reads no network; SDKs are imported inside methods.
Every method may raise the classes of `cloudgpu.errors` and no others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from cloudgpu.core.account import BudgetAlert, MachineRole, Permission, Quota, Region
from cloudgpu.core.guards import Agent, Guards
from cloudgpu.core.identity import AccountIdentity
from cloudgpu.core.instances import Instance, Listing, Process
from cloudgpu.core.launch_request import Attempt, LaunchRequest, Setup, Volume
from cloudgpu.core.pricelist import PriceList
from cloudgpu.core.resources import Leftover, Leftovers
from cloudgpu.core.stock import Available, Price, Stock, Want
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.patience import patience_s

GROUP = "cloudgpu.providers"


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """What a factory gets: the account's configured name, its table of config.toml, where files may be kept.

    `home` belongs to this provider and account alone. `clock` returns aware UTC. `pause` waits so many seconds.
    `ledger` is whose volumes are meant by their names; empty: anybody's. A ledger has no id before its first line:
    `ledger_now` says whether it has one meanwhile. `tell` says a sentence to whoever waits: what a call could not do
    beside what it was asked for, and did. `patience` is how many seconds a read may be without an answer.
    `called` says, where regions are the user's own hosts, what those are called now that had another name at a launch.
    """

    account: str
    options: Mapping[str, Any]
    home: Path
    clock: Callable[[], datetime]
    pause: Callable[[float], None] = time.sleep
    ledger: str = ""
    ledger_now: Callable[[], str] = str  # nothing: the usual value of a text
    tell: Callable[[str], object] = str  # nobody: no more than the text itself
    patience: float = field(default_factory=patience_s)
    called: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenRule:
    """How the provider treats a launch token.

    Within `lifetime` of the first call, the same token with the same parameters never makes a second machine.
    `listing_proves_after` the call was sent, a complete listing without the machine proves that it was not made.
    `gone_proves_after` it, `get` that does not know a machine which was seen before proves its end; None: as late as a
    listing. `source` says who says so.
    """

    lifetime: timedelta
    listing_proves_after: timedelta
    source: str
    gone_proves_after: timedelta | None = None

    @property
    def gone_after(self) -> timedelta:
        """How long after the call an unknown machine that was seen before is one that has ended."""
        return self.listing_proves_after if self.gone_proves_after is None else self.gone_proves_after


class Provider(Protocol):
    """What every provider can do."""

    kind: str  # "local", "aws", ...
    account: str
    token_rule: TokenRule
    runs_parts: frozenset[str]  # kinds of template parts that it runs; the others are named as left out

    @property
    def guards(self) -> Guards:
        """What can end its machines, beside passes from outside, in this account as it is set up. Asks nothing.

        A launch may have less: `Resolved.agent` says so.
        """
        ...

    def identity(self, region: str | None = None) -> AccountIdentity:
        """Return which account this is by the provider's own word: its number, its project, this computer.

        Two accounts with one name have two identities; one account has the same for everybody who may use it. Where an
        account's regions are separate computers, `region` says which is meant. Asked over the network once, and kept.
        Raises AuthFailed or ProviderUnavailable where it cannot be known, NotReachableHere where there is no
        such region.
        """
        ...

    def available(self, want: Want) -> Stock:
        """Return what could satisfy `want`, unpriced, in no order; no items when nothing can.

        A part (a region) that did not answer is named; when none did, its error is raised.
        """
        ...

    def launch(self, attempt: Attempt, *, deadline: datetime) -> Instance:
        """Ask for the machine and return once the cloud has accepted it.

        Idempotent on `attempt.token`. Raises NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest when it was
        surely not made; LaunchUncertain (or any other ProviderUnavailable) when that is not known.
        """
        ...

    def get(self, id: str) -> Instance:  # noqa: A002
        """Return the machine now; raise InstanceNotFound only when the provider answered that it has none."""
        ...

    def list(self) -> Listing:
        """Return every machine that carries a cloudgpu-id tag, of any ledger."""
        ...

    def terminate(self, id: str) -> None:  # noqa: A002
        """Ask to end the machine and all that was made with it. Idempotent; an unknown id is no error.

        The proof is a later `get`: InstanceNotFound or `terminated`. Raises EndRefused, with the command that lifts it,
        where something protects the machine from its end: it is stopped instead, where that can be.
        """
        ...


@runtime_checkable
class Pausable(Protocol):
    """Machines that can be stopped and started again."""

    def stop(self, id: str) -> None:  # noqa: A002
        """Ask to stop, in the way that ends billing. Idempotent. Raises InstanceNotFound."""
        ...

    def start(self, id: str) -> None:  # noqa: A002
        """Ask to start a stopped machine. Idempotent. Raises InstanceNotFound, NoCapacity, InvalidRequest."""
        ...


@runtime_checkable
class StopsMany(Protocol):
    """Many machines can be asked about, and stopped, in few calls. One that cannot be keeps no other one running."""

    def stop_many(self, ids: Sequence[str]) -> Mapping[str, CloudgpuError]:
        """Ask to stop these, as `Pausable.stop` does; return why not, by id, for those that surely were not asked.

        In as few calls as there can be; a call that is refused for one of them is halved until that one is alone. A
        machine that is stopped already, or stopping, is fine; one that is still starting may be refused. Raises nothing
        but defects: where nothing is known of a part, its ids have that error. The proof is a later look.
        """
        ...

    def get_many(self, ids: Sequence[str]) -> Mapping[str, Instance | CloudgpuError]:
        """Return each machine now, or the error that `get` would raise for it: InstanceNotFound, say. Raises nothing.

        In as few calls as there can be: at most one per region and 1000 ids, where all of them are there.
        """
        ...


@runtime_checkable
class Taggable(Protocol):
    """Tags can be changed after the launch."""

    def tag(self, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
        """Set these tags and leave every other alone. Raises InstanceNotFound."""
        ...


@runtime_checkable
class HasPrices(Protocol):
    """The provider knows what its own offers cost now."""

    def prices(self, offers: Sequence[Available]) -> Sequence[Price | None]:
        """Return one price per item, in order; None where it has none."""
        ...


@runtime_checkable
class HasPriceHistory(Protocol):
    """The provider remembers what spot machines cost, and since when each price holds."""

    def price_history(self, items: Sequence[Available], since: datetime) -> Sequence[Sequence[Price]]:
        """Return for each spot item, in order, the prices that held from `since` (aware UTC) until now, oldest first.

        `as_of` is when a price began to hold: the first, at or before `since`, held at that time. None at all for an
        item on demand, or where nothing is known. Raises ProviderUnavailable where a part did not answer.
        """
        ...


@runtime_checkable
class HasMeteredPrice(Protocol):
    """Its machines cost the electricity that they draw, so that their own meter can tell their price."""

    def metered_price(self, item: Available, watts: Decimal, over: timedelta) -> Price | None:
        """Return what a machine costs whose GPUs drew so many watts on average, measured for `over` in all.

        None where the settings say what it draws, or say no tariff: then the price of `prices` holds.
        """
        ...


@runtime_checkable
class HasTimer(Protocol):
    """A timer on the provider's side ends a machine at `renew-until`, whatever else has died."""

    def timer(self, id: str) -> datetime | None:  # noqa: A002
        """Return when the timer fires, aware UTC; None when none is set. Raises InstanceNotFound."""
        ...


class Firing(StrEnum):
    """What a timer does with its machine."""

    STOP = "stop"
    STOP_AGAIN = "stop_again"  # stops it from then on whenever it runs: the cloud may start such a machine by itself
    TERMINATE = "terminate"


@runtime_checkable
class SetsTimer(HasTimer, Protocol):
    """The timer is a thing of its own, apart from the machine: whoever launches sets it, moves it and drops it."""

    def no_timer(self) -> str:
        """Return why this account has no timers, as a sentence with the way out; empty where it has. Asks nothing."""
        ...

    def timer_limit(self, id: str) -> datetime | None:  # noqa: A002
        """Return the date, aware UTC, after which the timer cannot be moved: what was fixed at launch; None for none.

        Raises InstanceNotFound where it has to look.
        """
        ...

    def set_timer(self, id: str, at: datetime, *, does: Firing | None = None) -> bool:  # noqa: A002
        """Let the timer fire at `at` (aware UTC, to the minute), whether there was one or not. Idempotent.

        Return whether anything was changed: one that fires then already, or is fixed, stays as it is.

        A time that is over means at once. `does` is what it is to do, where the caller knows; else it is looked up.
        Raises InstanceNotFound where it has to look, InvalidRequest after `timer_limit`, or where `no_timer` says why.
        """
        ...

    def drop_timer(self, id: str) -> None:  # noqa: A002
        """Take the timer away; none is no error, nor is a machine that is gone, nor one that bears it for life."""
        ...

    def timers(self, region: str | None = None, *, of: Collection[str] | None = None) -> Mapping[str, datetime]:
        """Return when the timers of this ledger's machines fire, by the provider's id, of machines that are gone too.

        `of`: only those of these machines are wanted, in as few calls as they can be had; others may be there, too.
        Raises ProviderUnavailable naming a region that did not answer: a part would look like the whole.
        """
        ...


@runtime_checkable
class TellsActivity(Protocol):
    """What a machine says of its use is not in a listing: it is asked for, machine by machine."""

    def activity(self, ids: Sequence[str]) -> Mapping[str, datetime | CloudgpuError | None]:
        """Return when each was last in use by its own word, aware UTC; None where it has said nothing yet.

        One call per machine, side by side; the error of one that did not answer stands in its place. Raises nothing
        but defects.
        """
        ...


@runtime_checkable
class TellsProcesses(Protocol):
    """The computer goes on when its machine ends: what still runs of the machine, and ends with it, can be told."""

    def processes(self, id: str) -> Sequence[Process] | None:  # noqa: A002
        """Return what runs of this machine beside its agent; None where the computer does not tell. Reads only.

        Raises InstanceNotFound.
        """
        ...


@runtime_checkable
class ReadsHostKeys(Protocol):
    """A machine whose image takes no host key makes its own, and the provider's API tells it before we connect."""

    def host_keys(self, id: str) -> Sequence[str]:  # noqa: A002
        """Return the OpenSSH public lines (type and key) that the machine has said; none yet while it boots.

        Raises InstanceNotFound.
        """
        ...


@runtime_checkable
class Examines(Protocol):
    """What in an account stands in the way of cloudgpu, or makes it less safe, can be told without changing it."""

    def findings(self, region: str | None = None) -> Sequence[Finding]:
        """Return what was looked at, good or not: a service that is off, a rule that is open to all. Reads only."""
        ...


@runtime_checkable
class CanRehearseInterruption(Protocol):
    """A spot interruption can be rehearsed."""

    def interrupt(self, id: str) -> datetime:  # noqa: A002
        """Give the machine its notice and return when it will be taken, aware UTC. Raises InstanceNotFound."""
        ...


@runtime_checkable
class KnowsHostKeys(Protocol):
    """Machines that have a host key already when they are launched: the user's own, say."""

    def host_key(self, item: Available) -> str | None:
        """Return the OpenSSH public line to pin for this offer; None: the launch gives the machine a new key.

        Raises InvalidRequest when the key is needed and nobody has confirmed it yet.
        """
        ...


@runtime_checkable
class LeavesFiles(Protocol):
    """A machine that is the user's own: an end takes away what cloudgpu put there, and the rest stays."""

    @property
    def end_means(self) -> str:
        """What `terminate` takes away and what it leaves, in whole sentences, for whoever is asked first."""
        ...


@dataclass(frozen=True, slots=True)
class Remains:
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
        ...

    def remains(self, id: str) -> Remains | None:  # noqa: A002
        """Return what `terminate` on this very object has left of the machine; None for nothing. Asks nobody."""
        ...


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was looked at in an account: `good`, or why not and what to do; None: it could not be looked at.

    `needed`: nothing is launched while it is so.
    """

    what: str
    good: bool | None
    says: str
    next: str = ""
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Beside:
    """Something that a launch costs beside the machine: `quantity` of `stored_as` in the catalogue's storage prices.

    `running` says whether it costs while the machine runs, `kept` whether it does while that is stopped or parked.
    `what` is for people. `named`: a volume that the user keeps by name; it costs whether there is a machine or not.
    """

    what: str
    stored_as: str
    quantity: float  # GB, or how many addresses
    kept: bool
    running: bool = True
    named: bool = False


@dataclass(frozen=True, slots=True)
class Bound:
    """Where the parts of a setup tie a launch to, and the sentence that says why. None: not tied."""

    region: str | None = None
    zone: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A request at one offer made exact: what the launch call will say, looked up and not guessed.

    `call` is plain JSON values that `launch` reads from `Attempt.call`. `guards` are the layers that end the machine.
    `remarks` are sentences for the plan: what is bound, lost or could not be checked. `licence` is that of the image's
    system where it changes how the machine is billed (`core.billing_rules`: `suse`, `rhel`), else empty. `agent` is
    what the agent can do on this machine, where that is less than `Provider.guards` says.
    """

    call: Mapping[str, Any]
    beside: tuple[Beside, ...] = ()
    guards: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # kinds of template parts that this image cannot run
    driver: Mapping[str, str] | None = None  # settings of the template that installs one; None: the image has one
    licence: str = ""
    agent: Agent | None = None


@runtime_checkable
class Resolves(Protocol):
    """A launch needs things looked up first: an image, a network, a quota. Looking up changes nothing."""

    def bound(self, setup: Setup, want: Want) -> Bound:
        """Return where an own image, a volume or a subnet of `setup` ties the launch to.

        Raises InvalidRequest for one that does not exist, or where `want` names another place.
        """
        ...

    def resolve(self, request: LaunchRequest, item: Available) -> Resolved:
        """Look up what the exact call needs. Reads only.

        Raises NoCapacity (not offered there), QuotaExceeded, InvalidRequest, AuthFailed.
        """
        ...


@runtime_checkable
class Reachable(Protocol):
    """Who may connect is the provider's to say."""

    def allowed(self, id: str) -> Mapping[str, str]:  # noqa: A002
        """Return the CIDR per label (`caller`, or a name given by `share`) that may reach SSH. InstanceNotFound.

        Empty where somebody else's security group decides.
        """
        ...

    def allow(self, id: str, label: str, cidr: str | None) -> None:  # noqa: A002
        """Let this CIDR in under this label in place of the one before; None takes it out.

        Raises InstanceNotFound, InvalidRequest where somebody else's security group decides.
        """
        ...


@runtime_checkable
class HasLeftovers(Protocol):
    """Disks, snapshots and images that go on costing money when the machine is gone."""

    def leftovers(self, region: str | None = None) -> Leftovers:
        """Return all of ours, of any ledger, those that a machine uses included."""
        ...

    def remove(self, leftover: Leftover) -> None:
        """Ask to delete it, an image with its snapshots. Idempotent. Raises InvalidRequest while it is in use."""
        ...


@runtime_checkable
class HasOrphans(Protocol):
    """Launches leave more than disks: addresses, interfaces, security groups, key pairs, requests for spot machines.

    Most of these cost nothing. None of them is in `HasLeftovers.leftovers`: nothing is listed twice.
    """

    def orphans(self, region: str | None = None) -> Leftovers:
        """Return all of ours, of any ledger, those in use included; each bears the tag of its ledger.

        A part (a region) that did not answer is named; when none did, its error is raised.
        """
        ...

    def remove_orphan(self, thing: Leftover) -> None:
        """Ask to delete one of these. Idempotent; a machine goes on. Raises InvalidRequest while something uses it."""
        ...


@runtime_checkable
class Imageable(Protocol):
    """A machine or its disk can be kept as an image, from which it can be launched again."""

    def save_image(self, source: str, name: str, tags: Mapping[str, str], *, restart: bool = True) -> Leftover:
        """Go on making the image `name` of a machine or a disk (the provider's id), and return what there is of it.

        Called again until it is `ready`; never makes a second one, also when `source` has gone meanwhile. `name` is the
        image's full name, unique in its region; a disk keeps its tags for itself, the image gets `tags`. A running
        machine is restarted for it where the provider needs that to be consistent and `restart` allows it. Data
        volumes are no part of it. Raises InstanceNotFound, InvalidRequest.
        """
        ...

    def end_keeping_disk(self, id: str) -> None:  # noqa: A002
        """Ask to end the machine while its system disk stays as a leftover. Idempotent; an unknown id is no error.

        The proof is a later `get`: InstanceNotFound or `terminated`.
        """
        ...


@runtime_checkable
class HasVolumes(Protocol):
    """Data disks that outlive machines."""

    def attach(self, id: str, volume: Volume, tags: Mapping[str, str]) -> Leftover:  # noqa: A002
        """Make sure that the volume exists and is attached to this running machine. Idempotent.

        Raises InvalidRequest for one that is used by another machine, lies in another zone, or is not there while
        `size_gb` is None.
        """
        ...


@runtime_checkable
class HasQuota(Protocol):
    """The account's limits can be read."""

    def quotas(self, region: str) -> Sequence[Quota]:
        """Return the limits on machines with GPUs in a region."""
        ...

    def quota_page(self, region: str, code: str) -> str:
        """Return where a person asks for a higher limit: the address of the provider's own page. Asks nothing."""
        ...


@runtime_checkable
class RaisesQuota(HasQuota, Protocol):
    """A higher limit can be asked for here, without a person at the provider's page."""

    def request_quota(self, region: str, code: str, limit: float) -> str:
        """Ask the provider for a higher limit; return the request's id. Raises InvalidRequest."""
        ...


@runtime_checkable
class HasRegions(Protocol):
    """The account has regions, each with a public endpoint."""

    def regions(self) -> Sequence[Region]:
        """Return the regions that this account uses."""
        ...


@runtime_checkable
class ChecksPermissions(Protocol):
    """What the credential may do can be asked without doing it."""

    def permissions(self, region: str | None = None) -> Sequence[Permission]:
        """Return every action that cloudgpu uses and whether it is allowed. Changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Login:
    """A credential as words, never the credential itself, and how long it lasts.

    `lasts`: it needs nobody to renew it (True), somebody has to (False), or that is not known (None). `until` is when
    it ends unless it is renewed; None where it does not, or nobody can say.
    """

    what: str
    until: datetime | None
    lasts: bool | None


@runtime_checkable
class HasLogin(Protocol):
    """How long the credential lasts with nobody at the keyboard can be told."""

    def login(self) -> Login:
        """Return what the credential is and how long it lasts. Changes nothing. Raises AuthFailed for none."""
        ...


@runtime_checkable
class HasMachineRole(Protocol):
    """Machines can be given a role: under it they write when they were last in use, and may do nothing else.

    `document` is the text of the permission document that says so.
    """

    def machine_role(self, document: str) -> MachineRole:
        """Return what there is of the role. Changes nothing."""
        ...

    def make_machine_role(self, document: str) -> None:
        """Make what is missing of it. Idempotent. Raises InvalidRequest where somebody else's bears its name."""
        ...

    def remove_machine_role(self) -> None:
        """Take away what is ours of it. Idempotent. Raises InvalidRequest for what the provider keeps."""
        ...


@runtime_checkable
class HasTimerRole(Protocol):
    """The provider's timers act under a role: it may stop and end machines of cloudgpu, and do nothing else.

    `document` is the text of the permission document that says so.
    """

    def timer_role(self, document: str) -> MachineRole:
        """Return what there is of the role. Changes nothing."""
        ...

    def make_timer_role(self, document: str) -> None:
        """Make what is missing of it. Idempotent. Raises InvalidRequest where somebody else's bears its name."""
        ...

    def remove_timer_role(self) -> None:
        """Take away what is ours of it. Idempotent. Timers that are set stay, and do nothing any more."""
        ...


@runtime_checkable
class HasBudgetAlert(Protocol):
    """The provider itself can mail when the account costs too much: a backstop for when nothing of ours lives."""

    def budget_alert(self) -> BudgetAlert | None:
        """Return ours, None for none. Changes nothing. One whose mails are not all as we set them names no `emails`."""
        ...

    def set_budget_alert(self, alert: BudgetAlert) -> None:
        """Make ours so, in place of what there is of it. Idempotent."""
        ...

    def remove_budget_alert(self) -> None:
        """Take ours away. Idempotent."""
        ...


Factory = Callable[[ProviderSettings], Provider]


def keeps_images(provider: Provider) -> bool:
    """Say whether this provider can keep the disk of a machine that ends as an image, and say what there is."""
    return isinstance(provider, Imageable) and isinstance(provider, HasLeftovers)


def as_able(provider: Provider, item: Available) -> Available:
    """Return what is available with how it can end: no more than its provider is able to."""
    stoppable = item.stoppable and isinstance(provider, Pausable)
    return replace(item, stoppable=stoppable, parkable=keeps_images(provider))


def guarding(provider: Provider, resolved: Resolved) -> Guards:
    """Return what can end a machine of this launch, beside passes from outside."""
    found = provider.guards
    set_by_us = isinstance(provider, SetsTimer) and not provider.no_timer()
    return replace(found, agent=resolved.agent or found.agent, follows=not set_by_us)


# What a provider sells at what price, for the catalogue. Apart from the protocols above: the list of a provider can be
# read before machines can be launched there. Raises when no part of the list answered.
PriceLister = Callable[[ProviderSettings], PriceList]
