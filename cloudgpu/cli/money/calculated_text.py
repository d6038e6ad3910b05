"""The answer of `compare` without a ledger as text for 80 columns, and the table of desktops."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.cli.render import AmountFormatter, labelled_lines, paragraph, rate_text, table, wrapped
from cloudgpu.cli.terminal import columns
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import counted

if TYPE_CHECKING:
    from cloudgpu.core.values.currency import Currency
    from cloudgpu.views.documents.money.rent_or_buy import (
        CatalogOffer,
        CurvePoint,
        DesktopProfile,
        DesktopsDocument,
        Outcome,
        Outcomes,
        QuotedPrice,
        RentedMachine,
        RentOrBuyDocument,
    )

MONTH, YEAR = 365 / 12, 365  # days
SHORT_ROWS = 4  # of the table of years
NO_CENTS_FROM = 100  # dollars; smaller amounts are shown with cents
MAX_PRICE = 100_000  # dollars an hour; no machine costs more, and a higher break-even price is not shown


def calculated_text(
    document: RentOrBuyDocument,
    currency: Currency | None,
    *,
    verbose: bool = True,
    sources: bool = True,
    chart: bool = False,
) -> str:
    """Return the answer and a table; with `verbose` its assumptions, with `sources` the sources of the figures.

    With `chart` the years are drawn instead of the table.
    """
    format_usd = _ComparisonAmountFormatter(currency)
    sentences = [document["sentence"], document["crossing"], *document["remarks"]]
    blocks = [
        "\n".join(paragraph(text) for text in sentences if text),
        *([years_chart(document)] if chart else []),
        *(
            _evidence_blocks(document, format_usd)
            if verbose
            else _short_text(document, format_usd, has_table=not chart)
        ),
    ]
    if sources:
        blocks += [
            paragraph(text) for text in (_resale_source_text(document), _source_text(document["desktop"])) if text
        ]
    return "\n\n".join(block for block in blocks if block) + more_text(verbose=verbose, sources=sources)


def more_text(*, verbose: bool, sources: bool) -> str:
    """Return a line with the options that show more; empty if all is shown."""
    hints = [
        *([] if verbose else ["-v: what this rests on."]),
        *([] if sources else ["--sources: where it is from."]),
    ]
    return f"\n{paragraph(' '.join(hints))}" if hints else ""


def years_chart(document: RentOrBuyDocument) -> str:
    """Return both costs over the years as lines, in US dollars."""
    from cloudgpu.cli.money.chart import line_chart

    points = document["timeline"]
    series = {
        "cloud": [(point["years"], float(point["cloud_usd"])) for point in points],
        "desktop, sold then": [(point["years"], float(point["sold_usd"])) for point in points],
        "desktop, unsold": [(point["years"], float(point["unsold_usd"])) for point in points],
    }
    if all(point["sold_usd"] == point["unsold_usd"] for point in points):
        series = {"cloud": series["cloud"], "desktop": series["desktop, unsold"]}
    return f"{line_chart(series, columns())}\nUS dollars by year"


def _short_text(
    document: RentOrBuyDocument, format_usd: _ComparisonAmountFormatter, *, has_table: bool
) -> Iterator[str]:
    """Yield the years as a table, or two utilizations, and the source of the price."""
    if len(document["answers"]) > 1:
        yield _usage_table(document, format_usd)
    elif has_table:
        yield _years_table(document["answers"][0]["expected"]["curve"], document["years"], format_usd)
    cloud = document["cloud"]
    yield "\n".join(
        paragraph(text)
        for text in (
            _price_source(cloud, format_usd),
            rate_text(document["currency"]),
        )
        if text
    )


def _price_source(cloud: RentedMachine, format_usd: _ComparisonAmountFormatter) -> str:
    """Return the source of the price; empty if it was typed."""
    offer = cloud["offer"]
    if offer is None:
        return ""
    caveat_texts = [
        offer["basis"] if offer["basis"] in ("derived", "unverified") else "",
        "old" if offer["old"] else "",
    ]
    caveats = dict.fromkeys([*caveat_texts, offer["uncertain"] or ""])
    lead_text = "Cheapest spot" if offer["market"] == "spot" else "Cheapest"
    caveat_text = "".join(f", {caveat}" for caveat in caveats if caveat) + (
        f"; {offer['legacy']}" if offer["legacy"] else ""
    )
    return (
        f"{lead_text}: {offer['provider']} {str(offer['instance_type']).removeprefix('Standard_')} in "
        f"{offer['region']}, "
        f"{format_usd.price(cloud['usd_per_hour'])} an hour ({offer['as_of'][:10]}{caveat_text})."
    )


def _years_table(curve: list[CurvePoint], years: float, format_usd: _ComparisonAmountFormatter) -> str:
    """Return what each has cost after each year, if the desktop is sold then; a few of many years."""
    whole_years = [point for point in curve if point["days"] >= YEAR and not point["days"] % YEAR]
    last_points = [point for point in curve if point["days"] == curve[-1]["days"]]
    half_year_points = [point for point in curve if abs(point["days"] - YEAR / 2) < 1]
    rows = list({row["days"]: row for row in (*half_year_points, *whole_years, *last_points)}.values())
    rows = sorted((row for row in rows if row["days"] <= years * YEAR + 1), key=lambda row: row["days"])
    rows = rows[1:] if len(rows) > SHORT_ROWS and rows[0]["days"] < YEAR else rows
    shown_rows = rows if len(rows) <= SHORT_ROWS else [*rows[: SHORT_ROWS - 1], rows[-1]]
    cells = [
        [
            _days_text(row["days"]),
            format_usd.for_table(row["cloud_usd"]),
            format_usd.for_table(str(Decimal(row["net_usd"]) + Decimal(row["sold_for_usd"]))),
            format_usd.for_table(row["sold_for_usd"]),
            format_usd.for_table(row["net_usd"]),
            "desktop" if Decimal(row["net_usd"]) <= Decimal(row["cloud_usd"]) else "cloud",
        ]
        for row in shown_rows
    ]
    code = format_usd.code
    return table(cells, ["AFTER", f"CLOUD{code}", "PAID", "SOLD FOR", f"DESKTOP{code}", "CHEAPER"], right=(1, 2, 3, 4))


def _usage_table(document: RentOrBuyDocument, format_usd: _ComparisonAmountFormatter) -> str:
    rows = [
        [
            f"{year['utilization_percent']:g}%",
            format_usd.for_table(year["cloud_usd"]),
            format_usd.for_table(year["paid_usd"]),
            format_usd.for_table(year["sold_for_usd"]),
            format_usd.for_table(year["desktop_usd"]),
            year["cheaper"],
        ]
        for year in document["over_years"]
    ]
    code = format_usd.code
    return table(rows, ["USED", f"CLOUD{code}", "PAID", "SOLD FOR", f"DESKTOP{code}", "CHEAPER"], right=(1, 2, 3, 4))


def _evidence_blocks(document: RentOrBuyDocument, format_usd: _ComparisonAmountFormatter) -> Iterator[str]:
    yield labelled_lines(list(_facts(document, format_usd)))
    sentence = document["break_even_sentence"]
    yield paragraph(f"Counted as it is paid: {sentence[:1].lower()}{sentence[1:]}")
    shows_utilization, life_years = len(document["answers"]) > 1, document["desktop"]["life_years"]
    for answer in document["answers"]:
        yield labelled_lines(list(_answer_facts(answer, life_years, format_usd, shows_utilization=shows_utilization)))
        yield _curve_table(answer["expected"]["curve"], format_usd)
    yield from (paragraph(text) for text in (_why_other_break_even(document), _speed_text(document)) if text)
    yield "\n".join(wrapped(text, "- ", "  ") for text in document["assumptions"])
    yield paragraph(rate_text(document["currency"])) if document["currency"] else ""


def _resale_source_text(document: RentOrBuyDocument) -> str:
    source = document["resale_source"]
    return f"What a used desktop brings: {source}." if source else ""


class _ComparisonAmountFormatter(AmountFormatter):
    """Formats the amounts of a comparison: fewer digits the larger they are."""

    def for_table(self, usd: str) -> str:
        """Return an amount for a table, without cents if it is large."""
        return self(usd, 0 if Decimal(usd) < NO_CENTS_FROM and Decimal(usd) else -2)

    def price(self, usd: str) -> str:
        """Return a price: whole cents with two digits, others with four."""
        return self.with_code(usd, 0 if len(usd.partition(".")[2]) <= 2 else 2)  # noqa: PLR2004  (cents)

    def for_facts(self, usd: str) -> str:
        """Return an amount with its currency, without cents if it is large."""
        return self.with_code(usd, -2 if Decimal(usd) >= 10 or usd == "0" else 0)  # noqa: PLR2004  (dollars)


def _facts(document: RentOrBuyDocument, format_usd: _ComparisonAmountFormatter) -> Iterator[tuple[str, str | None]]:
    cloud, desktop = document["cloud"], document["desktop"]
    gpus_text = f"{cloud['gpus']}x {cloud['gpu']}" if cloud["gpu"] else "a machine"
    yield "rented", f"{gpus_text} at {format_usd.price(cloud['usd_per_hour'])} an hour{_offer_text(cloud['offer'])}"
    yield "owned", _desktop_text(desktop, format_usd)
    yield "typed", ", ".join(desktop["changed"]) or None


def _why_other_break_even(document: RentOrBuyDocument) -> str | None:
    """Return why the published example has another break-even; None for other desktops or changed figures."""
    desktop, why = document["desktop"], document["why_they_differ"]
    return why if desktop["source"].startswith("published example") and not desktop["changed"] else None


def _source_text(desktop: DesktopProfile) -> str:
    exception = " Except what was typed." if desktop["changed"] else ""
    return f"Where {desktop['name']} is from: {desktop['source'].rstrip('.')}; as of {desktop['as_of']}.{exception}"


def _offer_text(offer: CatalogOffer | None) -> str:
    if offer is None:
        return ""
    market = offer["market"].replace("_", "-")
    basis_text = f", {offer['basis']}" if offer["basis"] in ("derived", "unverified") else ""
    old_text = ", more than 180 days old" if offer["old"] else ""
    legacy_text = f"; {offer['legacy']}" if offer["legacy"] else ""
    place_text = f"{offer['provider']} {offer['instance_type']} in {offer['region']}"
    return (
        f", the cheapest {market} one listed: {place_text}, as of "
        f"{offer['as_of'][:10]}{basis_text}{old_text}{legacy_text}"
    )


def _desktop_text(profile: DesktopProfile, format_usd: _ComparisonAmountFormatter) -> str:
    quoted_price = profile["quoted"]
    cards_text = profile["gpu"] if profile["gpus"] == 1 else f"{profile['gpus']}x {profile['gpu']}"
    power_text = f"{profile['gpus']}x {profile['gpu_watts']} W" if profile["gpus"] > 1 else f"{profile['gpu_watts']} W"
    price, quoted_text = format_usd.for_facts(profile["purchase_usd"]), ""
    if quoted_price is not None:
        amount_text = "" if _quoted_text(quoted_price) == price else f"{_quoted_text(quoted_price)} "
        quoted_text = f" ({amount_text}at {quoted_price['per_usd']} of {quoted_price['as_of']})"
    maintenance_usd, resale_usd = profile["maintenance_usd_per_year"], profile["resale_usd"]
    further_facts = [
        f"PUE {profile['pue']:g}" if profile["pue"] != 1 else "",
        f"maintenance {format_usd(maintenance_usd)} a year" if maintenance_usd != "0" else "",
        f"resale {format_usd(resale_usd)}" if resale_usd != "0" else "",
    ]
    parts = [
        f"{profile['name']}, {cards_text} for {price}{quoted_text}",
        f"{power_text} + {profile['system_watts']} W at work, {profile['idle_watts']} W while it waits",
        f"{format_usd.price(profile['usd_per_kwh'])} per kWh",
        f"lasts {_years_text(profile['life_years'])}",
        *further_facts,
    ]
    return "; ".join(filter(None, parts))


def _quoted_text(quoted: QuotedPrice) -> str:
    return f"{Decimal(quoted['amount']):,f} {quoted['code']}"


def _answer_facts(
    answer: Outcomes, life_years: float, format_usd: _ComparisonAmountFormatter, *, shows_utilization: bool
) -> Iterator[tuple[str, str | None]]:
    outcome, hours_per_day = answer["expected"], answer["hours_per_day"]
    if shows_utilization:
        yield "used", f"{answer['utilization_percent']:g}% of the time, {hours_per_day:.1f} hours a day"
    desktop_count = outcome["desktops"]
    work_text = f"{desktop_count:,}: it is {outcome['desktop_hours_per_day']:,.1f} desktop hours of work a day"
    yield "desktops", work_text if desktop_count > 1 else None
    yield (
        "electricity",
        f"{outcome['kwh_per_year']:,.0f} kWh and {format_usd.for_facts(outcome['electricity_usd_per_year'])} a year",
    )
    yield "break-even", _break_even_text(answer)
    yield "by use", _by_use_text(outcome, life_years)
    yield "by price", _by_price_text(outcome["break_even_usd_per_hour"], life_years, format_usd)


def _by_use_text(outcome: Outcome, life_years: float) -> str:
    percent, has_several = outcome["break_even_utilization_percent"], outcome["desktops"] > 1
    subject, limit_text = ("one desktop", ", up to what it can do") if has_several else ("the desktop", "")
    if percent is None:
        return "a desktop that works all the time is still more expensive"
    if not percent:
        return f"over {_years_text(life_years)} {subject} is cheaper at any use"
    percent_text = f"{percent:.1f}".removesuffix(".0") if percent >= 0.05 else "<0.1"  # noqa: PLR2004  (what is shown)
    use_text = f"a use of more than {percent_text}% of the time"
    if percent > 100:  # noqa: PLR2004  (per cent)
        use_text = f"more than {percent / 100:.1f} machines at any time"
    return f"over {_years_text(life_years)} {subject} is cheaper with {use_text} at this price{limit_text}"


def _by_price_text(usd_per_hour: str | None, life_years: float, format_usd: _ComparisonAmountFormatter) -> str | None:
    if usd_per_hour is None or Decimal(usd_per_hour) > MAX_PRICE:
        return None
    condition_text = (
        f"if an hour costs more than {format_usd.with_code(usd_per_hour, 2)} at this use"
        if Decimal(usd_per_hour)
        else "at any price"
    )
    return f"over {_years_text(life_years)} the desktop is cheaper {condition_text}"


def _break_even_text(answer: Outcomes) -> str:
    outcome = answer["expected"]
    if outcome["break_even_days"] is None:
        return "never, within 30 years"
    if outcome["break_even_days"] < 0.05:  # noqa: PLR2004  (the hour from which both are compared)
        return "from the first hour on"
    bounds = [answer["high"]["break_even_days"], answer["low"]["break_even_days"]]
    bound_texts = ["never" if bound is None else f"{bound:,.0f}" for bound in bounds]
    range_text = "" if bound_texts[0] == bound_texts[1] else f" ({bound_texts[0]} to {bound_texts[1]})"
    return f"{_days_and_months_text(outcome['break_even_days'])}{range_text}"


def _days_and_months_text(days: float) -> str:
    months = f", {days / MONTH:.1f} months" if days >= 2 * MONTH else ""
    return f"{days:,.2f} days{months}"


def _years_text(years: float) -> str:
    return f"{years:g} year{'s' * (years != 1)}"


def _curve_table(curve: list[CurvePoint], format_usd: _ComparisonAmountFormatter) -> str:
    rows = [
        [
            _days_text(point["days"]),
            format_usd(point["cloud_usd"]),
            format_usd(point["desktop_usd"]),
            format_usd(point["sold_for_usd"]),
            format_usd(point["net_usd"]),
            "desktop" if Decimal(point["net_usd"]) <= Decimal(point["cloud_usd"]) else "cloud",
        ]
        for point in curve
    ]
    headings = ["AFTER", f"CLOUD{format_usd.code}", "DESKTOP", "SOLD FOR", "DESKTOP, SOLD", "CHEAPER"]
    return table(rows, headings, right=(1, 2, 3, 4))


def _days_text(days: float) -> str:
    years = days / YEAR
    if years >= 1 and abs(years - round(years, 1)) < 1e-6:  # noqa: PLR2004  (what rounding leaves)
        return _years_text(round(years, 1))
    months = days / MONTH
    if abs(months - round(months)) < 1e-4:  # noqa: PLR2004  (the same)
        return counted(round(months), "month")
    return f"{days:,.0f} day{'s' * (round(days) != 1)}"


def _speed_text(document: RentOrBuyDocument) -> str:
    with_known_speeds = document["with_known_speeds"]
    if with_known_speeds is None:
        return ""
    answers, speed = with_known_speeds["answers"], with_known_speeds["speed"]
    parts = [
        _break_even_text(answer)
        if len(answers) == 1
        else f"{_break_even_text(answer)} at {answer['utilization_percent']:g}%"
        for answer in answers
    ]
    speed_text = f"{document['desktop']['gpu']} counted as {speed['ratio']:.2f} times as fast, by {speed['basis']}"
    return f"With {speed_text}: {'; '.join(parts)}."


def desktops_text(document: DesktopsDocument) -> str:
    """Return the table of desktops: its GPUs, price, power and tariff, and their date."""
    rows = []
    for desktop in document["desktops"]:
        cards_text = desktop["gpu"] if desktop["gpus"] == 1 else f"{desktop['gpus']}x {desktop['gpu']}"
        watts = desktop["gpus"] * desktop["gpu_watts"] + desktop["system_watts"]
        price = Money.usd(Decimal(desktop["purchase_usd"])).text(0)
        quoted = "" if desktop["quoted"] is None else _quoted_text(desktop["quoted"])
        tariff = Money.usd(Decimal(desktop["usd_per_kwh"])).text(3)[1:]
        rows.append([desktop["name"], cards_text, price, quoted, f"{watts:g}", tariff, desktop["as_of"]])
    return table(rows, ["NAME", "GPU", "PRICE", "QUOTED", "WATTS", "$/KWH", "AS OF"], right=(2, 3, 4, 5))
