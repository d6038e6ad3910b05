"""What an account of gcp tells on our model of Google Cloud: limits, regions, permissions, its credential, findings."""

from __future__ import annotations

import json

import pytest

from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.errors import AuthFailed, InvalidRequest, ProviderUnavailable, QuotaExceeded
from cloudgpu.providers.gcp.account import findings
from cloudgpu.providers.gcp.account.permissions import ACTIONS
from cloudgpu.providers.gcp.market import availability as places, quotas
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.clouds.gcp.plain import Plain
from tests.providers.gcp.accounts import account, calls, machine

__all__ = ["gcp", "gcp_process"]
HERE, T4, SPOT_T4, ALL = "us-central1", "NVIDIA_T4_GPUS", "PREEMPTIBLE_NVIDIA_T4_GPUS", "GPUS_ALL_REGIONS"
TEST = "cloudresourcemanager.projects.testIamPermissions"
N1 = "n1-standard-4+t4:1"


@pytest.fixture
def cloud(gcp, tmp_path):
    return account(gcp, tmp_path)


def check(cloud, name=N1, market=Market.ON_DEMAND):
    return quotas.check_quotas(cloud._gcp, HERE, name, market)


# Limits


def test_limits_are_told_with_what_is_used_by_two_calls(gcp, cloud):
    gcp.limit(T4, 4, HERE)
    gcp.limit(ALL, 6)
    machine(gcp)
    with calls(gcp) as made:
        found = {one.code: one for one in cloud.quotas(HERE)}
    assert sorted(made) == ["compute.projects.get", "compute.regions.get"]
    assert (found[T4].limit, found[T4].used, found[T4].unit, found[T4].market) == (4, 1, "GPU", Market.ON_DEMAND)
    assert (found[ALL].limit, found[ALL].used) == (6, 1)
    assert found[SPOT_T4].market is Market.SPOT
    told_by_cloud_quotas_alone = found["GPUS-PER-GPU-FAMILY-per-project-region:NVIDIA_H200"]
    assert (told_by_cloud_quotas_alone.limit, told_by_cloud_quotas_alone.used) == (None, None)


def test_limits_of_a_region_that_is_not_used_are_refused(gcp, tmp_path):
    with pytest.raises(InvalidRequest, match="does not use"):
        account(gcp, tmp_path, regions=["us-west1"]).quotas(HERE)
    with pytest.raises(InvalidRequest, match="did you mean 'us-central1'"):
        account(gcp, tmp_path).quotas("us-centra1")


@pytest.mark.parametrize(
    ("name", "market", "limits", "code"),
    [
        (N1, Market.ON_DEMAND, {T4: 0}, T4),
        ("n1-standard-16+t4:4", Market.ON_DEMAND, {T4: 3}, T4),
        (N1, Market.SPOT, {SPOT_T4: 0, T4: 0}, SPOT_T4),
        (N1, Market.ON_DEMAND, {T4: 4, ALL: 0}, ALL),
        ("g2-standard-24", Market.ON_DEMAND, {ALL: 1}, ALL),
        ("a2-highgpu-1g", Market.SPOT, {"PREEMPTIBLE_NVIDIA_A100_GPUS": 0, "NVIDIA_A100_GPUS": 0},
         "PREEMPTIBLE_NVIDIA_A100_GPUS"),
        ("a2-ultragpu-8g", Market.ON_DEMAND, {"NVIDIA_A100_80GB_GPUS": 7}, "NVIDIA_A100_80GB_GPUS"),
    ],
)  # fmt: skip
def test_a_limit_that_is_too_small_is_named_with_the_page_that_raises_it(gcp, cloud, name, market, limits, code):
    for metric, value in limits.items():
        gcp.limit(metric, value, "" if metric == ALL else HERE)
    with pytest.raises(QuotaExceeded) as refused:
        check(cloud, name, market)
    assert (refused.value.value, refused.value.field) == (code, "quota")
    assert f"metric={code}" in refused.value.next
    assert "project=cloudgpu-test" in refused.value.next


@pytest.mark.parametrize(
    ("name", "market", "limits", "says"),
    [
        (N1, Market.ON_DEMAND, {}, []),
        (N1, Market.SPOT, {SPOT_T4: 1, T4: 0}, []),
        (N1, Market.SPOT, {SPOT_T4: 0, T4: 1}, ["Google counts spot machines by NVIDIA_T4_GPUS"]),
        ("a3-ultragpu-8g", Market.SPOT, {}, ["Google does not tell here how many H200"]),
        ("g4-standard-48", Market.ON_DEMAND, {}, []),  # only the limit on all regions is known for it
        ("e2-small", Market.ON_DEMAND, {}, ["not known which quota"]),
    ],
)
def test_what_cannot_be_checked_is_said(gcp, cloud, name, market, limits, says):
    for metric, value in limits.items():
        gcp.limit(metric, value, HERE)
    found = check(cloud, name, market)
    assert len(found) == len(says)
    assert all(words in one for words, one in zip(says, found, strict=True))


