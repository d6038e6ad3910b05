"""Keeps apart what this home alone can find wrong: another home on the same ledger must not clear it."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from cloudgpu.core.alerts.alerts import Finding
from cloudgpu.core.budgets.status import findings

if TYPE_CHECKING:
    from cloudgpu.control.session import Session
    from cloudgpu.core.budgets.status import Standing


def topic_here(session: Session, topic: str) -> str:
    """Return the topic of what this home alone can judge: `reaper@tower/home/ada/.cloudgpu`."""
    return f"{topic}@{platform.node()}{session.home.root}".replace(":", "")


def found_at_home(session: Session, finding: Finding) -> Finding:
    """Return the finding as one of this home alone."""
    topic, colon, rest = finding.key.partition(":")
    return replace(finding, key=f"{topic_here(session, topic)}{colon}{rest}")


def budget_findings(session: Session, standings: Iterable[Standing]) -> Iterator[Finding]:
    """Yield what budgets have to say; those of files, which other homes do not have, as findings of this home."""
    for one in standings:
        for finding in findings([one]):
            yield found_at_home(session, finding) if one.budget.place else finding
