"""Records egress that the cloud charges for: from the machine's own counter, whenever there is a connection."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
    from cloudgpu.core.events.bodies import ReceivedTraffic
    from cloudgpu.ledger.log.base import View

STATUS_COMMAND = '"$HOME"/.cloudgpu/agent status'
MAX_STATUS_BYTES = 1_000_000  # of the agent's answer
MAX_SENT_BYTES = 10**15  # by one machine: a higher count is not plausible
COUNT_INTERVAL = timedelta(minutes=15)  # at least, between two reads of a machine's counter
CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S = 1.0, 1.0  # short, since reading a counter may not delay a stop


def is_traffic_charged(machine: Machine) -> bool:
    """Say whether a machine's traffic is charged: by the prices of its offer, or by the catalogue's egress rate."""
    if machine.traffic_prices is not None:
        return True
    from cloudgpu.providers.attached_costs import egress_rate

    return egress_rate(machine.provider or "", machine.region or "", 0) is not None


def record_traffic(session: Session, machine: Machine, status: Mapping[str, Any]) -> None:
    """Record the bytes that a machine's agent has counted since the last time, where traffic is charged.

    What is new is computed under the ledger's lock: another process may have recorded the same bytes just now.
    """
    if not is_traffic_charged(machine):
        return
    now = session.clock()

    def build_events(view: View) -> Sequence[Draft]:
        draft = traffic_event(view.machine(machine.id) or machine, status, now)
        return [] if draft is None else [draft]

    if build_events(session.ledger):
        session.ledger.decide(build_events)


def traffic_event(machine: Machine, status: Mapping[str, Any], now: datetime) -> Draft | None:
    """Return the event of what the agent has counted since the last count; None for nothing new.

    A counter that is lower than before was reset: all of it is new. Raises ValueError, KeyError or TypeError for an
    invalid status: anybody on the machine could have written it.
    """
    counter, last_count = status.get("sent") or {}, machine.traffic
    if not counter or not status.get("heartbeat"):
        return None
    now_s = now.timestamp()
    counted, new_bytes = _counted_bytes(counter, last_count.counted if last_count else 0)
    received = _received_traffic(machine, status.get("received") or {})
    counting_since = iso(datetime.fromtimestamp(_checked_number(counter["since"], now_s), UTC))
    since = (last_count.until if last_count else None) or max(counting_since, machine.intended_at)
    until = max(iso(datetime.fromtimestamp(min(_plausible_number(status["heartbeat"]), now_s), UTC)), since)
    rate = _rate_of_sent(machine, new_bytes)
    if (new_bytes <= 0 and received is None) or rate is None:
        return None
    return traffic_observed(
        machine.id,
        rate.record(),
        now,
        stored_as=rate.stored_as,
        sent=new_bytes,
        counted=counted,
        since=since,
        until=until,
        received=received,
    )


def _counted_bytes(counter: Mapping[str, object], previous: int | None) -> tuple[int, int]:
    """Return all that a counter says, and how much of it is new."""
    total, previous_total = _checked_number(counter["bytes"], MAX_SENT_BYTES), int(previous or 0)
    return total, total - previous_total if total >= previous_total else total


def _rate_of_sent(machine: Machine, sent_bytes: int) -> Rate | None:
    """Return the rate for sent bytes, by the machine's own prices or the catalogue; None if it is not charged."""
    from cloudgpu.providers.attached_costs import egress_rate

    own_prices = machine.traffic_prices
    return (
        egress_rate(machine.provider, machine.region, sent_bytes)
        if own_prices is None
        else _own_rate(machine, own_prices.out, "out")
    )


def _own_rate(machine: Machine, price_nanos: int, direction: str) -> Rate:
    """Return the rate by the traffic price of the machine's offer (per GB), dated as the price of its launch."""
    from cloudgpu.providers.attached_costs import offered_traffic_rate

    launch_price = not_none(machine.price)
    return offered_traffic_rate(
        machine.provider, price_nanos, 0, direction, launch_price.source, from_iso(launch_price.as_of)
    )


def _received_traffic(machine: Machine, counter: Mapping[str, object]) -> ReceivedTraffic | None:
    """Return what a machine has received since the last count, where that costs; None for nothing new."""
    own_prices, last_count = machine.traffic_prices, machine.traffic
    if own_prices is None or not counter:
        return None
    total, new_bytes = _counted_bytes(counter, last_count.received if last_count else 0)
    if new_bytes <= 0:
        return None
    rate = _own_rate(machine, own_prices.into, "in")
    return {"bytes_in": new_bytes, "counted": total, "stored_as": rate.stored_as, **rate.record()}


def _checked_number(value: Any, limit: float) -> int:
    """Return a number from an agent's status as int, at most `limit` (for a time: now, where its clock is ahead)."""
    return int(min(_plausible_number(value), limit))


def _plausible_number(value: Any) -> float:
    """Return a number from an agent's status; raise ValueError for what is no time and no count of bytes."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SENT_BYTES:
        raise ValueError(value)
    return value


def read_traffic_counter(session: Session, machine: Machine, connection: Connection) -> None:
    """Read the machine's counter over an open connection, a few times an hour at most. Raises nothing."""
    last_count = machine.traffic
    if last_count and session.clock() - from_iso(last_count.until) < COUNT_INTERVAL:
        return
    with suppress(CloudgpuError, ValueError, KeyError, TypeError, OSError):
        if is_traffic_charged(machine):
            status = connection.capture(STATUS_COMMAND, timeout=ANSWER_TIMEOUT_S, max_bytes=MAX_STATUS_BYTES)
            record_traffic(session, machine, parse_agent_status(status.stdout))


def parse_agent_status(text: bytes) -> dict[str, Any]:
    """Return an agent's status. Raises ValueError for text that is not a JSON object: a machine may send anything."""
    try:
        status = json.loads(text)
    except RecursionError as error:
        raise ValueError("it nests too deep") from error
    if not isinstance(status, dict):
        raise ValueError(type(status).__name__)  # noqa: TRY004  (callers take a ValueError for what cannot be read)
    return status


def read_counter_before_end(session: Session, machine: Machine) -> None:
    """Read the counter of a machine that is about to end or stop, where it answers within two seconds."""
    if machine.state != State.RUNNING or not machine.address or not is_traffic_charged(machine):
        return
    from cloudgpu.access.ssh.connection import connect

    with suppress(CloudgpuError, OSError):
        connection = connect(session.target(machine), timeout=CONNECT_TIMEOUT_S)
        try:
            read_traffic_counter(session, machine._replace(traffic=None), connection)  # None: whenever it was read last
        finally:
            connection.close()
