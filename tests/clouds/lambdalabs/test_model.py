"""Our model of Lambda Cloud is strict about requests, and does what its README says."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from tests.clouds.lambdalabs.server import KEY

PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8wyU8xXvcQ1lm0PUJxGq0qVv5zvTnL0d4Gd3Nn0abc"
LAUNCH = {"region_name": "us-east-1", "instance_type_name": "gpu_1x_a10", "ssh_key_names": ["mine"]}


@pytest.fixture
def ask(lambdalabs):
    """Send a request as any program would; return the status and the value."""

    def ask(method, path, body=None, key=KEY):
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{lambdalabs.url}/api/v1{path}", data, headers, method=method)  # noqa: S310  (loopback)
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:  # noqa: S310
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    return ask


@pytest.fixture
def launched(lambdalabs, ask):
    assert ask("POST", "/ssh-keys", {"name": "mine", "public_key": PUBLIC})[0] == 200
    return ask("POST", "/instance-operations/launch", LAUNCH)[1]["data"]["instance_ids"][0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"quantity": 1}, "quantity is no field"),
        ({"ssh_key_names": ["a", "b"]}, "ssh_key_names is not a list of 1 to 1"),
        ({"ssh_key_names": []}, "ssh_key_names is not a list of 1 to 1"),
        ({"name": "x" * 65}, "name has 65 bytes"),
        ({"hostname": "Upper"}, "hostname does not look as it has to"),
        ({"tags": {"a": "b"}}, "tags is not a list"),
        ({"tags": [{"key": "Upper", "value": "b"}]}, "tags key does not look"),
        ({"tags": [{"key": "aa"}]}, "tags lacks"),
        ({"user_data": "x" * ((1 << 20) + 1)}, "user_data has"),
        ({"region_name": None}, "region_name is not text"),
    ],
)
def test_a_launch_that_the_description_does_not_know_is_refused(lambdalabs, ask, change, says):
    status, value = ask("POST", "/instance-operations/launch", {**LAUNCH, **change})
    assert (status, value["error"]["code"]) == (400, "global/invalid-parameters")
    assert says in value["error"]["message"]
    assert lambdalabs.malformed
    lambdalabs.malformed.clear()
    assert lambdalabs.instances() == []


def test_what_needs_no_body_takes_none_and_unknown_parameters_are_refused(lambdalabs, ask):
    assert ask("GET", "/instances?page=2")[0] == 400
    assert ask("POST", "/instance-operations/terminate", {"ids": ["x"]})[0] == 400
    assert len(lambdalabs.malformed) == 3
    lambdalabs.malformed.clear()


def test_a_call_that_is_none_of_lambdas_fails_the_test(lambdalabs, ask):
    assert ask("GET", "/volumes")[0] == 501
    assert lambdalabs.unmodelled
    lambdalabs.unmodelled.clear()


def test_another_key_is_refused(ask):
    status, value = ask("GET", "/instances", key="secret_of-somebody-else")
    assert (status, value["error"]["code"]) == (401, "global/invalid-api-key")


def test_minutes_are_billed_from_active_to_the_end_and_terminating_is_billed(lambdalabs, ask):
    lambdalabs.dwell(booting=200.0, terminating=30.0)
    ask("POST", "/ssh-keys", {"name": "mine", "public_key": PUBLIC})
    machine = ask("POST", "/instance-operations/launch", LAUNCH)[1]["data"]["instance_ids"][0]
    lambdalabs.advance(190)
    assert (lambdalabs.billable(), lambdalabs.minutes(machine)) == ([], 0)
    lambdalabs.advance(10 + 100)
    ask("POST", "/instance-operations/terminate", {"instance_ids": [machine]})
    lambdalabs.advance(29)
    assert lambdalabs.billable() == [machine]
    lambdalabs.advance(2)
    assert lambdalabs.billable() == []
    assert lambdalabs.minutes(machine) == 3  # 100 s and 30 s are 130 s: three started minutes


def test_one_unknown_id_refuses_a_whole_end(lambdalabs, ask, launched):
    assert ask("POST", "/instance-operations/terminate", {"instance_ids": [launched, "0" * 32]})[0] == 404
    assert lambdalabs.billable() == [launched]


def test_a_late_listing_and_a_late_id(lambdalabs, ask):
    lambdalabs.late_s = 60
    ask("POST", "/ssh-keys", {"name": "mine", "public_key": PUBLIC})
    machine = ask("POST", "/instance-operations/launch", LAUNCH)[1]["data"]["instance_ids"][0]
    assert ask("GET", "/instances")[1]["data"] == []
    assert ask("GET", f"/instances/{machine}")[0] == 404
    lambdalabs.advance(61)
    assert [one["id"] for one in ask("GET", "/instances")[1]["data"]] == [machine]


def test_calls_beyond_its_rates_are_refused_where_a_test_wants_that(lambdalabs, ask):
    lambdalabs.rates = True
    assert [ask("GET", "/instances")[0] for _ in range(2)] == [200, 429]
    lambdalabs.advance(1)
    assert ask("GET", "/instances")[0] == 200
