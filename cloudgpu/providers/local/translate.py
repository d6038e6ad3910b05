"""Translates a local machine's files to `Instance`; decides nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cloudgpu.core.model.instances import TAG_EXPIRES, TAG_HOLD_UNTIL, TAG_RENEW_UNTIL, Address, Instance, State
from cloudgpu.core.model.offers import Accelerator, Market
from cloudgpu.core.values.times import from_iso
from cloudgpu.providers.local.deadlines import AGENT_EXPIRES, agent_expires, tag_time
from cloudgpu.providers.local.layout import Layout, read_json
from cloudgpu.providers.local.store import StoredMachine

if TYPE_CHECKING:
    from cloudgpu.core.model.launch import Attempt

HOST = "127.0.0.1"
_TIMES = (TAG_EXPIRES, TAG_RENEW_UNTIL, TAG_HOLD_UNTIL)
_BILLED_STATES = (State.PENDING, State.RUNNING, State.STOPPING)


def instance(found: StoredMachine, account: str, region: str, instance_type: str) -> Instance:
    """Return the machine as its files tell now."""
    state = state_of(found)
    record, reported = found.record, found.reported
    return Instance(
        provider="local",
        account=account,
        id=found.id,
        state=state,
        billed=state in _BILLED_STATES,
        tags=tags(found.layout),
        region=region,
        zone=region,
        instance_type=instance_type,
        market=Market(record["market"]),
        launched_at=from_iso(record["launched_at"]),
        since=_since(found, state),
        address=Address(HOST, reported["port"], record["user"]) if state is State.RUNNING else None,
        accelerators=tuple(Accelerator(**item) for item in record["accelerators"]),
        last_active=_last_active(found.layout),
        reason=_reason(found, state),
    )


def state_of(found: StoredMachine) -> State:
    """Return the state; a machine that has ended but whose end is not proved yet is still stopping."""
    if found.record["wanted"] == "running" and "end" not in found.reported:
        if found.alive:
            return State.RUNNING if "port" in found.reported else State.PENDING
        return State.PENDING if found.record["spawned"] != found.record["boots"] else State.STOPPING
    if found.record["wanted"] == "stopped" and "ended" in found.record:
        return State(found.record["ended"]["state"])
    return State.STOPPING


def _since(found: StoredMachine, state: State) -> datetime | None:
    if state is State.RUNNING:
        return from_iso(found.reported["started_at"])
    if state is State.PENDING:
        return from_iso(found.record["boot_at"])
    if state is State.STOPPING:
        ended_at = found.record.get("asked_at") or found.reported.get("end", {}).get("at")
        return from_iso(ended_at) if ended_at else None
    return from_iso(found.record["ended"]["at"])


def _reason(found: StoredMachine, state: State) -> str | None:
    if state is State.RUNNING:
        status = (found.reported.get("on_start") or {}).get("status", 0)
        log = found.layout.logs / "on_start.log"
        return f"on_start failed with status {status}: see {log}" if status else None
    if "ended" in found.record:
        return str(found.record["ended"]["reason"])
    reason = found.reported.get("end", {}).get("reason")
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


def shift_tags(tags: Mapping[str, str], shift: timedelta) -> dict[str, str]:
    """Return these tags with their times shifted by this much."""
    times = {key: tag_time(tags, key) for key in _TIMES} if shift else {}
    return {**tags, **{key: str(int(at + shift.total_seconds())) for key, at in times.items() if at is not None}}


def to_computer_time(attempt: Attempt, ahead: timedelta) -> Attempt:
    """Return an attempt with its times by this computer's clock, which is ahead by this much."""
    if not ahead:
        return attempt
    made_at, expires, renew_until = (at + ahead for at in (attempt.made_at, attempt.expires, attempt.renew_until))
    tags = shift_tags(attempt.tags, ahead)
    return replace(attempt, tags=tags, made_at=made_at, expires=expires, renew_until=renew_until)


def to_caller_time(found: Instance, ahead: timedelta) -> Instance:
    """Return a machine with its times by the caller's clock; this computer's is ahead by this much."""
    if not ahead:
        return found
    times = found.launched_at, found.since, found.last_active
    launched_at, since, last_active = (at if at is None else at - ahead for at in times)
    tags = shift_tags(found.tags, -ahead)
    return replace(found, tags=tags, launched_at=launched_at, since=since, last_active=last_active)


def accelerators_to_json(accelerators: Sequence[Accelerator]) -> list[dict[str, Any]]:
    """Return accelerators as a record keeps them."""
    return [
        {"name": item.name, "count": item.count, "memory_gib": item.memory_gib, "share": item.share}
        for item in accelerators
    ]
