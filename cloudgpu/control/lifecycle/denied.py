"""Says what goes on where a credential was refused at a stop or an end: the machine, its bill, and how to end it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from cloudgpu.core.model.machine import Machine, command_name, is_owned
from cloudgpu.core.values.money import Money
from cloudgpu.errors import AuthFailed, LedgerUnavailable, RoleNeeded
from cloudgpu.views.machines import cloud_id

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session

# Where a person ends a machine without cloudgpu. REGION, ZONE and ID are the machine's.
CONSOLES = {
    "aws": "https://REGION.console.aws.amazon.com/ec2/home?region=REGION#InstanceDetails:instanceId=ID",
    "azure": "https://portal.azure.com/#browse/Microsoft.Compute%2FVirtualMachines",
    "gcp": "https://console.cloud.google.com/compute/instances",
    "lambda": "https://cloud.lambda.ai/instances",
    "runpod": "https://console.runpod.io/pods?id=ID",
    "vast": "https://cloud.vast.ai/instances/",
}
_DONE = {"stop": "stopped", "down": "ended"}


@contextmanager
def denied(session: Session, machine: Machine, verb: str) -> Iterator[None]:
    """Let a refused credential inside say first that the machine goes on, with its price, and how it is ended by hand.

    `verb` is what was asked: `stop` or `down`. A machine of the user's own, and one that is gone, is nobody's bill.
    """
    try:
        yield
    except RoleNeeded:
        raise
    except AuthFailed as error:
        latest = machine
        with suppress(LedgerUnavailable):
            latest = session.ledger.machine(machine.id) or machine
        if latest.terminated_at is None and not is_owned(latest.provider):
            error.message = f"{latest.name} was not {_DONE[verb]}: {_goes_on(latest)}. {error.message}"
            error.args = (error.message,)
            error.next = f"{_by_hand(latest)} Or give cloudgpu a key that may do it. {_way(error, latest, verb)}"
        raise


def _goes_on(machine: Machine) -> str:
    """Return what the machine does and costs, as far as the ledger knows."""
    if machine.state in ("stopped", "deallocated") and not machine.billed:
        return "it is stopped, and its disk is still billed"
    price = machine.price and Money(machine.price.nanos_per_hour)
    cost = "at a price that is not known" if price is None else f"at {price.text(2)} an hour"
    if machine.provider_id is None:
        return f"whether it was launched is not known, so it may run and be billed {cost}"
    return f"it runs on and is billed {cost}"


def _by_hand(machine: Machine) -> str:
    id_ = cloud_id(machine.provider_id, machine.region, machine.zone)
    page = CONSOLES.get(machine.provider)
    where = f"in the console of {machine.provider}"
    if page is not None:
        where = f"at {page.replace('REGION', machine.region or '').replace('ID', id_ or '')}"
    return f"End it by hand {where}" + (f" (there it is {id_})." if id_ else ".")


def _way(error: AuthFailed, machine: Machine, verb: str) -> str:
    ways = [(error.next or "").rstrip("."), f"Then run: cloudgpu {verb} {command_name(machine)}"]
    return ". ".join(way for way in ways if way)
