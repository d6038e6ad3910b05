"""What the providers of AWS, Azure and Google Cloud do alike: each method is one line into the module that does it.

Such a cloud has the packages `account`, `compute`, `market`, `network` and `storage`, with modules and functions of the
same names, each of which takes the account's client first. So `CloudProvider.stop` calls `stop` of
`providers/aws/compute/power.py`, for one. `tests/providers/shared/test_provider.py` checks that each cloud has them.
"""

# The modules are found by the cloud's name, so nobody can say here what their functions return.
# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from cloudgpu.core.model.account import Permission, Quota, Region
from cloudgpu.core.model.instances import Instance, Listing
from cloudgpu.core.model.launch import Attempt, LaunchRequest, Setup, Volume
from cloudgpu.core.model.offers import Availability, MachineConfiguration, Price, Requirements
from cloudgpu.core.model.resources import ProviderResource, ResourceListing
from cloudgpu.core.policies.guards import Agent, Safeguards, Timer
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.abilities import PlacementConstraint, Resolved, TimerAction
from cloudgpu.providers.account_abilities import AccountFinding, Login
from cloudgpu.providers.registry import lazy_modules
from cloudgpu.providers.shared.account import CloudAccount


class CloudProvider:
    """Implements Provider without its identity, and the abilities that all three clouds have.

    The modules of the package `providers.KIND` are loaded by the first method that uses them.
    """

    kind: str
    firewall_module = "security_group"  # in `network`
    supported_parts = frozenset({"cloud_init", "container", "disk_gb", "image", "on_start", "packages"})

    def __init__(self, client: CloudAccount) -> None:
        self.account = client.account
        self._client = client
        package = f"cloudgpu.providers.{self.kind}"
        self._findings, self._login, self._permissions = lazy_modules(
            f"{package}.account", "findings login permissions"
        )
        self._launch, self._listing, self._power, self._resolve, self._schedules = lazy_modules(
            f"{package}.compute", "launch listing power resolve schedules"
        )
        self._availability, self._pricelist, self._quotas = lazy_modules(
            f"{package}.market", "availability pricelist quotas"
        )
        self._firewall, self._shared = lazy_modules(f"{package}.network", f"{self.firewall_module} shared")
        self._create_image, self._disks, self._orphans = lazy_modules(
            f"{package}.storage", "create_image disks orphans"
        )

    @property
    def guards(self) -> Safeguards:
        """The agent on the machine, and the timer in the cloud where this account has such."""
        return Safeguards(Agent.ENDS, Timer.NONE if self.why_no_timer() else Timer.CLOUD)

    def available(self, requirements: Requirements) -> Availability:
        """Return what the cloud offers that satisfies the requirements, and the regions or zones without an answer."""
        return self._availability.available(self._client, requirements)

    def prices(self, offers: Sequence[MachineConfiguration]) -> Sequence[Price | None]:
        """Return one price per offer, in order; None where none is known."""
        return self._pricelist.prices(self._client, offers)

    def placement_constraint(self, setup: Setup, requirements: Requirements) -> PlacementConstraint:
        """Return the region or zone to which an own image, a volume or a subnet pins a launch."""
        return self._resolve.constraint(self._client, setup, requirements)

    def resolve(self, request: LaunchRequest, configuration: MachineConfiguration) -> Resolved:
        """Look up what the exact call needs: image, network, quota, volume. Reads only."""
        return self._resolve.resolve(self._client, request, configuration)

    def launch(self, attempt: Attempt, *, deadline: datetime) -> Instance:
        """Launch the machine of an attempt, or return the one that its token has made already."""
        return self._launch.launch(self._client, attempt, deadline=deadline)

    def clear_shared(self, cluster: str, region: str) -> bool:
        """Request the deletion of what the machines of a cluster share; return whether none of it was found."""
        return self._shared.clear_shared(self._client, cluster, region)

    def get(self, id: str) -> Instance:  # noqa: A002
        """Return the machine now; raise InstanceNotFound when the cloud has none."""
        return self._listing.get(self._client, id)

    def list(self) -> Listing:
        """Return every machine with a cloudgpu-id tag, and the regions or zones without an answer."""
        return self._listing.listed(self._client)

    def terminate(self, id: str) -> None:  # noqa: A002
        """Request the end of the machine and of what was made with it; an unknown id is no error."""
        self._power.terminate(self._client, id)

    def terminate_keeping_disk(self, id: str) -> None:  # noqa: A002
        """Request the end of the machine; its system disk stays."""
        self._power.terminate_keeping_disk(self._client, id)

    def stop(self, id: str) -> None:  # noqa: A002
        """Request the stop of the machine, in the way that ends billing."""
        self._power.stop(self._client, id)

    def stop_many(self, ids: Sequence[str]) -> Mapping[str, CloudgpuError]:
        """Request the stop of these machines; return those that the cloud refused, by id."""
        return self._power.stop_many(self._client, ids)

    def get_many(self, ids: Sequence[str]) -> Mapping[str, Instance | CloudgpuError]:
        """Return each machine now, or its error, in few calls."""
        return self._power.get_many(self._client, ids)

    def start(self, id: str) -> None:  # noqa: A002
        """Request the start of a stopped machine; one that runs is left alone."""
        self._power.start(self._client, id)

    def tag(self, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
        """Set these tags on the machine and leave every other alone."""
        self._power.tag(self._client, id, tags)

    def allowed(self, id: str) -> Mapping[str, str]:  # noqa: A002
        """Return the CIDR per label that may reach SSH; empty where somebody else's rules decide."""
        return self._firewall.allowed(self._client, id)

    def allow(self, id: str, label: str, cidr: str | None) -> None:  # noqa: A002
        """Allow SSH from this CIDR under this label, in place of the one before; None removes it."""
        self._firewall.allow(self._client, id, label, cidr)

    def why_no_timer(self) -> str:
        """Return why this account has no timers in the cloud; empty where it has."""
        return self._schedules.why_no_timer(self._client)

    def timer(self, id: str) -> datetime | None:  # noqa: A002
        """Return when the machine's timer in the cloud fires; None for none."""
        return self._schedules.timer(self._client, id)

    def set_timer(self, id: str, at: datetime, *, action: TimerAction | None = None) -> bool:  # noqa: A002, ARG002
        """Set the machine's timer, which stops it, whatever `action` says; return whether anything was changed."""
        return self._schedules.set_timer(self._client, id, at)

    def drop_timer(self, id: str) -> None:  # noqa: A002
        """Delete the machine's timer; none is no error."""
        self._schedules.drop_timer(self._client, id)

    def timers(self, region: str | None = None, *, ids: Collection[str] | None = None) -> Mapping[str, datetime]:  # noqa: ARG002
        """Return when the timer of each machine of this ledger fires, by its id."""
        return self._schedules.timers(self._client, region)

    def resources(self, region: str | None = None) -> ResourceListing:
        """Return the disks, snapshots and images with our tags, in use or not, and what did not answer."""
        return self._disks.resources(self._client, region)

    def remove(self, resource: ProviderResource) -> None:
        """Delete it; InvalidRequest while a machine uses it."""
        self._disks.remove(self._client, resource)

    def orphans(self, region: str | None = None) -> ResourceListing:
        """Return what else launches have left, in use or not, and what did not answer."""
        return self._orphans.orphans(self._client, region)

    def remove_orphan(self, orphan: ProviderResource) -> None:
        """Request the deletion of one of these; InvalidRequest while something uses it."""
        self._orphans.remove(self._client, orphan)

    def save_image(self, source: str, name: str, tags: Mapping[str, str], *, restart: bool = True) -> ProviderResource:
        """Take the next step to the image `name` of a machine or a disk; it is `ready` when it can be launched from."""
        return self._create_image.save_image(self._client, source, name, tags, restart=restart)

    def attach(self, id: str, volume: Volume, tags: Mapping[str, str]) -> ProviderResource:  # noqa: A002
        """Make sure that the volume exists, in the machine's zone, and is attached to it."""
        return self._disks.attach(self._client, id, volume, tags)

    def regions(self) -> Sequence[Region]:
        """Return the regions that this account uses, each with a host of the cloud's that answers there."""
        return self._availability.endpoints(self._client)

    def quotas(self, region: str) -> Sequence[Quota]:
        """Return the limits on GPU machines in a region, and how much of each is used."""
        return self._quotas.quotas(self._client, region)

    def quota_page(self, region: str, code: str) -> str:
        """Return the address of the page on which a person requests a higher limit."""
        return self._quotas.quota_page(self._client, region, code)

    def login(self) -> Login:
        """Return what the credential is and how long it lasts. Sends no request."""
        return self._login.login(self._client)

    def permissions(self, region: str | None = None) -> Sequence[Permission]:
        """Return every action that cloudgpu uses in the cloud and whether it is allowed. Changes nothing."""
        return self._permissions.permissions(self._client, region)

    def findings(self, region: str | None = None) -> Sequence[AccountFinding]:
        """Return the results of checks of the account."""
        return self._findings.findings(self._client, region)
