"""catalog refresh, show and diff: the three price lists over real HTTP, a home of its own, and what a user sees."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from cloudgpu import catalog, connect
from cloudgpu.catalog.location import use_directory
from cloudgpu.catalog.storage import PriceClass
from cloudgpu.cli.market.prices import difference_text, shown_text
from cloudgpu.core.model.offers import Basis, Market
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import iso
from tests.cli.aws_line import Line
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.azure_fixtures import azure_prices
from tests.clouds.azure_prices import REGIONS, machine
from tests.clouds.gcp_prices import GcpPrices
from tests.clouds.price_server import Wrong

__all__ = ["aws", "aws_process", "azure_prices"]
DOCS = Path(__file__).parents[3] / "docs"
sys.path.insert(0, str(DOCS))
from pages import read_page, unquoted  # noqa: E402  (docs/ is no package)

CONFIG = f"""
address_services = []
[accounts.aws]
regions = ["us-east-1"]
[accounts.azure]
regions = {json.dumps(REGIONS)}
"""
G5 = ("aws", "g5.xlarge", "us-east-1", Market.ON_DEMAND)
T4 = ("azure", "Standard_NC4as_T4_v3", "eastus", Market.ON_DEMAND)


@pytest.fixture
def google(monkeypatch):
    server = GcpPrices()
    monkeypatch.setenv("CLOUDGPU_GCP_ENDPOINT", server.url)
    yield server
    server.end()


@pytest.fixture
def line(own_home, capsys, aws):
    made = Line(own_home, capsys, aws)
    made.config(CONFIG)
    use_directory(own_home / "catalog")
    yield made
    use_directory(own_home / "nothing")


@pytest.fixture
def on_azure(line, azure_prices):
    """The line, whose Azure has answered once."""
    assert line("catalog refresh --provider azure").code == 0
    return line


def file_of(line, provider="azure"):
    return line.home / "catalog" / f"{provider}.json"


def first(said, provider):
    (found,) = (one for one in said.json["providers"] if one["provider"] == provider)
    return found


@pytest.mark.soak
def test_a_refresh_asks_all_three_and_what_they_say_is_what_offers_answer(line, azure_prices, google, aws):
    aws.model.list_prices["g5.xlarge", "us-east-1"] = "1.1100000000"
    aws.model.list_prices["gp3", "us-east-1"] = "0.0850000000"
    azure_prices.items = [one for one in azure_prices.items if one["armSkuName"] != T4[1]]
    azure_prices.items += [machine(T4[1], 0.6, "eastus")]
    old = catalog.listed_price(*T4)
    said = line("catalog refresh -o json")
    assert said.code == 0, said.err
    assert {one["provider"] for one in said.json["providers"]} == {"aws", "gcp", "azure"}
    assert catalog.listed_price(*G5).per_hour == Money.usd("1.11")
    assert catalog.listed_price(*G5).source == "AWS Price List (GetProducts)"
    assert catalog.disk_price("aws", "us-east-1", "gp3").price == Money.usd("0.085")
    assert catalog.on_demand_price(*T4[:3]).per_hour == Money.usd("0.6") != old.per_hour
    (offer,) = (one for one in catalog.offers("azure", "eastus", Market.ON_DEMAND) if one.type.name == T4[1])
    assert offer.listed.price == catalog.listed_price(*T4)
    a2 = catalog.listed_price("gcp", "a2-highgpu-1g", "us-central1", Market.ON_DEMAND)
    assert (a2.source, a2.basis) == ("Google Cloud Billing Catalog (services.skus.list)", Basis.DERIVED)
    assert first(said, "gcp")["parts"] == [{"scope": "all regions", "refreshed_at": iso(a2.as_of)}]
    untouched = catalog.listed_price("aws", "g5.xlarge", "eu-west-1", Market.ON_DEMAND)
    assert untouched.as_of < a2.as_of
    assert json.loads(line("gpus --provider azure --region eastus -o json").out)["offers"]


@pytest.mark.soak
def test_another_process_reads_what_was_refreshed(on_azure, cloudgpu, azure_prices):
    cloudgpu.home = on_azure.home
    azure_prices.items = [machine(T4[1], 0.777, "eastus")]
    assert on_azure("catalog refresh --provider azure").code == 8  # the other regions name no price now
    shown = cloudgpu("catalog", "show", T4[1], "--region", "eastus", "-o", "json").json["prices"]
    assert ("0.777", "Azure Retail Prices API") in {(one["usd"], one["source"]) for one in shown}


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong(500, times=999),
        Wrong(429, {"Retry-After": "1"}, times=999),
        Wrong(body=b'{"Items": [{"cur', times=999),
        Wrong(body=b'{"Items": []}', times=999),
        Wrong(body=b'{"Prices": []}', times=999),
    ],
    ids=["500", "429", "truncated", "empty", "other field"],
)
def test_a_failed_refresh_leaves_the_old_data_and_its_old_date(on_azure, azure_prices, wrong):
    before, price = file_of(on_azure).read_bytes(), catalog.listed_price(*T4)
    azure_prices.items.append(machine("Standard_ND96asr_v4", 28.0, "eastus"))
    azure_prices.wrong.append(wrong)
    said = on_azure("catalog refresh --provider azure")
    assert said.code == 8
    assert file_of(on_azure).read_bytes() == before
    assert catalog.listed_price(*T4) == price
    assert "its prices and their dates stay" in said.err


def test_a_refresh_that_never_worked_leaves_the_embedded_prices(line, azure_prices):
    azure_prices.wrong.append(Wrong(500, times=999))
    price = catalog.listed_price(*T4)
    assert line("catalog refresh --provider azure").code == 8
    assert not file_of(line).exists()
    assert catalog.listed_price(*T4) == price


def test_what_answered_is_taken_and_what_did_not_keeps_its_date(on_azure, azure_prices):
    was = {region: catalog.listed_price("azure", T4[1], region, Market.ON_DEMAND) for region in REGIONS}
    azure_prices.items = [
        one | {"retailPrice": 0.55} if one["retailPrice"] == 0.526 else one for one in azure_prices.items
    ]
    azure_prices.wrong.append(Wrong(500, only="koreacentral", times=99))
    said = on_azure("catalog refresh --provider azure -o json")
    assert said.code == 8
    assert [gap["scope"] for gap in first(said, "azure")["unanswered"]] == ["koreacentral"]
    now = {region: catalog.listed_price("azure", T4[1], region, Market.ON_DEMAND) for region in REGIONS}
    assert now["koreacentral"] == was["koreacentral"]
    assert now["eastus"].per_hour == now["westeurope"].per_hour == Money.usd("0.55")
    assert min(now["eastus"].as_of, now["westeurope"].as_of) > was["koreacentral"].as_of
    asked = {part["scope"]: part["refreshed_at"] for part in first(said, "azure")["parts"]}
    assert asked["koreacentral"] == iso(was["koreacentral"].as_of)


def test_one_provider_that_fails_does_not_keep_the_others_back(line, azure_prices, google):
    google.wrong.append(Wrong(404, times=99))
    said = line("catalog refresh --provider azure --provider gcp -o json")
    assert said.code == 8
    assert first(said, "azure")["unanswered"] == []
    assert first(said, "azure")["prices"] > 20
    assert "404" in first(said, "gcp")["unanswered"][0]["why"]


def raised(azure_prices, factor):
    """Let one price of Azure's move by a factor."""
    changed = [one for one in azure_prices.items if one["armSkuName"] == T4[1] and one["armRegionName"] == "eastus"]
    (one,) = (one for one in changed if one["meterName"] == "NC4as T4 v3" and one["productName"].endswith("Series"))
    one["retailPrice"] = one["unitPrice"] = round(one["retailPrice"] * factor, 6)


