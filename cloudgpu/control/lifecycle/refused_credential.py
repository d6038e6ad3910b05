"""Says, where a credential is refused, what the machine does and costs, and how to stop or end it by hand."""

from __future__ import annotations

from cloudgpu.core.model.identity import cloud_id
from cloudgpu.core.model.machine import Machine, command_name
from cloudgpu.core.values.money import Money
from cloudgpu.errors import AuthFailed

# Where a user can stop or end a machine without cloudgpu. REGION and ID are the machine's.
CONSOLE_URLS = {
    "aws": "https://REGION.console.aws.amazon.com/ec2/home?region=REGION#InstanceDetails:instanceId=ID",
    "azure": "https://portal.azure.com/#browse/Microsoft.Compute%2FVirtualMachines",
    "gcp": "https://console.cloud.google.com/compute/instances",
    "lambda": "https://cloud.lambda.ai/instances",
    "runpod": "https://console.runpod.io/pods?id=ID",
    "vast": "https://cloud.vast.ai/instances/",
}
_PAST_TENSE = {"stop": "stopped", "down": "ended"}
_BY_HAND = {"stop": "Stop", "down": "End"}  # a machine that is ended loses its disk


def explain_ending_by_hand(error: AuthFailed, machine: Machine, verb: str) -> None:
    """Add to the error that `verb` did not stop or end the machine, what it costs, and how to do it by hand."""
    error.message = f"{machine.name} was not {_PAST_TENSE[verb]}: {_running_text(machine)}. {error.message}"
    error.args = (error.message,)
    error.next = (
        f"{_console_text(machine, verb)} Or give cloudgpu a key that may do it. {_remedy(error, machine, verb)}"
    )


def _running_text(machine: Machine) -> str:
    """Return what the machine does and costs, as far as the ledger knows."""
    if machine.state in ("stopped", "deallocated") and not machine.billed:
        return "it is stopped, and its disk is still billed"
    price = machine.price and Money(machine.price.nanos_per_hour)
    cost = "at a price that is not known" if price is None else f"at {price.text(2)} an hour"
    if machine.provider_id is None:
        return f"whether it was launched is not known, so it may run and be billed {cost}"
    if machine.state in ("stopped", "deallocated"):  # on Azure: shut down, and not deallocated
        return f"it is stopped, and still billed {cost}"
    return f"it runs on and is billed {cost}"


def _console_text(machine: Machine, verb: str) -> str:
    cloud_machine_id = cloud_id(machine.provider_id, machine.region, machine.zone)
    location_clause = f"in the console of {machine.provider}"
    url = CONSOLE_URLS.get(machine.provider, "")
    if url and (machine.region or "REGION" not in url):
        location_clause = f"at {url.replace('REGION', machine.region or '').replace('ID', cloud_machine_id or '')}"
    return f"{_BY_HAND[verb]} it by hand {location_clause}" + (
        f" (there it is {cloud_machine_id})." if cloud_machine_id else "."
    )


def _remedy(error: AuthFailed, machine: Machine, verb: str) -> str:
    steps = [(error.next or "").rstrip("."), f"Then run: cloudgpu {verb} {command_name(machine)}"]
    return ". ".join(step for step in steps if step)
