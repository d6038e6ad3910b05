"""Our model of RunPod answers as RunPod's published schema says, and bills as its pages say; it never ran there."""

from __future__ import annotations

import http.client
import json
from fractions import Fraction

import pytest

from tests.clouds.runpod.server import ACCOUNT, KEY

H100 = "NVIDIA H100 80GB HBM3"
BODY = {
    "name": "cg-1",
    "image": "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404",
    "gpu": {"id": H100, "count": 1},
    "cloud": "SECURE",
    "dataCenterIds": ["US-KS-2"],
    "disk": 40,
    "mounts": {"persistent": {"size": 50, "path": "/workspace"}},
    "ports": ["22/tcp"],
    "env": {"A": "b"},
}


class Answer(dict):
    """The JSON body, with the status and the headers."""

    status, headers = 0, {}


@pytest.fixture
def ask(runpod):
    """Give a function that sends one request, with the account's key unless it is told another."""

    def send(method, path, body=None, key=KEY):
        line = http.client.HTTPConnection("127.0.0.1", runpod.port, timeout=10)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        line.request(method, path, None if body is None else json.dumps(body), headers)
        reply = line.getresponse()
        text = reply.read()
        is_json = text and "json" in reply.headers["Content-Type"]
        found = Answer(json.loads(text) if is_json else {"text": text.decode()})
        found.status, found.headers = reply.status, reply.headers
        line.close()
        return found

    return send


def test_a_pod_is_made_listed_stopped_started_and_deleted(runpod, ask):
    made = ask("POST", "/v2/pods", BODY)
    assert (made.status, made["status"], made["cost"], made["ssh"]["direct"]) == (201, "PROVISIONING", 3.99, None)
    id_ = made["id"]
    (seen,) = ask("GET", "/v2/pods")["pods"]
    assert (seen["id"], seen["status"], seen["env"], seen["dataCenterId"]) == (id_, "RUNNING", {"A": "b"}, "US-KS-2")
    port = seen["ssh"]["direct"]["port"]
    stopped = ask("POST", f"/v2/pods/{id_}/action", {"action": "stop"})
    assert (stopped["status"], stopped["cost"], stopped["ssh"]["direct"]) == ("EXITED", 0.0, None)
    assert ask("POST", f"/v2/pods/{id_}/action", {"action": "stop"}).status == 409
    assert ask("POST", f"/v2/pods/{id_}/action", {"action": "start"}).status == 200
    assert ask("GET", f"/v2/pods/{id_}")["ssh"]["direct"]["port"] != port
    assert ask("DELETE", f"/v2/pods/{id_}").status == 204
    assert ask("DELETE", f"/v2/pods/{id_}").status == 404
    assert ask("GET", "/v2/pods")["pods"] == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bogus": 1}, "additional properties 'bogus' not allowed"),
        ({"gpu": {"id": H100, "kind": "x"}}, "additional properties 'kind'"),
        ({"disk": 0}, "minimum: got 0, want 1"),
        ({"disk": "40"}, "want integer"),
        ({"env": {"A": 1}}, "want string"),
        ({"ports": ["22"]}, "does not match pattern"),
        ({"ports": "22/tcp"}, "want array"),
        ({"cloud": "secure"}, "value must be one of"),
        ({"name": ""}, "minLength"),
        ({"mounts": {"persistent": {"size": 9, "path": "/w"}}}, "minimum: got 9, want 10"),
        ({"mounts": {"persistent": {"size": 20}}}, "missing property 'path'"),
        ({"gpu": {"id": H100, "minCudaVersion": "12"}}, "does not match pattern"),
    ],
)
def test_a_body_that_breaks_the_schema_is_422_with_every_violation(runpod, ask, change, said):
    refused = ask("POST", "/v2/pods", {**BODY, **change})
    assert refused.status == refused["status"] == 422
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert said in " ".join(refused["errors"])
    assert runpod.pods() == []


@pytest.mark.parametrize(
    "change",
    [
        {"cpu": {"id": "cpu3c"}},
        {"gpu": {"id": H100, "minCudaVersion": "12.4", "allowedCudaVersions": ["12.8"]}},
        {"gpu": {"id": "NVIDIA NOTHING"}},
        {"dataCenterIds": ["EU-XX-1"]},
        {"gpu": {"id": H100, "count": 9}},
        {"mounts": {"persistent": {"size": 10, "path": "/a"}, "network": [{"volumeId": "v", "path": "/b"}]}},
    ],
)
def test_a_broken_rule_and_no_capacity_are_both_400_with_a_sentence_alone(runpod, ask, change):
    refused = ask("POST", "/v2/pods", {**BODY, **change})
    assert refused.status == 400
    assert set(refused) == {"title", "status", "detail"}


def test_every_answer_tells_the_limits_and_too_many_calls_when_to_come_again(runpod, ask):
    assert '"minute";q=60;w=60' in ask("GET", "/v2/pods").headers["RateLimit-Policy"]
    runpod.rate = True
    answers = [ask("GET", "/v2/pods") for _ in range(60)]
    assert answers[-1].status == 429
    assert answers[-1].headers["Retry-After"] == "12"


