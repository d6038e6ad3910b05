"""The answer of `estimate` as text for 80 columns: who is cheapest, of what that is made up, what it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cloudgpu.cli.render import PRICE_MARKS, dollars, paragraph, table
from cloudgpu.core.money import Money

if TYPE_CHECKING:
    from cloudgpu.core.currency import Currency

Document = dict[str, Any]
Columns = list[tuple[str, list[str]]]
WIDTH = 80
_CUTS = {2: 11, 1: 16}  # the place and the type, and the characters that they are left at least
MAIN = 1  # the column of numbers that stays to the last
PARTS = 12  # rows of which the parts are shown
DEAR = Decimal(1000)  # dollars: from here on without cents
NAMED = 4  # types that a reason names before it says how many more
_MARKS = "m+<~?!"
FEW = 100  # hours: below it with two digits
_STAND_INS = {"memory bandwidth": "bw", "dense tensor TFLOPs": "tf", "FP32 TFLOPs": "fp"}
_WISHES = {
    "gpu": "--gpu",
    "gpu_count": "the number of GPUs",
    "provider": "--provider",
    "region": "--region",
    "market": "--spot",
    "type": "--type",
}


def estimate_text(document: Document, currency: Currency | None) -> str:
    """Return the table of costs, that of their parts, and below them what they rest on and do not say."""
    if not document["estimates"]:
        return _nothing(document)
    shown = _Amounts(currency)
    blocks = [_costs(document, shown), _parts(document, shown), *_notes(document, shown)]
    return "\n\n".join(block for block in blocks if block)


class _Amounts:
    """Shows decimal USD text in one currency."""

    def __init__(self, currency: Currency | None) -> None:
        self.currency = currency
        self.code = f" {currency.code}" if currency else ""

    def __call__(self, text: str | None) -> str:
        """Return an amount of a table; a missing one is `?`, never zero."""
        if text is None:
            return "?"
        amount = Money.usd(Decimal(text))
        if self.currency is not None:
            return self.currency.text(amount)
        return amount.text(0 if amount.dollars >= DEAR else 2).replace("$", "")

    def with_code(self, text: str | None) -> str:
        """Return an amount as prose has it."""
        return f"{self(text)}{self.code}" if self.currency else dollars(text)


def _finite(document: Document) -> bool:
    return document["estimates"][0]["in_all"] is not None


def _costs(document: Document, shown: _Amounts) -> str:
    found = document["estimates"]
    many = document["asked"]["number"]
    numbers = _of_work(found, shown) if _finite(document) else _of_time(found, shown)
    text = _fitted(["GPU", "TYPE", "WHERE"], [_offer(one) for one in found], numbers, _CUTS)
    return f"{many:,} machines, together:\n{text}" if many > 1 else text


def _of_time(found: Sequence[Document], shown: _Amounts) -> Columns:
    return [
        ("DAY", _plain(found, "day", shown)),
        (f"MONTH{shown.code}", _marked(_plain(found, "month", shown), map(_marks, found))),
        ("YEAR", _plain(found, "year", shown)),
    ]


def _of_work(found: Sequence[Document], shown: _Amounts) -> Columns:
    columns = [
        ("HOURS", _marked([_hours(one["in_all"]["hours"]) for one in found], map(_rests, found))),
        (f"COST{shown.code}", _marked(_plain(found, "in_all", shown), map(_marks, found))),
    ]
    if any(one["low"] != one["high"] for one in found):
        ends = zip(_plain(found, "low", shown), _plain(found, "high", shown), strict=True)
        columns.append(("BETWEEN", [f"{low}-{high}" for low, high in ends]))
    return columns


def _hours(text: str) -> str:
    hours = Decimal(text)
    return f"{hours:,.2f}" if hours < FEW else f"{hours:,.0f}"


def _rests(one: Document) -> str:
    """Return the mark of hours by a stand-in for the speed, as `gpus` has it."""
    return "" if one["times_as_fast"] is None else _STAND_INS.get(one["times_as_fast"]["rests"], "")


def _offer(one: Document) -> list[str]:
    gpu = one["gpu"] + ("?" if one["recalled"] or one["peak_recalled"] else "")
    doubtful = one["legacy"] or (one["spot_only"] and one["market"] != "spot")
    return [f"{_count(one)} {gpu}", f"{_short(one)}{'*' if doubtful else ''}", f"{one['provider']} {one['region']}"]


def _count(one: Document) -> str:
    if one["share"] < 1:
        return str(Fraction(one["share"]).limit_denominator(8))
    return f"{one['count']}x"


def _short(one: Document) -> str:
    return str(one["instance_type"]).removeprefix("Standard_")


def _plain(found: Sequence[Document], name: str, shown: _Amounts) -> list[str]:
    return [shown(one[name]["usd"]) for one in found]


def _marked(amounts: Sequence[str], marks: Iterable[str]) -> list[str]:
    """Return amounts with their marks behind the last digit, so that the digits are under one another."""
    each = list(marks)
    width = max(map(len, each))
    return [f"{amount}{mark.ljust(width)}" for amount, mark in zip(amounts, each, strict=True)]


def _marks(one: Document) -> str:
    """Return the marks of all prices of an offer, each once."""
    every = "".join(
        [
            "" if one["fits"] else "m",
            _trust(one["price"]["basis"], one["old"]),
            *(_mark(thing) for thing in one["beside"]),
        ]
    )
    return "".join(mark for mark in _MARKS if mark in every)


def _mark(thing: Document) -> str:
    if thing["usd"] is None:
        return "+"
    return ("<" if thing["at_most"] else "") + _trust(thing["basis"], thing["old"])


def _trust(basis: str | None, old: bool) -> str:
    return PRICE_MARKS.get(basis or "", "") + ("!" if old else "")


def _parts(document: Document, shown: _Amounts) -> str:
    """Return of what the first rows are made up, with the marks of each price: the parts add up to the sum."""
    found = document["estimates"][:PARTS]
    name = "in_all" if _finite(document) else "month"
    numbers = [
        (f"{shown.code.strip() or '$'}/H", _marked([_hourly(one, shown) for one in found], map(_price_marks, found))),
        ("MACHINE", [shown(one[name]["machine_usd"]) for one in found]),
        *((part.upper(), _part(found, name, part, shown)) for part in ("disk", "address")),
        ("IN ALL" if _finite(document) else "A MONTH", _plain(found, name, shown)),
    ]
    more = len(document["estimates"]) - len(found)
    text = _fitted(["OF WHICH", "AT"], [[_short(one), one["provider"]] for one in found], numbers, {0: _CUTS[1]})
    return text + (f"\n... and {more} more: -o json has the parts of all." if more else "")


def _price_marks(one: Document) -> str:
    return ("c" if one["committed"] else "") + _trust(one["price"]["basis"], one["old"])


def _hourly(one: Document, shown: _Amounts) -> str:
    amount = Money.usd(Decimal(one["paid_usd_per_hour"]))
    return amount.text(4)[1:] if shown.currency is None else shown.currency.text(amount, 2)


def _part(found: Sequence[Document], name: str, part: str, shown: _Amounts) -> list[str]:
    texts = [one[name][f"{part}_usd"] for one in found]
    marks = ["".join(dict.fromkeys("".join(_mark(it) for it in one["beside"] if it["part"] == part))) for one in found]
    return _marked(["-" if text == "0" else shown(text) for text in texts], (mark.replace("+", "") for mark in marks))


def _fitted(heads: list[str], rows: list[list[str]], numbers: Columns, cuts: dict[int, int]) -> str:
    """Return the table with texts cut, and numbers left out, as far as it would be too wide.

    `cuts` are the columns of text that may be cut, each with the characters that it is left at least; the first of
    them is cut last.
    """
    widths = [max(len(row[at]) for row in [heads, *rows]) for at in range(len(heads))]
    least = [min(width, cuts.get(at, width)) for at, width in enumerate(widths)]
    while sum(least) > _room(heads, numbers) and len(numbers) > 1:
        numbers = [numbers[MAIN]] if len(numbers) == MAIN + 1 else numbers[:-1]
    spare = max(0, _room(heads, numbers) - sum(least))
    for at in cuts:
        more = min(spare, widths[at] - least[at])
        least[at], spare = least[at] + more, spare - more
    short = [[_cut(text, room) for text, room in zip(row, least, strict=True)] for row in rows]
    cells = [[*row, *values] for row, values in zip(short, zip(*(one for _, one in numbers), strict=True), strict=True)]
    names = [_over(head, values) for head, values in numbers]
    return table(cells, [*heads, *names], right=range(len(heads), len(heads) + len(numbers)))


def _room(heads: list[str], numbers: Columns) -> int:
    """Return how many characters the numbers leave to the texts."""
    return WIDTH - sum(max(map(len, (head, *cells))) + 2 for head, cells in numbers) - 2 * (len(heads) - 1)


def _over(head: str, values: Sequence[str]) -> str:
    """Return a heading that ends over the last digit, before the marks."""
    return head + " " * min(len(one) - len(one.rstrip(" m+<~?!cbwtfp")) for one in values)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 4]}..{text[-2:]}"


def _notes(document: Document, shown: _Amounts) -> Iterator[str]:
    found = document["estimates"]
    yield "\n".join(paragraph(one) for one in (_dates(document), *document["assumptions"], *_sustained(found, shown)))
    yield "\n".join(paragraph(one) for one in (*_mark_notes(document), *_legacy(found), *_left_out(document)))
    yield "\n".join(paragraph(one) for one in (_currency(document), _fees(document, shown)) if one)


def _dates(document: Document) -> str:
    found = document["estimates"]
    days = sorted(one["price"]["as_of"][:10] for one in found)
    span = f"of {days[0]}" if days[0] == days[-1] else f"of {days[0]} to {days[-1]}"
    asked = document["asked"]
    where = f"in {asked['region']}" if asked["region"] else "where each is cheapest"
    market = "Spot" if asked["market"] == "spot" else "On-demand"
    return f"{market} list prices {span}, {where}; -o json has the source of each. `up` shows what it will pay."


def _mark_notes(document: Document) -> Iterator[str]:
    found = document["estimates"]
    marks = "".join(_marks(one) for one in found)
    if "+" in marks:
        yield f"+ {_unpriced(found)}"
    if "<" in marks:
        yield "< at most: a disk or address has no price there, and the dearest known of its kind stands in."
    if "~" in marks:
        yield f"~ derived: {'; '.join(_derived(found))}."
    if "?" in marks or any(one["recalled"] or one["peak_recalled"] for one in found):
        yield "? recalled: from memory, in no source; after a GPU: its share, number, market or peak."
    if "!" in marks:
        yield f"! old: a price is from more than {document['old_after_days']} days ago, or has no date."
    stand_ins = {_rests(one): one["times_as_fast"]["rests"] for one in found if _rests(one)}
    if stand_ins:
        said = ", ".join(f"{mark} {rests}" for mark, rests in sorted(stand_ins.items()))
        yield f"{said}: how fast it is at this work was not measured, and this stands in for it."
    if any(not one["fits"] for one in found):
        past = document["past"]
        yield (
            f"m less memory per GPU than {past['name']} had ({past['gpu_memory_gib']:g} GiB): whether the work fits is "
            "not known, so these stand last."
        )
    if any(one["committed"] for one in found):
        yield "c committed: what is paid for each hour of the term."
    if any(one["provider"] == "azure" and one["market"] == "spot" for one in found):
        yield "Azure's spot prices have moved since: many later ones equal the list price."


def _derived(found: Sequence[Document]) -> Iterator[str]:
    """Yield how the derived prices of each provider were made, as `gpus` says it."""
    providers = {one["provider"] for one in found if one["price"]["basis"] == "derived"}
    if "aws" in providers:
        yield "EC2 spot is the list price less the published savings, off by -22% to +80% where observed"
    if "gcp" in providers:
        yield "Google's machines are their parts added up"
    if not providers:
        yield "the price of a disk or an address, from others"


def _unpriced(found: Sequence[Document]) -> str:
    kinds = {
        f"{thing['part']} {thing['kind']} at {one['provider']}": None
        for one in found
        for thing in one["beside"]
        if thing["usd"] is None
    }
    return f"not priced, and in no sum: {', '.join(kinds)}."


def _legacy(found: Sequence[Document]) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for one in found:
        reason = one["legacy"] or ("not sold on demand, only as spot (recalled)" if one["spot_only"] else "")
        if reason and (one["legacy"] or one["market"] != "spot"):
            reasons.setdefault(reason, []).append(_short(one))
    for reason, names in reasons.items():
        yield f"* legacy: {reason}: {_some(names)}."


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _left_out(document: Document) -> Iterator[str]:
    asked, means = document["asked"], document["means"]
    if len(means) > 1:
        yield f"{asked['gpu']} means {', '.join(means[:-1])} or {means[-1]}; each row says which."
    if document["withheld"]:
        yield f"Old types, hardly launched any more, with --all: {_some(document['withheld'])}."
    reasons: dict[str, list[str]] = {}
    for one in document["left_out"]:
        reasons.setdefault(one["why"], []).append(one["gpu"])
    for why, names in reasons.items():
        yield f"Left out: {', '.join(names)}: {why}."


def _sustained(found: Sequence[Document], shown: _Amounts) -> Iterator[str]:
    due = [one for one in found if one["sustained_use_usd"] is not None]
    if due:
        first = due[0]
        yield (
            f"Google takes something off N1 machines that run long in a month (sustained use; an estimate, in no sum): "
            f"off {_short(first)} {shown.with_code(first['sustained_use_usd'])} a month."
        )


def _currency(document: Document) -> str:
    rate = document["currency"]
    if rate is None:
        return ""
    source = f" ({rate['source']})" if rate["source"] else ""
    return f"1 USD = {rate['per_usd']} {rate['code']}, rate of {rate['as_of']}{source}, for every amount."


def _fees(document: Document, shown: _Amounts) -> str:
    first, sentence = document["estimates"][0], document["fees"]
    if first["with_fees_usd"] is None:
        return str(sentence)
    what = "in all" if _finite(document) else "a month"
    return f"The first: {shown.with_code(first['with_fees_usd'])} {what} {sentence[0].lower()}{sentence[1:]}"


def _nothing(document: Document) -> str:
    lines = ["Nothing in the catalogue fits."]
    for other in document["without"]:
        what = "With --all" if other["wish"] == "legacy" else f"Without {_WISHES[other['wish']]}"
        types = f"{other['types']} type" + ("s" if other["types"] > 1 else "")
        lines.append(f"{what}: {types}, from {dollars(other['usd_per_hour'], 4)} an hour.")
    lines += _left_out(document)
    if document["precisions"]:
        lines.append(f"Known of these GPUs: --precision {' or '.join(document['precisions'])}.")
    if not document["without"] and not document["left_out"]:
        lines.append("No single wish is in the way: leave out two. All there is: cloudgpu gpus --all")
    return "\n".join(paragraph(line) for line in lines)
