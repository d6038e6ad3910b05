"""`cloudgpu volume`: data disks that outlive machines."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from cloudgpu.cli.common import Format, Output, Yes, open_session

Action = Literal["ls", "rm"]


def command(
    action: Annotated[Action, typer.Argument(metavar="ls|rm", help="ls: list them; rm: remove one, with its data.")],
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The volume's name, for rm.")] = None,
    *,
    region: Annotated[str | None, typer.Option(metavar="NAME", help="rm: the one in this region.")] = None,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """List the data volumes that `up --volume` made, or remove one with all its data.

    A volume stays when its machine ends, and costs money until you remove it. Exit code 8 if an account or region did
    not answer.
    """
    from cloudgpu.cli.storage.retained import print_named_resources, remove_named_resource

    session = open_session()
    if action == "ls":
        print_named_resources(session, "volume", output)
    else:
        remove_named_resource(session, "volume", name, region, yes=yes, output=output)
