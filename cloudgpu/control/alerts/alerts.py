"""Finds what is wrong with machines and price lists, records it as alerts in the ledger, and sends each alert once.

An alert is recorded before it is sent, and is sent again until the receiver accepts it. That is recorded after it: a
crash in between sends the alert twice, and loses none. The topic of a finding
that only this home can make includes the name of this home: another home on the same ledger must not clear it.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from cloudgpu.config.alerts.alerts import DEFAULT_PRICE_JUMP, all_receivers, receivers
from cloudgpu.config.alerts.template import Message, alert_message, shipped_template, user_template
from cloudgpu.config.policies.find import lab_limits
from cloudgpu.control.alerts.channels import Outcome, call_within, label_of, send
from cloudgpu.control.session.last_run import unguarded_machines
from cloudgpu.control.session.session import Session, living_machines
from cloudgpu.control.team.authorization import authorization_of
from cloudgpu.core.alerts.alerts import (
    SUBJECT,
    AlertState,
    Audience,
    Finding,
    RaisedAlert,
    alert_state,
    changes_due,
    known_as,
    raised_line,
    with_text_now,
)
from cloudgpu.core.alerts.findings import (
    TOPICS,
    ended_findings,
    is_problem,
    lost_findings,
    machine_findings,
    price_leaps,
    unguarded_finding,
    unproved_since,
    withheld_prices_finding,
)
from cloudgpu.core.budgets.status import BudgetState, findings
from cloudgpu.core.events.general_events import alert_cleared, alert_sent
from cloudgpu.core.events.job_events import SUBJECT as JOBS
from cloudgpu.core.jobs.alerts import job_findings
from cloudgpu.core.jobs.job import Job, jobs_of
from cloudgpu.core.jobs.shares import job_cost, machine_assignments, on_existing_machines_since
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.team.rights import People
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest, LedgerUnavailable, ProviderUnavailable
from cloudgpu.ledger.last_seen import last_seen_at

if TYPE_CHECKING:
    from cloudgpu.core.values.money import Money
    from cloudgpu.views.documents.money.budgets import AlertRun, Delivery as DeliveryDocument


def topic_of_home(session: Session, topic: str) -> str:
    """Return the topic for findings that only this home can make: `reaper@tower/home/ada/.cloudgpu`."""
    return f"{topic}@{platform.node()}{session.home.root}".replace(":", "")


def finding_of_home(session: Session, finding: Finding) -> Finding:
    """Return the finding with the topic of this home."""
    topic, colon, key_rest = finding.key.partition(":")
    return replace(finding, key=f"{topic_of_home(session, topic)}{colon}{key_rest}")


def budget_findings(session: Session, budget_states: Iterable[BudgetState]) -> Iterator[Finding]:
    """Yield the findings about budgets. Those about budgets in files, which other homes lack, are of this home."""
    for state in budget_states:
        for finding in findings([state]):
            yield finding_of_home(session, finding) if state.budget.file else finding


def current_findings(session: Session) -> tuple[Finding, ...]:
    """Return every finding about machines, jobs, retained resources and refreshed prices. Asks no provider."""
    now = session.clock()
    billable = session.ledger.billable_machines()
    machines = [_with_seen_at(session, machine, iso(now)) for machine in living_machines(billable)]
    unconfirmed_since = {
        machine.id: since
        for machine in machines
        if machine.pending_action and (since := unproved_since(session.ledger.events(machine.id))) is not None
    }
    return (
        *machine_findings(machines, unconfirmed_since, now),
        *ended_findings(billable, now),
        *lost_findings(billable, now),
        *_job_findings(session, billable, now),
        *starmap(unguarded_finding, unguarded_machines(session, machines)),
        *price_leaps(machines, _price_jump_factor(session)),
        *_withheld_prices(session),
    )


def _job_findings(session: Session, billable: Sequence[Machine], now: datetime) -> list[Finding]:
    """Return the findings about jobs; reads the jobs' events only if there are any."""
    if session.ledger.last(JOBS) is None:
        return []
    jobs = jobs_of(session.ledger.events(JOBS))
    assignments = machine_assignments(jobs.values())

    def cost(job: Job) -> Money:
        machines = [machine for machine in billable if machine.id in job.machines]
        since = on_existing_machines_since(job)
        ended = () if since is None else session.ledger.ended_usages(iso(since))
        return job_cost(job.id, assignments, machines, ended, now)

    return list(job_findings(jobs.values(), _alert_state(session).lasting, now, cost))


