"""Maps what Azure's SDKs raise to the error tree: the code decides the class, not the status.

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
from cloudgpu.providers.azure.credentials import who
from cloudgpu.providers.azure.error_codes import (
    CREDENTIAL,
    DENIED,
    ENVELOPES,
    MEANINGS,
    NOT_ALLOWED,
    NOT_FOUND,
)
from cloudgpu.providers.shared.calls import is_skewed, wrong_clock
from cloudgpu.providers.shared.errors import UNKNOWN, Meaning, denied_error, refusal_error, shorten, unanswered_error

UNAUTHENTICATED, FORBIDDEN, THROTTLED = 401, 403, 429
_BY_STATUS = {
    UNAUTHENTICATED: Meaning(AuthFailed, "credentials"),
    FORBIDDEN: Meaning(AuthFailed, "credentials"),
    THROTTLED: MEANINGS["TooManyRequests"],
}
# OperationNotAllowed says many things. That of a quota is known by its words alone: "Operation could not be completed
# as it results in exceeding approved standardNCSv3Family Cores quota" (Resolve errors for resource quotas).
_OF_QUOTA = re.compile(r"exceeding approved|quota", re.IGNORECASE)
_OF_RATE = re.compile(r"too many requests|throttl", re.IGNORECASE)
_ACTION = re.compile(r"perform action '([A-Za-z0-9./]+)'")
_ENTRA = re.compile(r"AADSTS\d+")
NOT_NOW = "AADSTS700024"  # "Client assertion is not within its valid time range" (Entra's list of error codes)
# Of a login that another program made (az login): Entra was busy or down, which says nothing of the credentials
# (Microsoft's page "Microsoft Entra authentication and authorization error codes").
_PASSING = frozenset("AADSTS90006 AADSTS90012 AADSTS90033 AADSTS90055".split())
LOCK = "lock"  # the field of what a lock of Azure's forbids
_ENDS = ("/delete", "/deallocate/action")
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class CallContext:
    """What was asked, of whom, and as whom. `action` is the permission, or the operation's name; `region` may be empty.

    `value` is what the user named. `field` is the option that named it, where that is no machine.
    """

    action: str
    region: str
    account: str
    now: datetime
    value: str | None = None
    field: str | None = None

    @property
    def where(self) -> str:
        """The place, for a sentence."""
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
    if isinstance(error, ClientAuthenticationError) and not _code(error)[0]:
        return _no_credentials(error, call)
    if isinstance(error, HttpResponseError):
        return _refused(error, call)
    if isinstance(error, AzureError):
        return unanswered_error(f"{call.where} did not answer {call.action}: {shorten(str(error))}", call.value)
    return None


def code_of(error: CloudgpuError) -> str:
    """Return the code of Azure's that an error of ours stands for; empty where there was none."""
    cause = error.__cause__
    return "" if cause is None else code_and_message(cause)[0]


def code_and_message(error: BaseException) -> tuple[str, str]:
    """Return the code and the sentence that Azure gave: those inside, where the code outside says nothing."""
    code, sentence, details = _code(error)
    if code in ENVELOPES or code not in MEANINGS:
        for inner in details:
            if inner.get("code") in MEANINGS and inner["code"] not in ENVELOPES:
                return str(inner["code"]), str(inner.get("message") or sentence)
    return code, sentence


def _code(error: BaseException) -> tuple[str, str, list[Mapping[str, Any]]]:
    """Return the code, the sentence and what is inside of an answer, empty where it bears none."""
    body = _body(getattr(error, "response", None))
    found = body.get("error", body)
    if not isinstance(found, Mapping):  # Entra answers {"error": "invalid_client"}
        return "", str(getattr(error, "message", "") or error), []
    code = str(found.get("code") or "")
    sentence = str(found.get("message") or getattr(error, "message", "") or error)
    return (code if _CODE.fullmatch(code) else ""), sentence, list(_inside(found))


def _body(response: Any) -> Mapping[str, Any]:
    """Return the JSON of an answer, empty for one that has none."""
    try:
        found = json.loads(response.text())
    except (AttributeError, TypeError, ValueError, RuntimeError):  # the SDK's classes of answers raise any of these
        return {}
    return found if isinstance(found, Mapping) else {}


