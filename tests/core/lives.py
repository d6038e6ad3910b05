"""Lines of a machine's life, as the ledger has them: short words for tests. Seconds count from START."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from cloudgpu.core.events.log import Event
from cloudgpu.core.values.times import iso

START = datetime(2026, 11, 20, 11, 0, tzinfo=UTC)
HOUR_NANOS = 3_600_000_000  # one nano-dollar per microsecond, so that charges are whole numbers


def at(second: float) -> str:
    return iso(START + timedelta(seconds=second))


def price(per_hour: int) -> dict[str, Any]:
    return {"nanos_per_hour": per_hour, "source": "this test", "as_of": at(0), "basis": "setting"}


def line(second: float, kind: str, body: dict[str, Any], seq: int = 0, subject: str = "cg-1") -> Event:
    return Event(seq, at(second), "own", at(second), "tester", kind, subject, f"{kind}:{second}", "", body)


def intent(second: float, per_hour: int | None = 100, attempt: int = 1, **more: Any) -> Event:
    names = "key request name provider account region zone instance_type market owner project policy template policy_by"
    body = dict.fromkeys(names.split(), "x") | {
        "accelerators": [],
        "on_demand": None,
        "max_price": None,
        "attached_costs": [],
        "licence": "",
        "parkable": True,
        "terms": None,
        "identity": {"kind": "computer", "id": "x", "words": "computer x"},
        "stoppable": True,
        "stop_effect": "",
        "setup": None,
        "expires": at(9),
        "renew_until": at(9),
    }
    body |= {"attempt": attempt, "token": f"t{attempt}", "price": price(per_hour) if per_hour is not None else None}
    return line(second, "launch_intended", body | more)


def adopted(second: float, per_hour: int | None) -> Event:
    return line(second, "machine_adopted", dict(intent(second, per_hour).body) | {"why": "a stray"})


def seen(second: float, state: str, *, billed: bool, since: float | None = None, **more: Any) -> Event:
    body = dict.fromkeys(("launched_at", "address", "reason", "expires", "renew_until", "hold_until", "last_active"))
    body |= {"provider_id": "i-1", "state": state, "billed": billed, "since": None if since is None else at(since)}
    return line(second, "instance_observed", body | more)


def running(second: float, since: float | None = None) -> Event:
    return seen(second, "running", billed=True, since=since)


def stopped(second: float, since: float | None = None) -> Event:
    return seen(second, "stopped", billed=False, since=since)


def priced(second: float, per_hour: int | None) -> Event:
    return line(second, "price_observed", {"price": None if per_hour is None else price(per_hour)})


def settled(second: float, outcome: str, attempt: int = 1) -> Event:
    return line(second, "launch_settled", {"token": f"t{attempt}", "outcome": outcome, "why": "the test says so"})


def gone(second: float) -> Event:
    return line(second, "instance_vanished", {"provider_id": "i-1", "proof": "not found"})


def asked(second: float, what: str) -> Event:
    return line(second, f"{what}_requested", {"why": "the test"})


def arrived(lines: list[Event], order: list[int]) -> list[Event]:
    """Give the lines the seq of another order of arrival."""
    return [
        Event(order[number], *[getattr(item, name) for name in Event.__slots__[1:]])
        for number, item in enumerate(lines)
    ]
