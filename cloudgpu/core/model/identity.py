"""How providers identify accounts and machines, and which accounts have not answered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cloudgpu.core.model.facts import RecordedIdentity
from cloudgpu.core.model.machine import Machine, has_retained_resources
from cloudgpu.core.model.records import IdentityRecord

SSH_HOST = "ssh host"  # the only kind of identity of which one configured account has several
LOCAL = "computer"  # the kind of identity of a computer whose machines only itself can see
COMPUTER_KINDS = (LOCAL, SSH_HOST)  # kinds of identity that are one computer
NOT_REACHABLE = "not reachable from here"  # how `Unanswered.why` begins for an account that this computer cannot query


@dataclass(frozen=True, slots=True)
class AccountIdentity:
    """An account as its provider identifies it, whatever the settings call it.

    `kind` says what `id` names: "aws account", "google project", "azure subscription", "computer", "ssh host".
    `display_name` is its name in sentences: "AWS account 123456789012". None of them is a secret.
    """

    kind: str
    id: str
    display_name: str

    def to_json(self) -> IdentityRecord:
        """Return it as a ledger event stores it."""
        return {"kind": self.kind, "id": self.id, "words": self.display_name}

    def is_of(self, recorded: RecordedIdentity | None) -> bool:
        """Say whether this is the account that a ledger entry recorded; False if it recorded none."""
        return recorded is not None and (self.kind, self.id) == (recorded.kind, recorded.id)


@dataclass(frozen=True, slots=True)
class QueriedAccount:
    """An account that was queried, and its provider."""

    account: str
    provider: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A scope (a zone, a region, an account) that did not answer a listing, and why."""

    scope: str
    why: str


@dataclass(frozen=True, slots=True)
class AccountElsewhere(Unanswered):
    """An account with machines in this ledger that this computer cannot reach: `why` begins with `NOT_REACHABLE`.

    `was_asked_lately`: another computer queried it within the last day. `only_there`: it is a computer that no settings
    here could reach, so this home does not report its machines as unknown.
    """

    was_asked_lately: bool = False
    only_there: bool = False


def unanswered_text(scope: str, why: str) -> str:
    """Return as a sentence, without its full stop, that a scope did not answer."""
    return f"{scope} is {why}" if why.startswith(NOT_REACHABLE) else f"{scope} did not answer: {why}"


def is_in_unanswered(unanswered: Iterable[str], account: str, region: str | None) -> bool:
    """Say whether resources of a region may be missing because of these scopes: one silent zone of it is enough."""
    return any(scope in (account, region) or scope.startswith(f"{region}-") for scope in unanswered)


def may_be_ssh_host(machine: Machine) -> bool:
    """Say whether a machine's account is one SSH host, a region of the configured account, or may be one."""
    return machine.identity is None or machine.identity.kind == SSH_HOST


def is_local_or_ssh_host(machine: Machine) -> bool:
    """Say whether a machine is on one computer, this one or a host over SSH, not in a cloud."""
    return machine.identity is not None and machine.identity.kind in COMPUTER_KINDS


def account_text(machine: Machine) -> str:
    """Return the recorded account of a machine or named resource for a sentence."""
    return "an account that was never recorded" if machine.identity is None else str(machine.identity.display_name)


def may_cost_money(machine: Machine) -> bool:
    """Say whether a machine, or what is retained of it, may cost money now, so that a sync has to look for it."""
    return machine.terminated_at is None or has_retained_resources(machine)


def regions_that_may_cost(machines: Iterable[Machine]) -> dict[str, set[str]]:
    """Return the regions of machines that may cost money now, by provider."""
    regions: dict[str, set[str]] = {}
    for machine in filter(may_cost_money, machines):
        regions.setdefault(machine.provider, set()).add(machine.region)
    return regions


def identity_region(region: str | None, kind: str) -> str:
    """Return the region that an identity of this kind is limited to: an SSH host's; "" for a whole account."""
    return (region or "") if kind == SSH_HOST else ""


def recorded_identity_key(account: str, machine: Machine) -> tuple[str, str | None]:
    """Return the key of a machine's identity: its account, and its region if each has its own identity, else None."""
    return account, machine.region if may_be_ssh_host(machine) else None


def cloud_id(id: str | None, region: str | None, zone: str | None) -> str | None:  # noqa: A002
    """Return the id that a provider's console shows: a machine's id without the zone or region that comes first.

    `us-east-1/i-0123456789abcdef0` on AWS is `i-0123456789abcdef0`. None if the provider has given none.
    """
    if not id:
        return None
    return next((id.removeprefix(f"{place}/") for place in (zone, region) if place and id.startswith(f"{place}/")), id)