def _price_jump_factor(session: Session) -> Callable[[Machine], Fraction]:
    """Return a function: the factor from which a machine's price is alerted, the lab's or that of its own terms."""
    published = None
    with suppress(InvalidRequest):  # published by another version: no reason to send no alert
        published = lab_limits(session.published_policies()).price_jump

    def factor(machine: Machine) -> Fraction:
        return Fraction(published or Decimal(machine.terms.price_jump if machine.terms else DEFAULT_PRICE_JUMP))

    return factor


def _withheld_prices(session: Session) -> Iterator[Finding]:
    """Yield a finding for each provider whose refresh has withheld prices, because they changed too much."""
    from cloudgpu.catalog.refreshed import readable_prices
    from cloudgpu.catalog.rules import PROVIDERS

    for provider in PROVIDERS:
        withheld = readable_prices(provider)[0].rejected_changes  # a damaged list is reported by `catalog`
        if withheld:
            names = [f"{price.key.item} in {price.key.region}" for price in withheld]
            yield finding_of_home(session, withheld_prices_finding(provider, names))


def _with_seen_at(session: Session, machine: Machine, now_iso: str) -> Machine:
    """Return the machine. If it is past its renew-until, set when a sync last saw it: no event has that."""
    if not machine.billed or machine.renew_until is None or machine.renew_until > now_iso:
        return machine
    return machine._replace(seen_at=last_seen_at(session.ledger, machine))


LOCK = "alerts"  # the name of the lock: one process sends at a time
BUDGET_TOPICS = ("budget",)  # the topics that most callers of `deliver` have checked completely


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a run has done about alerts.

    `raised` and `cleared` are keys of alerts. `outcomes` has one attempt for each receiver with undelivered alerts;
    `pending` counts the alerts that are still undelivered after it. `active` are the titles of all that is wrong now.
    """

    raised: tuple[str, ...]
    cleared: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    pending: int
    active: tuple[str, ...]

    def document(self) -> AlertRun:
        """Return it as a part of a JSON document."""
        return {
            "raised": list(self.raised),
            "cleared": list(self.cleared),
            **outcomes_document(self.outcomes),
            "pending": self.pending,
            "active": list(self.active),
        }


def outcomes_document(outcomes: Iterable[Outcome]) -> DeliveryDocument:
    """Return who accepted a message (`sent`) and who did not and why (`failed`), as parts of a JSON document."""
    attempts = list(outcomes)
    return {
        "sent": [each.receiver for each in attempts if each.why is None],
        "failed": [{"receiver": each.receiver, "why": each.why} for each in attempts if each.why is not None],
    }


def deliver(
    session: Session,
    findings: Iterable[Finding],
    *,
    clearable: Collection[str] = BUDGET_TOPICS,
    exempt: Collection[str] = (),
) -> Delivery:
    """Record these findings, and those of `current_findings`, as alerts, and send them; return what was done.

    `clearable` are the topics (the first word of a key) that the caller has checked completely: their active alerts
    that no finding repeats are cleared, except keys that begin with one of `exempt`. Each receiver gets one message
    with all that it has not accepted yet, in one attempt; what it does not accept is sent by the next call. Raises
    MissingExtra, after the alerts are recorded, if apprise is not installed, and LedgerUnavailable.
    """
    all_findings = [*findings, *current_findings(session)]
    state, raised, cleared = _record(session, all_findings, {*clearable, *TOPICS}, exempt)
    outcomes = _send_undelivered(session, all_findings) if state.alerts else ()
    state = _alert_state(session) if outcomes else state
    audience = _audience(session) if state.alerts else Audience(frozenset())
    pending = {alert.id for label in audience.all for alert in state.waiting(label, audience)}
    alerts = with_text_now(state.alerts, all_findings)
    titles = tuple(alert.finding.title for alert in alerts if alert.cleared_at is None and is_problem(alert))
    return Delivery(raised, cleared, outcomes, len(pending), titles)


def record_findings(session: Session, findings: Iterable[Finding], *, clearable: Collection[str]) -> None:
    """Raise and clear alerts in the ledger, as `deliver`, and send nothing; a later `deliver` sends them."""
    _record(session, list(findings), set(clearable))


def record_finding(session: Session, key: str, finding: Finding | None) -> bool:
    """Raise the alert of this key in the ledger, or clear it for None; return whether that changed anything.

    No other key is changed. A later `deliver` sends it.
    """
    state = _alert_state(session)
    active = state.lasting.get(key)
    if finding is not None and active is None:
        session.ledger.append([raised_line(finding, state, _audience(session).of(finding), session.clock())])
        return True
    if finding is None and active is not None:
        session.ledger.append([alert_cleared(*active.id, session.clock())])
        return True
    return False


def send_sample_alert(session: Session) -> tuple[Outcome, ...]:
    """Send a sample alert to every receiver and return how each attempt ended; writes nothing.

    Raises InvalidRequest if no receiver is configured or the user's template is wrong, and MissingExtra.
    """
    addresses = all_receivers(session.settings.alerts, session.home)
    if not addresses:
        raise InvalidRequest(
            "No alert can be sent: config.toml names no receiver.",
            field="alerts.to",
            value=None,
            next=f'Add to {session.home.config_file}: [alerts] and below it to = ["mailto://...", "desktop"]',
        )
    message = sample_message(session)
    return send([(address, message) for address in addresses])


def sample_message(session: Session) -> Message:
    """Return the message of a sample alert. Raises InvalidRequest if the user's template is wrong."""
    example = Finding(
        "sample",
        "sample",
        "A sample of an alert",
        "Nothing is wrong: this shows that alerts of cloudgpu arrive here.",
        {"amount": "$12.34", "owner": session.settings.owner},
    )
    return _message(session, [RaisedAlert(example, 1, session.clock(), frozenset())], strict=True)


