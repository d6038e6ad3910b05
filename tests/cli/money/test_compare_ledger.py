"""`cloudgpu compare` on a ledger: text of 80 columns, the library's document, and what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

import cloudgpu
from cloudgpu.testing import FAKE, ManualClock, write_plugin
from tests.cli.many import QuickProgram


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home whose one machine ran for three hours, two days ago, and that has no account any more."""
    home = tmp_path / "home"
    home.mkdir()
    config, state = home / "config.toml", json.dumps(str(tmp_path / "cloud.json"))
    config.write_text(f'[accounts.lab]\nprovider = "fake"\nstate_file = {state}\n')
    monkeypatch.syspath_prepend(str(write_plugin(tmp_path / "plugin", {"fake": FAKE})))
    clock = ManualClock(datetime.now(UTC) - timedelta(days=2))
    with cloudgpu.connect(home=home, clock=clock) as gpu:
        gpu.machines.up(wait=False, provider="fake", gpu="v100", name="quiet-owl")
        clock.advance(3 * 3600)
        gpu.machines.down("quiet-owl")
    config.write_text("")
    return home


def test_the_text_has_a_sentence_a_table_and_what_it_rests_on_in_80_columns(home, many):
    done = QuickProgram(home, many=many)("compare", "-v")
    assert (done.code, done.err) == (0, "")
    assert all(len(line) <= 80 for line in done.out.splitlines())
    short = QuickProgram(home, many=many)("compare").out
    assert short.split("\n\n")[0] == done.out.split("\n\n")[0]
    assert "Without a price, and in no sum: quiet-owl (disk)." in short
    assert len(short.splitlines()) <= 15 < len(done.out.splitlines())
    assert done.out.startswith("So far the cloud has cost at least $9.00; a desktop with one RTX 3090 doing the\n")
    assert "FOR THE CLOUD    EXPECTED  FOR THE DESKTOP" in done.out
    assert "3.0 not known" in done.out


def test_the_library_returns_what_is_printed(home, many):
    printed = QuickProgram(home, many=many)("compare", "--work", "inference", "-o", "json").json
    at = datetime.fromisoformat(printed["as_of"])
    with cloudgpu.connect(home=home, clock=lambda: at) as gpu:
        assert gpu.advice.compare(work="inference") == printed
        assert Decimal(printed["cloud"]["usd"]) == 9


def test_cost_and_compare_tell_one_story(home, many):
    program = QuickProgram(home, many=many)
    line, whole = program("cost", "-o", "json").json["desktop"], program("compare", "-o", "json").json
    # Nothing is known of these three hours, so that all of them are expected to be work.
    assert Decimal(line["hours"]) == round(Decimal(whole["owned"]["expected"]["hours"]), 4)
    assert line["total_usd"] == whole["owned"]["expected"]["total_usd"]
    assert line["sentence"].startswith(
        "If every billed hour was work, a desktop with one RTX 3090 doing the same would have cost $2,200.13 by now"
    )


def test_cost_names_a_desktop_only_where_the_cloud_has_cost_a_tenth_of_it(home, many):
    program = QuickProgram(home, many=many)
    assert "desktop" not in program("cost").out, "$9 beside $2,200 says nothing"
    assert "a desktop with one RTX 3090" in program("cost", "-v").out


def test_what_was_spent_is_said_where_the_desktop_cannot_be_read(home, many):
    (home / "config.toml").write_text('desktop = "mine"\n')
    done = QuickProgram(home, many=many)("cost", "-o", "json")
    assert (done.code, done.json["desktop"]) == (0, None)
    assert "what a desktop would have cost is not known: No desktop is called 'mine'" in done.err
    assert done.json["total_usd"] == "9"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (("--since", "soon"), "--since"),
        (("--since", "2150-01-01"), "--since"),
        (("--since", "2d", "--until", "3d"), "--until"),
        (("--until", "nan"), "--until"),
        (("--tz", "Moon/Base"), "--tz"),
        (("--currency", "euro"), "--currency"),
        (("--rate", "2"), "--rate"),
        (("--currency", "EUR", "--rate", "inf", "--rate-date", "2026-01-01"), "--rate"),
        (("--currency", "EUR", "--rate", "-1", "--rate-date", "2026-01-01"), "--rate"),
        (("--work", "sleeping"), "--work"),
        (("--depreciation", "fast"), "--depreciation"),
        (("--years", "2"), "--years"),
    ],
)
def test_what_cannot_be_asked_of_a_ledger_is_refused_with_the_way_out(tmp_path, options, field):
    with cloudgpu.connect(home=tmp_path) as gpu:
        asked = {
            name.removeprefix("--").replace("-", "_"): value
            for name, value in zip(options[::2], options[1::2], strict=True)
        }
        with pytest.raises(cloudgpu.InvalidRequest) as refused:
            gpu.advice.compare(**asked)
    assert refused.value.field == field
    assert refused.value.next


def test_a_faulty_file_of_a_desktop_ends_with_two(home, many):
    file = home / "mine.yaml"
    file.write_text("gpu: RTX 3090\npurchase_usd: a lot\n")
    done = QuickProgram(home, many=many)("compare", "--desktop", str(file))
    assert done.code == 2
    assert done.out == ""
    assert "mine.yaml" in done.err