def _inside(raw: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Yield the errors inside an error, the innermost first: that is the root (Microsoft's page on error messages)."""
    details = raw.get("details")
    inner = raw.get("innererror") or raw.get("innerError")
    for one in [*(details if isinstance(details, list) else []), inner]:
        if isinstance(one, Mapping):
            yield from _inside(one)
            yield one


def _refused(error: Any, call: CallContext) -> CloudgpuError:
    """Return the error for an answer with an error in it."""
    code, sentence = code_and_message(error)
    status = getattr(error, "status_code", None) or 0
    meaning = _meaning(code, sentence, status)
    if meaning.kind is AuthFailed and (code in CREDENTIAL or status == UNAUTHENTICATED):
        headers = getattr(error.response, "headers", None) or {}
        if is_skewed(headers, call.now):
            return wrong_clock("Azure", call.region, headers, call.now)
        return _bad_credentials(code, call)
    if meaning.kind is AuthFailed and (code in DENIED or code not in MEANINGS):
        named, where = _ACTION.search(sentence), f" in {call.region}" if call.region else ""
        whose = f"The Azure credentials of account {call.account} ({who()})"
        return denied_error(whose, named[1] if named else call.action, where, grant="a role that allows")
    if not code and meaning is UNKNOWN:
        return unanswered_error(f"{call.where} answered {call.action} with the status {status} and no code", call.value)
    if meaning.kind is NoCapacity:  # one line per attempt: what Azure goes on to advise is what the launch does next
        sentence = sentence.partition(". ")[0]
    if code in NOT_FOUND and call.field:
        meaning = Meaning(InvalidRequest, call.field, meaning.remedy)
    if meaning.field == LOCK and call.action.endswith(_ENDS):
        meaning = Meaning(EndRefused, LOCK, meaning.remedy)
    full = f"{call.where} refused {call.action}: {shorten(sentence)} ({code or status})."
    headers = getattr(error.response, "headers", None) or {}
    return refusal_error(meaning, full, value=call.value, region=call.region, headers=headers)


def _meaning(code: str, sentence: str, status: int) -> Meaning:
    if code == NOT_ALLOWED and _OF_QUOTA.search(sentence):
        return MEANINGS["QuotaExceeded"]
    if code == NOT_ALLOWED and (status == THROTTLED or _OF_RATE.search(sentence)):
        return _BY_STATUS[THROTTLED]
    return MEANINGS.get(code) or _BY_STATUS.get(status, UNKNOWN)


def _bad_credentials(code: str, call: CallContext) -> AuthFailed:
    says = {
        "ExpiredAuthenticationToken": "have expired",
        "InvalidAuthenticationTokenTenant": "are of another tenant than the subscription",
    }.get(code, "are not accepted by Azure")
    sentence = f"The Azure credentials of account {call.account} ({who()}) {says} ({code or UNAUTHENTICATED})."
    remedy = "Run: az login (with --tenant, where there are several), or renew the client secret of the environment."
    return AuthFailed(sentence, field="credentials", value=who(), next=remedy)


def _no_credentials(error: Exception, call: CallContext) -> CloudgpuError:
    """Return the error for a token that nobody gave: Entra's code says why, where it was asked and answered."""
    from azure.core.exceptions import ServiceRequestError, ServiceResponseError

    entra = _ENTRA.search(str(error))
    if not entra and isinstance(error.__cause__, (ServiceRequestError, ServiceResponseError)):
        why = f"Entra ID did not answer the login of account {call.account}: {shorten(str(error.__cause__))}."
        return ProviderUnavailable(why, field="provider", value=call.value)
    if entra and entra[0] in _PASSING:
        why = f"Entra ID is busy, and did not take the login of account {call.account} ({entra[0]})."
        return ProviderUnavailable(why, field="provider", value=call.value, next="Run it again in a while.")
    if entra and entra[0] == NOT_NOW:
        return wrong_clock("Entra ID", "", {}, call.now)
    if entra:
        says = f"The Azure credentials of account {call.account} ({who()}) are not accepted by Entra ID ({entra[0]})."
        remedy = "Run: az login; or correct AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET."
    else:
        says = f"There are no Azure credentials for account {call.account} ({who()})."
        remedy = "Run: az login (or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET)."
    return AuthFailed(says, field="credentials", value=who(), next=remedy)
