"""`cloudgpu allow`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, MaybeName, Output, emit, open_session

if TYPE_CHECKING:
    from cloudgpu.views.documents.machines.access import AllowDocument


def command(
    name: MaybeName = None,
    *,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="CIDR", help="The network to let in, instead of your current address."),
    ] = None,
    from_any: Annotated[bool, typer.Option("--from-anywhere", help="Let every address try to log in.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Let your current address connect over SSH, in place of the one before: on one machine, or on all.

    For providers with a firewall that admits only named addresses. Addresses that you opened with `share` stay open.
    """
    from cloudgpu.control.access.allowlist import allow, parse_network

    network = parse_network(from_, any_source=from_any)
    document, error = allow(open_session(), name, network)
    emit(output, document, "\n".join(_lines(document)))
    if error:
        raise typer.Exit(error.exit_code)


def _lines(document: AllowDocument) -> list[str]:
    from cloudgpu.core.values.network import network_text

    network = network_text(document["from"] or "")
    lines = []
    for machine in document["machines"]:
        replaced_text = f", and no longer to {network_text(machine['before'])}" if machine["before"] else ""
        open_text = f"open to {network} now{replaced_text}" if machine["changed"] else f"open to {network}, as it was"
        lines.append(f"{machine['name']}: SSH is {open_text}.")
    if any(machine["changed"] and machine["provider"] == "aws" for machine in document["machines"]):
        lines.append("On AWS one rule serves all your machines in the same network: it has moved for each of them.")
    lines += [f"{machine['name']}: left as it is: {machine['why'].rstrip('.')}." for machine in document["skipped"]]
    return lines + [f"FAILED: {error['message']} {error['next'] or ''}".rstrip() for error in document["failed"]]
