"""`cloudgpu recommend` through the real command line: the answer first, 80 columns, one document, one sentence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import cloudgpu
from cloudgpu.cli.market.recommend import recommendation_text
from cloudgpu.views.advice.recommend_sentences import duration_text
from tests.cli.program import Program

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
CASES = (
    ("kaggle", {}),
    ("video", {"hours_per_week": 30}),
    ("fine-tuning", {"params": "7b", "method": "lora", "hours_per_week": 2}),
    ("fine-tuning", {"params": "65b", "method": "qlora", "spot": True}),
    ("research", {"gpus": 4, "hours_per_week": 40}),
    ("inference", {"params": "70b"}),
    (None, {"memory": 5000}),
    ("kaggle", {"max_price": "0.01", "budget": 100}),
    ("image-generation", {"region": "eu-west-1", "provider": "aws"}),
)


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    with cloudgpu.connect(home=tmp_path_factory.mktemp("home"), clock=lambda: NOW) as gpu:
        yield gpu


@pytest.fixture
def recommend(many, tmp_path):
    """Run `cloudgpu recommend` with more words, and return how it ended."""
    return lambda words: many.done(Program(tmp_path / "home"), ["recommend", *words.split()], tmp_path)


def test_a_time_of_one_day_is_in_the_singular():
    assert [duration_text(timedelta(days=days)) for days in (1, 2, 60)] == ["1 day", "2 days", "2 months"]


@pytest.mark.parametrize(("work", "asked"), CASES)
def test_the_answer_stands_first_and_everything_in_80_columns(gpu, work, asked):
    value = gpu.advice.recommend(work, **asked)
    shown = recommendation_text(value, verbose=True, sources=True)
    assert " ".join(shown.split("\n\n")[0].split()) == value["sentence"]
    assert max(map(len, shown.splitlines())) <= 80
    briefly = recommendation_text(value, verbose=False)
    assert briefly.split("\n\n")[0] == shown.split("\n\n")[0]
    assert ("\nListed by work per dollar, the fewest GPUs first.\n" in briefly) == (len(value["machines"]) > 1)
    assert not any(f"{number}. {step['title']}" in briefly for number, step in enumerate(value["steps"], 1))
    one_line = " ".join(shown.split())
    assert all(" ".join(f"{step['title']} {step['text']}".split()) in one_line for step in value["steps"])
    assert all(f"{one['text']}; {one['as_of']}, {one['basis']}" in one_line for one in sources(value))
    assert all(remark in one_line for remark in value["notes"])


@pytest.mark.parametrize("hours", [{}, {"hours_per_week": 3}])
def test_without_a_machine_to_rent_only_what_needs_one_is_left_out_of_the_desktops(gpu, hours):
    value = gpu.advice.recommend("kaggle", max_price="0.01", **hours)
    assert (value["machines"], bool(value["desktops"])) == ([], True)
    lines = recommendation_text(value, verbose=False).splitlines()
    headings = next(line.split() for line in lines if line.startswith("BUY"))
    assert headings == ["BUY", "CARD", "EACH", "DESKTOP", "WATTS"]


def sources(value):
    return [source for step in value["steps"] for source in step["sources"]]


@pytest.mark.soak
def test_tables_have_the_machines_and_desktops_of_the_document(recommend, gpu, tmp_path):
    said, value = recommend("video --hours-per-week 30 -v").out, recommend("video --hours-per-week 30 -o json").json
    with cloudgpu.connect(home=tmp_path / "home") as now:  # prices grow old
        assert value == now.advice.recommend("video", hours_per_week="30") | {"as_of": value["as_of"]}
    rows = said.split("\n\n")
    assert rows[1].splitlines()[0].split() == ["RENT", "GIB", "TYPE", "WHERE", "$/H", "WORK/$"]
    assert rows[2].splitlines()[0].split() == "BUY CARD EACH DESKTOP WATTS FROM H/WEEK PAID OFF".split()
    for line, one in zip(rows[1].splitlines()[1:], value["machines"], strict=False):
        assert f"{one['count']}x {one['gpu']}" in line
    for line, one in zip(rows[2].splitlines()[1:], value["desktops"], strict=False):
        assert line.startswith(f"{one['cards']}x {one['gpu']}")
    assert "PAID OFF" not in recommendation_text(gpu.advice.recommend("video"), verbose=False)


def test_what_cannot_be_is_one_sentence_or_one_document_and_nothing_is_written(recommend, tmp_path):
    said = recommend("kagle")
    assert (said.code, said.out) == (2, "")
    assert not (tmp_path / "home").exists()
    assert said.err.startswith("error: WORK: 'kagle' is not a kind of work; did you mean 'kaggle'?\n")
    error = recommend("kaggle --gpus nan -o json").json["error"]
    assert (error["field"], error["value"]) == ("--gpus", "nan")
