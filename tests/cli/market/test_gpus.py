"""`cloudgpu gpus` through the real command line: the table, the document, the marks, and what is refused."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cloudgpu.cli.market.market import offers_text
from cloudgpu.control.catalog.market import Filters, Order, gpus_document
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.money import Money
from tests.cli.program import Program
from tests.cli.test_hot_path import seen

DOCS = Path(__file__).parents[3] / "docs"
sys.path.insert(0, str(DOCS))
from pages import read_page, unquoted  # noqa: E402  (docs/ is no package)

NOW = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.fixture
def gpus(many, tmp_path):
    """Run `cloudgpu gpus` with more words, and return how it ended."""
    return lambda *words: many.done(Program(tmp_path / "home"), ["gpus", *words], tmp_path)


@pytest.fixture
def offers(gpus):
    def found(*words):
        done = gpus(*words, "-o", "json")
        assert (done.code, done.err) == (0, ""), done
        return done.json["offers"]

    return found


def test_nothing_is_written_and_no_account_is_needed(gpus, tmp_path):
    assert gpus("--gpu", "t4").code == 0
    assert not (tmp_path / "home").exists()


def test_the_cheapest_is_first_and_one_row_stands_for_a_type(offers):
    found = offers()
    prices = [float(one["price"]["usd_per_hour"]) for one in found]
    assert prices == sorted(prices)
    names = [(one["provider"], one["instance_type"]) for one in found]
    assert len(names) == len(set(names)) > 150
    assert {one["provider"] for one in found} == {"aws", "gcp", "azure"}


def test_every_filter_holds_for_every_row(offers):
    found = offers("--gpu", "a100:8", "--min-memory", "80gb", "--max-price", "30", "--provider", "gcp", "--spot")
    assert found
    for one in found:
        assert one["gpu"].startswith("A100")
        assert (one["count"], one["provider"], one["market"]) == (8, "gcp", "spot")
        assert one["gpu_memory_gib"] >= 80
        assert float(one["price"]["usd_per_hour"]) <= 30


def test_a_region_shows_its_own_prices(offers):
    found = offers("--region", "eu-west-1", "--gpu", "t4")
    assert found
    assert {one["region"] for one in found} == {"eu-west-1"}


def test_memory_is_that_of_the_share(offers):
    assert {one["share"] for one in offers("--gpu", "l4", "--min-memory", "24")} == {1}
    assert min(one["share"] for one in offers("--gpu", "l4")) == 0.125


@pytest.mark.soak
def test_the_most_work_per_dollar_is_first_when_asked(offers):
    figures = [one["h100_hours_per_dollar"] for one in offers("--sort", "speed-per-dollar")]
    assert figures == sorted(figures, reverse=True)
    assert figures != [one["h100_hours_per_dollar"] for one in offers()]


@pytest.mark.soak
def test_legacy_types_stand_there_only_with_all_and_say_why(gpus, offers):
    assert not [one for one in offers("--gpu", "v100") if one["legacy"]]
    legacy = {one["instance_type"]: one["legacy"] for one in offers("--gpu", "v100", "--all") if one["legacy"]}
    assert {"p3.2xlarge", "Standard_NC6s_v3"} <= set(legacy)
    assert "aws p3.2xlarge" in " ".join(gpus("--gpu", "v100").out.split())  # named, though not listed
    assert "with --all" not in gpus("--gpu", "v100", "--all").out
    text = gpus("--gpu", "v100", "--all").out
    assert re.search(r"p3\.2xlarge\* ", text)
    assert "retired 2025-09-30" in " ".join(text.split())


def test_v100_means_two_gpus_and_the_answer_says_which(gpus):
    text = gpus("--gpu", "v100:8").out
    assert "v100 means V100-16GB or V100-32GB; each row says which." in text
    done = gpus("--gpu", "v100", "-o", "json")
    assert done.json["matching_gpus"] == ["V100-16GB", "V100-32GB"]
    assert {one["gpu"] for one in done.json["offers"]} == {"V100-16GB", "V100-32GB"}
    assert "means" not in gpus("--gpu", "t4").out


def test_a_speed_that_was_not_measured_is_named_beside_the_figure(gpus, offers):
    text = gpus("--gpu", "t4", "-v").out
    rows = [line for line in text.splitlines() if " T4 " in line]
    assert rows
    assert all(re.search(r"\d\.\d\d\dbw$", row) for row in rows)
    assert "bw  training speed not measured: memory bandwidth" in text
    assert {one["speed"]["basis"] for one in offers("--gpu", "t4")} == {"memory bandwidth"}
    measured = gpus("--gpu", "a100-40gb").out
    assert re.search(r"A100-40GB .*\d\.\d\d\d$", measured, re.MULTILINE)
    assert "not measured" not in measured
    assert {one["speed"]["basis"] for one in offers("--gpu", "mi300x")} == {"tensor TFLOPs"}


@pytest.mark.soak
def test_a_sum_of_listed_prices_has_no_mark_and_one_sentence(gpus, offers):
    text = gpus("--gpu", "t4", "--provider", "gcp").out
    assert {one["price"]["basis"] for one in offers("--gpu", "t4", "--provider", "gcp")} == {"derived"}
    assert " ".join(text.split()).count("ome of Google's prices are sums") == 1
    assert "~" not in text
    for mark in "~?!":
        assert sum(line.startswith(f"{mark}  ") for line in gpus().out.splitlines()) <= 1


def test_derived_and_old_prices_are_marked(gpus, offers):
    text = " ".join(gpus("--provider", "aws", "--gpu", "a10g", "--spot", "-v").out.split())
    assert re.search(r"\d~ ", text)
    assert not re.search(r"\d[~!]{2}", text)  # one mark a line: the one that says most against the price
    assert "~ derived: EC2 spot is the list price less the published savings" in text
    assert "! old" not in text
    text = " ".join(gpus("--provider", "azure", "--spot", "--gpu", "t4", "-v").out.split())
    assert re.search(r"\d!", text)
    assert "! old: the price is from more than 180 days ago." in text
    assert {one["price"]["basis"] for one in offers("--provider", "aws", "--spot")} == {"derived"}


def test_the_first_line_is_the_first_offer_with_its_price_and_how_far_it_is_known(gpus, offers):
    first = offers("--gpu", "t4")[0]
    text = " ".join(gpus("--gpu", "t4").out.split())
    usd, day = first["price"]["usd_per_hour"], first["price"]["as_of"][:10]
    where = f"aws {first['instance_type']} in {first['region']}"
    assert text.startswith(f"Cheapest: 1x T4, {where}, ${float(usd):.4f} an hour (listed {day}). One of ")
    spot = " ".join(gpus("--gpu", "t4", "--spot", "--provider", "aws").out.split())
    assert spot.partition(" One of")[0].endswith("(derived 2025-06-28).")
    fast = offers("--gpu", "a100", "--sort", "speed-per-dollar")[0]
    said = " ".join(gpus("--gpu", "a100", "--sort", "speed-per-dollar").out.split())
    assert said.startswith(f"Most work for a dollar: {fast['count']}x {fast['gpu']}, {fast['provider']} ")


def test_marks_are_explained_in_short_and_with_v_one_by_one(gpus):
    brief, full = (" ".join(gpus("--spot", "--gpu", "a10g", *more).out.split()) for more in ((), ("-v",)))
    assert "~ derived (EC2 spot was off by -22% to +80% where observed); bw: its speed" in brief
    assert "its speed was not measured" in brief
    assert "Google's machines are their parts" not in brief
    assert "training speed not measured: memory bandwidth" in full
    assert "-v says more" not in full


@pytest.mark.parametrize("columns", [60, 120])
def test_no_line_is_wider_than_the_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = offers_text(value(gpu="v100", with_legacy=True), requested_gpu="v100", region=None)
    assert max(map(len, text.splitlines())) <= columns


def test_a_share_that_is_unverified_is_marked(gpus):
    text = gpus("--gpu", "a10", "--provider", "azure", "-v").out
    assert re.search(r"^1/6 A10\? +4  NV6ads_A10_v5 ", text, re.MULTILINE)
    assert re.search(r"^1x A10 +24  NV36ads_A10_v5 ", text, re.MULTILINE)
    assert "?  unverified: from memory" in text
    assert "unverified" not in gpus("--gpu", "t4", "-v").out


def test_azures_old_spot_prices_come_with_a_warning(gpus):
    assert "many later ones equal the list price" in gpus("--provider", "azure", "--spot").out
    assert "many later ones" not in gpus("--provider", "azure").out


def value(now=NOW, order=Order.PRICE, **wishes):
    return gpus_document(Filters(**wishes), order, now)


def test_whether_a_price_is_old_depends_on_the_clock():
    wishes = {"provider": "gcp", "gpu": "l4"}
    assert not any(one["old"] for one in value(datetime(2026, 8, 4, tzinfo=UTC), **wishes)["offers"])
    assert not any(
        one["old"] for one in value(datetime(2026, 8, 3, tzinfo=UTC) + timedelta(days=180), **wishes)["offers"]
    )
    assert all(one["old"] for one in value(datetime(2027, 2, 1, tzinfo=UTC), **wishes)["offers"])


EVERYTHING = [
    {"market": market, "with_legacy": legacy, "region": region}
    for market in Market
    for legacy in (False, True)
    for region in (None, "northamerica-northeast1", "us-east-1", "westus2")
]


@pytest.mark.parametrize("wishes", EVERYTHING, ids=str)
@pytest.mark.parametrize("order", Order)
def test_no_line_is_wider_than_80_columns(wishes, order):
    found = value(order=order, **wishes)
    assert found["offers"]
    text = offers_text(found, requested_gpu=None, region=wishes["region"])
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_nothing_that_fits_is_no_error_and_says_what_would_help(gpus):
    done = gpus("--gpu", "t4", "--max-price", "0.001")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Nothing in the catalogue fits.\nWithout --max-price: ")
    document = gpus("--gpu", "t4", "--max-price", "0.001", "-o", "json").json
    assert document["offers"] == []
    assert [other["requirement"] for other in document["without"]] == ["max_price"]
    assert document["without"][0]["types"] > 5


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--gpu t4 --min-memory 80", "Without --min-memory"),
        ("--gpu h200 --provider azure --region japaneast --spot", "Without --region|Without --spot"),
        ("--gpu v100 --provider aws --max-price 5", "With --all"),
        ("--gpu t4:16 --min-memory 100 --max-price 0.01", "leave out two"),
        ("--gpu rtx3090", "Without --gpu"),
    ],
)
def test_wishes_that_leave_nothing_name_the_one_in_the_way(gpus, words, says):
    done = gpus(*words.split())
    assert (done.code, done.err) == (0, "")
    assert re.search(says, done.out), done.out


def test_without_leaves_out_exactly_one_wish():
    found = value(gpu="t4", max_price=Money.usd("0.001"), min_memory_gib=8.0)
    assert found["offers"] == []
    (other,) = found["without"]
    assert other["requirement"] == "max_price"
    assert other["types"] == len(value(gpu="t4", min_memory_gib=8.0)["offers"])


@dataclass
class Bad:
    args: str
    field: str
    says: str
    out: str


BAD = [
    Bad("--gpu v10", "--gpu", "no GPU 'v10'; did you mean 'v100'?", "cloudgpu gpus --gpu v100"),
    Bad("--gpu h1000", "--gpu", "did you mean 'h100'?", "cloudgpu gpus --gpu h100"),
    Bad("--gpu zzzzzz", "--gpu", "no GPU 'zzzzzz'", "cloudgpu gpus --all"),
    Bad("--gpu=", "--gpu", "names no GPU", "--gpu a100:8"),
    Bad("--gpu a100:0", "--gpu", "names no GPU", "--gpu a100:8"),
    Bad("--gpu a100:many", "--gpu", "names no GPU", "--gpu a100:8"),
    Bad("--min-memory=-16", "--min-memory", "'-16' is not an amount of GPU memory", "--min-memory 24"),
    Bad("--min-memory 0", "--min-memory", "'0' is not an amount of GPU memory", "--min-memory 24"),
    Bad("--min-memory lots", "--min-memory", "'lots' is not an amount of GPU memory", "--min-memory 24"),
    Bad("--min-memory 16TB", "--min-memory", "'16TB' is not an amount of GPU memory", "--min-memory 24"),
    Bad("--min-memory nan", "--min-memory", "'nan' is not an amount of GPU memory", "--min-memory 24"),
    Bad("--max-price free", "--max-price", "'free' is not a price per hour", "--max-price 1.50"),
    Bad("--max-price 0", "--max-price", "'0' is not a price per hour", "--max-price 1.50"),
    Bad("--max-price=-1", "--max-price", "'-1' is not a price per hour", "--max-price 1.50"),
    Bad("--max-price nan", "--max-price", "'nan' is not a price per hour", "--max-price 1.50"),
    Bad("--provider awss", "--provider", "no provider 'awss'; did you mean 'aws'?", "Use aws."),
    Bad("--provider oracle", "--provider", "no provider 'oracle'", "aws, azure, gcp"),
    Bad("--provider local", "--provider", "a machine that is there already", "cloudgpu up --provider local"),
    Bad("--region us-eastt-1", "--region", "no region 'us-eastt-1'; did you mean 'us-east-1'?", "Use us-east-1."),
    Bad("--region moon", "--region", "no region 'moon'", "Run: cloudgpu"),
    Bad("--region eastus --provider aws", "--region", "a region of azure, not of aws", "--provider azure"),
    Bad("--region us-gov-west-1", "--region", "no region 'us-gov-west-1'", "Use us-west-1."),
    Bad("--sort cheap", "--sort", "'cheap' is not one of 'price', 'speed-per-dollar'", "cloudgpu gpus --help"),
    Bad("t4", "arguments", "t4", "cloudgpu gpus --help"),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.args)
def test_bad_input_is_named_with_the_way_out(gpus, case):
    done = gpus(*case.args.split())
    assert (done.code, done.out) == (2, ""), done
    sentence, way_out = done.err.splitlines()
    assert sentence.startswith("error: ")
    assert case.says in sentence
    assert case.out in way_out
    document = gpus(*case.args.split(), "-o", "json")
    error = document.json["error"]
    assert (document.code, error["field"]) == (2, case.field)
    assert case.says in error["message"]
    assert case.out in error["next"]


@pytest.mark.soak
def test_gpus_imports_no_sdk_no_ledger_and_no_access(tmp_path):
    _, told = seen(tmp_path / "home", "gpus", "--gpu", "t4")
    rooms = {name.split(".")[1] for name in told["modules"] if name.startswith("cloudgpu.")}
    assert rooms == {"catalog", "cli", "config", "control", "core", "errors", "views"}  # config: where the home is
    assert not {"boto3", "paramiko", "yaml", "sqlite3"} & {name.partition(".")[0] for name in told["modules"]}
    assert told["statements"] == []


@pytest.mark.soak
def test_other_verbs_do_not_read_the_catalogue(tmp_path):
    for words in (["--help"], ["ls"]):
        _, told = seen(tmp_path / "home", *words)
        place = {"cloudgpu.catalog", "cloudgpu.catalog.location"}  # where refreshed prices lie; no price is read
        read = [name for name in told["modules"] if name.startswith(("cloudgpu.catalog", "cloudgpu.cli.market.gpus"))]
        assert set(read) <= place


def test_the_page_names_every_key_of_the_document():
    page = read_page(DOCS, DOCS / "catalog.md")
    written = {heading: {unquoted(row[0]) for row in rows} for heading, _, _, rows in page.tables()}
    document = value(gpu="t4")
    empty = value(gpu="t4", max_price=Money.usd("0.001"))
    assert written["The document"] == set(document)
    assert written["An offer"] == set(document["offers"][0])
    assert written["An option left out"] == set(empty["without"][0])
    json.dumps(document)
