"""Requests and answers are held to Google's own descriptions of its calls."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from tests.clouds.gcp.discovery import router
from tests.clouds.gcp.handlers import HANDLERS
from tests.clouds.rest import cut_off

INSERT = router().by_id["compute.instances.insert"]
GOOD = {"name": "box", "machineType": "zones/z/machineTypes/n1-standard-4", "labels": {"a": "b"}}
GET = "compute.instances.get"


def test_a_path_is_the_call_that_the_description_names():
    find = router().find
    found, where = find("GET", "/compute/v1/projects/p1/global/images/family/debian-12")
    assert (found.id, where) == ("compute.images.getFromFamily", {"project": "p1", "family": "debian-12"})
    assert (
        find("POST", "/v3/projects/p1:testIamPermissions")[0].id == "cloudresourcemanager.projects.testIamPermissions"
    )
    assert find("GET", "/v1/services/6F81-5844-456A/skus")[0].id == "cloudbilling.services.skus.list"
    assert find("POST", "/compute/v1/projects/p1/zones/z/instances/box") is None


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"colour": "red"}, "Unknown name 'colour'"),
        ({"disks": [{"mode": "SIDEWAYS"}]}, "disks[0].mode"),
        ({"disks": [{"initializeParams": {"diskSizeGb": "many"}}]}, "disks[0].initializeParams.diskSizeGb"),
        ({"labels": {"a": 1}}, "labels.a"),
        ({"disks": {}}, "disks: {} is no list"),
        ({"canIpForward": "true"}, "canIpForward"),
        ({"name": "Big"}, "name: 'Big'"),
        ({"scheduling": {"minNodeCpus": 2**40}}, "scheduling.minNodeCpus"),
    ],
)
def test_a_body_that_the_description_does_not_know_is_named_by_its_field(change, fault):
    assert list(INSERT.faults_of_request(GOOD)) == []
    assert [one for one in INSERT.faults_of_request({**GOOD, **change}) if fault in one]


def test_what_is_missing_from_a_request_is_named():
    assert list(INSERT.faults_of_request({"labels": {}})) == ["Required field 'name' not specified"]
    assert list(INSERT.faults_of_request(None)) == ["The body is no Instance"]
    assert list(router().by_id["compute.instances.start"].faults_of_request({"a": 1})) == ["This call takes no body"]
    detach = router().by_id["compute.instances.detachDisk"]
    assert list(detach.faults_of_query({})) == ["Required parameter: deviceName"]


def test_a_query_is_held_to_the_parameters_of_the_call():
    listing = router().by_id["compute.instances.aggregatedList"]
    assert list(listing.faults_of_query({"maxResults": "500", "filter": "a=b", "alt": "json"})) == []
    assert len(list(listing.faults_of_query({"maxResults": "-1", "returnAll": "true", "includeAllScopes": "yes"}))) == 3
    assert list(listing.faults_of_path({"project": "Not A Project"}))


def test_an_answer_has_whole_numbers_of_64_bits_as_text_only():
    disk = router().by_id["compute.disks.get"]
    assert list(disk.faults_of_answer({"sizeGb": "50"})) == []
    assert list(disk.faults_of_answer({"sizeGb": 50})) == ["sizeGb: 50 is no int64"]
    assert list(router().by_id["compute.disks.insert"].faults_of_request({"name": "d", "sizeGb": 50})) == []


def test_every_call_that_is_answered_is_one_of_googles():
    assert sorted(set(HANDLERS) - set(router().by_id)) == []


def asked(server, method, path, body=None):
    """Return the status and the body of a raw request."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{server.url}{path}", data, headers, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_call_that_the_model_lacks_is_501_and_noted(gcp):
    zone = "/compute/v1/projects/cloudgpu-test/zones/us-central1-a"
    assert asked(gcp, "POST", f"{zone}/instances/box/suspend")[0] == 501
    assert asked(gcp, "GET", "/compute/v1/nothing")[0] == 501
    assert [one.partition(":")[0] for one in gcp.unmodelled] == [
        "compute.instances.suspend",
        "GET /compute/v1/nothing is no call of Google's",
    ]
    gcp.unmodelled.clear()


def test_a_request_that_is_not_googles_is_400_and_noted(gcp):
    zone = "/compute/v1/projects/cloudgpu-test/zones/us-central1-a"
    status, said = asked(gcp, "POST", f"{zone}/disks", {"name": "d", "size": 5})
    assert (status, said["error"]["errors"][0]["reason"]) == (400, "badRequest")
    assert gcp.malformed == ["compute.disks.insert: Unknown name 'size' at 'the body': Cannot find field"]
    gcp.malformed.clear()


def test_a_request_cut_off_by_the_death_of_its_sender_is_no_request(gcp):
    cut_off(gcp.url, "POST /compute/v1/projects/cloudgpu-test/zones/us-central1-a/instances HTTP/1.1")
    assert not gcp.calls
    assert not gcp.unmodelled + gcp.malformed


def test_an_answer_of_ours_that_is_not_googles_fails_the_test(gcp):
    handler = HANDLERS["compute.zones.list"]
    HANDLERS["compute.zones.list"] = lambda _: {"items": "none"}
    try:
        status, _ = asked(gcp, "GET", "/compute/v1/projects/cloudgpu-test/zones")
    finally:
        HANDLERS["compute.zones.list"] = handler
    assert (status, len(gcp.unmodelled)) == (501, 1)
    gcp.unmodelled.clear()
