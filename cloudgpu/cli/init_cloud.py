"""`cloudgpu init aws`: what will be made in the account, the question, and the making; `--remove` takes it away."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from cloudgpu.cli.common import Format, confirm, emit, tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudgpu.control.cloud_init import Preparation


def prepare(
    cloud: str,
    *,
    account: str | None,
    profile: str | None,
    regions: Sequence[str],
    remove: bool,
    yes: bool,
    output: Format,
) -> None:
    """Show what will be made or taken away, ask once, do it, and say what is there then."""
    from cloudgpu.control import cloud_init
    from cloudgpu.control.init import look

    found = look(os.environ)
    if remove:
        made = cloud_init.removal(found, cloud, account=account, profile=profile)
        changes = [part.what for part in made.present]
        _show(made, "takes away", changes)
    else:
        made = cloud_init.prepared(found, cloud, account=account, profile=profile, regions=regions)
        changes = [part.what for part in made.missing]
        _show(made, "makes", changes)
    if changes or made.draft.changed:
        confirm("Do it?", yes=yes, why="This changes your cloud account and config.toml")
        (cloud_init.remove if remove else cloud_init.make)(made)
    value = _value(made, changes, removed=remove)
    emit(output, value, _text(value))


def _show(made: Preparation, verb: str, changes: Sequence[str]) -> None:
    name = made.role.parts[0].name
    tell(f"{made.role.where} (account {made.account} of config.toml)")
    for what in changes:
        tell(f"{verb} the {what} {name}")
    for part in made.role.parts:
        if not part.ours:
            tell(f"left alone: the {part.what} {part.name}, which lacks our tag and is somebody else's")
    if not changes:
        tell(f"nothing to do there: the role {name} is {'there' if verb == 'makes' else 'not there'}")
    if verb == "makes":
        tell("With it a machine may write its own cloudgpu-last-active tag, and nothing else. It costs nothing.")
    shown = [line for line in made.draft.diff[2:] if not line.startswith("@@")]
    sys.stderr.write("".join(f"  {line}\n" for line in [f"{made.draft.found.home.config_file}:", *shown] if shown))


def _value(made: Preparation, changes: Sequence[str], *, removed: bool) -> dict[str, Any]:
    return {
        "cloud": made.kind,
        "account": made.account,
        "where": made.role.where,
        "role": made.role.parts[0].name,
        "made": [] if removed else list(changes),
        "removed": list(changes) if removed else [],
        "file": str(made.draft.found.home.config_file),
        "written": made.draft.changed,
    }


def _text(value: dict[str, Any]) -> str:
    name, kind = value["role"], value["cloud"]
    wrote = [f"Wrote {value['file']}"] if value["written"] else []
    if not value["made"] and not value["removed"]:
        return "\n".join([*wrote, f"Nothing {'else ' * bool(wrote)}to change."])
    if value["removed"]:
        left = f"Left: [accounts.{value['account']}] in config.toml; machines, disks, images, keys and security groups"
        return "\n".join([*wrote, f"The role {name} is gone.", f"{left} (cloudgpu ls --refresh shows what costs)."])
    return "\n".join([*wrote, f"The role {name} is there.", f"Next: cloudgpu doctor --provider {kind}"])
