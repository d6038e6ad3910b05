"""The answer of `cost` as text for 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.cli.render import Amounts, paragraph, rate_text, rounded, table
from cloudgpu.core.values.times import from_iso

if TYPE_CHECKING:
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.documents.money.cost import BurnRate, CostDocument, CostSum, Projection
    from cloudgpu.views.documents.parts import DesktopLine

WIDTH = 80
NARROWEST = 12  # characters that a name is left, however wide the numbers are
NEAR = 10  # times what was spent: a desktop that costs more is not named
FEW = 6  # names, or reasons, that are told one by one
UNREAD_MINUTES = 15  # as often as a counter is read while somebody works on the machine
FINE = Decimal(10)  # dollars: below it amounts are shown with two more digits
_HEADS = {
    "instance": "MACHINE",
    "day": "DAY",
    "week": "WEEK FROM",
}
_MARKS = {"~": "~ derived", "?": "? recalled", "^": "^ assumed", "!": "! dated more than 180 days before"}


def cost_text(document: CostDocument, currency: Currency | None, *, verbose: bool) -> str:
    """Return the table with its totals, and below it what they do not say.

    The desktop is there where the cloud has cost at least a tenth of it for hours of work; `verbose`: always, and
    what the projection assumes.
    """
    if not document["groups"]:
        return _nothing(document)
    largest = max((Decimal(one["high_usd"] or 0) for one in document["groups"]), default=Decimal(0))
    shown = Amounts(currency, 2 if largest < FINE else 0)
    blocks = [_table(document, shown), *_notes(document, shown, verbose=verbose)]
    return "\n\n".join(block for block in blocks if block)


def _nothing(document: CostDocument) -> str:
    if document["since"] is None and document["until"] is None:
        return "Nothing has been spent yet, as far as this ledger knows; no cloud was asked."
    return paragraph(f"Nothing was spent {_period(document)}, as far as this ledger knows; no cloud was asked.")


def _table(document: CostDocument, shown: Amounts) -> str:
    every: tuple[CostSum, ...] = (*document["groups"], document["total"])
    heads = ["HOURS", f"COST{shown.code}"]
    columns = [[f"{Decimal(one['hours']):,.2f}" for one in every], _marked(every, shown)]
    if document["total"]["on_demand_usd"] is not None:
        heads += ["ON DEMAND", "SAVED"]
        columns.append(_known((one["on_demand_usd"] for one in every), shown))
        columns.append(_known((one["savings_usd"] for one in every), shown))
    while _space(heads, columns) < NARROWEST and len(heads) > 2:  # noqa: PLR2004  (hours and cost always stay)
        heads.pop()
        columns.pop()
    heads[1] += " " * (len(columns[1][0]) - len(columns[1][0].rstrip()))
    head = _HEADS.get(document["by"], document["by"].upper())
    return _aligned(head, _names(document), heads, columns)


def _names(document: CostDocument) -> list[str]:
    return [*(one["name"] or "(none)" for one in document["groups"]), "total"]


def _aligned(head: str, names: list[str], heads: list[str], columns: list[list[str]]) -> str:
    """Return the table of names, as long as they may be, and of numbers."""
    width = max(NARROWEST, _space(heads, columns))
    rows = [[_short(name, width), *row] for name, row in zip(names, zip(*columns, strict=True), strict=True)]
    return table(rows, [head, *heads], right=range(1, len(heads) + 1))


def _space(heads: list[str], columns: list[list[str]]) -> int:
    widest = [max(map(len, (head, *column))) for head, column in zip(heads, columns, strict=True)]
    return WIDTH - sum(2 + one for one in widest)


def _marked(every: Sequence[CostSum], shown: Amounts) -> list[str]:
    """Return what each costs, with one mark behind the last digit: of what says most against the amount.

    What is not shown on a line is told below the table, as all marks are.
    """
    marks = [
        ("+" if one["without_price"] and one["usd"] is not None else "")
        or ("" if one["low_usd"] == one["high_usd"] else "*")
        or next((mark for mark in "?~^!" if mark in one["marks"]), "")
        for one in every
    ]
    width = max(map(len, marks))
    return [f"{shown(one['usd'])}{mark.ljust(width)}" for one, mark in zip(every, marks, strict=True)]


def _known(amounts: Iterable[str | None], shown: Amounts) -> list[str]:
    return ["" if one is None else shown(one) for one in amounts]


def _ranges(document: CostDocument, shown: Amounts) -> str:
    """Return between what each amount lies that is not known exactly; empty where all are."""
    every = zip(_names(document), (*document["groups"], document["total"]), strict=True)
    found = [(name, one) for name, one in every if one["low_usd"] != one["high_usd"]]
    if not found:
        return ""
    columns = [[shown(one[name]) for _, one in found] for name in ("low_usd", "high_usd")]
    return _aligned("* BETWEEN", [name for name, _ in found], ["AT LEAST", "AT MOST"], columns)


def _short(name: str, width: int) -> str:
    return name if len(name) <= width else f"{name[: width - 1]}…"


def _notes(document: CostDocument, shown: Amounts, *, verbose: bool) -> Iterator[str]:
    yield "\n".join(filter(None, [_ranges(document, shown), _sentences(_doubts(document))]))
    yield _sentences(_missing(document), _uncounted(document), _marks(document))
    yield _sentences(_lost(document, shown), _uncompared(document))
    yield _to_come(document, shown, verbose=verbose)
    yield _budgets(document, shown)
    yield _sentences(*_sustained(document, shown), _credits(document, shown))
    yield _sentences(rate_text(document["currency"]), _fees(document, shown))
    if document["desktop"] is not None and (verbose or _is_telling(document, document["desktop"])):
        yield _sentences(document["desktop"]["sentence"])


def _is_telling(document: CostDocument, desktop: DesktopLine) -> bool:
    """Say whether a desktop beside what was spent says something: not beside cents, nor without an hour of work."""
    spent = Decimal(document["total"]["high_usd"] or 0)
    return Decimal(desktop["hours"]) > 0 and spent * NEAR >= Decimal(desktop["total_usd"])


def _sentences(*found: str) -> str:
    return "\n".join(paragraph(one) for one in found if one)


def _period(document: CostDocument) -> str:
    since, until = (moment and f"{moment[:16]}Z" for moment in (document["since"], document["until"]))
    return " ".join(filter(None, [f"from {since}" if since else "", f"until {until}" if until else ""]))


def _few(names: list[str]) -> str:
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return f"{', '.join(names[:FEW])}{more}"


def _missing(document: CostDocument) -> str:
    number = document["total"]["without_price"]
    return f"+ {number} without a price, in no sum: {_few(document['unpriced'])}." if number else ""


def _uncounted(document: CostDocument) -> str:
    """Return of whom bytes out are missing; the last minutes of a machine whose counter is read are not told."""
    now = document["as_of"]
    long = (one for one in document["unmetered"] if _minutes(one["since"], one["until"] or now) >= UNREAD_MINUTES)
    names = [one["name"] for one in long]
    return f"Not in it: bytes out that nobody has read, of {_few(names)}; -o json says since when." if names else ""


def _minutes(since: str, until: str) -> float:
    return (from_iso(until) - from_iso(since)).total_seconds() / 60


def _doubts(document: CostDocument) -> str:
    reasons = document["total"]["reasons"]
    if not reasons:
        return ""
    more = f" And {len(reasons) - FEW} more: -o json has all." if len(reasons) > FEW else ""
    return f"Because: {'; '.join(reasons[:FEW])}.{more}"


def _marks(document: CostDocument) -> str:
    found = document["total"]["marks"]
    return f"Prices: {', '.join(_MARKS[mark] for mark in found)}." if found else ""


def _lost(document: CostDocument, shown: Amounts) -> str:
    found = []
    lost = (("interrupted", "run", document["interrupted"]), ("failed", "failed launch", document["failed"]))
    for name, what, one in lost:
        many = {"run": "runs", "failed launch": "failed launches"}[what] if one["number"] != 1 else what
        if one["number"]:
            found.append(f"{one['number']} {many} {'that the provider interrupted ' if name == 'interrupted' else ''}")
            found[-1] = f"{found[-1].strip()}: {shown.with_code(one['usd'])}"
    return f"In it: {'; '.join(found)}." if found else ""


def _uncompared(document: CostDocument) -> str:
    total = document["total"]
    number = total["without_on_demand"]
    if not number or total["on_demand_usd"] is None:
        return ""
    return f"ON DEMAND and SAVED leave out {number} run{'s'[: number != 1]} whose on-demand price is not known."


def _to_come(document: CostDocument, shown: Amounts, *, verbose: bool) -> str:
    burn, found = document["burn"], document["projected"]
    if found is None or not (Decimal(burn["usd_per_hour"]) or burn["without_price"] or _parts_of(burn)):
        return ""
    each = [f"{what} {shown.with_code(amount, 2)}" for what, amount in _parts_of(burn)]
    missing = f"; {burn['without_price']} without a price" if burn["without_price"] else ""
    now = f"now {shown.with_code(burn['usd_per_hour'], 2)} an hour ({', '.join(each) or 'nothing known'}{missing})"
    rows = [
        ["at the end of the day", _range(found["end_of_day"], shown)],
        ["at the end of the month", _range(found["end_of_month"], shown)],
        ["at the leases' end", _range(found["leases_end"], shown)],
        ["at renew-until", _range(found.get("renew_until"), shown)],
    ]
    projected = table(rows, ["PROJECTED", "TOTAL"], right=[1])
    assumes = f"\n{paragraph(found['assumption'])}" if verbose else ""
    return f"{paragraph(f'{now[0].upper()}{now[1:]}.')}\n{projected}{assumes}"


def _parts_of(burn: BurnRate) -> list[tuple[str, str]]:
    """Return what of the burn rate is not zero, in words and in dollars an hour."""
    parts = [
        ("machines that run", burn["machines_usd_per_hour"]),
        ("stopped machines", burn["stopped_usd_per_hour"]),
        ("what is kept", burn["retained_usd_per_hour"]),
    ]
    return [(what, amount) for what, amount in parts if Decimal(amount)]


def _budgets(document: CostDocument, shown: Amounts) -> str:
    """Return how long each budget lasts, one sentence each."""
    found = []
    for one in document["budgets"]:
        empty = one["exhausted_at"]
        seconds = None if empty is None else (from_iso(empty) - from_iso(document["as_of"])).total_seconds()
        lasts = "lasts to the end of its period" if seconds is None else f"is empty in {rounded(seconds)} at this rate"
        left = f"{shown.with_code(one['remaining_usd'])} of {shown.with_code(one['limit_usd'])} left"
        over = Decimal(one["remaining_usd"]) <= 0
        found.append(f"Budget {one['name']}: {'it is used up' if over else f'{left}; it {lasts}'}.")
    return _sentences(*found)


def _sustained(document: CostDocument, shown: Amounts) -> Iterator[str]:
    for one in document["sustained_use"]:
        where = f"{one['what']} in {one['region']}, account {one['account']}"
        yield f"Sustained use, {one['month']}: {shown.with_code(one['usd'])} less for {where}, {one['reason']}."


def _credits(document: CostDocument, shown: Amounts) -> str:
    found = document["credits"]
    if found is None:
        return ""
    uses = [
        f"{one['name']} {shown.with_code(one['used_usd'])}, {shown.with_code(one['remaining_usd'])} left"
        for one in found["applied"]
    ]
    return f"After credits ({'; '.join(uses)}): {shown.with_code(found['after_usd'])}."


def _range(one: Projection, shown: Amounts) -> str:
    if one["low_usd"] == one["high_usd"]:
        return shown.with_code(one["usd"])
    return f"{shown.with_code(one['usd'])} ({shown(one['low_usd'])} to {shown(one['high_usd'])})"


def _fees(document: CostDocument, shown: Amounts) -> str:
    fees = document["fees"]
    if fees["total_usd"] is None:
        return str(fees["sentence"])
    return f"{shown.with_code(fees['total_usd'])} {fees['sentence'][0].lower()}{fees['sentence'][1:]}"
