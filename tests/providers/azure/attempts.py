"""Accounts and attempts for the azure provider: a request resolved at an offer, as `up` makes it."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from cloudgpu.core.model.launch import Network, Setup
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.providers.azure.provider import AzureProvider
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.testing import make_attempt

CALLER = "203.0.113.7/32"
USUAL = Setup(network=Network(ssh_from=(CALLER,)))
T4, A10 = "Standard_NC4as_T4_v3", "Standard_NV6ads_A10_v5"
LAUNCHED = [
    "VirtualMachines.Get",
    "ResourceGroups.CreateOrUpdate",
    "NetworkSecurityGroups.CreateOrUpdate",
    "VirtualNetworks.CreateOrUpdate",
    "VirtualMachines.CreateOrUpdate",
    "Operations.Get",
    "VirtualMachines.Get",
    "VirtualMachines.Get",
    "PublicIPAddresses.List",
]


def provider_of(server, home, *, pause=None, **options):
    """Return the provider of an account whose clock is the model's, and runs on where it waits."""
    options.setdefault("regions", ["eastus"])
    made = AzureProvider(ProviderSettings("lab", options, home, server.clock.now, pause or server.advance))
    return made if pause else quick(made)


def quick(provider):
    """Let a provider share the SDK's clients, with their connections and token; return the provider."""
    azure = provider._azure
    key = tuple(os.environ.get(name) for name in _ENVIRONMENT)
    first = _SHARED.setdefault(key, azure)
    azure._clients, azure._lock = first._clients, first._lock
    azure._transport, azure._credential = first._shared_transport(), first.credential
    return provider


# By what the SDK's clients depend on. Each waits by the clock of the one model that a test process has.
_ENVIRONMENT = (
    "CLOUDGPU_AZURE_ENDPOINT",
    "AZURE_AUTHORITY_HOST",
    "AZURE_CLIENT_SECRET",
    "AZURE_SUBSCRIPTION_ID",
)
_SHARED = {}


def offered(provider, name=T4, market=Market.ON_DEMAND, **where):
    """Return what the provider offers of a size on a market."""
    return provider.available(Requirements(instance_type=name, market=market, **where)).items[0]


def attempt_at(provider, item=None, *, setup=USUAL, max_price=None, template=None, **more):
    """Return an attempt whose call has been looked up; `more` is what `make_attempt` takes."""
    item = item or offered(provider)
    made = make_attempt(item, now=provider._azure.clock(), **more)
    want = replace(made.request.requirements, max_price=max_price)
    request = replace(made.request, setup=setup, requirements=want, template=template or made.request.template)
    made = replace(made, request=request, call=provider.resolve(request, item).call)
    return replace(made, tags={key: value for key, value in made.tags.items() if key != "cloudgpu-hold-until"})


def launched(provider, attempt, minutes=5):
    """Launch with a deadline."""
    return provider.launch(attempt, deadline=provider._azure.clock() + timedelta(minutes=minutes))


@contextmanager
def calls(server):
    """Yield a list which, after the block, holds the actions of the calls that were made in it; tokens are none."""
    begun, made = len(server.calls), []
    yield made
    made += [one.action for one in server.calls[begun:] if not one.action.startswith("Token.")]
