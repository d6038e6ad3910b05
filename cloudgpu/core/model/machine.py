"""A machine as the ledger knows it, and what its facts say. Apart from `retention`: `ls` pays for every import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NotRequired, TypedDict, TypeVar, cast

from cloudgpu.core.model.records import (
    AcceleratorRecord,
    AddressRecord,
    AttachedCost,
    ChargeNote,
    DecisionRecord,
    GuardsRecord,
    IdentityRecord,
    PriceRecord,
    RefusedRecord,
    Retained,
    SetupRecord,
    ShareRecord,
    TermsRecord,
    TrafficRecord,
    UnaskedRecord,
    UsageRecord,
    WarningRecord,
)
from cloudgpu.core.values.naming import scope_of

T = TypeVar("T")
HERE = ("local", "ssh")  # machines that are there already: no part of `any`, which is about what is bought


class Owned(TypedDict):
    """What says whose something is."""

    name: str
    owner: str


class PriceSubject(TypedDict):
    """What says since when which price holds."""

    id: str
    intended_at: str
    ended: str | None
    price: PriceRecord | None


class AccountSubject(TypedDict):
    """What says of which account something is."""

    account: str
    identity: IdentityRecord | None


class BudgetSubject(TypedDict):
    """What budgets look at: a machine of the ledger, or one that is planned, whose `intended_at` is empty."""

    id: str
    name: str
    thing: bool
    provider: str
    account: str
    region: str
    zone: str | None
    instance_type: str | None
    market: str
    attempt: str
    setup: SetupRecord | None
    guards: GuardsRecord | None
    state: str
    billed: bool
    asked: Literal["stop", "start", "terminate", "park"] | None
    ended: str | None
    kept: list[Retained]
    owner: str
    project: str
    renew_until: str | None
    price: PriceRecord | None
    on_demand: PriceRecord | None
    max_price: int | None
    licence: str | None
    beside: list[AttachedCost] | None
    uses: list[UsageRecord]
    intended_at: str
    identity: IdentityRecord | None


class EndSubject(TypedDict):
    """What says how a machine can end: one of the ledger, or an offer."""

    stoppable: bool | None
    parkable: bool | None
    setup: SetupRecord | None


class Guarded(TypedDict):
    """What says what guards a machine."""

    guards: GuardsRecord | None


class GuardedSubject(EndSubject, Guarded):
    """What says how a machine can end, and what guards it."""


class Machine(BudgetSubject):
    """A machine, or a volume or image that is kept by name (`thing`), as `core.events.projection` makes it.

    Times are ledger times (`times.iso`), which sort by time; money is whole nano-dollars. None: not known.
    """

    key: str
    request: str
    seq: int
    accelerators: list[AcceleratorRecord]
    number: int
    token: str | None
    settled_why: str | None
    first_at: str
    template: str | None
    provider_id: str | None
    reason: str | None
    address: AddressRecord | None
    launched_at: str | None
    since: str | None
    seen_at: str | None
    last_active: str | None
    why: str | None
    failed: bool
    parked: bool
    discard: bool
    stoppable: bool | None
    parkable: bool | None
    stop_means: str | None
    policy: str
    expires: str | None
    renew_s: int | None
    hold_until: str | None
    totals: dict[str, list[int]]
    aside: dict[str, ChargeNote]
    unpriced: bool
    traffic: TrafficRecord | None
    policy_by: NotRequired[str]  # from here on: there only where something was said
    timer: NotRequired[str]
    warnings: NotRequired[dict[str, WarningRecord]]
    decision: NotRequired[DecisionRecord]
    refused: NotRequired[RefusedRecord]
    taken_at: NotRequired[str]
    shared: NotRequired[dict[str, ShareRecord]]
    unasked: NotRequired[UnaskedRecord]
    terms: NotRequired[TermsRecord]


def fact(said: T | None) -> T:
    """Return a fact that is known wherever it is asked for: for the type checker alone, nothing is checked here."""
    return cast("T", said)


def stays(row: Machine) -> bool:
    """Say whether something of this machine is kept, though it is gone."""
    return row["ended"] is not None and bool(row["kept"] or row["parked"])


def comes_back(row: Machine) -> bool:
    """Say whether this machine is gone and can be started from what is kept of it."""
    return stays(row) and not row["discard"]


def volumes_there(rows: Iterable[BudgetSubject]) -> frozenset[tuple[str, str]]:
    """Return the volumes that the ledger knows to be there, by their account and name.

    A plan knows its account by name alone; what is launched is held against the account's identity.
    """
    there = [row for row in rows if row["thing"] and row["ended"] is None]
    return frozenset((account, row["name"]) for row in there for account in (account_key(row), row["account"]))


def account_key(row: AccountSubject) -> str:
    """Return what tells the account of a row from all others: its identity, whatever a member calls it."""
    identity = row["identity"]
    return str(row["account"] if identity is None else identity["id"])


def scope_of_row(row: Machine) -> str:
    """Return the subject under which looks at the account of a machine, or of a kept thing, are written."""
    identity = row["identity"]
    return scope_of(row["provider"] or "", row["account"] or "" if identity is None else identity["id"])


def scopes_of(row: Machine) -> tuple[str, str]:
    """Return the subjects under which looks at a machine's account are written: those wholly answered, and others."""
    scope = scope_of_row(row)
    return scope, f"gap:{scope}"


def is_owned(machine: Mapping[str, Any]) -> bool:
    """Say whether a machine stands on a computer of the user's: no cloud bills it, and none has a name for it."""
    return machine["provider"] in HERE


def and_billed(machine: Mapping[str, Any], words: str) -> str:
    """Return `words` for a machine that is rented; nothing for one that its user owns."""
    return "" if is_owned(machine) else words


def may_go_on(machine: Mapping[str, Any]) -> str:
    """Return what may still be the case with a machine whose end is not proved."""
    return "may still run" if is_owned(machine) else "may still be billed"


def unproved(what: str, name: str) -> str:
    """Return what is said of a stop or an end that is not proved yet."""
    return f"The {what} of {name} is not proved: it may still be billed. Run the same command again to finish it."
