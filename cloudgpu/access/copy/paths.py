"""Parses the arguments of `cp`: which side is the machine, and the paths on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cloudgpu.core.values.naming import NAME, NAME_RULE
from cloudgpu.errors import InvalidRequest

EXAMPLE = "For example: cloudgpu cp data.csv NAME:data/, or: cloudgpu cp NAME:results ."


@dataclass(frozen=True, slots=True)
class CopyPaths:
    """Paths to copy and where to. `upload`: the sources are here and the destination on `machine`, else turned round.

    Paths on the machine are relative to its home, `.` for the home itself.
    """

    machine: str
    upload: bool
    sources: tuple[str, ...]
    destination: str


def parse_copy_paths(sources: Sequence[str], destination: str) -> CopyPaths:
    """Return what `SOURCE... DESTINATION` means. As with scp, a colon before the first slash names a machine.

    Raises InvalidRequest unless exactly one side is one machine.
    """
    if not sources:
        raise InvalidRequest("There is nothing to copy.", field="SOURCE", value=None, next=EXAMPLE)
    local_sources = [source for source in sources if _machine(source) is None]
    target = _machine(destination)
    if target is not None:
        if len(local_sources) < len(sources):
            raise _both_sides(next(source for source in sources if source not in local_sources))
        return CopyPaths(target, True, tuple(sources), _remote_path(destination, "DESTINATION"))  # noqa: FBT003
    machines = {_machine(source) for source in sources}
    machine = machines.pop()
    if machines or machine is None:
        raise _no_machine(sources, destination) if len(local_sources) == len(sources) else _mixed(sources)
    return CopyPaths(machine, False, tuple(_remote_path(source, "SOURCE") for source in sources), destination)  # noqa: FBT003


def _machine(typed: str) -> str | None:
    name, colon, _ = typed.partition(":")
    if not colon or "/" in name:
        return None
    if NAME.fullmatch(name):
        return name
    raise InvalidRequest(
        f"{name!r} before the colon is not a machine's name: {NAME_RULE}.",
        field="NAME",
        value=name,
        next=f"For a local file with a colon in its name, write ./{typed}",
    )


def _remote_path(typed: str, field: str) -> str:
    """Return the path on the machine; SFTP starts in the home, so `~` needs no shell."""
    path = typed.partition(":")[2]
    if path in ("", "~", "~/"):
        return "."
    if path.startswith("~/"):
        return path.lstrip("~").lstrip("/") or "."
    if path.startswith("~"):
        raise InvalidRequest(
            f"{path} is another user's home directory on the machine, which is not known here.",
            field=field,
            value=typed,
            next="Write the full path.",
        )
    return path


def _both_sides(source: str) -> InvalidRequest:
    return InvalidRequest(
        "Both sides are on machines; one of them must be on this computer.",
        field="SOURCE",
        value=source,
        next="Copy to a local directory first, then from there to the machine.",
    )


def _no_machine(sources: Sequence[str], destination: str) -> InvalidRequest:
    return InvalidRequest(
        f"Neither {', '.join(sources)} nor {destination} is on a machine.",
        field="DESTINATION",
        value=destination,
        next=f"Put the machine's name and a colon before one side. {EXAMPLE}",
    )


def _mixed(sources: Sequence[str]) -> InvalidRequest:
    return InvalidRequest(
        "The sources are on different machines.", field="SOURCE", value=" ".join(sources), next=EXAMPLE
    )
