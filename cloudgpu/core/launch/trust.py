"""Whose computer a machine may be on: parses --trust, refuses secrets on strangers' computers, and words remarks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cloudgpu.core.model.offers import Note, NoteKind, Offer, Requirements, Trust
from cloudgpu.core.values.typed import parse_member
from cloudgpu.errors import InvalidRequest, NoCapacity

HOST_READS_ALL = (
    "with --trust community it may be a stranger's computer: its owner can read everything on it: files, memory, keys, "
    "what is typed and shown"
)
# Remarks on whose computer it is, and on what its owner can read.
EXAMINED = "the computer is not {provider}'s own: it belongs to somebody in a data centre that {provider} has examined"
HOST_SEES = (
    "{setting} has a password in its address: it is in the launch call, which {provider} shows to whoever may read the "
    "account's machines"
)
_PASSWORD = re.compile(r"://[^/\s@]+@")
_OWNER_TEXTS = {
    Trust.DATACENTER: "a computer of somebody else in a data centre",
    Trust.COMMUNITY: "a stranger's computer",
}


def settings_with_passwords(
    template: str, settings: Mapping[str, str], user_settings: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Return the names of a template's settings that have a password in an address.

    `settings` are the template's own with their defaults, `user_settings` those of config.toml by template.
    A template's settings are in the call of its launch: on a rented container that is its environment.
    """
    values = {**settings, **user_settings.get(template, {})}
    return [f"templates.{template}.{name}" for name, value in values.items() if _PASSWORD.search(value)]


def password_remarks(offers: Sequence[Offer], setting_names: Sequence[str]) -> Iterator[str]:
    """Yield a remark on each of these settings with a password, if the computer of an offer is not the cloud's own.

    The interface of such a provider shows them.
    """
    configuration = next(
        (offer.configuration for offer in offers if offer.configuration.trust is not Trust.CLOUD), None
    )
    if configuration is not None:
        yield from (
            Note(HOST_SEES.format(setting=name, provider=configuration.provider), NoteKind.ACCESS)
            for name in setting_names
        )


def trust_remarks(offers: Sequence[Offer], less_trusted: Sequence[Offer]) -> Iterator[str]:
    """Yield remarks on the owners of these offers' computers, and on a cheaper offer of less trust.

    `offers` are in the order of trying, at least one; `less_trusted` are those of less trust than is accepted.
    """
    if any(offer.configuration.trust is Trust.COMMUNITY for offer in offers):
        yield Note(HOST_READS_ALL, NoteKind.ACCESS)
    elif offers[0].configuration.trust is Trust.DATACENTER:
        yield EXAMINED.format(provider=offers[0].configuration.provider)
    cheapest = min(less_trusted, key=lambda offer: offer.price.per_hour, default=None)
    if cheapest is not None and cheapest.price.per_hour < offers[0].price.per_hour:
        host = (
            "a community host" if cheapest.configuration.trust is Trust.COMMUNITY else "a data centre of somebody else"
        )
        yield f"cheaper from {host} with --trust {cheapest.configuration.trust}: {_offer_text(cheapest)}"


def _offer_text(offer: Offer) -> str:
    configuration = offer.configuration
    return f"{configuration.instance_type} at {configuration.account} for {offer.price.per_hour.text(4)} an hour"


def too_little_trust_error(requirements: Requirements, less_trusted: Sequence[Offer]) -> NoCapacity:
    """Return that all that fits is of less trust than is accepted; `less_trusted` has at least one offer."""
    cheapest = min(less_trusted, key=lambda offer: offer.price.per_hour)
    trust = cheapest.configuration.trust
    return NoCapacity(
        f"Nothing that fits is trusted enough (--trust {requirements.trust}); the cheapest is {_OWNER_TEXTS[trust]}: "
        f"{_offer_text(cheapest)}.",
        field="--trust",
        value=str(requirements.trust),
        next=f"Accept it with --trust {trust}; the computer's owner can read what is on it. Or choose another --gpu.",
    )


def parse_trust(text: str | None) -> Trust | None:
    """Return the least trust that was typed, None for nothing; raise InvalidRequest for another word."""
    return None if text is None else parse_member(Trust, str(text), "trust", "--trust")


def check_exposure(trust: str | None, options: Iterable[str], *, expose: bool, name: str | None = None) -> None:
    """Raise InvalidRequest for the first of these options where a stranger's computer would get what it is about.

    `options` are those that were given: secrets, volumes. `expose`: whoever asks has agreed to that. `name` is the
    machine's, where there is one already; else the trust can still be changed.
    """
    option = next(iter(options), None)
    if trust != Trust.COMMUNITY or expose or option is None:
        return
    on_it, known, remedy = f"on {name}", " (trust: community)", f"leave {option} out"
    if name is None:
        on_it, known, remedy = "with --trust community", "", "leave --trust community out"
    raise InvalidRequest(
        f"{option} {on_it} would let the owner of a stranger's computer read it{known}.",
        field=option,
        value=name or str(trust),
        next=f"Add --expose if they may, or {remedy}.",
    )
