"""`cloudgpu cancel`: end a job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, Output, Yes, confirm, emit, open_session

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.views.documents.jobs.jobs import CancelDocument


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job's name, key or id.")],
    *,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """End a job: its command is ended, its results come back, its machine ends. An existing machine stays.

    The command gets SIGTERM, and SIGKILL ten seconds later. If its machine does not answer now, whoever watches ends
    the job later. A job that is over keeps its state; if its machine still runs, that is ended: exit code 0.
    """
    from cloudgpu.control.jobs.cancel import cancel
    from cloudgpu.control.jobs.listing import find

    session = open_session()
    job = find(session, name)
    if job.outcome is None:
        confirm(f"Cancel {job.name}? Its command is ended.", yes=yes)
    document = cancel(session, job.id, os.environ)
    emit(output, document, cancelled_text(document, session.clock()))


def cancelled_text(document: CancelDocument, now: datetime) -> str:
    """Return what became of the request to end a job."""
    from cloudgpu.cli.jobs.text import ended_text, state_text
    from cloudgpu.cli.render import when

    job = document["job"]
    if document["was_over"]:
        if document["waits"] is not None:
            why = document["waits"].rstrip(".")
            return f"{job['name']} is over already: {state_text(job)}. It is not closed yet: {why}."
        machine_name = "NAME" if job["machine"] is None else job["machine"]["name"]
        kept_text = f" Its machine is kept until {when(job['kept_until'], now)}: cloudgpu down {machine_name} ends it."
        return f"{job['name']} is over already: {state_text(job)}.{kept_text if job['kept_until'] else ''}"
    if document["waits"] is not None:
        later_text = "It is ended by the next cloudgpu reap or watch that reaches it."
        return f"{job['name']} is to be cancelled, and is not over yet: {document['waits'].rstrip('.')}. {later_text}"
    return ended_text(job, now)
