"""compare for the years that were named: one verdict, the right desktop, a substitute, rates, and near names."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import pytest

import cloudgpu
from cloudgpu import InvalidRequest
from cloudgpu.cli.money.calculated_text import calculated_text
from tests.control.advice.test_rent_or_buy import PUBLISHED, gpu, only

__all__ = ["gpu"]

NOW = datetime(2026, 11, 25, tzinfo=UTC)
ASKED = {"gpu": "a10g", "hours_per_day": 3, "years": 2, "life": 2, "resale": 1100}


def brief(document):
    return calculated_text(document, None, verbose=False, sources=False)


def test_the_first_line_the_verdict_and_the_table_agree(gpu):
    document = gpu.advice.compare(**ASKED)
    (over,) = document["over_years"]
    # 3 h x 730 days x $1.006; $2,200 and 2190 h x 0.45 kW x $0.12, less the $1,100 it is sold for
    assert (over["cloud_usd"], over["desktop_usd"]) == ("2203.14", "1218.26")
    assert (over["paid_usd"], over["sold_for_usd"], over["difference_usd"]) == ("2318.26", "1100", "984.88")
    assert (document["verdict"], over["cheaper"], document["years"]) == ("buy", "desktop", 2)
    assert document["sentence"] == (
        "Buy: over 2 years a desktop with one RTX 3090 costs $1,218. Renting 1x A10G for 3 hours a day costs $2,203, "
        "$985 more."
    )
    # 2200 - 1606 = 594, and a day more: 506 / 730 of worth and $0.162 of electricity, against $3.018
    day = 594 / (Decimal("3.018") - Decimal(506) / 730 - Decimal("0.162"))
    assert over["desktop_cheaper_from_days"] == pytest.approx(float(day), abs=1e-4)
    assert (
        "cheaper from day 275 (9.0 months) on. Unsold, it has not paid for itself after 2 years."
        in (document["crossing"])
    )
    lines = brief(document).splitlines()
    assert "2 years   $2,203  $2,318    $1,100   $1,218  desktop" in lines
    assert "rent" not in " ".join(lines)
    assert len(lines) <= 15


@pytest.mark.parametrize(("years", "verdict"), [("0.5", "rent"), ("1", "buy"), ("2", "buy"), ("5", "buy")])
def test_another_horizon_may_have_another_verdict(gpu, years, verdict):
    document = gpu.advice.compare(**ASKED | {"years": years})
    (over,) = document["over_years"]
    assert document["verdict"] == verdict
    assert document["sentence"].lower().startswith(verdict)
    assert (Decimal(over["desktop_usd"]) <= Decimal(over["cloud_usd"])) == (verdict == "buy")
    last = only(document)["curve"][-1]
    assert (last["cloud_usd"], last["net_usd"]) == (over["cloud_usd"], over["desktop_usd"])


def test_a_sale_by_age_is_left_out_where_that_was_typed(gpu):
    over = gpu.advice.compare(**PUBLISHED, years=2, depreciation="none")["over_years"][0]
    assert (over["sold_for_usd"], over["paid_usd"], over["desktop_usd"]) == ("0", "2341.912", "2341.912")
    sold = gpu.advice.compare(**PUBLISHED, years=2)["over_years"][0]
    assert sold["paid_usd"] == "2341.912"
    assert Decimal(sold["sold_for_usd"]) == Decimal(2200) * Decimal("0.73") * Decimal("0.91") ** 2


def test_two_bounds_may_have_two_verdicts(gpu):
    document = gpu.advice.compare(price="0.6", utilization="personal", years=1)
    assert document["verdict"] == "rent"
    both = gpu.advice.compare(price="0.6", utilization="personal")
    assert both["verdict"] == "either"
    assert both["sentence"].startswith("Rent at 5% of the time, buy at 10%: over 4 years")


def test_three_desktops_do_the_work_of_an_a100_with_80_gib(gpu):
    document = gpu.advice.compare(gpu="a100-80gb", hours_per_day=3)
    # one RTX 3090 has 0.421 of its speed by measured throughput, and 24 GiB: 3 x 24 are nine tenths of 80
    assert (document["desktop"]["gpus"], document["desktop"]["boxes"]) == (3, 3)
    assert document["desktop"]["purchase_usd"] == "6600"
    assert "three desktops with one RTX 3090 each" in document["sentence"]
    assert any("72 GiB" in one and "--desktop a6000" in one for one in document["remarks"])
    assert len(brief(document).splitlines()) <= 15
    named = gpu.advice.compare(gpu="a100-80gb", hours_per_day=3, desktop="rtx3090")
    assert (named["desktop"]["gpus"], "one RTX 3090 costs" in named["sentence"]) == (1, True)
    assert any("if the work fits in 24 GiB" in one for one in named["remarks"])


@pytest.mark.soak
def test_a_card_of_48_gib_holds_the_work_of_40(gpu):
    document = gpu.advice.compare(gpu="a100-40gb", hours_per_day=3, tariff="0.30")
    assert (document["desktop"]["name"], document["fits"], document["desktop"]["usd_per_kwh"]) == ("a6000", True, "0.3")
    assert gpu.advice.compare(gpu="t4", hours_per_day=3)["desktop"]["name"] == "rtx3090"
    assert gpu.advice.compare(gpu="a100-40gb", hours_per_day=3, purchase=3000)["desktop"]["name"] == "rtx3090"


@pytest.mark.soak
def test_a_gpu_that_no_cloud_sells_has_a_substitute(gpu):
    document = gpu.advice.compare(gpu="rtx3090", hours_per_day=3)
    cloud = document["cloud"]
    assert (cloud["instead_of"], document["verdict"]) == ("RTX3090", "buy")
    stand_in = next(one for one in gpu.advice.gpus(gpu=cloud["gpu"])["offers"] if one["share"] == 1)
    assert stand_in["gpu_memory_gib"] >= 24
    # the desktop works the 3 hours, the slower machine longer
    assert only(document)["desktop_hours_per_day"] == pytest.approx(3)
    assert document["answers"][0]["hours_per_day"] == pytest.approx(3 * document["speed"]["ratio"], abs=1e-4)
    assert any(one.startswith("No cloud lists an RTX3090: an A10 (24 GiB)") for one in document["remarks"])
    with pytest.raises(InvalidRequest, match="no on-demand price"):
        gpu.advice.compare(gpu="t4:63", hours_per_day=3)
    other = gpu.advice.compare(gpu="rtx4090", hours_per_day=3)  # beside the desktop with that card
    assert (other["desktop"]["name"], other["desktop"]["boxes"], other["fits"]) == ("rtx4090", 1, True)
    larger = gpu.advice.compare(gpu="rtx5090", hours_per_day=3)
    assert (larger["desktop"]["name"], larger["fits"]) == ("rtx3090", False)
    assert "This holds if the work fits in 24 GiB." in larger["remarks"]


def test_a_refusal_has_the_whole_command(gpu):
    with pytest.raises(InvalidRequest) as refused:
        gpu.advice.compare(gpu="rtx3090")
    assert refused.value.next.endswith("Run: cloudgpu compare --gpu rtx3090 --hours-per-day 3")


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("a100-80", ["A100-80GB", "A100-80GB-PCIe"]),
        ("a100-40", ["A100-40GB"]),
        ("3090", ["RTX3090"]),
        ("4090", ["RTX4090"]),
        ("rtx3090", ["RTX3090"]),
    ],
)
def test_the_beginning_of_one_name_is_that_gpu(typed, names):
    from cloudgpu import catalog
    from cloudgpu.core.catalog.catalog import matching_gpus

    assert [spec.name for spec in matching_gpus(typed, catalog.gpus())] == names


@pytest.mark.parametrize("typed", ["rtx40", "h10", "a1", "v10", "rtx", "10"])
def test_a_number_that_is_cut_is_no_gpu(typed):
    from cloudgpu import catalog
    from cloudgpu.core.catalog.catalog import matching_gpus

    with pytest.raises(InvalidRequest):
        matching_gpus(typed, catalog.gpus())


@pytest.mark.soak
def test_terms_of_zero_change_nothing_and_others_are_counted_by_hand(gpu):
    plain = gpu.advice.compare(**PUBLISHED)
    assert gpu.advice.compare(**PUBLISHED, interest="0%", price_drift="0%", vat=0) == plain
    vat = gpu.advice.compare(**PUBLISHED, vat="20%", years=1, depreciation="none")["over_years"][0]
    # 1314 h x $2.14 x 1.2; ($2,200 and $70.956 of electricity) x 1.2
    assert (vat["cloud_usd"], vat["desktop_usd"]) == ("3374.352", "2725.1472")
    drift = gpu.advice.compare(**PUBLISHED, price_drift="-50%", years=1)["over_years"][0]
    assert Decimal(drift["cloud_usd"]) == pytest.approx(Decimal("2811.96") * Decimal("0.72134752"), abs=Decimal("0.01"))
    interest = gpu.advice.compare(**PUBLISHED, interest=0.25, years=1)["over_years"][0]
    # what a used one brings after a year, in today's money: 2200 x 0.73 x 0.91 / 1.25
    assert Decimal(interest["sold_for_usd"]) == Decimal("1169.168")
    said = gpu.advice.compare(**PUBLISHED, interest="5%", price_drift=-0.1, vat="19%")
    assert (said["interest_percent"], said["price_drift_percent"], said["vat_percent"]) == (5, -10, 19)
    assert any("cloud prices change by -10% a year" in one for one in said["remarks"])
    assert json.loads(json.dumps(said, allow_nan=False)) == said


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"interest": "5"}, "--interest"),
        ({"interest": "-1%"}, "--interest"),
        ({"price_drift": "-95%"}, "--price-drift"),
        ({"price_drift": "--5%"}, "--price-drift"),
        ({"price_drift": "nan%"}, "--price-drift"),
        ({"price_drift": -2.0}, "--price-drift"),
        ({"vat": "101%"}, "--vat"),
        ({"vat": "much"}, "--vat"),
    ],
)
def test_terms_that_cannot_be_are_refused_by_their_option(gpu, given, field):
    with pytest.raises(InvalidRequest) as refused:
        gpu.advice.compare(**PUBLISHED, **given)
    assert (refused.value.field, bool(refused.value.next)) == (field, True)
    with pytest.raises(InvalidRequest, match="needs --hours-per-day, --utilization or --price"):
        gpu.advice.compare(vat="5%")


def test_a_tariff_in_euros_takes_the_rate_of_the_settings_or_is_refused_with_the_command(own_home):
    with cloudgpu.connect(home=own_home, clock=lambda: NOW) as gpu:
        for call, verb in (
            (lambda: gpu.advice.compare(gpu="a10g", hours_per_day=3, tariff="0.35 EUR"), "compare --gpu a10g"),
            (lambda: gpu.advice.recommend("kaggle", tariff="0.35 EUR"), "recommend kaggle --tariff"),
        ):
            with pytest.raises(InvalidRequest, match="no rate for EUR") as refused:
                call()
            way = refused.value.next
            assert 'EUR = { per_usd = "RATE", as_of = 2026-11-25, source = "SOURCE" }' in way
            assert f"cloudgpu {verb}" in way
            assert "--tariff '0.35 EUR' --currency EUR --rate RATE --rate-date 2026-11-25" in way
    (own_home / "config.toml").write_text(
        '[currencies]\nEUR = { per_usd = "0.875", as_of = 2026-11-20, source = "a bank" }\n'
    )
    with cloudgpu.connect(home=own_home, clock=lambda: NOW) as gpu:
        typed = gpu.advice.compare(gpu="a10g", hours_per_day=3, tariff="0.35 EUR")
        assert typed["desktop"]["usd_per_kwh"] == "0.4"  # 0.35 / 0.875
        assert gpu.advice.recommend("kaggle", tariff="0.35 EUR")["desktops"][0]["usd_per_kwh"] == "0.4"


CARDS = ("RTX3090", "RTX3090Ti", "RTX4080", "RTX4090")


@pytest.mark.parametrize(
    ("name", "card"), [("rtx3090-used", "RTX3090"), ("rtx4090", "RTX4090"), ("rtx4080", "RTX4080")]
)
def test_recommend_and_compare_have_one_figure_for_the_same_desktop(gpu, name, card):
    shipped = next(one for one in gpu.advice.desktops()["desktops"] if one["name"] == name)
    its = Decimal(shipped["purchase_usd"]) - 701
    prices = [f"{one}={its if one == card else 50_000}" for one in CARDS]
    one = gpu.advice.recommend(memory=14, card_price=prices)["desktops"][0]
    assert (one["gpu"], one["desktop_usd"]) == (card, shipped["purchase_usd"])
    assert (one["idle_watts"], one["usd_per_kwh"]) == (shipped["idle_watts"], shipped["usd_per_kwh"])
    assert (one["watts"], one["life_years"]) == (shipped["gpu_watts"] + shipped["system_watts"], shipped["life_years"])
    assert one["idle_watts"] == 60


@pytest.mark.soak
def test_recommend_and_compare_agree_on_rent_or_buy(gpu):
    asked = {"hours_per_week": 21, "provider": "aws", "region": "us-east-1"}
    built = gpu.advice.recommend("research", **asked)
    even, machine = built["desktops"][0]["break_even"], built["machines"][0]
    assert (built["desktops"][0]["gpu"], machine["gpu"]) == ("RTX3090", "A10G")
    compared = gpu.advice.compare(
        gpu="a10g", price=machine["price"]["usd_per_hour"], hours_per_day=3, desktop="rtx3090-used", work="training"
    )
    (over,) = compared["over_years"]
    assert (built["verdict"], even["rent_usd"]) == (compared["verdict"], over["cloud_usd"])
    assert (even["desktop_usd"], even["sold_for_usd"]) == (over["desktop_usd"], over["sold_for_usd"])
    assert even["after_days"] == pytest.approx(only(compared)["break_even_days"], abs=0.01)


def test_a_cards_price_can_be_given(gpu):
    said = gpu.advice.recommend("video", card_price=["3090=650", "a6000=3500"], hours_per_week=20)
    first = next(one for one in said["desktops"] if one["gpu"] == "RTX3090")
    assert (first["paid"], first["card_usd"], first["desktop_usd"]) == ("yours", "650", "1351")
    assert "A6000" in {one["gpu"] for one in said["desktops"]}
    assert "A6000" not in said["without_price"]
    for bad in ("3090", "=650", "3090=", "3090=cheap", "nope=1"):
        with pytest.raises(InvalidRequest) as refused:
            gpu.advice.recommend("video", card_price=bad)
        assert refused.value.next


@pytest.mark.soak
def test_free_hours_are_named_where_the_work_fits_them(gpu):
    fits = gpu.advice.recommend("kaggle", hours_per_week=30)["free_hours"]
    assert (fits["gpu"], fits["gpus_needed"], fits["hours_per_week"], fits["session_hours"]) == ("T4", 1, 30, 12)
    assert gpu.advice.recommend("kaggle", hours_per_week=31)["free_hours"] is None
    assert gpu.advice.recommend("video")["free_hours"] is None  # 24 GiB on one GPU
    assert gpu.advice.recommend("fine-tuning", params="350m", precision="bf16")["free_hours"] is None  # a T4 has none
    assert "Kaggle" in gpu.advice.estimate(gpu="t4", hours_per_day=4)["free_hours"]  # 28 a week
    for more in ({"gpu": "t4", "hours_per_day": 5}, {"gpu": "l4", "hours_per_day": 1}, {"gpu": "t4", "number": 2}):
        assert gpu.advice.estimate(**more)["free_hours"] is None


@pytest.mark.soak
@pytest.mark.parametrize("asked", [{"gpu": "a100"}, {"gpu": "h100"}, {"gpu": "t4"}, {}, {"flops": "1e20"}])
def test_a_doubtful_spot_price_never_comes_before_a_certain_one(gpu, asked):
    found = gpu.advice.estimate(spot=True, **asked)["estimates"]
    doubted = [one["uncertain"] is not None for one in found]
    assert doubted == sorted(doubted)
    for one in found:
        sure = one["provider"] != "azure" and one["price"]["basis"] == "listed" and not one["old"]
        assert (one["uncertain"] is None) == sure
    assert not any(one["uncertain"] for one in gpu.advice.estimate(**asked)["estimates"])
    single = [one for one in found if one["count"] == one["share"] == 1]
    if asked.get("gpu") and any(one["uncertain"] is None for one in single):
        assert gpu.advice.compare(spot=True, hours_per_day=3, **asked)["cloud"]["offer"]["provider"] != "azure"
    rent = gpu.advice.recommend("video", spot=True)["machines"]
    assert rent[0]["provider"] != "azure"
    assert Fraction(rent[0]["price"]["usd_per_hour"]) > 0


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_the_years_are_drawn_in_the_terminals_width(gpu, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    document = gpu.advice.compare(**ASKED)
    drawn = calculated_text(document, None, verbose=False, sources=False, chart=True)
    assert max(map(len, drawn.splitlines())) <= int(columns)
    assert all(name in drawn for name in ("cloud", "desktop, sold then", "desktop, unsold", "US dollars by year"))
    assert drawn.startswith("Buy: over 2 years")
    assert "AFTER" not in drawn
    first, last = document["timeline"][0], document["timeline"][-1]
    assert (first["cloud_usd"], first["sold_usd"], first["unsold_usd"]) == ("0", "594", "2200")
    assert (last["years"], last["cloud_usd"], last["sold_usd"], last["unsold_usd"]) == (
        2,
        "2203.14",
        "1218.26",
        "2318.26",
    )
