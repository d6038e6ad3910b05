"""Launches on our model of Google Cloud: what is sent, what happens when it goes wrong, and that none is made twice."""

from __future__ import annotations

import math
import uuid
from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgpu.core.model.instances import State
from cloudgpu.core.model.launch import Network, Setup
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import (
    AuthFailed,
    InvalidRequest,
    LaunchUncertain,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
    RateLimited,
)
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.compute.request import instance_resource
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.providers.gcp.accounts import account, calls
from tests.providers.gcp.attempts import CALLER, USUAL, ZONE, attempt_at, launched, offered, saved, soon

__all__ = ["gcp", "gcp_process"]
INSERT = "compute.instances.insert"
ELSEWHERE = "198.51.100.9"


@pytest.fixture
def cloud(gcp, tmp_path):
    return account(gcp, tmp_path)


def only(gcp):
    """Return the one machine that there is, as the model keeps it."""
    (id_,) = gcp.instances()
    return gcp.instance(id_)


def sent(gcp):
    """Return the body and the query of the last launch."""
    call = gcp.called(INSERT)[-1]
    return call.body, call.query


# What is sent


def test_a_launch_is_as_safe_and_as_short_as_it_can_be(gcp, cloud):
    attempt = attempt_at(cloud)
    made = cloud.launch(attempt, deadline=soon(cloud))
    asked, query = sent(gcp)
    assert uuid.UUID(query["requestId"]).version == 5
    assert made.id == f"{ZONE}/{asked['name']}" == f"{ZONE}/cg-{attempt.token[:20]}"
    assert asked["labels"] == attempt.tags == asked["disks"][0]["initializeParams"]["labels"]
    assert asked["scheduling"] == {
        "provisioningModel": "STANDARD",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "instanceTerminationAction": "STOP",
        "maxRunDuration": {"seconds": str(int((attempt.renew_until - attempt.made_at).total_seconds()))},
    }
    assert asked["shieldedInstanceConfig"] == {
        "enableSecureBoot": False,
        "enableVtpm": True,
        "enableIntegrityMonitoring": True,
    }
    assert "serviceAccounts" not in asked
    assert asked["disks"][0]["autoDelete"] is True
    inside = gcp.metadata(made.id)
    assert inside["enable-oslogin"] == "FALSE"
    assert inside["block-project-ssh-keys"] == inside["enable-guest-attributes"] == "TRUE"
    assert inside["cloudgpu-expires"] == attempt.tags["cloudgpu-expires"]
    assert [part.type for part in gcp.user_data(made.id)][:2] == ["text/cloud-boothook", "text/cloud-config"]
    assert (made.state, made.billed, made.tags) == (State.RUNNING, True, attempt.tags)


def test_nobody_gets_in_but_the_caller_though_the_network_lets_everybody(gcp, cloud):
    made = launched(cloud)
    assert gcp.allows(made.id, CALLER.partition("/")[0])
    assert not gcp.allows(made.id, ELSEWHERE)
    assert not gcp.allows(made.id, CALLER.partition("/")[0], 8888)
    assert not gcp.allows(made.id, "10.128.0.7")
    first = [call.action for call in gcp.calls if call.action.endswith(".insert")]
    assert first == ["compute.firewalls.insert", "compute.firewalls.insert", INSERT]


@pytest.mark.parametrize(
    ("name", "market", "attached"),
    [
        ("n1-standard-8+v100:2", Market.ON_DEMAND, [("nvidia-tesla-v100", 2)]),
        ("n1-standard-4+k80:1", Market.SPOT, [("nvidia-tesla-k80", 1)]),
        ("a2-highgpu-1g", Market.ON_DEMAND, []),
        ("g2-standard-4", Market.SPOT, []),
        ("a3-highgpu-1g", Market.SPOT, []),
    ],
)
def test_gpus_are_attached_to_n1_and_come_with_all_others(gcp, cloud, name, market, attached):
    made = launched(cloud, offered(cloud, name, market=market))
    asked, _ = sent(gcp)
    said = [
        (ids.last_part(one["acceleratorType"]), one["acceleratorCount"]) for one in asked.get("guestAccelerators", ())
    ]
    assert said == attached
    assert (made.instance_type, made.market) == (name, market)
    assert asked["scheduling"]["provisioningModel"] == ("SPOT" if market is Market.SPOT else "STANDARD")
    assert asked["scheduling"]["instanceTerminationAction"] == "STOP"


