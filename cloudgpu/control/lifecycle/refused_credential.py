"""Says, where a credential is refused, that the machine still runs, what it costs, and how to end it by hand."""

from __future__ import annotations

from cloudgpu.core.model.identity import cloud_id
from cloudgpu.core.model.machine import Machine, command_name
from cloudgpu.core.values.money import Money
from cloudgpu.errors import AuthFailed

# Where a user can end a machine without cloudgpu. REGION and ID are the machine's.
CONSOLE_URLS = {
    "aws": "https://REGION.console.aws.amazon.com/ec2/home?region=REGION#InstanceDetails:instanceId=ID",
    "azure": "https://portal.azure.com/#browse/Microsoft.Compute%2FVirtualMachines",
    "gcp": "https://console.cloud.google.com/compute/instances",
    "lambda": "https://cloud.lambda.ai/instances",
    "runpod": "https://console.runpod.io/pods?id=ID",
    "vast": "https://cloud.vast.ai/instances/",
}
_PAST_TENSE = {"stop": "stopped", "down": "ended"}


def explain_ending_by_hand(error: AuthFailed, machine: Machine, verb: str) -> None:
    """Add to the error that the machine was not stopped or ended (`verb`), that it is billed, and how to end it."""
    error.message = f"{machine.name} was not {_PAST_TENSE[verb]}: {_running_text(machine)}. {error.message}"
    error.args = (error.message,)
    error.next = f"{_console_text(machine)} Or give cloudgpu a key that may do it. {_remedy(error, machine, verb)}"


def _running_text(machine: Machine) -> str:
    """Return what the machine does and costs, as far as the ledger knows."""
    if machine.state in ("stopped", "deallocated") and not machine.billed:
        return "it is stopped, and its disk is still billed"
    price = machine.price and Money(machine.price.nanos_per_hour)
    cost = "at a price that is not known" if price is None else f"at {price.text(2)} an hour"
    if machine.provider_id is None:
        return f"whether it was launched is not known, so it may run and be billed {cost}"
    return f"it runs on and is billed {cost}"


def _console_text(machine: Machine) -> str:
    cloud_machine_id = cloud_id(machine.provider_id, machine.region, machine.zone)
    location_clause = f"in the console of {machine.provider}"
    if url := CONSOLE_URLS.get(machine.provider):
        location_clause = f"at {url.replace('REGION', machine.region or '').replace('ID', cloud_machine_id or '')}"
    return f"End it by hand {location_clause}" + (f" (there it is {cloud_machine_id})." if cloud_machine_id else ".")


def _remedy(error: AuthFailed, machine: Machine, verb: str) -> str:
    steps = [(error.next or "").rstrip("."), f"Then run: cloudgpu {verb} {command_name(machine)}"]
    return ". ".join(step for step in steps if step)
