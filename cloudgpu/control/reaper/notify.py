"""The notifications of a run of the reaper: renewed leases, warnings, alerts.

A run renews leases where the agent cannot. Warnings go to the machine's terminals, then into the ledger, on which later
runs act. At the end alerts on warnings, budgets and errors are sent, and the heartbeat address (`deadman`) is called.
Where the ledger, which stores alerts, cannot be used, owners are notified of that once.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path

from cloudgpu.control.alerts.alerts import active_keys, budget_findings, deliver, finding_of_home, ping, send_directly
from cloudgpu.control.lifecycle.lease import refresh_lease, set_lease
from cloudgpu.control.reaper.observe import lock_each
from cloudgpu.control.session.session import Session, present_machines
from cloudgpu.core.alerts.alerts import Finding
from cloudgpu.core.budgets.credit import TOPIC as CREDIT, credit_finding
from cloudgpu.core.budgets.status import BudgetState
from cloudgpu.core.events.annotations import not_before_last
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_events import warning_cleared, warning_sent
from cloudgpu.core.launch.plan import Lease
from cloudgpu.core.model.facts import SentWarning
from cloudgpu.core.model.machine import Machine, command_name, not_none
from cloudgpu.core.policies.policy import ReaperAction, Rule
from cloudgpu.core.reaper.decisions import Decision, DueWarning, MachineView
from cloudgpu.core.reaper.result import EndedItem, EndItem, GivenWarning, NotEnded, ReaperRun
from cloudgpu.core.values.times import from_iso, iso, minute_text
from cloudgpu.errors import AnswerTimeout, CloudgpuError, LedgerUnavailable, ProviderUnavailable, internal_error
from cloudgpu.ledger.log import files
from cloudgpu.ledger.log.storage_errors import LedgerAway
from cloudgpu.parallel import Pool


def renew_leases(
    session: Session, views: Sequence[MachineView], decisions: Sequence[Decision]
) -> tuple[list[EndedItem], list[NotEnded]]:
    """Renew the leases of these decisions; return those that were renewed and those that were not, with the reasons."""
    pairs = zip(views, decisions, strict=True)
    items = [
        EndItem(one, decision)
        for one, decision in pairs
        if decision.do is ReaperAction.RENEW and decision.at is not None
    ]
    renewed, not_renewed = list[EndedItem](), list[NotEnded]()
    silent: dict[tuple[str, str], str] = {}  # by account and region: what did not answer there
    with lock_each(session, items) as (locked, busy):
        not_renewed += busy
        for item in locked:
            account_region = (item.machine.account, item.machine.region)
            if account_region in silent:
                not_renewed.append(item.as_not_ended(silent[account_region]))
                continue
            try:
                machine = _renew(session, item)
            except LedgerUnavailable:
                raise
            except CloudgpuError as error:
                not_renewed.append(item.as_not_ended(f"its lease could not be renewed: {error.message}"))
                silent |= {account_region: not_renewed[-1].why} if isinstance(error, AnswerTimeout) else {}
            except Exception as bug:  # noqa: BLE001  (no other machine in use may end for it)
                why = f"its lease could not be renewed: {internal_error(bug).message}"
                not_renewed.append(item.as_not_ended(why))
            else:
                renewed.append(item.as_ended(not_none(machine.expires)))
    return renewed, not_renewed


def _renew(session: Session, item: EndItem) -> Machine:
    """Set the decided lease; return the machine. Nothing is set if its agent has renewed it as far already."""
    machine = refresh_lease(session, session.ledger.machine(item.id) or item.machine)
    lease_end = item.decision.at
    if lease_end is None or (machine.expires and from_iso(machine.expires) >= lease_end):  # its agent has renewed it
        return machine
    renew_until = from_iso(machine.renew_until) if machine.renew_until else lease_end
    return set_lease(session, machine, Lease(lease_end, max(renew_until, lease_end)), item.decision.why)


TERMINAL_TIMEOUT_S = 5.0
MAX_PARALLEL = 16
WARNING, TOPIC = "warning", "reaper"  # prefixes of alert keys
# How to keep a machine, by the rule that would end it.
_KEEP_REMEDIES = {
    Rule.IDLE: "To keep it, use it, or run: cloudgpu hold {name} 2h",
    Rule.UNLABELLED: "To keep it, run: cloudgpu hold {name} 2h",
    Rule.LEASE: "To keep it, run: cloudgpu extend {name} 2h",
    Rule.RENEW_UNTIL: "To keep it, run: cloudgpu extend {name} 2h",
    Rule.STOPPED: "To keep it, run: cloudgpu hold {name} 7d, or: cloudgpu start {name}",
    Rule.IMAGES: "To keep it, run: cloudgpu hold {name} 7d, or: cloudgpu start {name}",
}


def send_warnings(
    session: Session, decisions: Sequence[Decision], reachable_machines: Mapping[str, Machine]
) -> list[GivenWarning]:
    """Send the warnings of these decisions, clear those that no longer apply, and return the sent ones.

    `reachable_machines` are those, by id, whose terminals can be tried. The ledger is written last: a warning that is
    not recorded is sent again, and no machine ends for a warning that was not sent.
    """
    warnings = [(decision, warned) for decision in decisions for warned in decision.warnings]
    terminal_counts = _terminal_counts(session, warnings, reachable_machines)
    has_receivers = bool(session.settings.alerts.to or session.settings.alerts.people)
    sent = [
        _stored_warning(one, warned, alerted=has_receivers, terminals=count)
        for (one, warned), count in zip(warnings, terminal_counts, strict=True)
    ]
    cleared_events = [
        warning_cleared(
            decision.machine,
            str(withdrawn.rule),
            withdrawn.why,
            _event_time(session, decision.machine),
            host=platform.node(),
        )
        for decision in decisions
        for withdrawn in decision.withdrawn
    ]
    if sent or cleared_events:
        session.ledger.append(
            [*(_warning_event(warning, _event_time(session, warning.machine)) for warning in sent), *cleared_events]
        )
    return sent


def _terminal_counts(
    session: Session, warnings: Sequence[tuple[Decision, DueWarning]], reachable_machines: Mapping[str, Machine]
) -> list[int]:
    """Return how many terminals took each of these warnings; none on a machine that does not answer.

    A warning about a cluster goes to all its nodes.
    """
    calls = [
        (index, machine, warning_sentence(decision.display_name, warned))
        for index, (decision, warned) in enumerate(warnings)
        for machine in _reachable_machines(decision, reachable_machines)
    ]
    counts = [0] * len(warnings)
    with Pool(MAX_PARALLEL) as pool:
        accepted_counts = pool.map(lambda call: _write_to_terminals(session, *call[1:]), calls)
        for (index, _, _), count in zip(calls, accepted_counts, strict=True):
            counts[index] += count
    return counts


def _reachable_machines(decision: Decision, reachable_machines: Mapping[str, Machine]) -> list[Machine]:
    """Return the machine of a decision, or all nodes of its cluster, if reachable."""
    machine = reachable_machines.get(decision.machine)
    if not decision.cluster:
        return [] if machine is None else [machine]
    return [
        node
        for node in reachable_machines.values()
        if node.cluster is not None and node.cluster.name == decision.cluster
    ]


def _write_to_terminals(session: Session, machine: Machine, text: str) -> int:
    """Write to the machine's terminals; return how many took it. Raises nothing."""
    from cloudgpu.access.ssh.execute import write_to_terminals

    try:
        return write_to_terminals(session.target(machine), text, timeout=TERMINAL_TIMEOUT_S)
    except (CloudgpuError, OSError):
        return 0


