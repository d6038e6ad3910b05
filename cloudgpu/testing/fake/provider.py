"""A cloud that remembers, and fails when it is told to: what control's tests and a plugin author's tests run on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from cloudgpu.core.model.account import BudgetAlert, MachineRole, Permission, Quota, Region, RolePart
from cloudgpu.core.model.instances import TAG_VOLUME, Instance, State
from cloudgpu.core.model.launch import Attempt, LaunchRequest, Setup, Volume
from cloudgpu.core.model.offers import Available, Basis, Market, Price, Requirements
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.core.policies.guards import Agent, Safeguards, Timer
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, ProviderUnavailable
from cloudgpu.providers.abilities import PlacementConstraint, Resolved, TimerAction
from cloudgpu.providers.account_abilities import Login
from cloudgpu.testing.fake import disks, limits, limits as spot, lookups as looks, lookups as orphans, timers
from cloudgpu.testing.fake.cloud import check_tags, counted, no_capacity, refused
from cloudgpu.testing.fake.machines import ALLOCATED, FakeMachine, timer
from cloudgpu.testing.fake.market import REGIONS, usd_per_hour
from cloudgpu.testing.fake.resources import FakeResource, shown
from cloudgpu.testing.fake.store import Cloud
from cloudgpu.testing.fake.together import TogetherFakeProvider

Of = TypeVar("Of")


class FakeProvider(TogetherFakeProvider):
    """The fake cloud with every ability but those that whoever launches or judges has to reckon with.

    `ReachableFakeProvider` says who may connect, `FullFakeProvider` has machines that are asked for more, too.
    """

    @property
    def guards(self) -> Safeguards:
        """The agent, as the settings say what it can do, and the cloud's timer."""
        lacks = "HasTimer" in self.options.lacks
        return Safeguards(Agent(self.options.agent), Timer.NONE if lacks else Timer.CLOUD)

    @counted
    def terminate(self, cloud: Cloud, id: str) -> None:  # noqa: A002
        """Ask to end the machine, and its system disk with it."""
        self._end(cloud, id, disk_stays=False)

    @counted
    def stop(self, cloud: Cloud, id: str) -> None:  # noqa: A002
        """Ask to stop; a one-time spot machine cannot be stopped."""
        self._stop(cloud, id)

    def stop_many(self, ids: Sequence[str]) -> Mapping[str, CloudgpuError]:
        """Ask to stop these; return why not, for those that cannot be."""
        return self._many("stop_many", ids, self._stop)[1]

    def get_many(self, ids: Sequence[str]) -> Mapping[str, Instance | CloudgpuError]:
        """Return each machine, or why not."""
        found, faults = self._many("get_many", ids, lambda cloud, id_: self._shown(self._found(cloud, id_)))
        return {**found, **faults}

    @counted
    def start(self, cloud: Cloud, id: str) -> None:  # noqa: A002
        """Ask to start a stopped machine."""
        machine = self._living(cloud, id)
        if machine.requested is State.RUNNING:
            return
        if self._state(machine) is State.STOPPING:
            raise refused("id", id, f"the machine {id} is still stopping", "start it when it has stopped")
        if machine.zone in cloud.exhausted or self._left(cloud, machine.zone) < 1:
            raise no_capacity(machine.instance_type, machine.zone)
        self._set(cloud, machine, requested=State.RUNNING)
        if self.options.timer == timers.FIXED:
            timers.fix(cloud, machine, self.clock())

    @counted
    def tag(self, cloud: Cloud, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
        """Set these tags and leave the others alone."""
        machine = self._living(cloud, id)
        check_tags(tags)
        self._set(cloud, machine, tags={**machine.tags, **tags})

    @counted
    def prices(self, cloud: Cloud, offers: Sequence[Available]) -> Sequence[Price | None]:
        """Return the made-up prices."""
        return [self._price(cloud, item) for item in offers]

    @counted
    def price_history(self, cloud: Cloud, items: Sequence[Available], since: datetime) -> Sequence[Sequence[Price]]:
        """Return the made-up spot prices since then."""
        prices, now = self.options.prices or {}, self.clock()
        return [spot.since(spot.history(cloud, item, prices, now), since) for item in items]

    def set_spot_price(self, instance_type: str, zone: str, usd: str, at: datetime | None = None) -> None:
        """Let a spot machine of this type cost so many USD an hour in this zone, from `at` (now, for None) on."""
        with self._store.open() as cloud:
            spot.set_price(cloud, instance_type, zone, usd, at or self.clock())

    @counted
    def timer(self, cloud: Cloud, id: str) -> datetime | None:  # noqa: A002
        """Return when the cloud ends the machine by itself: its renew-until tag, or a timer of its own."""
        machine = self._living(cloud, id)
        return timer(machine) if machine.by_tag else timers.fires(cloud, id)

    def why_no_timer(self) -> str:
        """Return why there are no timers of their own, where `timer` of the settings says so."""
        return "the fake cloud's timers follow the renew-until tag" if self.options.timer == timers.BY_TAG else ""

    def timer_limit(self, id: str) -> datetime | None:  # noqa: A002
        """Return what was fixed at launch, where timers are."""
        if self.options.timer != timers.FIXED:
            return None
        with self._call("timer_limit") as cloud:
            return timers.fires(cloud, self._living(cloud, id).id)

    @counted
    def set_timer(self, cloud: Cloud, id: str, at: datetime, *, action: TimerAction | None = None) -> bool:  # noqa: A002
        """Set or move a timer of its own; one that was fixed at launch stays where it is."""
        machine = self._living(cloud, id)
        if self.why_no_timer():
            raise refused("timer", id, self.why_no_timer(), "set timer = 'moves' for the account")
        if self.options.timer == timers.FIXED:
            timers.check_fixed(cloud, machine, at)
            return False
        timers.set_timer(cloud, machine, at, self.clock(), action)
        return True

    @counted
    def drop_timer(self, cloud: Cloud, id: str) -> None:  # noqa: A002
        """Take a timer away that is a thing of its own."""
        if self.options.timer != timers.FIXED:
            cloud.timers.pop(id, None)

    @counted
    def timers(
        self, cloud: Cloud, region: str | None = None, *, ids: Collection[str] | None = None
    ) -> Mapping[str, datetime]:
        """Return when each timer fires."""
        asked = {region} if region else set(REGIONS)
        silent = asked & self._hidden(cloud)
        if silent:
            message = f"{min(silent)} did not answer: it was hidden by the test"
            raise ProviderUnavailable(message, field="provider", value=min(silent))
        wanted = cloud.timers if ids is None else ids
        there = {id_ for id_ in cloud.timers if id_ in wanted and cloud.machines[id_].region in asked}
        return {id_: from_iso(cloud.timers[id_][0]) for id_ in there}

    @counted
    def interrupt(self, cloud: Cloud, id: str) -> datetime:  # noqa: A002
        """Give a spot machine its notice; return when it is taken."""
        machine = self._living(cloud, id)
        if machine.market is not Market.SPOT:
            raise refused("id", id, "only a spot machine can be interrupted")
        at = machine.taken_at or self.clock() + timedelta(seconds=self.options.notice_s)
        self._set(cloud, machine, taken_at=at)
        return at

    def host_key(self, item: Available) -> str | None:  # noqa: ARG002  (all machines of this cloud alike)
        """Return the key that the settings give every machine; without one, machines take the launch's."""
        return self.options.host_key

    @counted
    def placement_constraint(self, cloud: Cloud, setup: Setup, requirements: Requirements) -> PlacementConstraint:
        """Return where the image or the volume of a setup lies."""
        return looks.placement_constraint(cloud, setup, requirements, self.ledger)

    @counted
    def resolve(self, cloud: Cloud, request: LaunchRequest, item: Available) -> Resolved:
        """Look up the image, and whether the quota allows the machine."""
        self._check_quota(cloud, item, request.cluster.nodes if request.cluster else 1)
        return looks.resolved(cloud, request, item, self.clock())

    @counted
    def resources(self, cloud: Cloud, region: str | None = None) -> ResourceListing:
        """Return all disks, volumes, snapshots and images of the regions that answer."""
        return self._kept(cloud, region, lambda resource: not orphans.is_one(resource))

    @counted
    def remove(self, cloud: Cloud, resource: ProviderResource) -> None:
        """Delete a thing that no machine uses."""
        self._let_go(cloud)
        disks.remove(cloud, resource)

    @counted
    def orphans(self, cloud: Cloud, region: str | None = None) -> ResourceListing:
        """Return all key pairs, addresses and requests of the regions that answer."""
        return self._kept(cloud, region, orphans.is_one)

    @counted
    def remove_orphan(self, cloud: Cloud, resource: ProviderResource) -> None:
        """Delete one of these that nothing uses."""
        self._let_go(cloud)
        disks.remove(cloud, resource)

    def leave(self, kind: Kind, region: str, tags: Mapping[str, str], *, attached_to: str | None = None) -> str:
        """Let something of this kind be there, as a launch would have left it; return its id."""
        with self._store.open() as cloud:
            return orphans.leave(cloud, kind, region, tags, self.clock(), attached_to).id

    @counted
    def save_image(
        self, cloud: Cloud, source: str, name: str, tags: Mapping[str, str], *, restart: bool = True
    ) -> ProviderResource:
        """Go on making the image of this name; a running machine is restarted for it once."""
        self._let_go(cloud)
        image = disks.go_on(cloud, source, name, self.clock())
        if image is None:
            image = self._begin_image(cloud, source, name, tags, restart=restart)
        return shown(image, self.account, self.clock())

    @counted
    def terminate_keeping_disk(self, cloud: Cloud, id: str) -> None:  # noqa: A002
        """Ask to end the machine while its system disk stays."""
        self._end(cloud, id, disk_stays=True)

    @counted
    def attach(self, cloud: Cloud, id: str, volume: Volume, tags: Mapping[str, str]) -> ProviderResource:  # noqa: A002
        """Make sure that the volume is there and attached to this running machine."""
        self._let_go(cloud)
        machine = self._living(cloud, id)
        if self._state(machine) is not State.RUNNING:
            raise refused("id", id, f"the machine {id} is not running", "attach the volume when it runs")
        check_tags({**tags, TAG_VOLUME: volume.name})
        made = disks.attach(cloud, machine, volume, tags, self.clock())
        return shown(made, self.account, self.clock())

    @counted
    def quotas(self, cloud: Cloud, region: str) -> Sequence[Quota]:
        """Return how many GPUs may run in a region, and how many do."""
        return limits.quotas(cloud, self.account, region, self._all_living(cloud))

    @counted
    def quota_page(self, _cloud: Cloud, region: str, code: str) -> str:
        """Return an address that is nobody's."""
        return limits.page(region, code)

    @counted
    def request_quota(self, cloud: Cloud, region: str, code: str, limit: float) -> str:
        """Keep the request: nobody grants it but `set_quota`."""
        return limits.request(cloud, region, code, limit)

    def set_quota(self, region: str, market: Market, limit: float) -> None:
        """Set how many GPUs may run in a region on a market."""
        with self._store.open() as cloud:
            cloud.quotas[f"{region}/{limits.CODES[market]}"] = limit

    @counted
    def regions(self, _cloud: Cloud) -> Sequence[Region]:
        """Return the regions, all at the endpoint of the settings."""
        host, _, port = self.options.endpoint.rpartition(":")
        return [Region(name, host, int(port)) for name in REGIONS]

    @counted
    def permissions(self, cloud: Cloud, region: str | None = None) -> Sequence[Permission]:
        """Return what the credential may do: all that no test has denied."""
        if region is not None:
            limits.check_region(region)
        return limits.permissions(cloud)

    @counted
    def login(self, _cloud: Cloud) -> Login:
        """Return that the made-up key of this account lasts."""
        return Login(f"the made-up key of {self.account}", None, lasts=True)

    @counted
    def machine_role(self, cloud: Cloud, document: str) -> MachineRole:
        """Return whether the role is there, with this document."""
        there = cloud.role == document
        return MachineRole("the fake cloud", (RolePart("role", "cloudgpu-machine", there, is_ours=True),), {})

    @counted
    def make_machine_role(self, cloud: Cloud, document: str) -> None:
        """Make the role."""
        cloud.role = document

    @counted
    def remove_machine_role(self, cloud: Cloud) -> None:
        """Take the role away."""
        cloud.role = None

    @counted
    def timer_role(self, cloud: Cloud, document: str) -> MachineRole:
        """Return whether the timers' role is there, with this document."""
        there = cloud.timer_role == document
        return MachineRole("the fake cloud", (RolePart("role", "cloudgpu-timer", there, is_ours=True),), {})

    @counted
    def make_timer_role(self, cloud: Cloud, document: str) -> None:
        """Make the timers' role."""
        cloud.timer_role = document

    @counted
    def remove_timer_role(self, cloud: Cloud) -> None:
        """Take the timers' role away."""
        cloud.timer_role = None

    @counted
    def budget_alert(self, cloud: Cloud) -> BudgetAlert | None:
        """Return the account's own budget."""
        return None if cloud.budget is None else BudgetAlert(Money(cloud.budget[0]), cloud.budget[1])

    @counted
    def set_budget_alert(self, cloud: Cloud, alert: BudgetAlert) -> None:
        """Set it."""
        cloud.budget = (alert.per_month.nanos, alert.emails)

    @counted
    def remove_budget_alert(self, cloud: Cloud) -> None:
        """Forget it."""
        cloud.budget = None

    def _settle(self, cloud: Cloud) -> None:
        timers.fire(cloud, self.clock())

    def _begin_image(
        self, cloud: Cloud, source: str, name: str, tags: Mapping[str, str], *, restart: bool
    ) -> FakeResource:
        machine = cloud.machines.get(source)
        found = disks.source_of(cloud, source, self._state(machine) if machine else None)
        if isinstance(found, FakeMachine) and restart and self._state(found) is State.RUNNING:
            self._set(cloud, found, restarts=found.restarts + 1)
        return disks.begin(cloud, found, name, tags, self.clock(), self.options.image_s)

    def _end(self, cloud: Cloud, id: str, *, disk_stays: bool) -> None:  # noqa: A002
        machine = cloud.machines.get(id)
        if machine and State.TERMINATED not in (machine.requested, self._state(machine)):
            disks.set_system_disk(cloud, id, stays=disk_stays)
            self._set(cloud, machine, requested=State.TERMINATED)

    def _stop(self, cloud: Cloud, id: str) -> None:  # noqa: A002
        machine = self._living(cloud, id)
        if machine.market is Market.SPOT and not machine.persistent:
            raise refused("id", id, "a one-time spot machine cannot be stopped", "terminate it")
        if machine.requested is not State.STOPPED or machine.reason == ALLOCATED:
            self._set(cloud, machine, requested=State.STOPPED)

    def _many(
        self, method: str, ids: Sequence[str], do: Callable[[Cloud, str], Of]
    ) -> tuple[dict[str, Of], dict[str, CloudgpuError]]:
        """Do it for each of them in one call; return what came of it, and the error of those that failed, by id."""
        done: dict[str, Of] = {}
        faults: dict[str, CloudgpuError] = {}
        try:
            with self._call(method) as cloud:
                for each in ids:
                    try:
                        done[each] = do(cloud, each)
                    except CloudgpuError as error:
                        faults[each] = error
        except CloudgpuError as error:
            return {}, dict.fromkeys(ids, error)
        return done, faults

    def _kept(self, cloud: Cloud, region: str | None, of: Callable[[FakeResource], bool]) -> ResourceListing:
        self._let_go(cloud)
        asked = {region} if region else set(REGIONS)
        answer = asked - self._hidden(cloud)
        seen = (resource for resource in cloud.resources.values() if resource.region in answer and of(resource))
        silent = (gap for gap in self._silent(cloud) if gap.scope in (*asked, self.account))
        return ResourceListing(tuple(shown(resource, self.account, self.clock()) for resource in seen), tuple(silent))

    def _let_go(self, cloud: Cloud) -> None:
        super()._let_go(cloud)
        disks.detach_from_ended(cloud, lambda machine: self._state(cloud.machines[machine]) is State.TERMINATED)

    def _all_living(self, cloud: Cloud) -> list[FakeMachine]:
        return [one for one in cloud.machines.values() if self._state(one) in (State.PENDING, State.RUNNING)]

    def _check_quota(self, cloud: Cloud, item: Available, machines: int = 1) -> None:
        more = machines * sum(gpu.count for gpu in item.accelerators)
        limits.check_quota(cloud, self.account, item.region, item.market, more, self._all_living(cloud))

    def _check(self, cloud: Cloud, attempt: Attempt) -> None:
        super()._check(cloud, attempt)
        self._check_quota(cloud, attempt.offer.available)
        looks.check_call(cloud, attempt, self.clock())

    def _check_together(self, cloud: Cloud, attempts: Sequence[Attempt]) -> None:
        super()._check_together(cloud, attempts)
        self._check_quota(cloud, attempts[0].offer.available, len(attempts))

    def _make(self, cloud: Cloud, attempt: Attempt) -> FakeMachine:
        persistent = attempt.request.setup.persistent
        by_tag = self.options.timer == timers.BY_TAG and "HasTimer" not in self.options.lacks
        machine = replace(super()._make(cloud, attempt), persistent=persistent, by_tag=by_tag)
        if self.options.timer == timers.FIXED:
            machine = replace(machine, run_s=timers.span_s(attempt, self.clock()))
        cloud.machines[machine.id] = machine
        if self.options.timer == timers.FIXED:
            timers.fix(cloud, machine, self.clock())
        one_time = machine.market is Market.SPOT and not machine.persistent
        orphans.need_key_pair(cloud, machine, attempt.tags, self.clock())
        disks.add_system_disk(cloud, machine, attempt, stays=one_time and attempt.request.setup.keep_disk)
        return machine

    def _price(self, cloud: Cloud, item: Available) -> Price | None:
        if spot.has_price(cloud, item):
            return spot.history(cloud, item, self.options.prices or {}, self.clock())[-1]
        per_hour = usd_per_hour(item, self.options.prices or {})
        if per_hour is None:
            return None
        return Price(per_hour, "the fake cloud's made-up price list", self.clock(), Basis.ASKED)


class ReachableFakeProvider(FakeProvider):
    """The fake cloud that says who may connect, too, so whoever launches has to have an address."""

    @counted
    def allowed(self, cloud: Cloud, id: str) -> Mapping[str, str]:  # noqa: A002
        """Return who may connect, by label."""
        return dict(cloud.firewalls.get(self._living(cloud, id).id, {}))

    @counted
    def allow(self, cloud: Cloud, id: str, label: str, cidr: str | None) -> None:  # noqa: A002
        """Let this CIDR in under this label, or nobody any more."""
        firewall = cloud.firewalls.get(self._living(cloud, id).id)
        if firewall is None:
            message = f"somebody else's security group decides who may connect to {id}"
            raise refused("--security-group", id, message, "ask whoever keeps that group")
        firewall.pop(label, None)
        if cidr is not None:
            firewall[label] = cidr

    def _make(self, cloud: Cloud, attempt: Attempt) -> FakeMachine:
        machine, network = super()._make(cloud, attempt), attempt.request.setup.network
        if network.security_group is None:
            labels = ["caller", *(f"caller-{number}" for number in range(2, len(network.ssh_from) + 1))]
            cloud.firewalls[machine.id] = dict(zip(labels, network.ssh_from, strict=False))
        return machine
