"""Asks Google what a credential may do, without doing it: one call tells of all permissions in the project.

`projects.testIamPermissions` of the Cloud Resource Manager API, v3. It takes up to 100 permissions, and refuses all of
a call in which it does not know one: such a call is halved until that one is alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cloudgpu.core.model.account import Permission
from cloudgpu.errors import AuthFailed, InvalidRequest
from cloudgpu.providers.calls import count
from cloudgpu.providers.gcp.actions import ACTIONS, Action
from cloudgpu.providers.gcp.client import KIND
from cloudgpu.providers.gcp.errors import is_gone
from cloudgpu.providers.gcp.places import check_region

if TYPE_CHECKING:
    from cloudgpu.providers.gcp.client import Gcp

MANAGER = "https://cloudresourcemanager.googleapis.com"
CALL = "cloudresourcemanager.projects.testIamPermissions"
MOST = 100
_BAD = 400
Verdicts = Mapping[str, bool | None]


def permissions(gcp: Gcp, region: str | None = None) -> Sequence[Permission]:
    """Return every permission that cloudgpu uses in the project, and whether this credential has it: some two calls.

    Permissions are a project's, whatever the region. None of them is known where the API that tells them is not
    enabled, or does not know the project. Raises AuthFailed for credentials that do not work at all.
    """
    if region is not None:
        check_region(gcp, region)
    try:
        verdicts, why = _verdicts(gcp, [one.name for one in ACTIONS]), "Google does not know this permission here"
    except (AuthFailed, InvalidRequest) as fault:
        if isinstance(fault, AuthFailed) and fault.field != "project":
            raise
        verdicts, why = {}, f"{fault.message} {fault.next or ''}".strip()
    return [_permission(one, verdicts.get(one.name), why) for one in ACTIONS]


def _permission(action: Action, allowed: bool | None, why: str) -> Permission:  # noqa: FBT001
    return Permission(action.name, allowed, action.used_for, "" if allowed is not None else why, needed=action.needed)


def _verdicts(gcp: Gcp, names: Sequence[str]) -> Verdicts:
    parts = [names[start : start + MOST] for start in range(0, len(names), MOST)]
    return dict(pair for part in parts for pair in _asked(gcp, part))


def _asked(gcp: Gcp, names: Sequence[str]) -> Iterator[tuple[str, bool | None]]:
    try:
        granted = _granted(gcp, names)
    except InvalidRequest as fault:
        if is_gone(fault):
            raise
        if len(names) == 1:
            yield names[0], None
            return
        middle = len(names) // 2
        for part in (names[:middle], names[middle:]):
            yield from _asked(gcp, part)
        return
    yield from ((name, name in granted) for name in names)


def _granted(gcp: Gcp, names: Sequence[str]) -> frozenset[str]:
    """Return which of these permissions the credential has. One call, sent once."""
    url = f"{gcp.endpoint or MANAGER}/v3/projects/{gcp.project}:testIamPermissions"
    credentials = gcp.signing()
    with gcp.said(CALL, value=gcp.project):
        from google.api_core.exceptions import from_http_response
        from google.auth.transport.requests import AuthorizedSession

        count(KIND, CALL)
        with AuthorizedSession(credentials) as session:  # type: ignore[no-untyped-call]
            answer = session.post(url, json={"permissions": list(names)}, timeout=gcp.patience.reads)
            if answer.status_code >= _BAD:
                raise from_http_response(answer)  # type: ignore[no-untyped-call]
            found: dict[str, Any] = answer.json()
    return frozenset(found.get("permissions", ()))
