"""Prepares a cloud account: IAM roles for machines and timers, its table in config.toml; and removes them again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cloudgpu.config.edit import value_at
from cloudgpu.config.files.user_files import data_dir, shown
from cloudgpu.control.budgets.admission import read_credit
from cloudgpu.control.session.base import utc_now
from cloudgpu.control.setup.init import CLOUDS, ConfigDraft, ExistingSetup, default_account_of, with_account, write
from cloudgpu.core.model.account import BudgetAlert, PrepaidCredit, ProviderRole, RolePart
from cloudgpu.core.model.identity import unanswered_text
from cloudgpu.core.model.instances import TAG_NAME, TAG_OWNER, State
from cloudgpu.core.values.money import NANOS_PER_USD, ZERO, Money
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.core.values.network import parse_cidr
from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest, ProviderUnavailable
from cloudgpu.providers.account_abilities import (
    AccountFinding,
    Examines,
    HasBudgetAlert,
    HasMachineRole,
    HasTimerRole,
    NarrowsSsh,
    Registers,
)
from cloudgpu.providers.base import Provider, ProviderSettings
from cloudgpu.providers.registry import open_provider

NANOS_PER_CENT = NANOS_PER_USD // 100
MAX_NAMED = 4  # machines that an error names
_WITH_HOME_REGION = ("aws",)  # providers whose accounts have a home region in config.toml
_EMAIL = re.compile(r"[^\s@<>,;\"]{1,64}@[^\s@<>,;\"]+\.[^\s@<>,;\"]+")


@dataclass(frozen=True, slots=True)
class Preparation:
    """A planned preparation or removal: the roles as they are, the change to config.toml, and the provider.

    `role` is that of machines, None where the cloud's machines need none. `account` is its name in config.toml,
    `account_in_cloud` the cloud's own name of it. `findings` are the provider's checks of it. `budget` is the requested
    budget in the cloud, `existing_budget` the one that is there; None for none, or where it was not asked for.
    `budget_error` says why it could not be queried. `timer` is the role of timers in the cloud, None where the cloud
    has none.
    """

    kind: str
    account: str
    account_in_cloud: str
    role: ProviderRole | None
    draft: ConfigDraft
    provider: Provider
    findings: tuple[AccountFinding, ...] = ()
    budget: BudgetAlert | None = None
    existing_budget: BudgetAlert | None = None
    budget_error: str | None = None
    timer: ProviderRole | None = None
    creates_marker: bool = False  # the resource that gives the account its identity is to be created
    ssh_from: tuple[str, ...] = ()  # the networks to which SSH is to be narrowed; none: it stays as it is
    current_ssh_from: tuple[str, ...] = ()
    # The prepaid credit that is left, or why that is not known; None: not prepaid.
    credit: PrepaidCredit | CloudgpuError | None = None
    options: Mapping[str, object] = field(default_factory=dict)  # of the account, as the provider was opened with

    @property
    def changes_ssh(self) -> bool:
        """Whether it would change which networks may connect by SSH."""
        return bool(self.ssh_from) and set(self.ssh_from) != set(self.current_ssh_from)

    @property
    def changes_budget(self) -> bool:
        """Whether the budget would be made or changed."""
        return self.budget is not None and self.budget != self.existing_budget

    @property
    def parts(self) -> tuple[RolePart, ...]:
        """All resources in the cloud of which both roles are made."""
        return tuple(part for role in (self.role, self.timer) if role for part in role.parts)

    @property
    def missing_parts(self) -> tuple[RolePart, ...]:
        """The parts that would be made."""
        return tuple(part for part in self.parts if not part.exists)

    @property
    def removable_parts(self) -> tuple[RolePart, ...]:
        """The parts that cloudgpu has made, and that would be removed."""
        return tuple(part for part in self.parts if part.exists and part.is_ours)


def plan_preparation(
    setup: ExistingSetup,
    kind: str,
    *,
    account: str | None = None,
    account_keys: Mapping[str, str] | None = None,
    regions: Sequence[str] = (),
    budget: BudgetAlert | None = None,
    ssh_from: Sequence[str] = (),
) -> Preparation:
    """Return the plan to make the roles, and the cloud's own budget if requested, and to write the account's table.

    Queries the cloud; changes nothing.

    `account_keys` are further keys of the table: the profile, the subscription, the project. The first of `regions`
    becomes the home region, where a cloud has one. Raises InvalidRequest for a cloud that init does not know, a bad
    option or a role of this name that is somebody else's, AuthFailed for credentials that do not work.
    """
    name = _account_name(setup, kind, account)
    table: dict[str, object] = {"provider": kind, **(account_keys or {})}
    if regions:
        table |= {"home_region": regions[0]} if kind in _WITH_HOME_REGION else {}
        table["regions"] = list(regions)
    preparation = _preparation(setup, kind, name, table)
    if isinstance(preparation.provider, Registers):
        preparation = replace(preparation, creates_marker=not preparation.provider.is_registered())
    for part in preparation.parts:
        if not part.is_ours:
            raise InvalidRequest(
                f"There is an {part.description} called {part.name} already that cloudgpu init did not create.",
                field=_role_setting(preparation, part),
                value=part.name,
                next="Remove or rename it there, or use cloudgpu without it: launches work, and say what is lost.",
            )
    if ssh_from:
        preparation = replace(
            preparation,
            ssh_from=tuple(parse_cidr(cidr, "--ssh-from") for cidr in ssh_from),
            current_ssh_from=tuple(_require_ssh_rules(preparation.provider, kind).ssh_sources()),
        )
    if budget is None:
        return preparation
    return replace(
        preparation, budget=budget, existing_budget=_require_budget_alert(preparation.provider, kind).budget_alert()
    )


def _role_setting(preparation: Preparation, part: RolePart) -> str:
    """Return the setting of the account that names this part's role."""
    role = preparation.role if preparation.role and part in preparation.role.parts else preparation.timer
    return next(iter(role.options)) if role else "role"


