"""Stops machines of other ledgers that are long past their renew-until, where a payer runs the reaper.

Everybody else only sees them. The lab's limits name the payers (`payers`).
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from cloudgpu.control.inventory.stop_proof import STOP_TIMEOUT, error_text, get_repeatedly, is_stopped
from cloudgpu.control.policies.resolve import limits_of
from cloudgpu.control.reaper.observe import REAPER_LOCK
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import authorization_of, requester_record
from cloudgpu.core.events.bodies import RequestedBy
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.machine_events import decision_made_for_lab
from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER, TAG_NAME, TAG_OWNER, TAG_RENEW_UNTIL, Instance
from cloudgpu.core.model.machine import Ownership
from cloudgpu.core.model.offers import Market
from cloudgpu.core.policies.policy import PAYERS_WAIT, ReaperAction, Rule
from cloudgpu.core.reaper.result import EndedItem, NotEnded, Outcome
from cloudgpu.core.team.rights import comparable_name
from cloudgpu.core.values.times import duration_text, from_epoch
from cloudgpu.errors import (
    CloudgpuError,
    InstanceNotFound,
    InvalidRequest,
    LedgerUnavailable,
    ProviderUnavailable,
    internal_error,
)
from cloudgpu.providers.abilities import Imageable, Pausable
from cloudgpu.providers.base import Provider
from cloudgpu.providers.shared.calls import UnansweredRounds
from cloudgpu.underway import on_abort, unproved_sentence

MAX_PAUSE_S = 5.0


def find_overdue(session: Session, foreign: Sequence[Instance]) -> list[Instance]:
    """Return the machines of other ledgers that this user may stop: billed, and 24 hours past their renew-until.

    In a team that also needs the payer's role. Raises InvalidRequest for a fault in the limits.
    """
    authorization, payers = authorization_of(session), set(map(comparable_name, limits_of(session).payers))
    if authorization.is_member or payers.isdisjoint(
        map(comparable_name, (session.settings.owner, authorization.person))
    ):
        return []
    return [instance for instance in foreign if _is_overdue(instance, session.clock())]


def overdue_sentence(instance: Instance, now: datetime) -> str:
    """Return a sentence on who owns the machine, and how long it is past its renew-until."""
    owner, ledger = instance.tags.get(TAG_OWNER, "somebody"), instance.tags.get(TAG_LEDGER, "unknown")
    overdue_text = duration_text(now - _renew_until(instance, now))
    return f"it is {owner}'s, of the ledger {ledger}, and {overdue_text} past its renew-until"


def stop_overdue(session: Session, machines: Sequence[Instance]) -> Outcome:
    """Stop these machines and prove it; failures are `unconfirmed`.

    One that cannot be stopped is ended keeping its disk, or terminated where the disk cannot be kept.
    """
    outcome = Outcome()
    for instance in machines:
        why = overdue_sentence(instance, session.clock())
        try:
            state = _stop(session, instance, why)
        except LedgerUnavailable:
            raise
        except Exception as caught:  # noqa: BLE001  (a defect at one keeps the run from no other work)
            error = caught if isinstance(caught, CloudgpuError) else internal_error(caught)
            outcome.unconfirmed.append(
                NotEnded(instance.tags[TAG_ID], name_of(instance), ReaperAction.STOP, error_text(error))
            )
            continue
        if state:
            outcome.ended.append(
                EndedItem(instance.tags[TAG_ID], name_of(instance), ReaperAction.STOP, Rule.RENEW_UNTIL, why, state)
            )
    return outcome


def name_of(instance: Instance) -> str:
    """Return the machine's name by its tags, else its id."""
    return instance.tags.get(TAG_NAME) or instance.tags[TAG_ID]


def _stop(session: Session, instance: Instance, why: str) -> str:
    """Check again, stop it and prove that; return its state, empty if it is not overdue any more."""
    provider = session.provider(instance.account)
    if not _is_overdue(provider.get(instance.id), session.clock()):
        return ""
    session.check_lock(REAPER_LOCK)
    with on_abort(unproved_sentence(name_of(instance), "stop")):
        ownership = Ownership(name_of(instance), instance.tags.get(TAG_OWNER, ""))
        session.ledger.append(
            [_stop_event(instance, why, session.clock(), requester_record(session, ownership, "stop"))]
        )
        return _wait_until_stopped(session, provider, instance.id, instance.market)


def _request_stop(provider: Provider, id: str, market: Market) -> None:  # noqa: A002
    """Request a stop; of a machine that cannot be stopped, the end that keeps its disk, else its end."""
    if isinstance(provider, Pausable):
        try:
            provider.stop(id)
        except InvalidRequest:  # a one-time spot machine, mostly
            if not isinstance(provider, Imageable) and market is not Market.SPOT:
                raise
        else:
            return
    if isinstance(provider, Imageable):
        provider.terminate_keeping_disk(id)
    else:
        provider.terminate(id)


def _wait_until_stopped(session: Session, provider: Provider, id: str, market: Market) -> str:  # noqa: A002
    """Request the stop, again where it may not have arrived, until the machine is not billed; return its state."""
    deadline, pause_s, is_requested = session.clock() + STOP_TIMEOUT, 0.05, False
    unanswered_rounds = UnansweredRounds(session.clock)
    while True:
        try:
            if not is_requested:
                with suppress(InstanceNotFound):  # nothing was stopped then, and one 404 is no proof
                    _request_stop(provider, id, market)
                    is_requested = True
            instance = get_repeatedly(session, provider, id)
        except InstanceNotFound:
            return "terminated"
        except ProviderUnavailable as error:
            last_seen = unanswered_rounds.record(error)
        else:
            last_seen = f"it was last seen {instance.state}"
            if is_stopped(instance):
                return str(instance.state)
        if session.clock() >= deadline or unanswered_rounds.end_round():
            raise ProviderUnavailable(f"Its stop was asked and is not proved: {last_seen}", field="machine", value=id)
        session.pause(pause_s)
        pause_s = min(MAX_PAUSE_S, pause_s * 1.5)


def _is_overdue(instance: Instance, now: datetime) -> bool:
    return instance.billed and now - _renew_until(instance, now) >= PAYERS_WAIT


def _renew_until(instance: Instance, now: datetime) -> datetime:
    """Return its renew-until by its tag; now where it has none, or `0`: then it is not overdue."""
    text = instance.tags.get(TAG_RENEW_UNTIL, "")
    try:
        return from_epoch(text) if text.strip("0") else now
    except ValueError:
        return now


def _stop_event(instance: Instance, why: str, now: datetime, who: RequestedBy) -> Draft:
    return decision_made_for_lab(
        instance.tags[TAG_ID],
        now,
        do=str(ReaperAction.STOP),
        rule=str(Rule.RENEW_UNTIL),
        why=f"{why}; the lab's limits let its payer stop it",
        host=platform.node(),
        who=who,
    )
