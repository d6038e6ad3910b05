"""`estimate` over the real catalogue and a ledger: sums by hand, what is refused, and past runs as work."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import pytest

import cloudgpu
from cloudgpu import catalog
from cloudgpu.catalog import refreshed
from cloudgpu.catalog.location import use_directory
from cloudgpu.catalog.refreshed import StoredPart, StoredPrices
from cloudgpu.cli.market.estimate_text import estimate_text
from cloudgpu.config.settings import settings_from_text
from cloudgpu.control.advice.estimate import estimate
from cloudgpu.control.advice.estimate_inputs import PastMachine
from cloudgpu.control.advice.estimate_request import parse_estimate
from cloudgpu.control.catalog.market import parse_order
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.core.catalog.pricelist import PER_HOUR, PriceRow, RowKey
from cloudgpu.core.model.offers import Basis, Market
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InstanceNotFound, InvalidRequest
from tests.cli.documents import faults_under
from tests.control.policies.test_backtest import GPU, IDLE, keep

NOW = datetime(2026, 11, 20, tzinfo=UTC)
WON = {"currency": "KRW", "rate": "1385.2", "rate_date": "2026-11-20"}


@pytest.fixture(autouse=True)
def prices(tmp_path):
    """Where refreshed prices lie: there are none, whatever another test has refreshed."""
    place = tmp_path / "lists"
    use_directory(place)
    return place


def estimated(config="", **asked):
    settings = settings_from_text(config, login="ada")
    return estimate(settings, NOW, parse_estimate(settings, NOW, **asked), None)


def rows(**asked):
    return {one["instance_type"]: one for one in estimated(**asked)["estimates"]}


def parts(split):
    return [split[f"{part}_usd"] for part in ("machine", "disk", "address")]


# The catalogue's rows: g2-standard-4 in us-central1 0.706832 (spot 0.397336), pd-balanced 0.10, addresses 0.005 (spot
# 0.0025); g6.xlarge in us-east-1 0.8048, gp3 0.08, public_ipv4 0.005; Standard_NC4as_T4_v3 in eastus 0.526, P10 19.71.


def test_a_month_on_google_by_hand():
    one = rows(instance_type="g2-standard-4", region="us-central1")["g2-standard-4"]
    assert parts(one["month"]) == ["515.98736", "10", "3.65"]  # 730 x 0.706832; 100 x 0.10; 730 x 0.005
    assert (one["month"]["usd"], one["month"]["hours"]) == ("529.63736", "730")
    assert parts(one["year"]) == ["6191.84832", "120", "43.8"]
    assert (one["expected"], one["unpriced"], one["market"]) == (None, [], "on_demand")


def test_a_month_on_googles_spot_market_by_hand():
    one = rows(instance_type="g2-standard-4", region="us-central1", spot=True, disk_type="pd-ssd")["g2-standard-4"]
    assert parts(one["month"]) == ["290.05528", "17", "1.825"]  # 730 x 0.397336; 100 x 0.17; 730 x 0.0025


def test_a_static_address_of_googles_costs_twice_as_much_while_it_waits():
    one = rows(instance_type="g2-standard-4", region="us-central1", address="static", hours_per_day=12)["g2-standard-4"]
    assert one["month"]["address_usd"] == "5.475"  # 365 x 0.005 and 365 x 0.01
    assert [(it["kind"], it["paid"]) for it in one["attached_costs"][1:]] == [
        ("external_ip_on_standard_vm", "running"),
        ("static_ip_unused", "idle"),
    ]


def test_a_month_of_office_hours_on_aws_by_hand():
    one = rows(instance_type="g6.xlarge", region="us-east-1", hours_per_day="8", days_per_week=5, number="2")[
        "g6.xlarge"
    ]
    # 0.8048 x 173.809523...= 139.881904762 for one; 100 x 0.08; 0.005 x 173.809523... = 0.869047619 for one
    assert parts(one["month"]) == ["279.763809524", "16", "1.738095238"]
    assert one["month"]["usd"] == "297.501904762"
    static = rows(instance_type="g6.xlarge", region="us-east-1", hours_per_day=8, days_per_week=5, address="static")[
        "g6.xlarge"
    ]
    assert static["month"]["address_usd"] == "3.65"


def test_a_month_on_azure_by_hand():
    one = rows(instance_type="NC4as_T4_v3", region="eastus", hours_per_day=8)["Standard_NC4as_T4_v3"]
    # 0.526 x 243.333...; 100 GB are billed as 128; a standard address is static: 730 x 0.005
    assert parts(one["month"]) == ["127.993333333", "19.71", "3.65"]
    assert one["attached_costs"][0]["kind"] == "P10 128 GiB"
    hdd = rows(instance_type="nc4as_t4_v3", region="eastus", disk_type=["standard-hdd", "gp2"], disk=20, address="none")
    assert parts(hdd["Standard_NC4as_T4_v3"]["month"]) == ["383.98", "1.536", "0"]  # S4 32 GiB


def test_the_published_commitment_is_counted_and_no_other():
    found = rows(gpu="a100-40gb", committed="3y", hours_per_day=8)
    one = found.pop("a2-highgpu-1g")
    assert (one["region"], one["committed"], one["paid_usd_per_hour"]) == ("us-central1", True, "1.2856865")
    assert one["month"]["machine_usd"] == "938.551145"  # 730 hours, used or not
    assert found
    assert not any(other["committed"] for other in found.values())
    quoted = rows(gpu="a100-40gb", committed="25%")
    assert all(other["committed"] for other in quoted.values())
    assert (
        Decimal(quoted["p4d.24xlarge"]["paid_usd_per_hour"]) * 4
        == Decimal(quoted["p4d.24xlarge"]["price"]["usd_per_hour"]) * 3
    )


def test_what_sustained_use_takes_off_stands_beside_the_sum():
    one = rows(gpu="v100:1", provider="gcp", hours_per_day=12)["n1-standard-4+v100:1"]
    # 365 of 730 hours: the second quarter of the month is 20% less
    assert (one["price"]["usd_per_hour"], one["sustained_use_usd"]) == ("2.669999", "97.4549635")
    assert one["month"]["machine_usd"] == "974.549635"
    assert rows(gpu="l4", provider="gcp")["g2-standard-4"]["sustained_use_usd"] is None


def test_hours_in_all_are_the_same_on_every_gpu_and_have_an_end():
    found = rows(gpu="l4", hours=20)
    one = found["g6.xlarge"]
    assert [one[name]["hours"] for name in ("low", "expected", "high")] == ["20"] * 3
    assert (one["expected"]["machine_usd"], one["month"]) == ("16.096", None)  # 20 x 0.8048
    assert {each["expected"]["hours"] for each in found.values()} == {"20"}
    document = estimated(hours="20", provider="aws")
    assert document["request"]["hours"] == 20.0
    assert "the same on every GPU" in estimate_text(document, None, verbose=False)
    assert "20 hours on every GPU" in estimate_text(document, None).replace("\n", " ")
    assert faults_under("estimate", document) == []


def test_operations_by_hand():
    found = rows(instance_type="g2-standard-4", region="us-central1", flops="3.1e20")["g2-standard-4"]
    # 3.1e20 / (121e12 x 0.3 x 3600) = 2372.2069... hours; 0.5 and 0.2 of the peak are the range
    hours = [Decimal(found[name]["hours"]) for name in ("low", "expected", "high")]
    assert [round(one, 2) for one in hours] == [Decimal("1423.32"), Decimal("2372.21"), Decimal("3558.31")]
    assert round(Decimal(found["expected"]["machine_usd"]), 2) == Decimal("1676.75")  # by the started second
    assert round(Decimal(found["expected"]["disk_usd"]), 2) == Decimal("32.50")  # 2372.2 of 730 hours a month x 10
    assert found["peak_tflops"] == 121
    one = rows(instance_type="g2-standard-4", flops=3.1e20, efficiency="30%")["g2-standard-4"]
    assert one["low"] == one["expected"] == one["high"]


def test_gpus_without_a_peak_are_left_out_and_named():
    document = estimated(flops="1e21", precision="bf16", provider="gcp")
    out = {one["gpu"]: one["why"] for one in document["left_out"]}
    assert (out["V100-16GB"], out["P100"]) == ("no bf16", "no bf16")
    assert not {one["gpu"] for one in document["estimates"]} & out.keys()
    nothing = estimated(flops="1e21", precision="fp8", gpu="v100")
    assert (nothing["estimates"], nothing["precisions"]) == ([], ["fp32", "fp16"])


def test_every_provider_stands_side_by_side_and_the_cheapest_is_first():
    document = estimated(gpu="t4")
    found = document["estimates"]
    assert {one["provider"] for one in found} == {"aws", "gcp", "azure"}
    assert len({(one["provider"], one["gpu"], one["share"]) for one in found}) == len(found)
    sums = [Decimal(one["month"]["usd"]) for one in found]
    assert sums == sorted(sums)
    every = estimated(gpu="t4", all=True)["estimates"]
    assert len(every) > len(found)
    assert len({(one["provider"], one["instance_type"]) for one in every}) == len(every)
    assert Decimal(every[0]["month"]["usd"]) == sums[0]


def test_who_counts_gpus_has_whole_ones_before_shares_of_one():
    document = estimated(gpu="l4:1")
    found = document["estimates"]
    shares = [one["share"] for one in found]
    assert shares == sorted(shares, key=lambda share: share < 1)
    assert {1, 0.125} <= set(shares)
    whole, parts = ([one for one in found if (one["share"] < 1) is is_part] for is_part in (False, True))
    for each in (whole, parts):
        sums = [Decimal(one["month"]["usd"]) for one in each]
        assert sums == sorted(sums)
    text = estimate_text(document, None)
    assert text.index("1x L4") < text.index("1/8 L4")
    assert "1/8, 1/4, 1/2 of a GPU is a share of one, and is listed after the whole ones." in " ".join(text.split())
    assert estimated(gpu="l4")["estimates"][0]["share"] == 0.125  # as cheap as it gets
    assert "share of one" not in estimate_text(estimated(gpu="l4"), None)


def test_the_cheapest_region_is_that_of_machine_disk_and_address_together():
    one = rows(gpu="l4", provider="gcp", disk=60_000)["g2-standard-4"]
    every = [
        rows(instance_type="g2-standard-4", region=region, disk=60_000)["g2-standard-4"]
        for region in ("us-central1", "us-east4", "europe-west1")
    ]
    assert Decimal(one["month"]["usd"]) <= min(Decimal(other["month"]["usd"]) for other in every)


@pytest.mark.soak
def test_the_parts_add_up_to_the_last_digit():
    for one in estimated(all=True, hours_per_day="7.3", number=3)["estimates"]:
        for name in ("day", "month", "year"):
            known = [Decimal(part) for part in parts(one[name]) if part is not None]
            assert sum(known) == Decimal(one[name]["usd"])


def test_a_disk_without_a_price_is_named_and_stands_last():
    document = estimated(gpu="t4", disk=9000)  # a P70: no size class above P50 has a price
    lacking = [one for one in document["estimates"] if one["unpriced"]]
    assert [one["instance_type"] for one in lacking] == ["Standard_NC4as_T4_v3"]
    assert document["estimates"][-1] == lacking[0]
    assert parts(lacking[0]["month"])[1] is None
    assert lacking[0]["attached_costs"][0]["usd"] is None


def test_prices_that_were_refreshed_count():
    key = RowKey("Standard_NC4as_T4_v3", "eastus", Market.ON_DEMAND)
    row = PriceRow(key, PER_HOUR, Money.usd("0.6"), "Azure Retail Prices API", NOW, Basis.LISTED)
    refreshed.write_price_list(StoredPrices("azure", {"eastus": StoredPart(NOW, (row,))}))
    one = rows(instance_type="NC4as_T4_v3", region="eastus")["Standard_NC4as_T4_v3"]
    assert (one["month"]["machine_usd"], one["price"]["source"]) == ("438", "Azure Retail Prices API")


def test_a_price_of_elsewhere_is_at_most():
    wish = {"instance_type": "NC4as_T4_v3", "region": "japaneast", "disk_type": ["standard-ssd"], "disk": 10}
    one = rows(**wish)["Standard_NC4as_T4_v3"]
    assert "no price is known in japaneast" in one["attached_costs"][0]["at_most"]
    assert one["month"]["disk_usd"] == "2.4"  # an E3, at most as an E4


def test_a_derived_disk_price_is_at_most_and_says_between_what():
    one = rows(instance_type="g4-standard-48", region="us-central1", all=True)["g4-standard-48"]
    assert (one["attached_costs"][0]["at_most"], one["attached_costs"][0]["low_usd"]) == (None, None)
    one = rows(instance_type="g4-standard-48", region="europe-west4", all=True)["g4-standard-48"]
    disk = one["attached_costs"][0]
    assert (disk["kind"], disk["usd"], disk["low_usd"]) == ("hyperdisk-balanced", "0.088", "0.0838")
    assert disk["at_most"] == "its price is derived, not listed: between $0.0838 and $0.0880 a GiB-month"
    assert one["month"]["disk_usd"] == "8.8"  # the dearer of the two, as a budget counts it


def test_amounts_in_another_currency_have_its_dated_rate():
    document = estimated(instance_type="g2-standard-4", region="us-central1", **WON)
    (one,) = document["estimates"]
    assert Decimal(one["month"]["amount"]) == Decimal("529.63736") * Decimal("1385.2")
    assert (document["currency"]["code"], document["currency"]["as_of"]) == ("KRW", "2026-11-20")


def test_fees_are_an_amount_of_their_own():
    config = '[fees]\ntax_percent = "10"\nsupport_percent = "3"\n'
    (one,) = estimated(config, instance_type="g2-standard-4", region="us-central1")["estimates"]
    assert (one["month"]["usd"], one["with_fees_usd"]) == ("529.63736", "600.07912888")
    assert rows(instance_type="g2-standard-4")["g2-standard-4"]["with_fees_usd"] is None


def test_discounts_that_are_not_counted_are_said():
    config = '[[discounts]]\nprovider = "aws"\npercent = 10\n'
    said = " ".join(estimated(config, gpu="l4")["assumptions"])
    assert "what [[discounts]] of config.toml takes off" in said
    assert "[[discounts]]" not in " ".join(estimated(gpu="l4")["assumptions"])


REFUSED = [
    ({"number": 0}, "--number", "1 to 1,000"),
    ({"number": "1e999999"}, "--number", "1 to 1,000"),
    ({"number": 1.5}, "--number", "whole number"),
    ({"number": True}, "--number", "whole number"),
    ({"disk": -1}, "--disk", "0 to 65,536"),
    ({"disk": "nan"}, "--disk", "0 to 65,536"),
    ({"disk": "70000"}, "--disk", "0 to 65,536"),
    ({"hours_per_day": "25"}, "--hours-per-day", "0.01 to 24"),
    ({"hours_per_day": 0}, "--hours-per-day", "0.01 to 24"),
    ({"hours_per_day": float("inf")}, "--hours-per-day", "0.01 to 24"),
    ({"days_per_week": "8"}, "--days-per-week", "0.1 to 7"),
    ({"days_per_week": "-NaN"}, "--days-per-week", "0.1 to 7"),
    ({"flops": "1e31"}, "--flops", "1e9 to 1e30"),
    ({"flops": "-3e20"}, "--flops", "1e9 to 1e30"),
    ({"flops": "many"}, "--flops", "1e9 to 1e30"),
    ({"flops": "1e20", "efficiency": "1.1"}, "--efficiency", "0.01 to 1"),
    ({"flops": "1e20", "efficiency": "x%"}, "--efficiency", "0.01 to 1"),
    ({"flops": "1e20", "precision": "bf61"}, "--precision", "did you mean 'bf16'?"),
    ({"efficiency": 0.3}, "--efficiency", "--flops"),
    ({"precision": "fp16"}, "--precision", "--flops"),
    ({"work": "training"}, "--work", "--like"),
    ({"like": "fox", "work": "traning"}, "--work", "did you mean 'training'?"),
    ({"flops": "1e20", "like": "fox"}, "--like", "both say"),
    ({"committed": "2y"}, "--committed", "1y, 3y, or a percentage"),
    ({"committed": "0%"}, "--committed", "above 0% and below 100%"),
    ({"committed": "inf%"}, "--committed", "above 0% and below 100%"),
    ({"committed": "0.37"}, "--committed", "a percentage"),
    ({"number": "1_0"}, "--number", "'1_0'"),
    ({"number": "\u0663"}, "--number", "whole number"),
    ({"flops": "\uff13e20"}, "--flops", "1e9 to 1e30"),
    ({"flops": "1e20", "efficiency": "-5%"}, "--efficiency", "'-5%'"),
    ({"flops": "1e20", "precision": ""}, "--precision", "not a valid value of"),
    ({"address": ""}, "--address", "not a valid value of"),
    ({"like": "fox", "work": ""}, "--work", "not a valid value of"),
    ({"committed": "1y", "spot": True}, "--committed", "spot"),
    ({"committed": "1y", "flops": "1e20"}, "--committed", "this work ends"),
    ({"gpu": "l4", "instance_type": "g6.xlarge"}, "--instance-type", "says it twice"),
    ({"gpu": "l40x"}, "--gpu", "did you mean"),
    ({"gpu": "l4:0"}, "--gpu", "1 to 64"),
    ({"instance_type": "g6.xlrge"}, "--instance-type", "did you mean 'g6.xlarge'?"),
    ({"instance_type": "n1-standard-4"}, "--instance-type", "no GPU by itself"),
    ({"committed": 37}, "--committed", "a percentage"),
    ({"instance_type": "g6.xlarge", "provider": "gcp"}, "--instance-type", "a type of aws"),
    ({"provider": "ssh"}, "--provider", "lists only aws, azure, gcp"),
    ({"provider": "awz"}, "--provider", "did you mean 'aws'?"),
    ({"region": "us-eat4"}, "--region", "did you mean 'us-east4'?"),
    ({"disk_type": "gp4"}, "--disk-type", "did you mean 'gp3'?"),
    ({"disk_type": ["gp2", "gp3"]}, "--disk-type", "both disks of aws"),
    ({"address": "statik"}, "--address", "did you mean 'static'?"),
    ({"hours": "0"}, "--hours", "0.01 to 1000000"),
    ({"hours": "20", "flops": "1e20"}, "--hours", "both say how much work"),
    ({"hours": "20", "like": "fox"}, "--hours", "both say how much work"),
    ({"hours": "20", "committed": "1y"}, "--committed", "this work ends"),
    ({"currency": "KRX"}, "--currency", "not a currency of ISO 4217"),
    ({"rate": "1385"}, "--rate", "without a currency"),
    ({"currency": "KRW", "rate": "nan", "rate_date": "2026-11-20"}, "--rate", "not a rate of exchange"),
    ({"currency": "KRW", "rate": "1385", "rate_date": "2027-11-20"}, "--rate-date", "in the future"),
]


@pytest.mark.parametrize(("asked", "field", "says"), REFUSED, ids=lambda one: json.dumps(one)[:50])
def test_what_cannot_be_is_refused_with_its_option_and_a_way_out(asked, field, says):
    with pytest.raises(InvalidRequest) as raised:
        estimated(**asked)
    fault = raised.value
    assert fault.field == field
    assert says in fault.message
    assert fault.message.endswith((".", "?"))
    assert fault.next


def test_a_word_that_no_option_has_is_a_mistake_of_the_program():
    with pytest.raises(TypeError, match="gpus"):
        estimated(gpus="l4")


def test_an_empty_answer_says_which_wish_is_in_the_way():
    document = estimated(instance_type="p5.48xlarge", region="eu-west-3")
    assert document["estimates"] == []
    found = {one["requirement"]: (one["types"], one["usd_per_hour"]) for one in document["without"]}
    assert found["region"] == (1, "55.04")
    assert found["type"][0] > 1
    dear = {one["requirement"] for one in estimated(gpu="k80:8", provider="azure", spot=True)["without"]}
    assert dear <= {"gpu", "gpu_count", "provider", "with_legacy", "market"}
    assert "gpu" in dear


# A past run: three hours with the GPU at 97%, one idle, and one of which nothing is known.


@pytest.fixture
def past(lab):
    lab.up(name="fox")
    keep(lab, (180, GPU), (60, IDLE), (60, None))
    (row,) = lab.rows()
    stop(lab.session, row, why="asked by the user")
    lab.later(hours=3)
    return lab


@pytest.fixture
def face(past):
    with cloudgpu.connect(home=past.home, clock=past.clock) as found:
        yield found


def test_the_work_of_a_past_run_is_its_hours_in_use(face):
    document = face.advice.estimate(like="fox", instance_type="n1-standard-4+v100:1")
    past = document["past_run"]
    assert (past["gpu"], past["gpus"], past["gpu_hours"], past["idle_hours"]) == ("V100-16GB", 1, 3, 1)
    assert past["unknown_hours"] == pytest.approx(1, abs=0.05)
    (one,) = document["estimates"]
    assert [one[name]["hours"] for name in ("low", "expected")] == ["3", "3"]
    assert Decimal(one["high"]["hours"]) == pytest.approx(Decimal(4), abs=Decimal("0.05"))
    assert one["expected"]["machine_usd"] == "8.009997"  # 3 x 2.669999
    assert one["times_as_fast"] == {"ratio": 1, "low": 1, "high": 1, "basis": "one GPU counted as fast as the other"}


def test_a_faster_gpu_takes_less_and_several_count_as_so_many(face):
    (one,) = face.advice.estimate(like="fox", instance_type="a2-highgpu-1g")["estimates"]
    # 0.43 against 0.187 of an H100 in training, measured: 2.2995 times as fast
    assert one["times_as_fast"]["ratio"] == 2.2995
    assert one["times_as_fast"]["basis"] == "measured training throughput"
    assert round(Decimal(one["expected"]["hours"]), 3) == Decimal("1.305")
    (four,) = face.advice.estimate(like="fox", instance_type="a2-highgpu-1g", number=4)["estimates"]
    assert round(Decimal(four["expected"]["hours"]), 3) == Decimal("0.326")
    (decoding,) = face.advice.estimate(like="fox", instance_type="a2-highgpu-1g", work="inference")["estimates"]
    assert decoding["times_as_fast"] == {"ratio": 1.7333, "low": 1.7333, "high": 1.7333, "basis": "memory bandwidth"}


@pytest.mark.soak
def test_a_gpu_with_less_memory_may_not_fit_and_stands_last(face):
    document = face.advice.estimate(like="fox")
    fits = [one["fits"] for one in document["estimates"]]
    assert fits == sorted(fits, reverse=True)
    assert {one["gpu"] for one in document["estimates"] if not one["fits"]} >= {"P4"}
    assert all((one["gpu_memory_gib"] >= 16) == one["fits"] for one in document["estimates"])


def test_the_document_of_a_past_run_fits_its_schema(face):
    document = face.advice.estimate(like="fox", instance_type="a2-highgpu-1g")
    assert document["past_run"]
    assert document["estimates"][0]["times_as_fast"]
    assert faults_under("estimate", document) == []


@pytest.mark.soak
def test_a_past_run_as_text_says_what_its_figures_rest_on(face):
    text = estimate_text(face.advice.estimate(like="fox"), None)
    assert max(map(len, text.splitlines())) <= 80
    said = " ".join(text.split())
    assert (
        "The work is that of fox (1 V100-16GB): 3.00 hours with its GPU at work, 0.00 in other use, 1.00 idle" in said
    )
    assert "bw memory bandwidth, fp FP32 TFLOPs: how fast it is at this work was not measured" in said
    assert "m less memory per GPU than fox had (16 GiB)" in said
    (line,) = [line for line in text.splitlines() if line.startswith("1x T4 ") and "g4dn.xlarge" in line]
    assert line.split()[5].endswith("bw")


def test_a_run_that_nobody_knows_or_that_did_nothing_is_refused(face, past):
    with pytest.raises(InstanceNotFound):
        face.advice.estimate(like="wolf")
    face.machines.down("fox")
    assert face.advice.estimate(like="fox", gpu="v100")["past_run"]["gpu_hours"] == 3
    past.up(name="wolf")
    keep(past, (120, IDLE))
    with pytest.raises(InvalidRequest, match="did no work that could be repeated") as raised:
        face.advice.estimate(like="wolf")
    assert (raised.value.field, raised.value.next) == ("--like", "Run: cloudgpu show wolf --why")


def test_no_address_given_is_the_usual_one_and_what_is_no_text_is_refused():
    settings = settings_from_text("", login="ada")
    assert parse_estimate(settings, NOW, address=None) == parse_estimate(settings, NOW)
    with pytest.raises(InvalidRequest, match="None is not a valid order") as raised:
        parse_order(None)
    assert (raised.value.field, raised.value.value) == ("--sort", "None")


def test_by_hand_what_eight_gpus_did_takes_one_and_that_it_fits_there_is_not_said():
    settings = settings_from_text("", login="ada")
    wish = parse_estimate(settings, NOW, like="fox", instance_type="a2-ultragpu-1g")
    h100, day = catalog.gpu_by_name("H100"), Fraction(24)
    past = PastMachine("cg-1", "fox", h100, Fraction(8), 80.0, day, Fraction(0), Fraction(0), Fraction(0))
    document = estimate(settings, NOW, wish, past)
    (one,) = document["estimates"]
    # 24 hours of 8 H100, of which one A100-80GB does 0.544
    assert abs(Fraction(one["expected"]["hours"]) - day * 8 / Fraction("0.544")) < Fraction(1, 3600)
    assert "Fewer GPUs hold it only if each held all of it" in " ".join(document["assumptions"])
    alone = estimate(settings, NOW, wish, replace(past, gpus=Fraction(1)))
    assert "Fewer GPUs" not in " ".join(alone["assumptions"])


def test_where_nothing_is_known_of_its_use_every_hour_counts(lab):
    lab.up(name="fox")
    lab.later(hours=2)
    with cloudgpu.connect(home=lab.home, clock=lab.clock) as face:
        document = face.advice.estimate(like="fox", instance_type="n1-standard-4+v100:1")
    (one,) = document["estimates"]
    assert Decimal(one["low"]["hours"]) == Decimal(one["high"]["hours"]) == pytest.approx(2, abs=0.05)
    assert any("every one of these hours counts" in sentence for sentence in document["assumptions"])


def test_the_library_and_the_command_read_words_alike(face):
    document = face.advice.estimate(gpu="l4", hours_per_day="8", days_per_week=5)
    assert document["estimates"] == estimated(gpu="l4", hours_per_day=8, days_per_week="5")["estimates"]


def test_a_kind_of_disk_in_place_of_its_size_is_shown_its_option():
    with pytest.raises(InvalidRequest) as raised:
        estimated(disk="gp3")
    assert raised.value.next == "For example --disk 100 (GB); its kind is --disk-type gp3"
