"""The answers of `cron show` and `cron test` as text."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from cloudgpu.cli.render import ago, labelled_lines, when

if TYPE_CHECKING:
    from cloudgpu.views.documents.automation.cron import CredentialStatus, CronDocument, CronTestDocument, LastRun


def show_text(value: CronDocument, now: datetime) -> str:
    """Return what is installed, and when a run last succeeded."""
    lines = []
    for job in value["installed"]:
        lines += [f"In {job['table']}:", *(f"  {text}" for text in job["lines"]), ""]
    if not lines:
        lines = ["Nothing is installed for this home. To reap every ten minutes: cloudgpu cron install", ""]
    for line in value["stale"]:
        lines += [f"In {line['table']}, {line['why']}:", f"  {line['line']}", f"  {line['next']}", ""]
    if value["unanswered"]:
        return "\n".join([*lines, f"The time of the last run is not known. {value['unanswered'][0]['why']}"])
    return "\n".join([*lines, last_run_text(value["last_run"], now)])


def last_run_text(last: LastRun | None, now: datetime) -> str:
    """Return when the last run was, in one line."""
    if last is None:
        return "The reaper has not run yet."
    where = f" on {last['host']}" if last["host"] else ""
    if last["ok"]:
        full_run = ago(last["full_run_at"], now)
        return f"The last run succeeded {ago(last['at'], now)}{where}; the last full run: {full_run}."
    succeeded = ago(last["succeeded_at"], now)
    return f"The last run failed {ago(last['at'], now)}{where}; the last successful one: {succeeded}."


def cron_test_text(value: CronTestDocument, now: datetime) -> str:
    """Return what was run and how, what it would do, and how long each credential lasts."""
    lines = [
        "In cron's own environment, by /bin/sh:",
        *(f"  {name}={text}" for name, text in value["environment"].items()),
        f"  {value['command']}",
        "",
        _result_text(value),
    ]
    if value["planned_actions"]:
        lines += ["", *value["planned_actions"]]
    if value["credentials"]:
        lines += ["", labelled_lines((one["account"], _lifetime_text(one, now)) for one in value["credentials"])]
    return "\n".join(lines)


def _result_text(value: CronTestDocument) -> str:
    if value["error"] is not None:
        next_step = f" {value['error']['next']}" if value["error"]["next"] else ""
        return f"It failed with {value['exit_code']}: {value['error']['message']}{next_step}"
    partial_text = (
        "" if not value["exit_code"] else f" (exit code {value['exit_code']}: a part of the answer is missing)"
    )
    return f"It runs{partial_text}. Until {value['morning'][:16].replace('T', ' ')} UTC it would do this:"


def _lifetime_text(one: CredentialStatus, now: datetime) -> str:
    until = when(one["until"], now) if one["until"] else None
    if one["lasts_until_morning"]:
        return f"outlives the night: {one['what']}" + (f"; it ends {until}" if until else "")
    if one["lasts_until_morning"] is None:
        return f"how long it lasts is not known: {one['what']}" + (f"; {until} at the latest" if until else "")
    return f"ends {until}, before the morning: {one['what']}" if until else f"does not outlive the night: {one['what']}"
