"""`cloudgpu jobs`: the jobs that live, or all of them."""

from __future__ import annotations

from typing import Annotated

import typer

from cloudgpu.cli.common import Format, Output, emit, open_here


def command(
    *,
    ended: Annotated[bool, typer.Option("--all", "-a", help="Show those that are over, too.")] = False,
    mine: Annotated[bool, typer.Option("--mine", help="Show only your own jobs.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """List jobs: state, progress, machine, cost so far and expected end.

    Answers from the ledger: a job is as whoever watches has last seen it. One lives until its results are back and its
    machine has ended.

    The expected end goes by the progress that the command writes to $CLOUDGPU_PROGRESS, else by its --timeout. For one
    job: cloudgpu show NAME.
    """
    from cloudgpu.cli.jobs.text import table_text
    from cloudgpu.control.jobs.listing import listed

    session = open_here()
    document = listed(session, ended=ended, mine=mine)
    emit(output, document, table_text(document, session.clock(), ended=ended))
