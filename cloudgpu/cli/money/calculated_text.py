"""The answer of `compare` without a ledger as text for 80 columns, and the table of desktops."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.cli.render import Amounts, facts, paragraph, rate_text, table, wrapped
from cloudgpu.core.values.money import Money

if TYPE_CHECKING:
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.documents.money.rent_or_buy import (
        CalculatedDocument,
        CatalogOffer,
        CurvePoint,
        DesktopProfile,
        DesktopsDocument,
        Outcome,
        Outcomes,
        QuotedPrice,
    )

MONTH = 365 / 12
YEAR = 365
DEAREST = 100_000  # dollars an hour; no machine is, and no price above it is a help


def calculated_text(document: CalculatedDocument, currency: Currency | None) -> str:
    """Return the sentence, what it rests on, and what either has cost after some times."""
    shown = _Amounts(currency)
    blocks = [paragraph(document["sentence"]), facts(list(_head(document, shown)))]
    several, life = len(document["answers"]) > 1, document["desktop"]["life_years"]
    for answer in document["answers"]:
        blocks.append(facts(list(_answer(answer, life, shown, several=several))))
        blocks.append(_curve(answer["expected"]["curve"], shown))
    blocks += [paragraph(text) for text in (_why(document), _beside(document)) if text]
    blocks.append("\n".join(_item(text) for text in document["assumptions"]))
    blocks += [paragraph(text) for text in (rate_text(document["currency"]), _source(document["desktop"])) if text]
    return "\n\n".join(block for block in blocks if block)


class _Amounts(Amounts):
    def price(self, text: str) -> str:
        """Return a price: whole cents as such, others with four digits."""
        return self.with_code(text, 0 if len(text.partition(".")[2]) <= 2 else 2)  # noqa: PLR2004  (cents)

    def short(self, text: str) -> str:
        """Return an amount without its cents, where that says enough."""
        return self.with_code(text, -2 if Decimal(text) >= 10 or text == "0" else 0)  # noqa: PLR2004  (dollars)


def _head(document: CalculatedDocument, shown: _Amounts) -> Iterator[tuple[str, str | None]]:
    cloud, desktop = document["cloud"], document["desktop"]
    what = f"{cloud['gpus']}x {cloud['gpu']}" if cloud["gpu"] else "a machine"
    yield "rented", f"{what} at {shown.price(cloud['usd_per_hour'])} an hour{_offer(cloud['offer'])}"
    yield "owned", _desktop(desktop, shown)
    yield "typed", ", ".join(desktop["changed"]) or None


def _why(document: CalculatedDocument) -> str | None:
    """Return why the published example has another day: of other desktops, or other figures, nobody has read one."""
    desktop, why = document["desktop"], document["why_they_differ"]
    return why if desktop["source"].startswith("published example") and not desktop["changed"] else None


def _item(text: str) -> str:
    return wrapped(text, "- ", "  ")


def _source(desktop: DesktopProfile) -> str:
    but = " Except what was typed." if desktop["changed"] else ""
    return f"Where {desktop['name']} is from: {desktop['source'].rstrip('.')}; as of {desktop['as_of']}.{but}"


def _offer(offer: CatalogOffer | None) -> str:
    if offer is None:
        return ""
    market = offer["market"].replace("_", "-")
    basis = f", {offer['basis']}" if offer["basis"] in ("derived", "recalled") else ""
    old = ", more than 180 days old" if offer["old"] else ""
    legacy = f"; {offer['legacy']}" if offer["legacy"] else ""
    where = f"{offer['provider']} {offer['instance_type']} in {offer['region']}"
    return f", the cheapest {market} one listed: {where}, as of {offer['as_of'][:10]}{basis}{old}{legacy}"


def _desktop(one: DesktopProfile, shown: _Amounts) -> str:
    quoted = one["quoted"]
    cards = one["gpu"] if one["gpus"] == 1 else f"{one['gpus']}x {one['gpu']}"
    power = f"{one['gpus']}x {one['gpu_watts']} W" if one["gpus"] > 1 else f"{one['gpu_watts']} W"
    price, said = shown.short(one["purchase_usd"]), ""
    if quoted is not None:
        amount = "" if _quoted(quoted) == price else f"{_quoted(quoted)} "
        said = f" ({amount}at {quoted['per_usd']} of {quoted['as_of']})"
    yearly, resale = one["maintenance_usd_per_year"], one["resale_usd"]
    more = [
        f"PUE {one['pue']:g}" if one["pue"] != 1 else "",
        f"maintenance {shown(yearly)} a year" if yearly != "0" else "",
        f"resale {shown(resale)}" if resale != "0" else "",
    ]
    parts = [
        f"{one['name']}, {cards} for {price}{said}",
        f"{power} + {one['rest_watts']} W at work, {one['idle_watts']} W while it waits",
        f"{shown.price(one['usd_per_kwh'])} per kWh",
        f"lasts {_years(one['life_years'])}",
        *more,
    ]
    return "; ".join(filter(None, parts))


def _quoted(quoted: QuotedPrice) -> str:
    return f"{Decimal(quoted['amount']):,f} {quoted['code']}"


def _answer(answer: Outcomes, life: float, shown: _Amounts, *, several: bool) -> Iterator[tuple[str, str | None]]:
    one, hours = answer["expected"], answer["hours_per_day"]
    if several:
        yield "used", f"{answer['utilization_percent']:g}% of the time, {hours:.1f} hours a day"
    number = one["desktops"]
    work = f"{number:,}: it is {one['desktop_hours_per_day']:,.1f} desktop hours of work a day"
    yield "desktops", work if number > 1 else None
    yield "electricity", f"{one['kwh_per_year']:,.0f} kWh and {shown.short(one['electricity_usd_per_year'])} a year"
    yield "break-even", _even(answer)
    yield "by use", _by_use(one, life)
    yield "by price", _by_price(one["break_even_usd_per_hour"], life, shown)


def _by_use(one: Outcome, life: float) -> str:
    percent, several = one["break_even_utilization_percent"], one["desktops"] > 1
    which, most = ("one desktop", ", up to what it can do") if several else ("the desktop", "")
    if percent is None:
        return "a desktop that works all the time is dearer still"
    if not percent:
        return f"over {_years(life)} {which} is cheaper at any use"
    much = f"{percent:.1f}".removesuffix(".0") if percent >= 0.05 else "<0.1"  # noqa: PLR2004  (what is shown)
    use = f"a use of more than {much}% of the time"
    if percent > 100:  # noqa: PLR2004  (per cent)
        use = f"more than {percent / 100:.1f} machines at any time"
    return f"over {_years(life)} {which} is cheaper with {use} at this price{most}"


def _by_price(price: str | None, life: float, shown: _Amounts) -> str | None:
    if price is None or Decimal(price) > DEAREST:
        return None
    above = f"if an hour costs more than {shown.with_code(price, 2)} at this use" if Decimal(price) else "at any price"
    return f"over {_years(life)} the desktop is cheaper {above}"


def _even(answer: Outcomes) -> str:
    one = answer["expected"]
    if one["break_even_days"] is None:
        return "never, within 30 years"
    if one["break_even_days"] < 0.05:  # noqa: PLR2004  (the hour from which both are looked at)
        return "from the first hour on"
    bounds = [answer["high"]["break_even_days"], answer["low"]["break_even_days"]]
    texts = ["never" if each is None else f"{each:,.0f}" for each in bounds]
    between = "" if texts[0] == texts[1] else f" ({texts[0]} to {texts[1]})"
    return f"{_days(one['break_even_days'])}{between}"


def _days(number: float) -> str:
    months = f", {number / MONTH:.1f} months" if number >= 2 * MONTH else ""
    return f"{number:,.2f} days{months}"


def _years(number: float) -> str:
    return f"{number:g} year{'s' * (number != 1)}"


def _curve(curve: list[CurvePoint], shown: _Amounts) -> str:
    rows = [
        [
            _after(one["days"]),
            shown(one["cloud_usd"]),
            shown(one["desktop_usd"]),
            "desktop" if Decimal(one["desktop_usd"]) <= Decimal(one["cloud_usd"]) else "cloud",
        ]
        for one in curve
    ]
    return table(rows, ["AFTER", f"CLOUD{shown.code}", f"DESKTOP{shown.code}", "CHEAPER"], right=(1, 2))


def _after(days: float) -> str:
    years = days / YEAR
    if years >= 1 and abs(years - round(years, 1)) < 1e-6:  # noqa: PLR2004  (what rounding leaves)
        return _years(round(years, 1))
    months = days / MONTH
    if abs(months - round(months)) < 1e-4:  # noqa: PLR2004  (the same)
        return f"{round(months)} month{'s' * (round(months) != 1)}"
    return f"{days:,.0f} day{'s' * (round(days) != 1)}"


def _beside(document: CalculatedDocument) -> str:
    beside = document["with_known_speeds"]
    if beside is None:
        return ""
    every, speed = beside["answers"], beside["speed"]
    parts = [_even(one) if len(every) == 1 else f"{_even(one)} at {one['utilization_percent']:g}%" for one in every]
    fast = f"{document['desktop']['gpu']} counted as {speed['ratio']:.2f} times as fast, by {speed['basis']}"
    return f"With {fast}: {'; '.join(parts)}."


def desktops_text(document: DesktopsDocument) -> str:
    """Return the table of desktops: what each is, costs and takes, and as of when."""
    rows = []
    for one in document["desktops"]:
        cards = one["gpu"] if one["gpus"] == 1 else f"{one['gpus']}x {one['gpu']}"
        watts = one["gpus"] * one["gpu_watts"] + one["rest_watts"]
        price = Money.usd(Decimal(one["purchase_usd"])).text(0)
        quoted = "" if one["quoted"] is None else _quoted(one["quoted"])
        tariff = Money.usd(Decimal(one["usd_per_kwh"])).text(3)[1:]
        rows.append([one["name"], cards, price, quoted, f"{watts:g}", tariff, one["as_of"]])
    return table(rows, ["NAME", "GPU", "PRICE", "QUOTED", "WATTS", "$/KWH", "AS OF"], right=(2, 3, 4, 5))
