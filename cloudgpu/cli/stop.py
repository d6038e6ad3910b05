"""`cloudgpu stop`."""

from __future__ import annotations

from cloudgpu.cli.common import Format, MaybeName, Output, Yes, confirm, emit, open_here


def command(name: MaybeName = None, *, yes: Yes = False, output: Output = Format.TEXT) -> None:
    """Stop a machine: what runs on it ends, its disk is kept, and it is proved not to be billed any more.

    Exit code 9 when that could not be proved.
    """
    from cloudgpu.control.lifecycle import check_stop, stop
    from cloudgpu.report.values import machine_value

    session = open_here()
    row = session.find(name)
    check_stop(row)
    if row["stop_means"]:
        confirm(f"Stop {row['name']}? Stopping {row['stop_means']}.", yes=yes)
    else:
        confirm(f"Stop {row['name']}?", yes=yes)
    row = stop(session, row, why="asked by the user")
    value = machine_value(row, session.clock())
    emit(output, value, f"{row['name']} is {row['state']} and not billed. Start it again: cloudgpu start {row['name']}")
