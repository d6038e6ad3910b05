"""The vast provider: GPUs that others rent out, at vast.ai. Each method is one line into the module that does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.core.model.account import PrepaidCredit, Region
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import Instance, Listing
from cloudgpu.core.model.launch import Attempt, LaunchRequest, Setup
from cloudgpu.core.model.offers import Availability, MachineConfiguration, Price, Requirements
from cloudgpu.core.policies.guards import Agent, Safeguards
from cloudgpu.providers.abilities import PlacementConstraint, Resolved
from cloudgpu.providers.account_abilities import AccountFinding, Login
from cloudgpu.providers.base import ProviderSettings, TokenRule
from cloudgpu.providers.registry import lazy_modules
from cloudgpu.providers.vast.client import LISTED_WITHIN, PROVIDER, Vast

if TYPE_CHECKING:
    from cloudgpu.providers.vast import account, launch, machines, market, request as launch_calls
else:  # each is loaded by the first method that uses it
    account, launch, machines, market, launch_calls = lazy_modules(
        "cloudgpu.providers.vast", "account launch machines market request"
    )


def make(settings: ProviderSettings) -> VastProvider:
    """Return the provider of one account; raise InvalidRequest for a bad setting. Asks nothing over the network."""
    return VastProvider(settings)


class VastProvider:
    """Implements Provider, and the abilities of providers/abilities.py that fit a market of containers.

    No timer (the end of a host's contract cannot be set), no volumes, no images, no rehearsed interruption, and no
    firewall: the SSH port is open, and accepts only keys.
    """

    kind = PROVIDER
    supported_parts = frozenset({"container", "disk_gb", "on_start", "packages"})
    spot_for_jobs = True  # a higher bid stops it without notice, and only `cloudgpu run` restarts by itself
    guards = Safeguards(Agent.TELLS)  # that it can stop itself is unverified: see request.stop_command
    token_rule = TokenRule(
        lifetime=timedelta(minutes=10),
        listing_proves_after=LISTED_WITHIN,
        gone_proves_after=timedelta(minutes=1),  # a new contract may not be found by its id at once
        source="vast.ai knows no tokens: the call is sent once, and its label names the launch. That a listing shows a "
        "contract within ten minutes, and that null in place of one that was seen proves its end, is unverified",
    )

    def __init__(self, settings: ProviderSettings) -> None:
        self.account = settings.account
        self._vast = Vast(settings)

    def identity(self, region: str | None = None) -> AccountIdentity:  # noqa: ARG002  (one account, all its hosts)
        """Return the account, by the user id at vast.ai; cached."""
        return account.identity(self._vast)

    def available(self, requirements: Requirements) -> Availability:
        """Return the fitting offers now, the cheapest of each machine and number of GPUs."""
        return market.available(self._vast, requirements)

    def prices(self, offers: Sequence[MachineConfiguration]) -> Sequence[Price | None]:
        """Return one price per offer, or per machine its own, without storage and traffic, which are priced apart."""
        return machines.prices(self._vast, offers)

    def leaves_at(self, id: str) -> datetime | None:  # noqa: A002
        """Return when the contract's host leaves vast.ai, by the last call."""
        return machines.leaves_at(self._vast, id)

    def regions(self) -> Sequence[Region]:
        """Return the countries in which hosts offer something now; one address answers for all."""
        return market.regions(self._vast)

    def placement_constraint(self, setup: Setup, requirements: Requirements) -> PlacementConstraint:  # noqa: ARG002
        """Return an empty constraint. Raises InvalidRequest for an image without its tag, and for volumes."""
        return launch_calls.constraint(setup)

    def resolve(self, request: LaunchRequest, configuration: MachineConfiguration) -> Resolved:
        """Read the offer again, with its price and end, and return the exact launch call. Reads only."""
        return launch_calls.resolve(self._vast, request, configuration)

    def launch(self, attempt: Attempt, *, deadline: datetime) -> Instance:
        """Rent the offer of an attempt, or return the machine that the attempt has created already."""
        return launch.launch(self._vast, attempt, deadline=deadline)

    def get(self, id: str) -> Instance:  # noqa: A002
        """Return the machine now; raise InstanceNotFound when vast.ai has none."""
        return machines.get(self._vast, id)

    def list(self) -> Listing:
        """Return every contract with a cloudgpu-id tag, page by page."""
        return machines.list_machines(self._vast)

    def terminate(self, id: str) -> None:  # noqa: A002
        """Request the end of the contract and its disk; an unknown id is no error."""
        machines.terminate(self._vast, id)

    def stop(self, id: str) -> None:  # noqa: A002
        """Stop the container; its disk stays on its host, and is billed."""
        machines.stop(self._vast, id)

    def start(self, id: str) -> None:  # noqa: A002
        """Start a stopped container, which waits until GPUs of its host are free."""
        machines.start(self._vast, id)

    def tag(self, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
        """Set tags in the contract's label; others stay."""
        machines.tag(self._vast, id, tags)

    def host_keys(self, id: str) -> Sequence[str]:  # noqa: A002
        """Return the host key in the container's log; none while it starts."""
        return account.host_keys(self._vast, id)

    def login(self) -> Login:
        """Return what the credential is: an API key, valid until it is revoked. Makes no call."""
        return account.login(self._vast)

    def credit(self) -> PrepaidCredit:
        """Return the remaining prepaid credit."""
        return account.credit(self._vast)

    def findings(self, region: str | None = None) -> Sequence[AccountFinding]:  # noqa: ARG002  (one account, all its hosts)
        """Return the findings about the account."""
        return account.findings(self._vast)
