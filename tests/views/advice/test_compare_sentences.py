"""What is said of a comparison, in every way that one can come out."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from cloudgpu.core.advice.compare import Case, comparisons
from cloudgpu.core.advice.desktop import Depreciation
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import first_few
from cloudgpu.views.advice.compare import MAX_POINTS, curve
from cloudgpu.views.advice.compare_basis import assumptions
from cloudgpu.views.advice.compare_sentences import (
    AmountFormat,
    count_text,
    hours_text,
    own_machines_sentence,
    pace_name,
    sentence,
)
from tests.views.a_comparison import BEGIN, DESKTOP, NOW, WON, a_comparison, a_story

DAY = timedelta(days=1)


def of(history=None, desktop=DESKTOP, **more):
    story = a_story(desktop=desktop, unpriced=[], **more)
    past = history or story.history
    is_ongoing = more.get("is_ongoing", True)
    return replace(story, history=past, cases=comparisons(past, desktop, goes_on=is_ongoing))


def said(story):
    return sentence(story, AmountFormat())


def cheap(usd, **more):
    return replace(DESKTOP, purchase=Money.usd(usd), purchase_in_currency=None, **more)


def test_who_is_the_dearer_one_by_now_is_said_with_the_other_cases():
    # On the first day 20, 22 or 25, beside about 1.9, 1.3 and 0.8 of electricity and maintenance.
    assert "The cloud has cost more than the desktop since 2026-10-01 (between 2026-10-01 and 2026-10-02)" in said(
        of(desktop=cheap(20))
    )
    # In all 800, 880 or 1000, beside 86, 51 and 33.
    most = said(of(desktop=cheap(820)))
    assert most.endswith(
        "since 2026-11-09 (at the earliest since 2026-11-03; where all that is not known is for the cloud, not yet)."
    )


def test_that_they_meet_may_have_happened_already():
    assert "(between now and " in said(of(desktop=cheap(900)))


def test_never_is_said_and_what_would_be_otherwise():
    dear = replace(DESKTOP, purchase=Money.usd(100_000))
    assert "At the pace of the last 30 days they never meet: the cloud stays the cheaper one" in said(of(desktop=dear))
    # It lasts for so short that only the dearest week pays for it: 25 a day less electricity.
    short = replace(DESKTOP, purchase=Money.usd(2050), life=90 * DAY, maintenance=Money.usd(0))
    text = said(of(desktop=short))
    assert (
        "they never meet: the cloud stays the cheaper one; taking all that is not known for the desktop, they meet on"
        in text
    )


def test_that_the_desktop_is_bought_anew_is_said_where_it_is_the_dearer_one_again():
    text = said(of(desktop=replace(cheap(2000), life=150 * DAY)))
    assert "Replaced on 2027-02-28, the desktop is more expensive again until 2027-0" in text


def test_a_period_that_is_over_says_who_was_the_dearer_one():
    text = said(of(is_ongoing=False, since=BEGIN, until=NOW))
    assert text.startswith("From 2026-10-01 until 2026-11-10 the cloud has cost $880.00; ")
    assert text.endswith("In that time the desktop was more expensive, by $6,170.95.")
    assert said(of(since=BEGIN, until=NOW + DAY)).startswith("Since 2026-10-01 the cloud has cost")


def test_no_amount_is_in_dollars_where_another_currency_was_asked_for():
    document = a_comparison()
    spoken = [document["sentence"], document["own_machines_sentence"], *document["assumptions"]]
    assert "$" not in " ".join(spoken)
    assert [AmountFormat(WON)(Money.usd(usd)) for usd in ("0.0001", "0.001", "0")] == ["0.14 KRW", "1 KRW", "0 KRW"]
    assert [AmountFormat()(Money.usd(usd)) for usd in ("0", "0.001", "1234.5")] == ["$0.00", "$0.0010", "$1,234.50"]


def test_what_it_is_worth_is_said_one_way_or_counted():
    paid = assumptions(of(), AmountFormat())
    assert any(
        "It could still be sold for about $6,800.00 now (by a straight line over 4 years)." in one for one in paid
    )
    counted = assumptions(of(desktop=replace(DESKTOP, depreciation=Depreciation.STRAIGHT)), AmountFormat())
    assert "What the desktop is still worth is taken off (by a straight line over 4 years): $6,800.00 now." in counted


def test_the_curve_ends_with_the_sums_and_has_the_day_on_which_they_met():
    story = of(desktop=cheap(500))
    found, side = list(curve(story)), story.expected
    assert len(found) == 40
    assert (Decimal(found[-1]["cloud_usd"]), Decimal(found[-1]["desktop_usd"])) == (
        side.cloud.dollars, side.owned.total.dollars,
    )  # fmt: skip
    first = next(one for one in found if Decimal(one["cloud_usd"]) >= Decimal(one["desktop_usd"]))
    assert datetime.fromisoformat(f"{first['day']}T00:00:00+00:00") + DAY == side.first_break_even


@pytest.mark.soak
def test_a_long_curve_leaves_out_days_but_never_the_last_or_that_of_the_meeting():
    base = a_story().history
    years = replace(base, end=BEGIN + 1201 * DAY)
    story = of(years, cheap(500))
    days = [one["day"] for one in curve(story)]
    assert len(days) - 2 <= MAX_POINTS
    assert days[-1] == str((BEGIN + 1200 * DAY).date())
    past = story.cases[Case.EXPECTED].first_break_even
    assert past is None or str((past - DAY).date()) in days


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "less than a minute"),
        (60, "1 minute"),
        (3599, "60 minutes"),
        (3600, "1.0 hour"),
        (3_600_000, "1,000.0 hours"),
    ],
)
def test_hours_are_hours_and_less_is_minutes(seconds, text):
    assert hours_text(seconds) == text


def test_few_names_and_small_numbers_are_words():
    assert first_few(list("abcdef")) == "a, b, c, d and 2 more"
    assert [count_text(number) for number in (1, 12, 13, 1234)] == ["one", "twelve", "13", "1,234"]


def test_of_own_machines_is_said_what_nobody_knows():
    (own,) = a_story().own_machines
    known = own_machines_sentence([replace(own, unknown=timedelta(0))], AmountFormat())
    assert known.startswith("Your own machine worked for 90.0 hours, with $3.00 of electricity; the same work")
    assert own_machines_sentence([own], AmountFormat()) == f"{known[:-1]}; of 2.0 hours nobody knows."
    nothing = own_machines_sentence([replace(own, worked=timedelta(0))] * 2, AmountFormat())
    assert nothing == "Your own machines ran for 4.0 hours of which nobody knows whether they were work."


def test_of_gpus_with_one_name_only_those_that_are_too_large_for_the_desktop_are_said_to_be():
    story = a_story()
    (machine,) = story.history.machines
    sizes = (4.0, 24.0, 48.0)  # GiB; the desktop's GPU has 24
    machines = [replace(machine, name=f"m{size:g}", gpu="A10", memory_gib=size) for size in sizes]
    (said,) = [
        text
        for text in assumptions(of(replace(story.history, machines=machines)), AmountFormat())
        if "does not fit the desktop's GPU" in text
    ]
    (alone,) = [
        text
        for text in assumptions(of(replace(story.history, machines=machines[2:])), AmountFormat())
        if "does not fit the desktop's GPU" in text
    ]
    assert said == alone
    assert said.endswith("of work were on A10 (48 GiB).")


def test_a_sum_that_is_the_purchase_as_it_is_shown_is_not_told_twice():
    story = of()
    minute = replace(story.history, end=story.history.begin + timedelta(minutes=1), cloud={}, machines=[])
    assert ", all of it on the first day." in said(of(minute, desktop=cheap(900, maintenance=Money.usd(1))))


def test_the_pace_of_one_day_is_that_of_the_last_day():
    story = a_story()
    one = replace(story, history=replace(story.history, end=story.history.begin + 1.5 * DAY))
    assert pace_name(one) == "the pace of the last day"
