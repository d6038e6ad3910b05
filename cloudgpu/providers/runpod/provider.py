"""The runpod provider: pods with GPUs at RunPod. Each method is one line into the module that does it."""

from __future__ import annotations

from collections.abc import Sequence
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
from cloudgpu.providers.runpod.client import LISTED_WITHIN, Runpod
from cloudgpu.providers.runpod.options import PROVIDER

if TYPE_CHECKING:
    from cloudgpu.providers.runpod import (
        launch,
        machines,
        offers as offer_calls,
        options,
        pod_key,
        request as launch_calls,
    )
else:  # each is loaded by the first method that uses it
    launch, machines, offer_calls, options, pod_key, launch_calls = lazy_modules(
        "cloudgpu.providers.runpod", "launch machines offers options pod_key request"
    )


def make(settings: ProviderSettings) -> RunpodProvider:
    """Return the provider of one account; raise InvalidRequest for a bad setting. Asks nothing over the network."""
    return RunpodProvider(settings)


class RunpodProvider:
    """Implements Provider, and the abilities of providers/abilities.py that fit RunPod.

    It is not Taggable, as a change of a pod's environment restarts it. RunPod has no timers (HasTimer) and no rules
    about who may connect (HasFirewall). Images (Imageable) and volumes (HasVolumes) of the user's are not supported.
    """

    kind = PROVIDER
    supported_parts = frozenset({"container", "disk_gb", "image", "on_start", "packages"})  # parts of a template
    token_rule = TokenRule(  # for the idempotency token of a launch
        lifetime=timedelta(minutes=5),
        listing_proves_after=LISTED_WITHIN,  # that none was made
        gone_proves_after=timedelta(minutes=1),  # a 404 by its id, that it ended; a new one may not be found at once
        source="RunPod has no tokens: cloudgpu sends a launch once, and replays only look for the pod's name, which "
        "follows from the token. That a listing shows a new pod within five minutes, and that a pod which was seen is "
        "found by its id for as long as it exists, is unverified; a deleted pod no longer appears (openapi.json)",
    )

    def __init__(self, settings: ProviderSettings) -> None:
        self.account = settings.account
        self._runpod = Runpod(settings)

    @property
    def guards(self) -> Safeguards:
        """What ends a pod besides runs of the reaper: nothing, unless its own key may (see `Resolved.agent`)."""
        return Safeguards(Agent.TELLS)  # the agent on the pod only reports

    def identity(self, region: str | None = None) -> AccountIdentity:  # noqa: ARG002  (one account everywhere)
        """Return the account that the key belongs to."""
        return self._runpod.identity()

    def available(self, requirements: Requirements) -> Availability:
        """Return what RunPod has now, by data centre: one call."""
        return offer_calls.available(self._runpod, requirements)

    def prices(self, offers: Sequence[MachineConfiguration]) -> Sequence[Price | None]:
        """Return one price per offer, by the same answer of RunPod's catalogue."""
        return offer_calls.prices(self._runpod, offers)

    def regions(self) -> Sequence[Region]:
        """Return the data centres that this account uses; one address answers for all."""
        return offer_calls.regions(self._runpod)

    def placement_constraint(self, setup: Setup, requirements: Requirements) -> PlacementConstraint:  # noqa: ARG002
        """Return an empty constraint: `setup`, what a pod is launched with besides its type, fits any data centre.

        Raises InvalidRequest for an image or a volume that RunPod has not got.
        """
        return launch_calls.constraint(setup)

    def resolve(self, request: LaunchRequest, configuration: MachineConfiguration) -> Resolved:
        """Return the exact launch call with its GPU, image and disks, what else it costs, and remarks. Reads only."""
        return launch_calls.resolve(self._runpod, request, configuration)

    def launch(self, attempt: Attempt, *, deadline: datetime) -> Instance:
        """Launch the pod of an attempt, or return the one that its token has made already."""
        return launch.launch(self._runpod, attempt, deadline=deadline)

    def get(self, id: str) -> Instance:  # noqa: A002
        """Return the pod now; raise InstanceNotFound when RunPod has none."""
        return machines.get(self._runpod, id)

    def list(self) -> Listing:
        """Return every pod with our tags: one call."""
        return machines.list_machines(self._runpod)

    def terminate(self, id: str) -> None:  # noqa: A002
        """Ask to end the pod and its /workspace; an unknown id is no error."""
        machines.terminate(self._runpod, id)

    def stop(self, id: str) -> None:  # noqa: A002
        """Ask to stop the pod: all but /workspace is erased, and /workspace costs twice as much while it is stopped."""
        machines.stop(self._runpod, id)

    def start(self, id: str) -> None:  # noqa: A002
        """Ask to start a stopped pod on its own host. Raises NoCapacity where that has no free GPU."""
        machines.start(self._runpod, id)

    def host_keys(self, id: str) -> Sequence[str]:  # noqa: A002
        """Return the host key that the pod has written into its log; none yet while it boots."""
        return machines.host_keys(self._runpod, id)

    def login(self) -> Login:
        """Return where the API key is. Sends no request; raises AuthFailed for none."""
        options.auth_headers()
        return Login(f"the API key of {options.key_location()}", None, lasts=True)  # nobody has to renew it

    def credit(self) -> PrepaidCredit | None:
        """Return the remaining prepaid credit, None for an account that is invoiced: one call."""
        return self._runpod.credit()

    def findings(self, region: str | None = None) -> Sequence[AccountFinding]:  # noqa: ARG002
        """Return the findings: whose the user's key is, and what a pod's own key may do. One call at most."""
        return (pod_key.account_finding(self._runpod), pod_key.key_finding(self._runpod))
