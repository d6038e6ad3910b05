"""Three made-up clouds for a simulated year, each with a book of its own of what everything costs.

They speak cloudgpu's provider protocols, and they bill by rules that are written here from the providers' pages, with
nothing of cloudgpu's billing: AWS by the second with a minute at least, a spot machine that it interrupts within the
hour is free; Google by the second with a minute at least, one that it preempts within the minute is free; Azure by
the second, also while a machine is shut down but allocated. Disks and addresses cost from the second they are there;
EBS volumes a minute at least, Azure's disks and what images are made of by the started hour.
"""

from __future__ import annotations

import bisect
import calendar
import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from cloudgpu.core.catalog.matching import fits
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import TAG_RENEW_UNTIL, Instance, Listing, State
from cloudgpu.core.model.offers import Accelerator, Availability, Basis, MachineConfiguration, Market, Price
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.core.policies.guards import Agent, Safeguards
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_epoch
from cloudgpu.errors import InstanceNotFound, InvalidRequest, NoCapacity
from cloudgpu.providers.abilities import AttachedResource, Resolved
from cloudgpu.providers.base import TokenRule

MINUTE, HOUR = 60, 3600
SHOWN_FOR = timedelta(hours=24)  # a terminated machine is listed for so long: longer than from one look to the next


@dataclass(frozen=True)
class Shop:
    """What one cloud sells: USD per hour on demand, USD per GB-month (or per disk-month), USD per address-hour."""

    kind: str
    region: str
    types: dict[str, tuple[str, str]]  # name -> (GPU, USD per hour)
    disk: tuple[str, int, str, bool]  # stored as, GB, USD a month for a GB, or for the disk where True
    address: tuple[str, str] | None
    image: tuple[str, str]  # stored as, USD per GB-month
    stopped: State
    least: int = 0  # seconds billed at each start
    free_within: int = 0  # a spot machine that was taken so soon costs nothing


SHOPS = (
    Shop(
        "aws",
        "us-east-1",
        {"g4dn.xlarge": ("t4", "0.526"), "p3.2xlarge": ("v100", "3.06")},
        ("gp3", 100, "0.08", False),
        ("public_ipv4", "0.005"),
        ("ebs_snapshot", "0.05"),
        State.STOPPED,
        MINUTE,
        HOUR,
    ),
    Shop(
        "gcp",
        "us-central1",
        {"g2-standard-4": ("l4", "0.7068"), "a2-highgpu-1g": ("a100", "3.67339")},
        ("pd-balanced", 100, "0.1", False),
        None,
        ("snapshot(standard)", "0.05"),
        State.STOPPED,
        MINUTE,
        MINUTE,
    ),
    Shop(
        "azure",
        "eastus",
        {"NC4as_T4_v3": ("t4", "0.526"), "NC24ads_A100_v4": ("a100", "3.673")},
        ("P10 128 GiB", 128, "19.71", True),
        None,
        ("snapshot", "0.05"),
        State.DEALLOCATED,
    ),
)


@dataclass
class Entry:
    """One thing in the book: from when to when it was there, and what it cost then (exact USD)."""

    owner: str  # cloudgpu-id
    what: str
    begin: datetime
    end: datetime | None = None
    type: str = ""
    spot: bool = False
    taken: bool = False
    at_most: bool = False  # billed by what was written: anything up to this
    zone: str = ""


@dataclass
class Box:
    """A machine of a made-up cloud."""

    id: str
    token: str
    tags: dict[str, str]
    item: MachineConfiguration
    launched: datetime
    state: State
    since: datetime
    reason: str | None = None
    inside: bool = False  # shut down from inside: allocated still
    keeps_disk: bool = False
    image: str | None = None


@dataclass
class Thing:
    """A disk or an image that is there without a machine."""

    id: str
    kind: Kind
    size: int
    tags: dict[str, str]
    made: datetime


