"""What `stop`, `down`, `extend` and `start` show before they ask: what ends, what is still billed, what is erased.

`others_text` says whose the machines are, where they are not the user's own; it is empty otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.cli.render import (
    attached_costs_text,
    dollars,
    gpus_text,
    labelled_lines,
    place_text,
    short_duration,
    spent_text,
    stopped_costs_text,
    when,
)
from cloudgpu.core.values.printable import printable

if TYPE_CHECKING:
    from cloudgpu.views.documents.machines.ended import BusyMachine
    from cloudgpu.views.documents.machines.machines import MachineDocument
    from cloudgpu.views.documents.machines.plans import AttachedCost

ERASES = "erases its "  # begins a provider's text on the disks that a stop erases
DELETED = " is deleted."  # ends a sentence of `termination_sentences` about deleted data
MAX_PROCESSES, MAX_WIDTH = 10, 80


def running_lines(machines: Sequence[BusyMachine]) -> list[str]:
    """Return the processes that end with each machine, or that they are not known."""
    return [line for machine in machines for line in _process_lines(machine)]


def _process_lines(machine: BusyMachine) -> list[str]:
    if machine["processes"] is None:
        return [f"{machine['name']}: it is not known what still runs there: {machine['error']}"]
    rows = [
        (str(process["pid"]), short_duration(process["seconds"]), printable(process["command"]))
        for process in machine["processes"]
    ]
    shown_rows, hidden_count = rows[:MAX_PROCESSES], len(rows) - MAX_PROCESSES
    widths = [max(len(row[column]) for row in shown_rows) for column in (0, 1)]
    lines = [f"    {pid:>{widths[0]}}  {age:>{widths[1]}}  {command}"[:MAX_WIDTH] for pid, age, command in shown_rows]
    hidden_lines = [f"    and {hidden_count} more"] if hidden_count > 0 else []
    return [f"{machine['name']}: this still runs there and ends now:", *lines, *hidden_lines]


def stop_question(machine: MachineDocument, effect: str, other_owner_text: str) -> str:
    """Return what a stop ends, its `effect` as the provider describes it, and what is still billed."""
    return _titled_lines(
        "Stop",
        [
            ("what", _machine_text(machine)),
            ("ends", _cost_text([machine])),
            ("erases" if ERASES in effect else "effect", f"Stopping {effect}." if effect else ""),
            ("still billed", stopped_costs_text(machine) or ""),
            ("whose", other_owner_text.strip()),
        ],
    )


def down_question(
    machines: Sequence[MachineDocument], costs: Sequence[AttachedCost], effect: str, other_owner_text: str
) -> str:
    """Return what ends, the `effect` of that in sentences, and what is still billed: the `costs` of named volumes."""
    machines_text = (
        f"{len(machines)} machines: {', '.join(machine['name'] for machine in machines)}"
        if len(machines) > 1
        else _machine_text(machines[0])
    )
    return _titled_lines(
        "End",
        [
            ("what", machines_text),
            ("ends", _cost_text(machines)),
            ("erases" if DELETED in effect else "effect", effect),
            ("still billed", attached_costs_text(costs)),
            ("whose", other_owner_text.strip()),
        ],
    )


def extend_question(machine: MachineDocument, until: str, cost: str, other_owner_text: str) -> str:
    """Return until when a machine is to live, what that adds for it at most, and what else is billed meanwhile."""
    price = machine["price"]
    costs_text = (
        "it is not known: the machine has no known price"
        if price is None
        else f"up to {cost} more for the machine, at {dollars(price['usd_per_hour'], 4)} an hour"
    )
    return _titled_lines(
        "Extend",
        [
            ("what", _machine_text(machine)),
            ("until", until),
            ("costs", costs_text),
            ("also billed", attached_costs_text(_while_running(machine))),
            ("whose", other_owner_text.strip()),
        ],
    )


def start_question(machine: MachineDocument, hourly_text: str, cost: str, end: str, now: datetime) -> str:
    """Return what an hour of a stopped machine costs, and what it costs to the end of its new lease."""
    return _titled_lines(
        "Start",
        [
            ("what", _machine_text(machine)),
            ("price", hourly_text),
            ("costs", cost),
            ("also billed", attached_costs_text(_while_running(machine))),
            ("ends", when(end, now)),
        ],
    )


def _while_running(machine: MachineDocument) -> list[AttachedCost]:
    return [attached_cost for attached_cost in machine["attached_costs"] or () if attached_cost["while_running"]]


def _titled_lines(title: str, rows: Sequence[tuple[str, str]]) -> str:
    return f"{title}\n{labelled_lines(rows)}"


def _machine_text(machine: MachineDocument) -> str:
    spot_text = ", spot" if machine["market"] == "spot" else ""
    return (
        f"{machine['name']}: {machine['instance_type']}, {gpus_text(machine, briefly=True)}{spot_text}; "
        f"{place_text(machine)}"
    )


def _cost_text(machines: Sequence[MachineDocument]) -> str:
    """Return the hourly cost that ends, and what the machines have cost so far."""
    billed = [machine for machine in machines if machine["billed"] and not machine["terminated_at"]]
    prices = [machine["price"]["usd_per_hour"] for machine in billed if machine["price"]]
    hourly_cost = dollars(f"{sum(map(Decimal, prices), Decimal())}", 4)
    unpriced_text = f" and {len(billed) - len(prices)} without a known price" if len(prices) < len(billed) else ""
    hourly_text = f"{hourly_cost} an hour{unpriced_text}" if billed else "no hourly cost: nothing of it runs"
    cost = sum((Decimal(machine["spent_usd"] or 0) for machine in machines), Decimal())
    unpriced_mark = "+" if any(machine["unpriced"] for machine in machines) else ""
    so_far = spent_text(machines[0], 4) if len(machines) == 1 else f"{dollars(f'{cost}')}{unpriced_mark}"
    return f"{hourly_text}; {so_far} so far"
