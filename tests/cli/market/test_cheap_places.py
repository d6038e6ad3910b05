"""`regions`, `gpus`, `estimate` and `recommend` of Lambda, RunPod and vast.ai: each with what is honest for it.

`regions` asks our models over HTTP; without a key it says so, and shows what the dated catalogue has. The models never
were the clouds themselves.
"""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from cloudgpu.cli.app import run
from tests.clouds.lambdalabs.fixtures import lambdalabs, lambdalabs_process
from tests.clouds.runpod.fixtures import runpod, runpod_process
from tests.clouds.vast.fixtures import vast, vast_process

__all__ = ["lambdalabs", "lambdalabs_process", "runpod", "runpod_process", "vast", "vast_process"]
KEYS = {"lambda": "LAMBDA_API_KEY", "runpod": "RUNPOD_API_KEY", "vast": "VAST_API_KEY"}
MARKET = "vast.ai is a market, whose prices change within hours"


class Said:
    """What a command printed."""

    def __init__(self, code, out, err):
        self.code, self.out, self.text = code, out, " ".join((out + err).split())

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def said(own_home, capsys):
    own_home.mkdir(parents=True, exist_ok=True)
    (own_home / "config.toml").write_text("address_services = []\n")

    def said(text):
        code = run(text.split())
        return Said(code, *capsys.readouterr())

    return said


def prices(document):
    return {row["region"]: row["price"] and Decimal(row["price"]["usd_per_hour"]) for row in document["regions"]}


def test_the_regions_of_vast_are_countries_each_with_the_lowest_price_that_is_asked(said, vast):
    found = said("regions --provider vast -o json").json
    assert [row["region"] for row in found["regions"]] == ["FR", "NO", "PE", "US"]
    answer = said("regions --provider vast --gpu rtx4090 -o json").json
    assert prices(answer) == {"US": Decimal("0.34"), "NO": Decimal("0.36"), "FR": None, "PE": None}
    assert (answer["live"], answer["one_address"]) == (True, True)
    assert {row["price"]["basis"] for row in answer["regions"] if row["price"]} == {"quoted"}
    text = said("regions --provider vast --gpu rtx4090").text
    assert "Hosts there ask what they like: these are the lowest of this moment, without disk and traffic" in text
    assert "Not sold there now: FR, PE." in text


def test_strangers_computers_are_in_regions_only_where_they_are_accepted(said, vast):
    answer = said("regions --provider vast --gpu rtx4090 --trust community -o json").json
    assert prices(answer)["PE"] == Decimal("0.2")
    wrong = said("regions --provider vast --trust community -o json")
    assert (wrong.code, wrong.json["error"]["field"]) == (2, "--trust")


def test_the_regions_of_an_account_are_those_of_its_table(said, vast, own_home):
    (own_home / "config.toml").write_text('[accounts.vast]\nprovider = "vast"\nregions = ["NO"]\n')
    assert prices(said("regions --provider vast --gpu rtx4090 -o json").json) == {"NO": Decimal("0.36")}


def test_the_regions_of_runpod_are_its_data_centres(said, runpod):
    found = said("regions --provider runpod --gpu h100 -o json").json
    stocked = {row["region"]: row for row in found["regions"] if row["price"]}
    every = {name for gpu in runpod.model.types.values() for name in gpu.stock.get("SECURE", {})}
    assert {row["region"] for row in found["regions"]} == every
    assert stocked
    assert {row["zone"] for row in stocked.values()} == set(stocked)
    assert {row["price"]["source"] for row in stocked.values()} == {"RunPod catalogue (GET /v2/catalog/gpus)"}
    assert len(runpod.called("catalog.gpus")) == 1
    strangers = said("regions --provider runpod --gpu h100 --trust community -o json").json
    assert every < {row["region"] for row in strangers["regions"]} <= every | {"COMMUNITY"}


def test_a_round_trip_to_the_one_address_of_all_regions_is_no_distance(said, lambdalabs, monkeypatch):
    monkeypatch.setattr("cloudgpu.control.catalog.regions.measure_pings", lambda all_: {one.name: 0.01 for one in all_})
    text = said("regions --provider lambda --ping").text
    assert "One address answers for all of these regions: PING says nothing of how far each is." in text


@pytest.mark.parametrize(
    ("kind", "region", "usd"),
    [("vast", "VERIFIED", "2.4024"), ("runpod", "SECURE", "2.89"), ("lambda", "us-east-1", "3.29")],
)
def test_without_a_key_regions_shows_the_dated_prices_and_says_why(
    said, lambdalabs, runpod, vast, monkeypatch, kind, region, usd
):
    monkeypatch.delenv(KEYS[kind])
    answer = said(f"regions --provider {kind} --gpu h100 -o json")
    assert answer.code == 8
    assert prices(answer.json)[region] == Decimal(usd)
    assert answer.json["live"] is False
    (gap,) = answer.json["unanswered"]
    assert gap["scope"] == kind
    assert KEYS[kind] in gap["why"]
    text = said(f"regions --provider {kind} --gpu h100").text
    assert "These prices are the dated catalogue's, which does not know what is in stock." in text
    assert not [call for cloud in (lambdalabs, runpod, vast) for call in cloud.calls]


