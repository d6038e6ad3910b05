"""Says which permissions a credential lacks, by name, and which document has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cloudgpu.config.data import data_dir
from cloudgpu.control.check import Check, Verdict, failed
from cloudgpu.control.session import Session
from cloudgpu.core.facts import Permission
from cloudgpu.errors import AuthFailed, CloudgpuError
from cloudgpu.providers.base import ChecksPermissions


def permission_checks(session: Session, account: str, region: str | None) -> Iterator[Check]:
    """Yield a check of what this account's credential may do: one in all where nothing is missing.

    Yields nothing for a provider that cannot be asked. Changes nothing.
    """
    provider = session.provider(account)
    if not isinstance(provider, ChecksPermissions):
        return
    name = f"permissions {account}"
    try:
        found = provider.permissions(region)
    except CloudgpuError as fault:
        yield failed(name, fault)
        return
    denied = [one for one in found if one.allowed is False]
    way_out = (
        f"Attach {document(session.settings.accounts[account].provider)} to the user or role (docs/permissions.md)."
    )
    for one in denied:
        lost = "" if one.needed else "; cloudgpu does without, and says so where it matters"
        verdict = Verdict.FAIL if one.needed else Verdict.WARN
        yield Check(
            name,
            verdict,
            f"{one.action} is denied: it is needed to {one.used_for}{lost}",
            way_out,
            AuthFailed.exit_code if one.needed else 0,
        )
    if not denied:
        yield Check(name, Verdict.OK, _said(found))


def document(kind: str) -> str:
    """Return the path of the document with every permission that launching takes at this provider."""
    return str(data_dir("policies") / "permissions" / f"{kind}-launch.json")


def _said(found: Sequence[Permission]) -> str:
    allowed = sum(one.allowed is True for one in found)
    unknown = [one.action for one in found if one.allowed is None]
    rest = f"; not known without a machine: {', '.join(unknown)}" if unknown else ""
    return f"{allowed} of {len(found)} actions are allowed, none is denied{rest}"
