"""Asks every account what it offers to a request: by price, and by name whoever is passed over, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cloudgpu.control.launch.candidates import Candidate, Candidates, OffersFound, SkippedAccount, passing
from cloudgpu.control.launch.offers import offers_in, with_constraint
from cloudgpu.control.session.identity import by_account
from cloudgpu.control.session.session import Session
from cloudgpu.core.catalog.matching import in_order
from cloudgpu.core.model.launch import Setup, Volume
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import Offer, Requirements
from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest, NoCapacity, ProviderUnavailable, QuotaExceeded
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import Resolves
from cloudgpu.providers.base import Provider

# What is said where nobody has an offer: that somebody did not answer comes before that others have nothing.
_GRAVEST = (ProviderUnavailable, QuotaExceeded, NoCapacity, InvalidRequest, AuthFailed)


def offers_of_any_provider(session: Session, candidates: Candidates, existing: Machine | None) -> OffersFound:
    """Return what all these accounts offer; one that has nothing, does not answer or lacks a credential is passed over.

    `existing` is the unfinished attempt of this request, if there is one: its own account needs no offer to settle it.
    Raises the gravest of their faults where none has anything.
    """
    ties = constrain_candidates(session, candidates) if existing is None else candidates
    wished = {one.account: one.request.want for one in candidates.each}
    offers_by_account: dict[str, Sequence[Offer]] = {}
    less: list[Offer] = []

    def ask(account: str) -> tuple[SkippedAccount, ...]:
        one = ties.at(account)
        machine = existing if existing and session.account_here(existing) == account else None

        def act(_account: str) -> None:
            untrusted: list[Offer] = []  # its own: accounts are asked at once
            try:
                offers_by_account[account] = offers_in(
                    session, one.provider, one.request, wished[account], machine, untrusted
                )
            finally:
                less.extend(untrusted)

        return passing([account], act)

    names = [one.account for one in ties.each]
    with Pool(len(names), "accounts") as pool:
        silent = [one for some in pool.map(ask, names) for one in some]
    passed = (*ties.passed, *silent)
    if not offers_by_account:
        raise _no_match_anywhere(passed)
    having = tuple(one for one in ties.each if one.account in offers_by_account)
    offers = in_order((offer for some in offers_by_account.values() for offer in some), having[0].request.want.market)
    return OffersFound(tuple(offers), replace(ties, each=having, passed=passed), tuple(less))


def constrain_candidates(session: Session, candidates: Candidates) -> Candidates:
    """Return these candidates with their requests tied to the places of what they name; without those that have none.

    A volume that is there ties to the account that has it. Raises InvalidRequest where several have it, and the fault
    of them all where no account has what is named.
    """
    done: dict[str, Candidate] = {}

    def tie(account: str) -> None:
        one = candidates.at(account)
        done[account] = replace(one, request=with_constraint(one.provider, one.request))

    passed = passing([one.account for one in candidates.each], tie)
    if not done:
        raise _no_match_anywhere((*candidates.passed, *passed))
    every = replace(candidates, each=tuple(done.values()), passed=(*candidates.passed, *passed))
    return _with_the_volume(session, every)


def _with_the_volume(session: Session, candidates: Candidates) -> Candidates:
    """Return those that have the volume that is named; all, where none is or nobody has it yet.

    Raises InvalidRequest where several have it, and the fault of an account that has it, or may have it, and did not
    answer: a second volume of that name elsewhere is not what was meant.
    """
    volume = candidates.each[0].request.setup.volume
    if volume is None:
        return candidates
    known = volume_accounts(session, volume.name)
    having = tuple(one for one in candidates.each if one.account in known or _has_volume(one.provider, volume))
    for one in candidates.passed:
        if one.account in known or (not having and isinstance(one.fault, ProviderUnavailable)):
            raise one.fault
    if len(having) > 1:
        names = [one.account for one in having]
        raise InvalidRequest(
            f"The accounts {' and '.join(names)} each have a volume {volume.name}.",
            field="--volume",
            value=volume.name,
            next=f"Name the one that you mean: --account {' | '.join(names)}",
        )
    return replace(candidates, each=having or candidates.each)


def _has_volume(provider: Provider, volume: Volume) -> bool:
    return (
        isinstance(provider, Resolves)
        and provider.placement_constraint(Setup(volume=volume), Requirements()).region is not None
    )


def volume_accounts(session: Session, name: str) -> set[str]:
    """Return the accounts here in which the ledger knows a volume of this name that is there."""
    machines = (
        machine
        for machine in session.ledger.billable_machines()
        if machine.is_named_resource and machine.terminated_at is None
    )
    return set(by_account(session, [machine for machine in machines if machine.name == name])[0])


def _no_match_anywhere(passed: Sequence[SkippedAccount]) -> CloudgpuError:
    """Return the gravest of these faults, made to say what each account says."""
    for kind in _GRAVEST:
        alike = [one for one in passed if isinstance(one.fault, kind)]
        if alike:
            break
    else:
        return passed[0].fault
    fault = alike[0].fault
    by_message = {one.fault.message: one.account for one in reversed(passed)}
    if len(by_message) > 1:
        each = " ".join(f"{account}: {message}" for message, account in reversed(by_message.items()))
        fault.message = f"None of {len(passed)} accounts has it to offer. {each}"
    ways = dict.fromkeys(one.fault.next for one in alike if one.fault.next)
    fault.next = " Or: ".join(ways) or None
    return fault
