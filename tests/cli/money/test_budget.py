"""`cloudgpu budget` by the real command line: what it prints in 80 columns, and how it exits."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest

from cloudgpu.cli.colours import coloured
from cloudgpu.cli.money.budget_text import list_text
from cloudgpu.cli.terminal import paint
from tests.cli.program import Program


@pytest.fixture
def line(many, tmp_path):
    """Run one command line in a home of its own; return how it ended."""
    program = Program(tmp_path / "home")
    program.config('owner = "ada"\nproject = "a-project-with-a-name-of-many-words-and-more"\n')

    def run(words, *more):
        return many.done(program, [*words.split(), *more], tmp_path)

    run.home = program.home
    return run


def narrow(text):
    """Say whether it fits 80 columns, but for words that are longer: no word is broken."""
    return all(len(line) <= 80 or len(line.split()) == 1 for line in text.splitlines())


@pytest.mark.soak
def test_a_budget_from_its_setting_to_its_end(line):
    scope = "--scope=project=a-project-with-a-name-of-many-words-and-more,provider=local,owner=ada,account=local"
    done = line(
        f"budget set a-budget-whose-name-is-nearly-forty-long --amount 123456789.99 --period rolling:30d {scope}"
    )
    assert (done.code, narrow(done.out)) == (0, True), done.out + done.err
    done = line("budget set won --amount 400000000 --currency KRW --rate 1385.2 --period week --tz Asia/Seoul")
    assert (done.code, narrow(done.out)) == (0, True), done.out + done.err
    done = line("budget ls")
    assert narrow(done.out), done.out
    assert "a-budget-whose-na…" in done.out
    assert "400,000,000 KRW at 1385.2" in done.out
    done = line("budget check -o json")
    assert done.code == 0
    assert [one["exhausted"] for one in done.json["budgets"]] == [False, False]
    assert line("budget rm won").code == 2, "it is asked first"
    assert line("budget rm won --yes").code == 0
    assert [one["period"] for one in line("budget ls -o json").json["budgets"]] == ["rolling:30d"]


@pytest.mark.parametrize(
    ("words", "field", "says"),
    [
        ("budget ls lab", "NAME", "takes no name"),
        ("budget ls --amount 3", "--amount", "belongs to budget set"),
        ("budget check lab --no-override", "--no-override", "belongs to budget set"),
        ("budget set w --amount 9 --period day --currency KRW --rate 9 --rate-date 2999-01-31", "--rate-date", "is in"),
        ("budget set w --amount 9 --period day --currency KRW --rate-date 2026-11-20", "--rate-date", "needs the rate"),
    ],
)  # fmt: skip
def test_what_would_be_left_out_silently_is_refused(line, words, field, says):
    done = line(f"{words} -o json")
    assert (done.code, done.json["error"]["field"]) == (2, field), done.out + done.err
    assert says in done.json["error"]["message"]
    assert line("budget ls -o json").json["budgets"] == []


@pytest.mark.soak
def test_a_launch_past_it_exits_with_3_and_says_the_way_out(line):
    line("budget set tight --amount 0.05 --period month --no-override")
    done = line("up --dry-run --lease 1h")
    assert (done.code, done.out) == (3, "")
    assert narrow(done.err.partition("error:")[0]), "the plan, which says how it fits"
    assert "of $0.05" in done.err
    assert "refused" in done.err
    assert "Budget tight does not allow" in done.err
    assert "--renew-until 4h" in done.err
    assert "cannot be overridden" in done.err
    error = line("up --dry-run --lease 1h -o json")
    assert (error.code, error.json["error"]["kind"], error.json["error"]["value"]) == (3, "budget_refused", "tight")
    assert line("up --dry-run --lease 1h --renew-until 2h").code == 0
    assert line("up --yes --lease 1h").code == 3
    assert json.loads(line("ls --all -o json").out)["machines"] == []


def test_a_plan_that_nothing_refuses_is_printed_once_though_a_budget_is_too_small(line):
    line("budget set tight --amount 0.05 --period month --action notify")
    done = line("up --dry-run --lease 1h")
    assert (done.code, done.err) == (0, "")
    assert done.out.count("Plan\n") == 1


def test_a_plan_says_which_budget_an_override_passes(line):
    line("budget set tight --amount 0.05 --period month")
    line("budget set firm --amount 0.04 --period month --no-override")
    done = line("up --dry-run --lease 1h --override deadline")
    assert (done.code, narrow(done.err.partition("error:")[0])) == (3, True)
    plan = " ".join(done.err.partition("error:")[0].split())
    assert "too much: passed by --override" in plan[plan.index("tight (all)") :]
    assert "too much: refused" in plan[plan.index("firm (all)") :]
    assert line("budget rm firm --yes").code == 0
    (said,) = line("up --dry-run --lease 1h --override deadline -o json").json["plan"]["budgets"]
    assert (said["fits"], said["refuses"], said["overridden"]) == (False, True, True)


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("set", "NAME"),
        ("set lab", "--amount"),
        ("set lab --amount 3", "--period"),
        ("set lab --amount free --period month", "--amount"),
        ("set lab --amount=-3 --period month", "--amount"),
        ("set lab --amount 3 --period month --scope projct=x", "--scope"),
        ("set lab --amount 3 --period month --currency KRW", "--currency"),
        ("set lab --amount 3 --period month --tz Mars/Olympus", "--tz"),
        ("rm", "NAME"),
        ("rm nothing --yes", "NAME"),
        ("check nothing", "NAME"),
        ("check --every never", "--every"),
        ("test", "alerts.to"),
    ],
)
def test_what_cannot_be_is_exit_2_with_its_field(line, words, field):
    done = line(f"budget {words} -o json")
    assert done.code == 2
    assert done.json["error"]["field"] == field
    assert done.json["error"]["next"]
    assert not (line.home / "ledger").exists(), "nothing was written"


@pytest.mark.soak
def test_a_passed_budget_that_refuses_is_exit_3_of_a_check(line):
    """A machine that costs nothing any more, of which something was spent: its budget is passed for good."""
    directory = line.home / "policies" / "budgets"
    directory.mkdir(parents=True)
    (directory / "tiny.yaml").write_text("amount: .000000001\nperiod: total\n")
    assert line("up --yes --no-wait --name one --override because").code == 0
    try:
        done = line("budget check")
        assert done.code == 3, done.out + done.err
        assert "tiny is exceeded by" in done.out
        assert narrow(done.out)
        assert "Wrong now:" in done.out
    finally:
        assert line("down one --yes").code == 0


BUDGET = {
    "name": "lab", "limit_usd": "300", "amount": None, "currency": "USD", "per_usd": None, "rate_as_of": None,
    "period": "month", "tz": "UTC", "scope": "all", "thresholds": [], "forecast": None, "actions": ["notify"],
    "allow_override": True, "file": None, "since": None, "until": None, "spent_usd": "12.4", "spent_percent": 4,
    "committed_usd": "90", "remaining_usd": "287.6", "forecast_usd": "0", "burn_usd_per_hour": "1.006",
    "exhausted_in_s": None, "overshoot_usd": "0", "exhausted": False, "unpriced": [], "assumed": [],
}  # fmt: skip
STANDS = [
    ({}, "fits", "lab has $287.60 of $300.00 left."),
    ({"spent_usd": "250", "spent_percent": 83, "committed_usd": "1"}, "nearly used up", "lab is nearly used up."),
    ({"committed_usd": "290"}, "passed by what runs", "lab will be passed by what runs."),
    ({"spent_usd": "301", "spent_percent": 100, "exhausted": True}, "used up", "lab is used up."),
]


@pytest.fixture
def in_unicode(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))


@pytest.mark.usefixtures("in_unicode")
@pytest.mark.parametrize(("more", "state", "first"), STANDS)
def test_a_list_answers_first_and_draws_each_budget_in_the_colour_of_its_state(more, state, first):
    lines = list_text([BUDGET | more]).splitlines()
    assert lines[0] == first
    bar = lines[4]
    assert re.fullmatch(rf"  [█▒░]+  {state}", bar), bar
    assert ("█" in bar, "░" in bar) == (True, state not in {"used up", "passed by what runs"})
    painted = coloured("\n".join(lines)).splitlines()[4]
    assert painted == paint(
        bar, {"fits": "green", "used up": "bold red", "nearly used up": "magenta"}.get(state, "bold magenta")
    )


@pytest.mark.usefixtures("in_unicode")
@pytest.mark.parametrize("columns", ["60", "80", "160"])
def test_many_budgets_are_one_sentence_and_no_line_is_wider_than_the_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    many = [BUDGET | {"name": "a-budget-of-18-chr"}, BUDGET | {"name": "course"}]
    text = list_text(many)
    assert text.startswith("All 2 budgets hold what is spent and what runs.\n")
    assert max(map(len, text.splitlines())) <= int(columns)
    assert text.count("  all; notify") == 2
    passed = list_text([many[0], many[1] | STANDS[3][0]])
    assert passed.startswith("course is used up.\n")
