"""Power: start, deallocate, power off, restart, eviction, a shutdown from inside.

`stopped` keeps the hardware and is billed, `deallocated` is not (documentation, "states and billing"). A dynamic
address and the temporary disk are lost at deallocation; ours are static. That an eviction leaves no mark in the
instance view is belief: the activity log has it.
"""

from __future__ import annotations

from datetime import timedelta

from tests.clouds.azure import skus
from tests.clouds.azure.handlers import answers
from tests.clouds.azure.machines import set_power, vanish
from tests.clouds.azure.model import Ask, Model, Thing
from tests.clouds.azure.operations import begin, overtake
from tests.clouds.rest import Refusal, Reply

ALLOCATED = {"creating", "starting", "running", "stopping", "stopped", "deallocating"}
BILLED = {"starting", "running", "stopping", "stopped"}
NOTICE = timedelta(seconds=30)


def _living(model: Model, ask: Ask) -> Thing:
    machine = model.get(ask.id)
    if machine.facts["provisioningState"] == "Deleting":
        sentence = f"Operation is not allowed on VM '{machine.name}' since the VM is marked for deletion."
        raise Refusal("OperationNotAllowed", sentence)
    return machine


@answers("VirtualMachines.Start")
def start(model: Model, ask: Ask) -> Reply:
    """Start one; from `deallocated` it needs capacity again, and may fail for want of it."""
    machine = _living(model, ask)
    if machine.hidden.get("generalized"):
        sentence = f"Operation 'start' is not allowed on VM '{machine.name}' since the VM is generalized."
        raise Refusal("OperationNotAllowed", sentence)
    before = machine.hidden["power"]
    if before == "running":
        return begin(model, ask, "running", lambda: None)
    size = skus.size_of(machine.facts["hardwareProfile"]["vmSize"])
    assert size is not None
    set_power(model, machine, "starting")
    machine.facts["provisioningState"] = "Updating"

    def end(power: str, state: str, code: str = "") -> None:
        machine.facts["provisioningState"] = state
        machine.hidden["failure"] = code
        set_power(model, machine, power)

    return begin(
        model, ask, "starting", lambda: end("running", "Succeeded"), fail=lambda code: end(before, "Failed", code)
    )


@answers("VirtualMachines.Deallocate")
def deallocate(model: Model, ask: Ask) -> Reply:
    machine = _living(model, ask)
    model.log(ask.id, "Microsoft.Compute/virtualMachines/deallocate/action")
    if machine.hidden["power"] == "deallocated":
        return begin(model, ask, "deallocated", lambda: None)
    set_power(model, machine, "deallocating")
    return begin(
        model, ask, "deallocating", lambda: end_deallocated(model, machine), fail=lambda _: _back(model, machine)
    )


def _back(model: Model, machine: Thing) -> None:
    set_power(model, machine, "running")


def end_deallocated(model: Model, machine: Thing) -> None:
    """Let a machine be deallocated."""
    if machine.facts["provisioningState"] in {"Creating", "Updating"}:
        machine.facts["provisioningState"] = "Succeeded"
    set_power(model, machine, "deallocated")


@answers("VirtualMachines.PowerOff")
def power_off(model: Model, ask: Ask) -> Reply:
    machine = _living(model, ask)
    model.log(ask.id, "Microsoft.Compute/virtualMachines/powerOff/action")
    if machine.hidden["power"] not in {"running", "starting", "stopped"}:
        state = machine.hidden["power"]
        raise Refusal("OperationNotAllowed", f"Operation 'powerOff' is not allowed on VM '{machine.name}': {state}.")
    set_power(model, machine, "stopping")
    return begin(model, ask, "stopping", lambda: set_power(model, machine, "stopped"))


@answers("VirtualMachines.Restart")
def restart(model: Model, ask: Ask) -> Reply:
    machine = _living(model, ask)
    if machine.hidden["power"] != "running":
        sentence = f"Operation 'restart' is not allowed on VM '{machine.name}' since the VM is not running."
        raise Refusal("OperationNotAllowed", sentence)
    return begin(model, ask, "restarting", lambda: None)


@answers("VirtualMachines.Generalize")
def generalize(model: Model, ask: Ask) -> Reply:
    """Mark a stopped machine as generalized: it never starts again (REST reference)."""
    machine = _living(model, ask)
    if machine.hidden["power"] not in {"stopped", "deallocated"}:
        sentence = f"Operation 'generalize' is not allowed on VM '{machine.name}' since the VM is not stopped."
        raise Refusal("OperationNotAllowed", sentence)
    machine.hidden["generalized"] = True
    return Reply(200)


@answers("VirtualMachines.SimulateEviction")
def simulate_eviction(model: Model, ask: Ask) -> Reply:
    """Evict a spot machine within half a minute: here when the notice of 30 seconds is over."""
    machine = _living(model, ask)
    if machine.facts["priority"] != "Spot":
        raise Refusal("OperationNotAllowed", f"VM '{machine.name}' is not an Azure Spot Virtual Machine.")
    if machine.hidden["power"] != "running":
        raise Refusal("OperationNotAllowed", f"VM '{machine.name}' is not running.")
    model.log(ask.id, "Microsoft.Compute/virtualMachines/simulateEviction/action")
    model.clock.at(f"eviction:{machine.id.lower()}", model.now() + NOTICE, lambda: evict(model, machine))
    return Reply(204)


def evict(model: Model, machine: Thing) -> None:
    """Take a spot machine back as its policy says; the notice is over."""
    if machine.id.lower() not in model.resources or machine.hidden["power"] not in {"running", "starting"}:
        return
    overtake(model, machine.id)
    model.log(machine.id, "Microsoft.Compute/virtualMachines/evictSpotVM/action")
    if machine.facts.get("evictionPolicy") == "Delete":
        vanish(model, machine)
    else:
        end_deallocated(model, machine)


def shut_down(model: Model, machine: Thing) -> None:
    """Shut a machine down from inside: it is stopped, stays allocated and is billed."""
    if machine.hidden["power"] == "running":
        set_power(model, machine, "stopped")
