"""For tests of cloudgpu and of provider plugins: a cloud that remembers, and what every provider promises.

The suites need pytest; the fake cloud does not, and the command line may use it through an entry point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudgpu.testing.attempts import make_attempt, make_offer, new_host_key, pick
from cloudgpu.testing.bare import BareFakeProvider
from cloudgpu.testing.clock import ManualClock
from cloudgpu.testing.fake import FakeProvider, ReachableFakeProvider
from cloudgpu.testing.plugin import FAKE, write_plugin
from cloudgpu.testing.whole import WholeFakeProvider, make, make_reachable, make_whole

if TYPE_CHECKING:
    from cloudgpu.testing.abilities import ABILITY_SUITES
    from cloudgpu.testing.accounts import (
        ChecksPermissionsContract,
        HasBudgetAlertContract,
        HasLoginContract,
        HasMachineRoleContract,
        HasQuotaContract,
        HasRegionsContract,
        HasTimerRoleContract,
        RaisesQuotaContract,
    )
    from cloudgpu.testing.contract import ProviderContract
    from cloudgpu.testing.keeping import HasLeftoversContract, ImageableContract
    from cloudgpu.testing.launching import ReachableContract, ResolvesContract
    from cloudgpu.testing.leaving import HasOrphansContract
    from cloudgpu.testing.many import StopsManyContract
    from cloudgpu.testing.pricing import HasMeteredPriceContract, HasPriceHistoryContract
    from cloudgpu.testing.running import (
        CanRehearseInterruptionContract,
        HasPricesContract,
        HasTimerContract,
        KnowsHostKeysContract,
        LeavesFilesContract,
        PausableContract,
        TaggableContract,
        TellsProcessesContract,
        WritesAtHomeContract,
    )
    from cloudgpu.testing.telling import ExaminesContract, ReadsHostKeysContract, TellsActivityContract
    from cloudgpu.testing.timing import SetsTimerContract
    from cloudgpu.testing.volumes import HasVolumesContract

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
    from cloudgpu.testing import abilities

    return getattr(abilities, name)
