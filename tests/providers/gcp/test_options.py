"""The table of a gcp account, the project it comes to, and whom its credentials are sent to."""

from __future__ import annotations

import pytest

from cloudgpu.errors import AuthFailed, InvalidRequest, ProviderUnavailable, RateLimited
from cloudgpu.providers.gcp.client import Gcp, request_class_name
from cloudgpu.providers.gcp.options import GcpOptions, gcp_options
from cloudgpu.providers.shared.calls import request_counts as counted
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.listened import Waits, in_a_part
from tests.providers.gcp.accounts import account, key_file_in

__all__ = ["gcp", "gcp_process"]
GET = "compute.zones.list"


def test_an_empty_table_is_all_regions_of_the_default_network():
    assert gcp_options("lab", {}) == GcpOptions()
    assert GcpOptions().uses("us-central1")
    assert GcpOptions().uses_zone("us-central1-a")


@pytest.mark.parametrize(
    ("table", "zone", "uses"),
    [
        ({"regions": ["us-east1"]}, "us-central1-a", False),
        ({"regions": ["us-east1"]}, "us-east1-b", True),
        ({"exclude_regions": ["us-east1"]}, "us-east1-b", False),
        ({"zones": ["us-east1-b"]}, "us-east1-b", True),
        ({"zones": ["us-east1-b"]}, "us-east1-c", False),
        ({"zones": ["us-east1-b"]}, "us-central1-a", False),
    ],
)
def test_regions_and_zones_are_those_of_the_table(table, zone, uses):
    assert gcp_options("lab", table).uses_zone(zone) is uses


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("project", "My Project"),
        ("project", "123456789012"),
        ("project", ["a"]),
        ("regions", "us-central1"),
        ("regions", ["us-central1-a"]),
        ("zones", ["us-central1"]),
        ("network", "projects/x/global/networks/y"),
        ("ssh_port", 0),
        ("ssh_port", "22"),
        ("service_account", "me"),
        ("projekt", "x"),
        ("quota_project", ""),
    ],
)
def test_what_cannot_be_is_named_with_its_key(key, value):
    with pytest.raises(InvalidRequest) as refused:
        gcp_options("lab", {key: value})
    assert refused.value.field == f"config.toml: accounts.lab.{key}"
    assert refused.value.next


def test_the_project_is_the_tables_before_the_environments(gcp, tmp_path):
    assert account(gcp, tmp_path)._gcp.project == "cloudgpu-test"
    assert account(gcp, tmp_path, project="my-lab-1")._gcp.project == "my-lab-1"


def test_a_project_that_nobody_names_is_asked_for(gcp, tmp_path, monkeypatch):
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT")
    with pytest.raises(InvalidRequest) as refused:
        account(gcp, tmp_path).list()
    assert refused.value.field == "accounts.lab.project"
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "My Project")
    with pytest.raises(InvalidRequest) as refused:
        account(gcp, tmp_path).list()
    assert refused.value.field == "GOOGLE_CLOUD_PROJECT"


def test_an_endpoint_that_is_none_is_named(gcp, tmp_path, monkeypatch):
    monkeypatch.setenv("CLOUDGPU_GCP_ENDPOINT", "ftp://nowhere")
    with pytest.raises(InvalidRequest) as refused:
        account(gcp, tmp_path).list()
    assert refused.value.field == "CLOUDGPU_GCP_ENDPOINT"


# Credentials


@pytest.fixture
def key_file(tmp_path):
    return key_file_in(tmp_path)


def seen_headers(gcp, cloud):
    """Return the headers of a call as they came."""
    seen = []
    read = gcp.read
    gcp.read = lambda request: (
        seen.append({name.lower(): text for name, text in request.headers.items()}),
        read(request),
    )[1]
    try:
        cloud._gcp._clients = {}
        cloud._gcp.call(GET, sends=1)
    finally:
        del gcp.read
    return seen[0]


def test_no_credential_that_lies_about_is_sent_to_somebody_elses_server(gcp, tmp_path, monkeypatch, key_file):
    known = tmp_path / ".config" / "gcloud"
    known.mkdir(parents=True)
    (known / "application_default_credentials.json").write_text(key_file.read_text(), encoding="ascii")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "authorization" not in seen_headers(gcp, account(gcp, tmp_path))


