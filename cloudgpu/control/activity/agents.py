"""Asks when machines were last in use: their providers, for what machines report of themselves, and agents over SSH.

A machine's own report needs no SSH; its provider is asked for it if its listings do not have it. Samples are read over
SSH from many machines in parallel.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from cloudgpu.control.session.identity import by_account
from cloudgpu.core.activity.agent_status import (
    DAY_S,
    OLD_AGENT,
    SAMPLE_WINDOW_S,
    AgentStatus,
    parse_agent_status,
    unknown_status,
)
from cloudgpu.core.activity.report import Report
from cloudgpu.core.clusters import engine
from cloudgpu.core.events.observations import instance_observed_by_itself, is_later_activity, not_before
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.reaper.decisions import CLOCK_SLACK
from cloudgpu.core.reaper.seen import LastUseAtProvider
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError, ProviderUnavailable
from cloudgpu.ledger.samples.store import SampleStore, sweep_daily
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import ReportsActivity

if TYPE_CHECKING:
    from cloudgpu.access.ssh.connection import Connection
    from cloudgpu.access.ssh.target import Target
    from cloudgpu.control.session.session import Session


def ask_activity(session: Session, machines: Sequence[Machine], *, store: bool = True) -> dict[str, LastUseAtProvider]:
    """Return when these machines say that they were last in use, by machine id.

    A report is that moment, the error of a provider that could not be asked, or None: nothing reported yet. Without the
    machines of providers whose listings have it. New reports are written to the ledger if `store`. Raises
    LedgerUnavailable only.
    """
    machines_by_account, _ = by_account(session, machines)  # machines of unknown accounts were reported by the sync
    provider_machines = [
        (session.provider(name), account_machines) for name, account_machines in machines_by_account.items()
    ]
    reporting = [
        (provider, account_machines)
        for provider, account_machines in provider_machines
        if isinstance(provider, ReportsActivity)
    ]
    if not reporting:
        return {}
    with Pool(len(reporting)) as pool:
        answers = pool.map(lambda pair: _reports_of(*pair), reporting)
    reports = {machine_id: _check_clock(session, report) for answer in answers for machine_id, report in answer.items()}
    if store:
        _record_new_reports(session, machines, reports)
    return reports


def _reports_of(provider: ReportsActivity, machines: Sequence[Machine]) -> dict[str, LastUseAtProvider]:
    """Return what one provider's machines report, by machine id."""
    answers = _ask_provider(provider, [machine.provider_id for machine in machines if machine.provider_id])
    return {machine.id: answers.get(machine.provider_id or "") for machine in machines}


def _ask_provider(provider: ReportsActivity, provider_ids: Sequence[str]) -> Mapping[str, LastUseAtProvider]:
    """Return the reports of these machines, by the provider's id; an error of the provider in place of each report."""
    try:
        return provider.activity(provider_ids)
    except CloudgpuError as error:
        return dict.fromkeys(provider_ids, error)
    except Exception as bug:  # noqa: BLE001  (a defect of one provider must not keep another's machines running)
        why = f"it could not be asked ({type(bug).__name__}: {bug})"
        return dict.fromkeys(provider_ids, ProviderUnavailable(why, field="provider"))


def _check_clock(session: Session, report: LastUseAtProvider) -> LastUseAtProvider:
    """Return the report; None if it is in the future, so that the machine's clock is wrong."""
    return None if isinstance(report, datetime) and report - session.clock() > CLOCK_SLACK else report


def _record_new_reports(
    session: Session, machines: Sequence[Machine], reports: Mapping[str, LastUseAtProvider]
) -> None:
    drafts = []
    for machine in machines:
        report, recorded = reports.get(machine.id), machine.last_active
        if isinstance(report, datetime) and is_later_activity(from_iso(recorded) if recorded else None, report):
            drafts.append(instance_observed_by_itself(machine, report, not_before(machine, session.clock())))
    if drafts:
        session.ledger.append(drafts)


STATUS_COMMAND = '"$HOME"/.cloudgpu/agent status --since {since}'
MAX_ANSWER_BYTES = 2_000_000  # ten times a day of samples
MINUTE_S = 60.0
EXIT_USAGE = 2  # the exit status of argparse for arguments that it does not know


