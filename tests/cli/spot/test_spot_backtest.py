"""`cloudgpu spot backtest` through the real command line: the table, the timeline, the document, what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pytest

from cloudgpu.cli.colours import coloured
from cloudgpu.cli.jobs.spot_backtest import spot_backtest_text
from cloudgpu.core.spot.replay.quote import SHIPPED
from tests.cli.program import Program
from tests.core.spot.worlds import generated_trace

JOB = ("--work", "6h", "--deadline", "9h", "--starts", "3", "--tick", "15m")
QUICK = ("--policy", "greedy", "--policy", "uniform-progress")
CODES = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """A directory with a trace of each shipped model, one of them in a folder below."""
    found = tmp_path_factory.mktemp("traces")
    (found / "more").mkdir()
    for seed, model in enumerate(SHIPPED):
        trace = generated_trace(model, 600, 400, seed)
        value = {"metadata": {"gap_seconds": 600}, "data": list(trace.data)}
        (found / ("more" if seed else ".") / f"{model.name}.json").write_text(json.dumps(value))
    return found


@pytest.fixture
def spot(many, tmp_path):
    """Run `cloudgpu spot backtest` with more words, and return how it ended."""
    return lambda *words: many.done(Program(tmp_path / "home"), ["spot", "backtest", *map(str, words)], tmp_path)


def test_the_document_has_the_optimum_and_each_policy(spot, traces, tmp_path):
    done = spot("--traces", traces, *JOB, *QUICK, "-o", "json")
    assert (done.code, done.err) == (0, "")
    value = done.json
    assert [one["name"] for one in value["traces"]] == ["mixed", "plenty", "scarce"]
    assert [one["policy"] for one in value["policies"]] == ["greedy", "uniform-progress"]
    assert (value["runs"], value["work_h"], value["deadline_h"], value["changeover_h"]) == (9, 6, 9, 0.2)
    for one in value["policies"]:
        assert one["cost"]["mean"] >= value["optimum"]["cost"] > 0
        assert (one["missed"], one["runs"]) == (0, 9)
    assert not (tmp_path / "home").exists()  # no ledger is needed where traces are given


def test_the_timeline_of_the_document_is_whole(spot, traces):
    value = spot("--traces", traces / "scarce.json", *JOB, *QUICK, "-o", "json").json
    shown = value["timeline"]
    assert shown["traces"] == ["scarce"]
    assert len(shown["available"][0]) == 36
    for one in shown["policies"]:
        begins = [stretch["since_h"] for stretch in one["stretches"]]
        ends = [stretch["until_h"] for stretch in one["stretches"]]
        assert begins == [0, *ends[:-1]]
        assert one["stretches"][-1]["work_done"] == pytest.approx(1, abs=1e-3)
        assert ends[-1] == pytest.approx(one["finish_h"], abs=1e-3)
        starts = [stretch for stretch in one["stretches"] if stretch["mode"] == "changeover"]
        assert len(starts) == one["starts"]


def test_the_same_words_give_the_same_answer_and_another_seed_another(spot, traces):
    first, again, other = (
        spot("--traces", traces, *JOB, *QUICK, "--seed", seed, "-o", "json").json for seed in (1, 1, 2)
    )
    assert first == again
    assert first["timeline"] != other["timeline"]


def test_every_line_fits_80_columns_with_prices_and_without(spot, traces):
    for words in ((), ("--price-spot", "0.92", "--price-on-demand", "3.06"), ("--together",)):
        done = spot("--traces", traces, *JOB, *QUICK, *words)
        assert done.code == 0, done.err
        assert max(map(len, done.out.splitlines())) <= 80
        assert "optimum" in done.out
        assert "6h of work, due in 9h" in done.out
        assert ("$0.92" in done.out) == bool(words[1:])


def test_the_timeline_says_with_letters_what_ran_when(spot, traces):
    shown = spot("--traces", traces, *JOB, "--policy", "on-demand").out.split("One run, from hour")[1]
    drawn = next(line for line in shown.splitlines() if line.startswith("  on-demand"))
    assert drawn[20:] == "░" + "▓" * 41  # 6.2 of 9 hours in 60 columns, 12 minutes of them a changeover
    assert re.search(r"18\.60: 0\.0h spot, 6\.2h on demand, 1 start, 6\.2h", shown)
    assert re.search(r"0h +1h 30m +3h +4h 30m +6h +7h 30m +9h", shown)


def test_colours_change_no_word(spot, traces):
    value = spot("--traces", traces, *JOB, *QUICK, "-o", "json").json
    plain = spot_backtest_text(value)
    painted = coloured(plain)
    assert CODES.sub("", painted) == plain
    drawn = [line for line in painted.splitlines() if CODES.sub("", line).startswith("  greedy")]
    assert len(drawn) == 1
    assert CODES.search(drawn[0])


@pytest.mark.soak
def test_ascii_is_enough(spot, traces, tmp_path):
    program = Program(tmp_path / "home", {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    done = program("spot", "backtest", "--traces", str(traces), *JOB, *QUICK)
    assert done.code == 0, done.err
    assert done.out.isascii()
    assert "# on spot, % on demand" in done.out.replace("\n", " ")


def test_one_start_has_no_interval(spot, traces):
    value = spot("--traces", traces / "scarce.json", *JOB, *QUICK, "--starts", "1", "-o", "json").json
    assert {one["cost"]["low"] for one in value["policies"]} == {None}
    assert "95% confidence" not in spot_backtest_text(value)


def test_a_file_that_is_named_twice_counts_once_and_two_of_one_name_are_told_apart(spot, traces, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "scarce.json").write_bytes((traces / "scarce.json").read_bytes())
    files = (traces / "scarce.json", traces / "scarce.json", tmp_path / "other" / "scarce.json")
    words = [word for file in files for word in ("--traces", file)]
    found = spot(*words, *JOB, *QUICK, "-o", "json").json["traces"]
    assert [one["name"] for one in found] == [f"{traces.name}/scarce", "other/scarce"]


@dataclass(frozen=True)
class Case:
    words: str
    field: str
    says: str
    out: str


WRONG = [
    Case("--policy gready", "--policy", "no spot policy 'gready'; did you mean 'greedy'?", "Use one of: on-demand"),
    Case("--work soon", "--work", "'soon' is not a duration", "90m, 8h"),
    Case("--work 60h", "--deadline", "60h of work and a changeover of 12m do not fit in 60h", "--deadline 61h or more"),
    Case("--deadline 10000000h", "--deadline", "is not a duration", "90m, 8h"),
    Case("--changeover -5m", "--changeover", "'-5m' is not a duration", "90m, 8h"),
    Case("--tick 1s", "--tick", "A tick of 1s does not fit", "at least 10s"),
    Case("--tick 61h", "--tick", "A tick of 61h does not fit", "at least 10s"),
    Case("--deadline 900h --tick 10s", "--tick", "A tick of 10s does not fit a deadline of 900h", "1 to 5,000 of them"),
    Case("--price-spot 0", "--price-spot", "0 is not a price per hour", "--price-spot 0.92"),
    Case("--price-on-demand nan", "--price-on-demand", "nan is not a price per hour", "for example"),
    Case("--price-spot cheap", "--price-spot", "cheap", ""),
    Case("--starts 0", "--starts", "--starts 0 is not a whole number from 1 to 10,000", "--starts 5"),
    Case("--starts many", "--starts", "many", ""),
    Case("--seed -1", "--seed", "--seed -1 is not a whole number from 0", "--seed 5"),
]


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.words)
def test_a_wrong_option_is_exit_2_with_its_value_and_a_way_out(spot, traces, case):
    done = spot("--traces", traces, *case.words.split(), "-o", "json")
    error = done.json["error"]
    assert (done.code, error["field"]) == (2, case.field), error
    assert case.says in error["message"]
    assert case.out in error["next"]


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (None, "does not exist"),
        ("", "The trace one is not JSON"),
        ("{}", "The trace one has no metadata.gap_seconds"),
        ('{"metadata": {"gap_seconds": 600}, "data": [2, "x"]}', "The trace one has a sample at data[1]"),
        ('{"metadata": {"gap_seconds": 600}, "data": [1, 0]}', "No trace is as long as the deadline of 9 hours"),
    ],
)
def test_a_wrong_trace_is_exit_2_with_its_name(spot, tmp_path, written, says):
    file = tmp_path / "one.json"
    if written is not None:
        file.write_text(written)
    done = spot("--traces", file, *JOB)
    assert (done.code, done.out) == (2, "")
    assert says in done.err.replace("\n", " ")


def test_a_directory_without_traces_is_exit_2(spot, tmp_path):
    (tmp_path / "empty").mkdir()
    done = spot("--traces", tmp_path / "empty", *JOB)
    assert done.code == 2
    assert "There is no .json file in" in done.err


def test_without_traces_and_without_a_history_it_says_where_to_get_some(spot):
    done = spot(*JOB, "-o", "json")
    assert (done.code, done.json["error"]["field"]) == (2, "--traces")
    assert "The ledger has seen no spot machine come and go" in done.json["error"]["message"]
    assert "https://github.com/skypilot-org/spot-traces" in done.json["error"]["next"]
