"""Writes the text of a message about alerts, by the shipped template or the user's own.

A template sees `news` and nothing else: no setting, no file, no Python. So no address of a receiver can be in a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cloudgpu.config.alerts.alerts import Alerts
from cloudgpu.config.files.user_files import Home, data_dir, read_text, shown
from cloudgpu.core.alerts.alerts import RaisedAlert
from cloudgpu.core.values.printable import one_line
from cloudgpu.core.values.times import duration_text
from cloudgpu.errors import InvalidRequest

FRESH = timedelta(minutes=1)  # what is no older says nothing of its age
WIDEST = 150  # characters of a subject line
VALUES = ("title", "text", "facts", "kind", "urgent", "since", "age", "over")  # what a template knows of each news


@dataclass(frozen=True, slots=True)
class Attached:
    """A file beside a text: what it is called and what is in it.

    `instead` is the text for whoever cannot be sent a file; `whole` that with all there is, where a message holds it.
    """

    name: str
    type: str  # "text/html"
    content: bytes
    instead: str
    whole: str


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent: a subject line, the text, whether any of it is urgent, and perhaps a file; that is no warning."""

    subject: str
    body: str
    urgent: bool
    attached: Attached | None = None


def message(news: Sequence[RaisedAlert], now: datetime, template: str) -> Message:
    """Return what tells of all these news at once.

    Raises InvalidRequest for a template that is no jinja2, or uses a name that there is not.
    """
    first = one_line(news[0].finding.title)
    rest = f", and {len(news) - 1} more" if len(news) > 1 else ""
    cut = WIDEST - len("cloudgpu: ") - len(rest)
    subject = f"cloudgpu: {first if len(first) <= cut else first[: cut - 3] + '...'}{rest}"
    body = _rendered(template, [_value(one, now) for one in news])
    return Message(subject, body, any(one.finding.urgent for one in news))


def shipped_template() -> str:
    """Return the text of the template that is used where the settings name none."""
    return (data_dir("templates") / "alert.txt").read_text(encoding="utf-8")


def own_template(alerts: Alerts, home: Home) -> str | None:
    """Return the text of the user's own template, None where none is set; raise InvalidRequest for one that is gone."""
    if alerts.template is None:
        return None
    path = home.root / alerts.template
    text = read_text(path, alerts.template)
    if text is None:
        raise _fault(f"names {path}, which is not there", alerts.template)
    return text


def _value(alert: RaisedAlert, now: datetime) -> dict[str, Any]:
    age = now - alert.raised_at
    finding = alert.finding
    return {
        "title": one_line(finding.title),
        "text": one_line(finding.text),
        "facts": {one_line(name): one_line(value) for name, value in finding.facts.items()},
        "kind": finding.kind,
        "urgent": finding.urgent,
        "since": f"{alert.raised_at:%Y-%m-%d %H:%M} UTC",
        "age": duration_text(age) if age > FRESH else "",
        "over": alert.cleared_at is not None,
    }


def _rendered(template: str, news: list[dict[str, Any]]) -> str:
    from jinja2 import StrictUndefined, TemplateSyntaxError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    try:
        text = environment.from_string(template).render(news=news).strip()
    except TemplateSyntaxError as error:
        raise _fault(f"is not valid Jinja2 (line {error.lineno}: {error.message})", None) from None
    except Exception as error:  # noqa: BLE001  (whatever an expression of the text can raise)
        raise _fault(f"cannot be rendered: {shown(error) or type(error).__name__}", None) from None
    if not text:
        raise _fault("renders to nothing", None)
    return text


def _fault(says: str, value: str | None) -> InvalidRequest:
    return InvalidRequest(
        f"config.toml: alerts.template {says}.",
        field="config.toml: alerts.template",
        value=value,
        next=f"Of each of `news` it may use: {', '.join(VALUES)}. Without the setting, the shipped text is sent.",
    )
