"""Which alerts to raise and to clear: what is wrong now, compared with the alerts in the ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from cloudgpu.core.events.general_bodies import AlertRaised
from cloudgpu.core.events.general_events import alert_raised
from cloudgpu.core.events.log import Draft, Event
from cloudgpu.core.team.rights import People, comparable_name
from cloudgpu.core.values.times import from_iso

SUBJECT = "alerts"  # of every line about an alert
PERSONAL = ("warning", "lease", "ended", "job", "job-waits")  # topics that only the owner's receivers get, if any
RAISED, SENT, CLEARED = "alert_raised", "alert_sent", "alert_cleared"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong now, or that people should know.

    `key` identifies it and stays the same while it lasts: `budget:lab:threshold:80`, `stop:<machine>`. Its first word
    is the topic; `TOPIC@HOME` is only about that home. `facts` are names, amounts and times for
    the text, never a secret. `kind` names the sort of finding for people, `title` is one line.
    """

    key: str
    kind: str
    title: str
    text: str
    facts: Mapping[str, str] = field(default_factory=dict)
    urgent: bool = False

    @property
    def topic(self) -> str:
        """The first word of the key."""
        return self.key.partition(":")[0]


@dataclass(frozen=True, slots=True)
class RaisedAlert:
    """A finding that was raised: the `number`-th time that its key appeared.

    `receivers` are the receivers that were configured then, `sent_to` those that have received it. `cleared_at` is when
    its cause was gone.
    """

    finding: Finding
    number: int
    raised_at: datetime
    receivers: frozenset[str]
    sent_to: frozenset[str] = frozenset()
    cleared_at: datetime | None = None

    @property
    def id(self) -> tuple[str, int]:
        """Its identity in ledger lines."""
        return self.finding.key, self.number

    def waits_for(self, receiver: str) -> bool:
        """Say whether it still has to be sent to this receiver.

        An alert that lasts is also sent to a receiver that was added later; a cleared one only to its original
        receivers.
        """
        return receiver not in self.sent_to and (self.cleared_at is None or receiver in self.receivers)


@dataclass(frozen=True, slots=True)
class Audience:
    """Who receives which alerts: the receivers of the lab, and those of single owners, by the owner's `known_as`.

    `identities` says which owner's names are one person's: alerts on all of that person's machines go to the same
    receivers.
    """

    lab: frozenset[str]
    people: Mapping[str, frozenset[str]] = field(default_factory=dict)
    identities: People = field(default_factory=People)

    @property
    def all(self) -> frozenset[str]:
        """Every receiver."""
        return self.lab.union(*self.people.values())

    def of(self, finding: Finding) -> frozenset[str]:
        """Return who receives a finding: only the owner for `PERSONAL` topics, else the owner and the lab."""
        own = self._own_receivers(finding)
        if not own:
            return self.lab
        return own if finding.topic in PERSONAL else own | self.lab

    def fallback(self, alert: RaisedAlert, failed: Collection[str]) -> frozenset[str]:
        """Return who receives an urgent personal alert if all receivers of its owner failed: the lab's."""
        own = self._own_receivers(alert.finding) if alert.finding.topic in PERSONAL else frozenset()
        owner_unreached = bool(own) and own <= frozenset(failed) and not own & alert.sent_to
        return (
            self.lab - own - alert.sent_to
            if owner_unreached and alert.finding.urgent and alert.cleared_at is None
            else frozenset()
        )

    def _own_receivers(self, finding: Finding) -> frozenset[str]:
        return self.people.get(known_as(self.identities, finding.facts.get("owner", "")), frozenset())


def known_as(names: People, owner: str) -> str:
    """Return the canonical name of the person whom `owner` names, as names are compared; else the name itself."""
    return comparable_name(names.person(owner))


