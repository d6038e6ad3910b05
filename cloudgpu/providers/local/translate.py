"""Translates a local machine's files to `Instance`; decides nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.core.model.instances import TAG_EXPIRES, TAG_HOLD_UNTIL, TAG_RENEW_UNTIL, Address, Instance, State
from cloudgpu.core.model.offers import Accelerator, Market
from cloudgpu.core.values.times import from_iso
from cloudgpu.providers.local.deadlines import AGENT_EXPIRES, agent_expires, tag_time
from cloudgpu.providers.local.layout import Layout
from cloudgpu.providers.local.store import StoredMachine, read_tags

if TYPE_CHECKING:
    from cloudgpu.core.model.launch import Attempt

HOST = "127.0.0.1"
_TIME_TAGS = (TAG_EXPIRES, TAG_RENEW_UNTIL, TAG_HOLD_UNTIL)
_BILLED_STATES = (State.PENDING, State.RUNNING, State.STOPPING)


def instance(stored: StoredMachine, account: str, region: str, instance_type: str) -> Instance:
    """Return the machine by its files as they are now."""
    state = state_of(stored)
    record, reported = stored.record, stored.reported
    return Instance(
        provider="local",
        account=account,
        id=stored.id,
        state=state,
        billed=state in _BILLED_STATES,
        tags=tags(stored.layout),
        region=region,
        zone=region,
        instance_type=instance_type,
        market=Market(record["market"]),
        launched_at=from_iso(record["launched_at"]),
        since=_since(stored, state),
        address=Address(HOST, reported["port"], record["user"]) if state is State.RUNNING else None,
        accelerators=tuple(Accelerator(**fields) for fields in record["accelerators"]),
        last_active=_last_active(stored.layout),
        reason=_reason(stored, state),
    )


def state_of(stored: StoredMachine) -> State:
    """Return the state; a machine that has ended but whose end is not proved yet is still stopping."""
    if stored.record["wanted"] == "running" and "end" not in stored.reported:
        if stored.is_alive:
            return State.RUNNING if "port" in stored.reported else State.PENDING
        return State.PENDING if stored.record["spawned"] != stored.record["boots"] else State.STOPPING
    if stored.record["wanted"] == "stopped" and "ended" in stored.record:
        return State(stored.record["ended"]["state"])
    return State.STOPPING


def _since(stored: StoredMachine, state: State) -> datetime | None:
    if state is State.RUNNING:
        return from_iso(stored.reported["started_at"])
    if state is State.PENDING:
        return from_iso(stored.record["boot_at"])
    if state is State.STOPPING:
        stopping_since = stored.record.get("asked_at") or stored.reported.get("end", {}).get("at")
        return from_iso(stopping_since) if stopping_since else None
    return from_iso(stored.record["ended"]["at"])


def _reason(stored: StoredMachine, state: State) -> str | None:
    if state is State.RUNNING:
        status = (stored.reported.get("on_start") or {}).get("status", 0)
        log = stored.layout.logs / "on_start.log"
        return f"on_start failed with status {status}: see {log}" if status else None
    if "ended" in stored.record:
        return str(stored.record["ended"]["reason"])
    reason = stored.reported.get("end", {}).get("reason")
    return None if reason is None else str(reason)


def tags(layout: Layout) -> dict[str, str]:
    """Return the tags, with the end of the lease as the agent has renewed it since."""
    current_tags = {str(key): str(value) for key, value in read_tags(layout).items()}
    renewed_until_s = agent_expires(layout.agent / AGENT_EXPIRES)
    if (
        renewed_until_s is not None
        and TAG_EXPIRES in current_tags
        and renewed_until_s > (tag_time(current_tags, TAG_EXPIRES) or 0)
    ):
        current_tags[TAG_EXPIRES] = str(int(renewed_until_s))
    return current_tags


def _last_active(layout: Layout) -> datetime | None:
    with contextlib.suppress(OSError, ValueError, OverflowError):
        return datetime.fromtimestamp(float((layout.agent / "last-active").read_text()), UTC)
    return None


def shift_tags(tags: Mapping[str, str], shift: timedelta) -> dict[str, str]:
    """Return these tags with `shift` added to their times."""
    times = {key: tag_time(tags, key) for key in _TIME_TAGS} if shift else {}
    return {**tags, **{key: str(int(at + shift.total_seconds())) for key, at in times.items() if at is not None}}


def to_computer_time(attempt: Attempt, clock_ahead: timedelta) -> Attempt:
    """Return an attempt with its times by this computer's clock, which is ahead by this much."""
    if not clock_ahead:
        return attempt
    made_at, expires, renew_until = (at + clock_ahead for at in (attempt.made_at, attempt.expires, attempt.renew_until))
    tags = shift_tags(attempt.tags, clock_ahead)
    return replace(attempt, tags=tags, made_at=made_at, expires=expires, renew_until=renew_until)


def to_caller_time(instance: Instance, clock_ahead: timedelta) -> Instance:
    """Return a machine with its times by the caller's clock; this computer's is ahead by this much."""
    if not clock_ahead:
        return instance
    times = instance.launched_at, instance.since, instance.last_active
    launched_at, since, last_active = (at if at is None else at - clock_ahead for at in times)
    tags = shift_tags(instance.tags, -clock_ahead)
    return replace(instance, tags=tags, launched_at=launched_at, since=since, last_active=last_active)
