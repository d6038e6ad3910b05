"""Syncs some machines with their providers in as few calls as possible, and records what changed.

A verb syncs a machine before it acts on it, because its record may be out of date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from cloudgpu.control.inventory.stop_proof import PAUSES_S, answer_events, read_pauses
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.session.identity import by_account
from cloudgpu.control.session.session import Session
from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.observations import not_before
from cloudgpu.core.model.instances import Instance
from cloudgpu.core.model.machine import Machine, not_none
from cloudgpu.errors import (
    AnswerTimeout,
    CloudgpuError,
    InstanceNotFound,
    LedgerUnavailable,
    ProviderUnavailable,
    internal_error,
)
from cloudgpu.parallel import Pool
from cloudgpu.providers.cluster_abilities import BulkStop
from cloudgpu.providers.shared.calls import ACCOUNTS_GRACE_S, gather, result_or_error
from cloudgpu.views.ended import ended_error


def refresh_or_raise(session: Session, machine: Machine) -> Machine:
    """Query the machine's provider and return the machine as it is now. Raises `ended_error` if it has ended.

    A machine whose launch is not settled, or whose end is recorded, is not queried. Raises ProviderUnavailable if the
    provider does not answer.
    """
    if machine.terminated_at is None and machine.provider_id is not None:
        machine = refresh(session, machine)
    if machine.terminated_at is not None:
        raise ended_error(machine, session.clock())
    return machine


@contextmanager
def explain_terminated(session: Session, machine: Machine) -> Iterator[None]:
    """Turn a provider's "no such machine" into `ended_error`, if another query records that it has ended."""
    try:
        yield
    except InstanceNotFound:
        machine = session.ledger.machine(machine.id) or machine
        with suppress(ProviderUnavailable):
            refresh_or_raise(session, machine)
        raise


MAX_PARALLEL = 16  # queries, if a provider can be asked for one machine at a time only
Answers = Mapping[str, Instance | CloudgpuError]  # by the provider's id of the machine


def sync_some(
    session: Session, machines: Sequence[Machine], *, seen_before_request: bool = False
) -> dict[str, CloudgpuError]:
    """Query these machines and record what changed; return the error of each that could not be queried.

    One call per region if the provider can, else one per machine. `seen_before_request`: they were seen a moment ago,
    so they ended just now. A machine that the provider does not have, by every query, is recorded as ended.
    """
    errors: dict[str, CloudgpuError] = {}
    events: list[Draft] = []
    for machine, answer in _query_repeatedly(session, machines):
        if isinstance(answer, CloudgpuError) and not isinstance(answer, InstanceNotFound):
            errors[machine.id] = answer
            continue
        try:
            recorded = session.ledger.machine(machine.id) or machine  # as others have recorded it meanwhile
            now = not_before(recorded, session.clock())
            events += answer_events(session, recorded, answer, now, seen_before_request=seen_before_request)
        except LedgerUnavailable:
            raise
        except CloudgpuError as error:
            errors[machine.id] = error
        except Exception as bug:  # noqa: BLE001  (it keeps no other machine running)
            errors[machine.id] = internal_error(bug)
    if events:
        session.ledger.append(events)
    return errors


def _query_repeatedly(session: Session, machines: Sequence[Machine]) -> list[tuple[Machine, Instance | CloudgpuError]]:
    """Query the machines, and again those that were not found if one 404 is no proof; the last answer counts."""
    answers = list(_query(session, machines))
    for pause_s in PAUSES_S:
        to_repeat = [
            machine
            for machine, answer in answers
            if isinstance(answer, InstanceNotFound)
            and not machine.terminated_at
            and read_pauses(session.provider_of(machine))
        ]
        if not to_repeat:
            break
        session.pause(pause_s)
        repeated = {machine.id: answer for machine, answer in _query(session, to_repeat)}
        answers = [(machine, repeated.get(machine.id, answer)) for machine, answer in answers]
    return answers


def _query(session: Session, machines: Sequence[Machine]) -> Iterable[tuple[Machine, Instance | CloudgpuError]]:
    """Query each of these machines once, all accounts in parallel; return the answers in the same order."""
    groups, errors = by_account(session, machines)
    ids = {
        one: [not_none(machine.provider_id) for machine in account_machines] for one, account_machines in groups.items()
    }
    results = (
        gather(
            list(ids), lambda account: _query_account(session, account, ids[account]), len(ids), grace=ACCOUNTS_GRACE_S
        )
        if ids
        else []
    )
    answers = {
        account: dict.fromkeys(ids[account], answer) if isinstance(answer, AnswerTimeout) else answer
        for account, answer in zip(ids, results, strict=True)
    }
    by_id = errors | {
        machine.id: answers[account][not_none(machine.provider_id)]
        for account, account_machines in groups.items()
        for machine in account_machines
    }
    return [(machine, by_id[machine.id]) for machine in machines]


def _query_account(session: Session, account: str, ids: Sequence[str]) -> Answers:
    try:
        provider = session.provider(account)
    except CloudgpuError as error:
        return dict.fromkeys(ids, error)
    try:
        if isinstance(provider, BulkStop):
            answers = provider.get_many(ids)
            return {id_: answers.get(id_) or internal_error(LookupError(f"the answer lacks {id_}")) for id_ in ids}
        with Pool(MAX_PARALLEL, "machines") as pool:
            return dict(zip(ids, pool.map(lambda id_: result_or_error(provider.get, id_), ids), strict=True))
    except LedgerUnavailable:
        raise
    except CloudgpuError as error:
        return dict.fromkeys(ids, error)
    except Exception as bug:  # noqa: BLE001  (it keeps no machine of another account running)
        return dict.fromkeys(ids, internal_error(bug))
