"""Desktops as data: every key is read exactly, and every fault is named with its line and a way out."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from cloudgpu.config.desktops.desktops import KEYS, desktop_from, desktop_names, load_desktop
from cloudgpu.config.files.user_files import data_dir
from cloudgpu.config.files.yaml import parse_yaml
from cloudgpu.config.settings import Settings
from cloudgpu.core.advice.desktop import YEAR, Depreciation
from cloudgpu.core.values.currency import Currency
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.core.values.units import Power, Tariff
from cloudgpu.errors import InvalidRequest

LINES = {
    "gpu": "RTX 3090",
    "purchase_usd": "2200",
    "gpu_watts": "350",
    "system_watts": "100",
    "idle_watts": "60",
    "usd_per_kwh": "0.12",
    "life_years": "4",
    "source": "a receipt",
    "as_of": "2026-11-20",
}
WON = {
    "purchase_usd": None,
    "usd_per_kwh": None,
    "purchase": "7500000",
    "currency": "KRW",
    "per_kwh": "150",
    "per_usd": "1250",
    "rate_as_of": "2022-05-15",
    "rate_source": "a bank",
}


def desktop(settings=None, watts=None, today=None, **changes):
    lines = {key: value for key, value in {**LINES, **changes}.items() if value is not None}
    text = "\n".join(f"{key}: {value}" for key, value in lines.items())
    return desktop_from(parse_yaml(text, Path("/d/own.yaml")), "own", settings=settings, board_power=watts, today=today)


def refused(call):
    with pytest.raises(InvalidRequest) as caught:
        call()
    return caught.value


def test_the_shipped_desktop_is_the_published_example():
    """T. Dettmers, "Which GPU(s) to Get for Deep Learning": $2,200, 350 W and 100 W, $0.12 per kWh."""
    shipped = load_desktop("rtx3090")
    assert (shipped.purchase, shipped.tariff, shipped.gpus) == (Money.usd(2200), Tariff(Money.usd("0.12")), 1)
    assert (shipped.gpu_power, shipped.rest_power, shipped.idle_power) == (Power.of(350), Power.of(100), Power.of(0))
    assert (shipped.resale, shipped.maintenance, shipped.pue) == (ZERO, ZERO, 1)
    assert "published example" in shipped.source


def test_two_cards_of_a_published_korean_build_are_quoted_in_won():
    shipped = {name: load_desktop(name) for name in ("rtx3090x2", "rtx3090x2-2022")}
    assert [str(one.purchase_in_currency) for one in shipped.values()] == ["10,000,000 KRW", "7,500,000 KRW"]
    for one in shipped.values():
        rate = one.purchase_in_currency.currency
        assert (one.gpus, f"{rate.as_of:%Y-%m}", "from memory" in rate.source) == (2, "2022-05", True)
        assert one.purchase == one.purchase_in_currency.in_usd


@pytest.mark.parametrize("name", desktop_names())
def test_every_shipped_desktop_has_its_source_and_is_the_card_and_the_rest(name):
    one = load_desktop(name)
    assert one.name == name
    assert (bool(one.source), one.as_of < date(2026, 11, 22), one.depreciation) == (True, True, Depreciation.NONE)
    assert one.idle_power < one.busy_power
    # The card's street price of gpus.csv ("2025 (undated table)"), and what the $2,200 desktop leaves beside $1,499.
    cards = {"rtx3060": 235, "rtx3070": 337, "rtx3090-used": 537, "rtx4080": 999, "rtx4090": 1575}
    if name in cards:
        assert one.purchase == Money.usd(cards[name] + 2200 - 1499)
        assert f"${cards[name]:,} " in one.source
        assert "derived" in one.source


def test_there_is_a_desktop_for_each_that_was_asked_for():
    assert {"rtx3090", "rtx3090x2", "rtx3090x2-2022", "rtx3070", "rtx4090"} <= set(desktop_names())
    shipped = {file.stem for file in (data_dir("policies") / "desktops").glob("*.yaml")}
    assert shipped == set(desktop_names())


def test_a_users_own_desktop_is_read_exactly(tmp_path):
    (tmp_path / "own.yaml").write_text("\n".join(f"{key}: {value}" for key, value in LINES.items()))
    own = load_desktop("own", search=(tmp_path,))
    assert (own.tariff.per_kwh.nanos, own.idle_power, own.life) == (120_000_000, Power.of(60), 4 * YEAR)
    assert own.as_of == date(2026, 11, 20)
    assert "own" in desktop_names([tmp_path])
    for path in (tmp_path / "own.yaml", str(tmp_path / "own.yaml")):
        assert load_desktop(path) == own


def test_every_key_is_read():
    more = {
        "gpus": 2,
        "pue": 1.3,
        "maintenance": 90,
        "resale": 300,
        "yearly_loss_percent": 20,
        "depreciation": "declining",
    }
    own = desktop(**more, life_years="2.5")
    assert (own.gpus, own.pue, own.maintenance, own.resale) == (2, Fraction(13, 10), Money.usd(90), Money.usd(300))
    assert (own.depreciation, own.yearly_loss) == (Depreciation.DECLINING, Fraction(1, 5))
    assert own.life == timedelta(days=912, hours=12)
    assert set(KEYS) == {*LINES, *WON, *more}


def test_amounts_are_converted_at_the_files_own_rate():
    own = desktop(**WON, maintenance="125000", resale="1250000")
    assert (own.purchase, own.maintenance, own.resale) == (Money.usd(6000), Money.usd(100), Money.usd(1000))
    assert own.tariff == Tariff(Money.usd("0.12"))
    assert (str(own.purchase_in_currency), own.purchase_in_currency.currency.as_of) == (
        "7,500,000 KRW",
        date(2022, 5, 15),
    )


def test_without_a_rate_of_its_own_the_configured_one_holds():
    won = Currency("KRW", Decimal(1500), date(2026, 11, 20), "another bank")
    bare = {**WON, "per_usd": None, "rate_as_of": None, "rate_source": None}
    assert desktop(Settings("ada", currencies={"KRW": won}), **bare).purchase == Money.usd(5000)
    for settings in (None, Settings("ada")):
        fault = refused(lambda settings=settings: desktop(settings, **bare))
        assert (fault.field, "no rate of it is known" in fault.message) == ("own.yaml:9: currency", True)
        assert "[currencies]" in fault.next


def test_a_price_in_dollars_may_have_a_tariff_in_another_currency():
    own = desktop(**{**WON, "purchase_usd": "6000", "purchase": None})
    assert (own.purchase, own.purchase_in_currency, own.tariff) == (Money.usd(6000), None, Tariff(Money.usd("0.12")))


def test_watts_that_are_left_out_are_the_boards():
    known = {"RTX 3090": Power.of(350)}
    assert desktop(watts=known.get, gpu_watts=None).gpu_power == Power.of(350)
    for watts in (None, {}.get):
        fault = refused(lambda watts=watts: desktop(watts=watts, gpu_watts=None))
        assert (fault.field, "power limit" in fault.next) == ("own.yaml:1: gpu_watts", True)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("purchase_usd", "-1", "number from 0"),
        ("purchase_usd", "free", "number from 0"),
        ("purchase_usd", ".nan", "number from 0"),
        ("purchase_usd", "1e9", "number from 0"),
        ("purchase_usd", "99999999", "to 10000000"),
        ("purchase", "5", "says again what purchase_usd says"),
        ("gpu_watts", "1000000", "to 100000"),
        ("idle_watts", "true", "number from 0"),
        ("idle_watts", "451", "more than it takes at work"),
        ("usd_per_kwh", "-0.12", "number from 0"),
        ("usd_per_kwh", "[1]", "number from 0"),
        ("usd_per_kwh", "101", "to 100"),
        ("per_kwh", "5", "says again what usd_per_kwh says"),
        ("life_years", "0", "number from 0.1"),
        ("life_years", "101", "to 100"),
        ("as_of", "yesterday", "2026-11-20"),
        ("gpu", "3090", "in quotes"),
        ("gpu", "''", "is empty"),
        ("source", None, "is missing"),
        ("source", "''", "is empty"),
        ("gpus", "0", "whole number from 1 to 64"),
        ("gpus", "1.5", "whole number from 1 to 64"),
        ("gpus", "65", "whole number from 1 to 64"),
        ("pue", "0.9", "number from 1 to 10"),
        ("maintenance", "-5", "number from 0"),
        ("resale", "2200.01", "more than it was bought for"),
        ("resale", "-1", "number from 0"),
        ("depreciation", "linear", "Use one of: none, straight-line, declining"),
        ("depreciation", "strait-line", "did you mean 'straight-line'?"),
        ("yearly_loss_percent", "101", "number from 0 to 100"),
        ("currency", "WON", "not a currency of ISO 4217"),
        ("currency", "krw", "not a currency of ISO 4217"),
        ("per_usd", "1250", "is of a currency, and none is named"),
        ("gpu_watt", "350", "did you mean 'gpu_watts'?"),
    ],
)
def test_a_wrong_figure_is_refused_with_its_line(key, value, says):
    fault = refused(lambda: desktop(**{key: value}))
    line = 1 if value is None else [*dict.fromkeys([*LINES, key])].index(key) + 1
    assert fault.field == f"own.yaml:{line}: {key}"
    assert says in f"{fault.message} {fault.next}"
    assert fault.next


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"purchase_usd": None}, "own.yaml:1: purchase_usd", "is missing"),
        ({"usd_per_kwh": None}, "own.yaml:1: usd_per_kwh", "is missing"),
        ({"depreciation": "declining"}, "own.yaml:1: yearly_loss_percent", "is missing"),
        ({"purchase_usd": None, "purchase": "5"}, "own.yaml:9: purchase", "has no currency"),
        ({"usd_per_kwh": None, "per_kwh": "5"}, "own.yaml:9: per_kwh", "has no currency"),
        ({**WON, "rate_as_of": None}, "own.yaml:1: rate_as_of", "is missing"),
        ({**WON, "rate_source": None}, "own.yaml:1: rate_source", "is missing"),
        ({**WON, "rate_as_of": "May"}, "own.yaml:12: rate_as_of", "has to be a day"),
        ({**WON, "per_usd": "0"}, "own.yaml:11: per_usd", "number from"),
        ({**WON, "purchase": "99999999999999"}, "own.yaml:8: purchase", "number from 0"),
        ({**WON, "resale": "7500001"}, "own.yaml:14: resale", "more than it was bought for"),
    ],
)
def test_what_goes_together_is_refused_apart(changes, field, says):
    fault = refused(lambda: desktop(**changes))
    assert (fault.field, says in fault.message) == (field, True), fault.message


@pytest.mark.parametrize("name", ["rtx3091", "RTX3090", ""])
def test_an_unknown_desktop_is_answered_with_those_there_are(name):
    fault = refused(lambda: load_desktop(name))
    assert fault.field == "desktop"
    assert "rtx3090" in fault.next


@pytest.mark.parametrize("path", ["../desktops/rtx3090", "./nowhere.yaml", "nowhere.yaml", "/nowhere/at/all.yaml"])
def test_a_file_that_is_not_there_is_named(path):
    fault = refused(lambda: load_desktop(path))
    assert (fault.field, fault.value) == ("desktop", str(Path(path)))
    assert "There is no file" in fault.message


TODAY = date(2026, 11, 22)


@pytest.mark.parametrize(
    ("changes", "key", "says"),
    [
        ({"as_of": "2026-11-24"}, "as_of", "is 2026-11-24, a day that is still to come"),
        ({**WON, "rate_as_of": "2027-01-01"}, "rate_as_of", "is 2027-01-01, a day that is still to come"),
        (
            {**WON, "per_usd": None, "rate_as_of": None, "rate_source": None},
            "currency",
            "is of 2027-02-02, a day that is still to come",
        ),
    ],
)
def test_figures_and_rates_of_a_day_to_come_are_refused(changes, key, says):
    settings = Settings(owner="me", currencies={"KRW": Currency("KRW", Decimal(1300), date(2027, 2, 2), "a prophet")})
    fault = refused(lambda: desktop(settings, today=TODAY, **changes))
    assert (fault.field.endswith(f": {key}"), says in fault.message) == (True, True), fault.message
    assert "2026-11-20" in fault.next


def test_a_clock_that_is_behind_hides_no_shipped_desktop():
    assert load_desktop("rtx4090", today=date(1970, 1, 1)).gpu == "RTX 4090"


def test_somewhere_it_is_tomorrow():
    assert desktop(today=TODAY, as_of="2026-11-23").as_of == date(2026, 11, 23)


@pytest.mark.parametrize("path", ["~nobody-of-this-name/mine.yaml", "./a\0b.yaml", Path("a\0b")])
def test_what_is_no_path_is_refused(path):
    fault = refused(lambda: load_desktop(path))
    assert (fault.field, "is not a path of a file" in fault.message) == ("desktop", True)
    assert fault.message.isprintable()


def test_of_what_is_no_text_file_nobody_is_told_to_remove_it(tmp_path):
    fault = refused(lambda: load_desktop(f"{tmp_path}/"))
    assert (fault.field, "is a directory" in fault.message, "remove" in fault.next) == ("desktop", True, False)
    assert refused(lambda: load_desktop("mine.yml")).message == "There is no file mine.yml."
