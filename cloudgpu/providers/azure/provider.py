"""The azure provider: GPU machines on Microsoft Azure. Each method is one line into the module that does it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.core.model.account import BudgetAlert, Permission, ProviderRole, Quota, Region
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import Instance, Listing
from cloudgpu.core.model.launch import Attempt, LaunchRequest, Setup, Volume
from cloudgpu.core.model.offers import Availability, MachineConfiguration, Price, Requirements
from cloudgpu.core.model.resources import ProviderResource, ResourceListing
from cloudgpu.core.policies.guards import Agent, Safeguards, Timer
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.abilities import PlacementConstraint, Resolved, TimerAction
from cloudgpu.providers.account_abilities import AccountFinding, Login
from cloudgpu.providers.azure.client import PROVIDER, Azure
from cloudgpu.providers.base import ProviderSettings, TokenRule
from cloudgpu.providers.registry import lazy_modules

if TYPE_CHECKING:
    from cloudgpu.providers.azure.account import budget_alert, findings, login, machine_role, permissions
    from cloudgpu.providers.azure.compute import launch, listing, power, resolve, schedules
    from cloudgpu.providers.azure.market import availability, pricelist, quotas
    from cloudgpu.providers.azure.network import security_group, shared
    from cloudgpu.providers.azure.storage import create_image, disks, orphans
else:  # each is loaded by the first method that uses it
    budget_alert, findings, login, machine_role, permissions = lazy_modules(
        "cloudgpu.providers.azure.account", "budget_alert findings login machine_role permissions"
    )
    launch, listing, power, resolve, schedules = lazy_modules(
        "cloudgpu.providers.azure.compute", "launch listing power resolve schedules"
    )
    availability, pricelist, quotas = lazy_modules("cloudgpu.providers.azure.market", "availability pricelist quotas")
    security_group, shared = lazy_modules("cloudgpu.providers.azure.network", "security_group shared")
    create_image, disks, orphans = lazy_modules("cloudgpu.providers.azure.storage", "create_image disks orphans")


def make(settings: ProviderSettings) -> AzureProvider:
    """Return the provider of one account; raise InvalidRequest for a bad setting. Asks nothing over the network."""
    return AzureProvider(settings)


class AzureProvider:
    """Implements Provider, and the abilities of providers/abilities.py that fit Azure.

    Not HasPriceHistory: the retail price list has the present spot price alone. Not HasPlacementScores: Azure's
    are not used.
    """

    kind = PROVIDER
    saves_running = True  # an image can be made of a disk in use; it is as after a loss of power
    supported_parts = frozenset({"cloud_init", "container", "disk_gb", "image", "on_start", "packages"})
    token_rule = TokenRule(
        lifetime=timedelta(hours=23),
        listing_proves_after=timedelta(minutes=10),
        gone_proves_after=timedelta(0),
        source="Azure Resource Manager, Resource Provider Contract: a PUT creates or replaces the resource of that "
        "name, so sending it again makes no second one. Names follow from the token; a machine that was deleted "
        "meanwhile would be made again, so a token is used for a day and no longer. That a listing shows a new machine "
        "within ten minutes is unverified. A launch ends when its operation has ended and the machine was got; one "
        "that is unknown after that, with its group, is gone: both are looked up by their names",
    )

    def __init__(self, settings: ProviderSettings) -> None:
        self.account = settings.account
        self._azure = Azure(settings)

    @property
    def guards(self) -> Safeguards:
        """The agent on the machine, and the timer in the cloud where this account has such."""
        return Safeguards(Agent.ENDS, Timer.NONE if self.why_no_timer() else Timer.CLOUD)

    def identity(self, region: str | None = None) -> AccountIdentity:  # noqa: ARG002  (one subscription, all its regions)
        """Return the subscription, which every call names. Asks nothing over the network."""
        subscription = self._azure.subscription.lower()
        return AccountIdentity("azure subscription", subscription, f"Azure subscription {subscription}")

    def available(self, requirements: Requirements) -> Availability:
        """Return what Azure offers that satisfies the requirements, and the regions that did not answer."""
        return availability.available(self._azure, requirements)

    def prices(self, offers: Sequence[MachineConfiguration]) -> Sequence[Price | None]:
        """Return one price per offer, from the catalogue; from the Retail Prices API where that lacks one."""
        return pricelist.prices(self._azure, offers)

    def resolve(self, request: LaunchRequest, configuration: MachineConfiguration) -> Resolved:
        """Look up what the exact call needs: image, network, quota, volume. Reads only."""
        return resolve.resolve(self._azure, request, configuration)

    def launch(self, attempt: Attempt, *, deadline: datetime) -> Instance:
        """Launch the machine of an attempt in a group of its own, or return the one that its token has made already."""
        return launch.launch(self._azure, attempt, deadline=deadline)

    def clear_shared(self, cluster: str, region: str) -> bool:
        """Ask to delete the network that the machines of a cluster share, with its group."""
        return shared.clear_shared(self._azure, cluster, region)

    def get(self, id: str) -> Instance:  # noqa: A002
        """Return the machine now; raise InstanceNotFound when Azure has neither it nor its group."""
        return listing.get(self._azure, id)

    def list(self) -> Listing:
        """Return every machine with a cloudgpu-id tag in the subscription."""
        return listing.listed(self._azure)

    def terminate(self, id: str) -> None:  # noqa: A002
        """Ask to delete the machine with its whole group; an unknown id is no error."""
        power.terminate(self._azure, id)

    def stop(self, id: str) -> None:  # noqa: A002
        """Request deallocation: Azure bills a machine that is only shut down."""
        power.stop(self._azure, id)

    def stop_many(self, ids: Sequence[str]) -> Mapping[str, CloudgpuError]:
        """Ask to deallocate these machines, side by side; return those that Azure refused."""
        return power.stop_many(self._azure, ids)

    def get_many(self, ids: Sequence[str]) -> Mapping[str, Instance | CloudgpuError]:
        """Return each machine now, or its error, by two listings."""
        return power.get_many(self._azure, ids)

    def start(self, id: str) -> None:  # noqa: A002
        """Ask to start a machine, and wait until Azure has found the capacity; one that runs is left alone."""
        power.start(self._azure, id)

    def tag(self, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
        """Set these tags on the machine and leave every other alone."""
        power.tag(self._azure, id, tags)

    def allowed(self, id: str) -> Mapping[str, str]:  # noqa: A002
        """Return the CIDR per label that may reach SSH; empty where somebody else's security group decides."""
        return security_group.allowed(self._azure, id)

    def allow(self, id: str, label: str, cidr: str | None) -> None:  # noqa: A002
        """Allow SSH from this CIDR under this label, in place of the one before; None removes it."""
        security_group.allow(self._azure, id, label, cidr)

    def placement_constraint(self, setup: Setup, requirements: Requirements) -> PlacementConstraint:
        """Return the region or zone to which an own image, a volume or a subnet pins a launch."""
        return resolve.constraint(self._azure, setup, requirements)

    def interrupt(self, id: str) -> datetime:  # noqa: A002
        """Let Azure simulate the eviction of a spot machine; return when it is taken at the earliest."""
        return power.interrupt(self._azure, id)

    def resources(self, region: str | None = None) -> ResourceListing:
        """Return the disks, snapshots and images of ours, in use or not."""
        return disks.resources(self._azure, region)

    def remove(self, resource: ProviderResource) -> None:
        """Delete it, and a launch's group with its last disk; InvalidRequest while a machine uses it."""
        disks.remove(self._azure, resource)

    def orphans(self, region: str | None = None) -> ResourceListing:
        """Return the groups of launches, interfaces, addresses and roles of machines, in use or not."""
        return orphans.orphans(self._azure, region)

    def remove_orphan(self, orphan: ProviderResource) -> None:
        """Delete one of these; InvalidRequest while something uses it."""
        orphans.remove(self._azure, orphan)

    def save_image(self, source: str, name: str, tags: Mapping[str, str], *, restart: bool = True) -> ProviderResource:
        """Take the next step to the image `name` of a machine or a disk; nothing is restarted for it."""
        del restart  # a snapshot is of one moment, whether the machine runs or not
        return create_image.save_image(self._azure, source, name, tags)

    def terminate_keeping_disk(self, id: str) -> None:  # noqa: A002
        """Ask to end the machine while its system disk stays."""
        power.terminate_keeping_disk(self._azure, id)

    def attach(self, id: str, volume: Volume, tags: Mapping[str, str]) -> ProviderResource:  # noqa: A002
        """Make sure that the volume exists in the machine's region or zone, and is attached to it."""
        return disks.attach(self._azure, id, volume, tags)

    def regions(self) -> Sequence[Region]:
        """Return the regions of the account with the host of each one's Resource Manager."""
        return availability.endpoints(self._azure)

    def quotas(self, region: str) -> Sequence[Quota]:
        """Return the limits on vCPUs of GPU machines in a region, with what is used."""
        return quotas.quotas(self._azure, region)

    def quota_page(self, region: str, code: str) -> str:
        """Return where a person asks for a higher limit: the portal's page of quotas."""
        return quotas.page(region, code)

    def request_quota(self, region: str, code: str, limit: float) -> str:
        """Ask Azure for a higher limit; return the request's id."""
        return quotas.request(self._azure, region, code, limit)

    def permissions(self, region: str | None = None) -> Sequence[Permission]:
        """Return every action that cloudgpu uses and whether it is allowed, by one call."""
        return permissions.permissions(self._azure, region)

    def login(self) -> Login:
        """Return what the credential is and how long it lasts; asks nobody."""
        return login.login(self._azure)

    def findings(self, region: str | None = None) -> Sequence[AccountFinding]:
        """Return the results of checks of the subscription, its services, the role of machines and timers."""
        return findings.findings(self._azure, region)

    def machine_role(self, document: str) -> ProviderRole:
        """Return the state of the role with which machines deallocate and tag themselves."""
        return machine_role.read_role(self._azure, document)

    def make_machine_role(self, document: str) -> None:
        """Create or correct the role, and register the resource provider of timers."""
        machine_role.make(self._azure, document)

    def remove_machine_role(self) -> None:
        """Delete the role, where it is ours, after all its assignments."""
        machine_role.remove(self._azure)

    def why_no_timer(self) -> str:
        """Return why this account has no timers in the cloud; empty where it has."""
        return schedules.why_no_timer(self._azure)

    def timer_limit(self, id: str) -> datetime | None:  # noqa: A002
        """Return None: timers can be moved as far as Azure takes them."""
        del id
        return None

    def timer(self, id: str) -> datetime | None:  # noqa: A002
        """Return when Azure deallocates the machine; None for never."""
        return schedules.timer(self._azure, id)

    def set_timer(self, id: str, at: datetime, *, action: TimerAction | None = None) -> bool:  # noqa: A002
        """Let Azure deallocate the machine at that time, whatever `action` says: that is all that its timers can do."""
        del action
        return schedules.set_timer(self._azure, id, at)

    def drop_timer(self, id: str) -> None:  # noqa: A002
        """Delete the machine's timer; none is no error."""
        schedules.drop_timer(self._azure, id)

    def timers(self, region: str | None = None, *, ids: Collection[str] | None = None) -> Mapping[str, datetime]:  # noqa: ARG002
        """Return when each machine of this ledger is deallocated."""
        return schedules.timers(self._azure, region)

    def budget_alert(self) -> BudgetAlert | None:
        """Return the budget that cloudgpu made on Azure; None for none."""
        return budget_alert.read_alert(self._azure)

    def set_budget_alert(self, alert: BudgetAlert) -> None:
        """Create or replace the budget on Azure as `alert` says."""
        budget_alert.make(self._azure, alert)

    def remove_budget_alert(self) -> None:
        """Delete the budget on Azure."""
        budget_alert.remove(self._azure)
