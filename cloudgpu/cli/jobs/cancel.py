"""`cloudgpu cancel`: a job is to end."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from cloudgpu.cli.common import Format, Output, Yes, confirm, emit, open_here


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job's name, key or id.")],
    *,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """End a job: its command is ended, its results come back, its machine ends. A machine that was there stays.

    The command gets SIGTERM, and SIGKILL ten seconds later. If its machine does not answer now, whoever watches ends
    the job later. A job that is over is left as it is: exit code 0.
    """
    from cloudgpu.cli.jobs.text import cancelled_text
    from cloudgpu.control.jobs.cancel import cancel
    from cloudgpu.control.jobs.listing import find

    session = open_here()
    job = find(session, name)
    if job.outcome is None:
        confirm(f"Cancel {job.name}? Its command is ended.", yes=yes)
    document = cancel(session, job.id, os.environ)
    emit(output, document, cancelled_text(document, session.clock()))
