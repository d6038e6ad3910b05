"""Which project a machine was launched in, kept beside it: another project proves nothing about its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.errors import AuthFailed

if TYPE_CHECKING:
    from pathlib import Path

    from cloudgpu.providers.gcp.client import Gcp


def remember(gcp: Gcp, name: str, project: str) -> None:
    """Write down in which project a machine was launched."""
    file = _file(gcp, name)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_text(f"{project}\n", encoding="ascii")


def check(gcp: Gcp, name: str) -> None:
    """Raise AuthFailed where the account's project is another one now than the machine was launched in.

    Google answers there as for a machine that there is not. No call; a machine that was not launched from here is not
    known.
    """
    try:
        project = _file(gcp, name).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return
    if gcp.project != project:
        raise AuthFailed(
            f"{name} was launched in the project {project}, and the account {gcp.account} is of {gcp.project} now: "
            "whether it still runs is not known.",
            field="project",
            value=gcp.project,
            next=f"Use the project {project} again, or give {gcp.project} an account of its own in config.toml.",
        )


def _file(gcp: Gcp, name: str) -> Path:
    return gcp.home / "owners" / name
