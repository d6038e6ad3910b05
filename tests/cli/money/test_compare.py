"""`cloudgpu compare` without a ledger through the real command line: text, document, the list, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cloudgpu
from tests.cli.program import Program

PAGE = Path(__file__).parents[3] / "docs" / "compare.md"
PUBLISHED = "--gpu v100 --price 2.14 --utilization 15%".split()


@pytest.fixture
def compare(many, tmp_path):
    """Run `cloudgpu compare` with more words, and return how it ended."""
    return lambda *words: many.done(Program(tmp_path / "home"), ["compare", *words], tmp_path)


def test_the_page_shows_what_the_published_example_prints(compare, tmp_path):
    shown = PAGE.read_text().split("$ cloudgpu compare --gpu v100 --price 2.14 --utilization 15%\n")[1].split("```")[0]
    done = compare(*PUBLISHED)
    assert (done.code, done.err, done.out) == (0, "", shown)
    assert max(map(len, shown.splitlines())) <= 80
    assert not (tmp_path / "home").exists()  # no ledger is made, or read


@pytest.mark.soak
def test_the_document_is_that_of_the_library(compare, tmp_path):
    done = compare(*PUBLISHED, "-o", "json")
    with cloudgpu.connect(home=tmp_path / "home") as gpu:
        ours = gpu.advice.compare(gpu="v100", price="2.14", utilization="15%")
        assert compare("--desktops", "-o", "json").json == gpu.advice.desktops()
    assert done.json | {"as_of": ""} == ours | {"as_of": ""}


def test_the_desktops_are_a_table_of_80_columns(compare):
    done = compare("--desktops")
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 80
    assert {"rtx3090", "rtx3090x2", "rtx4090"} <= {line.split()[0] for line in done.out.splitlines()}


@pytest.mark.parametrize(
    ("words", "field", "out"),
    [
        ("--utilization 15 --price 2", "--utilization", "15%"),
        ("--utilization 15% --price nan", "--price", "--price 2.14"),
        ("--utilization 15%", "--gpu", "--price 2.14"),
        ("--gpu v100", "--gpu", "Run: cloudgpu compare --gpu v100 --hours-per-day 3"),
        ("--desktops --gpu v100", "--gpu", "cloudgpu compare --desktops"),
        ("--price 2 --utilization 15% --desktop nope", "desktop", "rtx3090"),
        ("--price 2 --utilization 15% --since 7d", "--since", "Leave it out"),
    ],
)
def test_what_cannot_be_is_refused_with_its_option(compare, words, field, out):
    done = compare(*words.split(), "-o", "json")
    error = done.json["error"]
    assert (done.code, error["kind"], error["field"]) == (2, "invalid_request", field), error
    assert out in error["next"]
    text = compare(*words.split())
    assert (text.code, text.out, text.err.startswith("error: ")) == (2, "", True)


def test_a_file_of_ones_own_is_read_from_where_it_stands(compare, tmp_path):
    own = tmp_path / "mine.yaml"
    lines = {"gpu": "RTX 4090", "purchase_usd": 3000, "system_watts": 120, "idle_watts": 70, "usd_per_kwh": 0.3}
    lines |= {"life_years": 5, "source": "a receipt", "as_of": '"2026-05-01"'}
    own.write_text("\n".join(f"{key}: {value}" for key, value in lines.items()))
    done = compare("--price", "2.14", "--utilization", "15%", "--desktop", str(own), "-o", "json")
    assert json.loads(done.out)["desktop"]["name"] == "mine"
    own.write_text(own.read_text().replace("3000", "-3000"))
    done = compare("--price", "2.14", "--utilization", "15%", "--desktop", str(own))
    assert done.code == 2
    assert "mine.yaml:2: purchase_usd has to be a number" in done.err
