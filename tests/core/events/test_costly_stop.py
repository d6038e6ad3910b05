"""A disk that costs more while its machine is stopped has a price of its own for that: metered while it is stopped."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from cloudgpu.core.billing.charges import spent_until_now
from tests.core.deciding import Machine, minute

MONTH_H = 30 * 24  # November
COST = {"at_most": False, "named": False, "resource": "disk", "quantity": 50, "per": "month", "source": "a list",
        "as_of": "2026-08-20T00:00:00.000000Z", "basis": "listed"}  # fmt: skip
RUNS = {**COST, "what": "/workspace while it runs", "stored_as": "volume_running", "nanos": 100_000_000,
        "nanos_per_month": 5_000_000_000, "running": True, "kept": False}  # fmt: skip
STOPPED = {**COST, "what": "/workspace while it is stopped", "stored_as": "volume_stopped", "nanos": 200_000_000,
           "nanos_per_month": 10_000_000_000, "running": False, "kept": True}  # fmt: skip


def machine(**more):
    """Return a machine of RunPod at 0 USD an hour that runs from minute 2."""
    free = {"nanos_per_hour": 0, "source": "a test", "as_of": COST["as_of"], "basis": "listed"}
    return Machine(provider="runpod", attached_costs=[RUNS, STOPPED], price=free, **more)


def usd(found, at: datetime) -> Decimal:
    return Decimal(spent_until_now(found.machine, at).nanos) / 10**9


def test_it_costs_its_stopped_price_from_the_stop_to_the_start_and_to_the_end():
    """By hand, of 50 GB: 10 h of running are 5 x 10/720, 20 h of a stop 10 x 20/720, 3 h of running 5 x 3/720."""
    one = machine()
    hour = 60
    one.see(2 + 10 * hour, "stopped", billed=False)
    assert usd(one, minute(2 + 10 * hour)) == pytest.approx(Decimal(50) / MONTH_H, abs=Decimal("0.0005"))
    assert usd(one, minute(2 + 30 * hour)) == pytest.approx(Decimal(250) / MONTH_H, abs=Decimal("0.0005"))
    one.see(2 + 30 * hour, "running", billed=True)
    one.see(2 + 33 * hour, "stopped", billed=False)
    one.see(2 + 34 * hour, "terminated", billed=False)
    total = (Decimal(50) + 200 + 15 + 10) / MONTH_H
    assert usd(one, minute(9999)) == pytest.approx(total, abs=Decimal("0.0005"))
    assert not one.machine.open_usage


def test_a_machine_that_cannot_stop_and_one_that_is_only_seen_again_pay_it_once():
    spot = machine(stoppable=False)
    spot.see(60, "stopped", billed=False)
    assert usd(spot, minute(60)) == usd(spot, minute(60) + timedelta(days=9))
    one = machine()
    for at in (60, 90, 120):
        one.see(at, "stopped", billed=False)
    assert len([use for use in one.machine.open_usage if use.kind == "volume_stopped"]) == 1
