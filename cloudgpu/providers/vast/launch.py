"""Launches: the call that rents an offer is sent once; later tries only look for the contract by its label.

A refusal may have created a contract: it is destroyed, and its end is proved, before the refusal counts. So is a
contract that never ran, of a refusal whose answer was lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from cloudgpu.core.model.instances import NEVER_RAN, REFUSED_PREFIX, Instance, State
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Basis
from cloudgpu.core.values.money import Money
from cloudgpu.errors import (
    CloudgpuError,
    InstanceNotFound,
    LaunchUncertain,
    NoCapacity,
    ProviderUnavailable,
    RateLimited,
)
from cloudgpu.parallel import send_heartbeat
from cloudgpu.providers.rest.client import NotSent
from cloudgpu.providers.rest.once import new_machine, unknown_outcome_error
from cloudgpu.providers.vast import machines
from cloudgpu.providers.vast.client import CLOUD, LISTED_WITHIN, PROVIDER, ContractPrice, Vast
from cloudgpu.providers.vast.errors import RefusedWithContract, contract_of
from cloudgpu.providers.vast.request import Call, launch_body

MAX_LISTINGS = 3  # after a call that was sent before or not answered
PAUSE_S = 1.0  # between two listings, and between two tries to destroy a contract
PROOF_TIMEOUT = timedelta(seconds=60)  # the proof that a refused contract is gone


def launch(vast: Vast, attempt: Attempt, *, deadline: datetime) -> Instance:
    """Rent the offer of an attempt, or return the machine that the attempt has created already.

    Raises NoCapacity, AuthFailed, InvalidRequest if none was created; LaunchUncertain or another ProviderUnavailable if
    that is unknown.
    """
    request_body = launch_body(attempt)  # raises for an invalid attempt before any call
    call = Call(**attempt.call)
    _check_price(attempt, call)
    with vast.launch_records.exclusive(attempt):
        if not vast.launch_records.claim_send(attempt):
            return _find_launched(vast, attempt, deadline)
        try:
            answer = vast.call("PUT", f"/api/v0/asks/{call.offer}/", "rent", body=request_body, idempotent=False)
        except RefusedWithContract as refusal:
            return _destroy(vast, attempt, refusal, deadline)
        except (NotSent, RateLimited):  # vast.ai throttles calls before it handles them
            vast.launch_records.record_refusal(attempt)
            raise
        except (ProviderUnavailable, InstanceNotFound) as error:  # the latter proves nothing about a launch
            return _find_launched(vast, attempt, deadline, error)
        except NoCapacity:
            return _find_rented_before(vast, attempt, deadline)
        except CloudgpuError:
            vast.launch_records.record_refusal(attempt)
            raise
        contract = contract_of(answer)
        if contract is None:
            no_contract_error = ProviderUnavailable(
                f"{CLOUD} did not say which contract it has made.", field="provider", value=PROVIDER
            )
            return _find_launched(vast, attempt, deadline, no_contract_error)
        return _new_machine(vast, attempt, call, contract)


def _check_price(attempt: Attempt, call: Call) -> None:
    """Raise NoCapacity if an offer costs more now than in the plan; nothing was sent."""
    price = attempt.offer.price
    if price.basis is Basis.QUOTED and Money.usd(Decimal(call.per_hour)) > price.per_hour:
        message = f"{attempt.offer.configuration.zone} costs ${call.per_hour} an hour now, more than in the plan."
        raise NoCapacity(message, field="offer", next="Run it again to see the new prices.")


def _find_rented_before(vast: Vast, attempt: Attempt, deadline: datetime) -> Instance:
    """Return the machine if the offer is gone because this same call rented it before, for example from another home.

    Called while handling NoCapacity, which is raised again if no contract has the label.
    """
    contract = machines.find_by_label(vast, attempt.token)
    if contract is None:
        vast.launch_records.record_refusal(attempt)
        raise  # noqa: PLE0704  (called in its handler)
    return _keep_or_destroy(vast, attempt, contract, deadline)


def _keep_or_destroy(
    vast: Vast, attempt: Attempt, contract: Mapping[str, Any], deadline: datetime, *, just_sent: bool = False
) -> Instance:
    """Return the machine of a contract found by its label; destroy a contract that a refusal left.

    A stopped contract that never ran was left by a refusal, and so was any stopped contract of a call sent just now,
    which asked for a running one. Any other may have been stopped by the user.
    """
    machine = machines.instance(vast, contract)
    is_stopping = just_sent and contract.get("intended_status") == "stopped"
    if machine.state is not State.STOPPED or not (is_stopping or machine.reason == NEVER_RAN):
        return machine
    refusal = RefusedWithContract(
        machine.id, NoCapacity(f"{CLOUD} refused {attempt.offer.configuration.zone}.", field="offer")
    )
    return _destroy(vast, attempt, refusal, deadline)


def _new_machine(vast: Vast, attempt: Attempt, call: Call, contract: str) -> Instance:
    """Return the machine of a new contract: as vast.ai shows it, else as requested."""
    try:
        return machines.get(vast, contract)
    except CloudgpuError:  # not listed yet, no answer, or no right to read: it exists nevertheless
        return _as_requested(vast, attempt, call, contract)


def _as_requested(vast: Vast, attempt: Attempt, call: Call, contract: str) -> Instance:
    vast.contract_prices[contract] = ContractPrice(attempt.offer.configuration.market, call.per_hour)
    return new_machine(attempt, vast.account, contract)


def _find_launched(vast: Vast, attempt: Attempt, deadline: datetime, why: CloudgpuError | None = None) -> Instance:
    """Return the machine of a call that may have succeeded; raise LaunchUncertain while no listing shows it.

    `why` is the error of a call that was sent just now. A refused listing does not prove that there is no machine.
    """
    for _ in _listing_tries(vast, deadline):
        try:
            contract = machines.find_by_token(vast, attempt.token)
        except CloudgpuError as error:
            if why is None or isinstance(error, ProviderUnavailable):
                raise
            raise unknown_outcome_error(CLOUD, attempt, LISTED_WITHIN, error) from why
        if contract is not None:
            return _keep_or_destroy(vast, attempt, contract, deadline, just_sent=why is not None)
    raise unknown_outcome_error(CLOUD, attempt, LISTED_WITHIN) from why


def _listing_tries(vast: Vast, deadline: datetime) -> Iterator[int]:
    """Yield the numbers of MAX_LISTINGS tries, with pauses between them, until the deadline."""
    for number in range(MAX_LISTINGS):
        if number:
            if vast.clock() + timedelta(seconds=PAUSE_S) > deadline:
                return
            send_heartbeat(PAUSE_S)
            vast.pause(PAUSE_S)
        yield number


def _destroy(vast: Vast, attempt: Attempt, refusal: RefusedWithContract, deadline: datetime) -> Instance:
    """Destroy the contract of a refusal, prove its end, and return it as terminated, so that its cost is recorded.

    Raises LaunchUncertain, with its id, if its end cannot be proved.
    """
    vast.notify(f"{refusal.message} It is destroyed.")
    last_state = _read_or_none(vast, refusal.contract) or _as_requested(
        vast, attempt, Call(**attempt.call), refusal.contract
    )
    until = min(deadline, vast.clock() + PROOF_TIMEOUT)
    last_error: CloudgpuError = refusal
    while True:
        try:
            machines.terminate(vast, refusal.contract)
            machines.read_contract(vast, refusal.contract)
        except InstanceNotFound:
            return _as_terminated(vast, attempt, last_state, refusal)
        except CloudgpuError as error:
            last_error = error
        if vast.clock() + timedelta(seconds=PAUSE_S) > until:
            break
        send_heartbeat(PAUSE_S)
        vast.pause(PAUSE_S)
    message = f"{refusal.message} It could not be proved that it is gone: {last_error.message}"
    remedy = f"The next cloudgpu up or reap looks again; in vast.ai's console it is {refusal.contract}."
    raise LaunchUncertain(message, field="instance", value=refusal.contract, next=remedy) from refusal


def _as_terminated(vast: Vast, attempt: Attempt, last_state: Instance, refusal: RefusedWithContract) -> Instance:
    """Return the contract of a refusal as terminated; one that was not billed when it was read has never run.

    Its disk is billed from its creation, or from the call that created it if vast.ai does not tell.
    """
    created_at = last_state.launched_at or vast.launch_records.sent_at(attempt.token) or attempt.made_at
    since = None if last_state.billed else created_at
    why = f"{REFUSED_PREFIX}{refusal.why.message}"
    return replace(
        last_state, state=State.TERMINATED, billed=False, address=None, launched_at=created_at, since=since, reason=why
    )


def _read_or_none(vast: Vast, contract: str) -> Instance | None:
    try:
        return machines.get(vast, contract)
    except CloudgpuError:
        return None
