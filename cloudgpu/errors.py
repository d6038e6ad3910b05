"""Errors: one class per reaction of the caller, each with its exit code.

CloudgpuError                    1   a defect in cloudgpu: report it
|-- InvalidRequest               2   nothing was done: change what `field` names, as `next` says
|   |-- MissingExtra             2   install the named extra
|   `-- LedgerMoved              2   use the ledger at its new place
|-- BudgetRefused                3   request less, raise the budget, or override it with a reason
|-- NoCapacity                   4   try another GPU, region or market, or try again later
|-- QuotaExceeded                5   request a higher quota, as `next` says, or use less
|-- AuthFailed                   6   renew the credential, or have the permission granted
|   `-- RoleNeeded               6   the team allows this to another role only: ask somebody who has it
|-- InstanceNotFound             7   it does not exist: nothing to do there
|-- ProviderUnavailable          8   the state is unknown: try again later
|   |-- RateLimited              8   wait `retry_after` seconds
|   |-- AnswerTimeout            8   no answer in time: handle the others, and try again later
|   |-- NotReachableHere         8   its account is not configured here: use a home (CLOUDGPU_HOME) that has it
|   |-- LockBusy                 8   another command is at work on it: wait until it has ended, and try again
|   |-- LaunchUncertain          8   make the same call again: it first resolves this attempt
|   `-- LedgerUnavailable        8   restore access to the ledger, as `next` says, or try again later
|       `-- LedgerDenied         6   the database refuses this user: have the role granted that `next` names
|-- StopUnproved                 9   the machine may still be billed: make the same call again
|   `-- EndRefused               9   the cloud protects it: remove the protection, then try again
`-- Unreachable                 10   the machine does not answer as it should: look at it
    |-- WrongHostKey            10   never retried: another machine may answer at its address
    `-- Frozen                  10   connected, but silent: wait, or end the machine

An SDK error that nobody mapped is `ProviderUnavailable`, never "not found".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping


class ErrorRecord(TypedDict):
    """What an error says, as `-o json` prints it: the attributes of `CloudgpuError`."""

    kind: str
    field: str | None
    value: str | None
    message: str
    next: str | None


class CloudgpuError(Exception):
    """An error with a sentence for a person and the field, value and remedy for a program.

    `message` is one whole sentence. `field` names what was wrong (an option, a key of a file),
    `value` is what it held, `next` says what to do. Never put a secret in any of them.

    `retryable` says that the very same call may be made again: it does nothing twice, and may succeed by itself.
    """

    exit_code = 1
    kind = "internal"
    retryable = False

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        value: str | None = None,
        next: str | None = None,  # noqa: A002  (the word of the JSON contract)
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.value = value
        self.next = next

    def as_dict(self) -> ErrorRecord:
        """Return the body of `{"error": ...}` as the CLI prints it with `-o json`."""
        return {
            "kind": self.kind,
            "field": self.field,
            "value": self.value,
            "message": self.message,
            "next": self.next,
        }


def internal_error(what: Exception | str, *, field: str | None = None, value: str | None = None) -> CloudgpuError:
    """Return the error for a defect of cloudgpu or of a plug-in: an exception that nobody expected, or a clause."""
    text = what if isinstance(what, str) else f"{type(what).__name__}: {what}"
    return CloudgpuError(f"Internal error: {text.rstrip('.')}. Please report it.", field=field, value=value)


class InvalidRequest(CloudgpuError):
    """The request is not valid: the field is named, and nothing was launched or lost."""

    exit_code = 2
    kind = "invalid_request"


class MissingExtra(InvalidRequest):
    """A provider's SDK is not installed; `next` is the command that installs it."""

    kind = "missing_extra"


class LedgerMoved(InvalidRequest):
    """The ledger has moved to another place, or has not arrived at this one yet: here it is read-only."""

    kind = "ledger_moved"


