"""Requests and answers are held to the models that Azure's SDKs publish."""

from __future__ import annotations

import contextlib
import re

import jsonschema
import pytest
from azure.core.exceptions import HttpResponseError

from tests.clouds.azure.handlers import HANDLERS
from tests.clouds.azure.routes import routed, routes
from tests.clouds.azure.schemas import faults, schemas
from tests.clouds.azure.sdk import Sdk, machine
from tests.clouds.rest import Reply

COMPUTE = "azure.mgmt.compute"
GOOD = machine("cloudgpu-0123456789")


def changed(path, value):
    """Return a good body with one thing changed; `path` is dotted, numbers are places in lists."""
    body = machine("cloudgpu-0123456789")
    *way, last = path.split(".")
    place = body
    for step in way:
        place = place[int(step)] if step.isdigit() else place.setdefault(step, {})
    place[last] = value
    return body


BAD = [
    ("colour", "red", "colour is unknown"),
    ("properties.priority", "Cheap", "none of Regular, Low, Spot"),
    ("properties.evictionPolicy", "Ask", "none of Deallocate, Delete"),
    ("properties.provisioningState", "Succeeded", "provisioningState is unknown"),
    ("properties.storageProfile.osDisk.diskSizeGB", "64", "'64' is no integer"),
    ("properties.storageProfile.osDisk.deleteOption", True, "none of Delete, Detach"),
    ("tags", {"a": 1}, ".tags.a: 1 is no string"),
    ("zones", "1", "'1' is no array"),
    ("properties.networkProfile.networkInterfaceConfigurations.0.bogus", 1, "bogus is unknown"),
]


@pytest.mark.parametrize(("path", "value", "says"), BAD)
def test_what_the_sdk_lets_through_is_a_fault_here(path, value, says):
    known = schemas(COMPUTE)
    schema = known.of("VirtualMachine", request=True)
    found = list(faults(changed(path, value), schema, known.definitions))
    assert len(found) == 1
    assert says in found[0]


def test_a_stale_list_of_sizes_is_no_fault():
    known = schemas(COMPUTE)
    body = changed("properties.hardwareProfile.vmSize", "Standard_NC128ads_Next_v9")
    assert not list(faults(body, known.of("VirtualMachine", request=True), known.definitions))


def test_the_checker_agrees_with_a_validator_of_json_schema():
    known = schemas(COMPUTE)
    validator = jsonschema.Draft202012Validator(known.whole("VirtualMachine", request=True))
    schema = known.of("VirtualMachine", request=True)
    bodies = [GOOD, *(changed(path, value) for path, value, _ in BAD)]
    mine = [not list(faults(one, schema, known.definitions)) for one in bodies]
    assert mine == [validator.is_valid(one) for one in bodies] == [True] + [False] * len(BAD)


def test_a_path_is_the_call_that_the_sdk_makes():
    base = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/m"
    route, where = routed("POST", f"{base}/deallocate")
    assert (route.action, where["vmName"]) == ("VirtualMachines.Deallocate", "m")
    assert routed("GET", "/subscriptions/s/resourcegroups/g")[0].action == "ResourceGroups.Get"
    assert routed("PUT", f"{base}/providers/Microsoft.Authorization/roleAssignments/r")[0].action.endswith(".Create")
    assert routed("PATCH", f"{base}/providers/Microsoft.Resources/tags/default")[1]["scope"] == base[1:]
    assert routed("POST", f"{base}/explode") is None


def test_every_call_that_is_known_is_answered_and_no_other():
    assert {one.action for one in routes()} == set(HANDLERS)


def test_a_call_that_the_model_lacks_is_said_and_recorded(azure_arm):
    client = Sdk(azure_arm)
    with pytest.raises(HttpResponseError) as caught:
        client.compute.availability_sets.get("g", "a")
    assert caught.value.status_code == 501
    assert len(azure_arm.unmodelled) == 1
    azure_arm.unmodelled.clear()


def test_a_request_of_ours_with_an_unknown_field_is_refused_and_recorded(azure_arm):
    client = Sdk(azure_arm)
    client.group("g")
    with pytest.raises(HttpResponseError, match="bogus is unknown"):
        client.compute.virtual_machines.begin_create_or_update("g", "m", {"location": "eastus", "bogus": 1})
    assert re.search("request VirtualMachines.CreateOrUpdate: .*bogus", azure_arm.wrong.pop())
    assert not azure_arm.resources("Microsoft.Compute/virtualMachines")


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply(200, {"name": "g", "location": "eastus", "colour": "red"}), "colour"),
        (Reply(206, {"name": "g", "location": "eastus"}), "no status 206"),
    ],
)
def test_an_answer_of_ours_that_is_not_azures_is_recorded_and_fails_the_test(azure_arm, monkeypatch, reply, says):
    monkeypatch.setitem(HANDLERS, "ResourceGroups.Get", lambda _model, _ask: reply)
    with contextlib.suppress(HttpResponseError):
        Sdk(azure_arm).resources.resource_groups.get("g")
    assert len(azure_arm.wrong) == 1
    assert azure_arm.wrong[0].startswith("answer ResourceGroups.Get: ")
    assert says in azure_arm.wrong.pop()


def test_a_wrong_secret_and_a_foreign_token_open_nothing(azure_arm, monkeypatch):
    import requests

    where = f"{azure_arm.url}/subscriptions?api-version=2022-12-01"
    url = where.replace("/subscriptions?", "/subscriptions/11111111-2222-4333-8444-555555555555/resourcegroups?")
    url = url.replace("2022-12-01", "2025-04-01")
    assert requests.get(url, timeout=10).status_code == 401
    assert requests.get(url, headers={"Authorization": "Bearer made-up"}, timeout=10).status_code == 401
    form = {"client_id": "c11e0000-0000-4000-8000-000000000001", "client_secret": "no", "grant_type": "x"}
    said = requests.post(f"{azure_arm.url}/t/oauth2/v2.0/token", data=form, timeout=10)
    assert (said.status_code, said.json()["error"]) == (401, "invalid_client")


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (200, {"location": "eastus", "colour": "red"}, "colour is unknown"),
        (200, {"location": 1}, "1 is no string"),
        (201, {"location": "eastus"}, "no status 201"),
    ],
)
def test_an_answer_of_the_model_that_azure_does_not_publish_is_recorded(azure_arm, monkeypatch, status, body, says):
    monkeypatch.setitem(HANDLERS, "ResourceGroups.Get", lambda _model, _ask: Reply(status, body))
    with contextlib.suppress(HttpResponseError):
        Sdk(azure_arm).resources.resource_groups.get("g")
    (found,) = azure_arm.wrong
    assert says in found
    azure_arm.wrong.clear()
