"""Metrics for Prometheus, on loopback only: machines, burn rate, budgets, idle time, API calls, runs of the reaper.

The text is the exposition format 0.0.4 (https://prometheus.io/docs/instrumenting/exposition_formats/). What is not
known is left out, never zero.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from cloudgpu.control.budgets.store import budget_states, budgets
from cloudgpu.control.session.last_run import LastRun, may_be_billed, read_last_run
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.shared.calls import request_counts
from cloudgpu.views.machines import machine_document

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[dict[str, str], float | Decimal]  # the labels, and the value


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A metric: its name, its kind (`gauge` or `counter`), what it is, and its samples with their labels."""

    name: str
    kind: str
    help: str
    samples: list[Sample]


def exposition(session: Session, run_counts: Mapping[str, int], fault_counts: Mapping[str, int]) -> str:
    """Return all metrics as text; the counts are of the jobs of this process, by name. Raises LedgerUnavailable."""
    machines, now = session.ledger.machines(), session.clock()
    families = [
        *_machine_metrics(machines, now),
        *_budget_metrics(session),
        *_run_metrics(read_last_run(session.ledger)),
        _counter(
            "watch_jobs",
            "Jobs that this process has begun.",
            (({"job": name}, count) for name, count in run_counts.items()),
        ),
        _counter(
            "watch_faults", "Jobs of it that failed.", (({"job": name}, count) for name, count in fault_counts.items())
        ),
        _counter(
            "api_calls",
            "Requests that this process has sent to clouds.",
            (
                ({"provider": provider, "operation": name}, count)
                for (provider, name), count in request_counts().items()
            ),
        ),
    ]
    return "".join(map(_family_text, families))


def _machine_metrics(machines: list[Machine], now: datetime) -> Iterator[MetricFamily]:
    documents = [machine_document(machine, now) for machine in machines if machine.terminated_at is None]
    states = Counter((document["provider"], document["account"], document["state"]) for document in documents)
    label_names = ("provider", "account", "state")
    yield _gauge(
        "machines",
        "Machines that live.",
        ((dict(zip(label_names, key, strict=True)), count) for key, count in states.items()),
    )
    usd_per_hour: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for document in documents:
        if document["billed"] and document["price"] is not None:
            usd_per_hour[document["provider"], document["account"]] += Decimal(document["price"]["usd_per_hour"])
    burn_samples = ((dict(zip(label_names, key, strict=False)), usd) for key, usd in usd_per_hour.items())
    yield _gauge(
        "burn_usd_per_hour", "What billed machines cost an hour, without those of unknown price.", burn_samples
    )
    unpriced = sum(1 for document in documents if document["billed"] and document["price"] is None)
    yield _gauge("unpriced_machines", "Billed machines of which no price is known.", [({}, unpriced)])
    idle_samples = (
        (
            {"machine": machine.id, "name": machine.name},
            max(0.0, (now - from_iso(not_none(machine.last_active))).total_seconds()),
        )
        for machine in machines
        if may_be_billed(machine) and machine.last_active
    )
    yield _gauge("idle_seconds", "Since a machine's last sign of life, where one is known.", idle_samples)


def _budget_metrics(session: Session) -> Iterator[MetricFamily]:
    try:
        states = budget_states(session, budgets(session))
    except CloudgpuError:  # an invalid budget file: `watch` reports it, and the other metrics still count
        return
    spent = (({"budget": state.budget.name}, state.spent.dollars) for state in states)
    yield _gauge("budget_spent_usd", "What a budget counts as spent in its period.", spent)
    limits = (({"budget": state.budget.name}, state.budget.limit.dollars) for state in states)
    yield _gauge("budget_limit_usd", "A budget's limit.", limits)


def _run_metrics(last_run: LastRun) -> Iterator[MetricFamily]:
    if last_run.latest is None or last_run.at is None:
        return
    duration_s = last_run.latest.body.get("took_s")
    yield _gauge(
        "pass_duration_seconds", "How long the last run took.", [] if duration_s is None else [({}, float(duration_s))]
    )
    yield _gauge("pass_end_timestamp_seconds", "When the last run ended.", [({}, last_run.at.timestamp())])
    yield _gauge("pass_ok", "Whether the last run succeeded.", [({}, float(bool(last_run.ok)))])
    succeeded: list[Sample] = [] if last_run.ok_at is None else [({}, last_run.ok_at.timestamp())]
    yield _gauge("pass_success_timestamp_seconds", "When a run last succeeded.", succeeded)


def _gauge(name: str, help_text: str, samples: Iterable[Sample]) -> MetricFamily:
    return MetricFamily(f"cloudgpu_{name}", "gauge", help_text, list(samples))


def _counter(name: str, help_text: str, samples: Iterable[Sample]) -> MetricFamily:
    return MetricFamily(f"cloudgpu_{name}_total", "counter", help_text, list(samples))


def _family_text(family: MetricFamily) -> str:
    if not family.samples:
        return ""
    lines = [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
    lines += [f"{family.name}{_labels_text(labels)} {value}" for labels, value in sorted(family.samples, key=str)]
    return "\n".join(lines) + "\n"


def _labels_text(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(str(text))}"' for name, text in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
