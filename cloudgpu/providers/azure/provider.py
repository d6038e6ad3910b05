"""The azure provider: GPU machines on Microsoft Azure. Each method is one line into the module that does it.

What all clouds have is in `CloudProvider`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.core.model.account import BudgetAlert, ProviderRole
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.providers.azure.client import PROVIDER, Azure
from cloudgpu.providers.base import ProviderSettings, TokenRule
from cloudgpu.providers.registry import lazy_modules
from cloudgpu.providers.shared.provider import CloudProvider

if TYPE_CHECKING:
    from cloudgpu.providers.azure.account import budget_alert, machine_role
    from cloudgpu.providers.azure.compute import power
    from cloudgpu.providers.azure.market import quotas
else:  # each is loaded by the first method that uses it
    budget_alert, machine_role = lazy_modules("cloudgpu.providers.azure.account", "budget_alert machine_role")
    (power,) = lazy_modules("cloudgpu.providers.azure.compute", "power")
    (quotas,) = lazy_modules("cloudgpu.providers.azure.market", "quotas")


def make(settings: ProviderSettings) -> AzureProvider:
    """Return the provider of one account; raise InvalidRequest for a bad setting. Asks nothing over the network."""
    return AzureProvider(settings)


class AzureProvider(CloudProvider):
    """Implements Provider, and the abilities of providers/abilities.py that fit Azure.

    Not HasPriceHistory: the retail price list has the present spot price alone. Not HasPlacementScores: Azure's
    are not used.
    """

    kind = PROVIDER
    saves_running = True  # an image can be made of a disk in use; it is as after a loss of power
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
        self._azure = Azure(settings)
        super().__init__(self._azure)

    def identity(self, region: str | None = None) -> AccountIdentity:  # noqa: ARG002  (one subscription, all its regions)
        """Return the subscription, which every call names. Asks nothing over the network."""
        subscription = self._azure.subscription.lower()
        return AccountIdentity("azure subscription", subscription, f"Azure subscription {subscription}")

    def interrupt(self, id: str) -> datetime:  # noqa: A002
        """Let Azure simulate the eviction of a spot machine; return when it is taken at the earliest."""
        return power.interrupt(self._azure, id)

    def request_quota(self, region: str, code: str, limit: float) -> str:
        """Ask Azure for a higher limit; return the request's id."""
        return quotas.request(self._azure, region, code, limit)

    def machine_role(self, document: str) -> ProviderRole:
        """Return the state of the role with which machines deallocate and tag themselves."""
        return machine_role.read_role(self._azure, document)

    def make_machine_role(self, document: str) -> None:
        """Create or correct the role, and register the resource provider of timers."""
        machine_role.make(self._azure, document)

    def remove_machine_role(self) -> None:
        """Delete the role, where it is ours, after all its assignments."""
        machine_role.remove(self._azure)

    def timer_limit(self, id: str) -> datetime | None:  # noqa: A002
        """Return None: timers can be moved as far as Azure takes them."""
        del id
        return None

    def budget_alert(self) -> BudgetAlert | None:
        """Return the budget that cloudgpu made on Azure; None for none."""
        return budget_alert.read_alert(self._azure)

    def set_budget_alert(self, alert: BudgetAlert) -> None:
        """Create or replace the budget on Azure as `alert` says."""
        budget_alert.make(self._azure, alert)

    def remove_budget_alert(self) -> None:
        """Delete the budget on Azure."""
        budget_alert.remove(self._azure)
