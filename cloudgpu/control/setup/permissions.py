"""Checks what an account lacks: permissions, with the document that has them; services; quotas on GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cloudgpu.config.files.user_files import data_dir
from cloudgpu.control.session.session import Session
from cloudgpu.core.model.account import Permission
from cloudgpu.core.model.checks import Check, Verdict, failed
from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest
from cloudgpu.providers.account_abilities import ChecksPermissions, Examines, HasQuota

_NOT_ONLY_GPU = ("cores", "lowPriorityCores", "GPUS_ALL_REGIONS")  # quotas that count more than GPU machines


def permission_checks(session: Session, account: str, region: str | None) -> Iterator[Check]:
    """Yield a check of what this account's credential may do: one in all where nothing is missing.

    Yields nothing for a provider that cannot be asked. Changes nothing.
    """
    provider = session.provider(account)
    if not isinstance(provider, ChecksPermissions):
        return
    name = f"permissions {account}"
    try:
        permissions = provider.permissions(region)
    except CloudgpuError as error:
        yield failed(name, error)
        return
    denied_permissions = [permission for permission in permissions if permission.allowed is False]
    for permission in denied_permissions:
        fault = denied_error(permission, provider.kind)
        if permission.needed:
            yield failed(name, fault)
        else:
            does_without = f"{fault.message} cloudgpu does without, and says so where it matters."
            yield Check(name, Verdict.NOTE, does_without, fault.next)
    if not denied_permissions:
        yield Check(name, Verdict.OK, _allowed_text(permissions))


def finding_checks(session: Session, account: str, region: str | None) -> Iterator[Check]:
    """Yield a check of each thing that the provider looks at in the account itself; nothing where it cannot.

    Changes nothing.
    """
    provider = session.provider(account)
    if not isinstance(provider, Examines):
        return
    try:
        findings = provider.findings(region)
    except CloudgpuError as error:
        yield failed(f"account {account}", error)
        return
    for finding in findings:
        verdict = (
            Verdict.OK if finding.good else Verdict.FAIL if finding.good is False and finding.needed else Verdict.WARN
        )
        code = InvalidRequest.exit_code if verdict is Verdict.FAIL else 0
        yield Check(f"{finding.what} {account}", verdict, finding.says, finding.next or None, code)


def quota_checks(session: Session, account: str, region: str | None) -> Iterator[Check]:
    """Yield a check of the limits on machines with GPUs in a region: a new account may launch none of most.

    Yields nothing without a region, nor for a provider that does not tell. Changes nothing.
    """
    provider = session.provider(account)
    if region is None or not isinstance(provider, HasQuota):
        return
    name = f"GPU limits {account}"
    try:
        quotas = [
            quota for quota in provider.quotas(region) if quota.limit is not None and quota.code not in _NOT_ONLY_GPU
        ]
    except CloudgpuError as error:
        yield failed(name, error)
        return
    usable = [quota for quota in quotas if quota.limit]
    if usable or not quotas:
        message = f"{len(usable)} of {len(quotas)} limits that are readable in {region} are above 0"
        yield Check(name, Verdict.OK, f"{message} (cloudgpu quota --account {account})")
    else:
        remedy = f"Ask for more: {provider.quota_page(region, quotas[0].code)}"
        yield Check(name, Verdict.WARN, f"every limit on GPUs in {region} is 0: none can be launched", remedy)


def denied_error(permission: Permission, kind: str) -> AuthFailed:
    """Return the fault of an action that is not allowed, with the document that has it."""
    return AuthFailed(
        f"{permission.action} is denied: it is needed to {permission.used_for}.",
        field="permission",
        value=permission.action,
        next=f"Attach {permissions_document(kind)} to the user or role (docs/permissions.md).",
    )


def has_document(kind: str) -> bool:
    """Say whether there is a document of permissions for this provider: a key may allow everything or nothing."""
    return any((data_dir("policies") / "permissions").glob(f"{kind}-launch.*"))


def permissions_document(kind: str) -> str:
    """Return the path of the document with every permission that launching takes at this provider."""
    directory = data_dir("policies") / "permissions"
    return str(next(directory.glob(f"{kind}-launch.*"), directory / f"{kind}-launch.json"))


def _allowed_text(permissions: Sequence[Permission]) -> str:
    allowed = sum(permission.allowed is True for permission in permissions)
    unknown = len([permission for permission in permissions if permission.allowed is None])
    unknown_clause = f"; {unknown} cannot be asked without a machine of cloudgpu's own (doctor --live asks them)"
    return f"{allowed} of {len(permissions)} actions are allowed, none is denied{unknown_clause if unknown else ''}"
