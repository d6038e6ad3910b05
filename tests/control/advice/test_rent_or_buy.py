"""compare without a ledger: the published example, prices of the catalogue, presets, bounds, and what is refused."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

import cloudgpu
from cloudgpu import InvalidRequest
from cloudgpu.cli.money.calculated_text import calculated_text, desktops_text
from cloudgpu.control.advice.compare_request import CompareOptions
from cloudgpu.core.values.currency import Currency

NOW = datetime(2026, 11, 22, tzinfo=UTC)
PUBLISHED = {"gpu": "v100", "price": "2.14", "utilization": "15%"}
WON = {"currency": "KRW", "rate": "1400", "rate_date": "2026-11-20"}


@pytest.fixture
def gpu(own_home):
    with cloudgpu.connect(home=own_home, clock=lambda: NOW) as gpu:
        yield gpu


def refused(library, /, **given):
    with pytest.raises(InvalidRequest) as raised:
        library.advice.compare(**given)
    return raised.value


def only(document):
    (answer,) = document["answers"]
    return answer["expected"]


def test_the_published_example_is_reproduced_exactly(gpu):
    """T. Dettmers, "Which GPU(s) to Get for Deep Learning": a V100 at $2.14 beside a desktop with one RTX 3090.

    591 kWh and $71 a year; $2,311 after 300 days; "about 300 days ($2,311 vs $2,270)" charges a whole year at once.
    """
    document = gpu.advice.compare(**PUBLISHED)
    one = only(document)
    assert (one["kwh_per_year"], one["electricity_usd_per_year"], one["desktops"]) == (591.3, "70.956", 1)
    assert (round(one["break_even_days"], 2), round(one["break_even_days_by_flat_year"], 1)) == (292.96, 294.8)
    assert [
        (each["cloud_usd"], each["flat_year_usd"], each["purchase_usd"]) for each in one["curve"] if each["days"] == 300
    ] == [("2311.2", "2270.956", "2200")]
    assert document["speed"] == {"ratio": 1, "low": 1, "high": 1, "basis": "one GPU counted as fast as the other"}
    why = document["why_they_differ"]
    assert all(part in why for part in ("292.96 days", "294.8 days", "300 days $2,311.20 against $2,270.96"))
    assert "after 293 days (9.6 months)." in document["break_even_sentence"]
    assert document["answers"][0]["hours_per_day"] == 3.6


def test_beside_it_stands_what_is_known_of_both_speeds(gpu):
    beside = gpu.advice.compare(**PUBLISHED)["with_known_speeds"]
    assert (beside["speed"]["ratio"], beside["speed"]["basis"]) == (1.224599, "measured training throughput")
    scaled = gpu.advice.compare(**PUBLISHED, work="training")
    assert scaled["with_known_speeds"] is None
    assert scaled["speed"] == beside["speed"]
    assert scaled["answers"] == beside["answers"]
    assert only(scaled)["break_even_days"] < only(gpu.advice.compare(**PUBLISHED))["break_even_days"]


def test_the_spot_price_takes_722_days_and_not_the_20_months_of_the_text(gpu):
    document = gpu.advice.compare(**PUBLISHED | {"price": "0.90"})
    assert round(only(document)["break_even_days"], 2) == 722.35
    assert "722 days (23.7 months)" in document["break_even_sentence"]


def test_five_years_of_a_4090_take_about_100_dollars_a_year_by_the_card_alone(gpu):
    """The same source: 15% use at $0.175 per kWh, about $100 a year; the arithmetic gives $103.48."""
    card = {"desktop": "rtx4090", "system_watts": 0, "idle_watts": 0, "tariff": "0.175", "life": 5, "years": 5}
    document = gpu.advice.compare(price=1, utilization=0.15, **card)
    assert only(document)["electricity_usd_per_year"] == "103.4775"
    assert document["desktop"]["changed"] == ["--system-watts", "--idle-watts", "--tariff", "--life"]
    (last,) = [one for one in only(document)["curve"] if one["days"] == 1825]
    assert (last["purchase_usd"], last["electricity_usd"]) == ("2276", "517.3875")


@pytest.mark.soak
def test_numbers_may_be_numbers_and_mean_what_their_text_means(gpu):
    text = gpu.advice.compare(gpu="v100", price="2.14", hours_per_day="3.6", purchase="2200", watts="350")
    numbers = gpu.advice.compare(gpu="v100", price=2.14, hours_per_day=3.6, purchase=2200, watts=Decimal(350))
    assert text == numbers
    assert only(text) == only(gpu.advice.compare(gpu="v100", price=2.14, utilization=Fraction(3, 20)))


@pytest.mark.parametrize(
    ("name", "bound", "percents", "says"),
    [
        ("personal", "between", [5, 10], "used 5% to 10% of the time"),
        ("phd-desktop", "under", [15], "after 293 days (9.6 months) at the earliest"),
        ("phd-cluster", "over", [35], "after 126 days (4.1 months) at the latest"),
        ("company-cluster", "over", [60], "used more than 60% of the time"),
    ],
)
def test_common_uses_are_bounds_and_are_answered_as_bounds(gpu, name, bound, percents, says):
    """The bounds are those of T. Dettmers, "Which GPU(s) to Get for Deep Learning"."""
    document = gpu.advice.compare(**PUBLISHED | {"utilization": name})
    assert document["usage"] == {"typed": name, "bound": bound}
    assert [answer["utilization_percent"] for answer in document["answers"]] == percents
    assert says in document["break_even_sentence"]


def test_between_two_bounds_it_may_be_never_at_one(gpu):
    sentence = gpu.advice.compare(price="0.90", utilization="personal")["break_even_sentence"]
    assert "after 1,084 days (35.6 months) at the earliest, and never at 5%." in sentence


@pytest.mark.soak
def test_without_a_price_it_is_the_cheapest_of_the_catalogue_with_its_date(gpu):
    cloud = gpu.advice.compare(gpu="t4", utilization="15%")["cloud"]
    listed = [one for one in gpu.advice.gpus(gpu="t4:1")["offers"] if one["share"] == 1]
    assert cloud["usd_per_hour"] == listed[0]["price"]["usd_per_hour"]
    assert cloud["offer"]["instance_type"] == listed[0]["instance_type"]
    assert (cloud["offer"]["as_of"], cloud["offer"]["market"]) == (listed[0]["price"]["as_of"], "on_demand")
    spot = gpu.advice.compare(gpu="t4", utilization="15%", spot=True)["cloud"]
    assert (spot["offer"]["market"], Decimal(spot["usd_per_hour"]) < Decimal(cloud["usd_per_hour"])) == ("spot", True)
    eight = gpu.advice.compare(gpu="a100:8", utilization="15%")["cloud"]
    assert (eight["gpus"], eight["gpu"]) == (8, "A100-40GB")


def test_of_a_gpu_that_is_hardly_sold_any_more_the_price_says_so(gpu):
    offer = gpu.advice.compare(gpu="k80", utilization="15%")["cloud"]["offer"]
    assert offer["legacy"]


def test_eight_gpus_for_most_of_the_day_take_several_desktops(gpu):
    example = {"work": "training", "desktop": "rtx3090"}
    one = only(gpu.advice.compare(gpu="a100:8", price=20, utilization="60%", **example))
    assert (one["desktops"], round(one["desktop_hours_per_day"] / 24)) == (10, 9)
    both = only(gpu.advice.compare(gpu="a100:8", price=20, utilization="60%", work="training", desktop="rtx3090x2"))
    assert both["desktops"] == 5
    beyond = gpu.advice.compare(price=2, hours_per_day=60)
    assert only(beyond)["desktops"] == 3
    assert "2.5 machines at any time" in beyond["break_even_sentence"]


@pytest.mark.soak
def test_memory_that_is_smaller_is_named(gpu):
    document = gpu.advice.compare(gpu="a100-80gb", price=3, utilization="15%")
    assert document["fits"] is False
    assert any("more than 24 GiB does not fit RTX3090" in one for one in document["assumptions"])
    assert gpu.advice.compare(gpu="t4", price=1, utilization="15%")["fits"] is True
    assert gpu.advice.compare(price=1, utilization="15%")["fits"] is None


def test_where_speeds_were_not_measured_there_is_a_range(gpu):
    (answer,) = gpu.advice.compare(gpu="t4", price="0.30", utilization="60%", work="training")["answers"]
    days = [answer[case]["break_even_days"] for case in ("high", "expected", "low")]
    assert days == sorted(days)
    assert days[0] < days[2]


def test_a_price_that_is_too_low_is_never_even_and_says_which_would_be(gpu):
    document = gpu.advice.compare(price="0.05", utilization="15%")
    assert only(document)["break_even_days"] is None
    assert document["why_they_differ"] is None
    assert (
        "stays cheaper than a desktop with one RTX 3090 for 30 years. From $0.4726 an hour"
        in document["break_even_sentence"]
    )


def test_no_use_at_all_is_answered_with_rent(gpu):
    for given in ({"utilization": "0%"}, {"hours_per_day": 0}):
        document = gpu.advice.compare(price="2.14", **given)
        assert "that is not used costs nothing" in document["break_even_sentence"]
        assert (only(document)["break_even_days"], only(document)["break_even_usd_per_hour"]) == (None, None)


def test_a_desktop_that_costs_nothing_is_even_at_no_price_at_all(gpu):
    given = {"purchase": 0, "tariff": 0, "price": "0.01", "utilization": "15%"}
    one = only(gpu.advice.compare(**given))
    assert (one["break_even_usd_per_hour"], one["break_even_utilization_percent"]) == ("0", 0)
    assert one["break_even_days"] < 0.05


def test_a_desktop_counted_by_what_it_loses(gpu):
    straight = gpu.advice.compare(price="2.14", utilization="15%", depreciation="straight-line", resale=200)
    assert "from the first hour on" in straight["break_even_sentence"]
    assert only(straight)["curve"][-1]["worth_usd"] == "200"
    declining = gpu.advice.compare(price="0.60", utilization="15%", depreciation="declining", yearly_loss="30%")
    assert only(declining)["curve"][2]["worth_usd"] == "1540"


@pytest.mark.soak
def test_amounts_can_be_in_won_at_a_rate_with_its_date(gpu, own_home):
    document = gpu.advice.compare(**PUBLISHED, **WON)
    assert document["currency"] == {"code": "KRW", "per_usd": "1400", "as_of": "2026-11-20", "source": ""}
    assert "At 2,996 KRW an hour" in document["break_even_sentence"]
    assert only(document) == only(gpu.advice.compare(**PUBLISHED))
    typed = gpu.advice.compare(**PUBLISHED, **WON, purchase="7000000 KRW", tariff="140krw")["desktop"]
    assert (typed["purchase_usd"], typed["usd_per_kwh"], typed["quoted"]["amount"]) == ("5000", "0.1", "7000000")
    assert refused(gpu, **PUBLISHED, purchase="7000000 KRW").field == "--currency"
    assert gpu.advice.compare(**PUBLISHED | {"price": "2996 KRW"}, **WON)["cloud"]["usd_per_hour"] == "2.14"
    (own_home / "config.toml").write_text(
        '[currencies]\nKRW = { per_usd = "1250", as_of = 2026-11-01, source = "a bank" }\n'
    )
    with cloudgpu.connect(home=own_home, clock=lambda: NOW) as again:
        typed = again.advice.compare(**PUBLISHED, purchase="2500000 KRW")["desktop"]
    assert (typed["purchase_usd"], typed["quoted"]["source"]) == ("2000", "a bank")
    with cloudgpu.connect(home=own_home, clock=lambda: NOW - timedelta(days=60)) as before:
        assert "in the future" in refused(before, **PUBLISHED, purchase="2500000 KRW").message


@pytest.mark.soak
def test_a_desktop_of_ones_own_is_named_by_file_and_by_name(gpu, own_home, tmp_path):
    text = "gpu: RTX 4090\npurchase_usd: 3000\nsystem_watts: 120\nidle_watts: 70\nusd_per_kwh: 0.3\nlife_years: 5\n"
    own = tmp_path / "mine.yaml"
    own.write_text(text + "source: a receipt\nas_of: '2026-05-01'\n")
    (own_home / "desktops").mkdir()
    (own_home / "desktops" / "mine.yaml").write_text(own.read_text())
    documents = [gpu.advice.compare(**PUBLISHED, desktop=name) for name in (own, str(own), "mine")]
    assert documents[0] == documents[1] == documents[2]
    assert documents[0]["desktop"]["gpu_watts"] == 450  # the board's, by the catalogue
    assert "mine" in [one["name"] for one in gpu.advice.desktops()["desktops"]]


def test_a_desktop_in_won_without_a_rate_takes_the_one_that_was_given(gpu, own_home, tmp_path):
    own = tmp_path / "won.yaml"
    own.write_text(
        "gpu: RTX 4090\npurchase: 4200000\ncurrency: KRW\nper_kwh: 140\nsystem_watts: 120\nidle_watts: 70\n"
        "life_years: 5\nsource: a receipt\nas_of: '2026-05-01'\n"
    )
    assert "no rate of it is known" in refused(gpu, **PUBLISHED, desktop=own).message
    assert "no rate of it is known" in refused(gpu, **PUBLISHED, **WON | {"currency": "JPY"}, desktop=own).message
    document = gpu.advice.compare(**PUBLISHED, **WON, desktop=own)
    desktop = document["desktop"]
    assert (desktop["purchase_usd"], desktop["usd_per_kwh"]) == ("3000", "0.1")
    quoted = {"amount": "4200000", "code": "KRW", "per_usd": "1400", "as_of": "2026-11-20", "source": ""}
    assert (desktop["quoted"], document["currency"]["per_usd"]) == (quoted, "1400")
    assert "4,200,000 KRW (at 1400 of 2026-11-20)" in calculated_text(document, won())
    assert gpu.advice.compare(**WON, desktop=own)["desktop"]["purchase_usd"] == "3000"  # by the ledger, too
    own.write_text(f"{own.read_text()}per_usd: 1250\nrate_as_of: '2026-05-01'\nrate_source: a bank\n")
    assert gpu.advice.compare(**PUBLISHED, **WON, desktop=own)["desktop"]["quoted"]["per_usd"] == "1250"
    (own_home / "desktops").mkdir()
    (own_home / "desktops" / "won.yaml").write_text(own.read_text().partition("per_usd")[0])
    (own_home / "config.toml").write_text('desktop = "won"\n')
    with cloudgpu.connect(home=own_home, clock=lambda: NOW) as again:
        assert again.advice.recommend("vision", **WON)["currency"]["per_usd"] == "1400"
        assert again.money.report(**WON)["comparison"]["sentence"]


def won():
    return Currency("KRW", Decimal(1400), date(2026, 11, 20))


def test_a_card_that_the_catalogue_does_not_know_has_no_speed(gpu, tmp_path):
    lines = "gpu: Voodoo 9\ngpu_watts: 90\npurchase_usd: 300\nsystem_watts: 90\nidle_watts: 0\nusd_per_kwh: 0.3\n"
    own = tmp_path / "old.yaml"
    own.write_text(f"{lines}life_years: 5\nsource: a receipt\nas_of: '2026-05-01'\n")
    assert gpu.advice.compare(**PUBLISHED, desktop=own)["with_known_speeds"] is None
    assert any(
        "Voodoo 9 are not known here" in one for one in gpu.advice.compare(**PUBLISHED, desktop=own)["assumptions"]
    )
    fault = refused(gpu, **PUBLISHED, desktop=own, work="training")
    assert (fault.field, "Voodoo 9" in fault.message, "Leave --work out" in fault.next) == ("--work", True, True)


NO_NUMBERS = ("nan", "inf", "-1", "1e99", "", "much", "1,5", "9" * 20, float("nan"), float("inf"), -1.0, True)
NO_SHARES = ("nan%", "inf%", "-5%", "15", "0.15", "", "%", "1e3%", "100001%", float("nan"), -0.1, True)
NUMBERS = {
    "price": "2.14",
    "hours_per_day": "3.6",
    "years": "5",
    "purchase": "2200",
    "watts": "350",
    "system_watts": "100",
    "idle_watts": "60",
    "tariff": "0.12",
    "pue": "1.2",
    "maintenance": "50",
    "resale": "500",
    "life": "4",
}


@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_no_number_is_refused_by_its_option(gpu, name):
    option = f"--{name.replace('_', '-')}"
    base = {} if name == "hours_per_day" else {"utilization": "15%"}
    assert gpu.advice.compare(**{"price": 1, **base, name: NUMBERS[name]})["mode"] == "calculator"
    for value in NO_NUMBERS:
        fault = refused(gpu, **{"price": 1, **base, name: value})
        assert (fault.field, fault.next is not None) == (option, True), value
        assert option in fault.next
        assert fault.message.endswith(".")


@pytest.mark.parametrize("value", NO_SHARES)
def test_what_is_no_share_of_the_time_is_refused(gpu, value):
    fault = refused(gpu, price=1, utilization=value)
    assert (fault.field, "15" in fault.next or "--utilization" in fault.next) == ("--utilization", True)


@pytest.mark.parametrize(
    ("value", "way_out"),
    [
        (15, 'Write "15%" or "1500%".'),
        (1.5, 'Write "1.5%" or "150%".'),
        (Decimal("2.5"), 'Write "2.5%" or "250%".'),
        (Fraction(3, 2), 'Write "1.5%" or "150%".'),
        (1001, 'Write "1001%".'),  # so many machines are more than anybody compares
    ],
)
def test_a_number_above_one_is_a_share_or_per_cent_and_is_not_guessed_at(gpu, value, way_out):
    fault = refused(gpu, price=1, utilization=value)
    assert (fault.field, fault.next) == ("--utilization", way_out)
    assert (
        gpu.advice.compare(price=1, utilization=1)["answers"]
        == gpu.advice.compare(price=1, utilization="100%")["answers"]
    )
    assert gpu.advice.compare(price=1, utilization="250%")["answers"][0]["utilization_percent"] == 250
    loss = refused(gpu, price=1, utilization=0.1, depreciation="declining", yearly_loss=20)
    assert (loss.field, loss.next) == ("--yearly-loss", 'Write "20%".')


@pytest.mark.parametrize("value", [5, 0.5, True, [], b"x"])
def test_a_value_of_a_wrong_type_is_refused_by_its_option(gpu, value):
    for name in ("gpu", "desktop", "work", "depreciation", "currency"):
        fault = refused(gpu, **PUBLISHED | {name: value})
        assert (fault.field.removeprefix("--"), bool(fault.next), str(value) in fault.value) == (name, True, True)
    for name in ("since", "until", "tz", "desktop"):
        assert refused(gpu, **{name: value}).field.removeprefix("--") == name
    with pytest.raises(InvalidRequest):
        gpu.money.report(desktop=value)


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        ({"utilization": "phd-dektop", "price": 1}, "--utilization", "did you mean 'phd-desktop'?"),
        ({"utilization": "15%"}, "--gpu", "Neither a GPU nor a price"),
        ({"price": "2.14"}, "--utilization", "is not known"),
        ({"price": "0", "utilization": "15%"}, "--price", "is nothing"),
        ({"gpu": "v100"}, "--gpu", "needs --hours-per-day, --utilization or --price"),
        ({"spot": True}, "--spot", "needs --hours-per-day, --utilization or --price"),
        ({"years": 5}, "--years", "needs --hours-per-day, --utilization or --price"),
        ({**PUBLISHED, "since": "7d"}, "--since", "cannot be combined with --price"),
        (
            {"gpu": "v100", "hours_per_day": 3, "since": "7d"},
            "--since",
            "--since cannot be combined with --hours-per-day.",
        ),
        ({**PUBLISHED, "until": "7d"}, "--until", "cannot be combined with --price"),
        ({**PUBLISHED, "tz": "Asia/Seoul"}, "--tz", "cannot be combined with --price"),
        ({**PUBLISHED, "spot": True}, "--spot", "--price says one"),
        ({**PUBLISHED, "hours_per_day": 3}, "--hours-per-day", "say the same"),
        ({**PUBLISHED, "gpu": "v1000"}, "--gpu", "no GPU 'v1000'"),
        ({**PUBLISHED, "gpu": "v100:0"}, "--gpu", "names no GPU"),
        ({"gpu": "rtx3090:63", "utilization": "15%"}, "--price", "no on-demand price"),
        ({"gpu": "t4:63", "utilization": "15%"}, "--price", "no on-demand price of a machine with 63 T4"),
        ({"price": 1, "utilization": "15%", "work": "training"}, "--gpu", "depends on which one"),
        ({"price": 1, "utilization": "100000%", "gpu": "h100:64"}, "--utilization", "This much use would take"),
        ({**PUBLISHED, "work": "trainig"}, "--work", "did you mean 'training'?"),
        ({**PUBLISHED, "work": ""}, "--work", "is not a valid kind of work"),
        ({**PUBLISHED, "desktop": "rtx309"}, "desktop", "did you mean 'rtx3090'?"),
        ({**PUBLISHED, "desktop": ""}, "desktop", "No desktop is called ''"),
        ({**PUBLISHED, "desktop": "./none.yaml"}, "desktop", "There is no file"),
        ({**PUBLISHED, "depreciation": "straight"}, "--depreciation", "did you mean 'straight-line'?"),
        ({**PUBLISHED, "yearly_loss": "20"}, "--yearly-loss", "is written with its %"),
        ({**PUBLISHED, "yearly_loss": "101%"}, "--yearly-loss", "is not a number from 0 to 100"),
        ({**PUBLISHED, "depreciation": "declining", "yearly_loss": "0%"}, "--yearly-loss", "is not in its file"),
        (
            {**PUBLISHED, "yearly_loss": "20%"},
            "--yearly-loss",
            "is for declining depreciation, and this is without any",
        ),
        ({**PUBLISHED, "yearly_loss": 0.2, "depreciation": "straight-line"}, "--yearly-loss", "this is straight-line."),
        ({**PUBLISHED, "resale": 2201}, "--resale", "more than the purchase"),
        ({**PUBLISHED, "idle_watts": 451}, "--idle-watts", "451 W while it waits, and 450 W at work"),
        ({**PUBLISHED, "pue": "0.9"}, "--pue", "not a number from 1 to 10"),
        ({**PUBLISHED, "pue": "10.1"}, "--pue", "not a number from 1 to 10"),
        ({**PUBLISHED, "life": "0"}, "--life", "not a number from 0.1 to 100"),
        ({**PUBLISHED, "price": "100001"}, "--price", "not a number from 0 to"),
        ({**PUBLISHED, "currency": "WON"}, "--currency", "not a currency of ISO 4217"),
        ({**PUBLISHED, "currency": "KRW"}, "--currency", "no exchange rate for KRW"),
        ({**PUBLISHED, "rate": "1400"}, "--rate", "is given without a currency"),
        ({**PUBLISHED, "purchase": "5 XYZ"}, "--currency", "not a currency of ISO 4217"),
        ({**PUBLISHED, **WON, "rate_date": "2027-01-01"}, "--rate-date", "in the future"),
    ],
)
def test_what_cannot_be_is_refused_by_its_option(gpu, given, field, says):
    fault = refused(gpu, **given)
    assert (fault.field, says in fault.message) == (field, True), fault.message
    assert fault.next


def test_a_misspelt_word_of_a_program_is_no_option(gpu):
    with pytest.raises(TypeError, match="'utilisation'"):
        gpu.advice.compare(utilisation="15%")


SHOWN = [
    PUBLISHED,
    PUBLISHED | WON,
    PUBLISHED | {"price": "0.05", "work": "inference"},
    {"gpu": "a100:8", "utilization": "company-cluster", "work": "training", "desktop": "rtx3090x2"},
    {"gpu": "t4", "utilization": "personal", "spot": True},
    {"gpu": "k80", "hours_per_day": "2400", "desktop": "rtx4090", "depreciation": "declining"},
    {"price": "99999", "utilization": "100000%", "purchase": "9999999", "maintenance": 9999, "resale": 5, "pue": 2},
    {"price": "0.01", "utilization": "0%", "years": 100},
    {"price": "0.0001", "utilization": "0.01%", "life": "0.1", **WON},
]


@pytest.mark.parametrize("given", SHOWN, ids=str)
def test_the_text_fits_80_columns_and_says_nothing_that_is_none(gpu, given, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")  # in a pipe each row of a table is one line
    document = gpu.advice.compare(**given)
    rate = document["currency"]
    currency = rate and Currency(rate["code"], Decimal(rate["per_usd"]), date.fromisoformat(rate["as_of"]))
    text = calculated_text(document, currency)
    assert max(map(len, text.splitlines())) <= 80
    assert not {"None", "nan", "inf", "Fraction"} & set(text.replace(",", " ").split())
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert text.startswith(("Buy: over ", "Rent: over ", "Rent: a machine that is not used"))


def test_the_desktops_are_listed_with_what_they_cost(gpu):
    document = gpu.advice.desktops()
    text = desktops_text(document)
    assert max(map(len, text.splitlines())) <= 80
    assert "rtx3090x2-2022  2x RTX 3090  $5,906   7,500,000 KRW" in text
    assert all(one["source"] and one["as_of"] for one in document["desktops"])


def test_all_words_are_those_of_the_verb():
    from inspect import signature

    from cloudgpu.cli.money.compare import command

    assert set(signature(command).parameters) == set(CompareOptions.__annotations__) | {
        "output",
        "desktops",
        "verbose",
        "sources",
        "chart",
    }


def test_a_time_that_passes_changes_no_figure(own_home):
    def at(moment):
        with cloudgpu.connect(home=own_home, clock=lambda: moment) as gpu:
            return {key: value for key, value in gpu.advice.compare(**PUBLISHED).items() if key != "as_of"}

    assert at(NOW) == at(NOW + timedelta(days=400))
