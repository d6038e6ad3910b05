"""Accounts of the vast provider for tests, and attempts at what they are offered; waits let the model's clock run."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.vast.provider import VastProvider
from cloudgpu.testing.helpers import make_attempt, new_host_key

KEYS = {"host_key": new_host_key(), "client_public_keys": [new_host_key()[0]]}


def account(server, home, *, pause=None, patience=5.0, **options):
    """Return the provider of an account with these options."""
    waits = server.advance if pause is None else pause
    return VastProvider(ProviderSettings("lab", options, home, server.clock.now, waits, patience=patience))


def offered(provider, gpu="rtx4090", market=Market.ON_DEMAND, **more):
    """Return the first offer of one GPU."""
    return provider.available(Requirements(gpu=gpu, market=market, **more)).items[0]


def attempt_of(provider, item=None, **more):
    """Return an attempt at an offer, looked up."""
    item = item or offered(provider)
    made = make_attempt(item, **{"now": provider._vast.clock(), **KEYS, **more})
    return replace(made, call=provider.resolve(made.request, item).call)


def launched(provider, attempt=None):
    """Launch an attempt, and return the machine."""
    attempt = attempt or attempt_of(provider)
    return provider.launch(attempt, deadline=provider._vast.clock() + timedelta(minutes=5))


@contextmanager
def calls(server):
    """Yield a list which, after the block, holds the actions that were asked for in it."""
    begun, made = len(server.calls), []
    yield made
    made += [call.action for call in server.calls[begun:]]
