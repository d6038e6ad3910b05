"""What a report costs over a ledger of 100,000 charges, in CPU seconds, as a ratio to reading that ledger's rows.

300 machines on three clouds have run 170 times each within three years: 51,000 runs with an address each, and a disk
each that stays. Both sides run in turns in one process, each with a fresh connection, so that nothing is remembered.
The reading is what the report reads of money: every row and every use that has ended. What machines did with their
time is not known here: no samples are kept.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import ledger_life

from cloudgpu.control.cost.report import report_document
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.session.session import Session
from cloudgpu.core.events.log import Draft
from cloudgpu.core.values.times import iso
from cloudgpu.ledger.open import open_ledger
from cloudgpu.views.report.html import to_html

CHARGES, MACHINES, YEARS = 100_000, 300, 3
AIM, MOST_BYTES = 3.0, 1_000_000
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
CLOUDS = (
    ("aws", "us-east-1", "g4dn.xlarge"),
    ("gcp", "us-central1", "g2-standard-4"),
    ("azure", "eastus", "NC4as_T4_v3"),
)


def measure(turns: int = 5, charges: int = CHARGES) -> dict[str, Any]:
    """Return the rows of the table: document and page against reading the rows, and the size of the page."""
    with tempfile.TemporaryDirectory() as home:
        lines = fill(Path(home), charges)
        ours, against, size, number = in_turns(home, turns)
    ratio = statistics.median(ours) / statistics.median(against)
    row = {
        "what": f"report of {number:,} charges ({lines:,} lines) as HTML, against reading its rows",
        "unit": "CPU s",
        "ours": statistics.median(ours),
        "against": statistics.median(against),
        "ratio": ratio,
        "aim": f"<= {AIM:g}",
        "met": ratio <= AIM,
        "n": turns,
        "spread": f"{min(ours):.2f} to {max(ours):.2f}; {min(against):.2f} to {max(against):.2f}",
    }
    page = {
        "what": "the page of that",
        "unit": "bytes",
        "ours": size,
        "aim": f"< {MOST_BYTES}",
        "met": size < MOST_BYTES,
    }
    return {"rows": [row, page]}


def in_turns(home: str, turns: int) -> tuple[list[float], list[float], int, int]:
    """Return CPU seconds of each report and of each reading, the bytes of the page, and how many charges there are."""
    ours, against, size, number = [], [], 0, 0
    for turn in range(turns + 1):
        read, seconds = timed(
            lambda: opened(home).ledger.read(lambda view: (view.billable_machines(), list(view.ended_usages(""))))
        )
        page, took = timed(lambda: to_html(report_document(opened(home))))
        size, number = len(page.encode()), len(read[1]) + sum(len(row.open_usage) for row in read[0])
        if turn:  # the first imports, and reads the catalogue
            ours.append(took)
            against.append(seconds)
    return ours, against, size, number


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what work gives, and the CPU seconds that it took."""
    begun = time.process_time()
    found = work()
    return found, time.process_time() - begun


def opened(home: str) -> Session:
    """Return a session that has read nothing yet."""
    return open_session({"CLOUDGPU_HOME": home, "USER": "ada"}, clock=lambda: NOW)


def fill(home: Path, charges: int = CHARGES) -> int:
    """Put such a ledger into `home`, folded; return how many lines it has."""
    place = home / "ledger"
    place.mkdir(mode=0o700)
    growing = ledger_life.Growing(place / "ledger.db")
    made, wanted = 1, drafts(charges // 2 // MACHINES + 1)
    growing.connection.execute("BEGIN")
    while sheaf := list(islice(wanted, 2000)):
        growing.append(sheaf)
        made += len(sheaf)
    growing.connection.execute("COMMIT")
    growing.connection.close()
    ledger = open_ledger(None, place, actor="a benchmark", clock=lambda: NOW)
    ledger.settle("it was made at once")
    ledger.rebuild()
    ledger.close()
    return made + 1


def drafts(runs: int) -> Iterator[Draft]:
    """Yield the lines of all machines in the order of time: launched once, then on and off, ended by idle time."""
    begin, every = NOW - timedelta(days=365 * YEARS), timedelta(days=365 * YEARS) / runs
    for number in range(MACHINES):
        at = begin + timedelta(minutes=number)
        yield Draft("launch_intended", _subject(number), _intended(number, at), at, f"launch:{number}")
    for run in range(runs):
        for number in range(MACHINES):
            at = begin + run * every + timedelta(hours=6, minutes=number)
            yield from _run(number, run, at, at + timedelta(hours=4 + (number + run) % 9, seconds=number * 7))


def _run(number: int, run: int, begin: datetime, end: datetime) -> Iterator[Draft]:
    lease = {"expires": iso(begin + timedelta(hours=8)), "renew_until": iso(begin + timedelta(days=1))}
    why = f"idle for 1h (limit 1h): GPU, {run} s ago"
    decided = {"do": "stop", "rule": "idle", "why": why, "activity": "IDLE", "at": iso(end), "host": "tower"}
    told = [
        ("lease_set", {**lease, "why": "started"}, begin),
        ("instance_observed", _seen(number, "running", begin), begin),
        ("decision_made", decided, end - timedelta(seconds=9)),
        ("stop_requested", {"why": why, "host": "tower"}, end - timedelta(seconds=8)),
        ("instance_observed", _seen(number, "stopped", end), end),
    ]
    if number % 3 == 0:
        price = {"price": _price(380_000_000 + (run * 7 + number) % 90 * 1_000_000, begin), "maybe_from": None}
        told.insert(2, ("price_observed", price, begin + timedelta(hours=2)))
    for place, (kind, body, at) in enumerate(told):
        yield Draft(kind, _subject(number), body, at, f"{kind}:{number}:{run}:{place}")


def _subject(number: int) -> str:
    return f"cg-{number:016x}"


def _price(nanos: int, at: datetime) -> dict[str, Any]:
    return {"nanos_per_hour": nanos, "source": "a list", "as_of": iso(at), "basis": "listed"}


def _seen(number: int, state: str, at: datetime) -> dict[str, Any]:
    seen = ledger_life.seen(number, state, at)
    return {**seen, "since": iso(at), "launched_at": None}


def _intended(number: int, at: datetime) -> dict[str, Any]:
    provider, region, kind = CLOUDS[number % 3]
    price, rate = (
        _price(526_000_000 + number * 1_000_000, at),
        {"source": "a list", "as_of": iso(at), "basis": "listed"},
    )
    disk = {"what": "disk", "nanos_per_month": 8_000_000_000, "at_most": False, "running": True, "kept": True}
    disk |= {"resource": "disk", "stored_as": "gp3", "quantity": 100, "per": "month", "nanos": 80_000_000}
    address = {"what": "address", "nanos_per_month": 3_650_000_000, "at_most": False, "running": True, "kept": False}
    address |= {"resource": "address", "stored_as": "public_ipv4", "quantity": 1, "per": "hour", "nanos": 5_000_000}
    return {
        **ledger_life.intended(number),
        "provider": provider,
        "account": f"{provider}-{number % 6 // 3}",
        "region": region,
        "zone": f"{region}-a",
        "instance_type": kind,
        "market": "spot" if number % 3 == 0 else "on_demand",
        "price": price,
        "on_demand": price,
        "attached_costs": [{**one, **rate, "why_maybe_less": "", "named": False} for one in (disk, address)],
    }


if __name__ == "__main__":
    for row in measure(*map(int, sys.argv[1:]))["rows"]:
        print({name: row[name] for name in row if name != "what"}, row["what"])
