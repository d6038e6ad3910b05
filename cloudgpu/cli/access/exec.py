"""`cloudgpu exec`: a command on a machine."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cloudgpu.cli import progress
from cloudgpu.cli.common import MaybeName, open_here, without_name
from cloudgpu.errors import InvalidRequest

CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": True}

arranged = without_name


def command(
    name: MaybeName = None,
    argv: Annotated[list[str] | None, typer.Argument(metavar="-- CMD [ARG]...", help="The command.")] = None,
    *,
    tty: Annotated[
        bool | None, typer.Option("--tty/--no-tty", help="Use a terminal there; by default, if there is one here.")
    ] = None,
) -> None:
    """Run a command on a machine: its stdin, stdout, stderr and exit status are the command's own.

    Without NAME, it is the only machine that runs: cloudgpu exec -- nvidia-smi. Exit code 255 if cloudgpu itself
    failed.
    """
    from cloudgpu.access.ssh.execute import run
    from cloudgpu.control.access.reach import reached

    argv = argv[1:] if argv and argv[0] == "--" else list(argv or [])
    if not argv:
        raise InvalidRequest(
            "There is no command to run.",
            field="CMD",
            value=None,
            next=f"For example: cloudgpu exec {name or 'NAME'} -- nvidia-smi",
        )
    session = open_here()
    with reached(session, session.find(name or None, running=True)) as connection:
        progress.end()
        status = run(
            connection, argv, stdin=sys.stdin.buffer, stdout=sys.stdout.buffer, stderr=sys.stderr.buffer, tty=tty
        )
    raise typer.Exit(status)