def plan_removal(
    setup: ExistingSetup, kind: str, *, account: str | None = None, account_keys: Mapping[str, str] | None = None
) -> Preparation:
    """Return the plan to remove the roles, and the table's keys for them. Queries the cloud; changes nothing.

    Raises InvalidRequest where a machine of cloudgpu runs there, a colleague's too, and ProviderUnavailable where that
    is not known.
    """
    name = _account_name(setup, kind, account)
    preparation = _preparation(setup, kind, name, dict(account_keys or {}))
    _check_nothing_runs(preparation)
    current_table = value_at(setup.table, ("accounts", name)) or {}
    role_options = {
        key: value for role in (preparation.role, preparation.timer) if role for key, value in role.options.items()
    }
    options = {key: None for key, value in role_options.items() if current_table.get(key) == value}
    preparation = replace(preparation, draft=with_account(setup, name, options))
    if not isinstance(preparation.provider, HasBudgetAlert):
        return preparation
    try:
        return replace(preparation, existing_budget=preparation.provider.budget_alert())
    except AuthFailed as error:  # without a budget, the permission to query one may be missing
        return replace(preparation, budget_error=error.message)


def _check_nothing_runs(preparation: Preparation) -> None:
    """Raise if a machine runs in the account, or may: without the roles its timer and its own shutdown end no bill.

    In every region, also where the table names some: the roles serve them all, and a colleague's table names others.
    """
    if not preparation.removable_parts:
        return
    setup, name = preparation.draft.setup, preparation.account
    options = {key: value for key, value in preparation.options.items() if key != "regions"}
    listing = _open(setup, preparation.kind, name, options).list()
    running = sorted(
        f"{instance.tags.get(TAG_NAME, instance.id)} of {instance.tags.get(TAG_OWNER, 'nobody named')}"
        for instance in listing.instances
        if instance.billed or instance.state in {State.PENDING, State.UNKNOWN}
    )
    if running:
        more = f", and {len(running) - MAX_NAMED} more" if len(running) > MAX_NAMED else ""
        raise InvalidRequest(
            "Machines run in the account, and need its roles to end what they cost: "
            f"{', '.join(running[:MAX_NAMED])}{more}.",
            field="--remove",
            value=running[0],
            next="Stop or end them first: cloudgpu down NAME, each by its owner.",
        )
    for gap in listing.unanswered:
        raise ProviderUnavailable(
            f"Whether a machine runs that needs the roles is not known: {unanswered_text(gap.scope, gap.why)}",
            field=gap.scope,
            next="Run it again once it answers. Where nobody may use that region, name it in exclude_regions.",
        )


def apply_preparation(preparation: Preparation) -> None:
    """Make the roles and the budget, then write config.toml: its table never names what does not exist. Idempotent."""
    if preparation.creates_marker and isinstance(preparation.provider, Registers):
        preparation.provider.register()
    if isinstance(preparation.provider, HasMachineRole):
        preparation.provider.make_machine_role(_role_document(preparation.kind, "machine"))
    if isinstance(preparation.provider, HasTimerRole):
        preparation.provider.make_timer_role(_role_document(preparation.kind, "timer"))
    if preparation.budget is not None:
        _require_budget_alert(preparation.provider, preparation.kind).set_budget_alert(preparation.budget)
    if preparation.changes_ssh:
        _require_ssh_rules(preparation.provider, preparation.kind).narrow_ssh(preparation.ssh_from)
    if preparation.draft.changed:
        write(preparation.draft)


