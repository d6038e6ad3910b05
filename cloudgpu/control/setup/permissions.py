"""Checks what an account lacks: permissions, with the policy document that grants them; services; quotas on GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cloudgpu.config.files.user_files import data_dir
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.account import Permission
from cloudgpu.core.model.checks import Check, Verdict, failed_check
from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest
from cloudgpu.providers.account_abilities import ChecksPermissions, Examines, HasQuota

_CODES_NOT_ONLY_GPU = ("cores", "lowPriorityCores", "GPUS_ALL_REGIONS")  # of quotas that do not only count GPU machines


def permission_checks(session: Session, account: str, region: str | None) -> Iterator[Check]:
    """Yield a check for each permission that the account's credential lacks; a single one where it lacks none.

    Yields nothing for a provider whose permissions cannot be queried. Changes nothing.
    """
    provider = session.provider(account)
    if not isinstance(provider, ChecksPermissions):
        return
    name = f"permissions {account}"
    try:
        permissions = provider.permissions(region)
    except CloudgpuError as error:
        yield failed_check(name, error)
        return
    denied_permissions = [permission for permission in permissions if permission.allowed is False]
    for permission in denied_permissions:
        denied_action_error = denied_error(permission, provider.kind)
        if permission.needed:
            yield failed_check(name, denied_action_error)
        else:
            message = f"{denied_action_error.message} cloudgpu does without, and says so where it matters."
            yield Check(name, Verdict.NOTE, message, denied_action_error.next)
    if not denied_permissions:
        yield Check(name, Verdict.OK, _allowed_text(permissions))


def finding_checks(session: Session, account: str, region: str | None) -> Iterator[Check]:
    """Yield a check for each finding of the provider in the account, such as a disabled service.

    Yields nothing for a provider that does not examine accounts. Changes nothing.
    """
    provider = session.provider(account)
    if not isinstance(provider, Examines):
        return
    try:
        findings = provider.findings(region)
    except CloudgpuError as error:
        yield failed_check(f"account {account}", error)
        return
    for finding in findings:
        verdict = (
            Verdict.OK if finding.is_ok else Verdict.FAIL if finding.is_ok is False and finding.needed else Verdict.WARN
        )
        exit_code = InvalidRequest.exit_code if verdict is Verdict.FAIL else 0
        yield Check(f"{finding.what} {account}", verdict, finding.message, finding.next or None, exit_code)


def quota_checks(session: Session, account: str, region: str | None) -> Iterator[Check]:
    """Yield a check of the quotas on machines with GPUs in a region; in a new account most of them are 0.

    Yields nothing without a region, nor for a provider without quotas. Changes nothing.
    """
    provider = session.provider(account)
    if region is None or not isinstance(provider, HasQuota):
        return
    name = f"GPU limits {account}"
    try:
        quotas = [
            quota
            for quota in provider.quotas(region)
            if quota.limit is not None and quota.code not in _CODES_NOT_ONLY_GPU
        ]
    except CloudgpuError as error:
        yield failed_check(name, error)
        return
    quotas_above_zero = [quota for quota in quotas if quota.limit]
    if not quotas:
        yield Check(name, Verdict.NOTE, f"no limit on GPUs is readable in {region}: what it allows is not known")
    elif quotas_above_zero:
        message = f"{len(quotas_above_zero)} of {len(quotas)} limits that are readable in {region} are above 0"
        yield Check(name, Verdict.OK, f"{message} (cloudgpu quota --account {account})")
    else:
        remedy = f"Ask for more: {provider.quota_page(region, quotas[0].code)}"
        yield Check(name, Verdict.WARN, f"every limit on GPUs in {region} is 0: none can be launched", remedy)


def denied_error(permission: Permission, kind: str) -> AuthFailed:
    """Return the error of an action that is denied, with the policy document that grants it."""
    return AuthFailed(
        f"{permission.action} is denied: it is needed to {permission.used_for}.",
        field="permission",
        value=permission.action,
        next=f"Attach {permissions_document(kind)} to the user or role (docs/permissions.md).",
    )


def has_permissions_document(kind: str) -> bool:
    """Say whether there is a policy document for this provider: API keys of some have no separate permissions."""
    return any((data_dir("policies") / "permissions").glob(f"{kind}-launch.*"))


def permissions_document(kind: str) -> str:
    """Return the path of the policy document with every permission that a launch needs at this provider."""
    directory = data_dir("policies") / "permissions"
    return str(next(directory.glob(f"{kind}-launch.*"), directory / f"{kind}-launch.json"))


def _allowed_text(permissions: Sequence[Permission]) -> str:
    allowed = sum(permission.allowed is True for permission in permissions)
    unknown = [permission for permission in permissions if permission.allowed is None]
    reasons = "; ".join(dict.fromkeys(one.unknown_reason for one in unknown if one.unknown_reason))
    unknown_clause = f"; {len(unknown)} are not known: {reasons or 'no reason was given'}" if unknown else ""
    return f"{allowed} of {len(permissions)} actions are allowed, none is denied{unknown_clause}"
