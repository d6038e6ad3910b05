"""What tests of the runpod provider share: an account at the model, attempts, and another computer with the account."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from cloudgpu.core.model.offers import Requirements
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.runpod.provider import make
from cloudgpu.testing.helpers import make_attempt, pick


def account(runpod, home, **options):
    """Return the provider of an account whose clock and pauses are the model's."""
    return make(ProviderSettings("lab", options, home, runpod.clock.now, runpod.advance))


def impatient(runpod, home):
    """Return one that waits half a second for a read, and lets no time of the model pass between its tries."""
    return make(ProviderSettings("lab", {}, home, runpod.clock.now, lambda _: None, patience=0.5))


def an_attempt(provider, runpod, *, want=None, setup=None, **more):
    """Return an attempt at the first offer that is wanted, looked up as a plan does."""
    items = provider.available(want or Requirements(gpu="h100")).items
    item = pick(items, items[0].market)
    given = {} if setup is None else {"setup": setup}
    made = make_attempt(item, now=runpod.clock.now(), **given, **more)
    return replace(made, call=provider.resolve(made.request, item).call)


def launched(provider, attempt, seconds=120):
    """Launch with a deadline that is so far away."""
    return provider.launch(attempt, deadline=attempt.made_at + timedelta(seconds=seconds))
