"""Makes one call to Azure, raises its error as one of `cloudgpu.errors`, and waits for long-running operations.

`call_or_none` returns None for a resource that does not exist. A wait goes by the account's clock, until the operation
has ended or a deadline has passed. The SDK follows the operation (Azure-AsyncOperation, Location, or the resource
itself: Azure's page "Track asynchronous Azure operations"). A failed operation raises the error of its own code.

A lock that forbids a deletion is set on a resource, its group or the subscription, and holds for all below
(Microsoft's page "Lock your Azure resources to protect your infrastructure"). Azure's error names the locked scopes;
their locks are read, and our error names them with the command that removes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from cloudgpu.errors import AuthFailed, CloudgpuError, EndRefused, ProviderUnavailable
from cloudgpu.providers.azure.client import POLL_S, Azure, Raw, get_values
from cloudgpu.providers.azure.error_codes import NOT_FOUND
from cloudgpu.providers.azure.errors import code_and_message, code_of, has_code
from cloudgpu.providers.shared.calls import WaitReports

NOT_FOUND_STATUS = 404
ABSENT_CODES = NOT_FOUND | frozenset(
    {"RoleAssignmentNotFound", "RoleDefinitionDoesNotExist", "ResourceGroupBeingDeleted"}
)
T = TypeVar("T")
_READ_LOCKS_ACTION, _LOCKS_VERSION = (
    "Microsoft.Authorization/locks/read",
    "2016-09-01",
)  # Management Locks - List By Scope
_LOCKED_SCOPE = re.compile(r"'(/subscriptions/[^']+)'")
_LOCKS_PATH = "/providers/microsoft.authorization/locks/"
_LIST_LOCKS = "az lock list --output table"


def invoke(azure: Azure, action: str, call: Callable[[], T], *, region: str = "", value: str | None = None) -> T:
    """Return what a call answers; `action` is the permission that it takes, `value` what the user named, for errors.

    Where a lock refuses a deletion, more calls find that lock: the error names it and the command that removes it.
    """
    try:
        with azure.calling(action, region, value=value):
            return call()
    except EndRefused as error:
        _name_locks(azure, error)
        raise


def read_list(azure: Azure, action: str, list_models: Callable[[], Iterable[Any]], *, region: str = "") -> list[Raw]:
    """Return what a list of the SDK has, as plain JSON. A call per page; `action` is the permission that it takes."""
    return invoke(azure, action, lambda: [one.as_dict() for one in list_models()], region=region)


def call_or_none(
    azure: Azure, action: str, call: Callable[[], T], *, region: str = "", value: str | None = None
) -> T | None:
    """Send a call, a read or a deletion, and return its answer; None where Azure answered that there is no such thing.

    Raises as `invoke` otherwise.
    """
    try:
        return invoke(azure, action, call, region=region, value=value)
    except CloudgpuError as error:
        if not is_absent(error):
            raise
        return None


def is_absent(error: CloudgpuError) -> bool:
    """Say whether Azure answered that the resource does not exist, or that its group is being deleted.

    A 404 of the subscription (`SubscriptionNotFound`: another login or tenant) says nothing about its resources, and
    one without a code of Azure's, a page of a proxy in between, says nothing at all.
    """
    if code_of(error) in ABSENT_CODES:
        return True
    is_404 = getattr(error.__cause__, "status_code", None) == NOT_FOUND_STATUS and has_code(error.__cause__)
    return is_404 and not isinstance(error, AuthFailed)


class OperationPending(ProviderUnavailable):
    """The deadline has passed and the operation still runs: its outcome is not known."""


class OperationUnknown(ProviderUnavailable):
    """Azure accepted the call, and a query of its progress was refused or not found: its outcome is not known."""


def complete(
    azure: Azure,
    action: str,
    begin: Callable[[Any], Any],
    *,
    deadline: datetime,
    region: str = "",
    value: str | None = None,
    field: str | None = None,
) -> Any:
    """Start a long-running operation, wait for its end and return its result.

    `begin` is a `begin_...` method of the SDK, called with its argument `polling`.

    Raises OperationPending at the deadline, OperationUnknown where a query of its progress fails, and other errors
    for a call that is refused or an operation that failed.
    """
    with azure.calling(action, region, value=value, field=field):
        return begin(_polling(azure, action, deadline)).result()


def _polling(azure: Azure, action: str, deadline: datetime) -> Any:
    from azure.core.exceptions import AzureError
    from azure.core.polling.base_polling import LocationPolling, OperationFailed
    from azure.mgmt.core.polling.arm_polling import ARMPolling

    wait_reports = WaitReports(azure.notify, azure.clock, f"Azure has not finished {action}", deadline)

    class PollingUntilDeadline(ARMPolling):  # type: ignore[misc, unused-ignore]
        def run(self) -> None:
            """Wait for the end. If only `Location` is polled, the status of a poll is the operation's own result."""
            try:
                super().run()
            except AzureError as error:
                if isinstance(error.__cause__, OperationFailed) or isinstance(self._operation, LocationPolling):
                    raise
                raise _unknown_outcome(action, error) from error

        def _sleep(self, delay: float) -> None:
            remaining_s = (deadline - azure.clock()).total_seconds()
            if remaining_s <= 0:
                message = f"Azure is still at work on {action} at the deadline."
                raise OperationPending(message, field="provider", next="Run the same again in a minute.")
            wait_reports.report_progress("it is at work on it")
            azure.pause(min(delay, remaining_s))

    return PollingUntilDeadline(timeout=POLL_S)