def apply_removal(preparation: Preparation) -> None:
    """Write config.toml, then remove the roles and the budget: no launch uses them any more. Idempotent.

    Raises as `plan_removal` where a machine was launched since then.
    """
    _check_nothing_runs(preparation)
    if preparation.draft.changed:
        write(preparation.draft)
    if isinstance(preparation.provider, HasMachineRole):
        preparation.provider.remove_machine_role()
    if isinstance(preparation.provider, HasTimerRole):
        preparation.provider.remove_timer_role()
    if preparation.existing_budget is not None:
        _require_budget_alert(preparation.provider, preparation.kind).remove_budget_alert()


def parse_budget_alert(amount: str, email: str) -> BudgetAlert:
    """Return the budget of `--budget` and `--email`; raise InvalidRequest for an invalid amount or address."""
    try:
        limit = Money.usd(amount.strip().removeprefix("$"))
    except (ArithmeticError, ValueError):
        limit = ZERO
    if limit <= ZERO or limit.nanos % NANOS_PER_CENT:
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
    return BudgetAlert(limit, (email.strip(),))


def _require_budget_alert(provider: object, kind: str) -> HasBudgetAlert:
    if not isinstance(provider, HasBudgetAlert):
        raise InvalidRequest(
            f"cloudgpu can make no budget at {kind}.", field="--budget", value=None, next="Leave --budget out."
        )
    return provider


def _require_ssh_rules(provider: object, kind: str) -> NarrowsSsh:
    if not isinstance(provider, NarrowsSsh):
        message = f"At {kind} each machine has rules of its own about SSH, not the account."
        raise InvalidRequest(message, field="--ssh-from", value=None, next="Use it with up: cloudgpu up --ssh-from")
    return provider


def _preparation(setup: ExistingSetup, kind: str, name: str, table: Mapping[str, object]) -> Preparation:
    """Return the preparation, by queries of the cloud with the account's options as this table would make them."""
    draft = with_account(setup, name, table)
    current_table = value_at(setup.table, ("accounts", name)) or {}
    options = {key: value for key, value in {**current_table, **table}.items() if key != "provider"}
    provider = _open(setup, kind, name, options)
    role = provider.machine_role(_role_document(kind, "machine")) if isinstance(provider, HasMachineRole) else None
    timer = provider.timer_role(_role_document(kind, "timer")) if isinstance(provider, HasTimerRole) else None
    findings = tuple(provider.findings()) if isinstance(provider, Examines) else ()
    if table.get("provider"):
        roles = {key: value for each_role in (role, timer) if each_role for key, value in each_role.options.items()}
        draft = with_account(setup, name, {**table, **roles})
    account_in_cloud = role.account if role else findings[0].message if findings else kind
    credit = read_credit(provider)
    return Preparation(
        kind, name, account_in_cloud, role, draft, provider, findings, timer=timer, credit=credit, options=options
    )


def _open(setup: ExistingSetup, kind: str, name: str, options: Mapping[str, object]) -> Provider:
    return open_provider(kind, ProviderSettings(name, options, setup.home.provider_dir(kind, name), utc_now))


def _role_document(kind: str, role: str) -> str:
    """Return the policy document of a role of machines or timers, as text."""
    return (data_dir("policies") / "permissions" / f"{kind}-{role}.json").read_text()


def _account_name(setup: ExistingSetup, kind: str, account: str | None) -> str:
    """Return the account's name; raise InvalidRequest for one of another provider or a cloud that is not known."""
    if kind not in CLOUDS:
        raise unknown_word(
            f"init prepares no cloud called {kind!r}",
            kind,
            CLOUDS,
            field="CLOUD",
            next=f"Use one of: {', '.join(CLOUDS)}; or cloudgpu init alone, for config.toml.",
        )
    name = account or default_account_of(setup.settings, kind, "Name it: --account NAME.")
    existing = setup.settings.accounts.get(name)
    if existing is not None and existing.provider != kind:
        raise InvalidRequest(
            f"Account {name} belongs to {existing.provider}, not to {kind}.",
            field="--account",
            value=name,
            next="Choose another --account.",
        )
    return name
