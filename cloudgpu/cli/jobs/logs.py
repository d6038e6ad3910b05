"""`cloudgpu logs`: what a job's command has written."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import datetime
from typing import Annotated

import typer

from cloudgpu.cli import progress
from cloudgpu.cli.common import open_session


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job's name, key or id.")],
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the command is over.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only what was written since, like 10m or a time.")
    ] = None,
) -> None:
    """Print what a job's command has written: its stdout on stdout, its stderr on stderr.

    While the job runs it is read from its machine; Ctrl-C ends only the reading. Later, and while the machine does not
    answer, it is the copy on this computer, which stays when the job is over.

    --since goes by the machine's clock, to the second.
    """
    from cloudgpu.control.jobs.listing import find
    from cloudgpu.control.jobs.logs import logs

    session = open_session()
    job = find(session, name)
    since_at = None if since is None else _parse_time(since, session.clock())
    progress.end()
    logs(session, job, sys.stdout.buffer, sys.stderr.buffer, follow=follow, since=since_at)


def _parse_time(text: str, now: datetime) -> datetime:
    """Return the time that a duration before now, or a time with its zone, names."""
    from cloudgpu.core.values.times import from_iso, parse_duration
    from cloudgpu.errors import InvalidRequest

    with suppress(ValueError, OverflowError):
        return now - parse_duration(text)
    with suppress(ValueError):
        return from_iso(text)
    raise InvalidRequest(
        f"{text!r} is neither a duration nor a time with its zone.",
        field="--since",
        value=text,
        next="Write it like 10m, or like 2026-11-20T19:00+01:00.",
    )
