"""Lines as the tests of the ledger write them, and a clock that they set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cloudgpu.core.events.log import Draft

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
PRICE = {"nanos_per_hour": 526_000_000, "source": "a list", "as_of": "2026-11-20T00:00:00.000000Z", "basis": "listed"}
DISK = {"what": "disk", "resource": "disk", "stored_as": "gp3", "quantity": 100, "per": "month", "nanos": 80_000_000}
DISK |= {"running": True, "source": "a list", "as_of": None, "basis": "listed", "why_maybe_less": ""}
DISK |= {"named": False, "at_most": False, "nanos_per_month": 8_000_000_000}
# a first line of another format, what is said of it, and how the way out begins
OTHER_FORMATS = [
    ('{"ledger":"0123456789abcdef"}', "no format number: it is of before 0.1.0", "End its machines"),
    ('{"ledger":"0123456789abcdef","format":1}', "has format 1: it is of before 0.1.0", "End its machines"),
    ('{"ledger":"0123456789abcdef","format":3}', "has format 3, and this cloudgpu reads format 2", "Update cloudgpu"),
]


class Clock:
    """A clock that stands until it is set."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def turn(self, **span: float) -> None:
        self.now += timedelta(**span)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def note(number: int, subject: str = "scope:fake/main") -> Draft:
    """Return a line that is of no machine."""
    return Draft(
        "account_synced", subject, {"machines": number, "unanswered": []}, at(number), f"note:{subject}:{number}"
    )


def intended(machine: str = "cg-1", name: str = "amber-otter", number: int = 1, seconds: float = 0) -> Draft:
    body = {
        "attempt": number,
        "token": f"token-{machine}-{number}",
        "key": f"key-{machine}",
        "request": "0" * 64,
        "name": name,
        "provider": "fake",
        "account": "main",
        "region": "here",
        "zone": "here-a",
        "instance_type": "small",
        "market": "on_demand",
        "accelerators": [],
        "price": PRICE,
        "owner": "somebody",
        "project": "",
        "policy": "default",
        "template": "jupyter",
        "expires": "2026-11-20T20:00:00.000000Z",
        "renew_until": "2026-11-21T12:00:00.000000Z",
        "stoppable": True,
        "stop_effect": "it keeps its disk",
        "setup": None,
    }
    return Draft("launch_intended", machine, body, at(seconds), f"launch:{machine}:{number}")


def seen(machine: str = "cg-1", state: str = "running", seconds: float = 1) -> Draft:
    body = {
        "provider_id": f"i-{machine}",
        "state": state,
        "billed": state in {"pending", "running", "stopping"},
        "since": None,
        "launched_at": None,
        "address": None,
        "reason": None,
        "expires": None,
        "renew_until": None,
        "hold_until": None,
        "last_active": None,
    }
    return Draft("instance_observed", machine, body, at(seconds), f"seen:{machine}:{state}:{seconds}")


def asked(what: str, machine: str = "cg-1", seconds: float = 2) -> Draft:
    return Draft(f"{what}_requested", machine, {"why": "a test"}, at(seconds), f"{what}:{machine}:{seconds}")


def vanished(machine: str = "cg-1", seconds: float = 3) -> Draft:
    body = {"provider_id": f"i-{machine}", "proof": "the provider has none"}
    return Draft("instance_vanished", machine, body, at(seconds), f"vanished:{machine}:{seconds}")


def priced(nanos: int, machine: str = "cg-1", seconds: float = 2) -> Draft:
    body = {"price": PRICE | {"nanos_per_hour": nanos}}
    return Draft("price_observed", machine, body, at(seconds), f"price:{machine}:{nanos}:{seconds}")
