"""`cloudgpu show`: one machine and its history."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cloudgpu.cli.common import Format, MaybeName, Output, emit, open_here


def command(
    name: MaybeName = None,
    *,
    refresh: Annotated[bool, typer.Option("--refresh", "-r", help="Ask its provider first.")] = False,
    history: Annotated[bool, typer.Option("--history", help="Every ledger line of this machine.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Show one machine: state, price with its source and date, what it has cost, lease, access.

    Answers from the ledger; --refresh asks the provider first. Ended machines are shown too.
    """
    from cloudgpu.control.documents import shown

    session = open_here()
    value = shown(session, name, refresh=refresh, history=history)
    emit(output, value, _text(value, value.get("history", []), session.clock()))


def _text(value: dict[str, Any], lines: list[dict[str, Any]], now: Any) -> str:
    from cloudgpu.cli.render import machine

    shown = [machine(value, now)]
    if lines:
        shown.append("")
    for line in lines:
        at, kind = line["occurred_at"][:19].replace("T", " "), line["kind"].replace("_", " ")
        shown.append(f"  {at}  {kind:18}  {_said(line['kind'], line['body'])}".rstrip())
    return "\n".join(shown)


def _said(kind: str, body: dict[str, Any]) -> str:
    """Return the one thing of a ledger line that a reader of the history looks for."""
    if kind == "hold_set":
        return f"until {_minute(body['until'])}" if body["until"] else "released"
    if kind == "lease_set":
        return f"{body['why']}: until {_minute(body['expires'])}"
    return str(body.get("why") or body.get("state") or body.get("proof") or body.get("outcome") or "")


def _minute(text: str) -> str:
    return f"{text[:16].replace('T', ' ')} UTC"