def test_gpus_shows_vasts_medians_with_their_days_and_that_they_vary(said):
    none = said("gpus --provider vast")
    assert (none.code, "With --trust community: 2 types, from $1.7043 an hour." in none.text) == (0, True)
    shown = said("gpus --provider vast --trust community")
    assert f"{MARKET}: these are what hosts asked at the median, of 2026-10-19 to 2026-10-29." in shown.text
    assert "EC2" not in shown.text
    offers = said("gpus --provider vast --trust community -o json").json["offers"]
    assert {(one["instance_type"], one["price"]["basis"], one["trust"]) for one in offers} == {
        ("1x-h100", "derived", "community"),
        ("1x-a100-80gb", "derived", "community"),
    }


def test_estimate_counts_neither_disk_nor_address_of_vast_and_says_so(said):
    none = said("estimate --provider vast --gpu h100").text
    assert "With --trust community: 1 type, from $2.4024 an hour." in none
    (one,) = said("estimate --provider vast --gpu h100 --trust community -o json").json["estimates"]
    assert Decimal(one["month"]["usd"]) == Decimal("2.4024") * 730
    text = said("estimate --provider vast --gpu h100 --trust community -v").text
    assert f"{MARKET}: these are what hosts asked at the median, of 2026-10-19." in text
    assert "No disk is counted at vast." in text
    assert "Public addresses cost nothing there." in text
    assert MARKET in said("estimate --provider vast --gpu h100 --trust community").text


def test_recommend_names_a_machine_of_the_market_with_its_doubt(said):
    value = said("recommend transformers --provider vast --trust community -o json").json
    assert {one["provider"] for one in value["machines"]} == {"vast"}
    assert [one for one in value["warnings"] if one.startswith(MARKET)]


def test_a_refresh_replaces_vasts_medians_by_those_of_now_and_data_centres_need_no_word(said, vast):
    answer = said("catalog refresh --provider vast --accept -o json")
    assert answer.code == 0, answer.text
    (part,) = answer.json["providers"][0]["parts"]
    offers = said("gpus --provider vast -o json").json["offers"]
    found = {one["instance_type"]: one for one in offers}
    assert {one["region"] for one in offers} == {"DATACENTER"}
    assert Decimal(found["1x-rtx4090"]["price"]["usd_per_hour"]) == Decimal("0.35")  # of $0.34 and $0.36
    assert found["8x-rtx4090"]["price_check"] == "one offer"
    assert found["1x-h100"]["price"]["as_of"] == part["refreshed_at"]
    cheaper = said("gpus --provider vast --trust community --gpu rtx4090:1 -o json").json["offers"]
    assert Decimal(cheaper[0]["price"]["usd_per_hour"]) == Decimal("0.34")  # with one of $0.20 at a stranger's
    assert MARKET in said("gpus --provider vast").text
    assert said("estimate --provider vast --gpu h200").text.startswith("Nothing in the catalogue fits.")


def test_a_refresh_takes_over_what_runpod_and_lambda_ask_now(said, runpod, lambdalabs):
    answer = said("catalog refresh --provider runpod --provider lambda -o json")
    assert answer.code == 0, answer.text
    known = {one["provider"]: one["prices"] for one in answer.json["providers"]}
    assert known["runpod"] > 0 < known["lambda"]
    dates = {one["provider"]: one["parts"][0]["refreshed_at"] for one in answer.json["providers"]}
    for kind, source in (("runpod", "RunPod catalogue"), ("lambda", "Lambda Cloud's own answer")):
        offers = said(f"gpus --provider {kind} -o json").json["offers"]
        renewed = [one for one in offers if one["price"]["source"].startswith(source)]
        assert renewed
        assert {one["price"]["as_of"] for one in renewed} == {dates[kind]}


@pytest.mark.parametrize("kind", ["lambda", "runpod", "vast"])
def test_a_refresh_without_a_key_keeps_what_there_is_and_says_why(said, lambdalabs, runpod, vast, monkeypatch, kind):
    monkeypatch.delenv(KEYS[kind])
    before = said(f"gpus --provider {kind} --trust community -o json").json["offers"]
    answer = said(f"catalog refresh --provider {kind} -o json")
    assert answer.code == 8
    assert KEYS[kind] in answer.json["providers"][0]["unanswered"][0]["why"]
    assert [one["price"] for one in said(f"gpus --provider {kind} --trust community -o json").json["offers"]] == [
        one["price"] for one in before
    ]


@pytest.mark.parametrize("verb", ["gpus", "estimate --gpu h100"])
def test_the_cheap_places_stay_out_of_answers_that_name_no_provider(said, verb):
    document = said(f"{verb} --trust community -o json").json
    found = document.get("offers", document.get("estimates"))
    assert {one["provider"] for one in found} <= {"aws", "gcp", "azure"}
