"""`cloudgpu cp`: files to or from a machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, Output, emit, open_here, tell
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable


WORTH_SHOWING = 1_000_000  # bytes: less is there before it could be read


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
    """Copy files or directories to a machine, or from it. One side is NAME:PATH, relative to the home there.

    A file appears under its final name only when it is whole.
    """
    from cloudgpu.access.copy import copy, machine_of
    from cloudgpu.control.documents import copied
    from cloudgpu.control.reach import reached

    if len(paths) < 2:  # noqa: PLR2004  (a source and a destination)
        raise InvalidRequest(
            "There is no destination.",
            field="DESTINATION",
            value=paths[0],
            next="For example: cloudgpu cp data.csv NAME:",
        )
    *sources, destination = paths
    name = machine_of(sources, destination)
    session = open_here()
    with reached(session, session.find(name)) as connection:
        done = copy(connection, sources, destination, progress=_progress() if output is Format.TEXT else None)
    for path in done.skipped:
        tell(f"{path} was left out: it is neither a file nor a directory, or a link that leads nowhere")
    files = "1 file" if done.files == 1 else f"{done.files:,} files"
    emit(output, copied(done), f"{files}, {done.bytes:,} bytes")


def _progress() -> Callable[[int, int], None] | None:
    """Return a callback that shows progress on a terminal, and None elsewhere."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        if total < WORTH_SHOWING:
            return
        sys.stderr.write(f"\r  {done / 1e6:,.1f} of {total / 1e6:,.1f} MB" + ("\n" if done >= total else ""))
        sys.stderr.flush()

    return show
