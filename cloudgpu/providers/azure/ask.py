"""One call to Azure: its error in our words, and what is not there told from all other errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from cloudgpu.errors import AuthFailed, CloudgpuError, EndRefused
from cloudgpu.providers.azure import locks
from cloudgpu.providers.azure.codes import NOT_FOUND
from cloudgpu.providers.azure.errors import code_of

if TYPE_CHECKING:
    from cloudgpu.providers.azure.client import Azure

ABSENT = 404
GONE = NOT_FOUND | frozenset({"RoleAssignmentNotFound", "RoleDefinitionDoesNotExist", "ResourceGroupBeingDeleted"})
Answer = TypeVar("Answer")


def ask(azure: Azure, action: str, call: Callable[[], Answer], *, region: str = "", value: str | None = None) -> Answer:
    """Return what a call answers; `action` is the permission that it takes. Raises our errors.

    A lock that keeps something from its end is looked up, and named with the command that lifts it: calls more.
    """
    try:
        with azure.said(action, region, value=value):
            return call()
    except EndRefused as fault:
        locks.name_them(azure, fault)
        raise


def look(
    azure: Azure, action: str, call: Callable[[], Answer], *, region: str = "", value: str | None = None
) -> Answer | None:
    """Return what a call answers; None where Azure answered that it has no such thing. Raises our other errors."""
    try:
        return ask(azure, action, call, region=region, value=value)
    except CloudgpuError as fault:
        if not is_absent(fault):
            raise
        return None


def is_absent(fault: CloudgpuError) -> bool:
    """Say whether Azure answered that it has no such thing, or that its group is going already.

    A 404 of the subscription (`SubscriptionNotFound`: another login, another tenant) says nothing of what is in it.
    """
    if code_of(fault) in GONE:
        return True
    return getattr(fault.__cause__, "status_code", None) == ABSENT and not isinstance(fault, AuthFailed)
