"""Providers are found by name, and only the one that is named is loaded."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from cloudgpu.errors import InvalidRequest, MissingExtra
from cloudgpu.providers import registry
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.registry import _LazyModule
from cloudgpu.testing import FAKE, FakeProvider, ManualClock, write_plugin


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Offer providers as an installed package would, from modules that stand in the same directory."""

    def offer(providers, *, name="test-plugin", **modules):
        for module, source in modules.items():
            (tmp_path / f"{module}.py").write_text(source)
        write_plugin(tmp_path, providers, name=name)
        monkeypatch.syspath_prepend(str(tmp_path))

    return offer


def test_a_plugin_is_known_by_name(plugin):
    plugin({"fake": FAKE, "zeta": "zeta_module:make"})
    assert {"fake", "zeta"} <= set(registry.kinds())
    assert list(registry.kinds()) == sorted(set(registry.kinds()))


def test_naming_the_kinds_loads_none(plugin):
    plugin({"bomb": "bomb_module:make"}, bomb_module="raise SystemExit('it was loaded')")
    assert "bomb" in registry.kinds()
    assert "bomb_module" not in sys.modules


def test_opening_a_provider_makes_it_from_its_settings(plugin, tmp_path):
    plugin({"fake": FAKE, "bomb": "bomb_module:make"}, bomb_module="raise SystemExit('it was loaded')")
    opened = registry.open_provider("fake", ProviderSettings("lab", {}, tmp_path, ManualClock()))
    assert isinstance(opened, FakeProvider)
    assert (opened.kind, opened.account) == ("fake", "lab")


def test_an_unknown_kind_is_answered_with_the_near_one_and_all(plugin):
    plugin({"fake": FAKE})
    with pytest.raises(InvalidRequest) as refused:
        registry.load("faek")
    assert (refused.value.field, refused.value.value) == ("provider", "faek")
    assert "did you mean 'fake'?" in refused.value.message
    assert ", ".join(registry.kinds()) in refused.value.next


def test_a_kind_like_nothing_is_answered_with_all(plugin):
    plugin({"fake": FAKE})
    with pytest.raises(InvalidRequest) as refused:
        registry.load("qqqqqqq")
    assert "id you mean" not in refused.value.next
    assert "fake" in refused.value.next


def test_a_missing_sdk_is_answered_with_the_line_that_installs_it(plugin):
    plugin({"acme": "acme_module:make"}, name="cloudgpu", acme_module="import an_sdk_that_nobody_has")
    with pytest.raises(MissingExtra) as missing:
        registry.load("acme")
    assert missing.value.next == "Run: pip install 'cloudgpu[acme]'"
    assert "an_sdk_that_nobody_has" in missing.value.message


def test_what_a_plugin_misses_is_the_plugins_to_install(plugin):
    plugin({"acme": "acme_module_2:make"}, name="acme-gpu", acme_module_2="import an_sdk_that_nobody_has")
    with pytest.raises(MissingExtra) as missing:
        registry.load("acme")
    assert "acme-gpu" in missing.value.next


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("broken_a", "1 / 0"),
        ("broken_b", "def made(settings): pass"),
        ("broken_c", "import cloudgpu.no_such_room"),
        ("broken_d", "from os import no_such_name"),
        ("broken_e", "def"),
    ],
)
def test_a_broken_plugin_is_named_and_not_called_missing(plugin, module, source):
    plugin({"acme": f"{module}:make"}, **{module: source})
    with pytest.raises(InvalidRequest, match=module) as refused:
        registry.load("acme")
    assert type(refused.value) is InvalidRequest
    assert refused.value.next


def test_two_packages_with_one_kind_are_refused(plugin, tmp_path):
    plugin({"twin": "one:make"}, name="first-plugin")
    plugin({"twin": "two:make"}, name="second-plugin")
    with pytest.raises(InvalidRequest, match="one:make and two:make"):
        registry.load("twin")


def test_the_same_kind_found_twice_is_one(plugin, tmp_path):
    plugin({"twin": FAKE}, name="first-plugin")
    plugin({"twin": FAKE}, name="second-plugin")
    assert registry.load("twin")
    assert registry.kinds().count("twin") == 1


def test_knowing_the_registry_costs_no_import():
    code = (
        "import sys; import cloudgpu.providers.registry; "
        "heavy = {'importlib.metadata', 'asyncssh', 'paramiko', 'yaml', 'jinja2', 'sqlite3'} & set(sys.modules); "
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_price_lists_are_there_of_providers_that_launch_nothing_yet():
    assert registry.price_list_kinds() == ("aws", "azure", "gcp")
    assert callable(registry.load_price_list("gcp"))
    with pytest.raises(InvalidRequest) as refused:
        registry.load_price_list("azur")
    assert (refused.value.field, refused.value.value) == ("--provider", "azur")
    assert "did you mean 'azure'?" in refused.value.message


def test_naming_a_price_list_loads_no_sdk():
    code = """
import sys
from cloudgpu.providers.registry import load_price_list, price_list_kinds
for kind in price_list_kinds():
    load_price_list(kind)
sdks = {"boto3", "botocore", "google.cloud.billing_v1", "google.auth", "azure.core"}
sys.exit(", ".join(sdks & set(sys.modules)) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp", "lambdalabs", "runpod", "vast"])
def test_what_a_provider_loads_lazily_is_what_its_types_are_checked_by(cloud: str) -> None:
    module = import_module(f"cloudgpu.providers.{cloud}.provider")
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    (block,) = (one for one in tree.body if isinstance(one, ast.If))
    imports = [one for one in block.body if isinstance(one, ast.ImportFrom)]
    checked = {alias.asname or alias.name: f"{one.module}.{alias.name}" for one in imports for alias in one.names}
    assert {name: one._module for name, one in vars(module).items() if isinstance(one, _LazyModule)} == checked
    assert all(find_spec(name) for name in checked.values())
