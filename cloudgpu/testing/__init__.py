"""For tests of cloudgpu and of provider plugins: a cloud that remembers, and what every provider promises.

The suites need pytest; the fake cloud does not, and the command line may use it through an entry point.
"""

# ruff: noqa: F403, F405  (the names of the suites are those that `abilities` exports)

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudgpu.testing.attempts import make_attempt, make_offer, new_host_key, pick
from cloudgpu.testing.bare import BareFakeProvider
from cloudgpu.testing.clock import ManualClock
from cloudgpu.testing.fake import FakeProvider, ReachableFakeProvider
from cloudgpu.testing.plugin import FAKE, write_plugin
from cloudgpu.testing.whole import WholeFakeProvider, make, make_reachable, make_whole

if TYPE_CHECKING:
    from cloudgpu.testing.abilities import *
    from cloudgpu.testing.contract import ProviderContract

__all__ = [
    "ABILITY_SUITES",
    "FAKE",
    "BareFakeProvider",
    "CanRehearseInterruptionContract",
    "ChecksPermissionsContract",
    "ExaminesContract",
    "FakeProvider",
    "HasBudgetAlertContract",
    "HasLeftoversContract",
    "HasLoginContract",
    "HasMachineRoleContract",
    "HasMeteredPriceContract",
    "HasOrphansContract",
    "HasPriceHistoryContract",
    "HasPricesContract",
    "HasQuotaContract",
    "HasRegionsContract",
    "HasTimerContract",
    "HasTimerRoleContract",
    "HasVolumesContract",
    "ImageableContract",
    "KnowsHostKeysContract",
    "LeavesFilesContract",
    "ManualClock",
    "PausableContract",
    "ProviderContract",
    "RaisesQuotaContract",
    "ReachableContract",
    "ReachableFakeProvider",
    "ReadsHostKeysContract",
    "ResolvesContract",
    "SetsTimerContract",
    "StopsManyContract",
    "TaggableContract",
    "TellsActivityContract",
    "TellsProcessesContract",
    "WholeFakeProvider",
    "WritesAtHomeContract",
    "make",
    "make_attempt",
    "make_offer",
    "make_reachable",
    "make_whole",
    "new_host_key",
    "pick",
    "write_plugin",
]


def __getattr__(name: str) -> Any:
    """Import the suites, and pytest with them, only when one is asked for."""
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from cloudgpu.testing import abilities, contract

    return getattr(contract if name == "ProviderContract" else abilities, name)
