"""The table that says which suite belongs to which ability, and what a provider's test class does wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudgpu.providers.base import (
    CanRehearseInterruption,
    ChecksPermissions,
    Examines,
    HasBudgetAlert,
    HasLeftovers,
    HasLogin,
    HasMachineRole,
    HasMeteredPrice,
    HasOrphans,
    HasPriceHistory,
    HasPrices,
    HasQuota,
    HasRegions,
    HasTimer,
    HasTimerRole,
    HasVolumes,
    Imageable,
    KnowsHostKeys,
    LeavesFiles,
    Pausable,
    Provider,
    RaisesQuota,
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
from cloudgpu.testing.contract import ContractBase, ProviderContract
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


def faults_of(suite: type, provider: Provider) -> list[str]:
    """Return what a provider's test class leaves out, adds without the ability, overrides or skips."""
    found = []
    for protocol, wanted in ABILITY_SUITES.items():
        able, tested = isinstance(provider, protocol), issubclass(suite, wanted)
        if able and not tested:
            found.append(f"{suite.__name__} must inherit {wanted.__name__}: the provider is {protocol.__name__}")
        if tested and not able:
            found.append(f"{suite.__name__} inherits {wanted.__name__}, but the provider is not {protocol.__name__}")
    bases: list[type] = [ProviderContract, *ABILITY_SUITES.values()]
    for base in bases:
        if issubclass(suite, base):
            found += [f"{suite.__name__} overrides {name}" for name in _tests(base) if _other(suite, base, name)]
    marks = [mark.name for mark in getattr(suite, "pytestmark", [])]
    found += [f"{suite.__name__} is marked {mark}" for mark in marks if mark in ("skip", "skipif", "xfail")]
    return found


def _tests(base: type) -> list[str]:
    return [name for name in vars(base) if name.startswith("test_")]


def _other(suite: type, base: type, name: str) -> bool:
    return getattr(suite, name) is not getattr(base, name)
