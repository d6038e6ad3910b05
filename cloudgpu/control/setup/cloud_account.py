"""Prepares a cloud account: roles for machines and timers there, its table in config.toml; and removes them again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cloudgpu.config.edit import value_at
from cloudgpu.config.files.user_files import data_dir, shown
from cloudgpu.control.budgets.admission import read_credit
from cloudgpu.control.session.base import utc_now
from cloudgpu.control.setup.init import CLOUDS, Draft, ExistingSetup, account_of, with_account, write
from cloudgpu.core.model.account import BudgetAlert, MachineRole, PrepaidCredit, RolePart
from cloudgpu.core.values.money import NANOS_PER_USD, ZERO, Money
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.core.values.network import parse_cidr
from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest
from cloudgpu.providers.account_abilities import (
    Examines,
    Finding,
    HasBudgetAlert,
    HasMachineRole,
    HasTimerRole,
    NarrowsSsh,
    Registers,
)
from cloudgpu.providers.base import Provider, ProviderSettings
from cloudgpu.providers.registry import open_provider

CENT = NANOS_PER_USD // 100
_WITH_HOME = ("aws",)  # whose tables name a home region
_EMAIL = re.compile(r"[^\s@<>,;\"]{1,64}@[^\s@<>,;\"]+\.[^\s@<>,;\"]+")


@dataclass(frozen=True, slots=True)
class Preparation:
    """A planned preparation or removal: the roles as they are, the change to config.toml, and the provider.

    `role` is None where the cloud's machines need none. `where` names the account in the cloud. `findings` are the
    provider's checks of it. `budget` is the requested budget in the cloud, `budget_there` the existing one; None for
    none, or where it was not asked for. `unseen` says why it could not be queried. `timer` is the role of timers in the
    cloud, None where there are none.
    """

    kind: str
    account: str
    where: str
    role: MachineRole | None
    draft: Draft
    provider: Provider
    document: str
    findings: tuple[Finding, ...] = ()
    budget: BudgetAlert | None = None
    budget_there: BudgetAlert | None = None
    unseen: str | None = None
    timer: MachineRole | None = None
    timer_document: str = ""
    registers: bool = False  # the marker that identifies the account is to be created
    ssh_from: tuple[str, ...] = ()  # the networks to which SSH is to be narrowed; none: it stays as it is
    ssh_now: tuple[str, ...] = ()
    credit: PrepaidCredit | CloudgpuError | None = (
        None  # the prepaid credit that is left, or why that is not known; None: not prepaid
    )

    @property
    def sets_ssh(self) -> bool:
        """Whether it would change who may reach SSH."""
        return bool(self.ssh_from) and set(self.ssh_from) != set(self.ssh_now)

    @property
    def sets_budget(self) -> bool:
        """Whether the budget would be made or changed."""
        return self.budget is not None and self.budget != self.budget_there

    @property
    def parts(self) -> tuple[RolePart, ...]:
        """All parts of both roles."""
        return tuple(part for role in (self.role, self.timer) if role for part in role.parts)

    @property
    def missing(self) -> tuple[RolePart, ...]:
        """The parts that would be made."""
        return tuple(part for part in self.parts if not part.exists)

    @property
    def present(self) -> tuple[RolePart, ...]:
        """The parts of cloudgpu's that would be removed."""
        return tuple(part for part in self.parts if part.exists and part.is_ours)


def prepared(
    setup: ExistingSetup,
    kind: str,
    *,
    account: str | None = None,
    named: Mapping[str, str] | None = None,
    regions: Sequence[str] = (),
    budget: BudgetAlert | None = None,
    ssh_from: Sequence[str] = (),
) -> Preparation:
    """Return what making the roles (and the cloud's own budget) would do, and the account's table with it.

    Asks the cloud; changes nothing.

    `named` are further keys of the table: the profile, the subscription, the project. The first of `regions`
    becomes the home region, where a cloud has one. Raises InvalidRequest for a cloud that init does not know, a bad
    option or a role of this name that is somebody else's, AuthFailed for credentials that do not work.
    """
    name = _account(setup, kind, account)
    table: dict[str, object] = {"provider": kind, **(named or {})}
    if regions:
        table |= {"home_region": regions[0]} if kind in _WITH_HOME else {}
        table["regions"] = list(regions)
    made = _preparation(setup, kind, name, table)
    if isinstance(made.provider, Registers):
        made = replace(made, registers=not made.provider.is_registered())
    for part in made.parts:
        if not part.is_ours:
            raise InvalidRequest(
                f"There is an {part.description} called {part.name} already that cloudgpu init did not create.",
                field=_setting(made, part),
                value=part.name,
                next="Remove or rename it there, or use cloudgpu without it: launches work, and say what is lost.",
            )
    if ssh_from:
        cidrs = tuple(parse_cidr(one, "--ssh-from") for one in ssh_from)
        made = replace(made, ssh_from=cidrs, ssh_now=tuple(_door(made.provider, kind).ssh_sources()))
    if budget is None:
        return made
    return replace(made, budget=budget, budget_there=_able(made.provider, kind).budget_alert())


def _setting(preparation: Preparation, part: RolePart) -> str:
    """Return the setting of the account that names this part's role."""
    role = preparation.role if preparation.role and part in preparation.role.parts else preparation.timer
    return next(iter(role.options)) if role else "role"