@pytest.mark.soak
@pytest.mark.parametrize("factor", [2.5, 0.3])
def test_a_price_that_moved_too_far_is_reported_and_held_back(on_azure, azure_prices, factor):
    was = catalog.listed_price(*T4)
    raised(azure_prices, factor)
    said = on_azure("catalog refresh --provider azure -o json")
    assert said.code == 0
    (jump,) = first(said, "azure")["jumps"]
    assert (jump["item"], jump["region"], jump["accepted"]) == (T4[1], "eastus", False)
    assert jump["factor"] == pytest.approx(factor)
    assert catalog.listed_price(*T4) == was
    held = on_azure("catalog diff --provider azure")
    assert "was not used" in held.out
    accepted = on_azure("catalog refresh --provider azure --accept")
    assert accepted.code == 0
    assert "Moved by more than 2" in accepted.out
    assert catalog.listed_price(*T4).per_hour == Money.usd(str(round(0.526 * factor, 6)))
    assert "was not used" not in on_azure("catalog diff --provider azure").out


def test_the_factor_can_be_set(on_azure, azure_prices):
    raised(azure_prices, 2.5)
    assert first(on_azure("catalog refresh --provider azure --factor 3 -o json"), "azure")["jumps"] == []
    assert catalog.listed_price(*T4).per_hour == Money.usd("1.315")


