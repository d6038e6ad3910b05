"""Markdown of a report: tables that hold, sums as they are, and no name that becomes markup."""

from __future__ import annotations

import re

from cloudgpu.views.report.markdown import MARK, MAX_ROWS, escaped, to_markdown
from tests.views import pages


def tables(text):
    return [line for line in text.splitlines() if line.startswith("|")]


def test_hostile_names_are_text_in_every_place():
    text = to_markdown(pages.hostile())
    body = text.removeprefix(MARK)
    assert not re.search(r"(?<!\\)<(script|img|style|/title|!--)", body)
    assert not re.search(r"(?<!\\)\]\(", body)
    assert "\u202e" not in text
    assert "\u200b" not in text


def test_every_row_of_a_table_has_as_many_cells_as_its_head():
    for document in (pages.hostile(), pages.three_months(), pages.empty()):
        cells = 0
        for line in to_markdown(document).splitlines():
            count = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
            assert not (cells and count) or count == cells, line
            cells = count


def test_an_empty_report_says_so_and_has_no_table():
    text = to_markdown(pages.empty())
    assert text.startswith(f"{MARK}\n\n# Cloud GPU report\n")
    assert "No machine has cost anything." in text
    assert tables(text) == []


def test_a_long_history_is_told_by_month_and_machines_beyond_the_first_are_counted():
    document = pages.huge()
    text = to_markdown(document)
    rows = [line for line in tables(text) if re.match(r"\| 20\d\d-\d\d \|", line)]
    assert rows
    assert not [line for line in tables(text) if re.match(r"\| 20\d\d-\d\d-\d\d \|", line)]
    more = len(document["machines"]) - MAX_ROWS + document["machines_left_out"]
    assert f"And {more} more, each of which cost less." in text


def test_what_markdown_would_obey_is_escaped():
    assert escaped("a|b *c* [d](e) `f` <g>") == r"a\|b \*c\* \[d\](e) \`f\` \<g\>"
    assert escaped("https://example.org and www.example.org") == r"https\://example.org and www\.example.org"
    assert escaped("two\nlines") == "two lines"


def test_the_day_on_which_both_met_is_that_of_the_page_and_of_the_sentence():
    day = "22 Oct 2025"  # it ends with the midnight that the document has, in Seoul
    assert f"| break-even | {day} | {day} | {day} |" in to_markdown(pages.huge())
    three, over = pages.three_months(), pages.three_months()["as_of"]
    three["comparison"] |= {"pace": dict.fromkeys(("low", "expected", "high"))}
    three["comparison"]["break_even"]["projected"] = dict.fromkeys(("low", "expected", "high"))
    assert "| break-even | not known | not known | not known |" in to_markdown(three)
    assert "| break-even | not by then |" in to_markdown(three | {"until": over})


def test_what_the_summary_says_is_not_said_again():
    document = pages.three_months()
    sentence = document["comparison"]["sentence"]
    assert to_markdown(document | {"summary": [sentence]}).count(escaped(sentence)) == 1
    assert to_markdown(document | {"summary": []}).count(escaped(sentence)) == 1


def test_the_table_of_jobs_adds_up_whoever_is_left_out_of_it():
    jobs = [pages.job(number, f"run-{number}", "2", "setup_failed") for number in range(25)]
    rest = [pages.job(0, key, usd, None) for key, usd in (("shared", "3"), ("idle", "4"), ("", "5"))]
    text = to_markdown(pages.empty(jobs=jobs + rest, total=pages.total("62")))
    part = text.partition("## Jobs")[2].partition("## Machines")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in tables(part)][2:]
    assert rows[0] == ["run-0", "setup failed", "1.00", "2.00"]
    assert [row[0] for row in rows[MAX_ROWS:]] == [
        "5 others", "several jobs at once", "idle between jobs", "without a job", "in all",
    ]  # fmt: skip
    assert sum(float(row[3]) for row in rows[:-1]) == float(rows[-1][3]) == 62


def test_one_job_that_is_left_out_of_the_table_is_one_other():
    jobs = [pages.job(number, f"run-{number}", "2", "succeeded") for number in range(MAX_ROWS + 1)]
    text = to_markdown(pages.empty(jobs=jobs, total=pages.total("42")))
    assert "| 1 other |" in text


def test_a_report_without_jobs_has_no_table_of_them():
    assert "## Jobs" not in to_markdown(pages.three_months())


def test_a_gap_in_the_counted_bytes_that_has_ended_says_when():
    gap = {"name": "a", "since": "2026-03-01T10:00:00Z", "until": None}
    text = to_markdown(pages.three_months() | {"unmetered": [gap, gap | {"until": "2026-03-04T10:00:00Z"}]})
    for days in ("since 2026-03-01.", "since 2026-03-01 until 2026-03-04."):
        assert f"- {escaped(f'Bytes out of a are not counted {days}')}" in text.splitlines()
