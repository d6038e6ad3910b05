"""Maps Lambda's errors to the classes of `cloudgpu.errors`: the code decides, not the wording.

Source: Lambda's published description of API v1 (1.10), whose `error.code` is one of these; it says that texts change.
"""

from __future__ import annotations

from typing import Any

from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    InstanceNotFound,
    ProviderUnavailable,
    QuotaExceeded,
)
from cloudgpu.providers.rest.client import Answer
from cloudgpu.providers.shared.errors import RETRY_LATER, UNKNOWN, ErrorMapping, error_mappings, refusal_error, shorten

NOT_FOUND = "global/object-does-not-exist"
_NEW_KEY_REMEDY = "Make another key at cloud.lambda.ai/api-keys, and put it into LAMBDA_API_KEY."
ERROR_MAPPINGS = error_mappings(
    ("global/invalid-api-key", ErrorMapping(AuthFailed, "credential", _NEW_KEY_REMEDY)),
    (
        "global/account-inactive",
        ErrorMapping(AuthFailed, "credential", "Look at cloud.lambda.ai: the account lacks a payment, or was closed."),
    ),
    (
        "global/invalid-address",
        ErrorMapping(AuthFailed, "credential", "Enter a billing address at cloud.lambda.ai/settings/billing."),
    ),
    (
        "global/quota-exceeded",
        ErrorMapping(QuotaExceeded, "quota", "Ask Lambda's support for more, or end a machine: no page raises it."),
    ),
    (NOT_FOUND, ErrorMapping(InstanceNotFound, "id")),
    no_capacity="instance-operations/launch/insufficient-capacity",
    throttled="global/too-many-requests",
    down="global/internal-error provider/internal-unavailable",
    invalid={
        "request": "global/invalid-parameters",
        "volume": "instance-operations/launch/file-system-in-wrong-region",
        "network": "firewall-rulesets/firewall-ruleset-in-use",
    },
    remedies={"request": "Report it: cloudgpu sent what Lambda does not take."},
)
_MAPPING_BY_STATUS = {
    401: ErrorMapping(AuthFailed, "credential", _NEW_KEY_REMEDY)
}  # without a code: other pages may be a proxy's
_SERVER_ERROR = 500  # the first HTTP status of a server's error


def code_of(data: Any) -> str:
    """Return the `error.code` of an answer; empty where it has none."""
    error = data.get("error") if isinstance(data, dict) else None
    return str(error.get("code") or "") if isinstance(error, dict) else ""


def error_of_answer(answer: Answer) -> CloudgpuError:
    """Return the error for an answer of 400 or more.

    An answer without a code, or with one that is not mapped, does not prove that a machine is gone or was not made.
    """
    code = code_of(answer.data)
    text = answer.data["error"].get("message") if code else None
    sentence = f"Lambda Cloud says: {shorten(str(text or code or f'status {answer.status}'))}."
    if answer.status >= _SERVER_ERROR or code.startswith("provider/"):
        return refusal_error(RETRY_LATER, sentence, value=code or None, region="")
    mapping = ERROR_MAPPINGS.get(code) or (UNKNOWN if code else _MAPPING_BY_STATUS.get(answer.status, UNKNOWN))
    return refusal_error(mapping, sentence, value=code or None, region="", headers=answer.headers)


def unreadable_error(what: str) -> ProviderUnavailable:
    """Return the error for an answer that does not match Lambda's description of its API; `what` was requested."""
    message = f"Lambda Cloud answered {what} with something that cannot be read."
    return ProviderUnavailable(message, field="provider", value="lambda", next="Try again in a minute.")