@pytest.mark.parametrize("error", ["forbidden", "notFound", "invalid"])
def test_limits_that_cannot_be_read_hinder_no_launch(gcp, cloud, error):
    gcp.faults.add("compute.regions.get", error=error)
    (said,) = check(cloud)
    assert "could not be read" in said


def test_a_page_is_named_only_for_what_can_be_a_limit(cloud):
    page = cloud.quota_page(HERE, T4)
    assert page.startswith("https://console.cloud.google.com/iam-admin/quotas?project=cloudgpu-test&")
    assert "region=us-central1" in page
    assert "region" not in cloud.quota_page(HERE, ALL)
    for region, code in ((HERE, "A B"), (HERE, ""), (HERE, "X=1"), ("nowhere", T4), (HERE, "X&y")):
        with pytest.raises(InvalidRequest):
            cloud.quota_page(region, code)


# Regions


def test_regions_are_those_of_the_settings_else_all(gcp, tmp_path, cloud):
    assert {one.name for one in cloud.regions()} > {"us-central1", "europe-west4"}
    assert {one.host for one in cloud.regions()} == {"127.0.0.1"}
    with calls(gcp) as made:
        few = account(gcp, tmp_path, regions=["us-west1", "us-east1"], exclude_regions=["us-east1"]).regions()
        zones = account(gcp, tmp_path, zones=["us-east1-b", "us-east1-c"]).regions()
    assert ([one.name for one in few], [one.name for one in zones], made) == (["us-west1"], ["us-east1"], [])


def test_at_google_itself_each_region_has_a_host_of_its_own(gcp, cloud, monkeypatch):
    monkeypatch.delenv("CLOUDGPU_GCP_ENDPOINT")
    (found,) = places.endpoints(account(gcp, cloud._gcp.home, regions=["us-west1"])._gcp)
    assert (found.name, found.host, found.port) == ("us-west1", "storage.us-west1.rep.googleapis.com", 443)


@pytest.mark.parametrize(
    ("want", "region"),
    [
        (Requirements(), None),
        (Requirements(region="us-central1"), "us-central1"),
        (Requirements(zone="us-central1-a"), "us-central1"),
        (Requirements(region="us-central1", zone="us-central1-a"), "us-central1"),
    ],
)
def test_a_wish_names_its_region(cloud, want, region):
    assert places.named_region(cloud._gcp, want) == region


@pytest.mark.parametrize(
    ("want", "field"),
    [
        (Requirements(zone="us-central1"), "--zone"),
        (Requirements(zone="us-east-1a"), "--zone"),
        (Requirements(region="us-west1", zone="us-central1-a"), "--zone"),
        (Requirements(region="us-east-1"), "--region"),
        (Requirements(region="us-west1"), "--region"),  # not of the settings
        (Requirements(zone="us-central1-b"), "--zone"),  # not of the settings
    ],
)
def test_a_place_that_cannot_be_meant_is_refused_with_the_way_out(gcp, tmp_path, want, field):
    cloud = account(gcp, tmp_path, regions=["us-central1"], zones=["us-central1-a"])
    with pytest.raises(InvalidRequest) as refused:
        places.named_region(cloud._gcp, want)
    assert refused.value.field == field
    assert refused.value.next


# Permissions


def test_permissions_are_asked_by_one_call_that_tries_nothing(gcp, cloud):
    gcp.model.granted = {one.action for one in ACTIONS} - {"compute.instances.create"}
    with calls(gcp) as made:
        found = {one.action: one for one in cloud.permissions(HERE)}
    assert made == [TEST]
    assert [name for name, one in found.items() if not one.allowed] == ["compute.instances.create"]
    assert found["compute.instances.create"].needed
    assert not found["compute.instances.attachDisk"].needed


def test_a_permission_that_google_does_not_know_is_alone_in_not_being_known(gcp, cloud):
    strange = ACTIONS[7].action
    gcp.model.strange.add(strange)
    found = {one.action: one for one in cloud.permissions()}
    assert [name for name, one in found.items() if one.allowed is None] == [strange]
    assert found[strange].unknown_reason


