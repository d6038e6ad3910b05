"""The admission check with 1,000 machines, against one read of those machines: both in one process, CPU time.

What is measured is what a launch waits for under the ledger's lock: reading every row, what each has cost in the
budget's period, what each will cost to its renew-until, and the verdict.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cloudgpu.control.budgets.store import counted_prices
from cloudgpu.core.budgets.admission import asking
from cloudgpu.core.budgets.budget import Budget, Scope, Span
from cloudgpu.core.events.log import Draft
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso
from cloudgpu.ledger.open import open_ledger

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
AIM = 2  # times one read
PRICE = {"nanos_per_hour": 3_060_000_000, "source": "AWS price list", "as_of": iso(NOW), "basis": "listed"}
OF_LIST = {"source": "AWS price list", "as_of": iso(NOW), "basis": "listed", "why_at_most": "", "by_size": True}
BUDGETS = {
    "a month": Budget("lab", Money.usd(10**6), Span("month"), Scope(provider="aws")),
    "rolling:30d": Budget("lab", Money.usd(10**6), Span("rolling", 30), Scope(provider="aws")),
    "in total": Budget("lab", Money.usd(10**6), Span("total"), Scope(provider="aws")),
}


def measure(machines: int = 1000, rounds: int = 15) -> dict[str, list[dict[str, Any]]]:
    """Return, for each kind of budget, how many times the CPU of one read of the machines its admission takes."""
    with tempfile.TemporaryDirectory() as directory:
        ledger = open_ledger(None, Path(directory) / "ledger", actor="somebody", clock=lambda: NOW)
        ledger.append([line for number in range(machines) for line in _life(number)])
        wanted = {**ledger.machines()[0], "id": "cg-wanted", "name": "wanted", "uses": [], "attempt": "open"}
        prices = counted_prices()

        def admitted(budget: Budget) -> object:
            ended = lambda since: ledger.uses("" if since is None else iso(since))  # noqa: E731
            return asking([budget], wanted, ledger.bills(), ended, prices, NOW).admission()

        rows = []
        for name, budget in BUDGETS.items():
            pairs = [(_cpu(lambda budget=budget: admitted(budget)), _cpu(ledger.machines)) for _ in range(rounds)]
            rows.append(_row(name, pairs, machines))
        ledger.close()
    return {"rows": rows}


def _row(name: str, pairs: list[tuple[float, float]], machines: int) -> dict[str, Any]:
    ratios = sorted(ours / read for ours, read in pairs)
    ratio = statistics.median(ratios)
    return {
        "what": f"admission, {name}, {machines} machines",
        "unit": "ms CPU",
        "ours": statistics.median(ours for ours, _ in pairs) * 1e3,
        "against": statistics.median(read for _, read in pairs) * 1e3,
        "ratio": ratio,
        "aim": f"<= {AIM}",
        "met": ratio <= AIM,
        "n": len(pairs),
        "spread": f"{ratios[0]:.2f}-{ratios[-1]:.2f}",
    }


def _cpu(work: Callable[[], Any]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _life(number: int) -> list[Draft]:
    machine, at = f"cg-{number:016x}", NOW - timedelta(hours=5, seconds=number)
    running = {
        "provider_id": f"i-{number:017x}", "state": "running", "billed": True, "since": iso(at), "reason": None,
        "launched_at": iso(at), "address": {"host": "203.0.113.7", "port": 22, "user": "ubuntu"}, "expires": None,
        "renew_until": None, "hold_until": None, "last_active": None,
    }  # fmt: skip
    token = f"t{number}"
    return [
        Draft("launch_intended", machine, _intent(number, at), at, f"intent:{token}"),
        Draft(
            "launch_settled", machine, {"token": token, "outcome": "made", "why": "it answered"}, at, f"made:{token}"
        ),
        Draft("instance_observed", machine, running, at, f"seen:{token}"),
    ]


def _intent(number: int, at: datetime) -> dict[str, Any]:
    disk = {"what": "system disk of 100 GB", "resource": "disk", "stored_as": "gp3", "quantity": 100, "per": "month"}
    address = {"what": "public IPv4", "resource": "address", "stored_as": "public_ipv4", "quantity": 1, "per": "hour"}
    more = {"nanos_per_month": None, "at_most": False, "running": True, "kept": True, "named": False} | OF_LIST
    disk |= {"nanos": 80_000_000}
    return {
        "attempt": 1, "seq": 1, "token": f"t{number}", "key": f"k{number}", "request": f"r{number}",
        "name": f"machine-{number}", "provider": "aws", "account": "lab", "region": "us-east-1", "zone": "us-east-1a",
        "instance_type": "p3.2xlarge", "market": "on_demand", "price": PRICE, "on_demand": PRICE, "max_price": None,
        "accelerators": [{"name": "V100", "count": 1, "memory_gib": 16.0, "share": 1.0}], "owner": "ada",
        "project": f"project-{number % 5}", "policy": "default", "template": "jupyter", "renew_s": 86400,
        "expires": iso(at + 8 * HOUR), "renew_until": iso(at + 72 * HOUR), "stoppable": True, "stop_means": "stops",
        "setup": {"image": None, "disk_gb": 100, "volume": None, "persistent": False, "keep_disk": True},
        "beside": [disk | more, address | more | {"nanos": 5_000_000, "kept": False}],
    }  # fmt: skip


if __name__ == "__main__":
    for row in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)["rows"]:
        print(f"{row['what']}: {row['ratio']:.2f} times one read ({row['spread']})")
