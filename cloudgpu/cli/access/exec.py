"""`cloudgpu exec`: a command on a machine."""

from __future__ import annotations

import sys
from itertools import takewhile
from typing import Annotated

import typer

from cloudgpu.cli import progress
from cloudgpu.cli.common import NO_NAME, MaybeName, open_session, with_no_name
from cloudgpu.errors import InvalidRequest

# Settings of the parser: options after NAME belong to the command that runs on the machine.
CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": True}

ALL_NODES = "--all-nodes"
OWN_OPTIONS = (ALL_NODES, "--tty", "--no-tty")


def order_arguments(args: list[str]) -> list[str]:
    """Return the arguments with NO_NAME where there is no NAME, and options of `exec` that follow it before it."""
    args = with_no_name(args)
    name_index = next((name_index for name_index, word in enumerate(args) if not word.startswith("-")), len(args))
    following = list(takewhile(OWN_OPTIONS.__contains__, args[name_index + 1 :]))
    return [
        *args[:name_index],
        *following,
        *args[name_index : name_index + 1],
        *args[name_index + 1 + len(following) :],
    ]


def command(
    name: MaybeName = None,
    argv: Annotated[list[str] | None, typer.Argument(metavar="-- CMD [ARG]...", help="The command.")] = None,
    *,
    tty: Annotated[
        bool | None, typer.Option("--tty/--no-tty", help="Use a terminal there; by default, if there is one here.")
    ] = None,
    all_nodes: Annotated[
        bool, typer.Option(ALL_NODES, help="Run it on every node of a cluster at once, without input.")
    ] = False,
) -> None:
    """Run a command on a machine: its stdin, stdout, stderr and exit status are the command's own.

    Without NAME, it is the only machine that runs: cloudgpu exec -- nvidia-smi. Exit code 255 if cloudgpu itself
    failed.

    A cluster's name means its node 0. With --all-nodes, each line has the name of its node, and the exit status is that
    of the node that failed first. Ctrl-C interrupts the command on all of them.
    """
    from cloudgpu.access.ssh.execute import run
    from cloudgpu.control.access.reach import connected_to

    name = None if name == NO_NAME else name
    argv = argv[1:] if argv and argv[0] == "--" else list(argv or [])
    if not argv:
        raise InvalidRequest(
            "There is no command to run.",
            field="CMD",
            value=None,
            next=f"For example: cloudgpu exec {name or 'NAME'} -- nvidia-smi",
        )
    session = open_session()
    if all_nodes:
        from cloudgpu.cli.clusters.exec import run_on_all

        if tty:
            raise InvalidRequest(
                "--tty is about one machine: the nodes of a cluster share no terminal.",
                field="--tty",
                value=name,
                next="Leave out --tty, or --all-nodes.",
            )
        machines = session.find_machine_or_nodes(name, running=True)
        progress.end()
        raise typer.Exit(run_on_all(session, machines, argv))
    with connected_to(session, session.find(name, running=True)) as connection:
        progress.end()
        status = run(
            connection, argv, stdin=sys.stdin.buffer, stdout=sys.stdout.buffer, stderr=sys.stderr.buffer, tty=tty
        )
    raise typer.Exit(status)
