"""Gathers what is wrong with machines and price lists, raises it in the ledger, and delivers it once per crossing.

An alert stands in the ledger before it is sent, and is retained until taken. What a receiver has taken is written after
it: a crash in between sends it twice, and loses nothing. What this home alone can find wrong is told apart: another
home on the same ledger must not clear it.
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

from cloudgpu.config.alerts.alerts import PRICE_JUMP, everybody, receivers
from cloudgpu.config.alerts.template import Message, message, own_template, shipped_template
from cloudgpu.config.policies.find import lab_limits
from cloudgpu.control.alerts.channels import Outcome, label_of, send, within
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
    as_now,
    due,
    known_as,
    raised_line,
)
from cloudgpu.core.alerts.findings import (
    TOPICS,
    ended_findings,
    is_wrong,
    lost_findings,
    machine_findings,
    price_leaps,
    unguarded_finding,
    unproved_since,
    withheld_prices_finding,
)
from cloudgpu.core.budgets.status import BudgetState, findings
from cloudgpu.core.events.general_lines import alert_cleared, alert_sent
from cloudgpu.core.events.job_lines import SUBJECT as JOBS
from cloudgpu.core.jobs.alerts import job_findings
from cloudgpu.core.jobs.job import Job, jobs_of
from cloudgpu.core.jobs.shares import guest_since, job_cost, machine_assignments
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.team.rights import People
from cloudgpu.core.values.times import iso
from cloudgpu.errors import InvalidRequest, LedgerUnavailable, ProviderUnavailable
from cloudgpu.ledger.last_seen import last_seen_at

if TYPE_CHECKING:
    from cloudgpu.core.values.money import Money
    from cloudgpu.views.documents.money.budgets import AlertRun, Delivery as DeliveryValue


def topic_here(session: Session, topic: str) -> str:
    """Return the topic of what this home alone can judge: `reaper@tower/home/ada/.cloudgpu`."""
    return f"{topic}@{platform.node()}{session.home.root}".replace(":", "")


def found_at_home(session: Session, finding: Finding) -> Finding:
    """Return the finding as one of this home alone."""
    topic, colon, rest = finding.key.partition(":")
    return replace(finding, key=f"{topic_here(session, topic)}{colon}{rest}")


def budget_findings(session: Session, budget_states: Iterable[BudgetState]) -> Iterator[Finding]:
    """Yield what budgets have to say; those of files, which other homes do not have, as findings of this home."""
    for state in budget_states:
        for finding in findings([state]):
            yield found_at_home(session, finding) if state.budget.file else finding


def found_here(session: Session) -> tuple[Finding, ...]:
    """Return every finding about machines, retained resources and refreshed prices. Asks nobody."""
    now = session.clock()
    bills = session.ledger.billable_machines()
    machines = [_as_seen(session, machine, iso(now)) for machine in living_machines(bills)]
    of_machines = machine_findings(machines, dict(_asked_since(session, machines)), now)
    over, lost = ended_findings(bills, now), lost_findings(bills, now)
    jobs = _of_jobs(session, bills, now)
    alone = starmap(unguarded_finding, unguarded_machines(session, machines))
    return (
        *of_machines,
        *over,
        *lost,
        *jobs,
        *alone,
        *price_leaps(machines, _factor_of(session)),
        *_held_back(session),
    )


def _of_jobs(session: Session, bills: Sequence[Machine], now: datetime) -> list[Finding]:
    """Return what there is to tell of jobs; reads their lines where there are any."""
    if session.ledger.last(JOBS) is None:
        return []
    jobs = jobs_of(session.ledger.events(JOBS))
    shares = machine_assignments(jobs.values())

    def cost(job: Job) -> Money:
        machines = [machine for machine in bills if machine.id in job.machines]
        since = guest_since(job)
        ended = () if since is None else session.ledger.ended_usages(iso(since))
        return job_cost(job.id, shares, machines, ended, now)

    return list(job_findings(jobs.values(), _alert_state(session).lasting, now, cost))


def _factor_of(session: Session) -> Callable[[Machine], Fraction]:
    """Return what says at which factor a machine's price is news: the lab's, else that of the home that launched it."""
    published = None
    with suppress(InvalidRequest):  # published by another version: no reason to tell nothing
        published = lab_limits(session.published()).price_jump

    def factor(machine: Machine) -> Fraction:
        return Fraction(published or Decimal(machine.terms.price_jump if machine.terms else PRICE_JUMP))

    return factor


def _held_back(session: Session) -> Iterator[Finding]:
    """Tell of prices that a refresh has not taken over, for having moved too far: one finding for a provider's list."""
    from cloudgpu.catalog.refreshed import stored
    from cloudgpu.catalog.rules import PROVIDERS

    for provider in PROVIDERS:
        with suppress(InvalidRequest):  # a damaged list is said by `catalog`, and prices nothing
            held = stored(provider).held_back
            if held:
                names = [f"{one.key.item} in {one.key.region}" for one in held]
                yield found_at_home(session, withheld_prices_finding(provider, names))


