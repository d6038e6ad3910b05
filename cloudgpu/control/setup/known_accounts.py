"""Which accounts this home knows beside the ledger, and which of them nobody asked when a ledger was settled.

A restore may lose every line of an account. What this home remembers of it is then all that is known: what its accounts
last said who they are, its saved calls, and the lines that wait in its outbox.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudgpu.control.session.identity import identity_of
from cloudgpu.control.session.reachable import remembered
from cloudgpu.core.model.identity import BY_REGION, QueriedAccount, Unanswered
from cloudgpu.errors import CloudgpuError, LedgerUnavailable
from cloudgpu.ledger import saved_calls as saved

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session


HOSTS = "ssh"  # the provider of which a region is an account of its own


@dataclass(frozen=True, slots=True)
class Known:
    """An account that this home knows; `why` says from where. `region` names the host where each is one of its own."""

    kind: str
    id: str
    words: str
    region: str | None
    why: str


def known_here(session: Session) -> list[Known]:
    """Return the accounts that this home knows, each once. A look overwrites what it last said: ask before it."""
    found = [*_saved(session), *_waiting(session), *_said(session)]
    return list({(one.kind, one.id): one for one in reversed(found)}.values())[::-1]


def accounts_not_queried(
    session: Session, known: Iterable[Known], queried: Iterable[QueriedAccount]
) -> list[Unanswered]:
    """Return those of `known` that are none of the accounts that were asked: what runs there is not known."""
    wanted = list(known)
    hosts = {None, *(one.region for one in wanted)}
    places = [(one.account, region) for one in queried for region in (hosts if one.provider == HOSTS else (None,))]
    now = {found for account, region in places for found in _now(session, account, region)}
    return [Unanswered(one.words, one.why) for one in wanted if (one.kind, one.id) not in now]


def _now(session: Session, account: str, region: str | None) -> Iterator[tuple[str, str]]:
    try:
        found = identity_of(session, account, region)
    except CloudgpuError:  # of hosts, one that this account does not have
        return
    yield found.kind, found.id


def _said(session: Session) -> Iterator[Known]:
    for account, places in remembered(session).items():
        for place, (kind, id_) in places.items():
            why = f"`{account}` here was that account, and no account here is that one now"
            yield Known(kind, id_, f"{kind} {id_}", place or None, why)


def _saved(session: Session) -> Iterator[Known]:
    for token, _ in saved.waiting(session.home.attempts):
        try:
            call = saved.load(session.home.attempts, token)
        except LedgerUnavailable:  # said by whoever settles it
            continue
        if call is not None and call.identity is not None and call.ledger == session.ledger.id:
            one, region = call.identity, call.offer.available.region
            why = f"a saved call of this home launched {call.request.name} there"
            yield Known(one.kind, one.id, one.words, region if one.kind == BY_REGION else None, why)


def _waiting(session: Session) -> Iterator[Known]:
    for outbox in (session.ledger.outbox, *session.ledger.outbox.others()):
        for line in outbox.waiting(session.ledger.id):
            one = line.body.get("identity")
            if one is not None:
                region = line.body.get("region") if one["kind"] == BY_REGION else None
                yield Known(one["kind"], one["id"], one["words"], region, "lines in the outbox of this home name it")
