"""Maps what Azure's SDKs raise to the classes of `cloudgpu.errors`: the code decides the class, not the status.

The SDK's own classes say less than the code: a quota and a size that is not offered are 409, so ResourceExistsError,
and an operation that failed is an HttpResponseError with status 200.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    EndRefused,
    InvalidRequest,
    NoCapacity,
    ProviderUnavailable,
)
from cloudgpu.providers.azure.credentials import credentials_label
from cloudgpu.providers.azure.error_codes import (
    CREDENTIAL,
    DENIED,
    ERROR_MAPPINGS,
    NOT_ALLOWED,
    NOT_FOUND,
    WRAPPER_CODES,
)
from cloudgpu.providers.shared.calls import is_skewed, wrong_clock
from cloudgpu.providers.shared.errors import (
    UNKNOWN,
    ErrorMapping,
    denied_error,
    refusal_error,
    shorten,
    unanswered_error,
)

UNAUTHENTICATED, FORBIDDEN, THROTTLED = 401, 403, 429
_MEANING_BY_STATUS = {
    UNAUTHENTICATED: ErrorMapping(AuthFailed, "credentials"),
    FORBIDDEN: ErrorMapping(AuthFailed, "credentials"),
    THROTTLED: ERROR_MAPPINGS["TooManyRequests"],
}
# OperationNotAllowed has several meanings. A quota is known by its message alone: "Operation could not be completed
# as it results in exceeding approved standardNCSv3Family Cores quota" (Resolve errors for resource quotas).
_QUOTA_TEXT = re.compile(r"exceeding approved|quota", re.IGNORECASE)
_THROTTLING_TEXT = re.compile(r"too many requests|throttl", re.IGNORECASE)
_DENIED_ACTION = re.compile(r"perform action '([A-Za-z0-9./]+)'")
_ENTRA_CODE = re.compile(r"AADSTS\d+")
ASSERTION_NOT_VALID_NOW = (
    "AADSTS700024"  # "Client assertion is not within its valid time range" (Entra's list of error codes)
)
# Codes for Entra ID busy or down, at a login by another program (az login): they say nothing of the credentials
# (Microsoft's page "Microsoft Entra authentication and authorization error codes").
_TRANSIENT_CODES = frozenset("AADSTS90006 AADSTS90012 AADSTS90033 AADSTS90055".split())
LOCK_FIELD = "lock"  # the field of an error for what a lock on Azure forbids
_END_ACTIONS = ("/delete", "/deallocate/action")
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class CallContext:
    """A call to Azure, as its errors describe it. `action` is the permission, or the operation; `region` may be empty.

    `value` is what the user named. `field` is the option that named it, unless it is a machine.
    """

    action: str
    region: str
    account: str
    now: datetime
    value: str | None = None
    field: str | None = None

    @property
    def where(self) -> str:
        """Azure, with the region if there is one, for a sentence."""
        return f"Azure {self.region}".strip()


def translated(error: Exception, call: CallContext) -> CloudgpuError | None:
    """Return our error for what the SDK raised; None for what is a defect of ours.

    A code that nobody mapped is ProviderUnavailable: nothing is known.
    """
    from azure.core.exceptions import (
        AzureError,
        ClientAuthenticationError,
        DecodeError,
        DeserializationError,
        HttpResponseError,
        SerializationError,
    )

    if isinstance(error, SerializationError):
        return None
    if isinstance(error, (DecodeError, DeserializationError)):  # a proxy's page, say; it is not shown
        return unanswered_error(
            f"{call.where} answered {call.action} with something that is not an answer of Azure's", call.value
        )
    if isinstance(error, ClientAuthenticationError) and not _parse_error(error)[0]:
        return _no_credentials_error(error, call)
    if isinstance(error, HttpResponseError):
        return _refusal_error(error, call)
    if isinstance(error, AzureError):
        return unanswered_error(f"{call.where} did not answer {call.action}: {shorten(str(error))}", call.value)
    return None


def code_of(error: CloudgpuError) -> str:
    """Return Azure's code behind an error of ours; empty where there was none."""
    cause = error.__cause__
    return "" if cause is None else code_and_message(cause)[0]


def has_code(error: BaseException | None) -> bool:
    """Say whether an answer has a code as all of Azure do, be it a number (`404`, Consumption); no proxy's page has."""
    body = _answer_json(getattr(error, "response", None))
    found = body.get("error", body)
    return isinstance(found, Mapping) and bool(found.get("code"))


def code_and_message(error: BaseException) -> tuple[str, str]:
    """Return Azure's code and message: those of an inner error, where the outer code has no meaning of its own."""
    code, message, details = _parse_error(error)
    if code in WRAPPER_CODES or code not in ERROR_MAPPINGS:
        for inner in details:
            if inner.get("code") in ERROR_MAPPINGS and inner["code"] not in WRAPPER_CODES:
                return str(inner["code"]), str(inner.get("message") or message)
    return code, message


def _parse_error(error: BaseException) -> tuple[str, str, list[Mapping[str, Any]]]:
    """Return the code, the message and the inner errors of an answer, empty where it has none."""
    body = _answer_json(getattr(error, "response", None))
    found = body.get("error", body)
    if not isinstance(found, Mapping):  # Entra answers {"error": "invalid_client"}
        return "", str(getattr(error, "message", "") or error), []
    code = str(found.get("code") or "")
    message = str(found.get("message") or getattr(error, "message", "") or error)
    return (code if _CODE.fullmatch(code) else ""), message, list(_inner_errors(found))


