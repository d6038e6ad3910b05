"""`cloudgpu start`."""

from __future__ import annotations

from typing import Annotated

import typer

from cloudgpu.cli.common import Format, MaybeName, Output, Yes, confirm, emit, open_here


def command(
    name: MaybeName = None,
    *,
    lease: Annotated[str | None, typer.Option(metavar="TIME", help="The new lease, like 8h.")] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return once the start is accepted.")] = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Start a stopped machine under a new lease, and wait until SSH is verified."""
    from cloudgpu.cli.render import dollars, price
    from cloudgpu.control.asked import duration
    from cloudgpu.control.lifecycle import new_lease, start
    from cloudgpu.control.reach import wait_until_ready
    from cloudgpu.core.money import Money
    from cloudgpu.core.plan import run_cost
    from cloudgpu.report.values import machine_value, usd

    session = open_here()
    span = duration(lease, "--lease")
    row = session.find(name)
    until = new_lease(session, row, span)
    value = machine_value(row, session.clock())
    lives = until.expires - session.clock()
    cost = usd(run_cost(Money(row["price"]["nanos_per_hour"]), lives)) if row["price"] else None
    confirm(f"Start {row['name']} at {price(value['price'])}; {dollars(cost)} to the end of its new lease?", yes=yes)
    row = start(session, row, until)
    if not no_wait:
        row = wait_until_ready(session, row)
    value = machine_value(row, session.clock())
    emit(output, value, f"{row['name']} is {row['state']}. Jupyter: cloudgpu tunnel {row['name']}")
