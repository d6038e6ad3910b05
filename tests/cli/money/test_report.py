"""`cloudgpu report`: a private file, sentences of 80 columns, one document, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import cloudgpu
from cloudgpu.testing import FAKE, ManualClock, write_plugin
from cloudgpu.views.report.html import MARK
from tests.cli.many import QuickProgram


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home whose one machine ran for three hours, two days ago, and that has no account any more."""
    home = tmp_path / "home"
    home.mkdir()
    config = home / "config.toml"
    config.write_text(f'[accounts.lab]\nprovider = "fake"\nstate_file = "{tmp_path / "cloud.json"}"\n')
    monkeypatch.syspath_prepend(str(write_plugin(tmp_path / "plugin", {"fake": FAKE})))
    clock = ManualClock(datetime.now(UTC) - timedelta(days=2))
    with cloudgpu.connect(home=home, clock=clock) as gpu:
        gpu.machines.up(wait=False, provider="fake", gpu="v100", name="quiet-owl")
        clock.advance(3 * 3600)
        gpu.machines.down("quiet-owl")
    config.write_text("")
    return home


@pytest.mark.soak
def test_a_page_is_written_for_its_owner_alone_and_its_sentences_said(home, many, tmp_path):
    file = tmp_path / "mine.html"
    program = QuickProgram(home, many=many)
    for _ in range(2):  # over an earlier one, too
        done = program("report", "--to", str(file))
        assert (done.code, done.err) == (0, "")
    first, empty, said = done.out.split("\n", 2)
    assert (first, empty) == (f"Written to {file}, readable for you alone.", "")
    assert said.startswith("1 machine ran for 3.0 hours since ")
    assert all(len(line) <= 80 for line in said.splitlines())
    page = file.read_text()
    assert page.splitlines()[:2] == ["<!DOCTYPE html>", MARK]
    assert "quiet-owl" in page
    assert file.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".mine")] == []


def test_markdown_and_json_go_to_the_standard_output(home, many):
    program = QuickProgram(home, many=many)
    done = program("report", "--format", "md")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("<!-- cloudgpu report -->\n\n# Cloud GPU report\n")
    document = program("report", "--format", "json").json
    assert (document["kind"], document["total"]["usd"]) == ("cloudgpu report", "9")
    at = datetime.fromisoformat(document["as_of"])
    with cloudgpu.connect(home=home, clock=lambda: at) as gpu:
        assert gpu.money.report() == document


def test_one_document_beside_a_file_and_none_where_both_want_the_output(home, many, tmp_path):
    program, file = QuickProgram(home, many=many), tmp_path / "r.md"
    done = program("report", "--format", "md", "--to", str(file), "-o", "json")
    assert done.json["kind"] == "cloudgpu report"
    assert file.read_text().startswith("<!-- cloudgpu report -->")
    alone = program("report", "-o", "json")
    assert alone.json["total"] == done.json["total"]
    assert [one.name for one in tmp_path.glob("cloudgpu-report-*")] == []
    for words in (["--to", "-"], ["--format", "md"]):
        refused = program("report", *words, "-o", "json")
        assert (refused.code, refused.json["error"]["field"]) == (2, "--output")


@pytest.mark.soak
def test_what_is_no_report_is_never_written_over(home, many, tmp_path):
    mine = tmp_path / "thesis.html"
    mine.write_text("<!DOCTYPE html><p>mine")
    done = QuickProgram(home, many=many)("report", "--to", str(mine))
    assert (done.code, mine.read_text()) == (2, "<!DOCTYPE html><p>mine")
    assert "is not a report of cloudgpu" in done.err
    assert "remove that one" in done.err


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--format", "htm"], "--format"),
        (["--since", "2999-01-01"], "--since"),
        (["--until", "never"], "--until"),
        (["--tz", "Mars/Base"], "--tz"),
        (["--currency", "KRW", "--rate", "inf", "--rate-date", "2026-11-01"], "--rate"),
        (["--work", "sleep"], "--work"),
        (["--to", "/dev/null"], "--to"),
        (["--to", "/no/such/place/r.html"], "--to"),
    ],
)
def test_a_fault_says_the_option_the_value_and_the_way_out(home, many, words, field):
    error = QuickProgram(home, many=many)("report", *words, "-o", "json").json["error"]
    assert (error["kind"], error["field"]) == ("invalid_request", field)
    assert error["value"]
    assert error["next"]
