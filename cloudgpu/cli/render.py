"""Values as text for a terminal. Nothing here asks or decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.cli.terminal import columns, filled, prose_columns, table_columns
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import tag_value
from cloudgpu.core.values.times import duration_text, from_iso

if TYPE_CHECKING:
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.documents.machines.machines import MachineDocument
    from cloudgpu.views.documents.machines.plans import AttachedCost, Plan
    from cloudgpu.views.documents.money.budgets import CreditDocument
    from cloudgpu.views.documents.parts import ExchangeRate, MachineOrPlan, Price

FOLD_INDENT = " " * 4  # begins the second line of a row
TEN_MINUTES_S = 600
MAX_TABLE_WIDTH, MIN_CUT_WIDTH = 80, 12  # columns of a table, and of a text that is cut for it
MIN_OWNER_WIDTH = 10  # columns, however narrow the terminal is
PRICE_MARKS = {"derived": "~", "unverified": "?", "assumed": "^"}  # as in `gpus` and `cost`


def confidence_mark(provider: str, basis: str | None, *, old: object) -> str:
    """Return the first mark that applies to a price: unverified, derived, assumed or old; empty for none.

    Google's derived prices are sums of listed prices, and get no mark.
    """
    if basis == "derived" and provider == "gcp":
        basis = None
    return PRICE_MARKS.get(basis or "", "") or "!" * bool(old)


def table(rows: Sequence[Sequence[str]], headings: Sequence[str], right: Iterable[int] = ()) -> str:
    """Return aligned columns with two spaces between them; `right` names the columns aligned to the right.

    On a terminal that is too narrow, the columns that do not fit are on further, indented lines of their row.
    """
    return "\n".join(table_rows(rows, headings, right))


def table_rows(rows: Sequence[Sequence[str]], headings: Sequence[str], right: Iterable[int] = ()) -> list[str]:
    """Return the heading and the rows of a `table`, each with its further lines on a terminal that is too narrow."""
    lines = [headings, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    right_columns = set(right)

    def cell(column: int, text: str) -> str:
        return text.rjust(widths[column]) if column in right_columns else text.ljust(widths[column])

    columns_by_line = _columns_by_line(widths)

    def row(line: Sequence[str]) -> str:
        row_lines = (
            (FOLD_INDENT if number else "") + "  ".join(cell(i, line[i]) for i in line_columns).rstrip()
            for number, line_columns in enumerate(columns_by_line)
        )
        return "\n".join(line for line in row_lines if len(columns_by_line) == 1 or line.strip())

    return [row(line) for line in lines]


def _columns_by_line(widths: Sequence[int]) -> list[list[int]]:
    """Return the columns on the first, second, ... line of each row: as many as fit the terminal."""
    max_width = table_columns()
    lines: list[list[int]] = [[]]
    used_width = 0
    for column, width in enumerate(widths):
        if max_width is not None and lines[-1] and used_width + 2 + width > max_width:
            lines.append([])
            used_width = len(FOLD_INDENT) - 2
        lines[-1].append(column)
        used_width += width + (2 if lines[-1] != [0] else 0)
    return lines


def clipped(text: str, width: int, mark: str = "…") -> str:
    """Return a text of at most `width` characters; a longer one ends with `mark`."""
    return text if len(text) <= width else f"{text[: width - len(mark)]}{mark}"


def cut(text: str, width: int) -> str:
    """Return a text of at most `width` characters; a longer one keeps its last two, by which regions differ."""
    return text if len(text) <= width else f"{text[: width - 4]}..{text[-2:]}"


def fitted(rows: list[list[str]], headings: Sequence[str], cut_column: int) -> list[list[str]]:
    """Return the rows with the texts of the column `cut_column` cut, so that the table is at most 80 columns wide."""
    widths = [max(len(line[column]) for line in [headings, *rows]) for column in range(len(headings))]
    max_width = max(MIN_CUT_WIDTH, MAX_TABLE_WIDTH - sum(widths) - 2 * (len(widths) - 1) + widths[cut_column])
    return [[*row[:cut_column], cut(row[cut_column], max_width), *row[cut_column + 1 :]] for row in rows]


def labelled_lines(pairs: Iterable[tuple[str, str | None]]) -> str:
    """Return `label  text` lines, wrapped under the text; pairs without a text are left out."""
    shown_pairs = [(label, text) for label, text in pairs if text]
    width = max((len(label) for label, _ in shown_pairs), default=0) + 4
    return "\n".join(wrapped(text, f"  {label}".ljust(width), " " * width) for label, text in shown_pairs)


def paragraph(text: str) -> str:
    """Return prose in lines that fit the terminal."""
    if len(text) <= prose_columns() and text.isprintable() and not text.endswith(" "):
        return text  # the fast way, as a run over thousands of machines prints as many lines
    return wrapped(text)


def wrapped(text: str, first: str = "", rest: str = "") -> str:
    """Return prose in lines that fit the terminal, of at most 100 columns, which begin with `first` and `rest`.

    No word is broken, since a command, a path, an id, a fingerprint or an address is copied as a whole.
    """
    return filled(text, prose_columns(), first, rest)


def steps(commands: Sequence[tuple[str, str]]) -> str:
    """Return one line for each command (given without `cloudgpu`), with what it is for."""
    width = max(32, *(len(f"  cloudgpu {command}  ") for command, _ in commands))
    return "\n".join(f"  cloudgpu {command}".ljust(width) + purpose for command, purpose in commands)


def next_steps(name: str, *, jupyter: bool) -> str:
    """Return what can be done with a machine that is ready."""
    first_step = (f"tunnel {name}", "Jupyter") if jupyter else (f"exec {name} -- CMD", "run a command")
    return steps([first_step, (f"ssh {name}", "a shell"), (f"down {name}", "end it")])


def place_text(document: MachineDocument | Plan) -> str:
    """Return where a machine or plan is: provider, account, region and zone, and whose computer it is."""
    location = (
        document["region"] if document["region"] == document["zone"] else f"{document['region']}/{document['zone']}"
    )
    account = "" if document["account"] == document["provider"] else f" (account {document['account']})"
    return f"{document['provider']}{account}, {location}{TRUST_TEXTS[document['trust']]}"


TRUST_TEXTS = {"cloud": "", "datacenter": ", in somebody's data centre", "community": ", a stranger's computer"}


def dollars(usd: str | None, places: int = 2) -> str:
    """Return decimal USD text for people; a missing amount is `?`, never zero."""
    return "?" if usd is None else Money.usd(Decimal(usd)).text(places)


def a_month(usd: str | None, *, at_most: object) -> str:
    """Return what something costs a month, in words."""
    return "price not known" if usd is None else f"{'at most ' if at_most else ''}{dollars(usd)} a month"


def attached_costs_text(costs: Iterable[AttachedCost]) -> str:
    """Return the attached costs of a machine, each with its price a month; empty for none."""
    return "; ".join(f"{cost['what']}, {a_month(cost['usd_per_month'], at_most=cost['at_most'])}" for cost in costs)


class AmountFormatter:
    """Formats decimal USD text in dollars or in `currency`, with `extra_digits` after the cents; -2: without cents."""

    def __init__(self, currency: Currency | None, extra_digits: int = 0) -> None:
        self.currency, self.extra_digits = currency, extra_digits
        self.code = f" {currency.code}" if currency else ""

    def __call__(self, usd: str | None, extra_digits: int | None = None) -> str:
        """Return an amount for a table; a missing one is `?`, never zero."""
        if usd is None:
            return "?"
        amount, digits = Money.usd(Decimal(usd)), self.extra_digits if extra_digits is None else extra_digits
        return amount.text(2 + digits) if self.currency is None else self.currency.text(amount, max(digits, 0))

    def with_code(self, usd: str | None, extra_digits: int | None = None) -> str:
        """Return an amount for a sentence."""
        return f"{self(usd, extra_digits)}{self.code}"


def rate_text(rate: ExchangeRate | None) -> str:
    """Return the rate of all amounts of an answer, with its day and source; empty for dollars."""
    if rate is None:
        return ""
    source = f" ({rate['source']})" if rate["source"] else ""
    return f"1 USD = {rate['per_usd']} {rate['code']}, rate of {rate['as_of']}{source}, for every amount."


def when(iso_time: str | None, now: datetime) -> str:
    """Return a ledger time for people, with its distance from now: `2026-11-20 19:00 UTC (in 8h)`."""
    if iso_time is None:
        return "never"
    at = from_iso(iso_time)
    distance_s = (at - now).total_seconds()
    distance_text = f"in {short_duration(distance_s)}" if distance_s >= 0 else f"{short_duration(-distance_s)} ago"
    return f"{at:%Y-%m-%d %H:%M} UTC ({distance_text})"


def short_duration(seconds: float) -> str:
    """Return a distance in time for people: to the minute from ten minutes on, to the second below."""
    return duration_text(round(seconds / 60) * 60 if seconds >= TEN_MINUTES_S else round(seconds))


def ago(iso_time: str | None, now: datetime) -> str:
    """Return how long ago a ledger time was."""
    if iso_time is None:
        return "never"
    seconds = (now - from_iso(iso_time)).total_seconds()
    return "just now" if seconds < 1 else f"{short_duration(seconds)} ago"


def at_most_ago(iso_time: str, now: datetime) -> str:
    """Return how long ago a recorded time was, where something later may not be recorded yet."""
    age_text = ago(iso_time, now)
    return age_text if age_text == "just now" else f"at most {age_text}"


def credit_text(credit: CreditDocument, now: datetime) -> str:
    """Return the balance of a prepaid account, when it was read, and how long it lasts."""
    balance = f"Credit of {credit['account']}: {dollars(credit['left_usd'])} ({ago(credit['as_of'], now)})"
    if credit["ends_at"] is None:
        return f"{balance}."
    usd_per_hour, ends = dollars(credit["usd_per_hour"], 4), when(credit["ends_at"], now)
    return f"{balance}; at {usd_per_hour}/h it ends {ends}, and its data is deleted then."


def gpus_text(machine_or_plan: MachineOrPlan, *, briefly: bool = False) -> str:
    """Return the GPUs of a machine or plan: `2x V100 (16 GiB each)`, or `no GPU`; `briefly` without their memory."""
    gpu_texts = []
    for gpu in machine_or_plan["gpus"]:
        share_text = "" if gpu["share"] == 1 else f" (a share of {gpu['share']:g})"
        each_text = " each" if gpu["count"] > 1 else ""
        memory_text = f" ({gpu['memory_gib']:g} GiB{each_text})" if gpu["memory_gib"] and not briefly else ""
        total_text = f", of the {gpu['of']} that are there" if gpu["of"] else ""
        gpu_texts.append(f"{gpu['count']}x {gpu['name']}{memory_text}{share_text}{total_text}")
    return ", ".join(gpu_texts) or "no GPU"


def price_text(price: Price | None) -> str:
    """Return a price with its source, date and basis; a missing one says so."""
    if price is None:
        return "not known"
    basis_text = "" if price["basis"] in ("quoted", "listed", "measured") else f", {price['basis']}"
    basis_text = ", not measured" if price["basis"] == "setting" else basis_text
    if price["negotiated"]:
        basis_text = ", as agreed"
    return f"{dollars(price['usd_per_hour'], 4)} an hour: {price['source']}, as of {price['as_of'][:10]}{basis_text}"


def price_briefly(price: Price | None) -> str:
    """Return a price with its basis and its day, without its source; a missing one says so."""
    if price is None:
        return "not known"
    basis_text = f"{price['basis']} {price['as_of'][:10]}"
    if price["basis"] == "setting":
        basis_text = "by the settings, not measured"
    if price["negotiated"]:
        basis_text = "as agreed"
    return f"{dollars(price['usd_per_hour'], 4)} an hour ({basis_text})"


def machine_table(
    machines: Sequence[MachineDocument],
    now: datetime,
    *,
    me: str | None = None,
    row: Callable[[MachineDocument, datetime], list[str]] | None = None,
) -> str:
    """Return the table of `ls`; with a column of owners if a machine is not of `me` (None: never).

    `row` returns the cells of a row (None: `machine_row`).
    """
    rows = [(row or machine_row)(machine, now) for machine in machines]
    headings, right = ["NAME", "STATE", "AT", "WHAT", "", "$/H", "SPENT", "LEASE"], [5, 6]
    if me is None or all(machine["owner"] in (me, tag_value(me), "", None) for machine in machines):
        return table(rows, headings, right)
    table_width = max(len(line) for line in table(rows, headings, right).splitlines())
    max_width = max(MIN_OWNER_WIDTH, columns() - table_width - 2)
    owners = [clipped(machine["owner"] or "?", max_width, "..") for machine in machines]
    rows = [[cells[0], owner, *cells[1:]] for cells, owner in zip(rows, owners, strict=True)]
    return table(rows, [headings[0], "OWNER", *headings[1:]], [column + 1 for column in right])


def machine_row(machine: MachineDocument, now: datetime) -> list[str]:
    """Return the row of one machine in the table of `ls`."""
    return [
        machine["name"],
        state_text(machine),
        machine["provider"],
        _gpus_cell(machine),
        "spot" if machine["market"] == "spot" else "",
        _price_cell(machine),
        spent_text(machine, 2),
        _lease_cell(machine, now),
    ]


def spent_text(machine: MachineDocument, places: int) -> str:
    """Return what a machine has cost, with a `+` where a part of it has no price."""
    return f"{dollars(machine['spent_usd'], places)}{'+' if machine['unpriced'] and machine['spent_usd'] else ''}"


def without_price(machine: MachineDocument) -> str:
    """Return what is in no sum because it has no price, as the end of a sentence; empty if nothing."""
    return f", without its {' and '.join(machine['unpriced'])}: no price is known" if machine["unpriced"] else ""


def has_retained(machine: MachineDocument) -> bool:
    """Return whether a machine is terminated, with a disk or an image retained."""
    return bool(machine["terminated_at"] and (machine["retained"] or machine["parked"]))


def state_text(machine: MachineDocument) -> str:
    """Return a machine's state as in `ls`, with `(free)` if it costs nothing."""
    if machine["launch_uncertain"]:
        return "unsettled"
    if machine["absent"]:
        return "unknown"
    if has_retained(machine):
        if machine["parked"]:
            is_complete = (
                len(machine["retained"]) == 1
                and machine["retained"][0]["kind"] == "image"
                and machine["retained"][0]["ready"]
            )
            return "parked" if is_complete else "parking"
        return "interrupted" if machine["reason"] == "interrupted" else "disk left"
    return f"{machine['state']}{' (free)' if is_stopped_unbilled(machine) and _costs_nothing(machine) else ''}"


