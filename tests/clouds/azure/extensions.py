"""Extensions of machines, as ones that a driver comes by: made, read, taken away; nothing of them runs here."""

from __future__ import annotations

import copy

from tests.clouds.azure.handlers import answers, settled
from tests.clouds.azure.model import Ask, Model
from tests.clouds.azure.operations import begin
from tests.clouds.rest import Refusal, Reply


@answers("VirtualMachineExtensions.CreateOrUpdate")
def put_extension(model: Model, ask: Ask) -> Reply:
    """Make one: on a machine that runs, else it waits, and Azure refuses it."""
    machine = model.get(ask.id.partition("/extensions/")[0])
    if machine.hidden["power"] != "running":
        sentence = f"Cannot modify extensions in the VM when the VM is not running: '{machine.name}'."
        raise Refusal("OperationNotAllowed", sentence)
    facts = ask.body["properties"]
    missing = [one for one in ("publisher", "type", "typeHandlerVersion") if one not in facts]
    if missing:
        raise Refusal("InvalidParameter", f"Required parameter '{missing[0]}' is missing (null).")
    there = ask.id.lower() in model.resources
    body = settled(ask.body, model.now())
    body["properties"].pop("protectedSettings", None)
    thing = model.put(ask.id, body)
    return begin(model, ask, "extension", lambda: None, status=200 if there else 201, body=copy.deepcopy(thing.body))


@answers("VirtualMachineExtensions.Get")
def get_extension(model: Model, ask: Ask) -> Reply:
    return Reply(200, copy.deepcopy(model.get(ask.id).body))


@answers("VirtualMachineExtensions.List")
def list_extensions(model: Model, ask: Ask) -> Reply:
    model.get(ask.id.rpartition("/")[0])
    rows = [one.body for key, one in model.resources.items() if key.startswith(f"{ask.id.lower()}/")]
    return Reply(200, {"value": copy.deepcopy(rows)})


@answers("VirtualMachineExtensions.Delete")
def delete_extension(model: Model, ask: Ask) -> Reply:
    if ask.id.lower() not in model.resources:
        return Reply(204)
    return begin(model, ask, "extension", lambda: model.drop(ask.id))
