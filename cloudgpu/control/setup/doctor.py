"""Checks what cloudgpu depends on, with a remedy for each problem: the checks of `doctor`."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.config.files.user_files import Home, find_home, project_dirs
from cloudgpu.config.settings import SHIPPED_KINDS
from cloudgpu.control.alerts.health import alert_checks
from cloudgpu.control.budgets.admission import credit_checks
from cloudgpu.control.network import reachability as network_reachability
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.outage.outage import SYNC_LATER, read_without_ledger, refused_sentence
from cloudgpu.control.session.accounts import (
    account_gap,
    account_of,
    accounts_here,
    cloud_accounts,
    is_any_provider,
    provider_kinds,
    split_gaps,
    used_accounts,
)
from cloudgpu.control.session.base import are_accounts_here, is_mine, missing_settings, utc_now
from cloudgpu.control.session.identity import by_account
from cloudgpu.control.session.session import Session
from cloudgpu.control.setup.guards import guard_checks
from cloudgpu.control.setup.permissions import finding_checks, permission_checks, quota_checks
from cloudgpu.control.setup.team_ledger import team_checks
from cloudgpu.core.model.checks import Check, Verdict, failed_check
from cloudgpu.core.model.identity import account_text, may_cost_money, unanswered_text
from cloudgpu.core.model.machine import ON_PREMISES_PROVIDERS
from cloudgpu.errors import CloudgpuError, LedgerUnavailable, NotReachableHere, ProviderUnavailable

if TYPE_CHECKING:
    from cloudgpu.views.documents.setup.doctor import Check as CheckDocument, DoctorDocument

MIN_FREE_BYTES = 500_000_000
MODULES_BY_EXTRA = {  # by extra, which is named like its provider: the modules that it installs
    "local": ("asyncssh", "jupyterlab"),
    "aws": ("boto3",),
    "gcp": ("google.cloud.compute_v1",),
    "azure": ("azure.mgmt.compute", "azure.identity"),
    "runpod": ("urllib3",),
    "vast": ("urllib3",),
    "lambda": ("urllib3",),
}


def examine(
    environ: Mapping[str, str],
    *,
    clock: Callable[[], datetime] = utc_now,
    provider: str | None = None,
    account: str | None = None,
    region: str | None = None,
) -> list[Check]:
    """Return every check, in the order in which a command would meet errors. Launches, changes and repairs nothing.

    `provider` and `account` say which accounts are checked; None: all. Permissions are checked in `region` (None: the
    account's home region). Raises InvalidRequest where no such account is configured.
    """
    checks = [_python_check(), _system_check(), _files_check(find_home(environ))]
    try:
        session = open_session(environ, clock=clock)
    except CloudgpuError as error:
        return [*checks, failed_check("settings and ledger", error)]
    checks.append(Check("settings", Verdict.OK, _settings_text(session)))
    checks += [
        _policy_check(session),
        *_project_budget_checks(session.home),
        _ledger_check(session),
        *team_checks(session),
        _ssh_key_check(session),
        _ssh_client_check(),
        *_extra_checks(),
    ]
    with read_without_ledger(session):
        return checks + _checks_needing_ledger(session, environ, provider=provider, account=account, region=region)


def _checks_needing_ledger(
    session: Session, environ: Mapping[str, str], *, provider: str | None, account: str | None, region: str | None
) -> list[Check]:
    """Return the checks of plug-ins, accounts, their networks and the safeguards of machines."""
    checks = [*_plugin_checks(session), *alert_checks(session)]
    accounts = _accounts_to_check(session, provider, account)
    all_accounts = provider is None and account is None
    if all_accounts:
        checks += [*_cloud_checks(session, accounts), *_unconfigured_accounts(session)]
    checks += list(_account_checks(session, accounts, region, all_accounts=all_accounts))
    checks += list(network_reachability.check_ssh_access(session, accounts))
    with suppress(LedgerUnavailable):  # reported by its own check
        checks += list(guard_checks(session, accounts, environ))
    return checks


def _python_check() -> Check:
    version = platform.python_version()
    if sys.version_info < (3, 11):  # noqa: UP036  (it can be installed there by force)
        return Check("python", Verdict.FAIL, f"Python {version} is too old.", "Install Python 3.11 or newer.", 2)
    return Check("python", Verdict.OK, f"Python {version}, cloudgpu from {Path(__file__).parents[2]}")


def _system_check() -> Check:
    system = platform.system()
    if system in ("Linux", "Darwin"):
        return Check("system", Verdict.OK, f"{system} {platform.machine()}")
    return Check("system", Verdict.FAIL, f"cloudgpu does not run on {system}.", "On Windows, use WSL.", 2)


def _files_check(home: Home) -> Check:
    existing_directory = home.root
    while not existing_directory.exists():
        existing_directory = existing_directory.parent
    if not os.access(existing_directory, os.W_OK | os.X_OK):
        return Check(
            "files",
            Verdict.FAIL,
            f"{existing_directory} cannot be written to.",
            "Fix its permissions or set CLOUDGPU_HOME.",
            2,
        )
    free = shutil.disk_usage(existing_directory).free
    if free < MIN_FREE_BYTES:
        return Check(
            "files", Verdict.WARN, f"Only {free // 1_000_000} MB are free at {existing_directory}.", "Free some space."
        )
    return Check("files", Verdict.OK, f"{home.root} ({free // 1_000_000_000} GB free)")


def _settings_text(session: Session) -> str:
    file = session.home.config_file
    message = f"{file}" if file.exists() else f"no {file.name} (defaults hold; none is needed for local)"
    return f"{message}; owner {session.settings.owner}, accounts {', '.join(sorted(session.settings.accounts))}"


def _policy_check(session: Session) -> Check:
    """Return the check of all policies, with the times of the default one: the reaper uses no invalid policy."""
    from cloudgpu.control.policies.commands import check_policies
    from cloudgpu.control.policies.resolve import find_policy, lifetime_of, limits_of
    from cloudgpu.core.policies.policy import cut_lifetime
    from cloudgpu.core.values.times import duration_text

    try:
        policy = find_policy(session, None)
        lifetime = lifetime_of(policy, session.settings)
        check_policies(session, ())
        limited, _ = cut_lifetime(lifetime, limits_of(session))
    except CloudgpuError as error:
        return failed_check("policy", error)
    lifetime_text = f"lease {duration_text(limited.lease)}, renew-until {duration_text(limited.renew_until)}"
    return Check("policy", Verdict.OK, f"{policy.name}: {lifetime_text}")


def _project_budget_checks(home: Home) -> Iterator[Check]:
    """Yield a note where this directory has budgets: nothing that runs elsewhere sees them, as cron's runs do."""
    from cloudgpu.config.budgets import load_budgets

    directories = [one / "budgets" for one in project_dirs("policies") if one.resolve() != home.policies.resolve()]
    try:
        names = [budget.name for budget in load_budgets(directories)]
    except CloudgpuError as error:
        yield failed_check("project budgets", error)
        return
    if names:
        message = f"{', '.join(names)} in {directories[0]}: only commands that run in this directory count such budgets"
        remedy = f"For every launch, and for runs of cron or watch: move the files to {home.policies / 'budgets'}"
        yield Check("project budgets", Verdict.NOTE, message, remedy)


def _ledger_check(session: Session) -> Check:
    try:
        clock_problem, problem, verified = (
            session.ledger.clock_problem(),
            session.integrity_problem(),
            session.ledger.verify(),
        )
    except CloudgpuError as error:
        return failed_check("ledger", error)
    if problem or verified.faults:
        return Check("ledger", Verdict.FAIL, problem or verified.faults[0], "Run: cloudgpu cost --verify", 8)
    if clock_problem:
        return Check("ledger", Verdict.WARN, clock_problem, "Set the wrong one of the two.")
    try:
        unwritten_check = _unwritten_events_check(session)
    except OSError as error:
        return Check(
            "ledger", Verdict.WARN, f"{error.filename} cannot be read ({error.strerror}).", "Look into that file."
        )
    return unwritten_check or Check("ledger", Verdict.OK, f"{verified.line_count} lines, chain and head record agree")


def _unwritten_events_check(session: Session) -> Check | None:
    """Return a warning about entries that are not in the ledger: they wait for another ledger, or were refused.

    Raises OSError.
    """
    outbox = session.ledger.outbox
    outbox_files = [str(other.path) for other in outbox.other_outboxes()]
    if outbox_files:
        message = f"What was done while a ledger was away still waits in {', '.join(outbox_files)}."
        remedy = "Name that ledger by CLOUDGPU_LEDGER once it is back: the next command writes it."
        return Check("ledger", Verdict.WARN, message, remedy)
    if not outbox.is_empty:
        message = f"Lines wait in {outbox.path}: another command is at them, or a newer cloudgpu has written them."
        return Check(
            "ledger", Verdict.WARN, message, "Run any command again, with the newest cloudgpu of this computer."
        )
    for path, events in outbox.refused():
        remedy = f"{SYNC_LATER}. Then remove that file, or keep it for whoever looks into it."
        return Check(
            "ledger",
            Verdict.WARN,
            f"{refused_sentence(session.ledger, events)} What was refused is kept in {path}.",
            remedy,
        )
    return None


def _ssh_key_check(session: Session) -> Check:
    from cloudgpu.access.ssh.client_files import client_key

    if not session.client_key_file.exists():
        return Check("ssh key", Verdict.OK, "made at the first launch")
    try:
        return Check("ssh key", Verdict.OK, str(client_key(session.home.keys).path))
    except CloudgpuError as error:
        return failed_check("ssh key", error)


def _ssh_client_check() -> Check:
    path = shutil.which("ssh")
    if path:
        return Check("ssh client", Verdict.OK, path)
    return Check(
        "ssh client",
        Verdict.NOTE,
        "There is no ssh on PATH: only the verb ssh needs it; exec, cp and tunnel do without.",
        "Install OpenSSH's client (Debian: apt-get install openssh-client).",
    )


def _extra_checks() -> Iterator[Check]:
    available = provider_kinds()
    unavailable = sorted(MODULES_BY_EXTRA.keys() - available)
    yield Check(
        "providers",
        Verdict.OK,
        ", ".join(available) + (f"; not in this version: {', '.join(unavailable)}" * bool(unavailable)),
    )
    for extra, modules in MODULES_BY_EXTRA.items():
        if extra not in available:
            continue
        missing = [module for module in modules if not is_installed(module)]
        if not missing:
            yield Check(f"extra {extra}", Verdict.OK, "installed")
        else:
            yield Check(
                f"extra {extra}",
                Verdict.NOTE,
                f"not installed ({', '.join(missing)} missing)",
                f"If you want it: pip install 'cloudgpu[{extra}]'",
            )


def _plugin_checks(session: Session) -> Iterator[Check]:
    """Yield a note for each installed plug-in without an account."""
    configured = {account.provider for account in session.settings.accounts.values()}
    for kind in provider_kinds():
        if kind not in (*SHIPPED_KINDS, *configured):
            remedy = f'Add [accounts.{kind}] with provider = "{kind}" to {session.home.config_file.name}.'
            yield Check(f"plug-in {kind}", Verdict.NOTE, "installed, but no account of it is configured", remedy)


def is_installed(module: str) -> bool:
    """Say whether Python finds a module, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _accounts_to_check(session: Session, provider: str | None, account: str | None) -> list[str]:
    """Return the accounts to check; raise InvalidRequest where there is none such."""
    if account is not None:
        return [account_of(session, account=account, provider=provider)]
    if is_any_provider(session, account=None, provider=provider or ""):
        return cloud_accounts(session)
    accounts = {name: session.account(name) for name in _used_accounts(session)}
    names = [name for name, entry in accounts.items() if entry is not None and provider in (None, entry.provider)]
    return names or [account_of(session, account=None, provider=provider)]


def _used_accounts(session: Session) -> list[str]:
    """Return the accounts that are used; those of this computer alone where the ledger cannot be read."""
    try:
        return used_accounts(session)
    except LedgerUnavailable:
        return accounts_here(session)


def _cloud_checks(session: Session, names: list[str]) -> list[Check]:
    """Return a note where no cloud account is checked."""
    kinds = {account.provider for name in names if (account := session.account(name)) is not None}
    if kinds - set(ON_PREMISES_PROVIDERS):
        return []
    message = "No cloud is queried: config.toml names no account of one, and no credentials of one were found here."
    return [Check("clouds", Verdict.NOTE, message, "Log in with the cloud's own tool, or run: cloudgpu init")]


def _unconfigured_accounts(session: Session) -> Iterator[Check]:
    """Yield a failed check for each account that the ledger knows and config.toml does not."""
    for name in _used_accounts(session):
        if session.account(name) is None:
            yield failed_check(f"account {name}", session.unknown_account(name))
    yield from _machines_out_of_reach(session)


def _machines_out_of_reach(session: Session) -> Iterator[Check]:
    """Yield a failed check for each machine of this owner whose account or host cannot be queried from here."""
    with suppress(LedgerUnavailable):  # reported by its own check
        machines = [
            machine for machine in session.ledger.machines() if may_cost_money(machine) and is_mine(session, machine)
        ]
        _, errors = by_account(session, machines)
        for machine, missing in zip(
            machines, missing_settings(session, machines, are_accounts_here(session, machines)), strict=True
        ):
            error = errors.get(machine.id)
            if isinstance(error, NotReachableHere):
                yield failed_check(f"machine {machine.name}", error)
            elif missing is not None:
                message = f"runs on {account_text(machine)} as far as is known, and cannot be asked: {missing.why}"
                yield Check(
                    f"machine {machine.name}", Verdict.FAIL, message, missing.remedy, ProviderUnavailable.exit_code
                )


def _account_checks(session: Session, names: list[str], region: str | None, *, all_accounts: bool) -> Iterator[Check]:
    for name in names:
        try:
            listing = session.provider(name).list()
        except CloudgpuError as error:
            _, denied_gaps = split_gaps(session, [account_gap(name, error)]) if all_accounts else ([], [])
            if denied_gaps:
                message = f"not asked: the credentials found here do not open it: {error.message}"
                yield Check(f"account {name}", Verdict.NOTE, message, error.next)
            else:
                yield failed_check(f"account {name}", error)
                if error.field == "permission":  # the listing's is one of them: all that are missing are named
                    yield from permission_checks(session, name, region)
            continue
        if listing.unanswered:
            message = " ".join(unanswered_text(gap.scope, gap.why) for gap in listing.unanswered)
            yield Check(f"account {name}", Verdict.FAIL, message, None, 8)
        else:
            yield Check(f"account {name}", Verdict.OK, f"answers; its machines: {len(listing.instances)}")
        yield from credit_checks(session, name)
        yield from finding_checks(session, name, region)
        yield from permission_checks(session, name, region)
        yield from quota_checks(session, name, region)


def doctor_document(checks: Sequence[Check]) -> DoctorDocument:
    """Return the answer of `doctor`."""
    check_documents: list[CheckDocument] = [
        {
            "name": check.name,
            "verdict": str(check.verdict),
            "message": check.message,
            "next": check.next,
            "exit_code": check.exit_code,
        }
        for check in checks
    ]
    return {"checks": check_documents, "ok": all(check.verdict != "fail" for check in checks)}
