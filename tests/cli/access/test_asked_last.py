"""A third party is asked for this client's address last: after what is typed, the SDK, the credentials and the offers.

Nothing answers here but the address service: whoever is asked too early is seen, and no cloud is needed for the error.
"""

from __future__ import annotations

import sys

import pytest

from tests.address_service import AddressService
from tests.cli.line import Line

SDK = {"aws": ("boto3",), "gcp": ("google.auth",), "azure": ("azure.core", "azure.core.rest", "azure.identity")}
# No metadata server is looked for: the suite reaches for no machine but this one.
ELSEWHERE = {"AWS_EC2_METADATA_DISABLED": "true", "NO_GCE_CHECK": "true"}
NAMED = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_ENDPOINT_URL",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
)


@pytest.fixture
def line(own_home, capsys, monkeypatch, tmp_path):
    """Accounts of three clouds, no credentials of any, and a service that would tell the address."""
    for name in (*NAMED, "GOOGLE_CLOUD_PROJECT", "CLOUDGPU_GCP_ENDPOINT", "CLOUDGPU_AZURE_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    nothing = str(tmp_path / "no-such-file")
    found = {"AWS_CONFIG_FILE": nothing, "AWS_SHARED_CREDENTIALS_FILE": nothing, "CLOUDSDK_CONFIG": str(tmp_path)}
    found |= {"AZURE_SUBSCRIPTION_ID": "11111111-2222-4333-8444-555555555555"}
    for name, value in (ELSEWHERE | found).items():
        monkeypatch.setenv(name, value)
    with AddressService() as service:
        accounts = "".join(f"[accounts.{kind}]\n" for kind in SDK)
        made = Line(own_home, capsys, service, f'owner = "ada"\naddress_services = ["{service.url}"]\n{accounts}')
        yield made
        assert service.asked == []


def without(monkeypatch, *kinds):
    for module in (module for kind in kinds for module in SDK[kind]):
        monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize("kind", SDK)
def test_up_without_the_sdk_says_so_and_asks_nobody_for_an_address(line, monkeypatch, kind):
    without(monkeypatch, kind)
    said = line(f"up --provider {kind} --gpu t4 --yes -o json")
    assert (said.code, said.json["error"]["kind"]) == (2, "missing_extra")
    assert said.json["error"]["next"] == f"Run: pip install 'cloudgpu[{kind}]'"


def test_up_at_any_account_without_the_sdks_asks_nobody_for_an_address(line, monkeypatch):
    without(monkeypatch, *SDK)
    said = line("up --provider any --gpu t4 --yes -o json")
    assert said.code == 2
    assert "pip install 'cloudgpu[aws]'" in said.json["error"]["next"]


@pytest.mark.parametrize("kind", ["aws", "gcp"])
def test_up_without_credentials_says_so_and_asks_nobody_for_an_address(line, kind):
    said = line(f"up --provider {kind} --gpu t4 --yes -o json")
    assert (said.code, said.json["error"]["kind"]) == (6, "auth_failed")


@pytest.mark.parametrize("words", ["--gpu nosuch", "--gpu t4 --template nosuch", "--gpu t4 --policy nosuch"])
def test_what_is_typed_wrong_is_said_before_anybody_is_asked(line, words):
    assert line(f"up --provider aws {words} --yes -o json").code == 2


def test_doctor_asks_nobody_for_an_address_where_no_machine_is_open_to_one(line):
    assert line("doctor --provider aws -o json").code == 6
