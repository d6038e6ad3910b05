"""For tests of cloudgpu and of provider plugins: a fake cloud, and the test suites that every provider must pass.

The suites need pytest; the fake cloud does not, and the command line may use it through an entry point.
"""

# ruff: noqa: F403, F405  (the names of the suites are those that `abilities` exports)

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudgpu.testing.fake.full import FullFakeProvider, make
from cloudgpu.testing.fake.minimal import MinimalFakeProvider
from cloudgpu.testing.fake.provider import FakeProvider, ReachableFakeProvider
from cloudgpu.testing.helpers import (
    FAKE,
    ManualClock,
    as_nodes,
    make_attempt,
    make_offer,
    new_host_key,
    pick,
    write_plugin,
)

if TYPE_CHECKING:
    from cloudgpu.testing.contract.abilities import *
    from cloudgpu.testing.contract.provider import ProviderContract

__all__ = [
    "ABILITY_SUITES",
    "FAKE",
    "BulkStopContract",
    "CanRehearseInterruptionContract",
    "ChecksPermissionsContract",
    "ClearsSharedContract",
    "ExaminesContract",
    "FakeProvider",
    "FullFakeProvider",
    "HasBudgetAlertContract",
    "HasLoginContract",
    "HasMachineRoleContract",
    "HasMeteredPriceContract",
    "HasOrphansContract",
    "HasPlacementScoresContract",
    "HasPriceHistoryContract",
    "HasPricesContract",
    "HasQuotaContract",
    "HasRegionsContract",
    "HasResourcesContract",
    "HasTimerContract",
    "HasTimerRoleContract",
    "HasVolumesContract",
    "HostLeavesContract",
    "ImageableContract",
    "KnowsHostKeysContract",
    "LaunchesTogetherContract",
    "LeavesFilesContract",
    "ManualClock",
    "MinimalFakeProvider",
    "NarrowsSshContract",
    "PausableContract",
    "ProviderContract",
    "RaisesQuotaContract",
    "ReachableContract",
    "ReachableFakeProvider",
    "ReadsCreditContract",
    "ReadsHostKeysContract",
    "RegistersContract",
    "ReportsActivityContract",
    "ReportsProcessesContract",
    "ResolvesContract",
    "SetsTimerContract",
    "SharesComputerContract",
    "TaggableContract",
    "WritesAtHomeContract",
    "as_nodes",
    "make",
    "make_attempt",
    "make_offer",
    "new_host_key",
    "pick",
    "write_plugin",
]


def __getattr__(name: str) -> Any:
    """Import the suites, and pytest with them, only when one is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cloudgpu.testing.contract import abilities, provider as contract

    return getattr(contract if name == "ProviderContract" else abilities, name)
