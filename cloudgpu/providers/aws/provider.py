"""The aws provider: GPU machines on Amazon EC2. Each method is one line into the module that does it.

What all clouds have is in `CloudProvider`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.core.model.account import BudgetAlert, ProviderRole
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import Instance
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import MachineConfiguration, Price
from cloudgpu.providers.abilities import TimerAction
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.client import PROVIDER, Aws
from cloudgpu.providers.base import ProviderSettings, TokenRule
from cloudgpu.providers.registry import lazy_modules
from cloudgpu.providers.shared.provider import CloudProvider

if TYPE_CHECKING:
    from cloudgpu.providers.aws.account import budget_alert, roles
    from cloudgpu.providers.aws.compute import launch, schedules
    from cloudgpu.providers.aws.market import availability, pricelist, quotas
else:  # each is loaded by the first method that uses it
    budget_alert, roles = lazy_modules("cloudgpu.providers.aws.account", "budget_alert roles")
    launch, schedules = lazy_modules("cloudgpu.providers.aws.compute", "launch schedules")
    availability, pricelist, quotas = lazy_modules("cloudgpu.providers.aws.market", "availability pricelist quotas")


def make(settings: ProviderSettings) -> AwsProvider:
    """Return the provider of one account; raise InvalidRequest for a bad setting. Asks nothing over the network."""
    return AwsProvider(settings)


class AwsProvider(CloudProvider):
    """Implements Provider, and every ability of providers/abilities.py but KnowsHostKeys and CanRehearseInterruption.

    A spot interruption can be rehearsed by AWS's Fault Injection Service alone, which has to be set up, and is not
    used here.
    """

    kind = PROVIDER
    token_rule = TokenRule(
        lifetime=timedelta(hours=23),
        listing_proves_after=timedelta(minutes=10),
        source="EC2 API Reference, Ensuring idempotency: a client token is valid for at least 24 hours after the "
        "termination of the instance; Eventual consistency: a new instance may be missing from an answer, to be asked "
        "again for up to about five minutes",
    )

    def __init__(self, settings: ProviderSettings) -> None:
        self._aws = Aws(settings)
        super().__init__(self._aws)

    def identity(self, region: str | None = None) -> AccountIdentity:  # noqa: ARG002  (one account, all its regions)
        """Return the number of the AWS account that these credentials belong to. Asked once."""
        number = self._aws.account_id()
        return AccountIdentity("aws account", number, f"AWS account {number}")

    def price_history(
        self, configurations: Sequence[MachineConfiguration], since: datetime
    ) -> Sequence[Sequence[Price]]:
        """Return what each spot item cost since then, oldest first."""
        return pricelist.price_history(self._aws, configurations, since)

    def placement_scores(self, configurations: Sequence[MachineConfiguration]) -> Sequence[int | None]:
        """Return how likely a spot launch of a type is to succeed in each zone, from 1 to 10."""
        return availability.placement_scores(self._aws, configurations)

    def launch_together(self, attempts: Sequence[Attempt], *, deadline: datetime) -> Sequence[Instance]:
        """Launch the nodes of a cluster in one call, all or none, or return those that it has made already."""
        return launch.launch_together(self._aws, attempts, deadline=deadline)

    def request_quota(self, region: str, code: str, limit: float) -> str:
        """Ask AWS for a higher limit; return the request's id."""
        return quotas.request(self._aws, region, code, limit)

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

    def timer_limit(self, id: str) -> datetime | None:  # noqa: A002
        """Return None: a schedule can be moved as far as anybody likes."""
        ids.split_machine_id(id)
        return None

    def set_timer(self, id: str, at: datetime, *, action: TimerAction | None = None) -> bool:  # noqa: A002
        """Make or move the machine's EventBridge schedule, which stops or ends it."""
        schedules.set_timer(self._aws, id, at, action)
        return True

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
