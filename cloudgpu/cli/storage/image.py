"""`cloudgpu image`: images of machines that are kept by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cloudgpu.cli.common import Format, MaybeName, Output, Yes, confirm, emit, open_session
from cloudgpu.core.model.machine import Machine

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.storage import NamedResource


Action = Literal["save", "ls", "rm"]


def command(
    action: Annotated[
        Action,
        typer.Argument(metavar="save|ls|rm", help="save: of a machine; ls: list them; rm: remove one."),
    ],
    name: MaybeName = None,
    *,
    image: Annotated[str | None, typer.Option("--name", metavar="IMG", help="save: the image's name.")] = None,
    no_restart: Annotated[
        bool, typer.Option("--no-restart", help="save: do not restart it; files being written may be damaged.")
    ] = False,
    region: Annotated[str | None, typer.Option(metavar="NAME", help="rm: the one in this region.")] = None,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Save a machine as an image under a name, list images, or remove one.

    Launch a machine from an image with cloudgpu up --image IMG: everything on the disk is there again. An image costs
    money until you remove it.

    `image save` restarts a running machine, so that the image is complete. On Google Cloud and Azure the machine keeps
    running, and its image is as if the power had been cut: stop the machine first for a complete one. Exit code 8 if an
    account or region did not answer.
    """
    session = open_session()
    if action == "ls":
        from cloudgpu.cli.storage.retained import print_named_resources

        print_named_resources(session, "image", output)
    elif action == "rm":
        from cloudgpu.cli.storage.retained import remove_named_resource

        remove_named_resource(session, "image", name, region, yes=yes, output=output)
    else:
        _save(session, name, image, restart=not no_restart, yes=yes, output=output)


_CRASH_CONSISTENT_NOTE = (
    "The machine keeps running, so files being written may be damaged; stop it first for a complete image"
)


def _save(session: Session, name: str | None, image: str | None, *, restart: bool, yes: bool, output: Format) -> None:
    from cloudgpu.control.inventory.sync_some import refresh_or_raise
    from cloudgpu.control.resources.named import named_resource_document, save_image
    from cloudgpu.control.team.authorization import check_right

    machine = session.find(name)
    check_right(session, machine, "save an image of")
    if machine.state != "running":  # by the ledger: it may run since, and would be restarted
        machine = refresh_or_raise(session, machine)
    keeps_running = machine.state == "running" and getattr(session.provider_of(machine), "saves_running", False)
    if keeps_running:
        confirm(f"Save an image of {machine.name}? {_CRASH_CONSISTENT_NOTE}.", yes=yes)
    elif machine.state == "running" and restart:
        confirm(f"Save an image of {machine.name}? It restarts: what runs on it ends.", yes=yes)
    else:
        confirm(f"Save an image of {machine.name}? It costs money until it is removed.", yes=yes)
    document = named_resource_document(save_image(session, machine, image, restart=restart))
    emit(output, document, _answer_text(document, machine) + (f"\n{_CRASH_CONSISTENT_NOTE}." if keeps_running else ""))


def _answer_text(resource: NamedResource, machine: Machine) -> str:
    from cloudgpu.cli.storage.retained import monthly

    return (
        f"The image {resource['name']} of {machine.name} is ready ({resource['size_gb']} GB, {monthly(resource)}).\n"
        f"  Launch from it: cloudgpu up --provider {resource['provider']} --image {resource['name']}\n"
        f"  Remove it:      cloudgpu image rm {resource['name']}"
    )