def send_directly(session: Session, finding: Finding) -> tuple[Outcome, ...]:
    """Send one finding to every receiver, without the ledger; return how each attempt ended. Raises MissingExtra."""
    addresses = all_receivers(session.settings.alerts, session.home)
    if not addresses:
        return ()
    message = _message(session, [RaisedAlert(finding, 1, session.clock(), frozenset())])
    return send([(address, message) for address in addresses])


def undelivered(session: Session) -> dict[str, tuple[RaisedAlert, ...]]:
    """Return the undelivered alerts of each receiver that has any, by its label."""
    state, audience = _alert_state(session), _audience(session)
    labels = map(label_of, all_receivers(session.settings.alerts, session.home))
    return {label: alerts for label in labels if (alerts := state.waiting(label, audience))}


def active_keys(session: Session, topic: str) -> tuple[str, ...]:
    """Return the keys of active alerts of this topic."""
    return tuple(key for key, alert in _alert_state(session).lasting.items() if alert.finding.topic == topic)


def _record(
    session: Session, findings: Sequence[Finding], clearable: Collection[str], exempt: Collection[str] = ()
) -> tuple[AlertState, tuple[str, ...], tuple[str, ...]]:
    """Record which alerts are raised and cleared; return the state after it, and the keys of both."""
    state, now = _alert_state(session), session.clock()
    home_topics = {topic_of_home(session, topic) for topic in clearable}
    to_raise, to_clear = changes_due(findings, state, {*clearable, *home_topics}, exempt)
    if not to_raise and not to_clear:
        return state, (), ()
    audience = _audience(session)
    raised = [raised_line(finding, state, audience.of(finding), now) for finding in to_raise]
    session.ledger.append(raised + [alert_cleared(*alert.id, now) for alert in to_clear])
    return (
        _alert_state(session),
        tuple(finding.key for finding in to_raise),
        tuple(alert.finding.key for alert in to_clear),
    )


def _send_undelivered(session: Session, findings: Sequence[Finding]) -> tuple[Outcome, ...]:
    """Try each receiver with undelivered alerts once, and record who accepted; texts come from `findings`."""
    try:
        with session.lock(LOCK, wait=False):
            state = _alert_state(session)  # as it is under the lock: another command may have sent all of it
            audience = _audience(session)
            addresses = all_receivers(session.settings.alerts, session.home)
            by_address = {to: with_text_now(state.waiting(label_of(to), audience), findings) for to in addresses}
            outcomes = _send_and_record(session, {address: alerts for address, alerts in by_address.items() if alerts})
            return (*outcomes, *_send_and_record(session, _escalated_to_lab(session, audience, findings, outcomes)))
    except LedgerUnavailable:
        raise
    except ProviderUnavailable as busy:
        session.report(f"alerts are not sent now: {busy.message}")
        return ()


def _escalated_to_lab(
    session: Session, audience: Audience, findings: Sequence[Finding], outcomes: Sequence[Outcome]
) -> dict[str, list[RaisedAlert]]:
    """Return, by address of the lab, the urgent alerts that a person's own receivers have just not accepted."""
    failed = {outcome.receiver for outcome in outcomes if outcome.why is not None}
    if not failed:
        return {}
    alerts = [(one, audience.fallback(one, failed)) for one in with_text_now(_alert_state(session).alerts, findings)]
    lab_labels = {address: label_of(address) for address in receivers(session.settings.alerts, session.home)}
    by_address = {
        address: [_with_lab_text(alert) for alert, labels in alerts if label in labels]
        for address, label in lab_labels.items()
    }
    return {address: lab_alerts for address, lab_alerts in by_address.items() if lab_alerts}


