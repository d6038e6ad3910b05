"""The fake cloud on which tests of this package and of plugins run: it has most abilities, and can be made to fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from cloudgpu.core.model.account import BudgetAlert, Permission, ProviderRole, Quota, Region, RolePart
from cloudgpu.core.model.instances import TAG_VOLUME, Instance, State
from cloudgpu.core.model.launch import Attempt, LaunchRequest, Setup, Volume
from cloudgpu.core.model.offers import Basis, MachineConfiguration, Market, Price, Requirements
from cloudgpu.core.model.resources import Kind, ProviderResource, ResourceListing
from cloudgpu.core.policies.guards import Safeguards, Timer
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, ProviderUnavailable
from cloudgpu.providers.abilities import PlacementConstraint, Resolved, TimerAction
from cloudgpu.providers.account_abilities import Login
from cloudgpu.testing.fake import disks, limits, lookups, timers
from cloudgpu.testing.fake.cloud import check_tags, counted_call, invalid_request, no_capacity
from cloudgpu.testing.fake.market import REGIONS, usd_per_hour
from cloudgpu.testing.fake.store import (
    SHUT_DOWN_INSIDE,
    Cloud,
    FakeMachine,
    FakeResource,
    as_provider_resource,
    tag_timer,
)
from cloudgpu.testing.fake.together import TogetherFakeProvider

Result = TypeVar("Result")


class FakeProvider(TogetherFakeProvider):
    """The fake cloud with every ability that does not change how a launch or a run of the reaper proceeds.

    `ReachableFakeProvider` adds a firewall, `FullFakeProvider` all other abilities.
    """

    @property
    def guards(self) -> Safeguards:
        """The agent, with the abilities that the option `agent` names, and the cloud's timer."""
        lacks_timer = "HasTimer" in self.options.lacks
        return Safeguards(self.options.agent, Timer.NONE if lacks_timer else Timer.CLOUD)

    @counted_call
    def terminate(self, cloud: Cloud, id: str) -> None:  # noqa: A002
        """Ask to end the machine, and its system disk with it."""
        self._terminate(cloud, id, disk_stays=False)

    @counted_call
    def stop(self, cloud: Cloud, id: str) -> None:  # noqa: A002
        """Request that the machine stops; raise InvalidRequest for a one-time spot machine."""
        self._stop(cloud, id)

    def stop_many(self, ids: Sequence[str]) -> Mapping[str, CloudgpuError]:
        """Request that these machines stop; return the errors of those that cannot, by id."""
        return self._call_for_each("stop_many", ids, self._stop)[1]

    def get_many(self, ids: Sequence[str]) -> Mapping[str, Instance | CloudgpuError]:
        """Return each machine by its id, or its error."""
        found, errors = self._call_for_each(
            "get_many", ids, lambda cloud, id_: self._as_instance(self._find_machine(cloud, id_))
        )
        return {**found, **errors}

    @counted_call
    def start(self, cloud: Cloud, id: str) -> None:  # noqa: A002
        """Ask to start a stopped machine."""
        machine = self._find_living_machine(cloud, id)
        if machine.requested is State.RUNNING:
            return
        if self._state(machine) is State.STOPPING:
            raise invalid_request("id", id, f"the machine {id} is still stopping", "start it when it has stopped")
        if machine.zone in cloud.exhausted or self._remaining_capacity(cloud, machine.zone) < 1:
            raise no_capacity(machine.instance_type, machine.zone)
        self._update_machine(cloud, machine, requested=State.RUNNING)
        if self.options.timer == timers.FIXED:
            timers.set_fixed_timer(cloud, machine, self.clock())

    @counted_call
    def tag(self, cloud: Cloud, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
        """Set these tags and leave the others alone."""
        machine = self._find_living_machine(cloud, id)
        check_tags(tags)
        self._update_machine(cloud, machine, tags={**machine.tags, **tags})

    @counted_call
    def prices(self, cloud: Cloud, offers: Sequence[MachineConfiguration]) -> Sequence[Price | None]:
        """Return the made-up prices."""
        return [self._price_of(cloud, configuration) for configuration in offers]

    @counted_call
    def price_history(
        self, cloud: Cloud, items: Sequence[MachineConfiguration], since: datetime
    ) -> Sequence[Sequence[Price]]:
        """Return the made-up spot prices since `since`."""
        prices, now = self.options.prices or {}, self.clock()
        return [limits.prices_since(limits.price_history(cloud, offer, prices, now), since) for offer in items]

    def set_spot_price(self, instance_type: str, zone: str, usd: str, at: datetime | None = None) -> None:
        """Set the hourly price of spot machines of this type in this zone, from `at` (None: now) on."""
        with self._store.open() as cloud:
            limits.set_spot_price(cloud, instance_type, zone, usd, at or self.clock())

    @counted_call
    def timer(self, cloud: Cloud, id: str) -> datetime | None:  # noqa: A002
        """Return when the cloud ends the machine by itself: by its renew-until tag, or by its timer."""
        machine = self._find_living_machine(cloud, id)
        return tag_timer(machine) if machine.by_tag else timers.fires_at(cloud, id)

    def why_no_timer(self) -> str:
        """Return why timers cannot be set, if the option `timer` is `tag`; else an empty text."""
        return "the fake cloud's timers follow the renew-until tag" if self.options.timer == timers.BY_TAG else ""

    def timer_limit(self, id: str) -> datetime | None:  # noqa: A002
        """Return when a timer that was fixed at launch fires; None if the option `timer` is not `fixed`."""
        if self.options.timer != timers.FIXED:
            return None
        with self._call("timer_limit") as cloud:
            return timers.fires_at(cloud, self._find_living_machine(cloud, id).id)

    @counted_call
    def set_timer(self, cloud: Cloud, id: str, at: datetime, *, action: TimerAction | None = None) -> bool:  # noqa: A002
        """Set or move the machine's timer and return True; one that was fixed at launch is left as it is."""
        machine = self._find_living_machine(cloud, id)
        if self.why_no_timer():
            raise invalid_request("timer", id, self.why_no_timer(), "set timer = 'moves' for the account")
        if self.options.timer == timers.FIXED:
            timers.check_fixed(cloud, machine, at)
            return False
        timers.set_timer(cloud, machine, at, self.clock(), action)
        return True

    @counted_call
    def drop_timer(self, cloud: Cloud, id: str) -> None:  # noqa: A002
        """Delete the machine's timer, unless it was fixed at launch."""
        if self.options.timer != timers.FIXED:
            cloud.timers.pop(id, None)

    @counted_call
    def timers(
        self, cloud: Cloud, region: str | None = None, *, ids: Collection[str] | None = None
    ) -> Mapping[str, datetime]:
        """Return when each timer fires."""
        regions = {region} if region else set(REGIONS)
        hidden = regions & self._hidden_regions(cloud)
        if hidden:
            raise ProviderUnavailable(
                f"{min(hidden)} did not answer: it was hidden by the test", field="provider", value=min(hidden)
            )
        wanted_ids = cloud.timers if ids is None else ids
        found_ids = {id_ for id_ in cloud.timers if id_ in wanted_ids and cloud.machines[id_].region in regions}
        return {id_: from_iso(cloud.timers[id_][0]) for id_ in found_ids}

    @counted_call
    def interrupt(self, cloud: Cloud, id: str) -> datetime:  # noqa: A002
        """Give a spot machine its notice of an interruption; return when the cloud takes it."""
        machine = self._find_living_machine(cloud, id)
        if machine.market is not Market.SPOT:
            raise invalid_request("id", id, "only a spot machine can be interrupted")
        at = machine.taken_at or self.clock() + timedelta(seconds=self.options.notice_s)
        self._update_machine(cloud, machine, taken_at=at)
        return at

    def host_key(self, configuration: MachineConfiguration) -> str | None:  # noqa: ARG002  (all machines of this cloud alike)
        """Return the option `host_key`, which all machines have; None if they take the key of the launch."""
        return self.options.host_key

    @counted_call
    def placement_constraint(self, cloud: Cloud, setup: Setup, requirements: Requirements) -> PlacementConstraint:
        """Return the region and zone to which the image or the volume of a setup ties a launch."""
        return lookups.placement_constraint(cloud, setup, requirements, self.ledger)

    @counted_call
    def resolve(self, cloud: Cloud, request: LaunchRequest, configuration: MachineConfiguration) -> Resolved:
        """Look up the image, and whether the quota allows the machine."""
        self._check_quota(cloud, configuration, request.cluster.nodes if request.cluster else 1)
        return lookups.resolve(cloud, request, configuration, self.clock())

    @counted_call
    def resources(self, cloud: Cloud, region: str | None = None) -> ResourceListing:
        """Return all disks, volumes, snapshots and images of the regions that answer."""
        return self._list_resources(cloud, region, lambda resource: not lookups.is_orphan(resource))

    @counted_call
    def remove(self, cloud: Cloud, resource: ProviderResource) -> None:
        """Delete a resource that no machine uses."""
        self._update_attachments(cloud)
        disks.remove_resource(cloud, resource)

    @counted_call
    def orphans(self, cloud: Cloud, region: str | None = None) -> ResourceListing:
        """Return everything but disks, volumes, snapshots and images, in the regions that answer."""
        return self._list_resources(cloud, region, lookups.is_orphan)

    @counted_call
    def remove_orphan(self, cloud: Cloud, resource: ProviderResource) -> None:
        """Delete an orphan that nothing uses."""
        self._update_attachments(cloud)
        disks.remove_resource(cloud, resource)

    def leave(self, kind: Kind, region: str, tags: Mapping[str, str], *, attached_to: str | None = None) -> str:
        """Add a resource of this kind, as a launch would have left it; return its id."""
        with self._store.open() as cloud:
            return lookups.add_orphan(cloud, kind, region, tags, self.clock(), attached_to).id

    @counted_call
    def save_image(
        self, cloud: Cloud, source: str, name: str, tags: Mapping[str, str], *, restart: bool = True
    ) -> ProviderResource:
        """Start or continue making the image of this name; a running machine is restarted for it once."""
        self._update_attachments(cloud)
        image = disks.continue_image(cloud, source, name, self.clock())
        if image is None:
            image = self._begin_image(cloud, source, name, tags, restart=restart)
        return as_provider_resource(image, self.account, self.clock())

    @counted_call
    def terminate_keeping_disk(self, cloud: Cloud, id: str) -> None:  # noqa: A002
        """Ask to end the machine while its system disk stays."""
        self._terminate(cloud, id, disk_stays=True)

    @counted_call
    def attach(self, cloud: Cloud, id: str, volume: Volume, tags: Mapping[str, str]) -> ProviderResource:  # noqa: A002
        """Make sure that the volume exists and is attached to this running machine."""
        self._update_attachments(cloud)
        machine = self._find_living_machine(cloud, id)
        if self._state(machine) is not State.RUNNING:
            raise invalid_request("id", id, f"the machine {id} is not running", "attach the volume when it runs")
        check_tags({**tags, TAG_VOLUME: volume.name})
        made = disks.attach_volume(cloud, machine, volume, tags, self.clock())
        return as_provider_resource(made, self.account, self.clock())

    @counted_call
    def quotas(self, cloud: Cloud, region: str) -> Sequence[Quota]:
        """Return how many GPUs may run in a region, and how many do."""
        return limits.quotas(cloud, self.account, region, self._pending_or_running(cloud))

    @counted_call
    def quota_page(self, _cloud: Cloud, region: str, code: str) -> str:
        """Return a made-up address that cannot be opened."""
        return limits.quota_page(region, code)

    @counted_call
    def request_quota(self, cloud: Cloud, region: str, code: str, limit: float) -> str:
        """Store the request; only `set_quota` raises the quota."""
        return limits.request_quota(cloud, region, code, limit)

    def set_quota(self, region: str, market: Market, limit: float) -> None:
        """Set how many GPUs may run in a region on a market."""
        with self._store.open() as cloud:
            cloud.quotas[f"{region}/{limits.QUOTA_CODES[market]}"] = limit

    @counted_call
    def regions(self, _cloud: Cloud) -> Sequence[Region]:
        """Return the regions, all at the endpoint of the settings."""
        host, _, port = self.options.endpoint.rpartition(":")
        return [Region(name, host, int(port)) for name in REGIONS]

    @counted_call
    def permissions(self, cloud: Cloud, region: str | None = None) -> Sequence[Permission]:
        """Return what the credential may do: everything that no test has denied."""
        if region is not None:
            limits.check_region(region)
        return limits.permissions(cloud)

    @counted_call
    def login(self, _cloud: Cloud) -> Login:
        """Return a login that never expires."""
        return Login(f"the made-up key of {self.account}", None, lasts=True)

    @counted_call
    def machine_role(self, cloud: Cloud, document: str) -> ProviderRole:
        """Return whether the role exists with this document."""
        exists = cloud.role == document
        return ProviderRole("the fake cloud", (RolePart("role", "cloudgpu-machine", exists, is_ours=True),), {})

    @counted_call
    def make_machine_role(self, cloud: Cloud, document: str) -> None:
        """Create the role."""
        cloud.role = document

    @counted_call
    def remove_machine_role(self, cloud: Cloud) -> None:
        """Delete the role."""
        cloud.role = None

    @counted_call
    def timer_role(self, cloud: Cloud, document: str) -> ProviderRole:
        """Return whether the timers' role exists with this document."""
        exists = cloud.timer_role == document
        return ProviderRole("the fake cloud", (RolePart("role", "cloudgpu-timer", exists, is_ours=True),), {})

    @counted_call
    def make_timer_role(self, cloud: Cloud, document: str) -> None:
        """Create the timers' role."""
        cloud.timer_role = document

    @counted_call
    def remove_timer_role(self, cloud: Cloud) -> None:
        """Delete the timers' role."""
        cloud.timer_role = None

    @counted_call
    def budget_alert(self, cloud: Cloud) -> BudgetAlert | None:
        """Return the budget alert of the account; None without one."""
        return None if cloud.budget is None else BudgetAlert(Money(cloud.budget[0]), cloud.budget[1])

    @counted_call
    def set_budget_alert(self, cloud: Cloud, alert: BudgetAlert) -> None:
        """Set the budget alert of the account."""
        cloud.budget = (alert.per_month.nanos, alert.emails)

    @counted_call
    def remove_budget_alert(self, cloud: Cloud) -> None:
        """Delete the budget alert of the account."""
        cloud.budget = None

    def _fire_due_timers(self, cloud: Cloud) -> None:
        timers.fire_due(cloud, self.clock())

    def _begin_image(
        self, cloud: Cloud, source: str, name: str, tags: Mapping[str, str], *, restart: bool
    ) -> FakeResource:
        machine = cloud.machines.get(source)
        image_source = disks.image_source(cloud, source, self._state(machine) if machine else None)
        if isinstance(image_source, FakeMachine) and restart and self._state(image_source) is State.RUNNING:
            self._update_machine(cloud, image_source, restarts=image_source.restarts + 1)
        return disks.begin_image(cloud, image_source, name, tags, self.clock(), self.options.image_s)

    def _terminate(self, cloud: Cloud, id: str, *, disk_stays: bool) -> None:  # noqa: A002
        machine = cloud.machines.get(id)
        if machine and State.TERMINATED not in (machine.requested, self._state(machine)):
            disks.set_system_disk(cloud, id, stays=disk_stays)
            self._update_machine(cloud, machine, requested=State.TERMINATED)

    def _stop(self, cloud: Cloud, id: str) -> None:  # noqa: A002
        machine = self._find_living_machine(cloud, id)
        if machine.market is Market.SPOT and not machine.persistent:
            raise invalid_request("id", id, "a one-time spot machine cannot be stopped", "terminate it")
        if machine.requested is not State.STOPPED or machine.reason == SHUT_DOWN_INSIDE:
            self._update_machine(cloud, machine, requested=State.STOPPED)

    def _call_for_each(
        self, method: str, ids: Sequence[str], action: Callable[[Cloud, str], Result]
    ) -> tuple[dict[str, Result], dict[str, CloudgpuError]]:
        """Run `action` for each machine in one counted call; return the results and the errors, by id."""
        results: dict[str, Result] = {}
        errors: dict[str, CloudgpuError] = {}
        try:
            with self._call(method) as cloud:
                for machine_id in ids:
                    try:
                        results[machine_id] = action(cloud, machine_id)
                    except CloudgpuError as error:
                        errors[machine_id] = error
        except CloudgpuError as error:
            return {}, dict.fromkeys(ids, error)
        return results, errors

    def _list_resources(
        self, cloud: Cloud, region: str | None, is_listed: Callable[[FakeResource], bool]
    ) -> ResourceListing:
        self._update_attachments(cloud)
        regions = {region} if region else set(REGIONS)
        answering = regions - self._hidden_regions(cloud)
        listed = (
            resource for resource in cloud.resources.values() if resource.region in answering and is_listed(resource)
        )
        unanswered = (scope for scope in self._hidden_scopes(cloud) if scope.scope in (*regions, self.account))
        return ResourceListing(
            tuple(as_provider_resource(resource, self.account, self.clock()) for resource in listed), tuple(unanswered)
        )

    def _update_attachments(self, cloud: Cloud) -> None:
        super()._update_attachments(cloud)
        disks.detach_from_ended(cloud, lambda machine: self._state(cloud.machines[machine]) is State.TERMINATED)

    def _pending_or_running(self, cloud: Cloud) -> list[FakeMachine]:
        return [
            machine for machine in cloud.machines.values() if self._state(machine) in (State.PENDING, State.RUNNING)
        ]

    def _check_quota(self, cloud: Cloud, offer: MachineConfiguration, machines: int = 1) -> None:
        gpus = machines * sum(gpu.count for gpu in offer.accelerators)
        limits.check_quota(cloud, self.account, offer.region, offer.market, gpus, self._pending_or_running(cloud))

    def _check_launch(self, cloud: Cloud, attempt: Attempt) -> None:
        super()._check_launch(cloud, attempt)
        self._check_quota(cloud, attempt.offer.configuration)
        lookups.check_call(cloud, attempt, self.clock())

    def _check_cluster_launch(self, cloud: Cloud, attempts: Sequence[Attempt]) -> None:
        super()._check_cluster_launch(cloud, attempts)
        self._check_quota(cloud, attempts[0].offer.configuration, len(attempts))

    def _make_machine(self, cloud: Cloud, attempt: Attempt) -> FakeMachine:
        persistent = attempt.request.setup.persistent
        by_tag = self.options.timer == timers.BY_TAG and "HasTimer" not in self.options.lacks
        machine = replace(super()._make_machine(cloud, attempt), persistent=persistent, by_tag=by_tag)
        if self.options.timer == timers.FIXED:
            machine = replace(machine, run_s=timers.allowed_run_s(attempt, self.clock()))
        cloud.machines[machine.id] = machine
        if self.options.timer == timers.FIXED:
            timers.set_fixed_timer(cloud, machine, self.clock())
        one_time = machine.market is Market.SPOT and not machine.persistent
        lookups.need_key_pair(cloud, machine, attempt.tags, self.clock())
        disks.add_system_disk(cloud, machine, attempt, stays=one_time and attempt.request.setup.keep_disk)
        return machine

    def _price_of(self, cloud: Cloud, configuration: MachineConfiguration) -> Price | None:
        if limits.has_set_price(cloud, configuration):
            return limits.price_history(cloud, configuration, self.options.prices or {}, self.clock())[-1]
        per_hour = usd_per_hour(configuration, self.options.prices or {})
        if per_hour is None:
            return None
        return Price(per_hour, "the fake cloud's made-up price list", self.clock(), Basis.QUOTED)


class ReachableFakeProvider(FakeProvider):
    """The fake cloud with a firewall for each machine, so that a launch needs the client's address."""

    @counted_call
    def allowed(self, cloud: Cloud, id: str) -> Mapping[str, str]:  # noqa: A002
        """Return the CIDRs that may connect, by label."""
        return dict(cloud.firewalls.get(self._find_living_machine(cloud, id).id, {}))

    @counted_call
    def allow(self, cloud: Cloud, id: str, label: str, cidr: str | None) -> None:  # noqa: A002
        """Let this CIDR connect under this label; None removes the label."""
        firewall = cloud.firewalls.get(self._find_living_machine(cloud, id).id)
        if firewall is None:
            message = f"somebody else's security group decides who may connect to {id}"
            raise invalid_request("--security-group", id, message, "ask whoever keeps that group")
        firewall.pop(label, None)
        if cidr is not None:
            firewall[label] = cidr

    def _make_machine(self, cloud: Cloud, attempt: Attempt) -> FakeMachine:
        machine, network = super()._make_machine(cloud, attempt), attempt.request.setup.network
        if network.security_group is None:
            labels = ["caller", *(f"caller-{number}" for number in range(2, len(network.ssh_from) + 1))]
            cloud.firewalls[machine.id] = dict(zip(labels, network.ssh_from, strict=False))
        return machine
