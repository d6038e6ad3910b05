"""Writes the text of a message about alerts, by the shipped template or the user's own.

A template has the alerts in `news` and nothing else: no setting, no file, no Python. So no text can have an address of
a receiver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cloudgpu.config.alerts.alerts import Alerts, file_of
from cloudgpu.config.files.user_files import Home, data_dir, read_text, shown
from cloudgpu.core.alerts.alerts import RaisedAlert
from cloudgpu.core.values.printable import one_line
from cloudgpu.core.values.times import duration_text
from cloudgpu.errors import InvalidRequest

NO_AGE_BELOW = timedelta(minutes=1)  # the text gives no age of a younger alert
MAX_SUBJECT_LENGTH = 150  # characters of a subject line
ALERT_FIELDS = (
    "title",
    "text",
    "facts",
    "kind",
    "urgent",
    "since",
    "age",
    "over",
)  # what a template may use of each alert; `since` is when it was raised, `over` whether it was cleared


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """A file attached to a message. Receivers without attachments get `full_text`, or `summary` if it is too long."""

    name: str
    type: str  # "text/html"
    content: bytes
    summary: str
    full_text: str


@dataclass(frozen=True, slots=True)
class Message:
    """A message to receivers: subject line, text, whether any alert in it is urgent, and an optional file."""

    subject: str
    body: str
    urgent: bool
    attached: AttachedFile | None = None


def alert_message(alerts: Sequence[RaisedAlert], now: datetime, template: str) -> Message:
    """Return one message for all these alerts.

    Raises InvalidRequest for a template that is not valid jinja2, or uses an unknown name.
    """
    title = one_line(alerts[0].finding.title)
    more_text = f", and {len(alerts) - 1} more" if len(alerts) > 1 else ""
    max_length = MAX_SUBJECT_LENGTH - len("cloudgpu: ") - len(more_text)
    subject = f"cloudgpu: {title if len(title) <= max_length else title[: max_length - 3] + '...'}{more_text}"
    body = _rendered(template, [_template_values(alert, now) for alert in alerts])
    return Message(subject, body, any(alert.finding.urgent for alert in alerts))


def shipped_template() -> str:
    """Return the text of the template that is used if the settings name none."""
    return (data_dir("templates") / "alert.txt").read_text(encoding="utf-8")


def user_template(alerts: Alerts, home: Home) -> str | None:
    """Return the text of the user's own template, None if none is set; raise InvalidRequest for a missing file."""
    if alerts.template is None:
        return None
    path = file_of("template", alerts.template, home)
    text = read_text(path, alerts.template)
    if text is None:
        raise _template_error(f"names {path}, which is not there", alerts.template)
    return text


def _template_values(alert: RaisedAlert, now: datetime) -> dict[str, Any]:
    age = now - alert.raised_at
    finding = alert.finding
    return {
        "title": one_line(finding.title),
        "text": one_line(finding.text),
        "facts": {one_line(name): one_line(value) for name, value in finding.facts.items()},
        "kind": finding.kind,
        "urgent": finding.urgent,
        "since": f"{alert.raised_at:%Y-%m-%d %H:%M} UTC",
        "age": duration_text(age) if age > NO_AGE_BELOW else "",
        "over": alert.cleared_at is not None,
    }


def _rendered(template: str, alerts: list[dict[str, Any]]) -> str:
    from jinja2 import StrictUndefined, TemplateSyntaxError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    try:
        text = environment.from_string(template).render(news=alerts).strip()
    except TemplateSyntaxError as error:
        raise _template_error(f"is not valid Jinja2 (line {error.lineno}: {error.message})", None) from None
    except Exception as error:  # noqa: BLE001  (whatever an expression of the text can raise)
        raise _template_error(f"cannot be rendered: {shown(error) or type(error).__name__}", None) from None
    if not text:
        raise _template_error("renders to nothing", None)
    return text


def _template_error(problem: str, value: str | None) -> InvalidRequest:
    return InvalidRequest(
        f"config.toml: alerts.template {problem}.",
        field="config.toml: alerts.template",
        value=value,
        next=f"Of each of `news` it may use: {', '.join(ALERT_FIELDS)}. Without the setting, the shipped text is sent.",
    )