def _with_lab_text(alert: RaisedAlert) -> RaisedAlert:
    owner = alert.finding.facts.get("owner", "its owner")
    text = f"{alert.finding.text} {owner}'s own receiver did not take it."
    return replace(alert, finding=replace(alert.finding, text=text))


def _send_and_record(session: Session, by_address: Mapping[str, Sequence[RaisedAlert]]) -> tuple[Outcome, ...]:
    if not by_address:
        return ()
    outcomes = send([(address, _message(session, alerts)) for address, alerts in by_address.items()])
    events = [
        alert_sent(outcome.receiver, [alert.id for alert in alerts], session.clock())
        for outcome, alerts in zip(outcomes, by_address.values(), strict=True)
        if outcome.why is None
    ]
    if events:
        session.ledger.append(events)
    return outcomes


def _message(session: Session, alerts: Sequence[RaisedAlert], *, strict: bool = False) -> Message:
    """Return the message. If the user's template is wrong, the shipped one is used; with `strict` that raises."""
    settings, now = session.settings.alerts, session.clock()
    try:
        template = user_template(settings, session.home)
        return alert_message(alerts, now, shipped_template() if template is None else template)
    except InvalidRequest as error:
        if strict or settings.template is None:
            raise
        session.report(f"{error.message} The shipped text is sent instead.")
        return alert_message(alerts, now, shipped_template())


def _audience(session: Session) -> Audience:
    """Return who gets which alerts. A key of [alerts.people] is any name of a person, or their database user."""
    alerts = session.settings.alerts
    person_names = authorization_of(session).people if alerts.people else People()
    people: dict[str, frozenset[str]] = {}
    for owner, addresses in alerts.people.items():
        person = known_as(person_names, owner)
        people[person] = people.get(person, frozenset()) | set(map(label_of, addresses))
    return Audience(frozenset(map(label_of, receivers(alerts, session.home))), people, person_names)


def _alert_state(session: Session) -> AlertState:
    """Return the alerts by the ledger's events; computed again only if there is a new one about them."""
    last_event = session.ledger.last(SUBJECT)
    if last_event is None:
        return AlertState()
    cached = session.alert_state_cache
    if cached is None or cached[0] != last_event:  # its hash covers all events before it
        cached = session.alert_state_cache = (last_event, alert_state(session.ledger.events(SUBJECT)))
    return cached[1]


PING_TIMEOUT_S = 10.0
DEADMAN = "deadman"  # the topic of findings about the dead-man's address (dead man's switch, heartbeat URL)


def ping(session: Session, *, ok: bool, wait_s: float = PING_TIMEOUT_S) -> str | None:
    """Call the dead-man's address at the end of a run; return why that failed, else None.

    The address is that of an outside service, which raises an alarm if calls stay away. It is called as failed if not
    `ok`, and if no scheduled run guards a machine that depends on one. A failure to call is recorded as an alert,
    which the next run sends. Raises LedgerUnavailable.
    """
    address = session.settings.alerts.deadman
    if address is None:
        return None
    ok = ok and not unguarded_machines(session, session.ledger.present_machines())
    failure = call_within(wait_s, partial(_call, address if ok else _failure_address(address), wait_s))
    findings = [] if failure is None else [finding_of_home(session, _deadman_finding(failure))]
    record_findings(session, findings, clearable=(DEADMAN,))
    return failure


def _call(address: str, wait_s: float) -> str | None:
    """Call the service; return why that failed. The reason has no part of the address, which is a secret."""
    import urllib.error
    import urllib.request
    from http.client import HTTPException

    request = urllib.request.Request(address, headers={"User-Agent": "cloudgpu"})  # noqa: S310  (the settings allow http and https alone)
    try:
        with urllib.request.urlopen(request, timeout=wait_s) as answer:  # noqa: S310  (as above)
            answer.read(1)
    except urllib.error.HTTPError as error:
        return f"answered {error.code}"
    except TimeoutError:
        return f"did not answer within {wait_s:g} seconds"
    except (urllib.error.URLError, HTTPException, OSError, ValueError):
        return "could not be reached"
    return None


def _failure_address(address: str) -> str:  # https://healthchecks.io/docs/signaling_failures/
    """Return the address that tells the service of a failed run."""
    parts = urlsplit(address)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/fail"))


def _deadman_finding(why: str) -> Finding:
    return Finding(
        key=DEADMAN,
        kind="dead-man's address",
        title="The dead-man's address does not hear us",
        text=f"It {why}. If the reaper runs, it raises a false alarm; if the reaper stops, it raises none.",
        urgent=False,
    )
