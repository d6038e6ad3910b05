"""The table that says which suite belongs to which ability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudgpu.providers.abilities import (
    CanRehearseInterruption,
    HasLeftovers,
    HasMeteredPrice,
    HasOrphans,
    HasPriceHistory,
    HasPrices,
    HasTimer,
    HasVolumes,
    Imageable,
    KnowsHostKeys,
    LeavesFiles,
    Pausable,
    Reachable,
    ReadsHostKeys,
    Resolves,
    SetsTimer,
    StopsMany,
    Taggable,
    TellsActivity,
    TellsProcesses,
    WritesAtHome,
)
from cloudgpu.providers.account_abilities import (
    ChecksPermissions,
    Examines,
    HasBudgetAlert,
    HasLogin,
    HasMachineRole,
    HasQuota,
    HasRegions,
    HasTimerRole,
    RaisesQuota,
)
from cloudgpu.testing.contract.accounts import (
    ChecksPermissionsContract,
    HasBudgetAlertContract,
    HasLoginContract,
    HasMachineRoleContract,
    HasQuotaContract,
    HasRegionsContract,
    HasTimerRoleContract,
    RaisesQuotaContract,
)
from cloudgpu.testing.contract.base import ContractBase
from cloudgpu.testing.contract.bulk import StopsManyContract
from cloudgpu.testing.contract.launching import ReachableContract, ResolvesContract
from cloudgpu.testing.contract.orphans import HasOrphansContract
from cloudgpu.testing.contract.pricing import HasMeteredPriceContract, HasPriceHistoryContract
from cloudgpu.testing.contract.reports import ExaminesContract, ReadsHostKeysContract, TellsActivityContract
from cloudgpu.testing.contract.retention import HasLeftoversContract, ImageableContract
from cloudgpu.testing.contract.running import (
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
from cloudgpu.testing.contract.timers import SetsTimerContract
from cloudgpu.testing.contract.volumes import HasVolumesContract

__all__ = [
    "ABILITY_SUITES",
    "CanRehearseInterruptionContract",
    "ChecksPermissionsContract",
    "ExaminesContract",
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
    "PausableContract",
    "RaisesQuotaContract",
    "ReachableContract",
    "ReadsHostKeysContract",
    "ResolvesContract",
    "SetsTimerContract",
    "StopsManyContract",
    "TaggableContract",
    "TellsActivityContract",
    "TellsProcessesContract",
    "WritesAtHomeContract",
]

ABILITY_SUITES: Mapping[type[Any], type[ContractBase]] = {
    Pausable: PausableContract,
    StopsMany: StopsManyContract,
    Taggable: TaggableContract,
    HasPrices: HasPricesContract,
    HasPriceHistory: HasPriceHistoryContract,
    HasMeteredPrice: HasMeteredPriceContract,
    HasTimer: HasTimerContract,
    SetsTimer: SetsTimerContract,
    CanRehearseInterruption: CanRehearseInterruptionContract,
    KnowsHostKeys: KnowsHostKeysContract,
    WritesAtHome: WritesAtHomeContract,
    TellsProcesses: TellsProcessesContract,
    LeavesFiles: LeavesFilesContract,
    Resolves: ResolvesContract,
    Reachable: ReachableContract,
    HasLeftovers: HasLeftoversContract,
    HasOrphans: HasOrphansContract,
    Imageable: ImageableContract,
    HasVolumes: HasVolumesContract,
    HasQuota: HasQuotaContract,
    RaisesQuota: RaisesQuotaContract,
    HasRegions: HasRegionsContract,
    ChecksPermissions: ChecksPermissionsContract,
    HasLogin: HasLoginContract,
    HasMachineRole: HasMachineRoleContract,
    HasTimerRole: HasTimerRoleContract,
    HasBudgetAlert: HasBudgetAlertContract,
    TellsActivity: TellsActivityContract,
    ReadsHostKeys: ReadsHostKeysContract,
    Examines: ExaminesContract,
}