def test_a_price_against_an_embedded_one_is_judged_too(line, azure_prices):
    embedded = catalog.listed_price(*T4)
    raised(azure_prices, 10)
    said = line("catalog refresh --provider azure -o json")
    assert T4[1] in {one["item"] for one in first(said, "azure")["jumps"]}
    assert catalog.listed_price(*T4) == embedded


@pytest.mark.parametrize("usd", [0, -1, "free", float("nan")])
def test_what_is_no_price_is_refused_by_name_and_the_old_one_stands(on_azure, azure_prices, usd):
    was = catalog.listed_price(*T4)
    for one in azure_prices.items:
        if one["armSkuName"] == T4[1] and one["armRegionName"] == "eastus":
            one["retailPrice"] = usd
    said = on_azure("catalog refresh --provider azure")
    assert said.code == 8
    assert "NC4as T4 v3" in said.err
    assert "refused" in said.err
    assert catalog.listed_price(*T4) == was
    assert catalog.listed_price("azure", "Standard_NC24ads_A100_v4", "eastus", Market.ON_DEMAND).as_of > was.as_of


def test_a_price_that_is_listed_no_more_is_not_kept_for_ever(on_azure, azure_prices):
    azure_prices.items = [one for one in azure_prices.items if one["armSkuName"] != T4[1]]
    assert on_azure("catalog refresh --provider azure").code == 0
    now = catalog.listed_price(*T4)
    assert now.source != "Azure Retail Prices API"  # the embedded one, with its own date


def test_diff_shows_what_the_last_refresh_changed(on_azure, azure_prices):
    raised(azure_prices, 1.5)
    on_azure("catalog refresh --provider azure")
    (change,) = on_azure("catalog diff --provider azure --last -o json").json["changes"]
    assert (change["item"], change["was"]["usd"], change["now"]["usd"]) == (T4[1], "0.526", "0.789")
    against = on_azure("catalog diff --provider azure -o json").json
    assert against["against"] == "the embedded prices"
    assert {one["item"] for one in against["changes"]} >= {T4[1]}
    text = on_azure("catalog diff --provider azure --last").out
    assert "x1.5" in text
    assert max(map(len, text.splitlines())) <= 80


def test_show_says_source_date_basis_and_state(on_azure):
    said = on_azure(f"catalog show {T4[1]} --region eastus --history -o json").json
    states = {(one["state"], one["source"]) for one in said["prices"] if one["market"] == "on_demand"}
    assert ("current", "Azure Retail Prices API") in states
    assert {state for state, _ in states} == {"current", "superseded"}
    text = on_azure(f"catalog show {T4[1]} --history").out
    assert "superseded" in text
    assert max(map(len, text.splitlines())) <= 80


QUOTED = [
    ("p2.xlarge", "ap-northeast-2", {("1.465", "2017-07")}, {"1.465"}),
    ("Standard_NC6", "*", {("0.9", "2017-07")}, {"0.9"}),
    ("Standard_NV6", "*", {("1.093", "2017-07")}, {"1.14"}),
    ("accelerator:nvidia-tesla-k80", None, {("0.7", "2017-07"), ("0.77", "2017-07")}, {"0.45"}),
    ("n1-standard-4+k80:1", None, {("0.7", "2017-07"), ("0.77", "2017-07")}, set()),
]


@pytest.mark.parametrize(("name", "region", "quoted", "listed"), QUOTED, ids=[one[0] for one in QUOTED])
def test_prices_of_2017_stand_beside_what_the_facts_say_since(line, name, region, quoted, listed):
    prices = line(f"catalog show {name} --history -o json").json["prices"]
    past = [one for one in prices if one["state"] == "historic"]
    assert {(one["usd"], one["dated"]) for one in past} == quoted
    assert region in {None, *(one["region"] for one in past)}
    assert all("quoted in 2017" in one["source"] for one in past)
    now = {one["usd"] for one in prices if one["state"] == "current" and one["market"] == "on_demand"}
    assert listed <= now
    assert "historic" not in {one["state"] for one in line(f"catalog show {name} -o json").json["prices"]}


