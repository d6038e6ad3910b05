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
    change = document(retirement, forgotten_at)
    emit(output, change, _forget_text(change, retirement))


def _retirement_text(document: ForgetDocument) -> str:
    subject = f"account {document['account']} ({document['provider']})"
    subject = subject if document["host"] is None else f"host {document['host']} of {subject}"
    lines = [f"Forgets {subject}", f"  machines in the ledger: {_machine_counts(document)}"]
    lines += [
        f"  may still run there: {machine['name']} ({machine['state']} when last seen), {machine['account']}"
        for machine in document["lost"]
    ]
    if document["lost"]:
        lines.append("  nothing is sent to them: the ledger records them as gone, and counts no cost from now on")
    if document["host"] is None:
        lines.append("  kept disks, images and volumes: none")
    lines += _config_lines(document)
    lines.append("  from then on: it is no longer queried, and its costs stay in the ledger")
    return "\n".join(lines) + "\n"


def _machine_counts(document: ForgetDocument) -> str:
    count, last_ended_at = document["machines"], document["last_ended"]
    ended_text = "all ended" if not document["lost"] else f"{count - len(document['lost'])} ended"
    return f"{count}, {ended_text}, the last at {last_ended_at}" if last_ended_at else str(count)


def _forget_text(document: ForgetDocument, retirement: Retirement) -> str:
    name = document["account"]
    if document["host"] is not None:
        lost_names = ", ".join(machine["name"] for machine in document["lost"])
        message = f"Host {document['host']} is forgotten."
        return f"{message} These are recorded as gone: {lost_names}." if lost_names else message
    if retirement.forgotten_at:
        return f"Account {name} was forgotten at {document['forgotten_at']}. Nothing was done."
    launch_hint = f", or launch there (--provider {name})" if name == retirement.provider else ""
    return f"Account {name} is removed and no longer queried. To use it again, add [accounts.{name}]{launch_hint}."


def rename_place(old_name: str, new_name: str, *, yes: bool, output: Format) -> None:
    """Show what will be done, ask once, record the new name, and say so."""
    from cloudgpu.control.setup.rename_account import document, plan, rename

    session = open_session()
    planned = plan(session, os.environ, old_name, new_name)
    change = document(planned)
    sys.stderr.write(_rename_text(change, old_name))
    confirm(f"Rename {old_name} to {new_name}?", yes=yes, why="This renames an account or a host")
    rename(session, planned)
    machines = ", ".join(change["machines"])
    emit(output, change, f"{old_name} is called {new_name} now." + (f" Found there: {machines}." if machines else ""))


def _rename_text(document: RenameDocument, old_name: str) -> str:
    subject = (
        f"account {old_name}"
        if document["host"] is None
        else f"host {document['host']} of account {document['account']}"
    )
    machines = ", ".join(document["machines"]) or "none that runs or is kept"
    lines = [f"Renames {subject} to {document['new']}", f"  its machines: {machines}", *_config_lines(document)]
    lines += [f"  not changed: {note}" for note in document["notes"]]
    lines.append("  earlier costs keep the old name")
    return "\n".join(lines) + "\n"


def _config_lines(document: ForgetDocument | RenameDocument) -> list[str]:
    """Return which lines of config.toml change, below its path; none if it does not change."""
    if not document["file"]:
        return []
    return [f"  {document['file']}", *(f"    {line}" for line in document["diff"][2:] if not line.startswith("@@"))]
