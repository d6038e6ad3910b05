"""Metrics for Prometheus, on loopback only: machines, burn rate, budgets, idle time, API calls, runs of the reaper.

The text is the exposition format 0.0.4 (https://prometheus.io/docs/instrumenting/exposition_formats/). What is not
known is left out, never zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from cloudgpu.control.budgets.store import budget_states, budgets
from cloudgpu.control.session.last_run import LastRun, may_be_billed, read_last_run
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.shared.calls import calls
from cloudgpu.views.machines import machine_value

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[dict[str, str], float | Decimal]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its name, its kind (`gauge` or `counter`), what it is, and its samples with their labels."""

    name: str
    kind: str
    help: str
    samples: list[Sample] = field(default_factory=list)


def exposition(session: Session, ran: Mapping[str, int], faults: Mapping[str, int]) -> str:
    """Return all metrics as text. `ran` and `faults` count the jobs of this process. Raises LedgerUnavailable."""
    machines, now = session.ledger.machines(), session.clock()
    families = [
        *_of_machines(machines, now),
        *_of_budgets(session),
        *_of_passes(read_last_run(session.ledger)),
        _counter("watch_jobs", "Jobs that this process has begun.", (({"job": name}, n) for name, n in ran.items())),
        _counter("watch_faults", "Jobs of it that failed.", (({"job": name}, n) for name, n in faults.items())),
        _counter(
            "api_calls",
            "Requests that this process has sent to clouds.",
            (({"provider": provider, "operation": name}, n) for (provider, name), n in calls().items()),
        ),
    ]
    return "".join(map(_text, families))


def _of_machines(machines: list[Machine], now: datetime) -> Iterator[Family]:
    values = [machine_value(machine, now) for machine in machines if machine.terminated_at is None]
    states = Counter((one["provider"], one["account"], one["state"]) for one in values)
    named = ("provider", "account", "state")
    yield _gauge(
        "machines", "Machines that live.", ((dict(zip(named, key, strict=True)), n) for key, n in states.items())
    )
    burn: dict[tuple[str, str], Decimal] = {}
    for one in values:
        if one["billed"] and one["price"] is not None:
            account = (one["provider"], one["account"])
            burn[account] = burn.get(account, Decimal(0)) + Decimal(one["price"]["usd_per_hour"])
    places = ((dict(zip(named, key, strict=False)), usd) for key, usd in burn.items())
    yield _gauge("burn_usd_per_hour", "What billed machines cost an hour, without those of unknown price.", places)
    unpriced = sum(1 for one in values if one["billed"] and one["price"] is None)
    yield _gauge("unpriced_machines", "Billed machines of which no price is known.", [({}, unpriced)])
    awake = [machine for machine in machines if may_be_billed(machine) and machine.last_active]
    idle = (
        ({"machine": machine.id, "name": machine.name}, _since(not_none(machine.last_active), now)) for machine in awake
    )
    yield _gauge("idle_seconds", "Since a machine's last sign of life, where one is known.", idle)


def _since(text: str, now: datetime) -> float:
    return max(0.0, (now - from_iso(text)).total_seconds())


def _of_budgets(session: Session) -> Iterator[Family]:
    try:
        judged = budget_states(session, budgets(session))
    except CloudgpuError:  # an invalid budget file: `watch` reports it, and the other metrics still count
        return
    spent = (({"budget": one.budget.name}, one.spent.dollars) for one in judged)
    yield _gauge("budget_spent_usd", "What a budget counts as spent in its period.", spent)
    limits = (({"budget": one.budget.name}, one.budget.limit.dollars) for one in judged)
    yield _gauge("budget_limit_usd", "A budget's limit.", limits)


def _of_passes(last: LastRun) -> Iterator[Family]:
    if last.latest is None or last.at is None:
        return
    took = last.latest.body.get("took_s")
    yield _gauge("pass_duration_seconds", "How long the last run took.", [] if took is None else [({}, float(took))])
    yield _gauge("pass_end_timestamp_seconds", "When the last run ended.", [({}, last.at.timestamp())])
    yield _gauge("pass_ok", "Whether the last run succeeded.", [({}, float(bool(last.ok)))])
    succeeded: list[Sample] = [] if last.ok_at is None else [({}, last.ok_at.timestamp())]
    yield _gauge("pass_success_timestamp_seconds", "When a run last succeeded.", succeeded)


def _gauge(name: str, says: str, samples: Iterable[Sample]) -> Family:
    return Family(f"cloudgpu_{name}", "gauge", says, list(samples))


def _counter(name: str, says: str, samples: Iterable[Sample]) -> Family:
    return Family(f"cloudgpu_{name}_total", "counter", says, list(samples))


def _text(family: Family) -> str:
    if not family.samples:
        return ""
    lines = [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
    lines += [f"{family.name}{_labels(labels)} {value}" for labels, value in sorted(family.samples, key=str)]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    message = ",".join(f'{name}="{_escaped(str(text))}"' for name, text in labels.items())
    return f"{{{message}}}" if message else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
