"""`cloudgpu share`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cloudgpu.cli.common import Format, MaybeName, Output, emit, open_here
from cloudgpu.errors import InvalidRequest


def command(
    name: MaybeName = None,
    *,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="A colleague's public key.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take it out again; without --key, every one.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Let a colleague's public key in to a running machine, until the machine ends.

    Whoever has the private half then has all the rights that you have on that machine.
    """
    from cloudgpu.access.guests import read_guest_key
    from cloudgpu.control.share import share, unshare

    guest = read_guest_key(key) if key else None
    if guest is None and not remove:
        raise InvalidRequest(
            "Whose key is to be let in?",
            field="--key",
            value=None,
            next="Name the file of a public key: --key ada.pub",
        )
    session = open_here()
    row = session.find(name)
    value = share(session, row, guest) if guest and not remove else unshare(session, row, guest)
    emit(output, value, _said(value))


def _said(value: dict[str, Any]) -> str:
    name, key = value["name"], value["key"] or "a shared key"
    if not value["shared"]:
        return f"{key} cannot log in to {name} any more." if value["changed"] else f"{name} had no such key."
    return (
        f"{key} can log in to {name} until it ends, with all the rights that you have there:\n"
        f"  {value['ssh']}\n"
        f"  its host key: {value['host_key']}"
    )
