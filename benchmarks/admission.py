"""The CPU of an admission check in a lab of two years, against a lab without a past.

The lab has 1,000 machines of ten ended runs each. What is measured is what a launch waits for under the ledger's lock:
reading what budgets count of each, what that has cost in the period, what it will cost to its renew-until, the verdict.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from cloudgpu.control.budgets.store import fallback_prices
from cloudgpu.core.budgets.admission import BilledUsages, admission_request
from cloudgpu.core.budgets.budget import Budget, BudgetPeriod, Scope
from cloudgpu.core.events.log import Draft
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso
from cloudgpu.ledger.open import open_ledger

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
PAST = timedelta(days=730)
AIM = 25  # ms CPU, however many runs have ended
PRICE = {"nanos_per_hour": 3_060_000_000, "source": "AWS price list", "as_of": iso(NOW), "basis": "listed"}
OF_LIST = {"source": "AWS price list", "as_of": iso(NOW), "basis": "listed", "why_maybe_less": "", "by_size": True}
NETWORK = {"ssh_from": ["203.0.113.7/32"], "subnet": None, "security_group": None, "public_ip": True, "jump": None}
SETUP = {"image": None, "disk_gb": 100, "volume": None, "persistent": False, "network": NETWORK, "keep_disk": True}
_BUDGETS = (
    ("a month", Budget("lab", Money.usd(10**6), BudgetPeriod("month"), Scope(provider="aws"))),
    ("rolling:30d", Budget("lab", Money.usd(10**6), BudgetPeriod("rolling", 30), Scope(provider="aws"))),
    ("in total", Budget("lab", Money.usd(10**6), BudgetPeriod("total"), Scope(provider="aws"))),
)


def measure(machines: int = 1000, rounds: int = 9, runs: int = 10) -> dict[str, list[dict[str, Any]]]:
    """Return, for each kind of budget, the CPU of an admission in a lab of two years against one without a past.

    Each machine lives, and was stopped and started again `runs` times over the two years.
    """
    with tempfile.TemporaryDirectory() as directory:
        old, new = Path(directory) / "old", Path(directory) / "new"
        _write(old, machines, runs)
        _write(new, machines, 0)
        found = {name: [(_admission(old, one), _admission(new, one)) for _ in range(rounds)] for name, one in _BUDGETS}
    return {"rows": [_row(name, pairs, machines, runs) for name, pairs in found.items()]}


def _write(place: Path, machines: int, runs: int) -> None:
    with closing(open_ledger(None, place, actor="somebody", clock=lambda: NOW)) as ledger:
        ledger.append([line for number in range(machines) for line in _life(number, runs)])


def _admission(place: Path, budget: Budget) -> float:
    """Return the CPU seconds of an admission by somebody who has read nothing before, as a new command has not."""
    with closing(open_ledger(None, place, actor="somebody", clock=lambda: NOW)) as ledger:
        wanted = ledger.present_machines()[0]._replace(
            id="cg-wanted", name="wanted", open_usage=(), launch_status="open"
        )
        prices = fallback_prices(cast("Session", SimpleNamespace(ledger=ledger, clock=_now)))

        def ended(since: datetime | None) -> BilledUsages:
            return ledger.billed_costs("" if since is None else iso(since))

        def unpriced(_since: datetime | None) -> BilledUsages:
            return ledger.ended_usages(unpriced=True)

        return _cpu(
            lambda: admission_request([budget], wanted, ledger.exposures(), ended, prices, NOW, unpriced).admission()
        )


def _now() -> datetime:
    return NOW


def _row(name: str, pairs: list[tuple[float, float]], machines: int, runs: int) -> dict[str, Any]:
    ratios = sorted(old / new for old, new in pairs)
    ours = statistics.median(old for old, _ in pairs) * 1e3
    return {
        "what": f"admission, {name}, {machines} machines of {runs} ended runs each",
        "unit": "ms CPU",
        "ours": ours,
        "against": statistics.median(new for _, new in pairs) * 1e3,
        "ratio": statistics.median(ratios),
        "aim": f"<= {AIM} ms",
        "met": ours <= AIM,
        "n": len(pairs),
        "spread": f"{ratios[0]:.2f}-{ratios[-1]:.2f}",
    }


def _cpu(work: Callable[[], Any]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _life(number: int, runs: int = 0) -> list[Draft]:
    machine, at = f"cg-{number:016x}", NOW - (PAST if runs else timedelta()) - timedelta(hours=5, seconds=number)
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
        *(line for run in range(runs) for line in _again(machine, running, at + run * (PAST / runs), PAST / runs, run)),
    ]


def _again(machine: str, running: dict[str, Any], began: datetime, step: timedelta, run: int) -> Iterator[Draft]:
    """Yield the lines of a stop eight hours after a run began, and of a start an equal part of the two years on."""
    for at, state, billed in ((began + 8 * HOUR, "stopped", False), (began + step, "running", True)):
        body = running | {"state": state, "billed": billed, "since": iso(at), "launched_at": iso(at)}
        body |= {"expires": iso(NOW + 8 * HOUR), "renew_until": iso(NOW + 72 * HOUR)}
        yield Draft("instance_observed", machine, body, at, f"{state}:{machine}:{run}")


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
        "expires": iso(at + 8 * HOUR), "renew_until": iso(at + 72 * HOUR), "stoppable": True, "stop_effect": "stops",
        "setup": SETUP,
        "attached_costs": [disk | more, address | more | {"nanos": 5_000_000, "kept": False}],
    }  # fmt: skip


if __name__ == "__main__":
    many = [int(word) for word in sys.argv[1:]]  # machines, rounds, and ended runs of each
    for row in measure(*many)["rows"]:
        print(f"{row['what']}: {row['ours']:.0f} ms, {row['ratio']:.2f} times one without a past ({row['spread']})")