@dataclass
class Sim:
    """A made-up cloud behind cloudgpu's protocols. `strike` is called around everything that changes it."""

    shop: Shop
    account: str
    clock: object
    chance: object
    strike: object
    boxes: dict[str, Box] = field(default_factory=dict)
    stored: dict[str, Thing] = field(default_factory=dict)
    book: list[Entry] = field(default_factory=list)
    spot: dict[str, list[tuple[datetime, Fraction]]] = field(default_factory=dict)
    supported_parts = frozenset({"on_start", "packages", "cloud_init"})
    guards = Safeguards(Agent.ENDS)
    count: int = 0

    def __post_init__(self) -> None:
        self.kind = self.shop.kind
        self.token_rule = TokenRule(timedelta(days=1), timedelta(0), "this test")
        for name, (_, usd) in self.shop.types.items():
            self.spot[name] = [(datetime(2000, 1, 1, tzinfo=UTC), Fraction(usd) * Fraction(3, 10))]

    def identity(self, region: str | None = None) -> AccountIdentity:
        return AccountIdentity("made-up account", self.account, f"the made-up account {self.account}")

    # --- what happens by itself -----------------------------------------------------------------------------------

    def move_price(self, name: str) -> None:
        usd = Fraction(self.shop.types[name][1]) * Fraction(self.chance.randrange(20, 95), 100)
        self.spot[name].append((self.clock(), usd))

    def take(self, box: Box) -> None:
        """Interrupt a spot machine now."""
        self._end(box, self.clock(), "interrupted")

    def shut_down_inside(self, box: Box) -> None:
        """Shut a running machine down from inside: billed on where the cloud leaves it allocated."""
        if box.state is not State.RUNNING:
            return
        if self.kind == "azure":
            box.state, box.since, box.inside = State.STOPPED, self.clock(), True
        else:
            self._halt(box, self.clock())

    def interactive(self, box: Box) -> None:
        """Terminate a machine in the cloud's console."""
        self._end(box, self.clock(), "user")

    def settle(self) -> None:
        """Let the timers that are due end their machines."""
        for box in self.boxes.values():
            due = from_epoch(box.tags[TAG_RENEW_UNTIL])
            if box.state is not State.TERMINATED and due <= self.clock():
                self._end(box, max(due, box.since), "renew-until")

    # --- the protocols --------------------------------------------------------------------------------------------

    def available(self, want) -> Availability:
        found = [self._item(name, market) for name in self.shop.types for market in Market]
        return Availability(tuple(item for item in found if fits(item, want)))

    def launch(self, attempt, *, deadline) -> Instance:
        self.settle()
        known = [box for box in self.boxes.values() if box.token == attempt.token]
        if known:
            return self._shown(known[0])
        if self.chance.random() < 0.05:
            raise NoCapacity("there is none now", field="zone", value=attempt.offer.configuration.zone)
        self.strike()
        self.count += 1
        now, item = self.clock(), attempt.offer.configuration
        id_ = f"{self.kind}-{self.count:04d}"
        box = Box(id_, attempt.token, dict(attempt.tags), item, now, State.RUNNING, now)
        box.keeps_disk = item.market is Market.SPOT and attempt.request.setup.keep_disk
        self.boxes[id_] = box
        self._open(box, "disk", now)
        self._run(box, now)
        self.strike()
        return self._shown(box)

    def get(self, id) -> Instance:  # noqa: A002
        self.settle()
        box = self.boxes.get(id)
        if box is None or self._forgotten(box):
            raise InstanceNotFound("gone", field="id", value=id)
        return self._shown(box)

    def list(self) -> Listing:
        self.settle()
        return Listing(tuple(self._shown(box) for box in self.boxes.values() if not self._forgotten(box)))

    def terminate(self, id) -> None:  # noqa: A002
        self._change(id, lambda box: self._end(box, self.clock(), None, disk=False))

    def terminate_keeping_disk(self, id) -> None:  # noqa: A002
        self._change(id, lambda box: self._end(box, self.clock(), None, disk=True))

    def stop(self, id) -> None:  # noqa: A002
        self.settle()
        box = self._living(id)
        if box.item.market is Market.SPOT:
            raise InvalidRequest("a one-time spot machine cannot be stopped", field="id", value=id)
        self._change(id, lambda box: self._halt(box, self.clock()))

    def start(self, id) -> None:  # noqa: A002
        self.settle()
        self._living(id)
        self._change(id, self._start)

    def tag(self, id, tags) -> None:  # noqa: A002
        self.settle()
        box = self._living(id)
        self.strike()
        box.tags |= tags
        self.strike()

    def prices(self, offers):
        return [self._price(item) for item in offers]

    def price_history(self, items, since):
        return [self._history(item, since) if item.market is Market.SPOT else () for item in items]

    def timer(self, id):  # noqa: A002
        return from_epoch(self._living(id).tags[TAG_RENEW_UNTIL])

    def placement_constraint(self, setup, want):
        from cloudgpu.providers.abilities import PlacementConstraint

        return PlacementConstraint()

    def resolve(self, request, item) -> Resolved:
        stored, size, _, whole = self.shop.disk
        beside = [AttachedResource(f"disk of {size} GB", stored, 1 if whole else size, while_stopped=True)]
        if self.shop.address:
            beside.append(AttachedResource("public address", self.shop.address[0], 1, while_stopped=False))
        return Resolved({}, attached=tuple(beside))

    def resources(self, region=None) -> ResourceListing:
        self.settle()
        return ResourceListing(tuple(self._thing(thing) for thing in self.stored.values()))

    def remove(self, resource) -> None:
        if resource.id in self.stored:
            self.strike()
            self._close(f"thing {resource.id}", self.clock())
            del self.stored[resource.id]
            self.strike()

    def save_image(self, source, name, tags, *, restart=True) -> ProviderResource:
        for thing in self.stored.values():
            if thing.kind is Kind.IMAGE and thing.id == name:
                return self._thing(thing)
        disk = self.stored.get(source)
        if disk is None:
            raise InstanceNotFound("no such disk", field="source", value=source)
        self.strike()
        made = Thing(name, Kind.IMAGE, disk.size, dict(disk.tags) | dict(tags), self.clock())
        self.stored[name] = made
        self.book.append(Entry(made.tags["cloudgpu-id"], f"thing {name}", self.clock(), type="image", at_most=True))
        self.strike()
        return self._thing(made)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _item(self, name: str, market: Market) -> MachineConfiguration:
        zone = f"{self.shop.region}-a"
        gpu = Accelerator(self.shop.types[name][0], 1, 16)
        on_demand = market is Market.ON_DEMAND
        return MachineConfiguration(
            self.kind, self.account, self.shop.region, zone, name, market, (gpu,), 4, 16, stoppable=on_demand
        )

    def _price(self, item: MachineConfiguration) -> Price:
        name = item.instance_type
        if item.market is Market.ON_DEMAND:
            return Price(Money.usd(self.shop.types[name][1]), "this test", self.clock(), Basis.QUOTED)
        at, usd = self.spot[name][-1]
        return Price(_money(usd), "this test", at, Basis.QUOTED)

    def _history(self, item: MachineConfiguration, since: datetime):
        known = self.spot[item.instance_type]
        first = max(0, bisect.bisect_right([at for at, _ in known], since) - 1)
        return [Price(_money(usd), "this test", at, Basis.QUOTED) for at, usd in known[first:]]

    def _change(self, id_: str, change) -> None:
        self.settle()
        box = self.boxes.get(id_)
        if box is None or box.state is State.TERMINATED:
            return
        self.strike()
        change(box)
        self.strike()

    def _living(self, id_: str) -> Box:
        box = self.boxes.get(id_)
        if box is None or box.state is State.TERMINATED:
            raise InstanceNotFound("gone", field="id", value=id_)
        return box

    def _run(self, box: Box, at: datetime) -> None:
        box.state, box.since, box.inside = State.RUNNING, at, False
        self._open(box, "compute", at)
        if self.shop.address:
            self._open(box, "address", at)

    def _start(self, box: Box) -> None:
        if box.state is State.RUNNING:
            return
        if box.inside:  # its compute was never let go of
            box.state, box.since, box.inside = State.RUNNING, self.clock(), False
            return
        self._run(box, self.clock())

    def _halt(self, box: Box, at: datetime) -> None:
        if box.state is not State.RUNNING and not box.inside:
            return
        self._close(f"compute {box.id}", at)
        self._close(f"address {box.id}", at)
        box.state, box.since, box.inside = self.shop.stopped, at, False

    def _end(self, box: Box, at: datetime, reason: str | None, *, disk: bool | None = None) -> None:
        if reason == "interrupted":
            self._close(f"compute {box.id}", at, taken=True)
        self._halt(box, at)
        box.state, box.since, box.reason = State.TERMINATED, at, reason
        if box.keeps_disk if disk is None else disk:
            thing = Thing(f"disk-{box.id}", Kind.DISK, self.shop.disk[1], dict(box.tags), box.launched)
            self.stored[thing.id] = thing
            for entry in self.book:
                if entry.what == f"disk {box.id}":
                    entry.what = f"thing {thing.id}"  # the same disk, from now on without a machine
        else:
            self._close(f"disk {box.id}", at)

    def _open(self, box: Box, what: str, at: datetime) -> None:
        spot = box.item.market is Market.SPOT
        owner = box.tags["cloudgpu-id"]
        self.book.append(Entry(owner, f"{what} {box.id}", at, None, box.item.instance_type, spot=spot))

    def _close(self, what: str, at: datetime, *, taken: bool = False) -> None:
        for entry in self.book:
            if entry.what == what and entry.end is None:
                entry.end, entry.taken = at, taken

    def _forgotten(self, box: Box) -> bool:
        return box.state is State.TERMINATED and self.clock() >= box.since + SHOWN_FOR

    def _shown(self, box: Box) -> Instance:
        return Instance(
            provider=self.kind,
            account=self.account,
            id=box.id,
            state=box.state,
            billed=box.state is State.RUNNING or box.inside,
            tags=dict(box.tags),
            region=self.shop.region,
            zone=box.item.zone,
            instance_type=box.item.instance_type,
            market=box.item.market,
            launched_at=box.launched,
            since=box.since,
            accelerators=box.item.accelerators,
            reason=box.reason,
        )

    def _thing(self, thing: Thing) -> ProviderResource:
        stored = self.shop.disk[0] if thing.kind is Kind.DISK else self.shop.image[0]
        return ProviderResource(
            self.kind,
            self.account,
            self.shop.region,
            f"{self.shop.region}-a",
            thing.id,
            thing.kind,
            "",
            thing.size,
            stored,
            dict(thing.tags),
            thing.made,
        )

    # --- the book -------------------------------------------------------------------------------------------------

    def cost(self, entry: Entry, now: datetime, since: datetime, until: datetime) -> Fraction:
        """Return what an entry costs in USD within a period, exact."""
        word = entry.what.split()[0]
        end = entry.end or now
        if word == "compute":
            length = (end - entry.begin).total_seconds()
            if entry.taken and entry.spot and length < self.shop.free_within:
                return Fraction(0)
            end = max(end, entry.begin + timedelta(seconds=self.shop.least))
        else:
            end = entry.begin + timedelta(seconds=self._rounded(word, entry, (end - entry.begin).total_seconds()))
        begin, end = max(entry.begin, since), min(end, until)
        if end <= begin:
            return Fraction(0)
        if word == "compute":
            return self._compute(entry, begin, end)
        if word == "address":
            return _seconds(begin, end) * Fraction(self.shop.address[1]) / HOUR
        return self._stored(entry, begin, end)

    def _rounded(self, word: str, entry: Entry, seconds: float) -> float:
        """Return for how many seconds a disk, an image or an address is billed: EBS volumes for a minute at least,
        snapshots and Azure's disks by the started hour."""
        if word == "address":
            return seconds
        by_the_hour = self.kind == "azure" or (self.kind == "aws" and entry.type == "image")
        if by_the_hour:
            return max(HOUR, -(-seconds // HOUR) * HOUR)
        return max(MINUTE, seconds) if self.kind == "aws" else seconds

    def _compute(self, entry: Entry, begin: datetime, end: datetime) -> Fraction:
        if not entry.spot:
            return _seconds(begin, end) * Fraction(self.shop.types[entry.type][1]) / HOUR
        known = [*self.spot[entry.type], (datetime(9000, 1, 1, tzinfo=UTC), Fraction(0))]
        total = Fraction(0)
        for (at, usd), (following, _) in itertools.pairwise(known):
            first, last = max(at, begin), min(following, end)
            if first < last:
                total += _seconds(first, last) * usd / HOUR
        return total

    def _stored(self, entry: Entry, begin: datetime, end: datetime) -> Fraction:
        _, size, usd, whole = self.shop.disk
        month = Fraction(usd) * (1 if whole else size)
        if entry.type == "image":
            month = Fraction(self.shop.image[1]) * size
        total, at = Fraction(0), begin
        while at < end:
            days = calendar.monthrange(at.year, at.month)[1]
            first = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
            following = min(end, first + timedelta(days=days))
            total += _seconds(at, following) * month / (days * 24 * HOUR)
            at = following
        return total


def _seconds(begin: datetime, end: datetime) -> Fraction:
    span = end - begin
    return Fraction(span.days * 86400 + span.seconds) + Fraction(span.microseconds, 1_000_000)


def _money(usd: Fraction) -> Money:
    return Money(round(usd * 1_000_000_000))
