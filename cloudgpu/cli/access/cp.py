"""`cloudgpu cp`: files to or from a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli import progress
from cloudgpu.cli.common import Format, Output, emit, open_session, tell
from cloudgpu.core.values.printable import printable
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.access.copy.copy import Copied


MAX_ERRORS_SHOWN = 10


def _complete_path(incomplete: str) -> list[str]:
    from cloudgpu.cli.completion import machine_paths

    return machine_paths(incomplete)


def command(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE... DESTINATION", help="NAME:PATH on one side.", autocompletion=_complete_path),
    ],
    *,
    output: Output = Format.TEXT,
) -> None:
    """Copy files or directories to a machine, or from it. One side is NAME:PATH, relative to the home directory there.

    Directories need no flag; permissions and times are preserved. A file gets its final name only when it is complete.
    Exit code 2 if a path could not be copied; the others are copied.
    """
    from cloudgpu.access.copy.copy import copy, machine_of
    from cloudgpu.control.access.reach import connected_to
    from cloudgpu.control.api.machines import copy_document

    if len(paths) < 2:  # noqa: PLR2004  (a source and a destination)
        raise InvalidRequest(
            "There is no destination.",
            field="DESTINATION",
            value=printable(paths[0]),
            next="For example: cloudgpu cp data.csv NAME:",
        )
    *sources, destination = paths
    name = machine_of(sources, destination)
    session = open_session()
    with connected_to(session, session.find(name)) as connection:
        progress.begin("copying")
        copied = copy(connection, sources, destination, progress=progress.Transfer().show)
    for path in copied.skipped:
        tell(f"{path} was left out: it is neither a file nor a directory, or a link that leads nowhere")
    files_text = "1 file" if copied.files == 1 else f"{copied.files:,} files"
    emit(output, copy_document(copied), f"{files_text}, {copied.bytes:,} bytes")
    _tell_failed(copied)


def _tell_failed(copied: Copied) -> None:
    """Say what could not be copied, and leave with the exit code of that."""
    for error in copied.failed[:MAX_ERRORS_SHOWN]:
        tell(f"error: {error.message}")
    if len(copied.failed) > MAX_ERRORS_SHOWN:
        tell(f"error: {len(copied.failed) - MAX_ERRORS_SHOWN:,} more were not copied (all of them: -o json)")
    if copied.failed:
        raise typer.Exit(InvalidRequest.exit_code)
