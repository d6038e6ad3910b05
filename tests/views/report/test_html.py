"""The report's page: one file that fetches nothing, shows every figure, and takes no text for anything but text."""

from __future__ import annotations

import re
from decimal import Decimal
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise

import pytest

from cloudgpu.control.cost.report import report_document
from cloudgpu.views.report.formatting import Amounts, ZoneFormat, escape_invisible, hours_text, number_text
from cloudgpu.views.report.html import MARK, to_html
from cloudgpu.views.report.summary import summary
from tests.control.conftest import Lab
from tests.views import pages

DOCUMENTS = (pages.empty, pages.one_hour, pages.three_months, pages.huge, pages.hostile)
VOID = {"meta", "br", "link", "img", "input"}
HOUR = {"currency": None, "total": {"high_usd": "100"}}


class Page(HTMLParser):
    """What a page is made of: its elements with their attributes, and the texts that it shows."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.html, self.elements, self.texts, self.open = html, [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip() and self.open[-1] != "style":
            self.texts.append(" ".join(data.split()))

    def all(self, tag, **attributes):
        return [found for kind, found in self.elements if kind == tag and attributes.items() <= found.items()]

    @property
    def text(self):
        return " ".join(self.texts)


@pytest.fixture(scope="module")
def made():
    return {document.__name__: Page(to_html(document())) for document in DOCUMENTS}


@pytest.fixture(params=[document.__name__ for document in DOCUMENTS])
def page(request, made):
    return made[request.param]


def test_the_page_says_whose_it_is_and_that_it_may_fetch_nothing(page):
    assert page.html.startswith(f"<!DOCTYPE html>\n{MARK}\n")
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"


def test_the_page_fetches_nothing_and_has_no_script(page):
    assert page.open == [], "every element is closed"
    assert not {tag for tag, _ in page.elements} & set("script img iframe object embed link audio video form".split())
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")]
        assert not attributes.keys() & {"src", "srcset", "action", "data", "xlink:href"}
        assert attributes.get("href", "#").startswith("#"), tag
    style = re.search("<style>(.*?)</style>", page.html, re.DOTALL)[1]
    assert all(one.startswith("url(#") for one in re.findall(r"url\([^)]*\)", style))
    assert "@import" not in style


def test_ids_are_said_once_and_what_refers_to_one_finds_it(page):
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = [one for _, attributes in page.elements for one in attributes.get("aria-labelledby", "").split()]
    wanted += [attributes["href"][1:] for attributes in page.all("a")]
    wanted += re.findall(r"url\(#([^)]*)\)", page.html)
    assert set(wanted) <= set(ids)


def test_headings_have_an_order_and_columns_a_head(page):
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all("scope" in attributes for attributes in page.all("th"))
    labels = [one["aria-label"] for one in page.all("div", role="region")]
    assert len(labels) == len(set(labels)), "a list of what is on the page tells them apart"
    assert all(one["tabindex"] == "0" for one in page.all("div", role="region")), "a keyboard reaches what scrolls"


def test_a_year_of_twelve_projects_on_two_hundred_machines_is_no_large_file(made):
    assert len(made["huge"].html.encode()) < 400_000
    assert made["huge"].texts.count("trainer-199") == 1


def test_what_others_chose_changes_no_element_of_the_page(made):
    """Whatever names hold, the page has the same elements with the same attributes as with plain names."""
    plain = pages.hostile()
    hostile = {name: f"plain {place}" for place, name in enumerate(pages.HOSTILE)}

    def renamed(value):
        if isinstance(value, dict):
            return {renamed(key): renamed(one) for key, one in value.items()}
        if isinstance(value, list):
            return [renamed(one) for one in value]
        return hostile.get(value, value) if isinstance(value, str) else value

    expected, found = Page(to_html(renamed(plain))), made["hostile"]
    assert [tag for tag, _ in found.elements] == [tag for tag, _ in expected.elements]
    assert [attributes for _, attributes in found.elements] == [attributes for _, attributes in expected.elements]
    for name in pages.HOSTILE:
        assert " ".join(escape_invisible(name).split()) in found.text


def test_what_hides_is_shown():
    assert escape_invisible("plain שלום é 语 🙂 50%") == "plain שלום é 语 🙂 50%"
    assert escape_invisible("a\u202eb\u200bc\x00d\ufeff") == "a[U+202E]b[U+200B]c[U+0000]d[U+FEFF]"
    assert escape_invisible("two\nlines\tand a tab") == "two lines and a tab"


def test_the_sections_of_an_empty_report_say_that_there_is_nothing(made):
    text = made["empty"].text
    for sentence in (
        "Nothing has been launched yet, so nothing was spent.",
        "There is nothing to compare yet: this ledger has no machine.",
        "Nothing was spent in this time.",
        "No budget is set.",
        "Nothing runs and nothing is kept: an hour costs nothing now.",
        "No machine was billed in this time.",
        "No machine was idle while it was billed, as far as is known.",
        "No rule has ended a machine in this time, so nothing was saved by that.",
        "Nothing ran at a spot price in this time.",
        "Nothing is left over, as far as this ledger knows; cloudgpu orphans asks the clouds.",
        "No price list is known.",
    ):
        assert sentence in text
    assert "not known" not in text.replace("as far as is known", "")


def test_every_figure_of_the_document_is_on_the_page(made):
    document, text = pages.three_months(), made["three_months"].text
    shown = Amounts(document)
    figures = [document["total"], document["idle"], *document["projects"], *document["machines"]]
    wanted = {shown(one[key]) for one in figures for key in ("usd", "low_usd", "high_usd")}
    wanted |= {shown(usd) for one in document["days"] for usd in (one["usd"], *one["projects"].values())}
    wanted |= {shown(one[key]) for one in document["budgets"] for key in ("limit_usd", "remaining_usd")}
    wanted |= {shown(usd, 2) for name, usd in document["burn"].items() if name.endswith("per_hour")}
    wanted |= {hours_text(one[key]) for one in document["machines"] for key in ("gpu_s", "used_s", "idle_s")}
    wanted |= {"$412.03", "$301.20", "$520.90", "8.50", "1,840", "28 Jun 2025", "24.9", "2,263.50", "$2.0925"}
    assert len(wanted) > 130
    assert not [one for one in wanted if one not in text]
    for sentence in (*document["summary"], *document["comparison"]["assumptions"], document["comparison"]["sentence"]):
        assert sentence in text


def test_what_is_not_known_is_said_and_is_no_zero():
    machine = pages.machine("fox", None, low_usd=None, high_usd=None, idle_usd=None, gpu=None, owner=None, region=None)
    document = pages.one_hour(
        machines=[machine],
        days=[],
        projects=[{"name": "", "usd": None, "low_usd": None, "high_usd": None}],
        total=pages.total(None) | {"low_usd": None, "high_usd": None, "without_price": 1},
        savings=pages.empty()["savings"] | {"spot": {"usd": None, "on_demand_usd": None, "without_on_demand": 2}},
        burn=pages.burn(without_price=2),
        projected=None,
        unpriced=["fox (machine)"],
    )
    text = Page(to_html(document)).text
    assert "Spent not known" in text
    assert "fox terminated , gcp , lab a2-highgpu-1g spot vision not known 2.00 1.00" in text
    assert "no project not known not known not known" in text
    assert "What spot has saved is not known: there is no on-demand price for 2 runs." in text
    assert "2 of what runs or is kept have no known price, and are in none of these." in text
    assert "what has no known price: 1 item, named under" in text
    assert "In all at the month" not in text


def test_marks_of_prices_are_said_in_words():
    found = [pages.machine("fox", "2.5", marks="~!", without_price=1), pages.machine("owl", "3.5", marks="?")]
    text = Page(to_html(pages.one_hour(machines=found))).text
    assert "2.5000 derived price old price and what has no price 2.00" in text
    assert "3.5000 unverified price 2.00" in text


@pytest.mark.parametrize(
    ("saved", "said"), [("56.16", "spot has saved $56.16 of it."), ("-5", "spot has cost $5.0000 more.")]
)
def test_spot_that_was_dearer_has_saved_nothing(saved, said):
    spot = {"usd": saved, "on_demand_usd": "86.4", "without_on_demand": 0}
    text = Page(to_html(pages.one_hour(savings=pages.empty()["savings"] | {"spot": spot}))).text
    assert f"On demand it would have cost $86.40: {said}" in text


def test_amounts_are_in_the_documents_currency_with_its_rate_and_day():
    rate = {"code": "EUR", "per_usd": "0.9", "as_of": "2026-11-20", "source": "the ECB"}
    text = Page(to_html(pages.three_months(currency=rate))).text
    assert "amounts are in EUR, at 1 USD = 0.9 EUR, rate of 2026-11-20 (the ECB)" in text
    assert "175.50" in text  # of $195
    assert "$195" not in text
    assert "370.83 EUR" in text  # of $412.03


def test_times_are_those_of_the_documents_zone():
    text = Page(to_html(pages.three_months())).text
    assert "24 Aug 2026 to 22 Nov 2026" in text
    assert "As of 22 Nov 2026, 18:00. Days and times are of Asia/Seoul" in text
    assert "28 Nov 2026, 19:30" in text
    until = Page(to_html(pages.three_months(until="2026-10-31T15:00:00.000000Z"))).text
    assert "24 Aug 2026 to 31 Oct 2026" in until, "the end of a period is not in it"


def test_more_than_nine_projects_are_eight_and_the_others_together(made):
    document, page = pages.huge(), made["huge"]
    assert [f"p{n}" for n in range(1, 10)] == [one["class"] for one in page.all("rect") if one.get("width") == "22"][
        2:11
    ]
    rest = sum(Decimal(one["usd"]) for one in document["projects"][8:])
    assert f"4 others {rest:,.2f}" in page.text
    assert "Each week by project" in page.text
    assert page.texts.count("19 Oct 2025") == 1, "the table has every day"


def test_a_desktop_is_told_with_what_its_figures_rest_on():
    document = pages.three_months()
    quoted = {"amount": "10000000", "code": "KRW", "per_usd": "1468.2", "as_of": "2026-11-20", "source": "a bank"}
    changed = {"gpus": 2, "quoted": quoted, "idle_watts": 0, "pue": 1, "changed": ["--electricity"]}
    document["comparison"]["desktop"] |= changed
    text = Page(to_html(document)).text
    assert "2 \u00d7 RTX 3090 ( rtx3090 )" in text
    assert "$2,200.00, quoted as 10,000,000 KRW at 1 USD = 1468.2 KRW, rate of 2026-11-20, for 4 years" in text
    assert (
        "2 \u00d7 350 W for the cards and 100 W for the rest at work; switched off while it waits Electricity" in text
    )
    assert "Figures of your own --electricity Source a price page of a shop, as of 20 Nov 2026" in text


def test_hours_of_which_nothing_is_known_are_not_called_idle():
    idle = {"low_usd": "0", "usd": "0", "high_usd": "216", "hours": "0", "unknown_hours": "72"}
    text = Page(to_html(pages.one_hour(idle=idle))).text
    assert "Of 72 hours nobody knows whether they were used: if none was, $216.00 went into them." in text


def test_months_are_drawn_where_the_document_has_months():
    days = [pages.day("2025-12", vision="10"), pages.day("2026-02", vision="20")]
    text = Page(to_html(pages.one_hour(step="month", days=days))).text
    assert "Spending per month by project" in text
    assert "Month In all vision 2025-12 10.00 10.00 2026-02 20.00 20.00" in text


def test_the_doubt_about_a_ledger_is_said_first():
    text = Page(
        to_html(pages.empty(about=pages.empty()["about"] | {"integrity_problem": "It was restored from a backup."}))
    ).text
    assert text.index("The ledger is in doubt. It was restored from a backup.") < text.index("Summary Nothing")


def test_a_break_even_is_to_come_or_was_or_never_is_or_nobody_knows():
    three, at = ("low", "expected", "high"), "2027-01-19T00:00:00.000000Z"

    def said(since, projected, pace, **more):
        document = pages.three_months(tz="UTC", **more)
        document["comparison"]["break_even"] |= {"cloud_costs_more_since": dict.fromkeys(three, since)}
        document["comparison"]["break_even"] |= {"projected": dict.fromkeys(three, projected)}
        document["comparison"]["pace"] = dict.fromkeys(three, pace)
        text = Page(to_html(document)).text
        return re.search(r"Break-even ([^B%]*) Break-even use", text)[1].split(" ")[-3:], text

    assert said(None, at, {})[0] == ["19", "Jan", "2027"]
    assert said(at, None, {})[0] == ["18", "Jan", "2027"]
    assert said(None, None, {})[0] == ["never"] * 3
    found, text = said(None, None, None)
    assert found == ["known", "not", "known"]
    assert "They do not meet." in text
    over = pages.three_months()["as_of"]
    assert said(None, None, None, until=over)[0] == ["not", "by", "then"]


def test_a_break_even_that_was_ends_the_day_that_it_says(made):
    text = made["huge"].text  # the time is the midnight after, in UTC; the zone is Seoul
    assert "Break-even 22 Oct 2025 22 Oct 2025 22 Oct 2025" in text
    assert "They met on 22 Oct 2025." in text


@pytest.mark.parametrize(
    ("usd", "said"),
    [("1234.5", "$1,234.50"), ("-3.2", "-$3.20"), ("0.001", "<$0.01"), ("-0.001", "-<$0.01"), ("0", "$0.00")],
)
def test_a_sentence_has_dollars_with_their_sign(usd, said):
    assert Amounts(HOUR).prose(usd) == said


def test_small_bills_have_two_more_digits():
    shown = Amounts({"currency": None, "total": {"high_usd": "9.99"}})
    assert (shown("0.12"), shown.prose("0.00019678"), shown.prose("0")) == ("0.1200", "$0.0002", "$0.00")
    assert (shown("2200"), shown.prose("-10")) == ("2,200.00", "-$10.00"), "not beside a desktop's price"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0"), (4, "<0.01"), (36, "0.01"), (35900, "9.97"), (35990, "10.0"), (360000, "100"), (3.6e7, "10,000")],
)
def test_hours_have_as_many_digits_as_say_something(seconds, text):
    assert hours_text(seconds) == text


def test_numbers_have_two_digits_after_the_point_at_most():
    found = [number_text(one) for one in (None, 0, "0.0011", "17.30", "590", 1840, 0.4567, "100")]
    assert found == ["not known", "0", "<0.01", "17.3", "590", "1,840", "0.46", "100"]


def test_a_time_without_one_is_never():
    zone_format = ZoneFormat("UTC")
    assert (zone_format(None), zone_format("2026-11-20"), zone_format.day("2026-11-20T23:59:59.000000Z")) == (
        "never", "20 Nov 2026", "20 Nov 2026",
    )  # fmt: skip


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue  # https://www.w3.org/TR/WCAG22/#dfn-relative-luminance


def contrast(one, other):
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_texts_and_marks_stand_out_in_both_schemes(scheme):
    css = files("cloudgpu.views.report").joinpath("report.css").read_text()
    colours = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{3,6})", part)) for part in re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    ]
    found = {
        name: one if len(one) == 7 else "#" + "".join(2 * digit for digit in one[1:])
        for name, one in colours[scheme].items()
    }
    for name in ("ink", "soft", "warn", "c1"):
        assert contrast(found[name], found["page"]) >= 4.5, name
    for name in ("strong", *(f"c{number}" for number in range(1, 10))):
        assert contrast(found[name], found["page"]) >= 3, name


def test_the_report_of_a_real_ledger_is_a_page(tmp_path, monkeypatch):
    lab = Lab(tmp_path, monkeypatch)
    assert "Nothing has been spent yet" in Page(to_html(report_document(lab.session))).text
    lab.up(name="fox", project='"><b>vision')
    lab.later(days=3)
    document = report_document(lab.session)
    page = Page(to_html(document))
    assert not page.all("b")
    assert Amounts(document).prose(document["total"]["usd"]) in page.text
    assert {"curve", "spend", "hours"} <= {
        one["aria-labelledby"].partition("-")[0] for one in page.all("svg", role="img")
    }


def test_the_day_on_which_a_budget_is_empty_is_one_of_the_reports_zone():
    document = pages.three_months(tz="Asia/Seoul")
    document["budgets"] = [pages.budget("lab", "400", "151.2", "2026-11-28T20:30:00.000000Z")]
    (said,) = [sentence for sentence in summary(document) if "The budget lab" in sentence]
    assert "is empty on 2026-11-29 at this rate" in said


def test_what_ends_without_a_price_have_saved_is_not_known():
    document = pages.three_months()
    document["savings"]["stops"] |= {"number": 1, "usd": None, "without_price": 1}
    text = Page(to_html(document)).text
    assert "Policies stopped machines once, and what that has saved is not known, for " in text
    assert "at most not known" not in text
    assert "Policies stopped machines once, what that saved is not known." in summary(document)
    document["savings"]["stops"] |= {"number": 3, "usd": "12.5"}
    said = "Policies stopped machines 3 times, which saved up to $12.50 (1 without a known price)."
    assert said in summary(document)


def test_jobs_have_a_table_where_there_are_any():
    assert 'id="jobs"' not in to_html(pages.three_months())
    jobs = [pages.job(1, "train", "2"), pages.job(0, "idle", "1", None)]
    text = to_html(pages.three_months(jobs=jobs))
    assert '<a href="#jobs">' in text
    assert "<bdi>train</bdi></th><td" in text
    assert "idle between jobs" in text


def test_the_monthly_cost_of_leftovers_is_not_known_where_none_has_a_price():
    document = pages.three_months()
    assert "at least 8.50" in " ".join(Page(to_html(document)).text.split())
    for one in document["idle_resources"]:
        one["usd_per_month"] = None
    text = " ".join(Page(to_html(document)).text.split())
    assert "2 without a known price not known" in text
