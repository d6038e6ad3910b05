"""Sends the report to the receivers of alerts: on request, and once for each month that has ended.

Which receiver has accepted which month is recorded in the ledger. A crash between sending and recording sends a report
twice, and loses none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.config.alerts.alerts import NEVER, receivers
from cloudgpu.config.alerts.template import AttachedFile, Message
from cloudgpu.config.files.user_files import zone_of
from cloudgpu.control.alerts.alerts import outcomes_document
from cloudgpu.control.alerts.channels import Outcome, label_of, send
from cloudgpu.core.alerts.findings import SUBJECT, month_due, month_name, receivers_with_report, whole_month
from cloudgpu.core.events.general_events import report_sent
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import InvalidRequest, LockBusy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, tzinfo

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.values.times import Period
    from cloudgpu.views.documents.money.report import ReportDocument, SentReportDocument

LOCK = "reports"  # the name of the lock: one process sends at a time


def send_report(session: Session, document: ReportDocument) -> SentReportDocument:
    """Send this report to every receiver, in one attempt each; return who has accepted it and who has not.

    The report of a calendar month that has ended is then not sent again by `watch`. A month without charges is sent to
    nobody, and `nothing_sent` says so. Raises InvalidRequest if no receiver is configured, MissingExtra.
    """
    addresses = receivers(session.settings.alerts, session.home)
    if not addresses:
        raise InvalidRequest(
            "The report cannot be sent: config.toml names no receiver.",
            field="alerts.to",
            value=None,
            next=f'Add to {session.home.config_file}: [alerts] and below it to = ["mailto://...", "desktop"]',
        )
    message, month = message_of(document), _month_of(document, zone_of(document["tz"]))
    why_not_sent = None
    if month is not None and not has_spending(session, month):
        why_not_sent = f"Nothing was sent: nothing was billed in {month_name(month, zone_of(document['tz']))}."
    outcomes = () if why_not_sent else _send(session, document, message, addresses)
    return {
        "subject": message.subject,
        "since": document["since"],
        "until": document["until"],
        "tz": document["tz"],
        "as_of": document["as_of"],
        **outcomes_document(outcomes),
        "nothing_sent": why_not_sent,
    }


def _month_of(document: ReportDocument, zone: tzinfo) -> Period | None:
    """Return the calendar month of the report, in this time zone; None if it is for another period."""
    since, until = (None if at is None else from_iso(at) for at in (document["since"], document["until"]))
    return whole_month(since, until, zone)


def message_of(document: ReportDocument) -> Message:
    """Return the report as a message: the summary, the page as attached file, and the full text for other receivers."""
    from cloudgpu.views.report.html import report_message, to_html
    from cloudgpu.views.report.markdown import to_markdown

    text = report_message(document, zone_of(document["tz"]))
    full_text = to_markdown(document).partition("\n")[2].replace("\\$", "$")  # without heading and GitHub escapes
    attachment = AttachedFile(
        text.file, "text/html", to_html(document).encode(), text.text_without_file, full_text.strip()
    )
    return Message(text.subject, text.text, urgent=False, attached=attachment)


def report_due_at(session: Session) -> datetime:
    """Return when the next monthly report is due: now, if a receiver has not accepted that of the last month."""
    month, next_due = month_due(session.clock(), zone_of(session.settings.tz))
    return session.clock() if _receivers_without_report(session, month) and has_spending(session, month) else next_due


def send_monthly(session: Session) -> str:
    """Send the last month's report to receivers that have not accepted it; return what was done, empty for nothing.

    Only one process that watches this ledger sends it: who has it already is read again under the lock.
    """
    try:
        with session.lock(LOCK, wait=False):
            return _send_last_month(session)
    except LockBusy:
        return ""


def _send_last_month(session: Session) -> str:
    from cloudgpu.control.cost.report import parse_report, report_document

    zone = zone_of(session.settings.tz)
    month, _ = month_due(session.clock(), zone)
    addresses = _receivers_without_report(session, month)
    if not addresses or not has_spending(session, month):
        return ""
    document = report_document(session, parse_report(session, month=month_name(month, zone)))
    outcomes = _send(session, document, message_of(document), addresses)
    outcome_texts = [f"was sent to {outcome.receiver}" for outcome in outcomes if outcome.why is None]
    outcome_texts += [
        f"was not taken by {outcome.receiver} ({outcome.why}), and is tried again"
        for outcome in outcomes
        if outcome.why
    ]
    return f"the report of {month_name(month, zone)} {'; '.join(outcome_texts)}"


def _receivers_without_report(session: Session, month: Period) -> list[str]:
    """Return the addresses of receivers that have not accepted the report of this month."""
    alerts = session.settings.alerts
    addresses = () if alerts.report == NEVER else receivers(alerts, session.home)
    if not addresses:
        return []
    accepted_labels = receivers_with_report(
        session.ledger.events(SUBJECT), month_name(month, zone_of(session.settings.tz))
    )
    return [address for address in addresses if label_of(address) not in accepted_labels]


def has_spending(session: Session, month: Period) -> bool:
    """Return whether anything was billed in this month, with or without a known price."""
    from cloudgpu.control.cost.cost import with_slurm_tariffs
    from cloudgpu.core.billing.daily import daily

    machines, ended_usages = session.ledger.read(
        lambda view: (view.billable_machines(), list(view.ended_usages(iso(month.begin))))
    )
    charged = with_slurm_tariffs(session, machines)  # what the report itself counts
    costs = daily(
        charged, ended_usages, session.clock(), zone_of(session.settings.tz), since=month.begin, until=month.end
    )
    return bool(costs.days or costs.without_price)


def _send(
    session: Session, document: ReportDocument, message: Message, addresses: Sequence[str]
) -> tuple[Outcome, ...]:
    """Send the report; if it is for a calendar month that has ended, record who has accepted it."""
    outcomes = send([(address, message) for address in addresses])
    zone, now = zone_of(session.settings.tz), session.clock()
    month = _month_of(document, zone)
    accepted_by = [outcome.receiver for outcome in outcomes if outcome.why is None]
    if month is not None and month.end <= now and accepted_by:
        session.ledger.append([report_sent(month_name(month, zone), receiver, now) for receiver in accepted_by])
    return outcomes