def test_keys_open_their_own_doors_only(runpod, ask):
    assert ask("GET", "/v2/pods", key=None).status == 401
    assert ask("GET", "/v2/pods", key="rpa_wrong_key_123").status == 401
    first, second = (ask("POST", "/v2/pods", {**BODY, "name": name})["id"] for name in ("cg-1", "cg-2"))
    own = runpod.pod(first).key
    assert ask("GET", f"/v2/pods/{first}", key=own).status == 200
    assert ask("GET", f"/v2/pods/{second}", key=own).status == 403
    assert ask("GET", "/v2/account", key=own).status == 403
    assert ask("GET", "/v2/account")["id"] == ACCOUNT
    runpod.pod_key_reads = "all"
    assert ask("GET", f"/v2/pods/{second}", key=own).status == 200


def test_a_start_needs_a_free_gpu_on_its_host(runpod, ask):
    id_ = ask("POST", "/v2/pods", BODY)["id"]
    ask("POST", f"/v2/pods/{id_}/action", {"action": "stop"})
    runpod.model.held.add(id_)
    refused = ask("POST", f"/v2/pods/{id_}/action", {"action": "start"})
    assert (refused.status, "free GPUs" in refused["detail"]) == (400, True)
    assert ask("GET", f"/v2/pods/{id_}")["status"] == "EXITED"


def test_without_credit_nothing_is_made_and_a_fault_may_come_after_a_pod_was(runpod, ask):
    runpod.model.balance = Fraction("3.98")
    assert ask("POST", "/v2/pods", BODY).status == 402
    runpod.model.balance = Fraction(100)
    runpod.failed_after()
    assert ask("POST", "/v2/pods", BODY).status == 500
    assert len(runpod.pods()) == 1


def test_a_new_pod_may_be_listed_late(runpod, ask):
    runpod.model.listed_after_s = 60
    id_ = ask("POST", "/v2/pods", BODY)["id"]
    assert ask("GET", "/v2/pods")["pods"] == []
    assert ask("GET", f"/v2/pods/{id_}").status == 200
    runpod.advance(61)
    assert len(ask("GET", "/v2/pods")["pods"]) == 1


def test_the_log_is_server_sent_events_of_the_container(runpod, ask):
    id_ = ask("POST", "/v2/pods", BODY)["id"]
    ask("GET", "/v2/pods")
    runpod.say(id_, "cloudgpu-host-key: ssh-ed25519 AAAA")
    reply = ask("GET", f"/v2/pods/{id_}/logs?source=container&tail=10")
    assert reply.headers["Content-Type"] == "text/event-stream"
    (data,) = [line for line in reply["text"].splitlines() if line.startswith("data: ")]
    assert json.loads(data.removeprefix("data: "))["line"] == "cloudgpu-host-key: ssh-ed25519 AAAA"


def test_the_catalogue_tells_stock_only_with_both_words_and_each_cloud_for_itself(runpod, ask):
    plain = ask("GET", "/v2/catalog/gpus")["gpus"][0]
    assert ("availability" in plain, plain["price"]) == (False, {"secure": 3.99, "community": 2.69})
    assert ask("GET", "/v2/catalog/gpus?include=AVAILABILITY").status == 400
    asked = "/v2/catalog/gpus?include=AVAILABILITY&product=POD"
    (h100,) = [one for one in ask("GET", f"{asked}&count=8")["gpus"] if one["id"] == H100]
    assert [one["id"] for one in h100["dataCenters"]] == ["US-KS-2", "EU-RO-1"]
    (home,) = [one for one in ask("GET", f"{asked}&cloud=COMMUNITY")["gpus"] if one["id"] == H100]
    assert (home["availability"], "dataCenters" in home) == ("MEDIUM", False)


def test_a_pod_is_billed_to_the_second_and_its_volume_costs_twice_as_much_while_it_is_stopped(runpod, ask):
    """By hand, at 3.99 USD an hour with 40 GB of container disk and 50 GB of /workspace, in months of 720 hours.

    Ten hours of running: 39.90 for the GPU, and (40 + 50) x 0.10 x 10/720 = 0.125 for the disks. Twenty hours
    stopped: 50 x 0.20 x 20/720 = 0.27777... for /workspace, and nothing for the rest.
    """
    id_ = ask("POST", "/v2/pods", BODY)["id"]
    runpod.advance(10 * 3600)
    ask("POST", f"/v2/pods/{id_}/action", {"action": "stop"})
    runpod.advance(20 * 3600)
    ask("DELETE", f"/v2/pods/{id_}")
    runpod.advance(100 * 3600)
    (bill,) = ask("GET", f"/v2/billing/pods?podId={id_}")["records"]
    assert bill["gpuAmount"] == pytest.approx(39.90, abs=0.01)
    assert bill["diskAmount"] == pytest.approx(0.125 + 0.277777, abs=0.0005)
