"""What is recommended for a kind of work: what fits, in which order, to rent or to buy, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st

import cloudgpu
from cloudgpu import catalog
from cloudgpu.config.desktops.desktops import load_desktop
from cloudgpu.config.desktops.workloads import shipped_workload_data
from cloudgpu.control.advice.recommend import answer
from cloudgpu.control.advice.recommend_request import parse_recommend
from cloudgpu.core.advice.desktop_build import PriceKind, Verdict
from cloudgpu.core.advice.model_memory import PRECISIONS_BY_METHOD, Method
from cloudgpu.core.advice.recommend import excluded_gpus
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.advice.recommend_sentences import rented_text, sentence
from tests.examples import some

RULES = shipped_workload_data()
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TUNED = [
    (method, precision)
    for method in (Method.FULL, Method.LORA, Method.QLORA)
    for precision in PRECISIONS_BY_METHOD[method]
]


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    with cloudgpu.connect(home=tmp_path_factory.mktemp("home"), clock=lambda: NOW) as gpu:
        yield gpu


def catalog_spec(offer):
    return catalog.spec_of(offer.type.gpu.name, offer.type.gpu.memory_gib)


def found(work=None, **asked):
    """What is recommended, as a value, beside the shipped desktop of the published example."""
    return answer(RULES, parse_recommend(RULES, work, **asked), load_desktop("rtx3090"))


@settings(max_examples=some(25))
@given(
    st.integers(10**6, 3 * 10**11),
    st.sampled_from(TUNED),
    st.sampled_from([None, 1, 2, 4, 8]),
    st.booleans(),
)
def test_every_candidate_holds_the_work(parameters, way, cards, spot):
    method, precision = way
    asked = {"method": str(method), "precision": str(precision), "gpus": cards, "spot": spot}
    it = found(params=parameters, **asked)
    memory = it.need.memory
    for one in it.machines:
        gpus = one.offer.type.gpu
        assert memory.gib_per_gpu(one.gpus) <= gpus.memory_gib
        assert one.gpus <= gpus.count
        assert cards in (None, gpus.count)
        assert one.spec.compute_capability[:3] != "gfx"
        assert one.offer.type.arch == "x86_64"
    for one in it.builds:
        assert memory.gib_per_gpu(one.cards) <= one.spec.memory_gib
        assert one.cards <= 4
        assert cards in (None, one.cards)


@pytest.mark.parametrize("work", [name for name, kind in RULES.kinds.items() if kind.memory_gib])
def test_every_kind_of_work_has_something_to_rent_and_to_buy(work):
    it = found(work)
    assert min(one.offer.type.gpu.memory_gib for one in it.machines) >= RULES.kinds[work].memory_gib
    assert it.machines[0].offer.type.gpu.count == it.builds[0].cards == 1
    assert it.verdict is Verdict.EITHER


def test_the_best_has_the_fewest_gpus_and_then_does_the_most_per_dollar():
    it = found(params="7b", method="full")
    counts = [one.offer.type.gpu.count for one in it.machines]
    assert counts[0] == min(counts) == 2
    alike = [one.per_dollar for one in it.machines if one.offer.type.gpu.count == 2]
    assert alike == sorted(alike, reverse=True)
    # 8 H200 do more per dollar than 2 A100, and cost $63 an hour where $7 are enough
    assert max(one.per_dollar for one in it.machines) > alike[0]


def test_the_cheapest_by_the_hour_is_said_where_it_is_another_one(gpu):
    said = gpu.advice.recommend("video")
    prices = [Decimal(one["price"]["usd_per_hour"]) for one in said["machines"]]
    assert Decimal(said["cheapest"]["price"]["usd_per_hour"]) < min(prices)
    assert said["cheapest"]["gpu"] == "L4"
    assert "The cheapest by the hour is 1x L4" in said["steps"][2]["text"]


def test_amd_arm_and_old_gpus_are_left_out_with_the_reason(gpu):
    said = gpu.advice.recommend("kaggle")["left_out"]
    assert "CUDA" in said["MI300X"]
    assert "Arm" in said["T4G"]
    assert "older than Volta" in said["P100"]
    assert not {"MI300X", "T4G", "P100"} & {one.spec.name for one in found("kaggle").machines}


@pytest.mark.parametrize("arm_first", [False, True])
def test_a_gpu_that_some_machines_offer_on_arm_alone_is_not_left_out(arm_first):
    one = found("kaggle").machines[0].offer
    on_arm = replace(one, type=replace(one.type, arch="arm64"))
    both = [on_arm, one] if arm_first else [one, on_arm]
    need = found("kaggle").need
    assert "Arm" in excluded_gpus([on_arm], need, catalog_spec, RULES.figures)[one.type.gpu.name]
    assert excluded_gpus(both, need, catalog_spec, RULES.figures) == {}


def test_bfloat16_asks_for_a_gpu_that_computes_it():
    older = {"T4", "V100-16GB", "RTX2080Ti"}
    half, brain = (found(params="350m", precision=one) for one in ("fp16", "bf16"))
    assert half.need.memory == brain.need.memory
    assert older & {one.spec.name for one in (*half.machines, *half.builds)}
    assert not older & {one.spec.name for one in (*brain.machines, *brain.builds)}
    assert "Ampere" in brain.left_out["T4"]


def test_running_a_model_is_judged_by_bandwidth_and_training_by_what_was_measured():
    run, train = found("inference", params="13b"), found("research")
    bases = {str(one.speed.basis) for one in run.machines}
    assert bases == {"memory bandwidth"}
    assert "measured" in {str(one.speed.basis) for one in train.machines}


def test_a_desktop_is_its_cards_and_the_rest_of_the_published_one():
    it = found("research", gpus=2)
    used = next(one for one in it.builds if (one.spec.name, one.price_kind) == ("RTX3090", PriceKind.USED))
    # two used cards of $537, and $2,200 less the list price of one, $1,499
    assert used.desktop.purchase == Money.usd(2 * 537 + 2200 - 1499)
    assert used.desktop.busy_power.watts == 2 * 350 + 100
    assert it.power_supply.cards == it.builds[0].cards == 2


def test_when_a_desktop_has_paid_for_itself_is_found_by_hand():
    it = found("research", hours_per_week=20, provider="aws")
    machine, build, even = it.machine, it.build, it.break_even
    assert (machine.offer.type.name, build.spec.name, build.price_kind) == ("g5.xlarge", "RTX3090", PriceKind.USED)
    # by memory bandwidth, as the A10G was not measured: 936.2 / 600.2 hours of it in one of the desktop
    assert even.speed == Fraction("936.2") / Fraction("600.2")
    # a week: 20 h x $1.006 for renting; 20 / 1.5598 h x 0.45 kW x $0.12 for the desktop of $537 + $701
    weekly = 20 * Fraction("1.006") - 20 / even.speed * Fraction("0.45") * Fraction("0.12")
    assert even.after / timedelta(days=7) == pytest.approx(float(1238 / weekly), abs=1e-6)
    assert it.verdict is Verdict.BUY
    # over four years of 365 days: $1,238 by what an hour of the machine saves; a used one brings 73% of that, and 9%
    # less each year, when it is sold
    loss = 1238 * (1 - Fraction("0.73") * Fraction("0.91") ** 4)
    share = loss / (Fraction("1.006") - 1 / even.speed * Fraction("0.054")) / (4 * 365 * 24)
    assert float(even.weekly_hours) == pytest.approx(float(share * 168), abs=1e-6)
    assert it.break_even.soonest <= it.break_even.after <= it.break_even.latest


def test_the_threshold_divides_renting_from_buying():
    weekly = found("video").break_even.weekly_hours
    below, above = (found("video", hours_per_week=f"{float(weekly * part):.3f}") for part in (0.9, 1.1))
    assert (below.verdict, above.verdict) == (Verdict.RENT, Verdict.BUY)
    assert above.break_even.weekly_hours == weekly


def test_a_dearer_kilowatt_hour_never_speaks_for_the_desktop():
    weekly = [found("video", tariff=tariff).break_even.weekly_hours for tariff in ("0", "0.12", "0.5")]
    assert weekly == sorted(weekly)
    assert found("video", tariff="60").break_even.weekly_hours is None  # $27 an hour for what is rented at $1
    assert found("video", tariff="60", hours_per_week=40).verdict is Verdict.RENT


def test_work_for_more_than_one_desktop_says_how_many(gpu):
    said = gpu.advice.recommend("fine-tuning", params="65b", method="qlora", hours_per_week=168, provider="azure")
    first = said["desktops"][0]["break_even"]
    assert first["desktops"] == 2  # an hour of one does about half an hour of the machine
    assert 0.5 <= first["hours_replaced"] < 1
    assert (
        ", and 2 such desktops, as one does not do so much. At 168 hours a week over 4 years they cost"
        in said["sentence"]
    )


def test_a_share_of_a_gpu_is_said_to_be_one():
    it = found("kaggle", provider="gcp", region="us-central1", max_price="0.6")
    shares = [one for one in it.machines if one.offer.type.gpu.share < 1]
    assert all(one.whole_gpus < 1 for one in shares)
    assert rented_text(shares[0]).startswith("1/8 of an RTXPRO6000 (12 GiB) on Google at $0.5596 an hour")


def test_a_sixth_of_a_gpu_is_a_sixth_though_the_list_says_0_1667():
    (machine, *_) = found(memory=3, provider="azure", max_price="0.5").machines
    assert (machine.offer.type.name, machine.whole_gpus) == ("Standard_NV6ads_A10_v5", Fraction(1, 6))


def test_beyond_the_budget_nothing_is_to_be_bought_and_the_cheapest_is_named(gpu):
    said = gpu.advice.recommend("video", budget=900)
    assert (said["desktops"], said["power_supply"], said["verdict"]) == ([], None, "either")
    assert "the cheapest, with a used RTX3090, costs about $1,238" in said["sentence"]
    within = gpu.advice.recommend("video", budget=1300)
    assert [one["desktop_usd"] for one in within["desktops"]] == ["1238"]
    assert any("Beyond the budget: desktops with" in remark for remark in within["notes"])


def test_where_nothing_is_to_be_rented_within_the_bounds_that_is_said(gpu):
    said = gpu.advice.recommend("video", max_price="0.01")
    assert (said["machines"], said["cheapest"]) == ([], None)
    assert said["sentence"].startswith("No machine within the bounds that you set holds it (24.0 GiB")
    assert "Buy a used RTX3090" in said["sentence"]
    assert said["desktops"][0]["break_even"] is None


@pytest.mark.parametrize(("hidden", "end"), [(1, "there is 1 type."), (2, "there are 2 types.")])
def test_types_outside_the_bounds_are_counted_in_the_singular_and_in_the_plural(hidden, end):
    nothing_within = replace(found("video", max_price="0.01"), hidden_types=hidden, builds=())
    assert f"; without them {end}" in sentence(nothing_within)


def test_where_nothing_holds_it_at_all_that_is_said(gpu):
    said = gpu.advice.recommend("fine-tuning", params="10t")
    assert said["sentence"].startswith("No machine of the catalogue holds it (")
    assert said["sentence"].endswith("No desktop of up to 4 cards with a known price holds it.")
    assert said["other_ways"][0]["method"] == "lora"


def test_cards_without_a_dated_price_are_named_and_not_counted(gpu):
    said = gpu.advice.recommend("video")
    assert "RTX5090" in said["without_price"]
    assert "RTX5090" not in [one["gpu"] for one in said["desktops"]]
    assert catalog.gpu("rtx5090").card_prices is None


def test_several_gpus_are_said_with_what_they_cost(gpu):
    said = gpu.advice.recommend("fine-tuning", params="7b")
    assert (said["machines"][0]["gpus_needed"], said["machines"][0]["count"]) == (2, 2)
    assert "50% more communication" in said["steps"][1]["text"]
    assert "Rajbhandari" in said["steps"][1]["sources"][0]["text"]


def test_every_step_has_its_source_or_is_the_catalogues(gpu):
    said = gpu.advice.recommend("research", gpus=4, hours_per_week=10)
    titles = [step["title"] for step in said["steps"]]
    assert titles == ["Memory", "What fits", "Speed per dollar", "Rent or buy", "Power, slots, cooling"]
    power = said["steps"][-1]
    assert "4 x 350 W and 100 W for the rest are 1,500 W" in power["text"]
    assert "1,650 to 1,725 W" in power["text"]
    assert "is not rated for it for hours" in power["text"]
    assert {source["basis"] for source in power["sources"]} == {"unverified", "published"}
    assert {"Dettmers", "NFPA", "Kinghorn", "Puget"} <= {
        word for source in power["sources"] for word in source["text"].replace(",", " ").split()
    }


@pytest.mark.parametrize("asked", [("kaggle", {}), (None, {"params": "70b"}), ("inference", {"params": "13b"})])
def test_no_step_is_without_a_source_and_its_day(gpu, asked):
    work, wish = asked
    said = gpu.advice.recommend(work, **wish)
    compared = [step for step in said["steps"] if said["desktops"] or step["title"] != "Rent or buy"]
    assert all(step["sources"] for step in compared)
    assert all(source["as_of"] and source["basis"] for step in compared for source in step["sources"])
    rented_text = said["machines"][0]["price"]["source"]
    assert any(rented_text in source["text"] for source in said["steps"][2]["sources"])


def test_what_was_not_measured_comes_before_nothing_that_was_by_memory_beyond_an_h100s():
    it = found(params="70b", method="full")
    assert [one.spec.name for one in it.machines[:2]] == ["B200", "B300"]  # both have the same memory bandwidth
    assert it.machines[1].speed is None
    assert found("inference", params="405b").machines[0].speed is not None


def test_fewer_cards_that_hold_it_come_before_more():
    it = found("inference", params="70b", precision="int4")
    cards = [one.cards for one in it.builds]
    assert cards == sorted(cards)
    assert (cards[0], it.builds[0].spec.name) == (2, "RTX3090")
    for number in set(cards):
        alike = [one.per_dollar for one in it.builds if one.cards == number]
        assert alike == sorted(alike, reverse=True)


def test_a_rule_for_one_gpu_is_split_by_none(gpu):
    says = gpu.advice.recommend("transformers", gpus=4)["steps"][1]["text"]
    assert "each holds all of it" in says
    assert "ZeRO" not in says


def test_a_machine_of_which_only_a_part_is_needed_says_so(gpu):
    assert "on 7 of the 8 B200 it is 162.4 GiB on each" in gpu.advice.recommend(None, params="70b")["steps"][1]["text"]


def test_a_number_of_gpus_that_no_machine_has_is_said_and_not_blamed_on_the_memory(gpu):
    assert gpu.advice.recommend("kaggle", gpus=3)["sentence"].startswith(
        "No machine of the catalogue has 3 GPUs that hold"
    )


def test_a_pace_at_which_they_never_meet_is_one_sentence(gpu):
    said = gpu.advice.recommend("kaggle", hours_per_week=5)
    assert said["steps"][3]["text"].endswith("At 5 they never meet.")
    assert "$11 a month at 5 hours a week, and its disk." in said["sentence"]


@pytest.mark.parametrize(("hours", "said"), [(9, True), (20, False)])
def test_a_desktop_that_is_dearer_again_once_it_is_bought_anew_is_said_to_be(gpu, hours, said):
    """Even late in its four years (41 months at 9 hours a week), it is bought anew before it has saved its price."""
    answer = gpu.advice.recommend("fine-tuning", params="7b", method="lora", hours_per_week=hours)["sentence"]
    assert answer.startswith("Buy a used RTX3090 ($537)")
    assert ("Replaced after 48 months, it is more expensive again until 83 months are over." in answer) == said


def test_the_answers_amounts_are_said_in_a_currency_too(gpu):
    asked = {"hours_per_week": 5, "currency": "KRW", "rate": "1385.2", "rate_date": "2026-11-20"}
    said = gpu.advice.recommend("kaggle", **asked)
    # 0.526 x 1385.2; x 5 x 365 / 7 / 12; (422 + 701) x 1385.2
    amounts = "In KRW: the machine 728.62 an hour, 15,830 a month, the desktop 1,555,580."
    assert said["notes"][0] == f"{amounts} 1 USD = 1385.2 KRW, rate of 2026-11-20."
    assert (said["currency"]["code"], said["currency"]["as_of"]) == ("KRW", "2026-11-20")
    dollars = gpu.advice.recommend("kaggle", hours_per_week=5)
    assert dollars["currency"] is None
    assert dollars["notes"] == said["notes"][1:]
    with pytest.raises(InvalidRequest, match="no exchange rate for EUR"):
        gpu.advice.recommend("kaggle", currency="EUR")


def test_a_spot_price_says_what_it_is_worth(gpu):
    azure = gpu.advice.recommend("research", spot=True, provider="azure")["notes"]
    assert any("many later ones equal the list price" in remark for remark in azure)
    aws = gpu.advice.recommend("research", spot=True, provider="aws")["notes"]
    assert any("off by -22% to +80%" in remark for remark in aws)


def test_prices_that_are_old_or_derived_say_so(gpu):
    said = gpu.advice.recommend("kaggle", provider="gcp")
    assert said["machines"][0]["price"]["basis"] == "derived"
    assert any(re.search(r"2026-06-23, derived\b(?!, old)", remark) for remark in said["notes"])
    spot = gpu.advice.recommend("kaggle", provider="aws", spot=True)
    assert any("derived, old" in remark for remark in spot["notes"])
    assert any("Prices of cards are of 2025 (undated table) and old" in remark for remark in said["notes"])


@pytest.mark.parametrize(
    ("typed", "number"),
    [("7b", 7 * 10**9), ("7 B", 7 * 10**9), ("350m", 350 * 10**6), ("1.5b", 15 * 10**8), ("1t", 10**12),
     (7_000_000_000, 7 * 10**9), ("7,000,000,000", 7 * 10**9)],
)  # fmt: skip
def test_a_number_of_parameters_is_read_as_it_is_written(typed, number):
    assert parse_recommend(RULES, None, params=typed).model.parameters == number


@pytest.mark.parametrize(
    ("asked", "method", "precision"),
    [
        ({}, "full", "fp16"),
        ({"precision": "int4"}, "qlora", "int4"),
        ({"precision": "INT8"}, "qlora", "int8"),
        ({"method": "lora"}, "lora", "fp16"),
        ({"method": "QLoRA"}, "qlora", "int4"),
        ({"precision": "fp32"}, "full", "fp32"),
    ],
)
def test_what_is_not_said_of_a_model_follows(asked, method, precision):
    model = parse_recommend(RULES, "fine tuning", params="7b", **asked).model
    assert (model.method, model.precision) == (method, precision)


@pytest.mark.parametrize(
    ("word", "kind"),
    [("RL", "reinforcement-learning"), ("image generation", "image-generation"), ("finetuning", "fine-tuning")],
)
def test_kinds_go_by_their_short_names_too(word, kind):
    asked = {"params": "7b"} if kind == "fine-tuning" else {}
    assert parse_recommend(RULES, word, **asked).kind.name == kind


BAD = [
    (None, {}, "WORK", "what is the GPU for", "kaggle, prototyping"),
    ("kagle", {}, "WORK", "did you mean 'kaggle'?", "--memory GIB"),
    ("", {}, "WORK", "'' is not a kind of work", "kaggle"),
    ("kaggle", {"params": "7b"}, "--params", "rule of thumb", "leave --params out"),
    ("kaggle", {"precision": "fp16"}, "--precision", "rule of thumb", "leave --precision out"),
    ("kaggle", {"method": "lora"}, "--method", "rule of thumb", "leave --method out"),
    (None, {"memory": 24, "precision": "bf16"}, "--precision", "none was named", "leave --precision out"),
    ("kaggle", {"budget": "1e3"}, "--budget", "not a number from 0", "--budget 1500"),
    ("kaggle", {"gpus": "\u0662"}, "--gpus", "not a whole number from 1", "--gpus 2"),
    ("fine-tuning", {}, "--params", "The size of the model", "--params 7b"),
    ("inference", {}, "--params", "The size of the model", "--memory 24"),
    ("inference", {"params": "7b", "method": "lora"}, "--method", "Nothing is trained", "Leave --method out"),
    ("inference", {"memory": 24, "method": "lora"}, "--method", "Nothing is trained", "Leave --method out"),
    ("fine-tuning", {"memory": 24, "method": "loar"}, "--method", "did you mean 'lora'?", "full, lora, qlora"),
    ("fine-tuning", {"memory": 24, "precision": "f16"}, "--precision", "did you mean 'fp16'?", "int4"),
    (None, {"params": "7b", "method": "inference"}, "--method", "trains nothing", "recommend inference"),
    (None, {"params": "7b", "method": "loar"}, "--method", "did you mean 'lora'?", "full, lora, qlora"),
    (None, {"params": "7b", "precision": "f16"}, "--precision", "did you mean 'fp16'?", "int4"),
    (None, {"params": "7b", "method": "full", "precision": "int4"}, "--precision", "full does not", "qlora"),
    (None, {"params": "7b", "method": "qlora", "precision": "fp16"}, "--precision", "qlora does not", "lora"),
    ("kaggle", {"region": "moon"}, "--region", "no region 'moon'", "cloudgpu gpus"),
    ("kaggle", {"provider": "gpc"}, "--provider", "did you mean 'gcp'?", "gcp"),
    ("kaggle", {"provider": "local"}, "--provider", "is a machine that is there already", "--provider local"),
    ("kaggle", {"gpus": "1.5"}, "--gpus", "not a whole number", "--gpus 2"),
]
NUMBERS = {
    "params": ("-7b", "0", "7", "nan", "inf", "1e99", "20t", "seven", "", True),
    "memory": ("-1", "0", "nan", "inf", "1e5", "100001", "much", True),
    "gpus": ("0", "-2", "65", "nan", "inf", "two"),
    "hours_per_week": ("0", "-1", "168.1", "nan", "inf", "often", float("nan"), float("inf")),
    "budget": ("-1", "nan", "inf", "1e9", "10000001", "much"),
    "max_price": ("0", "-1", "nan", "inf", "free", "1000000"),
    "tariff": ("-0.1", "nan", "inf", "101", "cheap"),
}
BAD += [
    (None if name == "params" else "kaggle", {name: value}, f"--{name.replace('_', '-')}", "", "")
    for name, values in NUMBERS.items()
    for value in values
]


@pytest.mark.parametrize(("work", "asked", "field", "says", "out"), BAD, ids=lambda value: str(value)[:30])
def test_what_cannot_be_is_refused_with_its_option_and_a_way_out(work, asked, field, says, out):
    with pytest.raises(InvalidRequest) as caught:
        found(work, **asked)
    fault = caught.value
    assert (fault.field, fault.exit_code) == (field, 2)
    assert says in fault.message
    assert fault.message.endswith((".", "?"))
    assert out in fault.next
    assert fault.next


def test_a_misspelt_wish_of_a_program_is_no_wish(gpu):
    with pytest.raises(TypeError, match="'gpu_count'"):
        gpu.advice.recommend("kaggle", gpu_count=2)
