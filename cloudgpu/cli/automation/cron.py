"""`cloudgpu cron`: a run every ten minutes from the user's crontab or a systemd timer, shown before it is written."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cloudgpu.cli.automation.cron_text import cron_test_text, show_text
from cloudgpu.cli.common import Format, Output, Yes, confirm, emit, open_session
from cloudgpu.errors import InvalidRequest, ProviderUnavailable

if TYPE_CHECKING:
    from cloudgpu.control.scheduler.cron import CronChange
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.automation.cron import CronChangeDocument


Action = Literal["install", "show", "remove", "test"]


def command(
    action: Annotated[
        Action,
        typer.Argument(
            metavar="install|show|remove|test",
            help="install: write it; show: what is there; remove: take it out; test: run it as cron would, dry.",
        ),
    ],
    *,
    every: Annotated[str | None, typer.Option("--every", metavar="TIME", help="install: how often. (10m)")] = None,
    nightly: Annotated[bool, typer.Option("--nightly", help="install: only the nightly full run.")] = False,
    crontab: Annotated[bool, typer.Option("--crontab", help="Use the crontab, even if there is systemd.")] = False,
    systemd: Annotated[bool, typer.Option("--systemd", help="Use a systemd timer of this user.")] = False,
    yes: Yes = False,
    in_cron: Annotated[bool, typer.Option("--inside", hidden=True)] = False,  # the process that `test` starts
    output: Output = Format.TEXT,
) -> None:
    """Have this computer reap every ten minutes, with a full run and a summary each night.

    `install` shows the lines, asks, and writes them between two marks; the rest of the crontab stays as it is. A
    second install changes nothing. A computer that slept catches up with its next run.

    `test` makes a dry run in cron's own environment, and checks that the credentials last through the night: exit
    code 6 if they do not.
    """
    _check_options(action, {"--every": every, "--nightly": nightly}, crontab=crontab, systemd=systemd)
    session = open_session(warn_overdue=False)
    scheduler = "crontab" if crontab else "systemd" if systemd else None
    if action == "install":
        from cloudgpu.control.inputs.launch_request import parse_optional_duration
        from cloudgpu.control.scheduler.cron import plan_install

        interval = parse_optional_duration(every, "--every")
        _confirm_and_apply(
            session, plan_install(session, os.environ, every=interval, nightly=nightly, kind=scheduler), output, yes=yes
        )
    elif action == "remove":
        from cloudgpu.control.scheduler.cron import plan_remove

        _confirm_and_apply(session, plan_remove(session, os.environ, kind=scheduler), output, yes=yes)
    elif action == "show":
        _show(session, output)
    else:
        _test(session, output, in_cron=in_cron)


def _check_options(action: Action, install_options: dict[str, Any], *, crontab: bool, systemd: bool) -> None:
    """Refuse what does not belong to the action, so that nothing is silently left out."""
    refused = [] if action == "install" else [option for option, value in install_options.items() if value]
    if refused:
        raise InvalidRequest(
            f"{refused[0]} belongs to cron install, not to cron {action}.",
            field=refused[0],
            value=None,
            next="Run: cloudgpu cron --help",
        )
    if crontab and systemd:
        raise InvalidRequest(
            "One job is enough: --crontab or --systemd.", field="--systemd", value=None, next="Leave one of them out."
        )
    if (crontab or systemd) and action in ("show", "test"):
        message = f"cron {action} looks at both places."
        option = "--crontab" if crontab else "--systemd"
        raise InvalidRequest(message, field=option, value=None, next=f"Run: cloudgpu cron {action}")


def _confirm_and_apply(session: Session, change: CronChange | None, output: Format, *, yes: bool) -> None:
    from cloudgpu.control.scheduler.cron import apply_change, change_document

    if change is None:
        emit(output, {"table": None, "changed": False, "lines": [], "replaced": [], "notes": []},
             "Nothing of cloudgpu is installed for this home.")  # fmt: skip
        return
    document = change_document(change, os.environ)
    if document["changed"]:
        place = {"crontab": "your crontab", "systemd": "systemd's timers of yours"}[change.table.kind]
        action = "Take this out of" if change.planned_text is None else "Write this into"
        lines = document["lines"] or (change.installed_text or "").rstrip("\n").split("\n")  # those that are taken out
        sys.stderr.write("".join(f"  {line}\n" for line in lines))
        confirm(f"{action} {place}?", yes=yes, why=f"This changes {place}")
        document = apply_change(session, change, os.environ)
    emit(output, document, _change_text(document, change))


def _change_text(document: CronChangeDocument, change: CronChange) -> str:
    if change.planned_text is None:
        message = f"Removed from {document['table']}: the reaper no longer runs by itself."
    elif document["changed"]:
        message = f"Installed in {document['table']}. To see what it would do tonight: cloudgpu cron test"
    else:
        message = f"Already installed in {document['table']} with these settings: nothing was changed."
    return "\n".join([message, *document["notes"]])


def _show(session: Session, output: Format) -> None:
    from cloudgpu.control.scheduler.cron import show_cron

    document = show_cron(session, os.environ)
    emit(output, document, show_text(document, session.clock()))
    if document["unanswered"]:
        raise typer.Exit(ProviderUnavailable.exit_code)


def _test(session: Session, output: Format, *, in_cron: bool) -> None:
    from cloudgpu.control.scheduler.cron_test import cron_test_document, exit_code, inner_report

    if in_cron:  # in cron's environment: for the process that asks, not for people
        emit(Format.JSON, inner_report(session), "")
        return

    document = cron_test_document(session, os.environ)
    emit(output, document, cron_test_text(document, session.clock()))
    code = exit_code(document)
    if code:
        raise typer.Exit(code)
