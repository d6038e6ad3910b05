"""Our model of vast.ai refuses what the notes of its interface do not know; its meters run as they are described."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from decimal import Decimal

import pytest

from tests.clouds.vast.server import KEY

BODY = {
    "client_id": "me",
    "image": "x:1",
    "disk": 10,
    "runtype": "args",
    "env": {"A": "b", "-p 22:22": "1"},
    "label": "cg-t",
}


def ask(vast, method, path, body=None, key=KEY):
    """Return the status and the JSON of an answer."""
    data = None if body is None else json.dumps(body)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with closing(http.client.HTTPConnection("127.0.0.1", vast.port, timeout=10)) as link:
        link.request(method, path, data, headers)
        answer = link.getresponse()
        text = answer.read().decode()
    return answer.status, json.loads(text) if text.startswith("{") else text


def offers(vast, **filters):
    return ask(vast, "POST", "/api/v0/bundles/", {"limit": 100, **filters})[1]["offers"]


def rented(vast, **more):
    (offer, *_) = offers(vast, machine_id={"eq": 40001}, num_gpus={"eq": 1})
    return ask(vast, "PUT", f"/api/v0/asks/{offer['id']}/", {**BODY, **more})


def test_a_search_filters_orders_and_is_cut_at_its_limit(vast):
    found = offers(vast, gpu_name={"in": ["RTX 4090"]}, num_gpus={"eq": 1}, order=[["dph_base", "desc"]])
    assert [one["dph_base"] for one in found] == sorted((one["dph_base"] for one in found), reverse=True)
    assert len(ask(vast, "POST", "/api/v0/bundles/", {"limit": 2})[1]["offers"]) == 2


def test_an_offer_is_rented_once(vast):
    (offer, *_) = offers(vast, machine_id={"eq": 40001}, num_gpus={"eq": 1})
    assert ask(vast, "PUT", f"/api/v0/asks/{offer['id']}/", BODY)[0] == 200
    status, said = ask(vast, "PUT", f"/api/v0/asks/{offer['id']}/", BODY)
    assert (status, said["error"]) == (404, "no_such_ask")


@pytest.mark.parametrize(
    "more",
    [
        {"disk": 5},
        {"client_id": "you"},
        {"label": "x" * 257},
        {"onstart": "x" * 4097},
        {"env": {"A": 1}},
        {"env": {"A": "x" * 32_768}},
        {"runtype": "vm"},
        {"token": "there is none"},
    ],
)
def test_a_request_to_rent_that_is_not_theirs_is_refused(vast, more):
    status, said = rented(vast, **more)
    assert (status, said["success"]) == (400, False)
    assert vast.malformed
    vast.malformed.clear()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/api/v1/instances/?limit=26", None),
        ("GET", "/api/v1/instances/?page=2", None),
        ("PUT", "/api/v0/instances/20000001/", {"state": "paused"}),
        ("PUT", "/api/v0/instances/20000001/", {"state": "stopped", "label": "x"}),
        ("POST", "/api/v0/bundles/", {"gpu_name": "RTX 4090", "limit": 1}),
        ("POST", "/api/v0/bundles/", {"no_such_field": {"eq": 1}, "limit": 1}),
    ],
)
def test_other_requests_that_are_not_theirs_are_refused(vast, method, path, body):
    assert ask(vast, method, path, body)[0] == 400
    vast.malformed.clear()


def test_a_call_that_the_notes_do_not_name_fails_the_test(vast):
    assert ask(vast, "GET", "/api/v0/secrets/")[0] == 501
    assert vast.unmodelled
    vast.unmodelled.clear()


def test_an_unknown_id_is_null_with_200_where_one_looks_and_404_where_one_changes(vast):
    assert ask(vast, "GET", "/api/v0/instances/7/") == (200, {"instances": None})
    assert ask(vast, "DELETE", "/api/v0/instances/7/")[0] == 404


def test_pages_have_25_and_say_when_there_is_none_more(vast):
    first = ask(vast, "GET", "/api/v1/instances/")[1]
    assert (first["instances"], first["next_token"]) == ([], None)


def test_the_key_of_a_container_changes_its_own_contract_alone(vast):
    one, two = (rented(vast)[1] for _ in range(2))
    key = one["instance_api_key"]
    assert ask(vast, "PUT", f"/api/v0/instances/{one['new_contract']}/", {"state": "stopped"}, key)[0] == 200
    assert ask(vast, "PUT", f"/api/v0/instances/{two['new_contract']}/", {"state": "stopped"}, key)[0] == 403
    assert ask(vast, "GET", "/api/v1/instances/", None, key)[0] == 403


def test_three_meters_run_each_by_its_rule(vast):
    id_ = str(rented(vast, disk=73)[1]["new_contract"])
    ask(vast, "GET", f"/api/v0/instances/{id_}/")
    vast.advance(3600)
    vast.contract(id_).sent, vast.contract(id_).received = 2 * 10**9, 10**9
    ask(vast, "PUT", f"/api/v0/instances/{id_}/", {"state": "stopped"})
    vast.advance(3600)
    found = {name: round(amount, 4) for name, amount in vast.bill(id_).items()}
    # 1 h at $0.34; 2 h of 73 GB at $0.2 / 730 h; 2 GB at $0.004 and 1 GB at $0.002
    assert found == {"gpu": Decimal("0.34"), "storage": Decimal("0.04"), "traffic": Decimal("0.01")}


def test_what_comes_too_often_is_told_in_plain_text(vast):
    vast.too_frequent("list")
    status, said = ask(vast, "GET", "/api/v1/instances/")
    assert status == 429
    assert said.startswith("API requests too frequent")
