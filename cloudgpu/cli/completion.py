"""Shell completion of verbs and machine names, without importing the verbs or asking a provider."""

from __future__ import annotations

import os
from typing import Any


def verbs(ctx: Any, incomplete: str, table: dict[str, str]) -> list[Any]:
    """Return the verbs that begin with `incomplete` as completion items of the parser."""
    from typer._click.shell_completion import CompletionItem  # the parser's own class: typer re-exports it nowhere

    del ctx
    return [CompletionItem(verb, help=summary) for verb, summary in table.items() if verb.startswith(incomplete)]


def machine_names(incomplete: str) -> list[str]:
    """Return the names of living machines in the ledger; nothing when it cannot be read."""
    from cloudgpu.control.outage.opening import open_session
    from cloudgpu.control.session.session import living
    from cloudgpu.errors import CloudgpuError

    try:
        rows = living(open_session(os.environ).ledger.machines())
    except CloudgpuError:
        return []
    return [row.name for row in rows if row.name.startswith(incomplete)]


def machine_paths(incomplete: str) -> list[str]:
    """Return `NAME:` for living machines, for the two sides of `cp`."""
    return [f"{name}:" for name in machine_names(incomplete)]
