"""The fake cloud with every ability, including those that change how a launch or a run of the reaper proceeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from cloudgpu.core.activity.computer_share import ComputerShare
from cloudgpu.core.model.account import PrepaidCredit
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import Instance, Process, State
from cloudgpu.core.model.launch import LaunchRequest
from cloudgpu.core.model.offers import Basis, MachineConfiguration, Market, Price, Requirements
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import duration_text
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.abilities import RemainingFiles, Resolved
from cloudgpu.providers.account_abilities import AccountFinding
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.testing.fake import limits
from cloudgpu.testing.fake.cloud import counted_call
from cloudgpu.testing.fake.market import matching_offers
from cloudgpu.testing.fake.provider import FakeProvider, ReachableFakeProvider
from cloudgpu.testing.fake.settings import OMITTABLE_ABILITIES, read_options
from cloudgpu.testing.fake.store import Cloud, FakeMachine

BILLING_PAGE = "https://fake.example/billing"  # where credit is bought


class FullFakeProvider(ReachableFakeProvider):
    """The fake cloud that has a firewall, reports activity only on request, and whose machines make their host keys."""

    end_effect = "What was put there is removed. The rest stays."
    _ssh_sources: tuple[str, ...] = ("0.0.0.0/0",)
    _leave_times: tuple[tuple[str, datetime], ...] = ()

    def resolve(self, request: LaunchRequest, configuration: MachineConfiguration) -> Resolved:
        """Look up the image; a machine made from it does not take the host key of the launch."""
        resolved = super().resolve(request, configuration)
        return replace(resolved, call={**resolved.call, "host_key": "reads"})

    def activity(self, ids: Sequence[str]) -> Mapping[str, datetime | CloudgpuError | None]:
        """Return when each machine last reported activity (`report_activity`), with one call for each."""
        activity: dict[str, datetime | CloudgpuError | None] = {}
        for machine_id in ids:
            try:
                with self._call("activity") as cloud:
                    activity[machine_id] = self._find_living_machine(cloud, machine_id).last_active
            except CloudgpuError as error:
                activity[machine_id] = error
        return activity

    def metered_price(
        self, configuration: MachineConfiguration, gpu_watts: Decimal, measured_for: timedelta
    ) -> Price | None:
        """Return the cost of that power at a made-up tariff."""
        source = f"{configuration.instance_type} drew {gpu_watts} W on average over {duration_text(measured_for)}"
        return Price(Money.usd(gpu_watts / 10_000), source, self.clock(), Basis.MEASURED)

    def shared_price(self, configuration: MachineConfiguration, share: ComputerShare) -> Price | None:  # noqa: ARG002
        """Return None: each of these machines is a computer of its own."""
        return None

    def agent_status(self, id: str, since: float) -> bytes:  # noqa: A002, ARG002
        """Return nothing: no agent runs on these machines. Raises InstanceNotFound."""
        self.get(id)
        return b""

    @counted_call
    def placement_scores(self, cloud: Cloud, items: Sequence[MachineConfiguration]) -> Sequence[int | None]:
        """Return 9 for a spot offer with capacity, 1 for one without; None for others, and all types but the first."""
        return [
            (1 if item.zone in cloud.exhausted else 9)
            if item.market is Market.SPOT and item.instance_type == items[0].instance_type
            else None
            for item in items
        ]

    @counted_call
    def host_keys(self, cloud: Cloud, id: str) -> Sequence[str]:  # noqa: A002
        """Return the host keys that the running machine has reported (`say_host_key`)."""
        machine = self._find_living_machine(cloud, id)
        is_running = self._state(machine) is State.RUNNING
        return tuple(cloud.host_keys.get(machine.id, ())) if is_running else ()

    def say_host_key(self, id: str, line: str) -> None:  # noqa: A002
        """Make a machine report one of its host keys, as an image does at the first boot."""
        with self._store.open() as cloud:
            cloud.host_keys.setdefault(self._find_living_machine(cloud, id).id, []).append(line)

    @counted_call
    def leaves_at(self, cloud: Cloud, id: str) -> datetime | None:  # noqa: A002
        """Return until when the machine's computer can be used, as set with `let_leave`."""
        return dict(self._leave_times).get(self._find_machine(cloud, id).id)

    def let_leave(self, id: str, at: datetime) -> None:  # noqa: A002
        """Set when the machine's computer stops being available; known to this provider value alone."""
        self._leave_times = (*self._leave_times, (id, at))

    @counted_call
    def findings(self, cloud: Cloud, region: str | None = None) -> Sequence[AccountFinding]:
        """Return one finding: which methods the credential may not call."""
        if region is not None:
            limits.check_region(region)
        return (_denials_finding(cloud),)

    def ssh_sources(self) -> Sequence[str]:
        """Return the networks that `narrow_ssh` was given last; at first all networks."""
        return self._ssh_sources

    @counted_call
    def narrow_ssh(self, _cloud: Cloud, cidrs: Sequence[str]) -> None:
        """Replace the networks that may use SSH; known to this provider value alone."""
        self._ssh_sources = tuple(cidrs)

    def is_registered(self) -> bool:
        """Return true: the account is known by what the cloud itself calls it."""
        return True

    def register(self) -> AccountIdentity:
        """Return the account; nothing has to be created in it."""
        return self.identity()

    def writes(self, name: str, *, template: bool) -> Sequence[str]:
        """Return sentences about what a launch of that name would write: nothing."""
        return ("writes nothing", *[f"for {name}, too"] * template)

    def remains(self, id: str) -> RemainingFiles | None:  # noqa: A002, ARG002
        """Return None: these machines have no files."""
        return None

    @counted_call
    def processes(self, cloud: Cloud, id: str) -> Sequence[Process] | None:  # noqa: A002
        """Return no processes: these machines have none."""
        self._find_living_machine(cloud, id)
        return ()

    def _as_instance(self, machine: FakeMachine) -> Instance:
        return replace(super()._as_instance(machine), last_active=None)