class BudgetRefused(CloudgpuError):
    """A budget does not allow this launch, start or extension.

    `value` is the budget's name. `sums` are decimal text in USD: `limit`, `spent`, `running` (machines that run
    already, to their renew-until), `wanted` (this request), `total`; and, if a smaller request would be allowed, its
    `usd_per_hour`, and `renew_until` as a time. Empty if the reason is a missing price.
    """

    exit_code = 3
    kind = "budget_refused"

    def __init__(self, message: str, *, sums: Mapping[str, str] | None = None, **details: str | None) -> None:
        super().__init__(message, **details)
        self.sums = dict(sums or {})


class NoCapacity(CloudgpuError):
    """The provider has no such machine in this zone and market now."""

    exit_code = 4
    kind = "no_capacity"
    retryable = True


class QuotaExceeded(CloudgpuError):
    """The account's quota does not allow it; `next` says how to raise it."""

    exit_code = 5
    kind = "quota_exceeded"


class AuthFailed(CloudgpuError):
    """A credential is missing, expired or not permitted to do this."""

    exit_code = 6
    kind = "auth_failed"


class RoleNeeded(AuthFailed):
    """The ledger's team allows this only to a role that the caller does not have."""

    kind = "role_needed"


class InstanceNotFound(CloudgpuError):
    """The provider answered that it has no such instance, or no machine has this name."""

    exit_code = 7
    kind = "not_found"


class ProviderUnavailable(CloudgpuError):
    """The provider did not answer, or gave an unknown answer: nothing is known."""

    exit_code = 8
    kind = "provider_unavailable"
    retryable = True


class RateLimited(ProviderUnavailable):
    """The provider refuses more calls for `retry_after` seconds (None: it did not say how long)."""

    kind = "rate_limited"

    def __init__(self, message: str, *, retry_after: float | None = None, **details: str | None) -> None:
        super().__init__(message, **details)
        self.retry_after = retry_after


class AnswerTimeout(ProviderUnavailable):
    """The provider did not answer in the time limit of a call, over all its attempts."""

    kind = "silent"


class NotReachableHere(ProviderUnavailable):
    """The machine belongs to an account that this computer does not have: nothing can be learned or done here."""

    kind = "not_reachable_here"
    retryable = False


class LockBusy(ProviderUnavailable):
    """Another cloudgpu command is doing the same, or something at the same machine: nothing was done here."""

    kind = "busy"


class LaunchUncertain(ProviderUnavailable):
    """The launch may or may not have happened: find out before you launch again."""

    kind = "launch_uncertain"


class LedgerUnavailable(ProviderUnavailable):
    """The ledger cannot be read or written, or a part of its past is missing."""

    kind = "ledger_unavailable"


class LedgerDenied(LedgerUnavailable):
    """The ledger's database refuses this user; `next` says who can help, and with which statement."""

    exit_code = 6
    kind = "ledger_denied"
    retryable = False


class StopUnproved(CloudgpuError):
    """A stop, termination or removal could not be verified: the machine, image or volume may still be billed."""

    exit_code = 9
    kind = "stop_unproved"
    retryable = True


class EndRefused(StopUnproved):
    """A protection or lock prevents the stop or termination of the machine, or of a part of it.

    `lifts` is the command that removes the protection, which `next` says, too; empty if there is none.
    """

    kind = "end_refused"
    retryable = False

    def __init__(self, message: str, *, lifts: str = "", **details: str | None) -> None:
        super().__init__(message, **details)
        self.lifts = lifts
        if lifts and self.next is None:
            self.next = f"Run: {lifts}"


class Unreachable(CloudgpuError):
    """The machine cannot be reached over SSH, or what runs on it does not answer."""

    exit_code = 10
    kind = "unreachable"


class WrongHostKey(Unreachable):
    """The machine showed another host key than the one pinned at launch. Never retried."""

    kind = "wrong_host_key"


class Frozen(Unreachable):
    """The connection is open, but the other side has stopped answering."""

    kind = "frozen"
