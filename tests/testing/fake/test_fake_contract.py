"""The fake cloud keeps every promise of the contract: in memory, in a shared file, and without the abilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from cloudgpu.core.model.instances import Instance
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import MachineConfiguration
from cloudgpu.providers.base import Factory, Provider, ProviderSettings
from cloudgpu.testing import (
    BulkStopContract,
    CanRehearseInterruptionContract,
    ChecksPermissionsContract,
    ClearsSharedContract,
    ExaminesContract,
    FullFakeProvider,
    HasBudgetAlertContract,
    HasLoginContract,
    HasMachineRoleContract,
    HasMeteredPriceContract,
    HasOrphansContract,
    HasPlacementScoresContract,
    HasPriceHistoryContract,
    HasPricesContract,
    HasQuotaContract,
    HasRegionsContract,
    HasResourcesContract,
    HasTimerContract,
    HasTimerRoleContract,
    HasVolumesContract,
    HostLeavesContract,
    ImageableContract,
    KnowsHostKeysContract,
    LaunchesTogetherContract,
    LeavesFilesContract,
    ManualClock,
    MinimalFakeProvider,
    NarrowsSshContract,
    PausableContract,
    ProviderContract,
    RaisesQuotaContract,
    ReachableContract,
    ReadsCreditContract,
    ReadsHostKeysContract,
    RegistersContract,
    ReportsActivityContract,
    ReportsProcessesContract,
    ResolvesContract,
    SetsTimerContract,
    SharesComputerContract,
    TaggableContract,
    WritesAtHomeContract,
    make,
    new_host_key,
)
from cloudgpu.testing.fake.store import FakeMachine


class OnManualClock(ProviderContract):
    """Waits by moving the clock: the cloud needs 30 seconds to boot, 10 to stop, and lists what is new after 5."""

    options: dict[str, object] = {  # noqa: RUF012
        "boot_s": 30,
        "stop_s": 10,
        "lag_s": 5,
        "notice_s": 120,
        "image_s": 90,
        "timer": "moves",
    }

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def settings(self, tmp_path: Path, clock: ManualClock) -> ProviderSettings:
        self.clock_moved = clock
        return ProviderSettings("contract", self.options, tmp_path, clock)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(3000):
            if condition():
                return
            self.clock_moved.advance(1)
        pytest.fail("not within 3000 seconds of the clock")

    def lose_reply(self, provider: Provider) -> None:
        provider.lose_reply("launch")

    def sell_out(self, provider: Provider, item: MachineConfiguration) -> None:
        provider.leave_room(item.zone, 0)

    def replay_elsewhere(self, provider: Provider, other: Provider, attempt: Attempt) -> str:
        return self.launch(provider, attempt).id  # in memory, another value is another cloud


class OnTheWholeFake(
    OnManualClock,
    LaunchesTogetherContract,
    PausableContract,
    BulkStopContract,
    TaggableContract,
    HasPriceHistoryContract,
    HasPricesContract,
    HasTimerContract,
    SetsTimerContract,
    HasTimerRoleContract,
    CanRehearseInterruptionContract,
    KnowsHostKeysContract,
    ResolvesContract,
    HasResourcesContract,
    HasOrphansContract,
    ImageableContract,
    HasVolumesContract,
    HasQuotaContract,
    RaisesQuotaContract,
    HasRegionsContract,
    ChecksPermissionsContract,
    ClearsSharedContract,
    HasLoginContract,
    HasMachineRoleContract,
    HasBudgetAlertContract,
):
    """With every ability but those of machines that are asked."""

    @pytest.fixture
    def factory(self) -> Factory:
        return make

    def leave_room(self, provider: Provider, item: MachineConfiguration, count: int) -> None:
        provider.leave_room(item.zone, count)

    def launch_together_elsewhere(self, provider: Provider, other: Provider, attempts: Sequence[Attempt]) -> list[str]:
        return [one.id for one in self.launch_together(provider, attempts)]  # in memory, another value is another cloud


class TestFakeInMemory(OnTheWholeFake):
    """In memory."""


class TestFakeInAFile(
    OnTheWholeFake,
    ReachableContract,
    HasMeteredPriceContract,
    SharesComputerContract,
    HasPlacementScoresContract,
    ReportsActivityContract,
    HostLeavesContract,
    ReadsHostKeysContract,
    ExaminesContract,
    ReportsProcessesContract,
    WritesAtHomeContract,
    LeavesFilesContract,
    NarrowsSshContract,
    RegistersContract,
):
    """In a file that several values share, and with the other abilities, too."""

    @pytest.fixture
    def factory(self) -> Factory:
        return FullFakeProvider

    def report_use(self, provider: Provider, id: str, at: datetime) -> None:  # noqa: A002
        provider.report_activity(id, at)

    def set_leave_time(self, provider: Provider, id: str, at: datetime) -> None:  # noqa: A002
        provider.let_leave(id, at)

    def report_host_keys(self, provider: Provider, id: str) -> None:  # noqa: A002
        provider.say_host_key(id, new_host_key()[0])

    @pytest.fixture
    def settings(self, tmp_path: Path, clock: ManualClock) -> ProviderSettings:
        self.clock_moved = clock
        shared = {"state_file": str(tmp_path / "cloud.json")}
        return ProviderSettings("contract", {**self.options, **shared}, tmp_path, clock)

    def replay_elsewhere(self, provider: Provider, other: Provider, attempt: Attempt) -> str:
        return self.launch(other, attempt).id

    def launch_together_elsewhere(self, provider: Provider, other: Provider, attempts: Sequence[Attempt]) -> list[str]:
        return [one.id for one in self.launch_together(other, attempts)]


class TestFakeWithTimersFixedAtLaunch(OnTheWholeFake, ReadsCreditContract):
    """A timer that is the machine's for life; and an account that is paid in advance, in the same run."""

    options: dict[str, object] = {**OnManualClock.options, "timer": "fixed", "credit": "250"}  # noqa: RUF012


class TestBareFake(OnManualClock):
    """With no ability but the base ones."""

    @pytest.fixture
    def factory(self) -> Factory:
        return MinimalFakeProvider


class TellsNoTimes(MinimalFakeProvider):
    """A poor cloud: it says neither when a machine was made nor since when it is in its state."""

    def _as_instance(self, machine: FakeMachine) -> Instance:
        return replace(super()._as_instance(machine), launched_at=None, since=None)


class TestFakeThatTellsNoTimes(OnManualClock):
    """What `Instance` calls optional is optional."""

    @pytest.fixture
    def factory(self) -> Factory:
        return TellsNoTimes
