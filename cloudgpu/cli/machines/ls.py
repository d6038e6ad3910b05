"""`cloudgpu ls`: machines from the ledger at once, or from the clouds with --refresh."""

from __future__ import annotations

from typing import Annotated

import typer

from cloudgpu.cli.common import Format, Output, emit, exit_if_unanswered, tell
from cloudgpu.cli.machines.listing import list_machines
from cloudgpu.core.model.identity import unanswered_text

INTERVAL_S, REFRESH_INTERVAL_S = 2.0, 30.0  # of --watch: how often the ledger is read, and the clouds are queried


def command(
    *,
    refresh: Annotated[bool, typer.Option("--refresh", "-r", help="Ask every configured account first.")] = False,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Include machines that have ended.")] = False,
    mine: Annotated[bool, typer.Option("--mine", help="Only machines that you own.")] = False,
    nodes: Annotated[bool, typer.Option("--nodes", help="Show each node of a cluster on a line of its own.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Include cloud ids, and when each safeguard would end a machine.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Repeat every 2 s (30 s with --refresh), until Ctrl-C.")
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """List machines: state, price, what each has cost so far, and when its lease ends.

    Answers from the ledger at once, and shows how old that answer is; --refresh queries the clouds first. Shows owners
    if one of the machines is not yours; --mine hides machines of others. A cluster has one line, with how many of its
    nodes there are; --nodes shows each of them. Exit code 8 if an account did not answer: its machines are shown as
    last seen. So are local machines of other computers, which can be seen only from there: the exit code is 0 then.
    """
    if watch:
        from cloudgpu.cli.machines.watching import show_repeatedly

        show_repeatedly(
            lambda: list_machines(refresh=refresh, ended=all_, mine=mine, verbose=verbose, nodes=nodes)[1],
            every_s=REFRESH_INTERVAL_S if refresh else INTERVAL_S,
            is_text=output is Format.TEXT,
        )
        return
    document, text = list_machines(refresh=refresh, ended=all_, mine=mine, verbose=verbose, nodes=nodes)
    emit(output, document, text)
    for unanswered_scope in document["elsewhere"]:
        tell(f"{unanswered_text(unanswered_scope['scope'], unanswered_scope['why'])} It is shown as last seen.")
    exit_if_unanswered(document["unanswered"])
