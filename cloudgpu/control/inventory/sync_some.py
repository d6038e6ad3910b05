"""Syncs some machines with their providers in as few calls as possible, and records what changed.

A verb syncs a machine before it acts on it, so that none acts on what was known of one that is gone by now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from cloudgpu.control.inventory.stop_proof import PAUSES, change_events, read_pauses
from cloudgpu.control.inventory.sync import close_request, refresh
from cloudgpu.control.session.identity import by_account
from cloudgpu.control.session.session import Session
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.observations import instance_vanished, not_before, too_fresh
from cloudgpu.core.model.instances import Instance
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.errors import CloudgpuError, InstanceNotFound, LedgerUnavailable, ProviderUnavailable, Silent
from cloudgpu.ledger.last_seen import last_seen_at
from cloudgpu.parallel import Pool
from cloudgpu.providers.base import Provider
from cloudgpu.providers.cluster_abilities import BulkStop
from cloudgpu.providers.shared.calls import ACCOUNTS_GRACE_S, gather
from cloudgpu.views.ended import ended_error


def refresh_or_raise(session: Session, machine: Machine) -> Machine:
    """Query the machine's provider and return the machine as it is now. Raises `ended_error` if it has ended.

    A machine whose launch is not settled, or that was known to have ended, is not asked about. Raises
    ProviderUnavailable where nothing could be learned.
    """
    if machine.terminated_at is None and machine.provider_id is not None:
        machine = refresh(session, machine)
    if machine.terminated_at is not None:
        raise ended_error(machine, session.clock())
    return machine


@contextmanager
def explain_terminated(session: Session, machine: Machine) -> Iterator[None]:
    """Turn a provider's "no such machine" into `ended_error`, once another query has recorded that it has ended."""
    try:
        yield
    except InstanceNotFound:
        machine = session.ledger.machine(machine.id) or machine
        with suppress(ProviderUnavailable):
            refresh_or_raise(session, machine)
        raise


MAX_PARALLEL = 16  # machines asked about side by side, where a provider knows one at a time
Answers = Mapping[str, Instance | CloudgpuError]


def sync_some(session: Session, machines: Sequence[Machine], *, watched: bool = False) -> dict[str, CloudgpuError]:
    """Query these machines and record what changed; return the error of each that could not be queried.

    One call per region if the provider can, else one per machine. `watched`: they were seen a moment ago, so that an
    end is of now. A machine that the provider does not have, by every query, is recorded as ended.
    """
    faults: dict[str, CloudgpuError] = {}
    events: list[Draft] = []
    for machine, found in _query_repeatedly(session, machines):
        if isinstance(found, CloudgpuError) and not isinstance(found, InstanceNotFound):
            faults[machine.id] = found
            continue
        try:
            events += _new_events(session, machine, found, watched=watched)
        except LedgerUnavailable:
            raise
        except CloudgpuError as error:
            faults[machine.id] = error
    if events:
        session.ledger.append(events)
    return faults


def _query_repeatedly(session: Session, machines: Sequence[Machine]) -> list[tuple[Machine, Instance | CloudgpuError]]:
    """Ask; ask again about those that were not found, where one such answer is no proof: the last answer counts."""
    answers = list(_query(session, machines))
    for pause in PAUSES:
        doubtful = [
            machine
            for machine, found in answers
            if isinstance(found, InstanceNotFound) and _is_doubtful(session, machine)
        ]
        if not doubtful:
            break
        session.pause(pause)
        second = {machine.id: found for machine, found in _query(session, doubtful)}
        answers = [(machine, second.get(machine.id, found)) for machine, found in answers]
    return answers


def _is_doubtful(session: Session, machine: Machine) -> bool:
    return not machine.terminated_at and bool(read_pauses(session.provider_of(machine)))


def _query(session: Session, machines: Sequence[Machine]) -> Iterable[tuple[Machine, Instance | CloudgpuError]]:
    groups, faults = by_account(session, machines)
    ids = {one: [not_none(machine.provider_id) for machine in of_account] for one, of_account in groups.items()}
    results = (
        gather(list(ids), lambda one: _ask_one(session, one, ids[one]), len(ids), grace=ACCOUNTS_GRACE_S) if ids else []
    )
    answers = {
        account: dict.fromkeys(ids[account], answer) if isinstance(answer, Silent) else answer
        for account, answer in zip(ids, results, strict=True)
    }
    pairs = [
        (machine, answers[account][not_none(machine.provider_id)])
        for account, of_account in groups.items()
        for machine in of_account
    ]
    by_id = {machine.id: answer for machine, answer in pairs} | faults
    return [(machine, by_id[machine.id]) for machine in machines]


def _ask_one(session: Session, account: str, ids: Sequence[str]) -> Answers:
    try:
        provider = session.provider(account)
    except CloudgpuError as error:
        return dict.fromkeys(ids, error)
    if isinstance(provider, BulkStop):
        return provider.get_many(ids)
    with Pool(MAX_PARALLEL, "machines") as pool:
        return dict(zip(ids, pool.map(lambda one: _get(provider, one), ids), strict=True))


def _get(provider: Provider, id: str) -> Instance | CloudgpuError:  # noqa: A002
    try:
        return provider.get(id)
    except CloudgpuError as error:
        return error


def _new_events(session: Session, machine: Machine, answer: Instance | CloudgpuError, *, watched: bool) -> list[Draft]:
    machine = session.ledger.machine(machine.id) or machine
    now = not_before(machine, session.clock())
    if not isinstance(answer, Instance):
        if machine.terminated_at or too_fresh(
            machine, session.provider_of(machine).token_rule.not_found_proves_end_after, now
        ):
            return []
        alive = None if watched else last_seen_at(session.ledger, machine)
        return [
            instance_vanished(machine.id, not_none(machine.provider_id), "the provider has no such machine", now, alive)
        ]
    close_request(session, machine, answer)
    return change_events(session, machine, answer, now, watched=watched)