def test_a_right_that_a_service_account_may_grant_itself_is_not_known_where_the_project_grants_none(gcp, cloud):
    """ "roles/iam.serviceAccountUser" is mostly granted on the one service account that machines get."""
    gcp.model.granted = {one.action for one in ACTIONS} - {"iam.serviceAccounts.actAs"}
    found = {one.action: one for one in cloud.permissions(HERE)}["iam.serviceAccounts.actAs"]
    assert (found.allowed, "itself" in found.unknown_reason) == (None, True)


def test_permissions_are_unknown_where_the_service_that_tells_them_is_off(gcp, cloud):
    gcp.faults.add(TEST, error="SERVICE_DISABLED")
    found = cloud.permissions()
    assert {one.allowed for one in found} == {None}
    assert all("gcloud services enable" in one.unknown_reason for one in found)


def test_a_project_that_is_not_there_has_no_permissions_and_is_asked_once(gcp, cloud):
    gcp.faults.add(TEST, error="notFound", times=99)
    with calls(gcp) as made:
        found = cloud.permissions()
    assert ({one.allowed for one in found}, made) == ({None}, [TEST])


def test_credentials_that_do_not_work_tell_no_permissions(gcp, cloud):
    gcp.faults.add(TEST, error="authError")
    with pytest.raises(AuthFailed):
        cloud.permissions()


def test_a_silent_google_tells_no_permissions(gcp, cloud):
    gcp.faults.add(TEST, status=503)
    with pytest.raises(ProviderUnavailable):
        cloud.permissions()


# The credential

USER = {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r"}
ROBOT = "robot@lab.iam.gserviceaccount.com"
IMPERSONATED = {
    "type": "impersonated_service_account",
    "service_account_impersonation_url": f"http://127.0.0.1:9/v1/projects/-/serviceAccounts/{ROBOT}:generateAccessToken",
    "source_credentials": USER,
}
POOL = {
    "type": "external_account",
    "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
    "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
    "token_url": "https://sts.googleapis.com/v1/token",
    "credential_source": {"file": "/nowhere"},
}


@pytest.mark.parametrize(
    ("written", "says", "lasts"),
    [
        (USER, "a login by gcloud (GOOGLE_APPLICATION_CREDENTIALS)", None),
        (IMPERSONATED, f"{ROBOT}, taken on with a login by gcloud", None),
        (POOL, "an identity of another provider", None),
    ],
)
def test_a_credential_is_told_by_words_and_asks_nobody(gcp, tmp_path, monkeypatch, written, says, lasts):
    file = tmp_path / "credential.json"
    file.write_text(json.dumps(written))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    found = account(gcp, tmp_path).login()
    assert says in found.what
    assert (found.lasts, found.until) == (lasts, None)
    assert gcp.calls == []


def test_a_key_file_lasts(gcp, tmp_path, monkeypatch, key_file):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    found = account(gcp, tmp_path).login()
    assert (found.what, found.lasts) == (f"a key file of {ROBOT} (GOOGLE_APPLICATION_CREDENTIALS)", True)


@pytest.fixture
def key_file(tmp_path):
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption()).decode()
    said = {"type": "service_account", "client_email": ROBOT, "token_uri": "http://127.0.0.1:9/", "private_key": pem}
    file = tmp_path / "key.json"
    file.write_text(json.dumps({**said, "project_id": "lab-1", "private_key_id": "1"}))
    return file


def test_at_somebodys_own_server_there_is_no_credential(cloud):
    found = cloud.login()
    assert found.what.startswith("no credential: calls go to http://127.0.0.1")
    assert found.lasts is True


def test_a_file_that_holds_no_credential_is_a_fault_of_the_login(gcp, tmp_path, monkeypatch):
    file = tmp_path / "credential.json"
    file.write_text("{}")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    with pytest.raises(AuthFailed):
        account(gcp, tmp_path).login()


# Findings


def told(cloud):
    return {one.what: one for one in cloud.findings()}


def test_a_usual_project_is_open_to_everybodys_ssh_and_says_so(gcp, cloud):
    gcp.limit(ALL, 1)
    with calls(gcp) as made:
        found = told(cloud)
    assert sorted(made) == ["compute.firewalls.list", "compute.networks.get", "compute.projects.get"]
    assert {what for what, one in found.items() if not one.is_ok} == {findings.OPEN_SSH}
    assert "default-allow-ssh" in found[findings.OPEN_SSH].message
    assert "gcloud compute firewall-rules delete default-allow-ssh" in found[findings.OPEN_SSH].next
    assert not found[findings.OPEN_SSH].needed


