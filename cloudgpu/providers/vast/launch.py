"""Launches: one call that rents an offer, sent once; whoever comes later looks for its label.

A refusal that names a contract has made one all the same: it is destroyed, and proved gone, before the refusal counts.
So is what a refusal left whose answer was lost: a contract that never ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from cloudgpu.core.model.instances import NEVER_RAN, REFUSED_PREFIX, Instance, State
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Basis, Market
from cloudgpu.core.values.money import Money
from cloudgpu.errors import (
    CloudgpuError,
    InstanceNotFound,
    LaunchUncertain,
    NoCapacity,
    ProviderUnavailable,
    RateLimited,
)
from cloudgpu.parallel import beat
from cloudgpu.providers.rest.client import NotSent
from cloudgpu.providers.rest.once import not_known_yet
from cloudgpu.providers.vast import machines
from cloudgpu.providers.vast.client import CLOUD, KIND, Paid, Vast
from cloudgpu.providers.vast.container import body
from cloudgpu.providers.vast.errors import LeftContract, contract_of
from cloudgpu.providers.vast.request import Call

LOOKS = 3  # for the label of a call that was sent by somebody else, or not answered
PAUSE_S = 1.0  # between two looks
PROVED_WITHIN = timedelta(seconds=60)  # that a contract of a refusal is gone


def launch(vast: Vast, attempt: Attempt, *, deadline: datetime) -> Instance:
    """Rent the offer of an attempt, or return the machine that its token has made already.

    Raises NoCapacity, AuthFailed, InvalidRequest when it was surely not made; LaunchUncertain or another
    ProviderUnavailable when that is not known.
    """
    sent = body(attempt)  # a fault in it is said before anything is sent
    call = Call(**attempt.call)
    _check_price(attempt, call)
    with vast.only(attempt.token):
        if not vast.once.may_send(attempt):
            return _find_launched(vast, attempt, deadline)
        try:
            answer = vast.ask("PUT", f"/api/v0/asks/{call.offer}/", "rent", body=sent, again=False)
        except LeftContract as left:
            return _ended(vast, attempt, left, deadline)
        except (NotSent, RateLimited):  # vast.ai refuses what comes too often before it looks at it
            vast.once.refused(attempt)
            raise
        except (ProviderUnavailable, InstanceNotFound) as error:  # the latter says nothing of a launch
            return _find_launched(vast, attempt, deadline, error)
        except NoCapacity:
            return _rented_before(vast, attempt, deadline)
        except CloudgpuError:
            vast.once.refused(attempt)
            raise
        contract = contract_of(answer)
        if contract is None:
            why = ProviderUnavailable(f"{CLOUD} did not say which contract it has made.", field="provider", value=KIND)
            return _find_launched(vast, attempt, deadline, why)
        return _made(vast, attempt, call, contract)


def _check_price(attempt: Attempt, call: Call) -> None:
    """Raise NoCapacity where an offer costs more than what was agreed to: nothing was sent."""
    price = attempt.offer.price
    if price.basis is Basis.ASKED and Money.usd(Decimal(call.per_hour)) > price.per_hour:
        message = f"{attempt.offer.available.zone} costs ${call.per_hour} an hour now, more than in the plan."
        raise NoCapacity(message, field="offer", next="Run it again to see the new prices.")


def _rented_before(vast: Vast, attempt: Attempt, deadline: datetime) -> Instance:
    """Return the machine of a call whose offer is gone because this very call took it: sent from another home, say.

    To be called for a NoCapacity, which is raised again where no contract bears the label.
    """
    found = machines.labelled(vast, attempt.token)
    if found is None:
        vast.once.refused(attempt)
        raise  # noqa: PLE0704  (called where it is handled)
    return _found(vast, attempt, found, deadline)


def _found(
    vast: Vast, attempt: Attempt, raw: Mapping[str, Any], deadline: datetime, *, just_sent: bool = False
) -> Instance:
    """Return the machine of a call that was found by its label; what a refusal left, once it has ended.

    That is a stopped contract which never ran. Of a call that was sent just now, any stopped one is: that asked for it
    to run, and nobody was given it. Any other may be the user's, who has stopped it.
    """
    shown = machines.instance(vast, raw)
    stops = just_sent and raw.get("intended_status") == "stopped"
    if shown.state is not State.STOPPED or not (stops or shown.reason == NEVER_RAN):
        return shown
    left = LeftContract(shown.id, NoCapacity(f"{CLOUD} refused {attempt.offer.available.zone}.", field="offer"))
    return _ended(vast, attempt, left, deadline)


def _made(vast: Vast, attempt: Attempt, call: Call, contract: str) -> Instance:
    """Return the machine of a contract that was just made: as vast.ai shows it, else as it was asked for."""
    try:
        return machines.get(vast, contract)
    except CloudgpuError:  # not shown yet, no answer, or a key that may not look: it is made all the same
        return _as_asked(vast, attempt, call, contract)


def _as_asked(vast: Vast, attempt: Attempt, call: Call, contract: str) -> Instance:
    item = attempt.offer.available
    vast.paid[contract] = Paid(item.market, call.per_hour)
    return Instance(
        provider=KIND,
        account=vast.account,
        id=contract,
        state=State.PENDING,
        billed=True,
        tags=dict(attempt.tags),
        region=item.region,
        zone=item.zone,
        instance_type=item.instance_type,
        market=Market(item.market),
        accelerators=item.accelerators,
    )


def _find_launched(vast: Vast, attempt: Attempt, deadline: datetime, why: CloudgpuError | None = None) -> Instance:
    """Return the machine of a call that may have been taken; raise LaunchUncertain while no listing shows it.

    `why` is what became of a call that was sent just now: a look that is refused does not say that it made nothing.
    """
    for _ in _times(vast, deadline):
        try:
            found = machines.made_by(vast, attempt.token)
        except CloudgpuError as error:
            if why is None or isinstance(error, ProviderUnavailable):
                raise
            raise not_known_yet(CLOUD, attempt, error) from why
        if found is not None:
            return _found(vast, attempt, found, deadline, just_sent=why is not None)
    raise not_known_yet(CLOUD, attempt) from why


def _times(vast: Vast, deadline: datetime) -> Iterator[int]:
    """Yield as often as is looked, with a pause in between, until the deadline."""
    for number in range(LOOKS):
        if number:
            if vast.clock() + timedelta(seconds=PAUSE_S) > deadline:
                return
            beat(PAUSE_S)
            vast.pause(PAUSE_S)
        yield number


def _ended(vast: Vast, attempt: Attempt, left: LeftContract, deadline: datetime) -> Instance:
    """Destroy the contract of a refusal, prove it gone, and return it as ended: what it cost is written down.

    Raises LaunchUncertain, with its number, where the proof does not come.
    """
    vast.notify(f"{left.message} It is destroyed.")
    last = _shown(vast, left.contract) or _as_asked(vast, attempt, Call(**attempt.call), left.contract)
    until = min(deadline, vast.clock() + PROVED_WITHIN)
    fault: CloudgpuError = left
    while True:
        try:
            machines.terminate(vast, left.contract)
            machines.raw(vast, left.contract)
        except InstanceNotFound:
            return _gone(vast, attempt, last, left)
        except CloudgpuError as error:
            fault = error
        if vast.clock() + timedelta(seconds=PAUSE_S) > until:
            break
        beat(PAUSE_S)
        vast.pause(PAUSE_S)
    message = f"{left.message} It could not be proved that it is gone: {fault.message}"
    remedy = f"The next cloudgpu up or reap looks again; in vast.ai's console it is {left.contract}."
    raise LaunchUncertain(message, field="instance", value=left.contract, next=remedy) from left


def _gone(vast: Vast, attempt: Attempt, last: Instance, left: LeftContract) -> Instance:
    """Return the contract of a refusal as ended: one that was not billed when it was seen has never run.

    Its disk is billed from when it was made; from the call that made it, where vast.ai does not say.
    """
    made = last.launched_at or vast.once.sent_at(attempt.token) or attempt.made_at
    since = None if last.billed else made
    why = f"{REFUSED_PREFIX}{left.why.message}"
    return replace(last, state=State.TERMINATED, billed=False, address=None, launched_at=made, since=since, reason=why)


def _shown(vast: Vast, contract: str) -> Instance | None:
    try:
        return machines.get(vast, contract)
    except CloudgpuError:
        return None
