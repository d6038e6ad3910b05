"""`cloudgpu estimate` through the real command line: the tables, what stands below them, and what is refused."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from cloudgpu.catalog.location import use_directory
from cloudgpu.cli.market.estimate_text import estimate_text
from cloudgpu.config.settings import settings_from_text
from cloudgpu.control.advice.estimate import estimate
from cloudgpu.control.advice.estimate_request import parse_estimate
from tests.cli.program import Program
from tests.cli.test_hot_path import seen

NOW = datetime(2026, 11, 20, tzinfo=UTC)
WON = {"currency": "KRW", "rate": "1385.2", "rate_date": "2026-11-20"}


@pytest.fixture(autouse=True)
def _prices(tmp_path):
    """No prices are refreshed, whatever another test has done."""
    use_directory(tmp_path / "lists")


@pytest.fixture
def run(many, tmp_path):
    """Run `cloudgpu estimate` with more words, and return how it ended."""
    return lambda *words: many.done(Program(tmp_path / "home"), ["estimate", *words], tmp_path)


def shown(config="", **asked):
    settings = settings_from_text(config, login="ada")
    wish = parse_estimate(settings, NOW, **asked)
    return estimate_text(estimate(settings, NOW, wish, None), wish.currency)


def rows(text):
    """The lines below the answer, the tables first."""
    return text.split("\n\n", 1)[1].splitlines()


def prose(text):
    return " ".join(text.split())


def test_it_needs_no_account_and_writes_nothing(run, tmp_path):
    done = run("--instance-type", "g2-standard-4", "--region", "us-central1", "-v")
    assert (done.code, done.err) == (0, "")
    assert not (tmp_path / "home").exists()
    lines = rows(done.out)
    assert lines[0].split() == ["GPU", "TYPE", "WHERE", "DAY", "MONTH", "YEAR"]
    assert lines[1].split() == ["1x", "L4", "g2-standard-4", "gcp", "us-central1", "17.41", "529.64", "6,356"]
    assert lines[4].split() == ["g2-standard-4", "gcp", "0.7068", "515.99", "10.00", "3.65", "529.64"]


def test_the_document_is_one_and_its_own(run):
    done = run("--gpu", "l4", "--hours-per-day", "8", "--days-per-week", "5", "-o", "json")
    assert (done.code, done.err) == (0, "")
    document = done.json
    assert document["estimates"]
    for one in document["estimates"]:
        assert all(thing["source"] and thing["as_of"] for thing in one["attached_costs"])
    assert (document["request"]["hours_per_day"], document["request"]["disk_gb"]) == (8, 100)


def test_a_fault_is_one_sentence_with_its_option_and_way_out(run):
    done = run("--gpu", "l4", "--hours-per-day", "25")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "error: --hours-per-day: '25' is not a number from 0.01 to 24.\n  For example --hours-per-day 8\n"
    )
    error = run("--like", "fox", "-o", "json")
    assert (error.code, error.json["error"]["kind"]) == (7, "not_found")
    assert run("--gpu", "l4", "--disk-type", "gp3", "--disk-type", "gp2").code == 2


def test_nothing_that_fits_is_no_fault(run):
    done = run("--instance-type", "p5.48xlarge", "--region", "eu-west-3")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Nothing in the catalogue fits.\nWithout --region: 1 type, from $55.0400 an hour.\n")


WIDE = [
    {},
    {"all": True, "spot": True},
    {"gpu": "v100", "all": True, "number": 1000, "address": "static", "hours_per_day": 12},
    {"flops": "1e30"},
    {"flops": "3.1e21", "precision": "bf16", "spot": True, **WON},
    {"all": True, "number": 1000, **WON},
    {"flops": "1e20", "precision": "fp8", "gpu": "v100"},
]


@pytest.mark.soak
@pytest.mark.parametrize("asked", WIDE, ids=lambda asked: " ".join(asked) or "all")
def test_no_line_is_wider_than_the_terminal(asked):
    lines = shown(**asked).splitlines()
    wide = [line for line in lines if len(line) > 80]
    assert not wide
    assert lines


@pytest.mark.soak
def test_the_price_of_a_commitment_is_marked_and_explained():
    text = shown(gpu="a100-40gb", committed="1y", hours_per_day=8)
    (line,) = [line for line in text.splitlines() if line.startswith("a2-highgpu-1g  gcp")]
    assert line.split()[2] == "2.3142c"
    said = prose(text)
    assert "one year of a2-highgpu-1g by Cyclenerd" in said
    assert "it pays where more than 63% of all hours are used" in said
    assert "of the others none is known, and none is guessed" in said
    nothing = prose(shown(gpu="l4", committed="3y"))
    assert "No price for three years is known of any of these, and none is guessed" in nothing
    assert "c committed" not in nothing
    quoted = prose(shown(gpu="l4", committed="40%"))
    assert "40% less than on demand, as you say; it pays where more than 60% of all hours are used." in quoted


def test_what_the_figures_rest_on_is_said():
    said = prose(shown(gpu="t4", hours_per_day=8, days_per_week=5, number=2))
    assert "2 machines, together:" in said
    assert "A month is 365/12 days (730 hours), a year 365 days." in said
    assert "2 machines run 8 hours a day on 5 days a week: 173.81 hours a month" in said
    assert "A day is an average one: a seventh of a week." in said
    assert "100 GB is each machine's disk, kept all month, also while the machine is off" in said
    assert "premium-ssd (billed as P10 128 GiB) at azure" in said
    assert "at Azure, where every standard address is static, as long as the disk" in said
    assert "Not counted: traffic, snapshots and images, free tiers and credits." in said
    assert "On-demand list prices of 2026-0" in said
    assert "Tax, support and marketplace fees are not in it." in said


def test_what_has_no_price_is_a_question_mark_and_named():
    text = shown(gpu="t4", provider="azure", disk=9000)  # no size class above P50 has a price
    assert rows(text)[1].split()[-2] == "387.63+"
    assert rows(text)[4].split()[-3] == "?"
    assert "+ not priced, and in no sum: disk P70 16384 GiB at azure." in prose(text)
    assert "a3-ultragpu-8g takes no pd-ssd" in prose(shown(gpu="h200", provider="gcp", disk_type="pd-ssd"))


def test_a_price_of_elsewhere_is_marked_at_most():
    text = shown(instance_type="NC4as_T4_v3", region="japaneast", disk_type="standard-ssd", disk=10)
    assert rows(text)[4].split()[-3] == "2.40<"
    assert "< at most" in text


@pytest.mark.parametrize("region", ["eu-central-1", "ap-southeast-1", "us-east-1", "southeastasia", "asia-east1"])
def test_a_line_has_one_mark_at_most_and_a_mark_is_explained_once(region):
    for wish in ({}, {"all": True}):
        text = shown(region=region, **wish)
        rows = "\n\n".join(text.split("\n\n")[:2]).splitlines()
        marks = [mark for row in rows for mark in re.findall(r"\d([+<?~!*]+)(?=\s|$)", row)]
        assert all(len(mark) == 1 for mark in marks)
        for mark in "+<~!":
            assert sum(line.startswith(f"{mark} ") for line in text.splitlines()) == (mark in marks)
        assert sum(line.startswith("? ") for line in text.splitlines()) <= 1
        assert text.count("Derived, not listed:") <= 1


@pytest.mark.parametrize("region", ["eu-central-1", "ap-southeast-1", "us-east-1"])
def test_an_estimate_on_demand_has_no_marks_where_every_price_is_listed_and_new(region):
    assert not re.search(r"\d[+<?~!*]", shown(region=region))


def test_a_derived_disk_price_is_told_once_below():
    text = shown(instance_type="g4-standard-48", region="europe-west4")
    assert rows(text)[4].split()[-3:] == ["8.80", "3.65", "3,626"]
    assert "Derived, not listed: hyperdisk-balanced at gcp (may cost up to 5% less)." in prose(text)


def test_operations_are_a_range_unless_their_efficiency_is_said():
    text = shown(flops="3.1e20", instance_type="g2-standard-4", region="us-central1")
    assert rows(text)[0].split() == ["GPU", "TYPE", "WHERE", "HOURS", "COST", "BETWEEN"]
    assert rows(text)[1].split()[5:] == ["2,372", "1,721", "1,033-2,582"]
    assert "0.3 of it is reached (0.2 to 0.5" in prose(text)
    assert "The first is between $1,032.67 and $2,581.66." in prose(text)
    assert "BETWEEN" not in shown(flops="3.1e20", instance_type="g2-standard-4", efficiency=0.4)
    assert "though real training mostly reaches 0.2 to 0.5" in prose(shown(flops="1e20", gpu="l4", efficiency=0.9))
    assert "Left out: V100-16GB, V100-32GB: no known peak in fp8." in shown(flops="1e20", precision="fp8", gpu="v100")
    assert "--precision fp32 or fp16" in shown(flops="1e20", precision="fp8", gpu="v100")
    assert "A10G?" in shown(flops="1e20", gpu="a10g")  # its peak is unverified


def test_amounts_are_shown_in_the_currency_with_its_rate():
    text = shown(instance_type="g2-standard-4", region="us-central1", **WON)
    assert "MONTH KRW" in rows(text)[0]
    assert rows(text)[1].split()[-2:] == ["733,654", "8,803,844"]
    assert "1 USD = 1385.2 KRW, rate of 2026-11-20, for every amount." in text


def test_fees_are_said_of_the_first_line():
    config = '[fees]\ntax_percent = "10"\n'
    text = prose(shown(config, instance_type="g2-standard-4", region="us-central1"))
    assert "The first: $582.60 a month with tax (10%), and without support and marketplace fees." in text


def test_help_and_ls_do_not_load_it(tmp_path):
    _, told = seen(tmp_path, "--help")
    assert not [name for name in told["modules"] if "estimate" in name]
