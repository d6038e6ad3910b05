"""The text of `doctor`: trouble first, each with what to do; distinct by word and colour; short without trouble."""

from __future__ import annotations

import pytest

from cloudgpu.cli.colours import coloured
from cloudgpu.cli.setup.doctor import _checks_text, _next_command, _run_live_checks
from cloudgpu.core.model.checks import Check, Verdict
from cloudgpu.errors import InvalidRequest
from tests.control.conftest import Lab

OK = [Check(f"part {number}", Verdict.OK, "is well") for number in range(12)]
NOTES = [
    Check(f"option {number}", Verdict.NOTE, "could be set up", "Run: something" + " long" * 9) for number in range(20)
]
WARN = Check(
    "guards fox",
    Verdict.WARN,
    "Nothing but its own agent would end it.",
    "Run: cloudgpu cron install --with-more-words",
)
FAIL = Check("account aws", Verdict.FAIL, "The credentials have expired.", "Run: aws sso login", 6)


def text(*checks, verbose=False):
    return _checks_text([*OK, *checks], verbose=verbose, next_command="cloudgpu demo")


def test_without_trouble_it_is_at_most_ten_lines_and_counts_the_rest():
    lines = text(*NOTES).splitlines()
    assert lines[0] == "No problem found: 32 checks, 20 with a note. Try: cloudgpu demo"
    assert len(lines) == 10
    assert lines[-1] == "12 more notes, every check, and what to do about notes: cloudgpu doctor -v"
    assert len(text().splitlines()) == 2


@pytest.mark.parametrize(
    ("checks", "provider", "account", "tried"),
    [
        ([Check("clouds", Verdict.NOTE, "No cloud is queried.")], None, None, "cloudgpu demo"),
        (OK, None, None, "cloudgpu up --provider any --dry-run"),
        (OK, "aws", None, "cloudgpu up --provider aws --dry-run"),
        (OK, "local", None, "cloudgpu demo"),
        (OK, None, "lab", "cloudgpu demo"),
    ],
)
def test_where_a_cloud_can_be_asked_the_next_step_is_a_plan_there(checks, provider, account, tried):
    assert _next_command(checks, provider, account) == tried


def test_trouble_comes_first_whole_and_with_what_to_do_on_a_line_of_its_own():
    lines = text(*NOTES[:1], WARN, FAIL).splitlines()
    assert lines[0] == "1 of 15 checks failed; 1 with a warning, 1 with a note."
    marks = [line.split()[0] for line in lines[1:-1]]
    assert marks == ["FAIL", "->", "warn", "->", "note"]
    assert lines[2].strip() == "-> Run: aws sso login"
    assert lines[4].strip() == "-> Run: cloudgpu cron install --with-more-words"
    assert text(WARN).startswith("No check failed: 13 checks, 1 with a warning.")


def test_no_warning_is_left_out_however_many_there_are():
    many = [
        Check(f"guards m-{number}", Verdict.WARN, "Nothing ends it.", "Run: cloudgpu cron install")
        for number in range(30)
    ]
    assert text(*many).count("warn guards m-") == 30


def test_fail_warn_and_note_have_colours_of_their_own():
    marks = [
        line.split(" ")[2] for line in coloured(text(*NOTES[:1], WARN, FAIL)).splitlines() if line.startswith("  \x1b")
    ]
    assert marks == ["\x1b[1;31mFAIL\x1b[0m", "\x1b[1;35mwarn\x1b[0m", "\x1b[35mnote\x1b[0m"]


@pytest.mark.parametrize("columns", ["60", "80", "160"])
def test_it_is_as_wide_as_the_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    assert max(map(len, text(*NOTES, WARN, FAIL, verbose=True).splitlines())) <= int(columns)


def test_a_live_check_shows_its_ceiling_and_launches_nothing_unasked(tmp_path, monkeypatch, capsys):
    lab = Lab(tmp_path, monkeypatch)
    monkeypatch.setenv("CLOUDGPU_HOME", str(lab.home))
    lab.session.ledger.close()
    with pytest.raises(InvalidRequest) as asked:
        _run_live_checks(yes=False, provider=None, account=None, gpu=None, region=None)
    assert (asked.value.field, lab.cloud.list().instances) == ("--yes", ())
    assert "Costs at most $" in capsys.readouterr().err
