"""compare without a ledger: its sentences claim no more than holds, and its text is for people."""

from __future__ import annotations

import pytest

from cloudgpu.cli.money.calculated_text import calculated_text
from tests.control.advice.test_rent_or_buy import PUBLISHED, gpu, only

__all__ = ["gpu"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"price": "0.475", "utilization": "15%"}, "it is more expensive again from day 1,460 to day 2,904."),
        (
            {"price": 2, "utilization": "10%", "purchase": 0},
            "costs more than a desktop with one RTX 3090 from the first hour on.",
        ),
        (
            {"price": "0.13", "utilization": "company-cluster"},
            "used 60% of the time, the cloud stays cheaper than a desktop with one RTX 3090 for 30 years. From",
        ),
        (
            {"price": "0.13", "utilization": "company-cluster"},
            "$0.1586 an hour on the desktop would cost less over its 4 years, or with a use of more than 82.6%",
        ),
        (
            {"price": "2.14", "utilization": "phd-desktop"},
            "at the earliest. Used less than 3% of the time, the cloud stays cheaper.",
        ),
        (
            {"price": "2.14", "utilization": "phd-desktop", "depreciation": "straight-line"},
            "used 15% of the time, the cloud costs more from the first hour on than a desktop with one RTX 3090 loses",
        ),
        (  # used for more than 54% of the time, an A100 does the work of two
            {"gpu": "a100", "price": "2.14", "utilization": "phd-cluster", "work": "training", "desktop": "rtx3090"},
            "desktops with one RTX 3090 each after 128 days (4.2 months) at 35% with 1 of them; other uses may take",
        ),
        (
            {"gpu": "b300", "price": 5, "utilization": "personal", "work": "training", "desktop": "rtx3060"},
            "after 417 days (13.7 months) at 5% with 2 of them, and after 304 days (10.0 months) at 10% with 3 of them",
        ),
        (
            {"price": "0.6", "utilization": "5%", "life": "0.5", "purchase": 936, "resale": 842, "tariff": 0},
            "as much as a desktop with one RTX 3090 only as that is sold, after 182 days (6.0 months).",
        ),
        ({"price": 2, "utilization": "0.000000000001%"}, "for 30 years."),  # and no price of 6 trillion dollars
    ],
    ids=str,
)
def test_the_sentence_claims_no_more_than_holds(gpu, given, says):
    assert says in gpu.advice.compare(**given)["break_even_sentence"]


def test_a_hair_above_what_one_desktop_can_do_is_answered(gpu):
    one = only(gpu.advice.compare(price=2, utilization="100.0000000004%"))
    assert one == only(gpu.advice.compare(price=2, utilization="100%")) | {"curve": one["curve"]}


def test_what_a_desktop_is_worth_is_no_reason_of_published_examples(gpu):
    assert gpu.advice.compare(**PUBLISHED, depreciation="straight-line")["why_they_differ"] is None
    assert gpu.advice.compare(**PUBLISHED, tariff=0)["why_they_differ"] is None  # the same day


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"gpu": "h100", "desktop": "rtx3090"},
            "used 15% of the time, and if the work fits in 24 GiB, the cloud has cost as much",
        ),
        (
            {"gpu": "h100", "price": "0.05", "desktop": "rtx3090"},
            "and if the work fits in 24 GiB, the cloud stays cheaper",
        ),
        ({"gpu": "h100", "desktop": "rtx3090x2"}, "and if the work fits in 24 GiB a GPU, the cloud has cost"),
        ({"gpu": "h100", "desktop": "rtx3090"}, "months). By speed it is 320.9 days."),
        (
            {"gpu": "b300", "price": 5, "utilization": "90%", "desktop": "rtx3090"},
            "By speed it is 180.0 days with 8 desktops.",
        ),
        ({"gpu": "k80", "utilization": "personal"}, "By speed it is 859.2 days at 5% and 429.6 days at 10%."),
        ({"gpu": "k80", "price": "0.45"}, "for 30 years."),
        ({"gpu": "k80", "price": "0.45"}, "By speed the cloud has cost as much after 1,377.1 days."),
        (
            {"gpu": "k80", "price": "0.64", "utilization": "personal"},
            "as much never at 5% and after 1,446.4 days at 10%.",
        ),
        ({"gpu": "k80", "price": "0.05"}, "By speed it is the same."),
        (
            {"gpu": "h100", "depreciation": "straight-line", "desktop": "rtx3090"},
            "takes to run. By speed it is the same.",
        ),
    ],
)
def test_the_first_sentences_say_what_far_other_gpus_change(gpu, given, says):
    assert says in gpu.advice.compare(**PUBLISHED | given)["break_even_sentence"]


