"""Egress, where the cloud charges for it: read from the machine's own counter whenever there is a connection."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.observations import traffic_observed
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import CloudgpuError

if TYPE_CHECKING:
    from cloudgpu.access.ssh.connection import Connection
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.billing.rates import Rate
    from cloudgpu.core.events.bodies import Received

STATUS_COMMAND = '"$HOME"/.cloudgpu/agent status'
MAX_STATUS_BYTES = 1_000_000  # bytes of an answer
MAX_BYTES = 10**15  # that one machine can have sent: what is more was not counted but made up
COUNT_INTERVAL = timedelta(minutes=15)
CONNECT_WITHIN_S, ANSWER_WITHIN_S = 1.0, 1.0  # before an end, which no counter may delay


def is_charged(machine: Machine) -> bool:
    """Say whether a machine's traffic is charged: by its offer's own prices, or egress by the catalogue."""
    if machine.traffic_prices is not None:
        return True
    from cloudgpu.providers.attached_costs import egress_rate

    return egress_rate(machine.provider or "", machine.region or "", 0) is not None


def record(session: Session, machine: Machine, status: Mapping[str, Any]) -> None:
    """Write the bytes that a machine's agent has counted since the last time; nothing, where none are charged."""
    machine = session.ledger.machine(machine.id) or machine
    draft = line_of(machine, status, session.clock()) if is_charged(machine) else None
    if draft is not None:
        session.ledger.append([draft])


def line_of(machine: Machine, status: Mapping[str, Any], now: datetime) -> Draft | None:
    """Return the line of what the agent has counted since the last count; None for nothing new.

    A counter that is lower than it was has begun anew: all of it is new. Raises ValueError, KeyError or TypeError for
    what cannot be: anybody with the machine could have written it.
    """
    counter, last = status.get("sent") or {}, machine.traffic
    if not counter or not status.get("heartbeat"):
        return None
    latest = now.timestamp()
    total, new_bytes = _counted_bytes(counter, last.counted if last else 0)
    received = _received(machine, status.get("received") or {})
    counting_since = iso(datetime.fromtimestamp(_whole_number(counter["since"], latest), UTC))
    since = (last.until if last else None) or max(counting_since, machine.intended_at)
    until = max(iso(datetime.fromtimestamp(min(float(status["heartbeat"]), latest), UTC)), since)
    rate = _rate_out(machine, new_bytes)
    if (new_bytes <= 0 and received is None) or rate is None:
        return None
    return traffic_observed(
        machine.id,
        rate.terms(),
        now,
        stored_as=rate.stored_as,
        sent=new_bytes,
        counted=total,
        since=since,
        until=until,
        received=received,
    )


def _counted_bytes(counter: Mapping[str, object], previous: int | None) -> tuple[int, int]:
    """Return all that a counter says, and how much of it is new."""
    total, before = _whole_number(counter["bytes"], MAX_BYTES), int(previous or 0)
    return total, total - before if total >= before else total


def _rate_out(machine: Machine, number: int) -> Rate | None:
    from cloudgpu.providers.attached_costs import egress_rate

    own = machine.traffic_prices
    return egress_rate(machine.provider, machine.region, number) if own is None else _own_rate(machine, own.out, "out")


def _own_rate(machine: Machine, price: int, direction: str) -> Rate:
    """Return the rate by the price of the machine's own offer, which is as old as the price of its launch."""
    from cloudgpu.providers.attached_costs import offered_traffic_rate

    listed = not_none(machine.price)
    return offered_traffic_rate(machine.provider, price, 0, direction, listed.source, from_iso(listed.as_of))


def _received(machine: Machine, counter: Mapping[str, object]) -> Received | None:
    """Return what a machine has received since the last count, where that costs; None for nothing new."""
    own_prices, last = machine.traffic_prices, machine.traffic
    if own_prices is None or not counter:
        return None
    total, new_bytes = _counted_bytes(counter, last.received if last else 0)
    if new_bytes <= 0:
        return None
    rate = _own_rate(machine, own_prices.into, "in")
    return {"bytes_in": new_bytes, "counted": total, "stored_as": rate.stored_as, **rate.terms()}


def _whole_number(value: Any, most: float) -> int:
    """Return a whole number of an agent's, at most `most` (times: a clock that is ahead is set back to ours)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_BYTES:
        raise ValueError(value)
    return int(min(value, most))


def count(session: Session, machine: Machine, connection: Connection) -> None:
    """Read the machine's counter over a connection that is there anyway, a few times an hour. Raises nothing."""
    last = machine.traffic
    if last and session.clock() - from_iso(last.until) < COUNT_INTERVAL:
        return
    with suppress(CloudgpuError, ValueError, KeyError, TypeError, OSError):
        if is_charged(machine):
            status = connection.capture(STATUS_COMMAND, timeout=ANSWER_WITHIN_S, max_bytes=MAX_STATUS_BYTES)
            record(session, machine, status_of(status.stdout))


def status_of(text: bytes) -> dict[str, Any]:
    """Return what an agent said of itself. Raises ValueError for what is no JSON object: a machine may say anything."""
    try:
        status = json.loads(text)
    except RecursionError as error:
        raise ValueError("it nests too deep") from error
    if not isinstance(status, dict):
        raise ValueError(type(status).__name__)  # noqa: TRY004  (callers take a ValueError for what cannot be read)
    return status


def count_before_end(session: Session, machine: Machine) -> None:
    """Read the counter of a machine that is about to end or stop, where it answers within two seconds."""
    if machine.state != State.RUNNING or not machine.address or not is_charged(machine):
        return
    from cloudgpu.access.ssh.connection import connect

    with suppress(CloudgpuError, OSError):
        connection = connect(session.target(machine), timeout=CONNECT_WITHIN_S)
        try:
            count(session, machine._replace(traffic=None), connection)
        finally:
            connection.close()
