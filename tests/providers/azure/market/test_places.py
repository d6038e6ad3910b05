"""Which regions an account at Azure uses, and what its credential is."""

from __future__ import annotations

import pytest

from cloudgpu.core.model.offers import Requirements
from cloudgpu.errors import AuthFailed, InvalidRequest
from cloudgpu.providers.azure.account.login import login
from cloudgpu.providers.azure.market import availability as places

T4 = ("Standard_NC4as_T4_v3",)


def test_the_settings_say_where_to_look_and_nothing_is_asked(account, azure_arm):
    azure = account(regions=["eastus", "westus2"], exclude_regions=["westus2"])
    assert places.wanted_regions(azure, Requirements(), T4) == ("eastus",)
    assert [one.name for one in places.endpoints(azure)] == ["eastus"]
    assert azure_arm.calls == []


def test_without_settings_those_with_a_price_are_meant_and_all_are_told(account, azure_arm):
    azure = account()
    wanted = places.wanted_regions(azure, Requirements(), T4)
    assert "eastus" in wanted
    assert set(wanted) < set(places.account_regions(azure))
    assert places.wanted_regions(azure, Requirements(), ("Standard_unheard_of",)) == places.account_regions(azure)
    assert {"eastus", "westus2"} <= {one.name for one in places.endpoints(azure)}
    assert [call.action for call in azure_arm.calls if "Token" not in call.action] == ["Subscriptions.ListLocations"]


def test_every_region_has_a_host_of_its_own_at_azure(account, monkeypatch):
    monkeypatch.delenv("CLOUDGPU_AZURE_ENDPOINT")
    (one,) = places.endpoints(account(regions=["eastus"]))
    assert (one.name, one.host, one.port) == ("eastus", "eastus.management.azure.com", 443)


@pytest.mark.parametrize(
    ("want", "says"),
    [
        (Requirements(region="eastuss"), "did you mean 'eastus'"),
        (Requirements(region="nowhere9"), "Azure has no region"),
        (Requirements(zone="eastus-1", region="westus2"), "is in eastus, not in westus2"),
        (Requirements(zone="East US 1"), "not a zone of Azure"),
        (Requirements(region="northeurope"), "does not use northeurope"),
    ],
)
def test_a_place_that_is_none_is_refused_with_the_way_out(account, want, says):
    with pytest.raises(InvalidRequest, match=says) as refused:
        places.named_region(account(exclude_regions=["northeurope"]), want)
    assert refused.value.next


def test_a_zone_names_its_region(account):
    assert places.named_region(account(), Requirements(zone="eastus-1")) == "eastus"
    assert places.named_region(account(), Requirements(zone="eastus")) == "eastus"
    assert places.named_region(account(), Requirements()) is None


# Credentials


VARIABLES = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_AUTHORITY_HOST")


@pytest.fixture
def bare(account, monkeypatch, tmp_path):
    """Return an account at Azure itself, with nothing in the environment."""
    for name in (*VARIABLES, "CLOUDGPU_AZURE_ENDPOINT"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AZURE_CONFIG_DIR", str(tmp_path / "cli"))
    monkeypatch.setattr(
        "cloudgpu.providers.azure.account.login._CHASSIS_TAG_FILE", tmp_path / "chassis"
    )  # this may be one of Azure's
    return account()


@pytest.mark.parametrize(
    ("variables", "what", "lasts"),
    [
        ({"AZURE_CLIENT_SECRET": "hidden"}, "a service principal with a secret", None),
        ({"AZURE_CLIENT_CERTIFICATE_PATH": "/x"}, "with a certificate", None),
        ({"AZURE_FEDERATED_TOKEN_FILE": "/x"}, "a workload's identity", True),
        ({"IDENTITY_ENDPOINT": "http://localhost"}, "the managed identity", True),
    ],
)
def test_a_credential_is_told_in_words_and_never_shown(bare, monkeypatch, variables, what, lasts):
    for name, value in {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", **variables}.items():
        monkeypatch.setenv(name, value)
    found = login(bare)
    assert what in found.what
    assert (found.until, found.lasts) == (None, lasts)
    assert "hidden" not in found.what


def test_a_login_of_the_tool_is_found_where_it_lies(bare, tmp_path):
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "msal_token_cache.json").write_text("{}")
    assert "Azure CLI" in login(bare).what


def test_on_a_machine_of_azures_its_own_identity_may_be_meant(bare, tmp_path):
    (tmp_path / "chassis").write_text("7783-7084-3265-9085-8269-3286-77\n")
    assert "if it was given one" in login(bare).what


def test_no_credential_at_all_says_how_to_get_one(bare):
    with pytest.raises(AuthFailed) as refused:
        login(bare)
    assert "az login" in str(refused.value.next)


def test_somebodys_own_server_is_sent_nothing_that_was_found_by_default(account, monkeypatch):
    monkeypatch.delenv("AZURE_AUTHORITY_HOST")
    found = login(account())
    assert found.what.startswith("none:")
