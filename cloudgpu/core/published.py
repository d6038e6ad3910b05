"""What a lab's payers have published in the ledger: policies and limits, as text, with who and when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from cloudgpu.core.events import Draft, Event

SUBJECT = "policies"  # of every line about what is published
PUBLISHED, WITHDRAWN = "policy_published", "policy_withdrawn"


@dataclass(frozen=True, slots=True)
class Published:
    """A policy, or the `limits`, as it was published: its text, the zone of schedules that name none, by whom, when."""

    name: str
    text: str
    tz: str
    by: str
    at: str

    @property
    def origin(self) -> str:
        """Who published it, and when, in words."""
        return f"the ledger, published by {self.by} at {self.at[:16].replace('T', ' ')} UTC"


def published_of(lines: Iterable[Event]) -> dict[str, Published]:
    """Return what these lines leave published, by name."""
    found: dict[str, Published] = {}
    for line in sorted(lines, key=lambda line: line.seq):
        body = line.body
        if line.kind == PUBLISHED:
            found[body["name"]] = Published(body["name"], body["text"], body["tz"], line.actor, line.occurred_at)
        elif line.kind == WITHDRAWN:
            found.pop(body["name"], None)
    return found


def published_line(name: str, text: str, tz: str, now: datetime, after: int) -> Draft:
    """Return the line that publishes a policy or the limits; `after` is the ledger's last line."""
    body = {"name": name, "text": text, "tz": tz}
    return Draft(PUBLISHED, SUBJECT, body, now, f"{PUBLISHED}:{name}:{after}")


def withdrawn_line(name: str, now: datetime, after: int) -> Draft:
    """Return the line that withdraws it."""
    return Draft(WITHDRAWN, SUBJECT, {"name": name}, now, f"{WITHDRAWN}:{name}:{after}")
