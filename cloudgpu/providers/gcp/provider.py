"""The gcp provider: GPU machines on Google Compute Engine. Each method is one line into the module that does it.

What all clouds have is in `CloudProvider`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.offers import MachineConfiguration, Price
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.base import ProviderSettings, TokenRule
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import PROVIDER, Gcp
from cloudgpu.providers.registry import lazy_modules
from cloudgpu.providers.shared.provider import CloudProvider

if TYPE_CHECKING:
    from cloudgpu.providers.gcp.compute import guest_attributes, power, schedules
    from cloudgpu.providers.gcp.market import pricelist
else:  # each is loaded by the first method that uses it
    guest_attributes, power, schedules = lazy_modules(
        "cloudgpu.providers.gcp.compute", "guest_attributes power schedules"
    )
    (pricelist,) = lazy_modules("cloudgpu.providers.gcp.market", "pricelist")


def make(settings: ProviderSettings) -> GcpProvider:
    """Return the provider of one account; raise InvalidRequest for a bad setting. Asks nothing over the network."""
    return GcpProvider(settings)


class GcpProvider(CloudProvider):
    """Implements Provider, and the abilities of providers/abilities.py that fit Google Cloud.

    Not HasPriceHistory (Google has no history of spot prices), HasPlacementScores (Google's are not
    read), RaisesQuota (a person requests more on a page), HasMachineRole and HasTimerRole (machines need no role to
    report, nor does Google's timer), nor HasBudgetAlert.
    """

    kind = PROVIDER
    firewall_module = "firewall"
    saves_running = True  # an image is made of a disk that is in use, as if the power had gone
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
        self._gcp = Gcp(settings)
        super().__init__(self._gcp)

    def identity(self, region: str | None = None) -> AccountIdentity:  # noqa: ARG002  (one project, all its regions)
        """Return the project, which every call names. Asks nothing over the network."""
        project = self._gcp.project
        return AccountIdentity("google project", project, f"Google project {project}")

    def prices(self, offers: Sequence[MachineConfiguration]) -> Sequence[Price | None]:
        """Return one price per offer, by the dated list."""
        return pricelist.prices(offers)

    def interrupt(self, id: str) -> datetime:  # noqa: A002
        """Simulate a maintenance event, which preempts a spot machine; return when it is taken."""
        return power.interrupt(self._gcp, id)

    def why_no_timer(self) -> str:
        """Return nothing: every machine of Google's takes a timer at its launch."""
        return ""

    def timer_limit(self, id: str) -> datetime | None:  # noqa: A002
        """Return when the timer fires that was fixed when the machine was started; None where it can be set anew."""
        return schedules.timer_limit(self._gcp, id)

    def drop_timer(self, id: str) -> None:  # noqa: A002
        """Do nothing: the timer is a part of the machine, and is deleted with it."""
        ids.zone_and_name(id)

    def activity(self, ids: Sequence[str]) -> Mapping[str, datetime | CloudgpuError | None]:
        """Return when each machine was last in use by its guest attribute: a call for each, in parallel."""
        return guest_attributes.activity(self._gcp, ids)

    def host_keys(self, id: str) -> Sequence[str]:  # noqa: A002
        """Return the host keys that the machine has published in its guest attributes; none yet while it boots."""
        return guest_attributes.host_keys(self._gcp, id)