def warning_sentence(name: str, warned: DueWarning) -> str:
    """Return the text of a warning: why, when, and how to keep the machine."""
    remedy = _KEEP_REMEDIES.get(warned.rule, "").format(name=name) if warned.due is not None else ""
    return f"{name}: {warned.why}." + (f" {remedy}" if remedy else "")


def _stored_warning(decision: Decision, warned: DueWarning, *, alerted: bool, terminals: int) -> GivenWarning:
    channels = ["ledger", *(["alert"] if alerted else []), *(["terminal"] if terminals else [])]
    return GivenWarning(decision.machine, decision.display_name, warned.rule, warned.why, warned.due, tuple(channels))


def _event_time(session: Session, machine_id: str) -> datetime:
    """Return now, but not before the machine's last event."""
    return not_before_last(session.ledger.machine(machine_id), session.clock())


def _warning_event(warning: GivenWarning, now: datetime) -> Draft:
    return warning_sent(
        warning.machine, str(warning.rule), warning.due, warning.why, now, how=warning.how, host=platform.node()
    )


def warning_findings(machines: Sequence[Machine]) -> Iterator[Finding]:
    """Yield an alert finding for each current warning of these machines; a repeated warning is a new finding."""
    for machine in present_machines(list(machines)):
        for rule, sent_warning in machine.warnings.items():
            yield _finding(machine, rule, sent_warning)


def _finding(machine: Machine, rule: str, sent_warning: SentWarning) -> Finding:
    due, name = sent_warning.due, command_name(machine)
    title = f"{name} ends at {minute_text(due)}" if due else f"A word about {name}"
    why = sent_warning.why or f"{rule} says so"
    remedy = _KEEP_REMEDIES.get(Rule(rule), "").format(name=name) if due else ""
    facts = {"machine": name, "rule": rule, "owner": machine.owner or "", "account": machine.account or ""}
    return Finding(
        key=f"{WARNING}:{machine.id}:{rule}:{sent_warning.times}",
        kind="machine ends" if due else "machine",
        title=f"{title} ({rule})",
        text=f"{why[:1].upper()}{why[1:]}. {remedy}".strip(),
        facts={key: value for key, value in facts.items() if value},
        urgent=due is not None,
    )


