"""Gives tests valid launch attempts, a clock that only they move, and providers that need no installation.

Attempts have real host keys. A provider becomes known to cloudgpu through an entry point, like any plugin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cloudgpu.core.model import instances
from cloudgpu.core.model.cluster import node_key, node_name
from cloudgpu.core.model.facts import ClusterNode, Engine
from cloudgpu.core.model.launch import Attempt, Boot, BootPart, LaunchRequest, Setup
from cloudgpu.core.model.offers import Basis, MachineConfiguration, Market, Offer, Price, Requirements
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import machine_id, tag_value, token as token_of
from cloudgpu.core.values.times import epoch_text
from cloudgpu.providers.base import ENTRY_POINT_GROUP

STAND_IN_AGENT = '''"""Stands in for the agent: it lives, and does nothing."""
import time

while True:
    time.sleep(3600)
'''

TEST_LEDGER = "led-test"  # what the tests launch bears its tag
_OWN_METERS_SCRIPT = Path(__file__).parents[1] / "agent" / "own.py"
_DEFAULT_SETUP = Setup()


def new_host_key() -> tuple[str, str]:
    """Return a new ed25519 key as its OpenSSH public line and its private PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private_key = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public_key = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return public_key.decode(), private_key.decode()


def make_offer(configuration: MachineConfiguration, *, usd: str = "1.00", now: datetime | None = None) -> Offer:
    """Return an offer at the price `usd` per hour."""
    as_of = now or datetime.now(UTC)
    return Offer(configuration, Price(Money.usd(usd), "a figure of this test", as_of, Basis.SETTING))


def make_attempt(
    configuration: MachineConfiguration,
    *,
    key: str = "contract",
    name: str = "contract-machine",
    number: int = 1,
    ledger: str = TEST_LEDGER,
    token: str | None = None,
    tags: Mapping[str, str] | None = None,
    lease: timedelta = timedelta(hours=1),
    renew: timedelta = timedelta(hours=2),
    now: datetime | None = None,
    agent_source: str = STAND_IN_AGENT,
    parts: Sequence[BootPart] = (),
    jupyter: Sequence[str] = (),
    client_public_keys: Sequence[str] | None = None,
    host_key: tuple[str, str] | None = None,
    setup: Setup = _DEFAULT_SETUP,
    call: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
) -> Attempt:
    """Return a complete attempt to launch `configuration`; `tags` are added to its own tags.

    The lease ends `lease` after `now` (aware UTC), and can be extended until `renew` after it. Without `token` it is
    derived from ledger, key and number; without keys new ones are made.
    `call` is what the provider's `resolve` returned for the request, `policy` what is sent to the agent.
    """
    now = now or datetime.now(UTC)
    public_key, private_key = host_key or new_host_key()
    machine = machine_id(ledger, key)
    request = LaunchRequest(
        key=key,
        name=name,
        provider=configuration.provider,
        account=configuration.account,
        requirements=Requirements(
            instance_type=configuration.instance_type, zone=configuration.zone, market=configuration.market
        ),
        template="jupyter",
        owner="tester",
        project="default",
        policy="default",
        lease_s=int(lease.total_seconds()),
        renew_s=int(renew.total_seconds()),
        setup=setup,
    )
    boot = Boot(
        template="jupyter",
        parts=tuple(parts),
        jupyter=tuple(jupyter),
        agent_source=agent_source,
        client_public_keys=tuple(client_public_keys or (new_host_key()[0],)),
        host_public_key=public_key,
        host_private_key=private_key,
        policy=policy or {},
        own_meter_source=_OWN_METERS_SCRIPT.read_text(encoding="utf-8") if agent_source else "",
    )
    return Attempt(
        token=token or token_of(ledger, key, number),
        number=number,
        machine=machine,
        ledger=ledger,
        request=request,
        offer=make_offer(configuration, now=now),
        tags={**_tags(request, machine, ledger, now + lease, now + renew), **(tags or {})},
        boot=boot,
        made_at=now,
        expires=now + lease,
        renew_until=now + renew,
        call=call or {},
    )


def as_nodes(attempt: Attempt, count: int, *, engine: Engine = "none") -> list[Attempt]:
    """Return the attempts to launch a cluster of `count` machines like this one; token, key, name and tags differ."""
    return [_as_node(attempt, node, count, engine) for node in range(count)]


def _as_node(attempt: Attempt, node: int, count: int, engine: Engine) -> Attempt:
    request = attempt.request
    cluster = ClusterNode(request.name, attempt.machine, node, count, engine)
    name, key = node_name(request.name, node), node_key(request.key, node)
    machine = node_name(attempt.machine, node)
    tags = {
        instances.TAG_ID: machine,
        instances.TAG_NAME: name,
        instances.TAG_KEY: tag_value(key),
        instances.TAG_CLUSTER: cluster.tag(),
        instances.TAG_NODE: str(node),
    }
    return replace(
        attempt,
        token=token_of(attempt.ledger, key, attempt.number),
        machine=machine,
        request=replace(request, key=key, name=name, cluster=cluster),
        tags={**attempt.tags, **tags},
    )


def pick(available: Sequence[MachineConfiguration], market: Market = Market.ON_DEMAND) -> MachineConfiguration:
    """Return the first available offer in this market; raise LookupError when there is none."""
    offer = next((configuration for configuration in available if configuration.market is market), None)
    if offer is None:
        raise LookupError(f"nothing is available in the market {market}")
    return offer


def _tags(request: LaunchRequest, machine: str, ledger: str, expires: datetime, renew: datetime) -> dict[str, str]:
    return {
        instances.TAG_ID: machine,
        instances.TAG_NAME: request.name,
        instances.TAG_LEDGER: tag_value(ledger),
        instances.TAG_SEQ: "1",
        instances.TAG_KEY: tag_value(request.key),
        instances.TAG_OWNER: request.owner,
        instances.TAG_PROJECT: request.project,
        instances.TAG_POLICY: request.policy,
        instances.TAG_EXPIRES: epoch_text(expires),
        instances.TAG_RENEW_UNTIL: epoch_text(renew),
        instances.TAG_HOLD_UNTIL: "0",
    }


START = datetime(2026, 11, 20, 11, 0, tzinfo=UTC)


class ManualClock:
    """Returns the same aware UTC time until `advance` is called; pass it as the `clock` of anything."""

    def __init__(self, start: datetime = START) -> None:
        self.now = start.astimezone(UTC)

    def __call__(self) -> datetime:
        """Return the time of this clock."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock by `seconds`; a negative number sets it back, as a wrong clock would."""
        self.now += timedelta(seconds=seconds)


FAKE = "cloudgpu.testing.fake.full:make"  # the factory of the fake cloud, for `write_plugin`


def write_plugin(directory: Path, providers: Mapping[str, str], *, name: str = "cloudgpu-test-plugin") -> Path:
    """Write a Python distribution with an entry point for each of `providers` (kind -> "module:factory").

    Returns `directory`. Put it on `sys.path`, or in PYTHONPATH of a command, and the registry finds them:
    `write_plugin(tmp_path, {"fake": FAKE})`.
    """
    dist_info = directory / f"{name.replace('-', '_')}-1.dist-info"
    dist_info.mkdir(parents=True, exist_ok=True)
    (dist_info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    lines = "".join(f"{kind} = {factory_path}\n" for kind, factory_path in providers.items())
    (dist_info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{lines}")
    return directory
