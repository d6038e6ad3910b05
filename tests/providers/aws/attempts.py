"""Attempts for the aws provider: a request resolved at an offer, as `up` makes it, with settings of the test's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from cloudgpu.core.launch.attempt import attempt_from_json, attempt_to_json
from cloudgpu.core.model.launch import Network, Setup
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.testing import make_attempt

CALLER = "203.0.113.7/32"
USUAL = Setup(network=Network(ssh_from=(CALLER,)))


def offered(provider, name="g4dn.xlarge", zone="us-east-1b", market=Market.ON_DEMAND, *, persistent=False):
    """Return what the provider offers of a type in a zone and market."""
    want = Requirements(instance_type=name, zone=zone, market=market, persistent=persistent)
    return provider.available(want).items[0]


def attempt_at(provider, item=None, *, setup=USUAL, max_price=None, template=None, **more):
    """Return an attempt whose call has been looked up; `more` is what `make_attempt` takes."""
    item = item or offered(provider)
    made = make_attempt(item, **more)
    want = replace(made.request.requirements, max_price=max_price, persistent=setup.persistent)
    request = replace(made.request, setup=setup, requirements=want, template=template or made.request.template)
    made = replace(made, request=request, call=provider.resolve(request, item).call)
    return replace(made, tags={key: value for key, value in made.tags.items() if key != "cloudgpu-hold-until"})


def saved(attempt):
    """Return the attempt as another process reads it back."""
    return attempt_from_json(attempt_to_json(attempt))


def quick(provider):
    """Let a provider share the SDK's clients, which take most of a short test's time to make; return the provider."""
    aws = provider._aws
    aws._clients = _SHARED.setdefault("clients", {})
    aws._session = _SHARED.get("session")
    aws.ec2("us-east-1")
    _SHARED["session"] = aws._session or _SHARED.get("session")
    return provider


_SHARED = {}  # by the tests of this process: the environment is that of the fixture `aws` in each of them


def soon(minutes=5):
    """Return a deadline."""
    return datetime.now(UTC) + timedelta(minutes=minutes)
