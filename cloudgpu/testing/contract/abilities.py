"""The table that says which suite belongs to which ability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudgpu.providers.abilities import (
    CanRehearseInterruption,
    HasMeteredPrice,
    HasOrphans,
    HasPlacementScores,
    HasPriceHistory,
    HasPrices,
    HasResources,
    HasTimer,
    HasVolumes,
    HostLeaves,
    Imageable,
    KnowsHostKeys,
    LeavesFiles,
    Pausable,
    Reachable,
    ReadsHostKeys,
    ReportsActivity,
    ReportsProcesses,
    Resolves,
    SetsTimer,
    SharesComputer,
    Taggable,
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
    NarrowsSsh,
    RaisesQuota,
    ReadsCredit,
    Registers,
)
from cloudgpu.providers.cluster_abilities import BulkStop, ClearsShared, LaunchesTogether
from cloudgpu.testing.contract.accounts import (
    ChecksPermissionsContract,
    HasBudgetAlertContract,
    HasLoginContract,
    HasMachineRoleContract,
    HasQuotaContract,
    HasRegionsContract,
    HasTimerRoleContract,
    RaisesQuotaContract,
    ReadsCreditContract,
    RegistersContract,
)
from cloudgpu.testing.contract.base import ContractBase
from cloudgpu.testing.contract.bulk import BulkStopContract
from cloudgpu.testing.contract.launching import ReachableContract, ResolvesContract
from cloudgpu.testing.contract.orphans import HasOrphansContract
from cloudgpu.testing.contract.pricing import (
    HasMeteredPriceContract,
    HasPlacementScoresContract,
    HasPriceHistoryContract,
    SharesComputerContract,
)
from cloudgpu.testing.contract.reports import (
    ExaminesContract,
    NarrowsSshContract,
    ReadsHostKeysContract,
    ReportsActivityContract,
)
from cloudgpu.testing.contract.retention import HasResourcesContract, ImageableContract
from cloudgpu.testing.contract.running import (
    CanRehearseInterruptionContract,
    HasPricesContract,
    HasTimerContract,
    HostLeavesContract,
    KnowsHostKeysContract,
    LeavesFilesContract,
    PausableContract,
    ReportsProcessesContract,
    TaggableContract,
    WritesAtHomeContract,
)
from cloudgpu.testing.contract.timers import SetsTimerContract
from cloudgpu.testing.contract.together import ClearsSharedContract, LaunchesTogetherContract
from cloudgpu.testing.contract.volumes import HasVolumesContract

__all__ = [
    "ABILITY_SUITES",
    "BulkStopContract",
    "CanRehearseInterruptionContract",
    "ChecksPermissionsContract",
    "ClearsSharedContract",
    "ExaminesContract",
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
    "NarrowsSshContract",
    "PausableContract",
    "RaisesQuotaContract",
    "ReachableContract",
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
]

ABILITY_SUITES: Mapping[type[Any], type[ContractBase]] = {
    Pausable: PausableContract,
    LaunchesTogether: LaunchesTogetherContract,
    ClearsShared: ClearsSharedContract,
    BulkStop: BulkStopContract,
    Taggable: TaggableContract,
    HasPrices: HasPricesContract,
    HasPriceHistory: HasPriceHistoryContract,
    HasPlacementScores: HasPlacementScoresContract,
    HasMeteredPrice: HasMeteredPriceContract,
    SharesComputer: SharesComputerContract,
    HostLeaves: HostLeavesContract,
    HasTimer: HasTimerContract,
    SetsTimer: SetsTimerContract,
    CanRehearseInterruption: CanRehearseInterruptionContract,
    KnowsHostKeys: KnowsHostKeysContract,
    WritesAtHome: WritesAtHomeContract,
    ReportsProcesses: ReportsProcessesContract,
    LeavesFiles: LeavesFilesContract,
    Resolves: ResolvesContract,
    Reachable: ReachableContract,
    HasResources: HasResourcesContract,
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
    ReadsCredit: ReadsCreditContract,
    ReportsActivity: ReportsActivityContract,
    ReadsHostKeys: ReadsHostKeysContract,
    Examines: ExaminesContract,
    NarrowsSsh: NarrowsSshContract,
    Registers: RegistersContract,
}
