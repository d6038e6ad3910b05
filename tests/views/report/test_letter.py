"""The report as a message: what its subject says of every kind of period, sum and currency."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from cloudgpu.views.report.html import amount_text, report_message

UTC = ZoneInfo("UTC")
KRW = {"code": "KRW", "per_usd": "1385.2", "as_of": "2026-11-20", "source": ""}


def document(since=None, until=None, *, summary=("It cost $1.",), currency=None, **total):
    total = {"usd": "123.456", "without_price": 0} | total
    as_of = "2026-11-22T08:00:00.000000Z"
    return {
        "since": since,
        "until": until,
        "as_of": as_of,
        "summary": list(summary),
        "currency": currency,
        "total": total,
    }


@pytest.mark.parametrize(
    ("since", "until", "span", "options", "file"),
    [
        (None, None, "up to 2026-11-22", "", "2026-11-22"),
        ("2026-10-01T00:00Z", "2026-11-01T00:00Z", "of 2026-10", " --month 2026-10", "2026-10"),
        ("2026-11-01T00:00Z", None, "of 2026-11-01 to 2026-11-22", " --since 2026-11-01T00:00", "2026-11-22"),
        (None, "2026-11-01T00:00Z", "up to 2026-10-31", " --until 2026-11-01T00:00", "2026-11-22"),
        (
            "2026-10-01T00:00Z",
            "2026-12-01T00:00Z",
            "of 2026-10-01 to 2026-11-30",
            " --since 2026-10-01T00:00 --until 2026-12-01T00:00",
            "2026-11-22",
        ),
    ],
)
def test_a_subject_says_of_which_time_it_is_and_the_text_how_to_have_it_again(since, until, span, options, file):
    found = report_message(document(since, until), UTC)
    assert found.subject == f"cloudgpu: report {span}: $123.46"
    assert found.file == f"cloudgpu-report-{file}.html"
    assert found.text.startswith("It cost $1.\n\n")
    assert found.file in found.text
    assert found.text.endswith(f": cloudgpu report{options}")
    assert found.text_without_file.endswith(f": cloudgpu report{options}")


def test_a_month_is_one_of_the_documents_zone():
    found = report_message(document("2026-09-30T15:00Z", "2026-10-31T15:00Z"), ZoneInfo("Asia/Seoul"))
    assert found.subject == "cloudgpu: report of 2026-10: $123.46"


@pytest.mark.parametrize(
    ("total", "said"),
    [
        ({}, "$123.46"),
        ({"usd": "0"}, "$0.00"),
        ({"usd": "0.0123"}, "$0.0123"),
        ({"usd": "123.456", "without_price": 2}, "at least $123.46"),
        ({"usd": None, "without_price": 2}, "no price is known"),
    ],
)
def test_a_missing_price_is_never_a_zero(total, said):
    assert amount_text(document(**total)) == said


def test_the_amount_is_in_the_currency_that_was_asked_for():
    assert amount_text(document(currency=KRW)) == "171,011 KRW"  # 123.456 x 1385.2 = 171,011.25


def test_a_name_starts_no_header_and_no_escape():
    found = report_message(document(summary=["fox\r\nBcc: eve@example.org", "a\x1b[31mb"]), UTC)
    assert found.text.split("\n\n")[:2] == ["fox Bcc: eve@example.org", "a [31mb"]
