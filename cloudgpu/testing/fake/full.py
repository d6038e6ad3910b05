"""The fake cloud with every ability, those that change how control goes about its work included."""

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
from cloudgpu.core.model.offers import Available, Basis, Market, Price, Requirements
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import duration_text
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.abilities import RemainingFiles, Resolved
from cloudgpu.providers.account_abilities import Finding
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.testing.fake import limits
from cloudgpu.testing.fake.cloud import counted
from cloudgpu.testing.fake.machines import FakeMachine
from cloudgpu.testing.fake.market import offered
from cloudgpu.testing.fake.provider import FakeProvider, ReachableFakeProvider
from cloudgpu.testing.fake.settings import LACKS, read_options
from cloudgpu.testing.fake.store import Cloud

PAGE = "https://fake.example/billing"  # where credit is bought


class FullFakeProvider(ReachableFakeProvider):
    """Says who may connect; a listing does not tell of activity; machines make their own host keys."""

    end_effect = "What was put there is removed. The rest stays."
    _ssh_sources: tuple[str, ...] = ("0.0.0.0/0",)
    _leaves: tuple[tuple[str, datetime], ...] = ()

    def resolve(self, request: LaunchRequest, item: Available) -> Resolved:
        """Look up the image, which takes no host key."""
        found = super().resolve(request, item)
        return replace(found, call={**found.call, "host_key": "reads"})

    def activity(self, ids: Sequence[str]) -> Mapping[str, datetime | CloudgpuError | None]:
        """Return when each was last in use by its own word (`report_activity`), a call for each."""
        found: dict[str, datetime | CloudgpuError | None] = {}
        for each in ids:
            try:
                with self._call("activity") as cloud:
                    found[each] = self._living(cloud, each).last_active
            except CloudgpuError as error:
                found[each] = error
        return found

    def metered_price(self, item: Available, gpu_watts: Decimal, measured_for: timedelta) -> Price | None:
        """Return that power at a made-up tariff; no look asks for it, for no price of this cloud is assumed."""
        source = f"{item.instance_type} drew {gpu_watts} W on average over {duration_text(measured_for)}"
        return Price(Money.usd(gpu_watts / 10_000), source, self.clock(), Basis.MEASURED)

    def shared_price(self, item: Available, share: ComputerShare) -> Price | None:  # noqa: ARG002
        """Return nothing: each of these machines is a computer of its own."""
        return None

    @counted
    def placement_scores(self, cloud: Cloud, items: Sequence[Available]) -> Sequence[int | None]:
        """Return 9 for a spot item that can be had now, and 1 for one without capacity."""
        kinds = [item.instance_type for item in items][:1]
        meant = [item.market is Market.SPOT and item.instance_type in kinds for item in items]
        scores = [1 if item.zone in cloud.exhausted else 9 for item in items]
        return [score if known else None for score, known in zip(scores, meant, strict=True)]

    @counted
    def host_keys(self, cloud: Cloud, id: str) -> Sequence[str]:  # noqa: A002
        """Return what the machine has said of its host keys (`say_host_key`)."""
        machine = self._living(cloud, id)
        runs = self._state(machine) is State.RUNNING
        return tuple(cloud.host_keys.get(machine.id, ())) if runs else ()

    def say_host_key(self, id: str, line: str) -> None:  # noqa: A002
        """Let a machine say one of its host keys, as its image does at the first boot."""
        with self._store.open() as cloud:
            cloud.host_keys.setdefault(self._living(cloud, id).id, []).append(line)

    @counted
    def leaves_at(self, cloud: Cloud, id: str) -> datetime | None:  # noqa: A002
        """Return when the machine's computer leaves (`let_leave`)."""
        return dict(self._leaves).get(self._found(cloud, id).id)

    def let_leave(self, id: str, at: datetime) -> None:  # noqa: A002
        """Let the machine's computer leave at this time, as long as this value lives."""
        self._leaves = (*self._leaves, (id, at))

    @counted
    def findings(self, cloud: Cloud, region: str | None = None) -> Sequence[Finding]:
        """Return how many methods the credential may not call."""
        if region is not None:
            limits.check_region(region)
        return (_denials(cloud),)

    def ssh_sources(self) -> Sequence[str]:
        """Return the networks that were named last; at first everybody's."""
        return self._ssh_sources

    @counted
    def narrow_ssh(self, _cloud: Cloud, cidrs: Sequence[str]) -> None:
        """Keep these networks in place of those before, as long as this value lives."""
        self._ssh_sources = tuple(cidrs)

    def is_registered(self) -> bool:
        """Return true: the account is known by what the cloud itself calls it."""
        return True

    def register(self) -> AccountIdentity:
        """Return the account; nothing is to be put there."""
        return self.identity()

    def writes(self, name: str, *, template: bool) -> Sequence[str]:
        """Return what a launch of that name would write; it writes nothing."""
        return ("writes nothing", *[f"for {name}, too"] * template)

    def remains(self, id: str) -> RemainingFiles | None:  # noqa: A002, ARG002
        """Return nothing: nobody works on these machines."""
        return None

    @counted
    def processes(self, cloud: Cloud, id: str) -> Sequence[Process] | None:  # noqa: A002
        """Return nothing: these machines have none."""
        self._living(cloud, id)
        return ()

    def _shown(self, machine: FakeMachine) -> Instance:
        return replace(super()._shown(machine), last_active=None)


