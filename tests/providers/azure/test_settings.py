"""Settings, ids and credentials of an azure account: what is read and refused, and who gets no credential."""

from __future__ import annotations

import os
import sys

import pytest

from cloudgpu.core.model.offers import Requirements
from cloudgpu.errors import AuthFailed, InvalidRequest, ProviderUnavailable, RateLimited
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.calls import invoke
from cloudgpu.providers.azure.client import call_name
from cloudgpu.providers.azure.credentials import credential
from cloudgpu.providers.azure.ids import azure_options
from cloudgpu.providers.azure.provider import make
from cloudgpu.providers.base import ProviderSettings
from tests.providers.azure.attempts import T4, provider_of

GUID = "00000000-0000-4000-8000-000000000001"


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"subscription": "mine"}, "subscription"),
        ({"regions": "eastus"}, "regions"),
        ({"regions": ["East US"]}, "regions"),
        ({"ssh_port": 0}, "ssh_port"),
        ({"machine_role": "Owner"}, "machine_role"),
        ({"timers": "yes"}, "timers"),
        ({"region": ["eastus"]}, "region"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key_and_a_way_out(table, key):
    with pytest.raises(InvalidRequest) as caught:
        azure_options("lab", table)
    assert caught.value.field == f"config.toml: accounts.lab.{key}"
    assert caught.value.next


def test_what_can_be_is_read():
    table = {"subscription": GUID, "regions": ["eastus"], "timers": True, "encryption_at_host": True}
    found = azure_options("lab", table)
    assert (found.subscription, found.regions, found.timers, found.encryption_at_host) == (
        GUID,
        ("eastus",),
        True,
        True,
    )


@pytest.mark.parametrize("id_", ["", "*", "eastus/thesis", "eastus/cloudgpu-12/../x", "us-east-1/i-0123456789abcdef0"])
def test_what_is_no_id_reaches_nothing(id_):
    with pytest.raises(InvalidRequest):
        ids.split_machine_id(id_)


def test_the_name_of_a_group_follows_from_the_token_alone():
    name = ids.group_of("t" * 64)
    assert name == ids.group_of("t" * 64) != ids.group_of("t" * 63)
    assert ids.split_machine_id(f"eastus/{name}") == ("eastus", name)


def test_a_zone_is_a_region_or_a_number_in_one():
    assert [ids.region_of(one) for one in ("eastus-1", "eastus", "us-east-1a")] == ["eastus", "eastus", None]
    assert [ids.zone_number(one) for one in ("eastus-1", "eastus2")] == ["1", None]


def test_a_subscription_that_nobody_names_is_asked_for(azure_arm, tmp_path, monkeypatch):
    monkeypatch.delenv("AZURE_SUBSCRIPTION_ID")
    with pytest.raises(InvalidRequest, match="no subscription is named") as caught:
        provider_of(azure_arm, tmp_path).available(Requirements(instance_type=T4))
    assert caught.value.field == "accounts.lab.subscription"


def test_an_endpoint_without_tls_is_refused(azure_arm, tmp_path, monkeypatch):
    monkeypatch.setenv("CLOUDGPU_AZURE_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(InvalidRequest, match="not an https address"):
        provider_of(azure_arm, tmp_path).list()


def test_a_wrong_secret_is_said_by_entras_code_alone(azure_arm, tmp_path, monkeypatch):
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "wrong-secret")
    with pytest.raises(AuthFailed, match="AADSTS7000215") as caught:
        provider_of(azure_arm, tmp_path).list()
    assert "wrong-secret" not in str(caught.value.as_dict())


@pytest.mark.parametrize("read", ["Token.Get", "Token.Configuration"])
@pytest.mark.parametrize(("status", "kind"), [(429, RateLimited), (503, ProviderUnavailable)])
def test_a_sign_in_service_that_is_busy_says_nothing_of_the_credentials(azure_arm, account, read, status, kind):
    azure_arm.faults.add(read, error="slow_down", status=status, retry_after=7, times=99)
    with pytest.raises(ProviderUnavailable, match=f"answered with the status {status}") as caught:
        invoke(account(), "look", lambda: account().resources.resource_groups.get("x"))
    assert type(caught.value) is kind
    assert "az login" not in caught.value.next
    assert getattr(caught.value, "retry_after", 7) == 7


def test_a_sign_in_service_that_is_silent_says_nothing_of_the_credentials(azure_arm, account):
    azure_arm.faults.refuse("Token.Get", times=99)
    with pytest.raises(ProviderUnavailable):
        invoke(account(), "look", lambda: account().resources.resource_groups.get("x"))


def test_no_credential_found_by_default_goes_to_somebodys_own_server(azure_arm, tmp_path, monkeypatch):
    """Without an authority of the environment's the server gets a word that means nothing, and no secret."""
    monkeypatch.delenv("AZURE_AUTHORITY_HOST")
    with pytest.raises(AuthFailed):
        provider_of(azure_arm, tmp_path).list()
    assert not [one for one in azure_arm.calls if one.action.startswith("Token.")]
    assert {one.error for one in azure_arm.calls} == {"InvalidAuthenticationToken"}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("AZURE_CLIENT_CERTIFICATE_PATH", "/nonexistent", "No such file"),
        ("AZURE_TENANT_ID", "no tenant", "Invalid tenant ID"),
        ("AZURE_AUTHORITY_HOST", "http://127.0.0.1:9", "TLS protected"),
    ],
)
def test_variables_that_azure_cannot_use_are_a_fault_of_the_account_and_of_nothing_else(monkeypatch, name, value, says):
    """The SDK raises errors without a class of its own, which would end a command for all accounts."""
    for one in [one for one in os.environ if one.startswith("AZURE_")]:
        monkeypatch.delenv(one)
    monkeypatch.setenv("AZURE_TENANT_ID", "00000000-0000-4000-8000-000000000002")
    monkeypatch.setenv("AZURE_CLIENT_ID", "launcher")
    if name != "AZURE_CLIENT_CERTIFICATE_PATH":
        monkeypatch.setenv("AZURE_CLIENT_SECRET", "not-shown")
    monkeypatch.setenv(name, value)
    with pytest.raises(AuthFailed, match=says) as caught:
        credential(None, None, None)
    assert caught.value.field == "credentials"
    assert "not-shown" not in str(caught.value.as_dict())


def test_making_a_provider_imports_no_sdk(tmp_path, monkeypatch):
    for name in [one for one in sys.modules if one.startswith("azure.")]:
        monkeypatch.delitem(sys.modules, name)
    make(ProviderSettings("lab", {}, tmp_path, lambda: None))
    assert not [one for one in sys.modules if one.startswith("azure.")]


def test_calls_are_counted_by_a_short_name():
    base = "https://x/subscriptions/s/resourceGroups/g"
    assert (
        call_name("PUT", f"{base}/providers/Microsoft.Compute/virtualMachines/m?api-version=1") == "PUT virtualMachines"
    )
    assert call_name("DELETE", f"{base}?api-version=1") == "DELETE resourceGroups"
