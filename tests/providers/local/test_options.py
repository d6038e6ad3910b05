"""Settings of a local account, and what its electricity costs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from cloudgpu.core.activity.computer_share import ComputerShare
from cloudgpu.core.model.offers import Accelerator, Basis, Requirements
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.local import power
from cloudgpu.providers.local.options import local_options
from cloudgpu.providers.shared.python_environment import jupyter_command
from tests.providers.local.cloud import Cloud

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("watts", -1, "a number from 0"),
        ("watts", "100 W", "a number from 0"),
        ("watts", True, "a number from 0"),
        ("watts", float("nan"), "a number from 0"),
        ("watts", float("inf"), "a number from 0"),
        ("watts", [], "a number from 0"),
        ("usd_per_kwh", -0.01, "a number from 0"),
        ("interruption_notice", "soon", "a duration"),
        ("interruption_notice", 120, "a duration"),
        ("interruption_notice", "0s", "a duration"),
        ("machine_start_timeout", "-3s", "a duration"),
        ("wats", 100, "is not an option"),
        ("colour", "red", "is not an option"),
    ],
)
def test_a_bad_setting_names_the_key_the_value_and_the_way_out(key, value, says):
    with pytest.raises(InvalidRequest, match=says) as refused:
        local_options("home", {key: value})
    assert refused.value.field == f"config.toml: accounts.home.{key}"
    assert refused.value.value == (None if says == "is not an option" else str(value))
    assert refused.value.next


def test_a_near_match_is_offered_for_an_unknown_setting():
    with pytest.raises(InvalidRequest) as refused:
        local_options("home", {"usd_per_kw": 1})
    assert "is not an option of a local account; did you mean 'usd_per_kwh'?" in refused.value.message


def test_good_settings_are_taken():
    options = local_options("home", {"watts": 250.5, "interruption_notice": "1s"})
    assert options.watts.value == Decimal("250.5")
    assert options.notice == timedelta(seconds=1)
    assert options.start_timeout == timedelta(seconds=20)


def test_without_a_meter_the_price_is_a_setting_with_its_source(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    price = power.price(local_options("home", {}), (), NOON)
    assert price.per_hour == Money.usd("0.012")
    assert price.source == "100 W (default of accounts.home.watts) x 0.12 $/kWh (default of accounts.home.usd_per_kwh)"
    assert (price.as_of, price.basis) == (NOON, Basis.SETTING)
    own = power.price(local_options("home", {"watts": 450, "usd_per_kwh": 0.3}), (), NOON)
    assert own.per_hour == Money.usd("0.135")
    assert own.source == "450 W (accounts.home.watts) x 0.3 $/kWh (accounts.home.usd_per_kwh)"


def test_gpus_are_reported_and_count_at_the_most_they_can_draw(nvidia_smi, tmp_path):
    nvidia_smi("Tesla V100-SXM2-16GB, 16384\\nTesla V100-SXM2-16GB, 16384\\n", "300.00\\n250.50\\n")
    provider = Cloud(tmp_path / "home").provider
    found = provider.available(Requirements(gpu="v100", gpu_count=2)).items
    assert found[0].accelerators == (Accelerator("Tesla V100-SXM2-16GB", 2, 16.0),)
    assert provider.available(Requirements(gpu="v100", gpu_count=3)).items == ()
    assert provider.available(Requirements(gpu="a100")).items == ()
    price = provider.prices(found)[0]
    assert price.per_hour == Money.usd("0.07806")  # 650.5 W
    assert price.source.startswith("at most 550.50 W (power limit of the GPUs, nvidia-smi) + 100 W (")
    assert price.basis is Basis.ASSUMED


@pytest.mark.parametrize(("watts", "status"), [("[N/A]\\n", 0), ("", 0), ("41.5\\n", 9), ("nan\\n", 0), ("0\\n", 0)])
def test_a_gpu_that_does_not_say_its_power_limit_counts_at_its_boards_watts_and_never_at_zero(
    nvidia_smi, watts, status
):
    nvidia_smi("Tesla T4, 15360\\n", watts, status)
    price = power.price(local_options("home", {}), (Accelerator("Tesla T4", 1, 15.0),), NOON)
    assert price.per_hour == Money.usd("0.0204")
    assert price.source.startswith("at most 1 x 70 W for Tesla T4 + 100 W (")


def test_a_part_of_the_computer_costs_its_measured_watts_and_says_what_was_not_measured(nvidia_smi):
    nvidia_smi("Tesla T4, 15360\\n", "70.00\\n")
    options, gpus = local_options("home", {}), (Accelerator("Tesla T4", 1, 15.0),)
    half = power.shared_price(options, gpus, ComputerShare(3600, 1800, 40 * 3600, 3600, 0, 2), NOON)
    assert half.per_hour == Money.usd("0.0108")  # (40 + 50) W
    assert half.source == (
        "measured: 40 W of GPUs on average, over 1h + 100 W (default of accounts.home.watts), "
        "split among up to 2 machines, x 0.12 $/kWh (default of accounts.home.usd_per_kwh)"
    )
    blind = power.shared_price(options, gpus, ComputerShare(3600, 3600, 40 * 1800, 1800, 1800, 1), NOON)
    assert (blind.per_hour, blind.basis) == (Money.usd("0.0186"), Basis.ASSUMED)  # (20 + 35 + 100) W
    assert "30m that nobody measured at 70.00 W (power limit of the GPUs, nvidia-smi)" in blind.source


@pytest.mark.parametrize("answer", ["", "No devices were found\\n", "NVIDIA GB10, [N/A]\\n"])
def test_a_strange_answer_of_the_driver_breaks_nothing(nvidia_smi, answer):
    nvidia_smi(answer, "")
    assert [gpu.memory_gib for gpu in power.gpus()] in ([], [None])


def test_what_is_not_ours_has_no_price(tmp_path):
    provider = Cloud(tmp_path / "home").provider
    ours = provider.available(Requirements()).items[0]
    import dataclasses

    foreign = dataclasses.replace(ours, provider="aws")
    assert [price is None for price in provider.prices([foreign, ours])] == [True, False]
    assert provider.prices([foreign]) == [None]


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        (("jupyter", "lab", "-y"), ["-m", "jupyterlab", "-y"]),
        (("jupyter-lab", "-y"), ["-m", "jupyterlab", "-y"]),
        (("jupyter", "server"), ["-m", "jupyter_server"]),
        (("jupyter", "voila"), ["-m", "jupyter", "voila"]),
    ],
)
def test_jupyter_is_run_by_our_own_python(words, runs):
    assert jupyter_command(words, "python3", "-m") == ["python3", *runs]


def test_another_program_is_run_as_it_is():
    assert jupyter_command(("marimo", "edit"), "python3") == ["marimo", "edit"]
    assert jupyter_command((), "python3") == []
