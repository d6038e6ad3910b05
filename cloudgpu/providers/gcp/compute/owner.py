"""Which project a machine was launched in, kept beside it: another project proves nothing about its end.

Nor about what else was made there: a project in which this account launched is named in every look from another one,
until a look into it has found nothing of this ledger any more.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cloudgpu.core.model.identity import Unanswered
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


def used(gcp: Gcp, project: str) -> None:
    """Write down that there may be things of this account in a project."""
    with suppress(OSError):  # a full disk, say: no reason to launch nothing
        _used(gcp).mkdir(mode=0o700, parents=True, exist_ok=True)
        (_used(gcp) / project).touch()


def emptied(gcp: Gcp) -> None:
    """Forget that there may be things in the account's project: a whole look has found none."""
    with suppress(OSError):
        (_used(gcp) / gcp.project).unlink(missing_ok=True)


def elsewhere(gcp: Gcp) -> tuple[Unanswered, ...]:
    """Return the account as silent where there may be things of it in another project than is asked. No call."""
    if not _used(gcp).is_dir():
        return ()
    others = sorted(file.name for file in _used(gcp).iterdir() if file.name != gcp.project)
    why = "it launched in the project {0}, and is of {1} now, where nothing is known of that; use {0} again to look"
    return tuple(Unanswered(gcp.account, why.format(one, gcp.project)) for one in others)


def _used(gcp: Gcp) -> Path:
    return gcp.home / "projects"


def _file(gcp: Gcp, name: str) -> Path:
    return gcp.home / "owners" / name
