"""`cloudgpu init --forget` and `--rename`: what changes for an account, the question, and the line in the ledger."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from cloudgpu.cli.common import Format, confirm, emit, open_session

if TYPE_CHECKING:
    from cloudgpu.control.setup.retire_account import Retirement
    from cloudgpu.views.documents.setup.init import ForgetDocument, RenameDocument


def retire(account: str, *, yes: bool, output: Format) -> None:
    """Show what will be done, ask once, retire the account, and say so."""
    from cloudgpu.control.setup.retire_account import document, forget, plan

    session = open_session()
    retirement = plan(session, os.environ, account)
    forgotten_at = retirement.forgotten_at
    if forgotten_at is None:
        sys.stderr.write(_retirement_text(document(retirement, None)))
        confirm(f"Forget {account}?", yes=yes, why="This retires an account or a host")
        forgotten_at = forget(session, retirement)
    value = document(retirement, forgotten_at)
    emit(output, value, _forget_text(value, retirement))


def _retirement_text(value: ForgetDocument) -> str:
    what = f"account {value['account']} ({value['provider']})"
    what = what if value["host"] is None else f"host {value['host']} of {what}"
    lines = [f"Forgets {what}", f"  machines in the ledger: {_machine_counts(value)}"]
    lines += [
        f"  may still run there: {one['name']} ({one['state']} when last seen), {one['where']}" for one in value["lost"]
    ]
    if value["lost"]:
        lines.append("  nothing is sent to them: the ledger records them as gone, and counts no cost from now on")
    if value["host"] is None:
        lines.append("  kept disks, images and volumes: none")
    lines += _config_lines(value)
    lines.append("  from then on: it is no longer queried, and its costs stay in the ledger")
    return "\n".join(lines) + "\n"


def _machine_counts(value: ForgetDocument) -> str:
    count, last = value["machines"], value["last_ended"]
    ended = "all ended" if not value["lost"] else f"{count - len(value['lost'])} ended"
    return f"{count}, {ended}, the last at {last}" if last else str(count)


def _forget_text(value: ForgetDocument, retirement: Retirement) -> str:
    name = value["account"]
    if value["host"] is not None:
        lost = ", ".join(machine["name"] for machine in value["lost"])
        message = f"Host {value['host']} is forgotten."
        return f"{message} These are recorded as gone: {lost}." if lost else message
    if retirement.forgotten_at:
        return f"Account {name} was forgotten at {value['forgotten_at']}. Nothing was done."
    launch = f", or launch there (--provider {name})" if name == retirement.provider else ""
    return f"Account {name} is removed and no longer queried. To use it again, add [accounts.{name}]{launch}."


def rename_place(old: str, new: str, *, yes: bool, output: Format) -> None:
    """Show what will be done, ask once, record the new name, and say so."""
    from cloudgpu.control.setup.rename_account import document, plan, rename

    session = open_session()
    planned = plan(session, os.environ, old, new)
    value = document(planned)
    sys.stderr.write(_rename_text(value, old))
    confirm(f"Rename {old} to {new}?", yes=yes, why="This renames an account or a host")
    rename(session, planned)
    machines = ", ".join(value["machines"])
    emit(output, value, f"{old} is called {new} now." + (f" Found there: {machines}." if machines else ""))


def _rename_text(value: RenameDocument, old: str) -> str:
    what = f"account {old}" if value["host"] is None else f"host {value['host']} of account {value['account']}"
    machines = ", ".join(value["machines"]) or "none that runs or is kept"
    lines = [f"Renames {what} to {value['new']}", f"  its machines: {machines}", *_config_lines(value)]
    lines += [f"  not changed: {note}" for note in value["notes"]]
    lines.append("  earlier costs keep the old name")
    return "\n".join(lines) + "\n"


def _config_lines(value: ForgetDocument | RenameDocument) -> list[str]:
    """Return which lines of config.toml change, below its path; none if it does not change."""
    if not value["file"]:
        return []
    return [f"  {value['file']}", *(f"    {line}" for line in value["diff"][2:] if not line.startswith("@@"))]
