"""`cloudgpu init --rename OLD NEW`: what the new name means, the question, and the line in the ledger."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from cloudgpu.cli.common import Format, confirm, emit, open_here

if TYPE_CHECKING:
    from cloudgpu.views.documents.setup.init import RenameDocument


def rename_place(old: str, new: str, *, yes: bool, output: Format) -> None:
    """Show what will be done, ask once, write the new name down, and say so."""
    from cloudgpu.control.setup.rename_account import document, plan, rename

    session = open_here()
    found = plan(session, os.environ, old, new)
    value = document(found)
    sys.stderr.write(_shown(value, old))
    confirm(f"Rename {old} to {new}?", yes=yes, why="This renames an account or a host")
    rename(session, found)
    machines = ", ".join(value["machines"])
    emit(output, value, f"{old} is called {new} now." + (f" Found there: {machines}." if machines else ""))


def _shown(value: RenameDocument, old: str) -> str:
    what = f"account {old}" if value["host"] is None else f"host {value['host']} of account {value['account']}"
    machines = ", ".join(value["machines"]) or "none that runs or is kept"
    lines = [f"Renames {what} to {value['new']}", f"  its machines: {machines}"]
    if value["file"]:
        lines.append(f"  {value['file']}")
        lines += [f"    {line}" for line in value["diff"][2:] if not line.startswith("@@")]
    lines += [f"  not changed: {note}" for note in value["notes"]]
    lines.append("  earlier costs keep the old name")
    return "\n".join(lines) + "\n"
