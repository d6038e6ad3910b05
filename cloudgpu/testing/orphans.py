"""What launches leave in the fake cloud beside machines and disks: a key pair per ledger and region, and what is left.

An address, an interface, a group or a request is there only where a test has left it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from cloudgpu.core.model.instances import TAG_LEDGER, TAG_OWNER
from cloudgpu.core.model.resources import Kind
from cloudgpu.testing.disks import add
from cloudgpu.testing.machines import FakeMachine
from cloudgpu.testing.store import Cloud
from cloudgpu.testing.things import FakeThing

_KEPT = (Kind.DISK, Kind.VOLUME, Kind.SNAPSHOT, Kind.IMAGE)  # what `leftovers` tells


def is_one(thing: FakeThing) -> bool:
    """Say whether this is told as an orphan, and not as a disk or an image."""
    return thing.kind not in _KEPT


def leave(
    cloud: Cloud, kind: Kind, region: str, tags: Mapping[str, str], now: datetime, attached_to: str | None = None
) -> FakeThing:
    """Keep a new thing of this kind."""
    return add(cloud, FakeThing("", kind, region, "", "", int(kind is Kind.ADDRESS), dict(tags), now, now, attached_to))


def need_key_pair(cloud: Cloud, machine: FakeMachine, tags: Mapping[str, str], now: datetime) -> None:
    """Make the key pair of a launch's ledger in its region, where it is not."""
    ledger = tags.get(TAG_LEDGER, "")
    kinds = ((one.kind, one.region, one.tags.get(TAG_LEDGER)) for one in cloud.things.values())
    if (Kind.KEY_PAIR, machine.region, ledger) not in kinds:
        leave(cloud, Kind.KEY_PAIR, machine.region, {TAG_LEDGER: ledger, TAG_OWNER: tags.get(TAG_OWNER, "")}, now)
