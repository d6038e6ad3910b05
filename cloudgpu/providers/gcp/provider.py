"""The gcp provider: GPU machines on Google Compute Engine. Each method is one line into the module that does it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.core.model.account import Permission, Quota, Region
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import Instance, Listing
from cloudgpu.core.model.launch import Attempt, LaunchRequest, Setup, Volume
from cloudgpu.core.model.offers import Availability, MachineConfiguration, Price, Requirements
from cloudgpu.core.model.resources import ProviderResource, ResourceListing
from cloudgpu.core.policies.guards import Agent, Safeguards, Timer
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.abilities import PlacementConstraint, Resolved, TimerAction
from cloudgpu.providers.account_abilities import AccountFinding, Login
from cloudgpu.providers.base import ProviderSettings, TokenRule
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import PROVIDER, Gcp
from cloudgpu.providers.registry import lazy_modules

if TYPE_CHECKING:
    from cloudgpu.providers.gcp.account import findings, login, permissions
    from cloudgpu.providers.gcp.compute import guest_attributes, launch, listing, power, resolve, schedules
    from cloudgpu.providers.gcp.market import availability, pricelist, quotas
    from cloudgpu.providers.gcp.network import firewall, shared
    from cloudgpu.providers.gcp.storage import create_image, disks, orphans
else:  # each is loaded by the first method that uses it
    findings, login, permissions = lazy_modules("cloudgpu.providers.gcp.account", "findings login permissions")
    guest_attributes, launch, listing, power, resolve, schedules = lazy_modules(
        "cloudgpu.providers.gcp.compute", "guest_attributes launch listing power resolve schedules"
    )
    availability, pricelist, quotas = lazy_modules("cloudgpu.providers.gcp.market", "availability pricelist quotas")
    firewall, shared = lazy_modules("cloudgpu.providers.gcp.network", "firewall shared")
    create_image, disks, orphans = lazy_modules("cloudgpu.providers.gcp.storage", "create_image disks orphans")


def make(settings: ProviderSettings) -> GcpProvider:
    """Return the provider of one account; raise InvalidRequest for a bad setting. Asks nothing over the network."""
    return GcpProvider(settings)


class GcpProvider:
    """Implements Provider, and the abilities of providers/abilities.py that fit Google Cloud.

    Not HasPriceHistory (Google has no history of spot prices), HasPlacementScores (Google's are not
    read), RaisesQuota (a person requests more on a page), HasMachineRole and HasTimerRole (machines need no role to
    report, nor does Google's timer), nor HasBudgetAlert.
    """

    kind = PROVIDER
    saves_running = True  # an image is made of a disk that is in use, as if the power had gone
    supported_parts = frozenset({"cloud_init", "container", "disk_gb", "image", "on_start", "packages"})
    token_rule = TokenRule(
        lifetime=timedelta(minutes=50),
        listing_proves_after=timedelta(minutes=10),
        gone_proves_after=timedelta(0),
        source="Compute Engine API, Prevent duplicate requests: a request id holds for 60 minutes. The machine's name "
        "follows from the token, and a name is unique in its zone while the machine exists; that a listing shows a new "
        "machine within ten minutes is unverified. A launch ends when its operation has ended and the machine was got; "
        "Terraform takes one that is not found after that for gone at once",
    )

    def __init__(self, settings: ProviderSettings) -> None:
        self.account = settings.account
        self._gcp = Gcp(settings)

    @property
    def guards(self) -> Safeguards:
        """The agent on the machine, and the timer in the cloud."""
        return Safeguards(Agent.ENDS, Timer.CLOUD)

    def identity(self, region: str | None = None) -> AccountIdentity:  # noqa: ARG002  (one project, all its regions)
        """Return the project, which every call names. Asks nothing over the network."""
        project = self._gcp.project
        return AccountIdentity("google project", project, f"Google project {project}")

    def available(self, requirements: Requirements) -> Availability:
        """Return what Google offers of what fits, by zone and market, and what did not answer."""
        return availability.available(self._gcp, requirements)

    def prices(self, offers: Sequence[MachineConfiguration]) -> Sequence[Price | None]:
        """Return one price per offer, by the dated list."""
        return pricelist.prices(offers)

    def placement_constraint(self, setup: Setup, requirements: Requirements) -> PlacementConstraint:
        """Return the region or zone of the launch's volume or subnet; images are usable in every region."""
        return resolve.constraint(self._gcp, setup, requirements)

    def resolve(self, request: LaunchRequest, configuration: MachineConfiguration) -> Resolved:
        """Look up what the exact call needs: image, network, quota, volume. Reads only."""
        return resolve.resolve(self._gcp, request, configuration)

    def launch(self, attempt: Attempt, *, deadline: datetime) -> Instance:
        """Launch the machine of an attempt, or return the one that its token has made already."""
        return launch.launch(self._gcp, attempt, deadline=deadline)

    def clear_shared(self, cluster: str, region: str) -> bool:
        """Ask to take away the firewall rule by which the machines of a cluster reach each other."""
        return shared.clear_shared(self._gcp, cluster, region)

    def get(self, id: str) -> Instance:  # noqa: A002
        """Return the machine now; raise InstanceNotFound when Google has none."""
        return listing.get(self._gcp, id)

    def list(self) -> Listing:
        """Return every machine with a cloudgpu-id label, and the zones that did not answer."""
        return listing.list_machines(self._gcp)

    def terminate(self, id: str) -> None:  # noqa: A002
        """Ask to delete the machine, its system disk and its firewall rules; an unknown id is no error."""
        power.terminate(self._gcp, id)

    def stop(self, id: str) -> None:  # noqa: A002
        """Ask to stop the machine; what is on its local SSD is lost."""
        power.stop(self._gcp, id)

    def interrupt(self, id: str) -> datetime:  # noqa: A002
        """Simulate a maintenance event, which preempts a spot machine; return when it is taken."""
        return power.interrupt(self._gcp, id)

    def stop_many(self, ids: Sequence[str]) -> Mapping[str, CloudgpuError]:
        """Ask to stop these machines, a call for each; return those that Google refused."""
        return power.stop_many(self._gcp, ids)

    def get_many(self, ids: Sequence[str]) -> Mapping[str, Instance | CloudgpuError]:
        """Return each machine now, or why not, from one listing."""
        return power.get_many(self._gcp, ids)

    def start(self, id: str) -> None:  # noqa: A002
        """Ask to start a stopped machine, its timer set to its renew-until before; one that runs is left alone."""
        power.start(self._gcp, id)

    def tag(self, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
        """Set these labels on the machine, and what it reads of them in its metadata; leave every other alone."""
        power.tag(self._gcp, id, tags)

    def allowed(self, id: str) -> Mapping[str, str]:  # noqa: A002
        """Return the CIDR per label that may reach SSH; empty where somebody else's firewall rules decide."""
        return firewall.allowed(self._gcp, id)

    def allow(self, id: str, label: str, cidr: str | None) -> None:  # noqa: A002
        """Let this CIDR in under this label in place of the one before; None takes it out."""
        firewall.allow(self._gcp, id, label, cidr)

    def why_no_timer(self) -> str:
        """Return nothing: every machine of Google's takes a timer at its launch."""
        return ""

    def timer(self, id: str) -> datetime | None:  # noqa: A002
        """Return when Google stops the machine by its `maxRunDuration`; None for none."""
        return schedules.timer(self._gcp, id)

    def timer_limit(self, id: str) -> datetime | None:  # noqa: A002
        """Return when the timer fires that was fixed when the machine was started; None where it can be set anew."""
        return schedules.timer_limit(self._gcp, id)

    def set_timer(self, id: str, at: datetime, *, action: TimerAction | None = None) -> bool:  # noqa: A002, ARG002
        """Set the timer of a stopped machine; that of one that runs was fixed at its start."""
        return schedules.set_timer(self._gcp, id, at)

    def drop_timer(self, id: str) -> None:  # noqa: A002
        """Do nothing: the timer is a part of the machine, and is deleted with it."""
        ids.zone_and_name(id)

    def timers(self, region: str | None = None, *, ids: Collection[str] | None = None) -> Mapping[str, datetime]:  # noqa: ARG002
        """Return when the timer of each running machine of this ledger fires, from one listing."""
        return schedules.timers(self._gcp, region)

    def quotas(self, region: str) -> Sequence[Quota]:
        """Return the limits on GPUs in a region and in all of them, and how much of each is used."""
        return quotas.quotas(self._gcp, region)

    def quota_page(self, region: str, code: str) -> str:
        """Return the URL of the console's page where a person requests more."""
        return quotas.quota_page(self._gcp, region, code)

    def regions(self) -> Sequence[Region]:
        """Return the regions that this account uses, each with a host of Google's that answers there."""
        return availability.endpoints(self._gcp)

    def activity(self, ids: Sequence[str]) -> Mapping[str, datetime | CloudgpuError | None]:
        """Return when each machine was last in use by its guest attribute: a call for each, in parallel."""
        return guest_attributes.activity(self._gcp, ids)

    def host_keys(self, id: str) -> Sequence[str]:  # noqa: A002
        """Return the host keys that the machine has published in its guest attributes; none yet while it boots."""
        return guest_attributes.host_keys(self._gcp, id)

    def login(self) -> Login:
        """Return what the credential is and how long it lasts, by what google.auth finds. Sends no request."""
        return login.login(self._gcp)

    def permissions(self, region: str | None = None) -> Sequence[Permission]:
        """Return every permission that cloudgpu uses in the project and whether this credential has it. Tries none."""
        return permissions.permissions(self._gcp, region)

    def findings(self, region: str | None = None) -> Sequence[AccountFinding]:
        """Return the findings about the project: OS Login, the GPU quota, the network and who may connect."""
        return findings.findings(self._gcp, region)

    def resources(self, region: str | None = None) -> ResourceListing:
        """Return the disks, snapshots and images with our labels, in use or not, and what did not answer."""
        return disks.resources(self._gcp, region)

    def remove(self, resource: ProviderResource) -> None:
        """Delete it; InvalidRequest while a machine uses it."""
        disks.remove(self._gcp, resource)

    def orphans(self, region: str | None = None) -> ResourceListing:
        """Return the firewall rules of our machines and the addresses with our labels, in use or not."""
        return orphans.orphans(self._gcp, region)

    def remove_orphan(self, orphan: ProviderResource) -> None:
        """Delete one of these; InvalidRequest while something uses it."""
        orphans.remove(self._gcp, orphan)

    def save_image(self, source: str, name: str, tags: Mapping[str, str], *, restart: bool = True) -> ProviderResource:  # noqa: ARG002
        """Take the next step to the image `name` of a machine or a disk; a machine goes on running meanwhile."""
        return create_image.save_image(self._gcp, source, name, tags)

    def terminate_keeping_disk(self, id: str) -> None:  # noqa: A002
        """Ask to delete the machine while its system disk stays."""
        power.terminate_keeping_disk(self._gcp, id)

    def attach(self, id: str, volume: Volume, tags: Mapping[str, str]) -> ProviderResource:  # noqa: A002
        """Make sure that the volume is there, in the machine's zone, and attached to it."""
        return disks.attach(self._gcp, id, volume, tags)