@dataclass(frozen=True, slots=True)
class AlertState:
    """The `alerts` in the ledger that last or still have to be sent.

    `raise_counts` says how often each key was raised.
    """

    alerts: tuple[RaisedAlert, ...] = ()
    raise_counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def lasting(self) -> dict[str, RaisedAlert]:
        """The alerts that are not cleared, by key."""
        return {alert.finding.key: alert for alert in self.alerts if alert.cleared_at is None}

    def waiting(self, receiver: str, audience: Audience | None = None) -> tuple[RaisedAlert, ...]:
        """Return the alerts that still have to be sent to a receiver, oldest first; with an audience, only its own."""
        waiting = (alert for alert in self.alerts if alert.waits_for(receiver))
        return tuple(alert for alert in waiting if audience is None or receiver in audience.of(alert.finding))


def alert_state(lines: Iterable[Event]) -> AlertState:
    """Return the alerts by the lines of the subject `alerts`. A repeated line changes nothing."""
    alerts: dict[tuple[str, int], RaisedAlert] = {}
    raise_counts: dict[str, int] = {}
    for line in sorted(lines, key=lambda line: line.seq):
        if line.kind == RAISED:
            alert = _raised(line)
            alerts.setdefault(alert.id, alert)
            raise_counts[alert.finding.key] = max(raise_counts.get(alert.finding.key, 0), alert.number)
        elif line.kind == CLEARED:
            alert_id = line.body["key"], line.body["number"]
            if alert_id in alerts and alerts[alert_id].cleared_at is None:
                alerts[alert_id] = replace(alerts[alert_id], cleared_at=from_iso(line.occurred_at))
        elif line.kind == SENT:
            for sent in [(key, number) for key, number in line.body["news"] if (key, number) in alerts]:
                alerts[sent] = replace(alerts[sent], sent_to=alerts[sent].sent_to | {line.body["receiver"]})
    return AlertState(
        tuple(one for one in alerts.values() if one.cleared_at is None or one.receivers - one.sent_to), raise_counts
    )


def changes_due(
    findings: Iterable[Finding],
    state: AlertState,
    checked_topics: Collection[str] | None = None,
    exempt: Collection[str] = (),
) -> tuple[tuple[Finding, ...], tuple[RaisedAlert, ...]]:
    """Return (what to raise, what to clear).

    A finding is raised when its key appears, not again while it stays, and again only after it was absent once.
    What is absent is cleared where its topic is among `checked_topics` (None: all): a run that did not check
    budgets says nothing about them. What begins with one of `exempt` is not cleared: it was not checked.
    """
    current = {finding.key: finding for finding in reversed(tuple(findings))}  # of two with one key, the first counts
    lasting = state.lasting
    raised = tuple(one for key, one in current.items() if key not in lasting)
    absent = (one for key, one in lasting.items() if key not in current and not key.startswith(tuple(exempt)))
    return tuple(reversed(raised)), tuple(
        one for one in absent if checked_topics is None or one.finding.topic in checked_topics
    )


def with_text_now(alerts: Iterable[RaisedAlert], findings: Iterable[Finding]) -> tuple[RaisedAlert, ...]:
    """Return the alerts with the text of the present finding of the same key, where they last and there is one.

    What an alert said when it was raised may be wrong by the time that it is sent: its budget was replaced, say. It
    stays the same alert, so nobody gets it twice.
    """
    current = {one.key: one for one in reversed(tuple(findings))}
    return tuple(
        replace(one, finding=current[one.finding.key]) if one.cleared_at is None and one.finding.key in current else one
        for one in alerts
    )


def raised_line(finding: Finding, state: AlertState, receivers: Collection[str], now: datetime) -> Draft:
    """Return the line that raises a finding; two runs that raise the same one at once write it once."""
    alert: AlertRaised = {
        "key": finding.key,
        "number": state.raise_counts.get(finding.key, 0) + 1,
        "kind": finding.kind,
        "title": finding.title,
        "text": finding.text,
        "facts": dict(finding.facts),
        "urgent": finding.urgent,
        "to": sorted(receivers),
    }
    return alert_raised(alert, now)


def _raised(line: Event) -> RaisedAlert:
    body = line.body
    finding = Finding(body["key"], body["kind"], body["title"], body["text"], body["facts"], urgent=body["urgent"])
    return RaisedAlert(finding, body["number"], from_iso(line.occurred_at), frozenset(body["to"]))
