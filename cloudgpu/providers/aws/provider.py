"""The aws provider: GPU machines on Amazon EC2. Each method is one line into the module that does it."""

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
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.client import PROVIDER, Aws
from cloudgpu.providers.base import ProviderSettings, TokenRule
from cloudgpu.providers.registry import lazy_modules

if TYPE_CHECKING:
    from cloudgpu.providers.aws.account import budget_alert, findings, login, permissions, roles
    from cloudgpu.providers.aws.compute import launch, listing, power, resolve, schedules
    from cloudgpu.providers.aws.market import availability, pricelist, quotas
    from cloudgpu.providers.aws.network import security_group, shared
    from cloudgpu.providers.aws.storage import create_image, disks, orphans
else:  # each is loaded by the first method that uses it
    budget_alert, findings, login, permissions, roles = lazy_modules(
        "cloudgpu.providers.aws.account", "budget_alert findings login permissions roles"
    )
    launch, listing, power, resolve, schedules = lazy_modules(
        "cloudgpu.providers.aws.compute", "launch listing power resolve schedules"
    )
    availability, pricelist, quotas = lazy_modules("cloudgpu.providers.aws.market", "availability pricelist quotas")
    security_group, shared = lazy_modules("cloudgpu.providers.aws.network", "security_group shared")
    create_image, disks, orphans = lazy_modules("cloudgpu.providers.aws.storage", "create_image disks orphans")


def make(settings: ProviderSettings) -> AwsProvider:
    """Return the provider of one account; raise InvalidRequest for a bad setting. Asks nothing over the network."""
    return AwsProvider(settings)


