"""`cloudgpu ssh`: the system's client with our key, pinned host key and options."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from cloudgpu.cli.common import Name, open_here

CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": True}


def command(
    name: Name,
    arguments: Annotated[list[str] | None, typer.Argument(help="Handed to ssh after the host: a command, say.")] = None,
) -> None:
    """Open a shell on a machine with the system's ssh, or run what follows the name there.

    The same works without cloudgpu after adding this to ~/.ssh/config:  Include CLOUDGPU_HOME/ssh_config
    """
    from cloudgpu.access.ssh.ssh_config import ssh_command
    from cloudgpu.control.access.reach import find_way
    from cloudgpu.control.inventory.local_files import clean_up_local_files

    session = open_here()
    row = find_way(session, session.find(name))
    clean_up_local_files(session)
    words = list(arguments or [])
    argv = ssh_command(session.home.ssh_config, row.name, words[1:] if words[:1] == ["--"] else words)
    os.execv(argv[0], argv)  # noqa: S606  (argv comes from ssh_command; no shell)
