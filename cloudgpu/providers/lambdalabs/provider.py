"""The lambda provider: GPU machines of Lambda Cloud. Each method calls the module that does the work."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from cloudgpu.core.model.account import Region
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import Instance, Listing
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Availability, MachineConfiguration, Price, Requirements
from cloudgpu.core.policies.guards import Agent, Safeguards
from cloudgpu.providers.account_abilities import AccountFinding, Login
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.lambdalabs.client import TOKEN_RULE, Lambda
from cloudgpu.providers.lambdalabs.options import PROVIDER
from cloudgpu.providers.registry import lazy_modules

if TYPE_CHECKING:
    from cloudgpu.providers.lambdalabs import account, machines, offers as offer_calls
else:  # each is loaded by the first method that uses it
    account, machines, offer_calls = lazy_modules("cloudgpu.providers.lambdalabs", "account machines offers")


def make(settings: ProviderSettings) -> LambdaProvider:
    """Return the provider of one account; raise InvalidRequest for a bad setting. Asks nothing over the network."""
    return LambdaProvider(settings)


class LambdaProvider:
    """Implements Provider, and the abilities that fit Lambda.

    Not Pausable and Imageable (there is no stop and no image of one's own), Taggable (tags are fixed at the launch),
    HasTimer, HasQuota (no call tells limits), Resolves (image and disk cannot be chosen), HasFirewall (the account's
    global rules count for all machines), HasResources (nothing outlives a machine).
    """

    kind = PROVIDER
    supported_parts = frozenset({"cloud_init", "container", "on_start", "packages"})
    token_rule = TOKEN_RULE

    def __init__(self, settings: ProviderSettings) -> None:
        self.account = settings.account
        self._lambda = Lambda(settings)

    @property
    def guards(self) -> Safeguards:
        """Only reaper runs end its machines: the agent there reports activity, and cannot end the billing."""
        return Safeguards(Agent.TELLS)

    def identity(self, region: str | None = None) -> AccountIdentity:  # noqa: ARG002  (one account, all its regions)
        """Return the account, identified by its SSH key `cloudgpu` or the one to be put there. Reads only."""
        return self._lambda.identity()

    def is_registered(self) -> bool:
        """Say whether the account keeps that key. Reads only."""
        return self._lambda.is_registered()

    def register(self) -> AccountIdentity:
        """Put that key there where it is missing."""
        return self._lambda.register()

    def available(self, requirements: Requirements) -> Availability:
        """Return what Lambda has in stock of what fits, by region."""
        return offer_calls.available(self._lambda, requirements)

    def prices(self, offers: Sequence[MachineConfiguration]) -> Sequence[Price | None]:
        """Return one price per offer, or a machine's own, as Lambda reports it now."""
        return machines.prices(self._lambda, offers)

    def regions(self) -> Sequence[Region]:
        """Return the regions that this account uses; one address answers for all."""
        return offer_calls.regions(self._lambda)

    def launch(self, attempt: Attempt, *, deadline: datetime) -> Instance:  # noqa: ARG002  (one call, and it is brief)
        """Launch the machine of an attempt, or return the one that was made for it already."""
        return machines.launch(self._lambda, attempt)

    def get(self, id: str) -> Instance:  # noqa: A002
        """Return the machine now; raise InstanceNotFound when Lambda has none."""
        return machines.get(self._lambda, id)

    def list(self) -> Listing:
        """Return every machine with a cloudgpu-id tag, from one call."""
        return machines.list_machines(self._lambda)

    def terminate(self, id: str) -> None:  # noqa: A002
        """Ask to end the machine and its disk; an unknown id is no error."""
        machines.terminate(self._lambda, id)

    def login(self) -> Login:
        """Return where the API key is. Sends no request."""
        return account.login(self._lambda)

    def ssh_sources(self) -> Sequence[str]:
        """Return the networks from which the account's global rules open port 22."""
        return account.ssh_sources(self._lambda)

    def narrow_ssh(self, cidrs: Sequence[str]) -> None:
        """Open port 22 to these networks alone, by the account's global rules; every other rule stays."""
        account.narrow_ssh(self._lambda, cidrs)

    def findings(self, region: str | None = None) -> Sequence[AccountFinding]:  # noqa: ARG002  (the rules are the account's)
        """Return the findings about the account: who may reach SSH, and what ends a machine."""
        return account.findings(self._lambda)
