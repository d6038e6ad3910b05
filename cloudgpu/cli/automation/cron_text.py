"""The answers of `cron show` and `cron test` as text."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from cloudgpu.cli.render import ago, labelled_lines, when

if TYPE_CHECKING:
    from cloudgpu.views.documents.automation.cron import CredentialStatus, CronDocument, CronTestDocument, LastRun


def show_text(document: CronDocument, now: datetime) -> str:
    """Return what is installed, and when a run last succeeded."""
    lines = []
    for job in document["installed"]:
        lines += [f"In {job['table']}:", *(f"  {cron_line}" for cron_line in job["lines"]), ""]
    if not lines:
        lines = ["Nothing is installed for this home. To reap every ten minutes: cloudgpu cron install", ""]
    for stale_line in document["stale"]:
        lines += [
            f"In {stale_line['table']}, {stale_line['why']}:",
            f"  {stale_line['line']}",
            f"  {stale_line['next']}",
            "",
        ]
    if document["unanswered"]:
        return "\n".join([*lines, f"The time of the last run is not known. {document['unanswered'][0]['why']}"])
    return "\n".join([*lines, last_run_text(document["last_run"], now)])


def last_run_text(last_run: LastRun | None, now: datetime) -> str:
    """Return when the last run was, in one line."""
    if last_run is None:
        return "The reaper has not run yet."
    host_text = f" on {last_run['host']}" if last_run["host"] else ""
    if last_run["ok"]:
        full_run_ago = ago(last_run["full_run_at"], now)
        return f"The last run succeeded {ago(last_run['at'], now)}{host_text}; the last full run: {full_run_ago}."
    succeeded_ago = ago(last_run["succeeded_at"], now)
    return f"The last run failed {ago(last_run['at'], now)}{host_text}; the last successful one: {succeeded_ago}."


def cron_test_text(document: CronTestDocument, now: datetime) -> str:
    """Return what was run and how, what it would do, and how long each credential lasts."""
    lines = [
        "In cron's own environment, by /bin/sh:",
        *(f"  {name}={value}" for name, value in document["environment"].items()),
        f"  {document['command']}",
        "",
        _result_text(document),
    ]
    if document["planned_actions"]:
        lines += ["", *document["planned_actions"]]
    if document["credentials"]:
        lines += [
            "",
            labelled_lines(
                (credential["account"], _lifetime_text(credential, now)) for credential in document["credentials"]
            ),
        ]
    return "\n".join(lines)


def _result_text(document: CronTestDocument) -> str:
    if document["error"] is not None:
        next_step = f" {document['error']['next']}" if document["error"]["next"] else ""
        return f"It failed with {document['exit_code']}: {document['error']['message']}{next_step}"
    partial_text = (
        "" if not document["exit_code"] else f" (exit code {document['exit_code']}: a part of the answer is missing)"
    )
    return f"It runs{partial_text}. Until {document['morning'][:16].replace('T', ' ')} UTC it would do this:"


def _lifetime_text(credential: CredentialStatus, now: datetime) -> str:
    until = when(credential["until"], now) if credential["until"] else None
    if credential["lasts_until_morning"]:
        return f"outlives the night: {credential['what']}" + (f"; it ends {until}" if until else "")
    if credential["lasts_until_morning"] is None:
        return f"how long it lasts is not known: {credential['what']}" + (f"; {until} at the latest" if until else "")
    return (
        f"ends {until}, before the morning: {credential['what']}"
        if until
        else f"does not outlive the night: {credential['what']}"
    )
