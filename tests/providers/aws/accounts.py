"""Accounts of the aws provider for tests, machines made for them by plain boto3, and waits that take no time."""

from __future__ import annotations

import os
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace

from cloudgpu.core.model.offers import Market
from cloudgpu.providers.aws.client import _session
from cloudgpu.providers.aws.provider import AwsProvider
from cloudgpu.providers.base import ProviderSettings
from tests.clouds.aws.plain import client, launch, spot

TAGS = {"cloudgpu-id": "cg-1", "cloudgpu-ledger": "led-1", "Name": "brave-otter"}


def account(home, *, clock=lambda: datetime.now(UTC), pause=lambda _: None, ledger="", **options):
    """Return the provider of an account with these options: one region, unless they say more."""
    options.setdefault("regions", ["us-east-1"])
    return AwsProvider(ProviderSettings("lab", options, home, clock, pause, ledger))


def quick(provider):
    """Let a provider share the SDK's session and clients, which take long to make; return the provider."""
    aws = provider._aws
    first = _SHARED.setdefault((os.environ.get("AWS_ENDPOINT_URL"), aws.options.profile), aws)
    aws._clients, aws._lock = first._clients, first._lock
    with first._lock:
        if first._session is None:
            first._session, first._attempts = _session(first.options.profile)
            first._register_handlers(first._session)
    aws._session, aws._attempts = first._session, first._attempts
    return provider


_SHARED = {}  # by what the SDK's clients depend on


def machine(region="us-east-1", *, tags=TAGS, market=Market.ON_DEMAND, persistent=False, keep=False, **asked):
    """Launch a machine with plain boto3 and return its id as ours; `keep`: its disk stays when it ends."""
    pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
    kinds = ("instance", "volume", *(["spot-instances-request"] if market is Market.SPOT else []))
    asked["TagSpecifications"] = [{"ResourceType": kind, "Tags": pairs} for kind in kinds]
    if market is Market.SPOT:
        lasting = {"SpotInstanceType": "persistent", "InstanceInterruptionBehavior": "stop"}
        asked["InstanceMarketOptions"] = spot(**(lasting if persistent else {}))
    if keep:
        disk = {"DeleteOnTermination": False, "VolumeSize": 64, "VolumeType": "gp3"}
        asked["BlockDeviceMappings"] = [{"DeviceName": "/dev/sda1", "Ebs": disk}]
    return f"{region}/{launch(client(region=region), **asked)['InstanceId']}"


def own(id):  # noqa: A002
    """Return AWS's part of an id of ours."""
    return id.partition("/")[2]


def impatient(monkeypatch):
    """Let the SDK wait for nothing before it sends a call again; return the list of waits that it wanted."""
    waits = []
    monkeypatch.setattr("botocore.endpoint.time", SimpleNamespace(sleep=waits.append))
    return waits


@contextmanager
def calls(aws):
    """Yield a list which, after the block, holds the calls that were made in it, as (action, region)."""
    begun, made = len(aws.calls), []
    yield made
    made += [(call.action, call.region) for call in aws.calls[begun:]]