def _answer_json(response: Any) -> Mapping[str, Any]:
    """Return the JSON of an answer, empty for one that has none."""
    try:
        found = json.loads(response.text())
    except (AttributeError, TypeError, ValueError, RuntimeError):  # the SDK's classes of answers raise any of these
        return {}
    return found if isinstance(found, Mapping) else {}


def _inner_errors(raw: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Yield the errors inside an error, the innermost first: that is the root (Microsoft's page on error messages)."""
    details = raw.get("details")
    inner = raw.get("innererror") or raw.get("innerError")
    for one in [*(details if isinstance(details, list) else []), inner]:
        if isinstance(one, Mapping):
            yield from _inner_errors(one)
            yield one


def _refusal_error(error: Any, call: CallContext) -> CloudgpuError:
    """Return the error for an answer with an error in it."""
    code, message = code_and_message(error)
    status = getattr(error, "status_code", None) or 0
    meaning, headers = _meaning(code, message, status), getattr(error.response, "headers", None) or {}
    if meaning.kind is AuthFailed and (code in CREDENTIAL or status == UNAUTHENTICATED):
        if is_skewed(headers, call.now):
            return wrong_clock("Azure", call.region, headers, call.now)
        return _bad_credentials_error(code, call)
    if meaning.kind is AuthFailed and (code in DENIED or code not in ERROR_MAPPINGS):
        denied_action, region_text = _DENIED_ACTION.search(message), f" in {call.region}" if call.region else ""
        credentials = f"The Azure credentials of account {call.account} ({credentials_label()})"
        return denied_error(
            credentials, denied_action[1] if denied_action else call.action, region_text, grant="a role that allows"
        )
    if not code and meaning is UNKNOWN:
        return unanswered_error(f"{call.where} answered {call.action} with the status {status} and no code", call.value)
    if meaning.kind is NoCapacity:  # one sentence: Azure goes on to advise what the launch tries next anyway
        message = message.partition(". ")[0]
    if code in NOT_FOUND and call.field:
        meaning = ErrorMapping(InvalidRequest, call.field, meaning.remedy)
    if meaning.field == LOCK_FIELD and call.action.endswith(_END_ACTIONS):
        meaning = ErrorMapping(EndRefused, LOCK_FIELD, meaning.remedy)
    message = f"{call.where} refused {call.action}: {shorten(message)} ({code or status})."
    return refusal_error(meaning, message, value=call.value, region=call.region, headers=headers)


def _meaning(code: str, message: str, status: int) -> ErrorMapping:
    if code == NOT_ALLOWED and _QUOTA_TEXT.search(message):
        return ERROR_MAPPINGS["QuotaExceeded"]
    if code == NOT_ALLOWED and (status == THROTTLED or _THROTTLING_TEXT.search(message)):
        return _MEANING_BY_STATUS[THROTTLED]
    return ERROR_MAPPINGS.get(code) or _MEANING_BY_STATUS.get(status, UNKNOWN)


def _bad_credentials_error(code: str, call: CallContext) -> AuthFailed:
    problem = {
        "ExpiredAuthenticationToken": "have expired",
        "InvalidAuthenticationTokenTenant": "are of another tenant than the subscription",
    }.get(code, "are not accepted by Azure")
    credentials_text = f"The Azure credentials of account {call.account} ({credentials_label()})"
    message = f"{credentials_text} {problem} ({code or UNAUTHENTICATED})."
    remedy = "Run: az login (with --tenant, where there are several), or renew the client secret of the environment."
    return AuthFailed(message, field="credentials", value=credentials_label(), next=remedy)


def _no_credentials_error(error: Exception, call: CallContext) -> CloudgpuError:
    """Return the error where no token was issued: by Entra ID's code, if it answered."""
    from azure.core.exceptions import ServiceRequestError, ServiceResponseError

    entra_code = _ENTRA_CODE.search(str(error))
    if not entra_code and isinstance(error.__cause__, (ServiceRequestError, ServiceResponseError)):
        why = f"Entra ID did not answer the login of account {call.account}: {shorten(str(error.__cause__))}."
        return ProviderUnavailable(why, field="provider", value=call.value)
    if entra_code and entra_code[0] in _TRANSIENT_CODES:
        why = f"Entra ID is busy, and did not take the login of account {call.account} ({entra_code[0]})."
        return ProviderUnavailable(why, field="provider", value=call.value, next="Run it again in a while.")
    if entra_code and entra_code[0] == ASSERTION_NOT_VALID_NOW:
        return wrong_clock("Entra ID", "", {}, call.now)
    if entra_code:
        problem = (
            f"The Azure credentials of account {call.account} ({credentials_label()}) are not accepted by Entra ID "
            f"({entra_code[0]})."
        )
        remedy = "Run: az login; or correct AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET."
    else:
        problem = f"There are no Azure credentials for account {call.account} ({credentials_label()})."
        remedy = "Run: az login (or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET)."
    return AuthFailed(problem, field="credentials", value=credentials_label(), next=remedy)