def test_a_project_that_is_not_there_is_said_so_and_nothing_is_said_of_what_is_in_it(gcp, cloud):
    gcp.faults.add("compute.projects.get", error="notFound")
    (found,) = told(cloud).values()
    assert (found.what, found.is_ok, found.needed) == (findings.PROJECT, False, True)
    assert "has no project" in found.message


def test_os_login_is_noticed(gcp, cloud):
    gcp.model.project_metadata["enable-oslogin"] = "TRUE"
    found = told(cloud)[findings.LOGIN]
    assert (found.is_ok, found.needed) == (False, False)
    assert "keys in metadata are ignored" in found.message


def test_a_new_project_without_gpus_says_where_to_ask(gcp, cloud):
    gcp.limit(ALL, 0)
    found = told(cloud)[findings.QUOTA]
    assert (found.is_ok, found.needed) == (False, True)
    assert f"metric={ALL}" in found.next


def test_a_network_that_is_not_there_is_needed(gcp, tmp_path):
    found = told(account(gcp, tmp_path, network="lab"))[findings.NETWORK]
    assert (found.is_ok, found.needed) == (False, True)
    assert "gcloud compute networks create lab" in found.next


def test_a_service_that_is_off_is_the_only_finding(gcp, cloud):
    for action in ("compute.projects.get", "compute.networks.get", "compute.firewalls.list"):
        gcp.faults.add(action, error="SERVICE_DISABLED")
    (found,) = cloud.findings()
    assert (found.what, found.is_ok, found.needed) == (findings.PROJECT, False, True)
    assert "gcloud services enable compute.googleapis.com" in found.next


def test_a_project_that_nobody_names_is_a_finding(gcp, tmp_path, monkeypatch):
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT")
    (found,) = account(gcp, tmp_path).findings()
    assert (found.what, found.is_ok, found.needed) == (findings.PROJECT, False, True)
    assert "accounts.lab.project" in found.next


def test_what_may_not_be_read_is_not_known_and_hides_nothing_else(gcp, cloud):
    gcp.faults.deny("compute.firewalls.list")
    gcp.faults.deny("compute.networks.get")
    found = told(cloud)
    assert {what: one.is_ok for what, one in found.items()} == {
        findings.PROJECT: True,
        findings.LOGIN: True,
        findings.QUOTA: True,
        findings.NETWORK: None,
        findings.OPEN_SSH: None,
    }


def test_a_silent_google_is_not_said_to_answer(gcp, cloud):
    for action in ("compute.projects.get", "compute.networks.get", "compute.firewalls.list"):
        gcp.faults.add(action, status=503, times=99)
    assert {one.is_ok for one in told(cloud).values()} == {None}


def rule(**more):
    usual = {"name": "wide", "network": "global/networks/default", "allowed": [{"I_p_protocol": "tcp"}]}
    return {**usual, "source_ranges": ["0.0.0.0/0"], "direction": "INGRESS", **more}


@pytest.mark.parametrize(
    ("more", "is_open"),
    [
        ({}, True),
        ({"allowed": [{"I_p_protocol": "all"}]}, True),
        ({"allowed": [{"I_p_protocol": "tcp", "ports": ["20-30"]}]}, True),
        ({"source_ranges": ["10.0.0.0/8", "::/0"]}, True),
        ({"source_ranges": ["0.0.0.0/1", "128.0.0.0/1"]}, True),
        ({"target_service_accounts": ["web@lab-1.iam.gserviceaccount.com"]}, False),
        ({"allowed": [{"I_p_protocol": "tcp", "ports": ["80", "443"]}]}, False),
        ({"allowed": [{"I_p_protocol": "udp"}]}, False),
        ({"source_ranges": ["10.0.0.0/8"]}, False),
        ({"disabled": True}, False),
        ({"target_tags": ["web"]}, False),
        ({"direction": "EGRESS", "source_ranges": [], "destination_ranges": ["0.0.0.0/0"]}, False),
    ],
)
def test_a_rule_counts_as_open_where_it_lets_everybody_reach_ssh_of_every_machine(gcp, cloud, more, is_open):
    plain = Plain(gcp)
    plain("Firewalls", "delete_unary", at="", firewall="default-allow-ssh")
    plain("Firewalls", "insert_unary", at="", firewall_resource=rule(**more))
    assert (told(cloud)[findings.OPEN_SSH].is_ok is False) == is_open
