"""Who an account or a machine is by its provider's own word, and which accounts have not answered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cloudgpu.core.model.facts import RecordedIdentity
from cloudgpu.core.model.machine import Machine, has_retained_resources
from cloudgpu.core.model.records import IdentityRecord

BY_REGION = "ssh host"  # the only kind of which an account is several
LOCAL = "computer"  # of machines that only their own computer can see
COMPUTERS = (LOCAL, BY_REGION)  # kinds of identities that are one computer
NOT_HERE = "not reachable from here"


@dataclass(frozen=True, slots=True)
class AccountIdentity:
    """What an account is by its provider's own word, whatever the settings call it.

    `kind` says what `id` names: "aws account", "google project", "azure subscription", "computer", "ssh host". `id` is
    compared as a whole. `words` is for sentences: "AWS account 123456789012". None of them is a secret.
    """

    kind: str
    id: str
    words: str

    def to_json(self) -> IdentityRecord:
        """Return it as a ledger event stores it."""
        return {"kind": self.kind, "id": self.id, "words": self.words}

    def is_of(self, recorded: RecordedIdentity | None) -> bool:
        """Say whether this is the account that a ledger line recorded; one that was never recorded is no match."""
        return recorded is not None and (self.kind, self.id) == (recorded.kind, recorded.id)


@dataclass(frozen=True, slots=True)
class QueriedAccount:
    """An account that was asked what it has, and its kind of provider."""

    account: str
    provider: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A scope (a zone, a region, an account) that did not answer a listing, and why."""

    scope: str
    why: str


@dataclass(frozen=True, slots=True)
class AccountElsewhere(Unanswered):
    """An account with machines of this ledger that no account of this computer is: `why` begins with `NOT_HERE`.

    `tended`: from where it can be reached, it was asked within the last day. `only_there`: it is a computer, of which
    no settings here could tell: what runs there is no open question of this home.
    """

    tended: bool = False
    only_there: bool = False


def unanswered_text(scope: str, why: str) -> str:
    """Return a gap as a sentence without its full stop."""
    return f"{scope} is {why}" if why.startswith(NOT_HERE) else f"{scope} did not answer: {why}"


def is_hidden(silent: Iterable[str], account: str, region: str | None) -> bool:
    """Say whether what lies in a region may be missing for these scopes: a silent zone (`REGION-a`) is enough."""
    return any(scope in (account, region) or scope.startswith(f"{region}-") for scope in silent)


def is_of_a_region(machine: Machine) -> bool:
    """Say whether the account of a machine is one region of what the settings call an account, or may be."""
    return machine.identity is None or machine.identity.kind == BY_REGION


def is_on_computer(machine: Machine) -> bool:
    """Say whether the account of a machine is one computer, not a cloud."""
    return machine.identity is not None and machine.identity.kind in COMPUTERS


def account_text(machine: Machine) -> str:
    """Return the account of a machine, or of a retained resource, in words, as it was recorded."""
    return "an account that was never recorded" if machine.identity is None else str(machine.identity.words)


def is_reachable_here(machine: Machine) -> bool:
    """Say whether something of this machine may cost money now, so that a sync has to judge it."""
    return machine.terminated_at is None or has_retained_resources(machine)


def reachable_regions(machines: Iterable[Machine]) -> dict[str, set[str]]:
    """Return where machines lie that may cost something now, by the kind of provider."""
    found: dict[str, set[str]] = {}
    for machine in filter(is_reachable_here, machines):
        found.setdefault(machine.provider, set()).add(machine.region)
    return found


def identity_region(region: str | None, kind: str) -> str:
    """Return where an account of this kind is one: a region of hosts, "" for an account as a whole."""
    return (region or "") if kind == BY_REGION else ""


def recorded_identity_region(account: str, machine: Machine) -> tuple[str, str | None]:
    """Return of what an identity is one: of a host, or of an account as a whole."""
    return account, machine.region if is_of_a_region(machine) else None


def cloud_id(id: str | None, region: str | None, zone: str | None) -> str | None:  # noqa: A002
    """Return what a provider's console calls a machine: its id without the place that cloudgpu sets before it.

    `us-east-1/i-0123456789abcdef0` on AWS is `i-0123456789abcdef0`. None where the provider has not told one.
    """
    if not id:
        return None
    return next((id.removeprefix(f"{place}/") for place in (zone, region) if place and id.startswith(f"{place}/")), id)
