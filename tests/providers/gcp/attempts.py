"""Attempts for the gcp provider: a request resolved at an offer, as `up` makes it, with settings of the test's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from cloudgpu.core.launch.attempt import attempt_from_json, attempt_to_json
from cloudgpu.core.model.launch import Network, Setup
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.providers.gcp.options import GcpOptions
from cloudgpu.testing import make_attempt

CALLER = "203.0.113.7/32"
USUAL = Setup(network=Network(ssh_from=(CALLER,)))
T4 = "n1-standard-4+t4:1"
ZONE = "us-central1-a"


_OFFERED, _CALLS = {}, {}  # what a model that is begun anew answers each time: asked once in a process


def offered(provider, name=T4, zone=ZONE, market=Market.ON_DEMAND):
    """Return what the provider offers of a type in a zone and market."""
    key = (name, zone, market)
    if key not in _OFFERED:
        _OFFERED[key] = provider.available(Requirements(instance_type=name, zone=zone, market=market)).items[0]
    return _OFFERED[key]


def resolved(provider, name=T4, *, setup=USUAL, market=Market.ON_DEMAND, template="jupyter", max_price=None, **more):
    """Return what a launch of this type comes to, made exact."""
    item = offered(provider, name, market=market, **more)
    made = make_attempt(item).request
    want = replace(made.requirements, max_price=max_price)
    return provider.resolve(replace(made, setup=setup, requirements=want, template=template), item)


def attempt_at(provider, item=None, *, setup=USUAL, **more):
    """Return an attempt whose call has been looked up; `more` is what `make_attempt` takes."""
    item = item or offered(provider)
    made = make_attempt(item, **{"now": provider._gcp.clock(), **more})
    request = replace(made.request, setup=setup)
    made = replace(made, request=request, call=_call(provider, request, item))
    return replace(made, tags={key: value for key, value in made.tags.items() if key != "cloudgpu-hold-until"})


def _call(provider, request, item):
    key = (item.instance_type, item.zone, item.market)
    if request.setup is not USUAL or provider._gcp.options != GcpOptions():
        return provider.resolve(request, item).call
    if key not in _CALLS:
        _CALLS[key] = provider.resolve(request, item).call
    return _CALLS[key]


def saved(attempt):
    """Return the attempt as another process reads it back."""
    return attempt_from_json(attempt_to_json(attempt))


def launched(provider, item=None, **more):
    """Launch a machine and return it."""
    attempt = attempt_at(provider, item, **more)
    return provider.launch(attempt, deadline=soon(provider))


def soon(provider, minutes=5):
    """Return a deadline on the clock of the model."""
    return provider._gcp.clock() + timedelta(minutes=minutes)