@pytest.mark.parametrize("typed", ["NC6", "standard_nc6", "Standard_NC6"])
def test_show_finds_a_type_as_gpus_writes_it(line, typed):
    assert line(f"catalog show {typed} -o json").json["item"] == "Standard_NC6"


def test_what_is_unverified_is_marked_where_it_is_shown(line):
    text = line.whole("catalog", "show", "egress_internet").out
    assert "unverified" in text
    assert "no date" in text
    assert "derived" in line("catalog show p2.xlarge").out


def test_a_derived_price_of_storage_shows_both_ends(line):
    shown = line("catalog show hyperdisk-balanced --region europe-west4")
    assert "0.0838 to 0.0880" in shown.out
    (price,) = line("catalog show hyperdisk-balanced --region europe-west4 -o json").json["prices"]
    assert (price["usd"], price["low_usd"], price["basis"]) == ("0.088", "0.0838", "derived")


def test_long_names_and_dear_machines_stay_in_eighty_columns():
    price = {"usd": "113.9312", "as_of": "2026-11-21T00:00:00Z", "source": "s", "basis": "derived", "old": True}
    change = {
        "item": "Standard_NC96ads_A100_v4_Promo",
        "region": "northamerica-northeast1",
        "market": "on_demand",
        "was": price,
        "now": price | {"usd": "0.00001"},
        "factor": 0.000012345,
        "accepted": False,
    }
    text = difference_text({"changes": [change], "jumps": 1, "factor": 2.0, "new": 0, "against": "the embedded prices"})
    assert max(map(len, text.splitlines())) <= 80
    row = price | {"region": change["region"], "market": "on_demand", "unit": "usd_per_hour", "dated": "2026-11-21"}
    row |= {"state": "superseded", "check": "", "usd": "113.9312", "low_usd": None}
    thing = {"provider": "gcp", "item": "a3-ultragpu-8g-nolssd", "legacy": None, "unverified": [], "error": None}
    wide = shown_text(thing | {"prices": [row, row | {"market": None, "low_usd": "100.1234"}]})
    assert max(map(len, wide.splitlines())) <= 80
    text = shown_text(thing | {"prices": [row]})
    assert max(map(len, text.splitlines())) <= 80
    assert "superseded" in text
    assert "113.93" in text


def test_the_overview_says_how_old_and_how_sure_the_figures_are(on_azure):
    said = on_azure("catalog show -o json").json
    found = {one["provider"]: one for one in said["providers"]}
    assert found["aws"]["derived"] > 600
    assert found["aws"]["refreshed"] == []
    assert {one["scope"] for one in found["azure"]["refreshed"]} == set(REGIONS)
    text = on_azure("catalog").out
    assert "never" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_damaged_file_is_named_and_the_embedded_prices_stand(on_azure, azure_prices):
    file = file_of(on_azure)
    file.write_bytes(file.read_bytes()[:200])
    price = catalog.listed_price(*T4)
    assert price.source != "Azure Retail Prices API"
    assert "cannot be read" in on_azure("catalog show --provider azure -o json").json["providers"][0]["error"]
    assert on_azure("catalog diff --provider azure").code == 2
    assert on_azure("catalog refresh --provider azure").code == 0
    assert catalog.listed_price(*T4).source == "Azure Retail Prices API"


def test_a_write_that_is_refused_by_the_system_changes_nothing(on_azure, azure_prices, monkeypatch):
    before = file_of(on_azure).read_bytes()
    raised(azure_prices, 1.2)

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert on_azure("catalog refresh --provider azure").code == 1
    assert file_of(on_azure).read_bytes() == before
    assert {one.name for one in file_of(on_azure).parent.iterdir()} == {"azure.json", ".azure.lock"}