def _as_seen(session: Session, machine: Machine, now: str) -> Machine:
    """Return the row of a machine past its renew-until with when a sync last saw it: unchanged, that is in no line."""
    if not machine.billed or machine.renew_until is None or machine.renew_until > now:
        return machine
    return machine._replace(seen_at=last_seen_at(session.ledger, machine))


def _asked_since(session: Session, machines: list[Machine]) -> Iterator[tuple[str, datetime]]:
    for machine in machines:
        since = unproved_since(session.ledger.events(machine.id)) if machine.pending_action else None
        if since is not None:
            yield machine.id, since


LOCK = "alerts"
BUDGETS = ("budget",)  # the topics of what a run finds itself, unless it says otherwise


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a run has done about alerts.

    `raised` and `cleared` are keys. `outcomes` has an attempt per receiver that something was waiting for; `waiting`
    is how many news somebody is still to have after it. `lasting` are the titles of all that is wrong now.
    """

    raised: tuple[str, ...]
    cleared: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    waiting: int
    lasting: tuple[str, ...]

    def value(self) -> AlertRun:
        """Return it as a part of a JSON document."""
        return {
            "raised": list(self.raised),
            "cleared": list(self.cleared),
            **outcomes_value(self.outcomes),
            "pending": self.waiting,
            "active": list(self.lasting),
        }


def outcomes_value(outcomes: Iterable[Outcome]) -> DeliveryValue:
    """Return who took a message (`sent`) and who did not and why (`failed`), as parts of a JSON document."""
    found = list(outcomes)
    return {
        "sent": [outcome.receiver for outcome in found if outcome.why is None],
        "failed": [{"receiver": outcome.receiver, "why": outcome.why} for outcome in found if outcome.why is not None],
    }


def deliver(
    session: Session,
    findings: Iterable[Finding],
    *,
    judged: Collection[str] = BUDGETS,
    exempt: Collection[str] = (),
) -> Delivery:
    """Tell of these findings and of what the ledger says of machines; return what was done.

    `judged` are the topics (the first word of a key) that the caller has checked completely: what is absent of them has
    fallen back, but for keys that begin with one of `exempt`. What is wrong with machines is found here. Each receiver
    gets one message with all that it is still to have, in one attempt; what it does not take is kept for the next call.
    Raises MissingExtra, after the ledger has it, where something is to be sent and apprise is not installed, and
    LedgerUnavailable.
    """
    found = [*findings, *found_here(session)]
    state, raised, cleared = _noted(session, found, {*judged, *TOPICS}, exempt)
    outcomes = _sent(session, found) if state.news else ()
    state = _alert_state(session) if outcomes else state
    heard = _audience(session) if state.news else Audience(frozenset())
    waiting = {alert.id for label in heard.all for alert in state.waiting(label, heard)}
    titles = tuple(one.finding.title for one in as_now(state.news, found) if one.cleared_at is None and is_wrong(one))
    return Delivery(raised, cleared, outcomes, len(waiting), titles)


def note(session: Session, findings: Iterable[Finding], *, judged: Collection[str]) -> None:
    """Raise and clear in the ledger alone; a later `deliver` sends it."""
    _noted(session, list(findings), set(judged))


def note_one(session: Session, key: str, finding: Finding | None) -> bool:
    """Raise the alert of this key, or clear it where `finding` is None, in the ledger alone; say whether that is new.

    For what one watcher alone can find: of all other keys it says nothing. A later `deliver` sends it.
    """
    state = _alert_state(session)
    lasts = state.lasting.get(key)
    if finding is not None and lasts is None:
        session.ledger.append([raised_line(finding, state, _audience(session).of(finding), session.clock())])
        return True
    if finding is None and lasts is not None:
        session.ledger.append([alert_cleared(*lasts.id, session.clock())])
        return True
    return False


def sample(session: Session) -> tuple[Outcome, ...]:
    """Send a sample to every receiver and return how each attempt ended; writes nothing.

    Raises InvalidRequest where no receiver is set or the user's own template has a fault, MissingExtra.
    """
    addresses = everybody(session.settings.alerts, session.home)
    if not addresses:
        raise InvalidRequest(
            "No alert can be sent: config.toml names no receiver.",
            field="alerts.to",
            value=None,
            next=f'Add to {session.home.config_file}: [alerts] and below it to = ["mailto://...", "desktop"]',
        )
    now = session.clock()
    made_up = Finding(
        "sample",
        "sample",
        "A sample of an alert",
        "Nothing is wrong: this shows that alerts of cloudgpu arrive here.",
        {"amount": "$12.34", "owner": session.settings.owner},
    )
    text = _message(session, [RaisedAlert(made_up, 1, now, frozenset())], strict=True)
    return send([(address, text) for address in addresses])


def send_directly(session: Session, finding: Finding) -> tuple[Outcome, ...]:
    """Send one finding to every receiver, without the ledger; return how each attempt ended. Raises MissingExtra."""
    addresses = everybody(session.settings.alerts, session.home)
    if not addresses:
        return ()
    text = _message(session, [RaisedAlert(finding, 1, session.clock(), frozenset())])
    return send([(address, text) for address in addresses])


def undelivered(session: Session) -> dict[str, tuple[RaisedAlert, ...]]:
    """Return, for each receiver that something is waiting for, what that is."""
    state, heard = _alert_state(session), _audience(session)
    addresses = everybody(session.settings.alerts, session.home)
    found = {label: state.waiting(label, heard) for label in map(label_of, addresses)}
    return {label: news for label, news in found.items() if news}


def lasting_keys(session: Session, topic: str) -> tuple[str, ...]:
    """Return the keys of alerts of this topic that have not fallen back."""
    return tuple(key for key, one in _alert_state(session).lasting.items() if one.finding.topic == topic)


def _noted(
    session: Session, findings: Sequence[Finding], judged: Collection[str], exempt: Collection[str] = ()
) -> tuple[AlertState, tuple[str, ...], tuple[str, ...]]:
    """Write what has appeared and what has fallen back; return the alerts as they stand then, and the keys of both."""
    state, now = _alert_state(session), session.clock()
    here = {topic_here(session, one) for one in judged}  # whoever checks a topic checks this home's part, too
    raise_, clear = due(findings, state, {*judged, *here}, exempt)
    if not raise_ and not clear:
        return state, (), ()
    heard = _audience(session)
    raised = [raised_line(one, state, heard.of(one), now) for one in raise_]
    lines = raised + [alert_cleared(*one.id, now) for one in clear]
    session.ledger.append(lines)
    return _alert_state(session), tuple(one.key for one in raise_), tuple(one.finding.key for one in clear)


def _sent(session: Session, findings: Sequence[Finding]) -> tuple[Outcome, ...]:
    """Try once every receiver that something is waiting for, and record who took it; texts come from `findings`."""
    try:
        with session.lock(LOCK, wait=False):
            state = _alert_state(session)  # as it is under the lock: another command may have sent all of it
            heard = _audience(session)
            addresses = everybody(session.settings.alerts, session.home)
            waiting = {one: as_now(state.waiting(label_of(one), heard), findings) for one in addresses}
            outcomes = _tried(session, {address: news for address, news in waiting.items() if news})
            return (*outcomes, *_tried(session, _instead(session, heard, findings, outcomes)))
    except LedgerUnavailable:
        raise
    except ProviderUnavailable as busy:
        session.report(f"alerts are not sent now: {busy.message}")
        return ()


def _instead(
    session: Session, heard: Audience, findings: Sequence[Finding], outcomes: Sequence[Outcome]
) -> dict[str, list[RaisedAlert]]:
    """Return what the lab's receivers get in place of a person's own, which have just failed: what is urgent."""
    failed = {outcome.receiver for outcome in outcomes if outcome.why is not None}
    if not failed:
        return {}
    news = [(one, heard.instead(one, failed)) for one in as_now(_alert_state(session).news, findings)]
    lab = {address: label_of(address) for address in receivers(session.settings.alerts, session.home)}
    lost = {address: [_for_the_lab(one) for one, to in news if label in to] for address, label in lab.items()}
    return {address: some for address, some in lost.items() if some}


def _for_the_lab(alert: RaisedAlert) -> RaisedAlert:
    owner = alert.finding.facts.get("owner", "its owner")
    text = f"{alert.finding.text} {owner}'s own receiver did not take it."
    return replace(alert, finding=replace(alert.finding, text=text))


def _tried(session: Session, waiting: Mapping[str, Sequence[RaisedAlert]]) -> tuple[Outcome, ...]:
    if not waiting:
        return ()
    outcomes = send([(address, _message(session, news)) for address, news in waiting.items()])
    taken = [(one, news) for one, news in zip(outcomes, waiting.values(), strict=True) if one.why is None]
    if taken:
        session.ledger.append(
            [alert_sent(one.receiver, [alert.id for alert in news], session.clock()) for one, news in taken]
        )
    return outcomes


def _message(session: Session, news: Sequence[RaisedAlert], *, strict: bool = False) -> Message:
    """Return the message; a fault of the user's own template does not keep an alert from being sent."""
    alerts, now = session.settings.alerts, session.clock()
    try:
        own = own_template(alerts, session.home)
        return message(news, now, shipped_template() if own is None else own)
    except InvalidRequest as error:
        if strict or alerts.template is None:
            raise
        session.report(f"{error.message} The shipped text is sent instead.")
        return message(news, now, shipped_template())