class PrepaidFakeProvider(FakeProvider):
    """Its credit is that of the setting `credit` until `set_credit`; it says what its running machines cost an hour."""

    @counted
    def credit(self, cloud: Cloud) -> PrepaidCredit:
        """Return what is left; nothing is taken from it as time goes by."""
        left = Money(cloud.credit) if cloud.credit is not None else Money.usd(str(self.options.credit))
        return PrepaidCredit(left, self.clock(), self._spends(cloud), PAGE)

    def set_credit(self, usd: str) -> None:
        """Let so much be left."""
        with self._store.open() as cloud:
            cloud.credit = Money.usd(usd).nanos

    def _spends(self, cloud: Cloud) -> Money:
        sold = {(item.instance_type, item.zone, item.market): item for item in _all(self.account)}
        running = [one for one in cloud.machines.values() if self._state(one) in (State.PENDING, State.RUNNING)]
        prices = [self._price(cloud, sold[one.instance_type, one.zone, one.market]) for one in running]
        return Money(sum(price.per_hour.nanos for price in prices if price is not None))


def _all(account: str) -> list[Available]:
    return list(offered(account, Requirements()))


def _denials(cloud: Cloud) -> Finding:
    if not cloud.denied:
        return Finding("made-up rules", good=True, says="the fake cloud denies nothing")
    message = f"the fake cloud denies {', '.join(sorted(cloud.denied))}"
    return Finding("made-up rules", good=False, says=message, next="Permit them again.", needed=True)


def make(settings: ProviderSettings) -> FakeProvider:
    """Return a fake cloud, as `reachable`, `tells` and `lacks` of its settings say: what an entry point names."""
    kind: type[FakeProvider] = ReachableFakeProvider if settings.options.get("reachable") is True else FakeProvider
    kind = FullFakeProvider if settings.options.get("tells") is True else kind
    options = read_options(settings)
    lacks = options.lacks
    if options.credit is not None:
        kind = type(kind.__name__, (PrepaidFakeProvider, kind), {}) if kind is not FakeProvider else PrepaidFakeProvider
    return _without(kind, lacks)(settings) if lacks else kind(settings)


def _without(kind: type[FakeProvider], lacks: tuple[str, ...]) -> type[FakeProvider]:
    """Return the fake cloud without these abilities: a method that is None is one that a provider does not have.

    A machine of one without a timer is not ended by its tag, either.
    """
    return type(kind.__name__, (kind,), {method: None for ability in lacks for method in LACKS[ability]})


def make_reachable(settings: ProviderSettings) -> ReachableFakeProvider:
    """Return a fake cloud that says who may connect."""
    return ReachableFakeProvider(settings)


def make_full(settings: ProviderSettings) -> FullFakeProvider:
    """Return a fake cloud with every ability."""
    return FullFakeProvider(settings)