def _unknown_outcome(action: str, error: Exception) -> OperationUnknown:
    code, sentence = code_and_message(error)
    why = f"{sentence.rstrip('. ')} ({code})" if code else f"{type(error).__name__}"
    message = f"Azure took {action}, and then did not say how it ended: {why}."
    return OperationUnknown(message, field="provider", next="Run the same again in a minute.")


def _name_locks(azure: Azure, error: EndRefused) -> None:
    """Add to the error which locks forbid it and the command that removes them, or how to find them."""
    scopes = (
        _LOCKED_SCOPE.findall(code_and_message(error.__cause__)[1].partition("locked")[2]) if error.__cause__ else []
    )
    locks = [one for scope in scopes for one in _locks_at(azure, scope)]
    if not locks:
        error.next = f"Find the lock: {_LIST_LOCKS}; then run: az lock delete --ids ID"
        return
    locks_text = ", ".join(f"{one['name']} ({_level(one)}) on {_short_scope(str(one['id']))}" for one in locks)
    error.message += f" Locked by: {locks_text}."
    error.lifts = f"az lock delete --ids {' '.join(str(one['id']) for one in locks)}"
    error.next = f"Run: {error.lifts}"


def _locks_at(azure: Azure, scope: str) -> Iterator[Raw]:
    """Yield the locks that are set on a scope itself; none where they cannot be read."""
    with suppress(CloudgpuError):
        for one in get_values(
            azure, _READ_LOCKS_ACTION, f"{scope}/providers/Microsoft.Authorization/locks", _LOCKS_VERSION
        ):
            if str(one.get("id") or "").lower().startswith(f"{scope.lower()}{_LOCKS_PATH}"):
                yield one


def _level(lock: Raw) -> str:
    return str((lock.get("properties") or {}).get("level") or "a lock")


def _short_scope(lock_id: str) -> str:
    """Return the last two parts of the scope that a lock is set on: `resourceGroups/cloudgpu-1a2b`."""
    return "/".join(lock_id[: lock_id.lower().index(_LOCKS_PATH)].split("/")[-2:])


def properties_of(raw: Raw) -> Raw:
    """Return the `properties` of a resource; empty for none."""
    properties: Raw = raw.get("properties") or {}
    return properties


def provisioning_state(raw: Raw) -> str:
    """Return the provisioning state of a resource in small letters: `succeeded`, `creating`, `deleting`, ..."""
    return str(properties_of(raw).get("provisioningState") or "").lower()
