"""Queries every account for offers to a request: the offers by price, and the skipped accounts with the reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from cloudgpu.control.launch.candidates import (
    Candidate,
    Candidates,
    OffersFound,
    SkippedAccount,
    skip_failing_accounts,
    volumes_by_account,
)
from cloudgpu.control.launch.offers import offers_of_constrained, with_placement_constraint
from cloudgpu.control.session.session import Session
from cloudgpu.core.catalog.matching import by_preference
from cloudgpu.core.model.launch import Setup, Volume
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.model.offers import Offer, Requirements
from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest, NoCapacity, ProviderUnavailable, QuotaExceeded
from cloudgpu.parallel import Pool
from cloudgpu.providers.abilities import Resolves
from cloudgpu.providers.base import Provider

# Where no account has an offer, the error of the first of these kinds is raised: no answer before no capacity.
_ERROR_PRIORITY = (ProviderUnavailable, QuotaExceeded, NoCapacity, InvalidRequest, AuthFailed)


def offers_of_any_provider(session: Session, candidates: Candidates, existing: Machine | None) -> OffersFound:
    """Return the offers of all these accounts; one that has none, does not answer or lacks a credential is skipped.

    `existing` is the machine of this request, or of its unfinished launch, if any: its account needs no offer then.
    Raises the most important error where none has an offer.
    """
    constrained = constrain_candidates(session, candidates) if existing is None else candidates
    requirements_by_account = {candidate.account: candidate.request.requirements for candidate in candidates.items}
    existing_account = None if existing is None else session.account_name_here(existing)
    offers_by_account: dict[str, Sequence[Offer]] = {}
    untrusted_offers: list[Offer] = []

    def find_offers(account: str) -> None:
        candidate = constrained.for_account(account)
        machine = existing if account == existing_account else None
        untrusted: list[Offer] = []  # one list for each thread
        try:
            offers_by_account[account] = offers_of_constrained(
                session, candidate.provider, candidate.request, requirements_by_account[account], machine, untrusted
            )
        finally:
            untrusted_offers.extend(untrusted)

    accounts = [candidate.account for candidate in constrained.items]
    with Pool(len(accounts), "accounts") as pool:
        skipped_lists = list(pool.map(lambda name: skip_failing_accounts([name], find_offers), accounts))
    skipped = (*constrained.skipped, *chain.from_iterable(skipped_lists))
    if not offers_by_account:
        raise _no_offers_error(skipped)
    candidates_with_offers = tuple(
        candidate for candidate in constrained.items if candidate.account in offers_by_account
    )
    offers = by_preference(
        chain.from_iterable(offers_by_account.values()), candidates_with_offers[0].request.requirements.market
    )
    return OffersFound(
        tuple(offers), replace(constrained, items=candidates_with_offers, skipped=skipped), tuple(untrusted_offers)
    )


def constrain_candidates(session: Session, candidates: Candidates) -> Candidates:
    """Return these candidates, each request constrained to the region or zone of the image, subnet or volume it names.

    Accounts without that image, subnet or volume are skipped; an existing volume leaves only its account. Raises
    InvalidRequest where several have the volume, and the most important error where no account is left.
    """
    constrained: dict[str, Candidate] = {}

    def constrain(account: str) -> None:
        candidate = candidates.for_account(account)
        constrained[account] = replace(
            candidate, request=with_placement_constraint(candidate.provider, candidate.request)
        )

    skipped = skip_failing_accounts([candidate.account for candidate in candidates.items], constrain)
    if not constrained:
        raise _no_offers_error((*candidates.skipped, *skipped))
    all_constrained = replace(candidates, items=tuple(constrained.values()), skipped=(*candidates.skipped, *skipped))
    return _with_volume(session, all_constrained)


def _with_volume(session: Session, candidates: Candidates) -> Candidates:
    """Return the candidates that have the requested volume; all, where no volume is requested or none has it yet.

    Raises InvalidRequest where several have it, and the error of an account that has it, or may have it, and did not
    answer: a second volume of that name must not be made elsewhere.
    """
    volume = candidates.items[0].request.setup.volume
    if volume is None:
        return candidates
    accounts = volumes_by_account(session, volume.name)
    having_volume = tuple(
        candidate
        for candidate in candidates.items
        if candidate.account in accounts or _has_volume(candidate.provider, volume)
    )
    for skipped in candidates.skipped:
        if skipped.account in accounts or (not having_volume and isinstance(skipped.error, ProviderUnavailable)):
            raise skipped.error
    if len(having_volume) > 1:
        names = [candidate.account for candidate in having_volume]
        raise InvalidRequest(
            f"The accounts {' and '.join(names)} each have a volume {volume.name}.",
            field="--volume",
            value=volume.name,
            next=f"Name the one that you mean: --account {' | '.join(names)}",
        )
    return replace(candidates, items=having_volume or candidates.items)


def _has_volume(provider: Provider, volume: Volume) -> bool:
    """Say whether the account has this volume, by the region to which the volume would constrain a launch."""
    return (
        isinstance(provider, Resolves)
        and provider.placement_constraint(Setup(volume=volume), Requirements()).region is not None
    )


def _no_offers_error(skipped: Sequence[SkippedAccount]) -> CloudgpuError:
    """Return the most important of these errors (`_ERROR_PRIORITY`), with the messages of all accounts."""
    skipped_by_kind = ([account for account in skipped if isinstance(account.error, kind)] for kind in _ERROR_PRIORITY)
    most_important = next(filter(None, skipped_by_kind), None)
    if most_important is None:
        return skipped[0].error
    error = most_important[0].error
    account_by_message = {account.error.message: account.account for account in reversed(skipped)}
    if len(account_by_message) > 1:
        messages = " ".join(f"{account}: {message}" for message, account in reversed(account_by_message.items()))
        error.message = f"None of {len(skipped)} accounts has it to offer. {messages}"
    error.next = (
        " Or: ".join(dict.fromkeys(account.error.next for account in most_important if account.error.next)) or None
    )
    return error
