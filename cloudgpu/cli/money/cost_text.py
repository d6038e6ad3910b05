"""The answer of `cost` as text for 80 columns: first what it has cost and costs now, then the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from cloudgpu.cli.render import AmountFormatter, clipped, credit_text, paragraph, rate_text, short_duration, table
from cloudgpu.core.values.naming import counted, first_few
from cloudgpu.core.values.times import from_iso

if TYPE_CHECKING:
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.documents.money.cost import BurnRate, CostDocument, CostGroup, CostSum, Projection
    from cloudgpu.views.documents.parts import DesktopLine

WIDTH = 80
MIN_NAME_WIDTH = 12  # characters that a name keeps, however wide the numbers are
MAX_DESKTOP_RATIO = 10  # a desktop that costs more than this times what was spent is not shown
MAX_NAMED = 6  # names or reasons in a list
READ_MINUTES = 15  # a traffic counter is read at least so often while a machine is in use
MAX_GROUPS = 10  # groups in the table without -v
CALENDAR_GROUPS = ("day", "week", "month")  # groups that are periods: all of them are shown
RUNNING_MACHINES = "machines that run"
SMALL_AMOUNT = Decimal(10)  # dollars; smaller amounts are shown with two more digits
_HEADINGS = {
    "instance": "MACHINE",
    "day": "DAY",
    "week": "WEEK FROM",
}
_MARKS = {"~": "~ derived", "?": "? unverified", "^": "^ assumed", "!": "! dated more than 180 days before"}


def cost_text(document: CostDocument, currency: Currency | None, *, verbose: bool = False, chart: bool = False) -> str:
    """Return the answer in a line, the table with its total, and what is in no sum; `chart`: days instead of the table.

    `verbose`: every group, each range with its reasons, projections with their assumptions, and the desktop. Without
    it the desktop is shown if the cloud has cost at least a tenth of it for hours of work.
    """
    if not document["groups"]:
        return _no_costs_text(document)
    largest = max((Decimal(group["high_usd"] or 0) for group in document["groups"]), default=Decimal(0))
    format_usd = AmountFormatter(currency, 2 if largest < SMALL_AMOUNT else 0)
    top_block = "\n".join(
        filter(None, [_answer_text(document, format_usd), "" if chart else _daily_sparkline(document, format_usd)])
    )
    main_block = _days_chart(document) if chart else _groups_table(document, format_usd, verbose=verbose)
    blocks = [top_block, main_block, *_note_blocks(document, format_usd, verbose=verbose, has_chart=chart)]
    return "\n\n".join(block for block in blocks if block)


def _answer_text(document: CostDocument, format_usd: AmountFormatter) -> str:
    """Return the cost of this month and in all, and the present cost per hour."""
    total, this_month_usd = document["total"], document["this_month_usd"]
    total_text = "? (no price is known)" if total["usd"] is None else _bounded_amount_text(total, format_usd)
    owner_text = f" for {document['owner']}" if document["owner"] else ""
    if document["since"] or document["until"]:
        message = f"{total_text} {_period_text(document)}{owner_text}"
    elif this_month_usd is not None and format_usd(this_month_usd) != format_usd(document["total_usd"]):
        message = f"{format_usd.with_code(this_month_usd)} so far this month, {total_text} in all{owner_text}"
    else:
        message = f"{total_text} so far{owner_text}"
    burn_text = "" if document["projected"] is None else f"; {_hourly_text(document['burn'], format_usd)} an hour now"
    return paragraph(f"{message}{burn_text}.")


def _bounded_amount_text(cost_sum: CostSum, format_usd: AmountFormatter) -> str:
    """Return a sum with its bounds, and a `+` if something has no price."""
    unpriced_mark = "+" if cost_sum["without_price"] else ""
    lowest, usd, highest = (format_usd(cost_sum[key]) for key in ("low_usd", "usd", "high_usd"))
    bounds = [f"at least {lowest}"] * (lowest != usd) + [f"at most {highest}"] * (highest != usd)
    bounds_text = f" ({', '.join(bounds)})" if bounds else ""
    return f"{usd}{unpriced_mark}{format_usd.code}{bounds_text}"


def _daily_sparkline(document: CostDocument, format_usd: AmountFormatter) -> str:
    """Return the last days as a sparkline; empty if at most one of them has a cost."""
    days = document["days"] or []
    daily_usd = [float(day["usd"] or 0) for day in days]
    if sum(usd > 0 for usd in daily_usd) < 2:  # noqa: PLR2004  (one day is the first line)
        return ""
    from cloudgpu.cli.money.chart import sparkline

    most_expensive = max(days, key=lambda day: Decimal(day["usd"] or 0))
    marks = zip(days, sparkline(daily_usd), strict=True)
    line = "".join("?" if day["usd"] is None else mark for day, mark in marks)
    return (
        f"{len(days)} days  {line}  at most {format_usd.with_code(most_expensive['usd'])}, on {most_expensive['day']}"
    )


def _days_chart(document: CostDocument) -> str:
    """Return the last days as columns."""
    from cloudgpu.cli.money.chart import column_chart
    from cloudgpu.cli.terminal import columns

    days = document["days"] or []
    daily_usd = [float(day["usd"] or 0) for day in days]
    title = f"Spending by day, {days[0]['day']} to {days[-1]['day']}, {document['tz']}, in USD"
    return f"{title}\n\n{column_chart([day['day'][-2:].lstrip('0') for day in days], daily_usd, columns())}"


def _no_costs_text(document: CostDocument) -> str:
    if document["since"] is None and document["until"] is None:
        return "Nothing has been spent yet, as far as this ledger knows; no cloud was queried."
    return paragraph(f"Nothing was spent {_period_text(document)}, as far as this ledger knows; no cloud was queried.")


def _groups_table(document: CostDocument, format_usd: AmountFormatter, *, verbose: bool) -> str:
    groups = document["groups"] if verbose or document["by"] in CALENDAR_GROUPS else _most_expensive(document["groups"])
    sums: tuple[CostSum, ...] = (*groups, document["total"])
    headings = ["HOURS", f"COST{format_usd.code}"]
    columns = [[f"{Decimal(group['hours']):,.2f}" for group in sums], _marked_amounts(sums, format_usd)]
    if document["total"]["on_demand_usd"] is not None:
        headings += ["ON DEMAND", "SAVED"]
        columns.append(_known_amounts((group["on_demand_usd"] for group in sums), format_usd))
        columns.append(_known_amounts((group["savings_usd"] for group in sums), format_usd))
    while _name_width(headings, columns) < MIN_NAME_WIDTH and len(headings) > 2:  # noqa: PLR2004  (hours and cost always stay)
        headings.pop()
        columns.pop()
    headings[1] += " " * (len(columns[1][0]) - len(columns[1][0].rstrip()))
    return _table_text(_HEADINGS.get(document["by"], document["by"].upper()), _group_names(groups), headings, columns)


def _group_names(groups: Sequence[CostGroup]) -> list[str]:
    return [*(group["name"] or "(none)" for group in groups), "total"]


def _most_expensive(groups: Sequence[CostGroup]) -> Sequence[CostGroup]:
    """Return the most expensive groups, and the others as one; all if that would combine only two."""
    if len(groups) <= MAX_GROUPS + 2:
        return groups
    other_groups = groups[MAX_GROUPS:]

    def total(key: Literal["usd", "low_usd", "high_usd", "on_demand_usd", "savings_usd"]) -> str | None:
        amounts = [Decimal(amount) for group in other_groups if (amount := group[key]) is not None]
        return f"{sum(amounts, Decimal())}" if amounts else None

    combined: CostGroup = {
        **other_groups[0],
        "name": f"{len(other_groups)} others (-v)",
        "hours": f"{sum((Decimal(group['hours']) for group in other_groups), Decimal())}",
        "usd": total("usd"),
        "low_usd": total("low_usd"),
        "high_usd": total("high_usd"),
        "on_demand_usd": total("on_demand_usd"),
        "savings_usd": total("savings_usd"),
        "without_price": sum(group["without_price"] for group in other_groups),
        "marks": "".join(mark for mark in _MARKS if any(mark in group["marks"] for group in other_groups)),
    }
    return [*groups[:MAX_GROUPS], combined]


def _table_text(heading: str, names: list[str], headings: list[str], columns: list[list[str]]) -> str:
    """Return the table of names, clipped to the width that the numbers leave, and of numbers."""
    width = max(MIN_NAME_WIDTH, _name_width(headings, columns))
    rows = [[clipped(name, width), *row] for name, row in zip(names, zip(*columns, strict=True), strict=True)]
    return table(rows, [heading, *headings], right=range(1, len(headings) + 1))


def _name_width(headings: list[str], columns: list[list[str]]) -> int:
    column_widths = [max(map(len, (heading, *column))) for heading, column in zip(headings, columns, strict=True)]
    return WIDTH - sum(2 + width for width in column_widths)


def _is_range(cost_sum: CostSum, format_usd: AmountFormatter) -> bool:
    """Return whether the bounds of a cost differ in the digits that are shown."""
    return format_usd(cost_sum["low_usd"]) != format_usd(cost_sum["high_usd"])


def _marked_amounts(sums: Sequence[CostSum], format_usd: AmountFormatter) -> list[str]:
    """Return each amount with one mark behind the last digit: the first that applies.

    All marks are explained below the table.
    """
    marks = [
        ("+" if group["without_price"] and group["usd"] is not None else "")
        or ("*" if _is_range(group, format_usd) else "")
        or next((mark for mark in "?~^!" if mark in group["marks"]), "")
        for group in sums
    ]
    width = max(map(len, marks))
    return [f"{format_usd(group['usd'])}{mark.ljust(width)}" for group, mark in zip(sums, marks, strict=True)]


def _known_amounts(amounts: Iterable[str | None], format_usd: AmountFormatter) -> list[str]:
    return ["" if amount is None else format_usd(amount) for amount in amounts]


def _ranges_table(document: CostDocument, format_usd: AmountFormatter) -> str:
    """Return the table of amounts that are not known exactly; empty if all are."""
    named_sums = zip(_group_names(document["groups"]), (*document["groups"], document["total"]), strict=True)
    ranges = [(name, group_sums) for name, group_sums in named_sums if _is_range(group_sums, format_usd)]
    if not ranges:
        return ""
    columns = [[format_usd(group[name]) for _, group in ranges] for name in ("low_usd", "high_usd")]
    return _table_text("* BETWEEN", [name for name, _ in ranges], ["AT LEAST", "AT MOST"], columns)


def _note_blocks(
    document: CostDocument, format_usd: AmountFormatter, *, verbose: bool, has_chart: bool
) -> Iterator[str]:
    """Yield what is in no sum and what is deducted; `verbose`: with reasons; `has_chart`: without marks."""
    if verbose:
        ranges = _ranges_table(document, format_usd)
        yield f"{ranges}\n{_paragraphs(_range_reasons(document))}" if ranges else ""
    yield _paragraphs(
        _missing_text(document),
        _unmetered_text(document),
        "" if has_chart else _marks_text(document, format_usd, verbose=verbose),
        _interrupted_and_failed_text(document, format_usd),
        _uncompared_text(document) if verbose else "",
    )
    yield (
        _projection_table(document, format_usd) if verbose else _paragraphs(_projection_sentence(document, format_usd))
    )
    yield _paragraphs(
        *_budget_sentences(document, format_usd),
        *_prepaid_sentences(document),
        *_sustained_use_lines(document, format_usd),
        _credits_text(document, format_usd),
        rate_text(document["currency"]),
        _fees_text(document, format_usd),
    )
    if document["desktop"] is not None and (verbose or _is_worth_showing(document, document["desktop"])):
        yield _paragraphs(document["desktop"]["sentence"])


def _is_worth_showing(document: CostDocument, desktop: DesktopLine) -> bool:
    """Return whether to show the desktop: not for cents, nor without an hour of work."""
    spent = Decimal(document["total"]["high_usd"] or 0)
    return Decimal(desktop["hours"]) > 0 and spent * MAX_DESKTOP_RATIO >= Decimal(desktop["total_usd"])


def _paragraphs(*sentences: str) -> str:
    return "\n".join(paragraph(text) for text in sentences if text)


def _period_text(document: CostDocument) -> str:
    """Return the period in words; a midnight of UTC is its date, where days are those of UTC."""
    since, until = (moment and _time_text(moment, document["tz"]) for moment in (document["since"], document["until"]))
    if not until:
        return f"since {since}"
    return " ".join(filter(None, [f"from {since}" if since else "", f"until {until}"]))


def _time_text(text: str, tz: str) -> str:
    return text[:10] if tz == "UTC" and text[11:19] == "00:00:00" else f"{text[:16]}Z"


def _missing_text(document: CostDocument) -> str:
    number = document["total"]["without_price"]
    return f"+ {number} without a price, in no sum: {first_few(document['unpriced'], MAX_NAMED)}." if number else ""


def _unmetered_text(document: CostDocument) -> str:
    """Return the machines whose outgoing traffic is missing; not the last minutes of one whose counter is read."""
    now = document["as_of"]
    overdue = (
        meter
        for meter in document["unmetered"]
        if _minutes_between(meter["since"], meter["until"] or now) >= READ_MINUTES
    )
    names = [meter["name"] for meter in overdue]
    return (
        f"Not in it: bytes out that nobody has read, of {first_few(names, MAX_NAMED)}; -o json says since when."
        if names
        else ""
    )


def _minutes_between(since: str, until: str) -> float:
    return (from_iso(until) - from_iso(since)).total_seconds() / 60


def _range_reasons(document: CostDocument) -> str:
    reasons = document["total"]["reasons"]
    if not reasons:
        return ""
    hidden_text = f" And {len(reasons) - MAX_NAMED} more: -o json has all." if len(reasons) > MAX_NAMED else ""
    return f"Because: {'; '.join(reasons[:MAX_NAMED])}.{hidden_text}"


def _marks_text(document: CostDocument, format_usd: AmountFormatter, *, verbose: bool) -> str:
    marks = document["total"]["marks"]
    message = f"Prices: {', '.join(_MARKS[mark] for mark in marks)}." if marks else ""
    has_ranges = not verbose and any(_is_range(group, format_usd) for group in (*document["groups"], document["total"]))
    return (("* not known exactly; -v says between what, and why. " if has_ranges else "") + message).strip()


def _interrupted_and_failed_text(document: CostDocument, format_usd: AmountFormatter) -> str:
    parts = []
    wasted = (("interrupted", "run", document["interrupted"]), ("failed", "failed launch", document["failed"]))
    for name, kind, cost in wasted:
        noun = {"run": "runs", "failed launch": "failed launches"}[kind] if cost["number"] != 1 else kind
        if cost["number"]:
            parts.append(f"{cost['number']} {noun} {'that the provider interrupted ' if name == 'interrupted' else ''}")
            parts[-1] = f"{parts[-1].strip()}: {format_usd.with_code(cost['usd'])}"
    return f"In it: {'; '.join(parts)}." if parts else ""


def _uncompared_text(document: CostDocument) -> str:
    total = document["total"]
    number = total["without_on_demand"]
    if not number or total["on_demand_usd"] is None:
        return ""
    return f"ON DEMAND and SAVED leave out {counted(number, 'run')} whose on-demand price is not known."


def _costs_continue(document: CostDocument) -> bool:
    """Return whether anything still costs money, and the period is not over."""
    burn = document["burn"]
    return document["projected"] is not None and bool(
        Decimal(burn["usd_per_hour"]) or burn["without_price"] or _burn_parts(burn)
    )


def _projection_sentence(document: CostDocument, format_usd: AmountFormatter) -> str:
    """Return the projected totals at the end of the day and month, and the parts of the burn rate."""
    burn, projections = document["burn"], document["projected"]
    if projections is None or not _costs_continue(document):
        return ""
    only_machines = [kind for kind, _ in _burn_parts(burn)] == [RUNNING_MACHINES] and not burn["without_price"]
    burn_text = "" if only_machines else f"An hour now: {_burn_text(burn, format_usd)}. "
    if projections["end_of_month"]["usd"] is None:
        return burn_text.rstrip()
    day, month = (format_usd.with_code(projections[period]["usd"]) for period in ("end_of_day", "end_of_month"))
    at_least = "at least " if burn["without_price"] or document["total"]["without_price"] else ""
    return f"{burn_text}At this rate: {at_least}{day} by the end of the day, {month} by the end of the month."


def _projection_table(document: CostDocument, format_usd: AmountFormatter) -> str:
    burn, projections = document["burn"], document["projected"]
    if projections is None or not _costs_continue(document):
        return ""
    now = f"Now {_hourly_text(burn, format_usd)} an hour ({_burn_text(burn, format_usd)})."
    rows = [
        ["at the end of the day", _range_text(projections["end_of_day"], format_usd)],
        ["at the end of the month", _range_text(projections["end_of_month"], format_usd)],
        ["at the leases' end", _range_text(projections["leases_end"], format_usd)],
        ["at renew-until", _range_text(projections.get("renew_until"), format_usd)],
    ]
    projected = table(rows, ["PROJECTED", "TOTAL"], right=[1])
    return f"{paragraph(now)}\n{projected}\n{paragraph(projections['assumption'])}"


def _hourly_text(burn: BurnRate, format_usd: AmountFormatter) -> str:
    """Return what an hour costs now: at least that where something has no price, `?` where nothing has one."""
    if burn["without_price"] and not Decimal(burn["usd_per_hour"]):
        return "?"
    return f"{'at least ' if burn['without_price'] else ''}{format_usd.with_code(burn['usd_per_hour'], 2)}"


def _burn_text(burn: BurnRate, format_usd: AmountFormatter) -> str:
    part_texts = [f"{kind} {format_usd.with_code(amount, 2)}" for kind, amount in _burn_parts(burn)]
    unpriced_text = f"; {burn['without_price']} without a price" if burn["without_price"] else ""
    return f"{', '.join(part_texts) or 'nothing known'}{unpriced_text}"


def _burn_parts(burn: BurnRate) -> list[tuple[str, str]]:
    """Return what of the burn rate is not zero, in words and in dollars an hour."""
    parts = [
        (RUNNING_MACHINES, burn["machines_usd_per_hour"]),
        ("stopped machines", burn["stopped_usd_per_hour"]),
        ("retained resources", burn["retained_usd_per_hour"]),
    ]
    return [(kind, amount) for kind, amount in parts if Decimal(amount)]


def _budget_sentences(document: CostDocument, format_usd: AmountFormatter) -> Iterator[str]:
    """Yield how long each budget lasts, one sentence each."""
    for budget in document["budgets"]:
        exhausted_at = budget["exhausted_at"]
        lasts_s = (
            None if exhausted_at is None else (from_iso(exhausted_at) - from_iso(document["as_of"])).total_seconds()
        )
        lasts_text = (
            "lasts to the end of its period"
            if lasts_s is None
            else f"is empty in {short_duration(lasts_s)} at this rate"
        )
        left_text = (
            f"{format_usd.with_code(budget['remaining_usd'])} of {format_usd.with_code(budget['limit_usd'], 0)} left"
        )
        is_used_up = Decimal(budget["remaining_usd"]) <= 0
        yield f"Budget {budget['name']}: {'it is used up' if is_used_up else f'{left_text}; it {lasts_text}'}."


def _prepaid_sentences(document: CostDocument) -> Iterator[str]:
    """Yield the balance of each prepaid account, and how long it lasts at the present rate."""
    for credit in document["prepaid"]:
        yield credit_text(credit, from_iso(document["as_of"]))


def _sustained_use_lines(document: CostDocument, format_usd: AmountFormatter) -> Iterator[str]:
    for discount in document["sustained_use"]:
        usage_text = f"{discount['what']} in {discount['region']}, account {discount['account']}"
        yield (
            f"Sustained use, {discount['month']}: {format_usd.with_code(discount['usd'])} less for {usage_text}, "
            f"{discount['reason']}."
        )


def _credits_text(document: CostDocument, format_usd: AmountFormatter) -> str:
    credit_use = document["credits"]
    if credit_use is None:
        return ""
    credit_texts = [
        f"{credit['name']} {format_usd.with_code(credit['used_usd'])}, "
        f"{format_usd.with_code(credit['remaining_usd'])} left"
        for credit in credit_use["applied"]
    ]
    total = document["total"]
    after_text = "?" if total["usd"] is None else format_usd.with_code(credit_use["after_usd"])
    at_least = "at least " if total["without_price"] and total["usd"] is not None else ""
    return f"After credits ({'; '.join(credit_texts)}): {at_least}{after_text}."


def _range_text(projection: Projection, format_usd: AmountFormatter) -> str:
    if projection["low_usd"] == projection["high_usd"]:
        return format_usd.with_code(projection["usd"])
    return (
        f"{format_usd.with_code(projection['usd'])} ({format_usd(projection['low_usd'])} to "
        f"{format_usd(projection['high_usd'])})"
    )


def _fees_text(document: CostDocument, format_usd: AmountFormatter) -> str:
    fees, total = document["fees"], document["total"]
    if fees["tax_percent"] is None and fees["support_percent"] is None:
        return str(fees["sentence"])
    at_least = "At least " if total["without_price"] and total["usd"] is not None else ""
    return f"{at_least}{format_usd.with_code(fees['total_usd'])} {fees['sentence'][0].lower()}{fees['sentence'][1:]}"
