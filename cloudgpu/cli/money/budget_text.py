"""Budgets as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.cli.money.chart import gauge
from cloudgpu.cli.render import clipped, paragraph, table_rows, wrapped
from cloudgpu.cli.terminal import columns
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import duration_text

if TYPE_CHECKING:
    from cloudgpu.views.documents.money.budgets import (
        AlertRun,
        BudgetCheckDocument,
        BudgetSetDocument,
        BudgetStatus,
        Delivery,
    )

MAX_NAME_WIDTH = 18
MAX_BAR_WIDTH = 50
NEARLY_PERCENT = 80  # percent spent
USED_UP, EXCEEDED_BY_RUNNING, NEARLY_USED_UP, FITS = "used up", "passed by what runs", "nearly used up", "fits"
_WARNINGS = {
    USED_UP: "is used up",
    EXCEEDED_BY_RUNNING: "will be passed by what runs",
    NEARLY_USED_UP: "is nearly used up",
}
MAX_BUDGETS_NAMED = 5  # budgets in the first line
CENTS_BELOW = Decimal(10_000)  # smaller amounts are shown to the cent


def list_text(statuses: Sequence[BudgetStatus]) -> str:
    """Return which budgets are used up, or will be by what runs, then each of them; empty for none."""
    if not statuses:
        return ""
    warnings = [
        f"{status['name']} {_WARNINGS[state]}" for status in statuses if (state := _state_words(status)) in _WARNINGS
    ]
    hidden_text = f"; and {len(warnings) - MAX_BUDGETS_NAMED} more" if len(warnings) > MAX_BUDGETS_NAMED else ""
    message = f"{'; '.join(warnings[:MAX_BUDGETS_NAMED])}{hidden_text}." if warnings else _fit_text(statuses)
    return f"{paragraph(message)}\n\n{budget_table(statuses)}"


def _fit_text(statuses: Sequence[BudgetStatus]) -> str:
    if len(statuses) > 1:
        return f"All {len(statuses)} budgets hold what is spent and what runs."
    (status,) = statuses
    return f"{status['name']} has {_amount_text(status['remaining_usd'])} of {_amount_text(status['limit_usd'])} left."


def budget_table(statuses: Sequence[BudgetStatus]) -> str:
    """Return a line for each budget, below it a bar of what is spent and committed, and its scope; empty for none."""
    if not statuses:
        return ""
    rows = [
        [
            clipped(status["name"], MAX_NAME_WIDTH),
            status["period"],
            _amount_text(status["limit_usd"]),
            _amount_text(status["spent_usd"]),
            f"{min(status['spent_percent'], 9999)}%",
            _amount_text(status["committed_usd"]),
            _hourly_text(status["burn_usd_per_hour"]),
            _lasts_text(status),
        ]
        for status in statuses
    ]
    headings = ["NAME", "PERIOD", "LIMIT", "SPENT", "", "TO COME", "$/H", "LASTS"]
    heading, *lines = table_rows(rows, headings, right=(2, 3, 4, 5, 6))
    blocks = [
        f"{line}\n{_bar_line(status)}\n{_budget_details(status)}" for line, status in zip(lines, statuses, strict=True)
    ]
    return "\n".join([heading, *blocks])


def set_text(document: BudgetSetDocument) -> str:
    """Return the budget that was set, its status, and the budget that it replaced."""
    status, replaced = document["budget"], document["replaced"]
    lines = [budget_table([status])]
    if replaced is not None:
        lines.append(f"It replaces {_amount_text(replaced['limit_usd'])} a {replaced['period']}, {replaced['scope']}.")
    if "stop" in status["actions"]:
        lines.append(paragraph(_overshoot_text(status, "15m")))
    if document["terminates"]:
        names = ", ".join(document["terminates"])
        lines.append(
            paragraph(f"It would terminate what can be neither stopped nor parked, and delete its disk: {names}.")
        )
    return "\n".join(lines)


def check_text(document: BudgetCheckDocument, every: str) -> str:
    """Return the status of every budget, the machines that exceeded ones would stop, and the alerts that were sent."""
    from cloudgpu.views.budgets import stop_sentences

    lines = [budget_table(document["budgets"]) or "No budget is set."]
    for budget in document["budgets"]:
        if budget["exhausted"]:
            excess_text = Money.usd(-Decimal(budget["remaining_usd"])).text()
            lines.append(paragraph(f"{budget['name']} is exceeded by {excess_text}."))
        if "stop" in budget["actions"] and not budget["exhausted"]:
            lines.append(paragraph(_overshoot_text(budget, every)))
    lines += [paragraph(stop_sentence) for stop_sentence in stop_sentences(document["stops"])]
    if document["deadman"] is not None:
        lines.append(paragraph(f"The dead-man's address did not get this run's report: it {document['deadman']}."))
    return "\n".join([*lines, *_alert_lines(document["alerts"])])


def sent_text(document: Delivery) -> str:
    """Return the receivers that accepted the message, and those that did not."""
    lines = [f"{receiver} has it." for receiver in document["sent"]]
    return "\n".join(
        [*lines, *(paragraph(f"{delivery['receiver']} has not: {delivery['why']}") for delivery in document["failed"])]
    )


def _alert_lines(alerts: AlertRun | None) -> list[str]:
    if alerts is None:
        return []
    lines = [paragraph(f"Wrong now: {title}.") for title in alerts["active"]]
    lines += [f"Told {receiver}." for receiver in alerts["sent"]]
    return lines + [
        paragraph(f"No alert reached {delivery['receiver']}: {delivery['why']}") for delivery in alerts["failed"]
    ]


def _overshoot_text(status: BudgetStatus, every: str) -> str:
    overshoot = _amount_text(status["overshoot_usd"])
    return (
        f"{status['name']} stops machines once it is spent. Checked every {every}, it can be exceeded by up to "
        f"{overshoot} at what runs now, and by what stopped machines and disks still cost."
    )


def _budget_details(status: BudgetStatus) -> str:
    parts = [status["scope"], ", ".join(status["actions"])]
    parts += [] if status["tz"] == "UTC" else [status["tz"]]
    parts += [] if status["amount"] is None else [_rate_text(status)]
    parts += [] if status["allow_override"] else ["cannot be overridden"]
    parts += [f"in {status['file']}"] if status["file"] else []
    parts += [f"no price is known for {', '.join(status['unpriced'])}: refuses"] if status["unpriced"] else []
    parts += [f"counted without a known price: {'; '.join(status['assumed'][:3])}"] if status["assumed"] else []
    return wrapped("; ".join(parts), "  ", "  ")


def _bar_line(status: BudgetStatus) -> str:
    """Return a bar of the amounts spent and committed, and the budget's status in words."""
    spent, committed, limit = (float(status[key]) for key in ("spent_usd", "committed_usd", "limit_usd"))
    state = _state_words(status)
    bar = gauge(spent, limit, min(MAX_BAR_WIDTH, columns() - len(state) - 4), committed)
    return f"  {bar}  {state}"


def _state_words(status: BudgetStatus) -> str:
    """Return the status of a budget; `colours` colours these words."""
    if status["exhausted"]:
        return USED_UP
    if Decimal(status["spent_usd"]) + Decimal(status["committed_usd"]) > Decimal(status["limit_usd"]):
        return EXCEEDED_BY_RUNNING
    return NEARLY_USED_UP if status["spent_percent"] >= NEARLY_PERCENT else FITS


def _rate_text(status: BudgetStatus) -> str:
    return f"{Decimal(status['amount'] or 0):,f} {status['currency']} at {status['per_usd']} of {status['rate_as_of']}"


def _lasts_text(status: BudgetStatus) -> str:
    if status["exhausted"]:
        return "spent"
    return "yes" if status["exhausted_in_s"] is None else duration_text(status["exhausted_in_s"])


def _hourly_text(usd: str) -> str:
    amount = Money.usd(Decimal(usd))
    return amount.text(4 if amount < Money.usd(100) else 2).removeprefix("$")


def _amount_text(usd: str) -> str:
    amount = Decimal(usd)
    return Money.usd(amount).text(2 if abs(amount) < CENTS_BELOW else 0)