class AwsProvider:
    """Implements Provider, and every ability of providers/abilities.py but KnowsHostKeys and CanRehearseInterruption.

    A spot interruption can be rehearsed by AWS's Fault Injection Service alone, which has to be set up, and is not
    used here.
    """

    kind = PROVIDER
    supported_parts = frozenset({"cloud_init", "container", "disk_gb", "image", "on_start", "packages"})
    token_rule = TokenRule(
        lifetime=timedelta(hours=23),
        listing_proves_after=timedelta(minutes=10),
        source="EC2 API Reference, Ensuring idempotency: a client token is valid for at least 24 hours after the "
        "termination of the instance; Eventual consistency: a new instance may be missing from an answer, to be asked "
        "again for up to about five minutes",
    )

    def __init__(self, settings: ProviderSettings) -> None:
        self.account = settings.account
        self._aws = Aws(settings)

    @property
    def guards(self) -> Safeguards:
        """The agent on the machine, and the timer in the cloud where this account has such."""
        return Safeguards(Agent.ENDS, Timer.NONE if self.why_no_timer() else Timer.CLOUD)

    def identity(self, region: str | None = None) -> AccountIdentity:  # noqa: ARG002  (one account, all its regions)
        """Return the number of the AWS account that these credentials belong to. Asked once."""
        number = self._aws.account_id()
        return AccountIdentity("aws account", number, f"AWS account {number}")

    def available(self, requirements: Requirements) -> Availability:
        """Return what AWS offers that satisfies the requirements, and the regions that did not answer."""
        return availability.available(self._aws, requirements)

    def prices(self, offers: Sequence[MachineConfiguration]) -> Sequence[Price | None]:
        """Return one price per offer: spot prices of now per zone, on-demand prices from the catalogue."""
        return pricelist.prices(self._aws, offers)

    def price_history(
        self, configurations: Sequence[MachineConfiguration], since: datetime
    ) -> Sequence[Sequence[Price]]:
        """Return what each spot item cost since then, oldest first."""
        return pricelist.price_history(self._aws, configurations, since)

    def placement_scores(self, configurations: Sequence[MachineConfiguration]) -> Sequence[int | None]:
        """Return how likely a spot launch of a type is to succeed in each zone, from 1 to 10."""
        return availability.placement_scores(self._aws, configurations)

    def placement_constraint(self, setup: Setup, requirements: Requirements) -> PlacementConstraint:
        """Return the region or zone to which an own image, a volume or a subnet pins a launch."""
        return resolve.constraint(self._aws, setup, requirements)

    def resolve(self, request: LaunchRequest, configuration: MachineConfiguration) -> Resolved:
        """Look up what the exact call needs: image, network, quota, volume. Reads only."""
        return resolve.resolve(self._aws, request, configuration)

    def launch(self, attempt: Attempt, *, deadline: datetime) -> Instance:
        """Launch the machine of an attempt, or return the one that its token has made already."""
        return launch.launch(self._aws, attempt, deadline=deadline)

    def launch_together(self, attempts: Sequence[Attempt], *, deadline: datetime) -> Sequence[Instance]:
        """Launch the nodes of a cluster in one call, all or none, or return those that it has made already."""
        return launch.launch_together(self._aws, attempts, deadline=deadline)

    def clear_shared(self, cluster: str, region: str) -> bool:
        """Ask to delete the placement group and the security group of a cluster; say whether neither is there."""
        return shared.clear_shared(self._aws, cluster, region)

    def get(self, id: str) -> Instance:  # noqa: A002
        """Return the machine now; raise InstanceNotFound when AWS has none."""
        return listing.get(self._aws, id)

    def list(self) -> Listing:
        """Return every machine with a cloudgpu-id tag, and the regions that did not answer."""
        return listing.listed(self._aws)

    def terminate(self, id: str) -> None:  # noqa: A002
        """Ask to end the machine, its spot request and its system disk; an unknown id is no error."""
        power.terminate(self._aws, id)

    def terminate_keeping_disk(self, id: str) -> None:  # noqa: A002
        """Ask to end the machine and its spot request while its system disk stays."""
        power.terminate_keeping_disk(self._aws, id)

    def stop(self, id: str) -> None:  # noqa: A002
        """Ask to stop the machine; InvalidRequest for a one-time spot machine, which AWS cannot stop."""
        power.stop(self._aws, id)

    def stop_many(self, ids: Sequence[str]) -> Mapping[str, CloudgpuError]:
        """Ask to stop these machines, a call per region; return those that AWS refused."""
        return power.stop_many(self._aws, ids)

    def get_many(self, ids: Sequence[str]) -> Mapping[str, Instance | CloudgpuError]:
        """Return each machine now, or why not: a call per region."""
        return power.get_many(self._aws, ids)

    def start(self, id: str) -> None:  # noqa: A002
        """Ask to start a stopped machine; one that runs is left alone."""
        power.start(self._aws, id)

    def tag(self, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
        """Set these tags on the machine and leave every other alone."""
        power.tag(self._aws, id, tags)

    def findings(self, region: str | None = None) -> Sequence[AccountFinding]:
        """Return whether somebody has opened our own security groups to everybody."""
        return findings.findings(self._aws, region)

    def resources(self, region: str | None = None) -> ResourceListing:
        """Return the disks, snapshots and images with our tags, in use or not, and the regions that did not answer."""
        return disks.resources(self._aws, region)

    def remove(self, resource: ProviderResource) -> None:
        """Delete it, an image with its snapshots; InvalidRequest while a machine uses it."""
        disks.remove(self._aws, resource)

    def orphans(self, region: str | None = None) -> ResourceListing:
        """Return the addresses, interfaces, groups, key pairs and spot requests with our tags, in use or not."""
        return orphans.orphans(self._aws, region)

    def remove_orphan(self, orphan: ProviderResource) -> None:
        """Ask to delete one of these; InvalidRequest while something uses it."""
        orphans.remove(self._aws, orphan)

    def save_image(self, source: str, name: str, tags: Mapping[str, str], *, restart: bool = True) -> ProviderResource:
        """Take the next step to the image `name` of a machine or a disk; it is `ready` when it can be launched from."""
        return create_image.save_image(self._aws, source, name, tags, restart=restart)

    def attach(self, id: str, volume: Volume, tags: Mapping[str, str]) -> ProviderResource:  # noqa: A002
        """Make sure that the volume is there, in the machine's zone, and attached to it."""
        return disks.attach(self._aws, id, volume, tags)

    def quotas(self, region: str) -> Sequence[Quota]:
        """Return the limits on running GPU machines in a region, and how much of each is used."""
        return quotas.quotas(self._aws, region)

    def quota_page(self, region: str, code: str) -> str:
        """Return where a person asks for a higher limit: the page of Service Quotas."""
        return quotas.page(region, code)

    def request_quota(self, region: str, code: str, limit: float) -> str:
        """Ask AWS for a higher limit; return the request's id."""
        return quotas.request(self._aws, region, code, limit)

    def regions(self) -> Sequence[Region]:
        """Return the regions that this account uses, each with the host of its EC2 endpoint."""
        return availability.endpoints(self._aws)

    def allowed(self, id: str) -> Mapping[str, str]:  # noqa: A002
        """Return the CIDR per label that may reach SSH; empty where somebody else's security group decides."""
        return security_group.allowed(self._aws, id)

    def allow(self, id: str, label: str, cidr: str | None) -> None:  # noqa: A002
        """Allow SSH from this CIDR under this label, in place of the one before; None removes it."""
        security_group.allow(self._aws, id, label, cidr)

    def machine_role(self, document: str) -> ProviderRole:
        """Return what there is of the IAM role and instance profile `cloudgpu-machine`."""
        return roles.read_machine_role(self._aws, document)

    def make_machine_role(self, document: str) -> None:
        """Make the role, its policy and the profile, tagged; what is there already stays."""
        roles.make_machine_role(self._aws, document)

    def remove_machine_role(self) -> None:
        """Take the role, its policy and the profile away, where they bear our tag."""
        roles.remove_machine_role(self._aws)

    def timer_role(self, document: str) -> ProviderRole:
        """Return what there is of the IAM role `cloudgpu-timer`."""
        return roles.read_timer_role(self._aws, document)

    def make_timer_role(self, document: str) -> None:
        """Make that role and its policy, tagged; what is there already stays."""
        roles.make_timer_role(self._aws, document)

    def remove_timer_role(self) -> None:
        """Take that role and its policy away, where they bear our tag."""
        roles.remove_timer_role(self._aws)

    def why_no_timer(self) -> str:
        """Return why this account has no timers in the cloud; empty where it has."""
        return schedules.why_no_timer(self._aws)

    def timer(self, id: str) -> datetime | None:  # noqa: A002
        """Return when the machine's schedule fires; None for none."""
        return schedules.timer(self._aws, id)

    def timer_limit(self, id: str) -> datetime | None:  # noqa: A002
        """Return None: a schedule can be moved as far as anybody likes."""
        ids.split_machine_id(id)
        return None

    def set_timer(self, id: str, at: datetime, *, action: TimerAction | None = None) -> bool:  # noqa: A002
        """Make or move the machine's EventBridge schedule, which stops or ends it."""
        schedules.set_timer(self._aws, id, at, action)
        return True

    def drop_timer(self, id: str) -> None:  # noqa: A002
        """Delete the machine's schedule."""
        schedules.drop_timer(self._aws, id)

    def timers(self, region: str | None = None, *, ids: Collection[str] | None = None) -> Mapping[str, datetime]:
        """Return when each schedule of this ledger fires, by the machine's id."""
        return schedules.timers(self._aws, region, ids)

    def budget_alert(self) -> BudgetAlert | None:
        """Return what there is of the account's budget `cloudgpu-backstop`."""
        return budget_alert.read_alert(self._aws)

    def set_budget_alert(self, alert: BudgetAlert) -> None:
        """Make the budget `cloudgpu-backstop` so: AWS mails at 80 and 100 %, and when the forecast passes it."""
        budget_alert.make(self._aws, alert)

    def remove_budget_alert(self) -> None:
        """Take the budget `cloudgpu-backstop` away."""
        budget_alert.remove(self._aws)

    def login(self) -> Login:
        """Return what the credential is and how long it lasts, by what botocore finds. Asks nobody."""
        return login.login(self._aws)

    def permissions(self, region: str | None = None) -> Sequence[Permission]:
        """Return every action that cloudgpu uses at AWS and whether it is allowed; changes are sent as dry runs."""
        return permissions.permissions(self._aws, region)
