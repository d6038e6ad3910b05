"""`cloudgpu ssh`: the system's client with our key, pinned host key and options."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from cloudgpu.cli import progress
from cloudgpu.cli.common import NO_NAME, MaybeName, open_session, with_no_name

# Settings of the parser: options after NAME belong to ssh.
CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": True}

order_arguments = with_no_name  # the parser calls it with what was typed after the verb


def command(
    name: MaybeName = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Passed to ssh after the host, such as a command.")
    ] = None,
) -> None:
    """Open a shell on a machine with the system's ssh, or run what follows the name there.

    Without NAME, it is the only machine that runs. Put two dashes before a command then: cloudgpu ssh -- nvidia-smi.

    To use plain ssh, add this line to ~/.ssh/config: Include CLOUDGPU_HOME/ssh_config
    """
    from cloudgpu.access.ssh.client_files import ssh_command
    from cloudgpu.control.access.reach import machine_with_address
    from cloudgpu.control.inventory.local_files import clean_up_local_files

    session = open_session()
    machine = machine_with_address(session, session.find(None if name == NO_NAME else name, running=True))
    clean_up_local_files(session)
    ssh_arguments = list(arguments or [])
    argv = ssh_command(
        session.home.ssh_config, machine.name, ssh_arguments[1:] if ssh_arguments[:1] == ["--"] else ssh_arguments
    )
    progress.end()
    os.execv(argv[0], argv)  # noqa: S606  (argv comes from ssh_command; no shell)
