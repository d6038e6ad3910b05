"""`cloudgpu watch`: reaper runs, budgets, alerts and prices from one process that stays."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli import interrupt
from cloudgpu.cli.common import Format, Output, emit, open_session
from cloudgpu.errors import InvalidRequest, LedgerUnavailable

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.automation.cron import WatchDocument

DEFAULT_INTERVAL = "10m"
MIN_INTERVAL, MAX_INTERVAL = timedelta(seconds=1), timedelta(days=1)


def command(
    *,
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="How often to reap.")] = DEFAULT_INTERVAL,
    prices: Annotated[
        str, typer.Option("--prices", metavar="TIME", help="How often to refresh prices; or never.")
    ] = "1d",
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="PORT", help="Serve Prometheus metrics on loopback.")
    ] = None,
    status: Annotated[bool, typer.Option("--status", help="Show who watches, the last run and the next.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """Run until interrupted: reap every ten minutes, check budgets, send alerts, and refresh prices once a day.

    Catches up at once after a crash or a night's sleep: what is due is read from the ledger. Several of them, and cron,
    may share a ledger: only one runs at a time, and another takes over if it ends. SIGTERM ends it after the current
    stop, Ctrl-C at once. --status shows who watches, and exits.
    """
    if status:
        _status(open_session(warn_overdue=False), output)
    else:
        _watch(every, prices, metrics, output)


def _watch(every: str, prices: str, metrics: str | None, output: Format) -> None:
    from cloudgpu.control.scheduler.metrics_server import parse_address
    from cloudgpu.control.scheduler.watch import Watch, announce_and_serve, ended_by_signals

    if output is Format.JSON:
        raise InvalidRequest(
            "watch runs until it is interrupted, so it has no single answer.",
            field="--output",
            value="json",
            next="Run: cloudgpu watch --status -o json",
        )
    interval = _parse_interval(every, "--every")
    address = None if metrics is None else parse_address(metrics)
    session = open_session(warn_overdue=False)
    session.check_ever_used(os.environ)
    session.ledger.check_in_use()
    watch = Watch(
        os.environ,
        every=interval,
        price_interval=None if prices == "never" else _parse_interval(prices, "--prices"),
        tell=_log,
    )
    with ended_by_signals(watch.end), announce_and_serve(watch, session, interval, address) as metrics_address:
        _log(f"watching, with a run every {every}" + (f"; metrics at {metrics_address}" if metrics_address else ""))
        _log_queried_accounts(session)
        all_threads_ended = watch.run()
    _log("ended")
    if watch.ledger_moved is not None:
        raise watch.ledger_moved
    if not all_threads_ended:  # a thread still waits for a cloud or a price list, and has nothing to clean up
        interrupt.drop_output_and_threads()


def _log_queried_accounts(session: Session) -> None:
    """Say which accounts runs query, as far as is known before the first run."""
    from cloudgpu.cli.machine_text import account_lines
    from cloudgpu.control.session.accounts import queried_accounts, used_accounts
    from cloudgpu.views.machines import queried_accounts_document

    with suppress(LedgerUnavailable):  # the first run says so, and is tried again
        for line in account_lines(queried_accounts_document(queried_accounts(session, used_accounts(session), ()))):
            _log(" ".join(line.split()))


def _parse_interval(text: str, option: str) -> timedelta:
    from cloudgpu.control.inputs.launch_request import parse_optional_duration

    interval = parse_optional_duration(text, option)
    if interval is None or not MIN_INTERVAL <= interval <= MAX_INTERVAL:
        raise InvalidRequest(
            f"{option} has to be from 1s to 1d.", field=option, value=text, next=f"For example: {option} 10m"
        )
    return interval


def _log(sentence: str) -> None:
    """Write a line with its time on stderr, where a service's log finds it."""
    sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {sentence}\n")
    sys.stderr.flush()


def _status(session: Session, output: Format) -> None:
    from cloudgpu.control.inputs.launch_request import parse_optional_duration
    from cloudgpu.control.scheduler.watch import status_document

    document = status_document(session, parse_optional_duration(DEFAULT_INTERVAL, "--every") or MAX_INTERVAL)
    emit(output, document, _status_text(document, session))


def _status_text(document: WatchDocument, session: Session) -> str:
    from cloudgpu.cli.automation.cron_text import last_run_text
    from cloudgpu.cli.render import ago, when
    from cloudgpu.core.values.times import duration_text

    now = session.clock()
    lines = [
        f"Process {watch['pid']} watches since {ago(watch['since'], now)}: a run every "
        f"{duration_text(watch['every_s'])}" + (f", metrics at {watch['metrics']}." if watch["metrics"] else ".")
        for watch in document["watching"]
    ] or ["No watch runs on this computer."]
    lines += ["The reaper is running now."] if document["running"] else []
    lines.append(last_run_text(document["last_run"], now))
    lines += [f"The next is due {when(document['next_at'], now)}."] if document["next_at"] else []
    return "\n".join([*lines, *([document["overdue"]] if document["overdue"] else [])])