BAD = [
    ("catalog show g5.xlarges", 2, "TYPE", "g5.xlarge"),
    ("catalog show g5.xlarge --region eu-wset-1", 2, "--region", "eu-west-1"),
    ("catalog show hyperdisk-balanced --region europe-wset4", 2, "--region", "europe-west4"),
    ("catalog show --provider awz", 2, "--provider", "aws"),
    ("catalog refresh --provider aws2", 2, "--provider", "aws"),
    ("catalog refresh --provider local", 2, "--provider", "azure"),
    ("catalog refresh --factor 1", 2, "--factor", "--factor 2"),
    ("catalog refresh --factor free", 2, "--factor", "--factor 2"),
    ("catalog refresh --factor nan", 2, "--factor", "--factor 2"),
    ("catalog show --factor 3", 2, "--factor", "diff"),
    ("catalog diff --accept", 2, "--accept", "refresh"),
    ("catalog refresh --history", 2, "--history", "show"),
    ("catalog refresh g5.xlarge", 2, "TYPE", "show"),
    ("catalog show --history", 2, "TYPE", "g5.xlarge"),
    ("catalog show --provider aws --provider gcp", 2, "--provider", "Leave"),
    ("catalog refresh --provider aws --account nobody", 2, "account", "aws"),
    ("catalog refresh --account nobody", 2, "account", "aws"),
    ("catalog refresh --provider aws --provider gcp --account aws", 2, "--account", "--provider"),
]


@pytest.mark.parametrize(("words", "code", "field", "way"), BAD)
def test_what_cannot_be_meant_is_refused_with_the_way_out(line, words, code, field, way):
    said = line(words, "-o json")
    error = said.json["error"]
    assert (said.code, error["field"]) == (code, field)
    assert way in error["next"]
    assert not (line.home / "catalog").exists()


def test_a_price_that_nobody_knows_is_counted_as_the_dearest_of_its_kind_and_half_more(line):
    known = catalog.counted_price("aws", "us-east-1", "gp3")
    assert (known.price, known.upper_bound) == (Money.usd("0.08"), False)
    elsewhere = catalog.counted_price("aws", "moon-1", "gp3")
    assert (elsewhere.price, elsewhere.upper_bound) == (Money.usd("0.228"), True)  # 0.152 in Sao Paulo
    unheard = catalog.counted_price("aws", "us-east-1", "gp9")
    assert (unheard.price, unheard.unit, unheard.basis) == (Money.usd("0.357"), "usd_per_gb_month", Basis.DERIVED)
    assert "io" in unheard.source
    image = catalog.counted_price("azure", "eastus", "gallery_image", PriceClass.IMAGE)
    assert (image.price, image.upper_bound) == (Money.usd("0.12"), True)  # Google's, since Azure's is in no source
    disk = catalog.counted_price("azure", "eastus", "Ultra Disk")
    assert disk.unit == "usd_per_gb_month"
    assert disk.price > Money.usd("0.2")
    address = catalog.counted_price("elsewhere", "moon", "public_ip")
    assert (address.price, address.unit) == (Money.usd("0.024"), "usd_per_hour")  # of 0.016 at Google


def test_the_page_names_every_key_of_the_documents(line, azure_prices):
    page = read_page(DOCS, DOCS / "catalog.md")
    written = {heading: {unquoted(row[0]) for row in rows} for heading, _, _, rows in page.tables()}
    raised(azure_prices, 10)
    refreshed = line("catalog refresh --provider azure -o json").json
    assert written["A refresh"] == set(refreshed)
    assert written["A refreshed provider"] == set(refreshed["providers"][0])
    assert written["A change"] == set(refreshed["providers"][0]["jumps"][0])
    assert written["The differences"] == set(line("catalog diff -o json").json)
    overview = line("catalog -o json").json
    assert written["The overview"] == set(overview)
    assert written["A provider's part of it"] == set(overview["providers"][0])
    thing = line("catalog show gp3 -o json").json
    assert written["What an item costs"] == set(thing)
    assert written["A price of it"] == set(thing["prices"][0])


@pytest.mark.soak
def test_the_library_gives_the_same_documents(on_azure, azure_prices):
    with connect() as cloud:
        assert cloud.advice.price_changes("azure") == on_azure("catalog diff --provider azure -o json").json
        shown = on_azure(f"catalog show {T4[1]} --history -o json").json
        assert cloud.advice.prices(T4[1], history=True) == shown
        assert cloud.advice.refresh_prices("azure", factor=3)["providers"][0]["unanswered"] == []