def probe(
    session: Session,
    machines: Sequence[Machine],
    *,
    timeout_s: float = 10,
    parallel: int = 16,
    window_s: float = DAY_S,
    store: bool = True,
) -> dict[str, Report]:
    """Ask each machine's agent over SSH, `parallel` at a time; return a report for each, by machine id.

    The command that asks a cluster's head node also returns the queue of its engine, Slurm or Ray.

    `timeout_s` limits all that is asked of one machine. `window_s` is how many seconds of samples are read, at most the
    day that an agent keeps. Raises nothing: what went wrong with a machine is its report's `fault`. If `store`, samples
    are written to this home's files. Calls no provider, reports nothing, writes no ledger.
    """
    with suppress(OSError):
        if store:
            sweep_daily(session.home.samples, session.clock())
    probes = [
        _probe_of(session, machine, _ProbeOptions(timeout_s, min(window_s, DAY_S), store)) for machine in machines
    ]
    with Pool(parallel, "machines") as pool:
        reports = list(pool.map(lambda ask_machine: ask_machine(), probes))
    return {report.machine_id: report for report in reports}


class _ProbeOptions(NamedTuple):
    """How a machine is asked: with which timeout, for how many seconds of samples, and whether these are stored.

    `cluster` is the id of the cluster whose queue is asked for, where the machine is its head node; else None.
    """

    timeout_s: float
    window_s: float
    store: bool
    cluster: str | None = None


def _probe_of(session: Session, machine: Machine, options: _ProbeOptions) -> Callable[[], Report]:
    """Return a function that asks this machine and may run in any thread: what needs the session is read before."""
    samples, clock = SampleStore(session.home.samples, machine.id), session.clock
    options = (
        options._replace(cluster=machine.cluster.id) if machine.cluster and engine.is_queried(machine) else options
    )
    try:
        target = session.target(machine)
    except CloudgpuError as error:
        failed_report = Report(machine.id, clock(), None, error.message.removesuffix("."))
        return lambda: failed_report

    def ask() -> Report:
        asked_at = clock()
        try:
            last_stored = samples.last() if options.store else asked_at.timestamp()
            status, queue_text = _ask_agent(target, asked_at.timestamp(), last_stored, options)
        except CloudgpuError as error:
            status, queue_text = unknown_status(error.message.removesuffix(".")), ""
        except Exception as bug:  # noqa: BLE001  (the other machines have to be evaluated all the same)
            status, queue_text = unknown_status(f"{target.name} could not be asked ({type(bug).__name__}: {bug})"), ""
        return replace(_report_of(samples, status, asked_at, store=options.store), engine=queue_text)

    return ask


def _ask_agent(target: Target, now: float, last_stored: float, options: _ProbeOptions) -> tuple[AgentStatus, str]:
    """Ask one machine; return its agent's status and its cluster's queue. Raises as `connect` and `capture` do.

    `now` is this computer's clock and `last_stored` the latest stored sample, both in epoch seconds; `status.now` is
    the machine's clock.
    """
    from cloudgpu.access.ssh.connection import connect

    deadline_s = time.monotonic() + options.timeout_s
    since = min(
        now - options.window_s, max(last_stored, now - SAMPLE_WINDOW_S)
    )  # also all samples that are not stored yet
    with connect(target, timeout=options.timeout_s) as connection:
        status, queue_text = _run_status(connection, since, deadline_s, options.cluster)
        if status.now is not None and status.now < now - MINUTE_S:  # its clock is behind ours
            status, _ = _run_status(connection, status.now - (now - since), deadline_s)
    return status, queue_text


def _run_status(
    connection: Connection, since: float, deadline_s: float, cluster: str | None = None
) -> tuple[AgentStatus, str]:
    """Run the agent's `status` on the machine, with the queue of `cluster` if given; return both answers.

    `since` is in epoch seconds of the machine's clock, `deadline_s` in those of `time.monotonic`.
    """
    seconds_left = max(1.0, deadline_s - time.monotonic())
    status_command = STATUS_COMMAND.format(since=int(max(0, since)))
    command = status_command if cluster is None else f"sh -c {shlex.quote(engine.with_queue(status_command, cluster))}"
    result = connection.capture(command, timeout=seconds_left, max_bytes=MAX_ANSWER_BYTES)
    output, queue_text = (result.stdout, "") if cluster is None else engine.split_answer(result.stdout)
    if result.status == EXIT_USAGE and not output:
        return unknown_status(OLD_AGENT), queue_text
    if result.status and not output:
        return unknown_status(f"its agent does not answer (status {result.status})"), queue_text
    return parse_agent_status(output), queue_text


def _report_of(sample_store: SampleStore, status: AgentStatus, asked_at: datetime, *, store: bool) -> Report:
    """Return the agent's report, and store its samples if `store`; a full disk is no error."""
    answer = None if status.answer is None else dict(status.answer)
    if status.now is None:
        return Report(sample_store.id, asked_at, answer, status.fault)
    with suppress(OSError):
        if store:
            sample_store.keep(status.samples, status.now, asked_at)
    return Report(
        sample_store.id, asked_at, answer, status.fault, status.samples, status.now, status.up_since, status.scratch
    )