def removal(
    setup: ExistingSetup, kind: str, *, account: str | None = None, named: Mapping[str, str] | None = None
) -> Preparation:
    """Return what removing the roles would do, and the table without them. Asks the cloud; changes nothing."""
    name = _account(setup, kind, account)
    made = _preparation(setup, kind, name, dict(named or {}))
    known = value_at(setup.table, ("accounts", name)) or {}
    ours = {key: value for role in (made.role, made.timer) if role for key, value in role.options.items()}
    options = {key: None for key, value in ours.items() if known.get(key) == value}
    made = replace(made, draft=with_account(setup, name, options))
    if not isinstance(made.provider, HasBudgetAlert):
        return made
    try:
        return replace(made, budget_there=made.provider.budget_alert())
    except AuthFailed as error:  # without a budget, the permission to query one may be missing
        return replace(made, unseen=error.message)


def make(preparation: Preparation) -> None:
    """Make the roles and the budget, then write config.toml: its table never names what does not exist. Idempotent."""
    if preparation.registers and isinstance(preparation.provider, Registers):
        preparation.provider.register()
    if isinstance(preparation.provider, HasMachineRole):
        preparation.provider.make_machine_role(preparation.document)
    if isinstance(preparation.provider, HasTimerRole):
        preparation.provider.make_timer_role(preparation.timer_document)
    if preparation.budget is not None:
        _able(preparation.provider, preparation.kind).set_budget_alert(preparation.budget)
    if preparation.sets_ssh:
        _door(preparation.provider, preparation.kind).narrow_ssh(preparation.ssh_from)
    if preparation.draft.changed:
        write(preparation.draft)


def remove(preparation: Preparation) -> None:
    """Write config.toml, then remove the roles and the budget: no launch uses them any more. Idempotent."""
    if preparation.draft.changed:
        write(preparation.draft)
    if isinstance(preparation.provider, HasMachineRole):
        preparation.provider.remove_machine_role()
    if isinstance(preparation.provider, HasTimerRole):
        preparation.provider.remove_timer_role()
    if preparation.budget_there is not None:
        _able(preparation.provider, preparation.kind).remove_budget_alert()


def read_budget(amount: str, email: str) -> BudgetAlert:
    """Return what `--budget` and `--email` say; raise InvalidRequest for what is no amount or no address."""
    try:
        money = Money.usd(amount.strip().removeprefix("$"))
    except (ArithmeticError, ValueError):
        money = ZERO
    if money <= ZERO or money.nanos % CENT:
        raise InvalidRequest(
            f"--budget is {shown(amount)!r}, which is not an amount in US dollars above zero, to the cent at most.",
            field="--budget",
            value=shown(amount),
            next="For example --budget 300",
        )
    if not _EMAIL.fullmatch(email.strip()):
        raise InvalidRequest(
            f"--email is {shown(email)!r}, which is not an e-mail address.",
            field="--email",
            value=shown(email),
            next="For example --email ada@example.org",
        )
    return BudgetAlert(money, (email.strip(),))


def _able(provider: object, kind: str) -> HasBudgetAlert:
    if not isinstance(provider, HasBudgetAlert):
        raise InvalidRequest(
            f"cloudgpu can make no budget at {kind}.", field="--budget", value=None, next="Leave --budget out."
        )
    return provider


def _door(provider: object, kind: str) -> NarrowsSsh:
    if not isinstance(provider, NarrowsSsh):
        message = f"At {kind} each machine has rules of its own about SSH, not the account."
        raise InvalidRequest(message, field="--ssh-from", value=None, next="Use it with up: cloudgpu up --ssh-from")
    return provider


def _preparation(setup: ExistingSetup, kind: str, name: str, table: Mapping[str, object]) -> Preparation:
    """Ask the cloud with the account's options as they would be."""
    draft = with_account(setup, name, table)
    known = value_at(setup.table, ("accounts", name)) or {}
    options = {key: value for key, value in {**known, **table}.items() if key != "provider"}
    provider = open_provider(kind, ProviderSettings(name, options, setup.home.provider(kind, name), utc_now))
    role, timer, document, timers = None, None, "", ""
    if isinstance(provider, HasMachineRole):
        document = _document(kind, "machine")
        role = provider.machine_role(document)
    if isinstance(provider, HasTimerRole):
        timers = _document(kind, "timer")
        timer = provider.timer_role(timers)
    findings = tuple(provider.findings()) if isinstance(provider, Examines) else ()
    if table.get("provider"):
        options = {key: value for one in (role, timer) if one for key, value in one.options.items()}
        draft = with_account(setup, name, {**table, **options})
    where = role.account if role else findings[0].says if findings else kind
    made = Preparation(kind, name, where, role, draft, provider, document, findings, timer=timer, timer_document=timers)
    return replace(made, credit=read_credit(provider))


def _document(kind: str, whose: str) -> str:
    return (data_dir("policies") / "permissions" / f"{kind}-{whose}.json").read_text()


def _account(setup: ExistingSetup, kind: str, account: str | None) -> str:
    """Return the account's name; raise InvalidRequest for one of another provider or a cloud that is not known."""
    if kind not in CLOUDS:
        raise _unknown(kind)
    name = account or account_of(setup.settings, kind, "Name it: --account NAME.")
    taken = setup.settings.accounts.get(name)
    if taken is not None and taken.provider != kind:
        raise InvalidRequest(
            f"Account {name} belongs to {taken.provider}, not to {kind}.",
            field="--account",
            value=name,
            next="Choose another --account.",
        )
    return name


def _unknown(kind: str) -> InvalidRequest:
    return unknown_word(
        f"init prepares no cloud called {kind!r}",
        kind,
        CLOUDS,
        field="CLOUD",
        next=f"Use one of: {', '.join(CLOUDS)}; or cloudgpu init alone, for config.toml.",
    )
