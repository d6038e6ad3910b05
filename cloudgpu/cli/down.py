"""`cloudgpu down`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloudgpu.cli.common import Format, Output, Yes, _complete_name, confirm, emit, open_here, tell
from cloudgpu.errors import CloudgpuError, InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.control.session import Session


def command(
    names: Annotated[
        list[str] | None, typer.Argument(help="The machines to end.", autocompletion=_complete_name)
    ] = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Every machine of this ledger.")] = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """End machines and all that was made with them, and prove that they are gone.

    Can be repeated: what an interrupted `down` left is removed by the next. Exit code 9 when the end of one
    could not be proved; the others are ended all the same.
    """
    from cloudgpu.cli.render import dollars
    from cloudgpu.control.session import living
    from cloudgpu.report.values import machine_value

    if all_ and names:
        raise InvalidRequest(
            f"--all ends every machine, and {names[0]} is named beside it.",
            field="--all",
            value=names[0],
            next="Leave out --all, or the names.",
        )
    session = open_here()
    rows = living(session.ledger.machines()) if all_ else _chosen(session, names)
    if rows:
        listed = ", ".join(row["name"] for row in rows)
        confirm(f"End {listed}? What is on {'them' if len(rows) > 1 else 'it'} is deleted.", yes=yes)
    ended, faults = _end_each(session, rows)
    now = session.clock()
    values = [machine_value(row, now) for row in ended]
    document: dict[str, Any] = {"ended": values, "failed": [fault.as_dict() for fault in faults]}
    text = "\n".join(f"{value['name']} is gone. It cost {dollars(value['spent_usd'], 4)}." for value in values)
    if faults and not values:
        raise _worst(faults)
    emit(output, document, text or "No machine is running.")
    for fault in faults:
        tell(f"error: {fault.message} {fault.next or ''}")
    if faults:
        raise typer.Exit(_worst(faults).exit_code)


def _chosen(session: Session, names: list[str] | None) -> list[dict[str, Any]]:
    if not names:
        return [session.find(None)]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest(f"{twice} is named twice.", field="name", value=twice, next="Name each machine once.")
    return [session.find(name, ended=True) for name in names]


def _end_each(session: Session, rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[CloudgpuError]]:
    from cloudgpu.control.lifecycle import end

    ended, faults = [], []
    for row in rows:
        try:
            ended.append(end(session, row, why="asked by the user"))
        except CloudgpuError as fault:
            faults.append(fault)
    return ended, faults


def _worst(faults: list[CloudgpuError]) -> CloudgpuError:
    """Return the fault whose exit code counts: 9 before 8 before the rest."""
    order = {9: 0, 8: 1}
    return min(faults, key=lambda fault: order.get(fault.exit_code, 2))