def _decision_findings(session: Session, run: ReaperRun, machines: Iterable[Machine]) -> Iterator[Finding]:
    """Yield the findings besides warnings: urgent decisions, and errors of the run."""
    owners = {machine.id: machine.owner or "" for machine in machines}
    for decision in run.decisions:
        if decision.urgent and not decision.warnings:
            yield _urgent_finding(decision, owners.get(decision.machine, ""))
    for fault in run.faults:
        finding = Finding(
            key=f"{TOPIC}:fault:{fault}",
            kind="reaper",
            title="A run could not check all machines",
            text=f"{fault}. To see it: cloudgpu reap --dry-run",
            urgent=True,
        )
        yield finding_of_home(session, finding)


def _urgent_finding(decision: Decision, owner: str) -> Finding:
    facts = {
        "machine": decision.display_name,
        "rule": str(decision.rule),
        "activity": decision.activity,
        "owner": owner,
    }
    result = "is ended" if decision.ends else "goes on"
    return Finding(
        key=f"{TOPIC}:{decision.machine}:{decision.rule}:{decision.do}",
        kind="machine",
        title=f"{decision.display_name} {result} ({decision.rule})",
        text=f"{decision.why[:1].upper()}{decision.why[1:]}. To see it: cloudgpu show {decision.name} --history",
        facts={name: value for name, value in facts.items() if value},
        urgent=True,
    )


def deliver_all(
    session: Session, run: ReaperRun, budget_states: Sequence[BudgetState], machines: Sequence[Machine]
) -> tuple[str, ...]:
    """Send the alerts of a run, then ping the heartbeat address; return what was not delivered.

    `machines` are all of the ledger after the run, named resources included. What was not delivered is tried again by
    the next run.
    """
    findings = [
        *(one for credit in run.credits if (one := credit_finding(credit, session.clock())) is not None),
        *budget_findings(session, budget_states),
        *warning_findings(machines),
        *_decision_findings(session, run, machines),
    ]
    decided_ids = {decision.machine for decision in run.decisions}
    exempt = [f"{TOPIC}:{machine.id}:" for machine in present_machines(list(machines)) if machine.id not in decided_ids]
    current_keys = {f"{CREDIT}:{credit.scope}" for credit in run.credits}
    exempt += [key for key in active_keys(session, CREDIT) if key not in current_keys]  # its credit was not read here
    try:
        delivery = deliver(session, findings, clearable=("budget", WARNING, TOPIC, CREDIT), exempt=exempt)
        undelivered = [f"{outcome.receiver}: {outcome.why}" for outcome in delivery.outcomes if outcome.why is not None]
    except LedgerUnavailable:
        raise
    except CloudgpuError as error:
        undelivered = [error.message]
    ping_failure = ping(session, ok=run.exit_code == 0 and not undelivered)
    return (*undelivered, f"the dead-man's address {ping_failure}") if ping_failure else tuple(undelivered)


@contextmanager
def notify_if_ledger_away(session: Session) -> Iterator[None]:
    """Ping the heartbeat address and alert owners once if this block fails because the ledger is unavailable."""
    try:
        yield
    except LedgerUnavailable as error:
        ping_failed_run(session)
        notify_outage_once(session, error)
        raise


def ping_failed_run(session: Session) -> None:
    """Report a failed run to the heartbeat address. Raises nothing."""
    with suppress(CloudgpuError):
        ping(session, ok=False)


def notify_outage_once(session: Session, error: CloudgpuError) -> None:
    """Alert every receiver that the reaper cannot run, once for each outage of the ledger.

    If nobody received it, or this process is killed meanwhile, the next run sends it again. Raises nothing.
    """
    marker = _outage_marker(session)
    with ExitStack() as stack:
        try:
            stack.enter_context(files.lock(session.home.locks, "outage", wait=False))
        except LedgerUnavailable:
            pass  # a full disk has no room for a lock: the alert may be sent twice
        except ProviderUnavailable:  # another process is sending it
            return
        with suppress(OSError):
            if marker.exists():
                return
        try:
            outcomes = send_directly(session, _outage_finding(error))
        except CloudgpuError as refused:
            session.report(f"no alert could be sent: {refused.message}")
            return
        if outcomes and all(outcome.why is not None for outcome in outcomes):
            return
        with suppress(OSError):
            marker.touch(mode=0o600)
            marker.write_text(iso(session.clock()))


def clear_outage_marker(session: Session) -> None:
    """Delete the marker of an outage, so that the next outage is alerted again."""
    with suppress(OSError):
        os.unlink(_outage_marker(session))  # noqa: PTH108  (called by every run; mostly there is none)


def _outage_marker(session: Session) -> Path:
    return session.home.root / "outage.told"


def _outage_finding(error: CloudgpuError) -> Finding:
    is_away = isinstance(error, LedgerAway) and not error.is_lasting
    until_text = "it is back" if is_away else "that is fixed"
    advice_text = "; cloudgpu stop and cloudgpu down work without it." if is_away else f". {error.next or ''}".rstrip()
    return Finding(
        key="ledger",
        kind="ledger",
        title=f"The reaper cannot run: the ledger {'is away' if is_away else 'cannot be used'}",
        text=f"{error.message} No machine is looked at from here until {until_text}. Timers in the clouds and the "
        f"agents on the machines go on{advice_text}",
        urgent=True,
    )
