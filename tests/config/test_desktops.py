from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from cloudgpu.config.data import data_dir
from cloudgpu.config.desktops import desktop_from, load_desktop
from cloudgpu.config.yamlfile import parse_yaml
from cloudgpu.core.desktop import YEAR
from cloudgpu.core.money import Money
from cloudgpu.core.units import Power, Tariff
from cloudgpu.errors import InvalidRequest

LINES = {
    "gpu": "RTX 3090",
    "purchase_usd": "2200",
    "gpu_watts": "350",
    "rest_watts": "100",
    "idle_watts": "60",
    "usd_per_kwh": "0.12",
    "life_years": "4",
    "source": "a receipt",
    "as_of": "2026-11-20",
}


def desktop(**changes):
    lines = {**LINES, **changes}
    text = "\n".join(f"{key}: {value}" for key, value in lines.items() if value is not None)
    return desktop_from(parse_yaml(text, Path("/d/own.yaml")), "own")


def test_the_shipped_desktop_is_the_published_example():
    shipped = load_desktop("rtx3090")
    assert (shipped.purchase, shipped.tariff) == (Money.usd(2200), Tariff(Money.usd("0.12")))
    assert (shipped.gpu_power, shipped.rest_power) == (Power.of(350), Power.of(100))
    assert "published example" in shipped.source


def test_every_shipped_desktop_is_read():
    files = list((data_dir("policies") / "desktops").glob("*.yaml"))
    assert files
    for file in files:
        assert load_desktop(file.stem).name == file.stem


def test_a_users_own_desktop_is_read_exactly(tmp_path):
    (tmp_path / "own.yaml").write_text("\n".join(f"{key}: {value}" for key, value in LINES.items()))
    own = load_desktop("own", search=(tmp_path,))
    assert (own.tariff.per_kwh.nanos, own.idle_power, own.life) == (120_000_000, Power.of(60), 4 * YEAR)
    assert own.as_of == date(2026, 11, 20)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("purchase_usd", "-1", "number from 0"),
        ("purchase_usd", "free", "number from 0"),
        ("gpu_watts", "1000000", "to 100000"),
        ("idle_watts", "true", "number from 0"),
        ("usd_per_kwh", "-0.12", "number from 0"),
        ("usd_per_kwh", "[1]", "number from 0"),
        ("life_years", "0", "number from 0.1"),
        ("as_of", "yesterday", "2026-11-20"),
        ("gpu", "3090", "in quotes"),
        ("source", None, "is missing"),
    ],
)
def test_a_wrong_figure_is_refused_with_its_line(key, value, says):
    with pytest.raises(InvalidRequest) as caught:
        desktop(**{key: value})
    line = 1 if value is None else list(LINES).index(key) + 1
    assert caught.value.field == f"own.yaml:{line}: {key}"
    assert says in f"{caught.value.message} {caught.value.next}"


@pytest.mark.parametrize("name", ["rtx3091", "RTX3090", ""])
def test_an_unknown_desktop_is_answered_with_those_there_are(name):
    with pytest.raises(InvalidRequest) as caught:
        load_desktop(name)
    assert caught.value.field == "desktop"
    assert "rtx3090" in caught.value.next