def is_stopped_unbilled(machine: MachineDocument) -> bool:
    """Return whether a machine is stopped, and only its attached costs may be billed."""
    return bool(
        machine["state"] in ("stopped", "deallocated") and not machine["billed"] and not machine["terminated_at"]
    )


def _costs_nothing(machine: MachineDocument) -> bool:
    return machine["attached_costs"] is not None and not any(
        cost["while_stopped"] for cost in machine["attached_costs"]
    )


def stopped_costs_text(machine: MachineDocument) -> str | None:
    """Return what a stopped machine still costs, in words; None if that is nothing, or not known."""
    costs = [attached_cost for attached_cost in machine["attached_costs"] or () if attached_cost["while_stopped"]]
    if not costs:
        return None
    at_most_text = "at most " if any(cost["at_most"] for cost in costs) else ""
    resources = ", ".join(cost["what"] for cost in costs)
    return f"{resources}: {at_most_text}{dollars(machine['stopped_usd_per_month'])} a month"


def _price_cell(machine: MachineDocument) -> str:
    """Return the hourly price; for a stopped machine, or one with only retained resources, their monthly cost."""
    if has_retained(machine):
        return f"{dollars(machine['retained_usd_per_month'])}/mo"
    if is_stopped_unbilled(machine) and stopped_costs_text(machine):
        return f"{dollars(machine['stopped_usd_per_month'])}/mo"
    return dollars(machine["price"] and machine["price"]["usd_per_hour"], 4) + price_mark(machine)


