"""`cloudgpu init --forget ACCOUNT`: what retiring it means, the question, and the line in the ledger."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from cloudgpu.cli.common import Format, confirm, emit, open_here

if TYPE_CHECKING:
    from cloudgpu.control.forget import Farewell


def retire(account: str, *, yes: bool, output: Format) -> None:
    """Show what will be done, ask once, retire the account, and say so."""
    from cloudgpu.control.forget import document, forget, plan

    session = open_here()
    farewell = plan(session, os.environ, account)
    at = farewell.forgotten
    if at is None:
        sys.stderr.write(_shown(document(farewell, None)))
        confirm(f"Forget account {account}?", yes=yes, why="This retires an account")
        at = forget(session, farewell)
    value = document(farewell, at)
    emit(output, value, _text(value, farewell))


def _shown(value: dict[str, Any]) -> str:
    lines = [
        f"Forgets account {value['account']} ({value['provider']})",
        f"  machines in the ledger: {_machines(value)}",
    ]
    lines.append("  kept disks, images and volumes: none")
    if value["file"]:
        lines.append(f"  {value['file']}")
        lines += [f"    {line}" for line in value["diff"][2:] if not line.startswith("@@")]
    lines.append("  from then on: no look asks it, and its bills stay in the ledger")
    return "\n".join(lines) + "\n"


def _machines(value: dict[str, Any]) -> str:
    count, last = value["machines"], value["last_ended"]
    return f"{count}, all ended, the last at {last}" if last else str(count)


def _text(value: dict[str, Any], farewell: Farewell) -> str:
    name = value["account"]
    if farewell.forgotten:
        return f"Account {name} was forgotten at {value['forgotten_at']}. Nothing was done."
    launch = f", or launch there (--provider {name})" if name == farewell.provider else ""
    return f"Account {name} is forgotten: no look asks it any more. To use it again, add [accounts.{name}]{launch}."