class PrepaidFakeProvider(FakeProvider):
    """A prepaid account: its credit is the setting `credit` until `set_credit` changes it; machines never reduce it."""

    @counted_call
    def credit(self, cloud: Cloud) -> PrepaidCredit:
        """Return the remaining credit, and what the running machines cost an hour."""
        remaining = Money(cloud.credit) if cloud.credit is not None else Money.usd(str(self.options.credit))
        return PrepaidCredit(remaining, self.clock(), self._running_cost_per_hour(cloud), BILLING_PAGE)

    def set_credit(self, usd: str) -> None:
        """Set the remaining credit."""
        with self._store.open() as cloud:
            cloud.credit = Money.usd(usd).nanos

    def _running_cost_per_hour(self, cloud: Cloud) -> Money:
        offers = {
            (configuration.instance_type, configuration.zone, configuration.market): configuration
            for configuration in matching_offers(self.account, Requirements())
        }
        prices = [
            self._price_of(cloud, offers[machine.instance_type, machine.zone, machine.market])
            for machine in self._pending_or_running(cloud)
        ]
        return Money(sum(price.per_hour.nanos for price in prices if price is not None))


def _denials_finding(cloud: Cloud) -> AccountFinding:
    if not cloud.denied:
        return AccountFinding("made-up rules", is_ok=True, message="the fake cloud denies nothing")
    message = f"the fake cloud denies {', '.join(sorted(cloud.denied))}"
    return AccountFinding("made-up rules", is_ok=False, message=message, next="Permit them again.", needed=True)


def make(settings: ProviderSettings) -> FakeProvider:
    """Return the fake cloud that the options `reachable`, `tells`, `credit` and `lacks` describe."""
    cls: type[FakeProvider] = ReachableFakeProvider if settings.options.get("reachable") is True else FakeProvider
    cls = FullFakeProvider if settings.options.get("tells") is True else cls
    options = read_options(settings)
    if options.credit is not None:
        cls = type(cls.__name__, (PrepaidFakeProvider, cls), {}) if cls is not FakeProvider else PrepaidFakeProvider
    return _without_abilities(cls, options.lacks)(settings) if options.lacks else cls(settings)


def _without_abilities(cls: type[FakeProvider], lacks: tuple[str, ...]) -> type[FakeProvider]:
    """Return the class without these abilities: a method that is None counts as missing.

    Without `HasTimer`, machines are not ended by their renew-until tag either.
    """
    return type(cls.__name__, (cls,), {method: None for ability in lacks for method in OMITTABLE_ABILITIES[ability]})
