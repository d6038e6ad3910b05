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
        BudgetTestDocument,
        Delivery,
    )
    from cloudgpu.views.documents.money.report import SentReportDocument

WIDEST_NAME = 18
WIDEST_BAR = 50
NEAR = 80  # percent spent
USED_UP, PASSED, NEARLY, FITS = "used up", "passed by what runs", "nearly used up", "fits"
_BAD = {USED_UP: "is used up", PASSED: "will be passed by what runs", NEARLY: "is nearly used up"}
FEW = 5  # budgets that the first line names
WITH_CENTS = Decimal(10_000)  # smaller amounts are shown to the cent


def list_text(values: Sequence[BudgetStatus]) -> str:
    """Return which budgets are used up, or will be by what runs, then each of them; empty for none."""
    if not values:
        return ""
    bad = [f"{one['name']} {_BAD[state]}" for one in values if (state := _state(one)) in _BAD]
    more = f"; and {len(bad) - FEW} more" if len(bad) > FEW else ""
    message = f"{'; '.join(bad[:FEW])}{more}." if bad else _all_fit(values)
    return f"{paragraph(message)}\n\n{table_of(values)}"


def _all_fit(values: Sequence[BudgetStatus]) -> str:
    if len(values) > 1:
        return f"All {len(values)} budgets hold what is spent and what runs."
    (one,) = values
    return f"{one['name']} has {_amount(one['remaining_usd'])} of {_amount(one['limit_usd'])} left."


def table_of(values: Sequence[BudgetStatus]) -> str:
    """Return a line for each budget, below it a bar of what is spent and to come, and what it is about; or nothing."""
    if not values:
        return ""
    rows = [
        [
            clipped(one["name"], WIDEST_NAME),
            one["period"],
            _amount(one["limit_usd"]),
            _amount(one["spent_usd"]),
            f"{min(one['spent_percent'], 9999)}%",
            _amount(one["committed_usd"]),
            _hourly(one["burn_usd_per_hour"]),
            _lasts(one),
        ]
        for one in values
    ]
    headings = ["NAME", "PERIOD", "LIMIT", "SPENT", "", "TO COME", "$/H", "LASTS"]
    heading, *lines = table_rows(rows, headings, right=(2, 3, 4, 5, 6))
    below = [f"{line}\n{_bar(one)}\n{_about(one)}" for line, one in zip(lines, values, strict=True)]
    return "\n".join([heading, *below])


def set_text(value: BudgetSetDocument) -> str:
    """Return what was set, how it stands, and what it replaced."""
    one, before = value["budget"], value["replaced"]
    lines = [table_of([one])]
    if before is not None:
        lines.append(f"It replaces {_amount(before['limit_usd'])} a {before['period']}, {before['scope']}.")
    if "stop" in one["actions"]:
        lines.append(paragraph(_overshoot(one, "15m")))
    if value["terminates"]:
        names = ", ".join(value["terminates"])
        lines.append(
            paragraph(f"It would terminate what can be neither stopped nor parked, and delete its disk: {names}.")
        )
    return "\n".join(lines)


def check_text(value: BudgetCheckDocument, every: str) -> str:
    """Return how every budget stands, what those that are passed would stop, and what was told to whom."""
    from cloudgpu.views.budgets import stop_sentences

    lines = [table_of(value["budgets"]) or "No budget is set."]
    for one in value["budgets"]:
        if one["exhausted"]:
            over = Money.usd(-Decimal(one["remaining_usd"])).text()
            lines.append(paragraph(f"{one['name']} is exceeded by {over}."))
        if "stop" in one["actions"] and not one["exhausted"]:
            lines.append(paragraph(_overshoot(one, every)))
    lines += [paragraph(said) for said in stop_sentences(value["stops"])]
    if value["deadman"] is not None:
        lines.append(paragraph(f"The dead-man's address did not get this run's report: it {value['deadman']}."))
    return "\n".join([*lines, *_told(value["alerts"])])


def sent_text(value: Delivery | BudgetTestDocument | SentReportDocument) -> str:
    """Return who has what was sent, and who does not."""
    lines = [f"{receiver} has it." for receiver in value["sent"]]
    return "\n".join([*lines, *(paragraph(f"{one['receiver']} has not: {one['why']}") for one in value["failed"])])


def _told(alerts: AlertRun | None) -> list[str]:
    if alerts is None:
        return []
    lines = [paragraph(f"Wrong now: {title}.") for title in alerts["active"]]
    lines += [f"Told {receiver}." for receiver in alerts["sent"]]
    return lines + [paragraph(f"No alert reached {one['receiver']}: {one['why']}") for one in alerts["failed"]]


def _overshoot(one: BudgetStatus, every: str) -> str:
    over = _amount(one["overshoot_usd"])
    return (
        f"{one['name']} stops machines once it is spent. Checked every {every}, it can be exceeded by up to {over} at "
        "what runs now, and by what stopped machines and disks still cost."
    )


def _about(one: BudgetStatus) -> str:
    parts = [one["scope"], ", ".join(one["actions"])]
    parts += [] if one["tz"] == "UTC" else [one["tz"]]
    parts += [] if one["amount"] is None else [_rate(one)]
    parts += [] if one["allow_override"] else ["cannot be overridden"]
    parts += [f"in {one['file']}"] if one["file"] else []
    parts += [f"no price is known for {', '.join(one['unpriced'])}: refuses"] if one["unpriced"] else []
    parts += [f"counted without a known price: {'; '.join(one['assumed'][:3])}"] if one["assumed"] else []
    return wrapped("; ".join(parts), "  ", "  ")


def _bar(one: BudgetStatus) -> str:
    """Return a bar of what is spent, and of what is to come by what runs, and in words how the budget stands."""
    spent, committed, limit = (float(one[key]) for key in ("spent_usd", "committed_usd", "limit_usd"))
    state = _state(one)
    drawn = gauge(spent, limit, min(WIDEST_BAR, columns() - len(state) - 4), committed)
    return f"  {drawn}  {state}"


def _state(one: BudgetStatus) -> str:
    """Return how a budget stands; colours know these words."""
    if one["exhausted"]:
        return USED_UP
    if Decimal(one["spent_usd"]) + Decimal(one["committed_usd"]) > Decimal(one["limit_usd"]):
        return PASSED
    return NEARLY if one["spent_percent"] >= NEAR else FITS


def _rate(one: BudgetStatus) -> str:
    return f"{Decimal(one['amount'] or 0):,f} {one['currency']} at {one['per_usd']} of {one['rate_as_of']}"


def _lasts(one: BudgetStatus) -> str:
    if one["exhausted"]:
        return "spent"
    return "yes" if one["exhausted_in_s"] is None else duration_text(one["exhausted_in_s"])


def _hourly(text: str) -> str:
    amount = Money.usd(Decimal(text))
    return amount.text(4 if amount < Money.usd(100) else 2).removeprefix("$")


def _amount(text: str) -> str:
    amount = Decimal(text)
    return Money.usd(amount).text(2 if abs(amount) < WITH_CENTS else 0)