def price_mark(machine: MachineDocument) -> str:
    """Return the mark of a machine's price if it is derived, assumed or unverified; otherwise empty."""
    return confidence_mark(machine["provider"], machine["price"]["basis"], old=False) if machine["price"] else ""


def _gpus_cell(machine: MachineDocument) -> str:
    return ",".join(f"{gpu['count']}x{gpu['name']}"[:14] for gpu in machine["gpus"]) or str(machine["instance_type"])


def _lease_cell(machine: MachineDocument, now: datetime) -> str:
    if has_retained(machine):
        return "start or down"
    if machine["terminated_at"]:
        return f"ended {ago(machine['terminated_at'], now)}"
    if machine["held_until"] and from_iso(machine["held_until"]) > now:
        return f"held {short_duration((from_iso(machine['held_until']) - now).total_seconds())}"
    if machine["expires"] is None:
        return "none"
    lease_s = (from_iso(machine["expires"]) - now).total_seconds()
    renew_until = machine.get("renew_until")
    if not machine["lease_ends"] and renew_until is not None:
        remaining_s = (from_iso(renew_until) - now).total_seconds()
        warning_text = f"warns in {short_duration(lease_s)}" if lease_s > 0 else "warned"
        return (
            f"{warning_text}, ends in {short_duration(remaining_s)}"
            if remaining_s > 0
            else f"over {short_duration(-remaining_s)}"
        )
    return f"{short_duration(lease_s)} left" if lease_s > 0 else f"over {short_duration(-lease_s)}"


def console_text(machine: MachineDocument) -> str | None:
    """Return the id of a machine in its cloud's console, and where it is; None before the id is known."""
    if machine["cloud_id"] is None:
        return None
    place = machine["zone"] or machine["region"]
    return f"{machine['cloud_id']} in {place} ({machine['provider']}, account {machine['account']})"


def size_text(size: float) -> str:
    """Return a number of bytes for people: `999 B`, `1.2 kB`, `3.4 GB`."""
    kilo = 1000.0
    for unit in ("B", "kB", "MB", "GB"):
        if size < kilo or unit == "GB":
            break
        size /= kilo
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.3g} {unit}"  # noqa: PLR2004  (three digits)