@pytest.mark.parametrize(("renew", "seconds"), [(timedelta(seconds=5), 30), (timedelta(days=300), 120 * 86_400)])
def test_googles_timer_is_held_to_what_it_can_be(cloud, renew, seconds):
    attempt = attempt_at(cloud, lease=timedelta(seconds=4), renew=renew)
    assert instance_resource(attempt)["scheduling"]["maxRunDuration"] == {"seconds": str(seconds)}


def test_without_a_public_address_the_network_itself_may_come_in(gcp, cloud):
    launched(cloud, setup=Setup(network=Network(public_ip=False)))
    asked, _ = sent(gcp)
    assert "accessConfigs" not in asked["networkInterfaces"][0]
    (rule,) = [call.body for call in gcp.called("compute.firewalls.insert") if "allowed" in call.body]
    assert rule["sourceRanges"][0].endswith("/20")
    assert rule["targetTags"] == [asked["name"]]


def test_somebody_elses_rules_are_left_alone(gcp, cloud):
    made = launched(cloud, setup=Setup(network=Network(security_group="lab-ssh")))
    assert sent(gcp)[0]["tags"] == {"items": ["lab-ssh"]}
    assert gcp.called("compute.firewalls.insert") == []
    assert dict(cloud.allowed(made.id)) == {}
    with pytest.raises(InvalidRequest) as refused:
        cloud.allow(made.id, "caller", CALLER)
    assert refused.value.field == "--security-group"