def _audience(session: Session) -> Audience:
    """Return who hears of what; a key of [alerts.people] is any name of a person, or their user of the database."""
    alerts = session.settings.alerts
    names = authorization_of(session).people if alerts.people else People()
    people: dict[str, frozenset[str]] = {}
    for owner, addresses in alerts.people.items():
        person = known_as(names, owner)
        people[person] = people.get(person, frozenset()) | set(map(label_of, addresses))
    return Audience(frozenset(map(label_of, receivers(alerts, session.home))), people, names)


def _alert_state(session: Session) -> AlertState:
    """Return what the ledger says of alerts; folded anew only where they have a line more than at the last time."""
    last = session.ledger.last(SUBJECT)
    if last is None:
        return AlertState()
    known = session.alert_state_cache
    if known is None or known[0] != last:  # its hash before stands for all lines before
        known = session.alert_state_cache = (last, alert_state(session.ledger.events(SUBJECT)))
    return known[1]


WAIT_S = 10.0
DEADMAN = "deadman"


def ping(session: Session, *, ok: bool, wait_s: float = WAIT_S) -> str | None:
    """Say outside that a run has ended, well or not; return why that failed, None when it was heard or none is set.

    None was made well, either, while a machine that only scheduled runs end is guarded by none of them: a run by hand,
    or of a laptop, must not hide that. A failure is raised as an alert, which the next run sends. Raises
    LedgerUnavailable.
    """
    address = session.settings.alerts.deadman
    if address is None:
        return None
    ok = ok and not unguarded_machines(session, session.ledger.present_machines())
    why = within(wait_s, partial(_called, address if ok else _with_fail(address), wait_s))
    note(session, [] if why is None else [found_at_home(session, _deadman_finding(why))], judged=(DEADMAN,))
    return why


def _called(address: str, wait_s: float) -> str | None:
    """Return why the service did not take it, without a word of its address: whoever knows that can answer for us."""
    import urllib.error
    import urllib.request
    from http.client import HTTPException

    asked = urllib.request.Request(address, headers={"User-Agent": "cloudgpu"})  # noqa: S310  (the settings allow http and https alone)
    try:
        with urllib.request.urlopen(asked, timeout=wait_s) as answer:  # noqa: S310  (as above)
            answer.read(1)
    except urllib.error.HTTPError as error:
        return f"answered {error.code}"
    except TimeoutError:
        return f"did not answer within {wait_s:g} seconds"
    except (urllib.error.URLError, HTTPException, OSError, ValueError):
        return "could not be reached"
    return None


def _with_fail(address: str) -> str:  # https://healthchecks.io/docs/signaling_failures/
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
