"""Keeps what a launch is under in the ledger: the texts of its policy and limits, so that every pass goes by the same.

A file lies in one home. What it said at the launch stands in the launch's line, as the row's `terms`. The home where it
lies reads it anew, and its passes write what has changed; every other home goes by what stands in the ledger.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.access.computer import computer
from cloudgpu.config.files.paths import data_dir
from cloudgpu.config.files.text import read_text
from cloudgpu.config.policies.file import FILE
from cloudgpu.config.policies.find import Found
from cloudgpu.config.policies.terms import is_from
from cloudgpu.control.team.published import published
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.observed_lines import terms_set
from cloudgpu.core.model.facts import Terms, TermsText
from cloudgpu.core.model.machine import Machine, fact

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session


def terms_of(session: Session, found: Found, places: Sequence[Path]) -> Terms:
    """Return what a launch under this policy is under; `places` are where limits are looked for.

    `policy` is None for a shipped policy, and its `place` for a published one. `price_jump` is the home's setting: an
    alert has one threshold, whoever's pass raises it.
    """
    limits = [_text_at(place / FILE) for place in places]
    return Terms(
        home_id(session),
        _policy_text(session, found),
        tuple([one for one in limits if one is not None]),
        str(session.settings.alerts.price_jump),
    )


def _policy_text(session: Session, found: Found) -> TermsText | None:
    if found.origin:
        one = published(session)[found.policy.name]
        return TermsText(None, one.text, one.tz)
    if found.path.parent == data_dir("policies"):
        return None
    text = _text_at(found.path)
    return None if text is None else text._replace(tz=session.settings.tz)


def home_id(session: Session) -> str:
    """Return what tells this home from every other: the computer and the directory."""
    return f"{computer()}{os.path.realpath(session.home.root)}"


def terms_now(session: Session, row: Machine, home: str) -> Terms:
    """Return the terms of a row that has some: of a machine that this home has launched, with the files as they are.

    A file that is gone leaves what it said, but for this home's own limits. Raises InvalidRequest for a file that
    cannot be read.
    """
    terms = fact(row.terms)
    if not is_from(home, row):
        return terms
    own = str(session.home.policies / FILE)
    known = {fact(one.place): one for one in terms.limits}
    read = {place: _text_at(Path(place)) for place in dict.fromkeys([*known, own])}
    limits = [text or (None if place == own else known[place]) for place, text in read.items()]
    return terms._replace(
        policy=_policy_now(session, row, terms),
        limits=tuple([one for one in limits if one is not None]),
        price_jump=str(session.settings.alerts.price_jump),
    )


def _policy_now(session: Session, row: Machine, terms: Terms) -> TermsText | None:
    """Return the text of the policy; a file of this home that has the name of a shipped one counts from now on."""
    known = terms.policy
    if known is not None and known.place is None:
        return known
    place = known and known.place
    text = _text_at(Path(place) if place else session.home.policies / f"{row.policy}.yaml")
    return known if text is None else text._replace(tz=session.settings.tz)


def _text_at(place: Path) -> TermsText | None:
    text = read_text(place, place.name)
    return None if text is None else TermsText(str(place), text)


def changed_terms(session: Session, rows: Sequence[Machine]) -> Iterator[Draft]:
    """Yield a line for each machine of this home whose policy or limits say something else by now."""
    now, home = session.clock(), home_id(session)
    read: dict[str, Terms] = {}
    for row in rows:
        if not row.policy or row.terminated_at is not None or not is_from(home, row):
            continue
        words = repr((row.policy, row.terms))
        if words not in read:
            read[words] = terms_now(session, row, home)
        if read[words] != row.terms:
            yield terms_set(row.id, read[words], now)