def test_a_service_account_is_given_where_the_settings_say_so(gcp, tmp_path):
    who = "worker@cloudgpu-test.iam.gserviceaccount.com"
    launched(account(gcp, tmp_path, service_account=who))
    assert sent(gcp)[0]["serviceAccounts"] == [
        {"email": who, "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
    ]


def test_an_image_without_cloud_init_gets_a_startup_script(gcp, cloud):
    debian = "projects/debian-cloud/global/images/family/debian-12"
    made = launched(cloud, setup=replace(USUAL, image=debian))
    inside = gcp.metadata(made.id)
    assert inside["startup-script"].startswith("#!/bin/sh\n")
    assert "user-data" not in inside


def test_boot_data_that_google_does_not_take_are_refused_before_anything_is_made(gcp, cloud):
    attempt = attempt_at(cloud)
    attempt = replace(attempt, boot=replace(attempt.boot, agent_source="x" * 300_000))
    with calls(gcp) as made, pytest.raises(InvalidRequest) as refused:
        cloud.launch(attempt, deadline=soon(cloud))
    assert refused.value.field == "template"
    assert made == []


# Once, whatever happens


def test_a_launch_sent_again_by_another_process_is_the_same_machine(gcp, cloud, tmp_path):
    attempt = attempt_at(cloud)
    first = cloud.launch(attempt, deadline=soon(cloud))
    other = account(gcp, tmp_path / "other")
    again = other.launch(saved(attempt), deadline=soon(other))
    assert again.id == first.id
    one, two = gcp.called(INSERT)
    assert (one.query["requestId"], one.body) == (two.query["requestId"], two.body)


def test_a_launch_sent_again_when_google_has_forgotten_its_request_finds_the_name(gcp, cloud):
    attempt = attempt_at(cloud)
    first = cloud.launch(attempt, deadline=soon(cloud))
    gcp.advance(2 * 3600)
    assert cloud.launch(attempt, deadline=soon(cloud)).id == first.id
    assert gcp.called(INSERT)[-1].error == "alreadyExists"
    assert len(gcp.instances()) == 1


@pytest.mark.parametrize("effect", ["lose_reply", "refuse"])
def test_a_lost_answer_is_asked_for_again(gcp, cloud, effect):
    getattr(gcp.faults, effect)(INSERT)
    assert launched(cloud).state is State.RUNNING
    assert len(gcp.instances()) == 1
    assert len({call.query["requestId"] for call in gcp.called(INSERT)}) == 1


def test_a_lost_look_at_the_operation_is_made_again(gcp, cloud):
    attempt = attempt_at(cloud)
    gcp.faults.lose_reply("compute.zoneOperations.get")
    assert cloud.launch(attempt, deadline=soon(cloud)).state is State.RUNNING


def test_a_busy_google_is_asked_again_when_it_says_so(gcp, tmp_path):
    waited = []
    cloud = account(gcp, tmp_path, pause=lambda seconds: (waited.append(seconds), gcp.advance(seconds)))
    attempt = attempt_at(cloud)
    gcp.faults.add(INSERT, error="rateLimitExceeded", status=429, retry_after=7)
    cloud.launch(attempt, deadline=soon(cloud))
    assert 7 in waited


def test_a_busy_google_that_stays_so_has_made_nothing(gcp, cloud):
    attempt = attempt_at(cloud)
    gcp.faults.add(INSERT, error="rateLimitExceeded", status=429, times=99)
    with pytest.raises(RateLimited):
        cloud.launch(attempt, deadline=soon(cloud))
    assert gcp.instances() == []


def test_a_silent_google_leaves_it_uncertain(gcp, cloud):
    attempt = attempt_at(cloud)
    gcp.faults.lose_reply(INSERT, times=99)
    with pytest.raises(LaunchUncertain):
        cloud.launch(attempt, deadline=soon(cloud))
    gcp.faults.clear()
    assert cloud.launch(attempt, deadline=soon(cloud)).id == gcp.instances()[0]


@pytest.mark.soak
def test_an_operation_that_outlasts_the_deadline_is_uncertain_until_it_ends(gcp, cloud):
    attempt = attempt_at(cloud)
    gcp.on_call = lambda _number, action, _phase: gcp.dwell(insert=math.inf) if action == INSERT else None
    with pytest.raises(LaunchUncertain):
        cloud.launch(attempt, deadline=soon(cloud))
    gcp.on_call = None
    gcp.finish(f"{ZONE}/{ids.machine_name(attempt.token)}")
    assert cloud.launch(attempt, deadline=soon(cloud)).state is State.RUNNING
    assert len(gcp.instances()) == 1


def test_an_operation_that_nobody_may_look_at_is_settled_by_the_name(gcp, cloud):
    attempt = attempt_at(cloud)
    gcp.faults.deny("compute.zoneOperations.get")
    gcp.dwell(insert=0.0)
    assert cloud.launch(attempt, deadline=soon(cloud)).id == gcp.instances()[0]


def test_a_name_that_somebody_elses_machine_has_is_not_taken_for_ours(gcp, cloud):
    attempt = attempt_at(cloud)
    gcp.make(ids.machine_name(attempt.token), ZONE, labels={"cloudgpu-id": "cg-of-another"})
    with pytest.raises(InvalidRequest):
        cloud.launch(attempt, deadline=soon(cloud))


def test_a_second_send_that_is_refused_shuts_nobody_out_of_what_the_first_has_made(gcp, cloud):
    attempt = attempt_at(cloud)
    made = cloud.launch(attempt, deadline=soon(cloud))
    gcp.faults.deny(INSERT)
    with pytest.raises(AuthFailed):
        cloud.launch(attempt, deadline=soon(cloud))
    assert gcp.allows(made.id, CALLER.partition("/")[0])


@pytest.mark.parametrize("status", ["RUNNING", "PROVISIONING"])
def test_a_failure_of_googles_own_is_not_taken_for_no_machine_where_there_is_one(gcp, cloud, status):
    attempt = attempt_at(cloud)
    failed = {"name": "op", "status": "DONE", "zone": f"zones/{ZONE}", "httpErrorStatusCode": 500}
    failed["error"] = {"errors": [{"code": "INTERNAL_ERROR", "message": "Internal error."}]}
    gcp.faults.add("compute.zoneOperations.get", status=200, body=failed)
    there = {"name": ids.machine_name(attempt.token), "status": status, "labels": attempt.tags}  # no zone, which it may
    gcp.faults.add("compute.instances.get", status=200, body=there)
    if status == "RUNNING":
        assert cloud.launch(attempt, deadline=soon(cloud)).zone == ZONE
    else:
        with pytest.raises(LaunchUncertain):
            cloud.launch(attempt, deadline=soon(cloud))


# What Google refuses


@pytest.mark.parametrize(
    "code",
    [
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        "INTERNAL_ERROR",
    ],
)
def test_what_google_cannot_make_leaves_nothing_but_the_shut_door(gcp, cloud, code):
    attempt = attempt_at(cloud)
    gcp.stockout(code=code)
    with pytest.raises(NoCapacity) as refused:
        cloud.launch(attempt, deadline=soon(cloud))
    assert ZONE in refused.value.message
    assert code in refused.value.message
    assert gcp.billable() == []
    assert [name.startswith("cloudgpu-shut-") for name in gcp.firewalls()] == [True]


def test_a_spot_machine_that_is_taken_while_it_starts_is_no_capacity(gcp, cloud):
    attempt = attempt_at(cloud, offered(cloud, market=Market.SPOT))
    gcp.stockout(code="UNSUPPORTED_OPERATION")
    with pytest.raises(NoCapacity):
        cloud.launch(attempt, deadline=soon(cloud))


def test_a_quota_inside_the_operation_is_a_quota(gcp, cloud):
    attempt = attempt_at(cloud)
    gcp.limit("NVIDIA_T4_GPUS", 0, "us-central1")
    with pytest.raises(QuotaExceeded) as refused:
        cloud.launch(attempt, deadline=soon(cloud))
    assert "us-central1" in refused.value.next
    assert gcp.billable() == []


def test_a_door_that_cannot_be_shut_lets_no_machine_be_made(gcp, cloud):
    attempt = attempt_at(cloud)
    gcp.faults.deny("compute.firewalls.insert")
    with pytest.raises(AuthFailed) as refused:
        cloud.launch(attempt, deadline=soon(cloud))
    assert refused.value.value == "compute.firewalls.create"
    assert gcp.called(INSERT) == []


def test_a_door_that_somebody_opened_is_shut_again(gcp, cloud):
    launched(cloud)
    (name,) = [one for one in gcp.firewalls() if one.startswith("cloudgpu-shut-")]
    rule = next(one for key, one in gcp.model.of("firewalls").items() if key.name == name)
    rule["disabled"] = True
    made = launched(cloud, key="second")
    assert not gcp.allows(made.id, ELSEWHERE)


def test_a_refused_permission_is_named(gcp, cloud):
    attempt = attempt_at(cloud)
    gcp.faults.deny(INSERT)
    with pytest.raises(AuthFailed) as refused:
        cloud.launch(attempt, deadline=soon(cloud))
    assert refused.value.value == "compute.instances.create"
    assert "gcloud" not in refused.value.message
    assert gcp.instances() == []


def test_a_zone_that_does_not_answer_is_unavailable(gcp, cloud):
    attempt = attempt_at(cloud)
    gcp.faults.offline(zone=ZONE)
    with pytest.raises(ProviderUnavailable):
        cloud.launch(attempt, deadline=soon(cloud))