@pytest.mark.soak
def test_the_first_sentences_name_neither_where_it_changes_little_or_nothing(gpu):
    for given in ({}, {"work": "training"}, {"gpu": "t4:1", "utilization": "0%"}, {"gpu": None}):
        document = gpu.advice.compare(**PUBLISHED | given)
        assert not any(part in document["break_even_sentence"] for part in ("if the work fits", "By speed"))
    assert "By speed" not in gpu.advice.compare(**PUBLISHED | {"gpu": "h100"}, work="training")["break_even_sentence"]


def test_the_figure_by_speed_is_that_of_work_that_was_named(gpu):
    given = PUBLISHED | {"gpu": "k80"}
    named = only(gpu.advice.compare(**given, work="training"))["break_even_days"]
    assert f"By speed it is {named:,.1f} days." in gpu.advice.compare(**given)["break_even_sentence"]


def said(document):
    return " ".join(calculated_text(document, None).split())


@pytest.mark.soak
@pytest.mark.parametrize("price", ["2.14", "0.90"])
def test_why_published_examples_differ_is_said_of_the_published_example(gpu, price):
    given = PUBLISHED | {"price": price}
    assert gpu.advice.compare(**given)["why_they_differ"] in said(gpu.advice.compare(**given))
    for other in ({"tariff": "0.30"}, {"desktop": "rtx4090"}, {"desktop": "rtx3090-used"}):
        document = gpu.advice.compare(**given, **other)
        assert document["why_they_differ"]
        assert "published examples" not in said(document)


def test_of_figures_that_were_typed_the_source_is_not_that_of_the_file(gpu):
    assert said(gpu.advice.compare(**PUBLISHED, tariff="0.30")).endswith("as of 2025-12-01. Except what was typed.")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"gpu": "t4:4"},
            "What is spread over all 4 rented GPUs, with 64 GiB, does not fit one desktop beyond 24 GiB.",
        ),
        ({"gpu": "t4:4"}, "Work spreads over GPUs without loss: 1 of a desktop, 4 of the rented machine."),
        ({"gpu": "t4", "desktop": "rtx3090x2"}, "Work spreads over GPUs without loss: 2 of a desktop, 1 of the"),
    ],
)
def test_what_several_gpus_take_for_granted_is_said(gpu, given, says):
    document = gpu.advice.compare(price=1, utilization="15%", **given)
    assert any(one.startswith(says) for one in document["assumptions"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"purchase": 0, "tariff": 0}, ["is cheaper at any use", "is cheaper at any price", " 1 day $"]),
        (
            {"utilization": "250%"},
            ["one desktop is cheaper with a use of more than 3.2% of the time at this price, up to what it can do"],
        ),
        (
            {"utilization": "0.000000000001%"},
            ["is cheaper with a use of more than 3.2% of the time at this price AFTER"],
        ),
        ({"tariff": "0.118110236"}, ["$0.1181 per kWh", "typed --tariff"]),
    ],
)
def test_the_text_rounds_for_people(gpu, given, says):
    text = calculated_text(gpu.advice.compare(**{"price": 2, "utilization": "15%"} | given), None)
    joined = " ".join(text.split())
    assert all(each in joined for each in says), text
