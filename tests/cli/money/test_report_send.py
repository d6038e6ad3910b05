"""`report --send` by the command line: who has it, who has not, and what it refuses."""

from __future__ import annotations

import json

import pytest

from cloudgpu.control.alerts.channels import label_of
from tests.cli.line import Line
from tests.receivers.web import WebReceiver


@pytest.fixture
def web():
    receiver = WebReceiver()
    yield receiver
    receiver.end()


@pytest.fixture
def line(own_home, capsys, web):
    return Line(own_home, capsys, None, f"[alerts]\nto = ['json://{web.place}/t0ken', 'json://127.0.0.1:9/t0ken']\n")


def test_who_has_it_is_said_and_exit_code_8_says_that_somebody_has_not(line, web):
    said = line("report --send")
    has, has_not = (label_of(f"json://{place}/t0ken") for place in (web.place, "127.0.0.1:9"))
    assert (said.code, len(web.got)) == (8, 1)
    assert f"{has} has it.\n{has_not} has not: could not be reached" in said.out
    assert "t0ken" not in said.out + said.err
    found = json.loads(web.got[0][2])
    assert found["title"].startswith("cloudgpu: report up to ")
    assert found["attachments"][0]["filename"].startswith("cloudgpu-report-")
    assert not list(line.home.glob("*.html"))


def test_with_json_it_is_one_document(line, web):
    line.config(f"[alerts]\nto = ['json://{web.place}/t0ken']\n")
    said = line("report --send -o json")
    assert (said.code, said.json["failed"], said.json["nothing_sent"]) == (0, [], None)
    assert said.json["subject"].endswith(": $0.00")
    assert len(said.json["sent"]) == len(web.got) == 1


def test_a_month_in_which_nothing_was_billed_is_not_sent_and_that_is_said(line, web):
    said = line("report --send --month 2026-01")
    assert (said.code, said.out) == (0, "Nothing was sent: nothing was billed in 2026-01.\n")
    document = line("report --send --month 2026-01 -o json").json
    assert (document["sent"], document["failed"]) == ([], [])
    assert document["nothing_sent"] == said.out.strip()
    assert web.got == []


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("--send --to x.html", "--to"),
        ("--send --to -", "--to"),
        ("--send --format md", "--format"),
        ("--send --month soon", "--month"),
        ("--send --month 2999-01", "--month"),
        ("--month 2026-13", "--month"),
        ("--month last --since 3d", "--since"),
        ("--month last --until 2026-10-01", "--until"),
    ],
)
def test_what_it_has_no_use_for_is_refused_with_a_way_out(line, web, words, field):
    said = line(f"report {words} -o json")
    error = said.json["error"]
    assert (said.code, error["field"]) == (2, field)
    assert error["next"]
    assert web.got == []


def test_without_a_receiver_the_way_out_is_said(line):
    line.config("")
    said = line("report --send")
    assert said.code == 2
    assert "config.toml names no receiver" in said.err
    assert "config.toml" in said.err
