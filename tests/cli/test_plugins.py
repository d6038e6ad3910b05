"""A provider that is installed as a plug-in is in every list of providers, and what is missing for its use is said."""

from __future__ import annotations

import json

import pytest

from cloudgpu.cli.app import run
from cloudgpu.cli.common import complete_provider
from cloudgpu.testing import FAKE, write_plugin


@pytest.fixture
def said(tmp_path, monkeypatch, capsys, own_home):
    """Run a command where the provider `acme` is installed: its exit code, and what it printed in one line."""
    write_plugin(tmp_path, {"acme": FAKE})
    monkeypatch.syspath_prepend(str(tmp_path))

    def said(text):
        code = run(text.split())
        out, err = capsys.readouterr()
        return code, " ".join((out + err).split())

    return said


def test_a_plugin_without_an_account_is_told_with_the_lines_that_give_it_one(said, own_home, capsys):
    assert run("up --provider acme --dry-run -o json".split()) == 2
    fault = json.loads(capsys.readouterr().out)["error"]
    assert fault["message"] == "The provider 'acme' is installed, but config.toml has no account of it."
    first, *lines = fault["next"].splitlines()
    assert str(own_home / "config.toml") in first
    (own_home / "config.toml").write_text("\n".join(lines))
    code, text = said("up --provider acme --gpu v100 --dry-run")
    assert code == 0, text
    assert "(account acme)" in text


def test_a_plugin_that_is_not_installed_is_told_so(said):
    code, text = said("up --provider acmee --dry-run")
    assert code == 2
    assert "There is no provider 'acmee'; did you mean 'acme'? This installation has: acme," in text


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("up --help", "Where to launch: acme, aws, azure, gcp, lambda, local, runpod, ssh or vast."),
        ("doctor --help", "provider: acme, aws, azure, gcp, lambda, local, runpod, ssh or vast."),
        ("init --help", "launches: acme, aws, azure, gcp, lambda, local, runpod, ssh or vast, or any."),
        (
            "up --provider whatever --dry-run",
            "This installation has: acme, aws, azure, gcp, lambda, local, runpod, ssh, vast.",
        ),
        ("doctor", "plug-in acme installed, but no account of it is configured"),
        (
            "budget set b --scope provider=acmee --amount 3 --period month",
            "acme, aws, azure, gcp, lambda, local, runpod, ssh, vast.",
        ),
    ],
)
def test_a_list_of_providers_has_the_plugin(said, command, names):
    assert names in said(command)[1]


@pytest.mark.parametrize(
    "command",
    ["gpus", "estimate --gpu v100", "catalog", "catalog diff", "recommend --params 7b"],
)
def test_the_catalogue_says_that_it_lacks_a_plugin_and_where_its_prices_are(said, command):
    code, text = said(f"{command} --provider acme")
    assert code == 2
    assert (
        "The catalogue lists only aws, azure, gcp, lambda, runpod, vast: acme tells its offers and prices itself."
        in text
    )
    assert "cloudgpu up --provider acme --dry-run" in text


def test_the_shell_completes_a_plugin(said):
    assert complete_provider("ac") == ["acme"]


def test_a_budget_and_a_discount_may_be_for_a_plugin(said, own_home):
    assert said("budget set b --scope provider=acme --amount 3 --period month")[0] == 0
    discount = '[accounts.lab]\nprovider = "acme"\n[[discounts]]\nprovider = "acme"\npercent = 5\n'
    (own_home / "config.toml").write_text(discount)
    assert said("ls")[0] == 0
    (own_home / "config.toml").write_text(discount.replace('"acme"\npercent', '"acmee"\npercent'))
    assert "did you mean 'acme'?" in said("ls")[1]
