"""From a local machine's files to `Instance`; reads what the agent wrote, decides nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from cloudgpu.core.model.instances import TAG_EXPIRES, Address, Instance, State
from cloudgpu.core.model.offers import Accelerator, Market
from cloudgpu.core.values.times import from_iso
from cloudgpu.providers.local.deadlines import AGENT_EXPIRES, agent_expires, tag_time
from cloudgpu.providers.local.layout import Layout, read_json
from cloudgpu.providers.local.store import Found

HOST = "127.0.0.1"
_BILLED = (State.PENDING, State.RUNNING, State.STOPPING)


def instance(found: Found, account: str, region: str, instance_type: str) -> Instance:
    """Return the machine as its files tell now."""
    state = state_of(found)
    record, says = found.record, found.says
    return Instance(
        provider="local",
        account=account,
        id=found.id,
        state=state,
        billed=state in _BILLED,
        tags=tags(found.layout),
        region=region,
        zone=region,
        instance_type=instance_type,
        market=Market(record["market"]),
        launched_at=from_iso(record["launched_at"]),
        since=_since(found, state),
        address=Address(HOST, says["port"], record["user"]) if state is State.RUNNING else None,
        accelerators=tuple(Accelerator(**item) for item in record["accelerators"]),
        last_active=_last_active(found.layout),
        reason=_reason(found, state),
    )


def state_of(found: Found) -> State:
    """Return the state; a machine that has ended but whose end is not proved yet is still stopping."""
    if found.record["wanted"] == "running" and "end" not in found.says:
        if found.alive:
            return State.RUNNING if "port" in found.says else State.PENDING
        return State.PENDING if found.record["spawned"] != found.record["boots"] else State.STOPPING
    if found.record["wanted"] == "stopped" and "ended" in found.record:
        return State(found.record["ended"]["state"])
    return State.STOPPING


def _since(found: Found, state: State) -> datetime | None:
    if state is State.RUNNING:
        return from_iso(found.says["started_at"])
    if state is State.PENDING:
        return from_iso(found.record["boot_at"])
    if state is State.STOPPING:
        ended_at = found.record.get("asked_at") or found.says.get("end", {}).get("at")
        return from_iso(ended_at) if ended_at else None
    return from_iso(found.record["ended"]["at"])


def _reason(found: Found, state: State) -> str | None:
    if state is State.RUNNING:
        status = (found.says.get("on_start") or {}).get("status", 0)
        log = found.layout.logs / "on_start.log"
        return f"on_start failed with status {status}: see {log}" if status else None
    if "ended" in found.record:
        return str(found.record["ended"]["reason"])
    reason = found.says.get("end", {}).get("reason")
    return None if reason is None else str(reason)


def tags(layout: Layout) -> dict[str, str]:
    """Return the tags, with the end of the lease as the agent has renewed it since."""
    found = {str(key): str(value) for key, value in (read_json(layout.tags) or {}).items()}
    renewed = agent_expires(layout.agent / AGENT_EXPIRES)
    if renewed is not None and TAG_EXPIRES in found and renewed > (tag_time(found, TAG_EXPIRES) or 0):
        found[TAG_EXPIRES] = str(int(renewed))
    return found


def _last_active(layout: Layout) -> datetime | None:
    with contextlib.suppress(OSError, ValueError, OverflowError):
        return datetime.fromtimestamp(float((layout.agent / "last-active").read_text()), UTC)
    return None


def accelerators_to_json(accelerators: Sequence[Accelerator]) -> list[dict[str, Any]]:
    """Return accelerators as a record keeps them."""
    return [
        {"name": item.name, "count": item.count, "memory_gib": item.memory_gib, "share": item.share}
        for item in accelerators
    ]