def test_a_key_file_that_is_named_signs_and_names_the_project(gcp, tmp_path, monkeypatch, key_file):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    cloud = account(gcp, tmp_path)
    assert seen_headers(gcp, cloud)["authorization"].startswith("Bearer ey")
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT")
    assert account(gcp, tmp_path)._gcp.project == "of-the-key"


def test_calls_are_counted_to_the_project_that_is_named_for_that_at_another_endpoint_too(
    gcp, tmp_path, monkeypatch, key_file
):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    assert "x-goog-user-project" not in seen_headers(gcp, account(gcp, tmp_path))
    counted = account(gcp, tmp_path, quota_project="of-the-lab")
    assert seen_headers(gcp, counted)["x-goog-user-project"] == "of-the-lab"


def test_a_key_file_that_is_not_there_is_a_fault_of_credentials(gcp, tmp_path, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "gone.json"))
    with pytest.raises(AuthFailed) as refused:
        account(gcp, tmp_path).list()
    assert "gone.json" in str(refused.value.value)


@pytest.mark.parametrize("text", ["[]", '"x"', "null", "{}", '{"type": "authorized_user"}', '{"type": []}', "no JSON"])
def test_a_key_file_that_holds_something_else_is_a_fault_of_credentials(gcp, tmp_path, monkeypatch, text):
    (tmp_path / "key.json").write_text(text)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    with pytest.raises(AuthFailed) as refused:
        account(gcp, tmp_path).list()
    assert "key.json" in str(refused.value.value)


# Calls


@pytest.mark.parametrize(
    ("service", "verb", "name"),
    [
        ("instances", "aggregatedList", "AggregatedListInstancesRequest"),
        ("instances", "setLabels", "SetLabelsInstanceRequest"),
        ("addresses", "delete", "DeleteAddressRequest"),
        ("images", "getFromFamily", "GetFromFamilyImageRequest"),
        ("zoneOperations", "get", "GetZoneOperationRequest"),
    ],
)
def test_a_request_is_called_as_the_sdk_calls_it(service, verb, name):
    from google.cloud import compute_v1

    assert request_class_name(service, verb) == name
    assert hasattr(compute_v1, name)


def test_each_send_is_counted_and_a_change_keeps_its_request_id(gcp, tmp_path):
    cloud = account(gcp, tmp_path)
    before = counted().get(("gcp", "compute.firewalls.delete"), 0)
    gcp.faults.add("compute.firewalls.delete", error="backendError", status=503, times=2)
    with pytest.raises(InvalidRequest):
        cloud._gcp.call("compute.firewalls.delete", firewall="nowhere")
    assert counted()["gcp", "compute.firewalls.delete"] - before == 3
    assert len({call.query["requestId"] for call in gcp.called("compute.firewalls.delete")}) == 1


def test_waits_are_those_that_google_names_and_have_an_end(gcp, tmp_path):
    waited = []
    cloud = account(gcp, tmp_path, pause=waited.append)
    gcp.faults.add(GET, error="rateLimitExceeded", status=429, retry_after=9)
    gcp.faults.add(GET, error="rateLimitExceeded", status=429, times=99)
    with pytest.raises(RateLimited):
        cloud._gcp.call(GET)
    assert waited == [9, 2, 4, 8]


def test_a_read_that_waits_as_google_says_is_not_taken_for_silent(gcp, tmp_path):
    waits = Waits()
    cloud = account(gcp, tmp_path, pause=waits)
    gcp.faults.add(GET, error="rateLimitExceeded", status=429, retry_after=9, times=99)
    with pytest.raises(RateLimited):
        in_a_part(lambda: cloud._gcp.call(GET))
    assert (waits.all, waits.given_up) == ([9] * 4, [])


def test_a_list_without_an_end_is_given_up(gcp, tmp_path):
    body = {"kind": "compute#zoneList", "id": "x", "items": [], "nextPageToken": "again"}
    gcp.faults.add(GET, status=200, body=body, times=99)
    with pytest.raises(ProviderUnavailable):
        list(account(gcp, tmp_path)._gcp.pages(GET))


def test_making_a_provider_asks_nothing(gcp, tmp_path):
    assert isinstance(account(gcp, tmp_path)._gcp, Gcp)
    assert gcp.calls == []
