"""Maps exceptions of Google's client, and errors of operations, to `cloudgpu.errors`: codes decide, not wording."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloudgpu.errors import (
    AnswerTimeout,
    AuthFailed,
    CloudgpuError,
    EndRefused,
    InstanceNotFound,
    InvalidRequest,
)
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.error_codes import (
    BILLING,
    CODE_BY_STATUS,
    CREDENTIAL,
    DENIED,
    DISABLED,
    ERROR_MAPPINGS,
    NO_MACHINE,
    NOT_FOUND,
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

DELETE_ACTION = "compute.instances.delete"
UNAUTHENTICATED_STATUS, NOT_FOUND_STATUS, TOO_MANY_REQUESTS = 401, 404, 429
_FIRST_ERROR_STATUS = 400  # HTTP
_CALL_PREFIX = re.compile(
    r"^(?:GET|POST|PUT|PATCH|DELETE) https?://\S+: "
)  # what Google's client puts before the message
_QUOTED_PERMISSION = re.compile(r"'([a-z]+\.[A-Za-z]+\.[A-Za-z]+)'")
# Google's words: a token has to be "short-lived ... and in a reasonable timeframe", with a check of its `iat`.
_CLOCK_IS_WRONG = re.compile(r"Invalid JWT: .*\b(iat|reasonable timeframe)\b")
# Google's words for a machine that is not to be deleted, with the reason invalidResourceUsage, as reported in
# terraform-provider-google #1211.
_PROTECTED = re.compile(r"protected against deletion")
_QUOTED_NAME = re.compile(r"'([^']+)'")
# The service that renews a token failed: an impersonation error repeats its answer, one of the metadata server has its
# status, a gateway sends a page. google.auth marks none of these as retryable.
_DOWN = re.compile(r"""["']code["']: ?(?:429|5\d\d)\b|Status: ?(?:429|5\d\d)\b|^\W*<(?:!doctype|html)""", re.IGNORECASE)
_STATUS_4XX = re.compile(r"Status: ?4(?!29)\d\d\b")
_MAX_CAUSES = 8  # of an exception, to follow
# Exceptions before or instead of an answer, by the name of their class: google.auth, requests, json, protobuf.
CREDENTIAL_ERRORS = frozenset(
    "DefaultCredentialsError GoogleAuthError InvalidOperation InvalidResource InvalidType InvalidValue MalformedError "
    "OAuthError ReauthFailError RefreshError UserAccessTokenError".split()
)
NO_CONNECTION_ERRORS = frozenset("RequestException TransportError ResponseError MutualTLSChannelError OSError".split())
TIMEOUT_ERRORS = frozenset("ReadTimeout TimeoutError".split())  # in the causes of an exception: the call timed out
UNREADABLE_ERRORS = frozenset(
    "ParseError JSONDecodeError DecodeError".split()
)  # the answer is a proxy's page, say; it is not shown


@dataclass(frozen=True, slots=True)
class CallContext:
    """A call as errors describe it: `action` (`compute.instances.insert`), `where` (zone or region), and as whom.

    `value` is what the call is about, as the user or our id names it.

    `project` is empty where it is not known. `now` is the time of this computer's clock, aware UTC. `who` is whose
    credentials are used, as text.
    """

    action: str
    where: str
    account: str
    project: str
    who: str
    now: datetime
    value: str | None = None

    @property
    def recipient(self) -> str:
        """The beginning of a sentence: Google Cloud, with the zone or region."""
        return f"Google Cloud {self.where}".rstrip()


def translate_error(error: Exception, call: CallContext) -> CloudgpuError | None:
    """Return our error for an exception of Google's client; None for one that is a defect of cloudgpu."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if "GoogleAPICallError" in names:
        return _error_of_answer(error, call)
    if names & UNREADABLE_ERRORS:
        return unanswered_error(
            f"{call.recipient} answered {call.action} with something that is not an answer of Google's", call.value
        )
    if _timed_out(error):
        return AnswerTimeout(
            f"{call.recipient} did not answer {call.action} in time.", field="provider", value=call.value
        )
    if names & NO_CONNECTION_ERRORS:
        return unanswered_error(f"{call.recipient} did not answer {call.action} ({type(error).__name__})", call.value)
    if names & CREDENTIAL_ERRORS:
        return _no_credentials_error(error, names, call)
    return None


def _timed_out(error: BaseException | None) -> bool:
    """Say whether a call timed out: the exception, or one of its causes, is of TIMEOUT_ERRORS."""
    causes_seen = 0
    while error is not None and causes_seen < _MAX_CAUSES:
        if TIMEOUT_ERRORS & {kind.__name__ for kind in type(error).__mro__}:
            return True
        error, causes_seen = error.__cause__ or error.__context__, causes_seen + 1
    return False


def operation_error(operation: Mapping[str, Any], call: CallContext) -> CloudgpuError | None:
    """Return the error of a finished operation; None where it did not fail.

    Of several errors the most informative one: Google puts a summary code before the causal one.
    """
    errors = operation.get("error", {}).get("errors", ())
    status = int(operation.get("httpErrorStatusCode") or 0)
    if not errors and status < _FIRST_ERROR_STATUS:
        return None
    most_informative_first = sorted(errors, key=_is_uninformative)
    code = str(most_informative_first[0].get("code", "")) if most_informative_first else ""
    message = (
        str(most_informative_first[0].get("message", ""))
        if most_informative_first
        else str(operation.get("httpErrorMessage", ""))
    )
    return _error_of_code(code, status, message, call)


def _is_uninformative(error: Mapping[str, Any]) -> tuple[bool, bool]:
    code = error.get("code", "")
    return code == "VM_MIN_COUNT_NOT_REACHED", code not in ERROR_MAPPINGS


def code_of(error: CloudgpuError) -> str:
    """Return Google's error code at the end of an error's message; empty for none."""
    match = re.search(r"\(([A-Za-z_]+)\)\.$", error.message)
    return match[1] if match else ""


def _error_of_answer(error: Any, call: CallContext) -> CloudgpuError:
    """Return the error for an answer with an error in it."""
    status = int(error.code or 0)
    if status == NOT_FOUND_STATUS and not _is_json(error.response):
        return unanswered_error(
            f"{call.recipient} answered {call.action} with the status {status}, and not as Google does", call.value
        )
    code = next(_codes(error), "")
    text = _CALL_PREFIX.sub("", str(error.message or ""))
    if call.action == DELETE_ACTION and _PROTECTED.search(text):
        return protected_from_deletion(call)
    headers = getattr(error.response, "headers", None) or {}
    if status == UNAUTHENTICATED_STATUS and is_skewed(headers, call.now):
        return wrong_clock("Google Cloud", call.where, headers, call.now)
    return _error_of_code(code, status, text, call, headers)


def _is_json(response: Any) -> bool:
    """Say whether an answer is JSON: a proxy's page does not prove that a machine is gone."""
    try:
        return response is None or isinstance(response.json(), dict)
    except ValueError:
        return False


def _codes(error: Any) -> Iterator[str]:
    """Yield the codes of an answer: the known ones first, then all."""
    reasons = [str(reason) for reason in (getattr(error, "reason", None),) if reason]
    reasons += [str(entry.get("reason", "")) for entry in error.errors or () if isinstance(entry, Mapping)]
    reasons += [str(detail.get("reason", "")) for detail in error.details or () if isinstance(detail, Mapping)]
    yield from (code for code in reasons if code in ERROR_MAPPINGS)
    yield from (code for code in reasons if code)


def _error_of_code(
    code: str, status: int, message: str, call: CallContext, headers: Mapping[str, str] | None = None
) -> CloudgpuError:
    if code not in ERROR_MAPPINGS:
        code = CODE_BY_STATUS.get(status, code)
    if code in CREDENTIAL:
        return _bad_credentials_error(code or str(status), call)
    if code in DISABLED:
        return _api_disabled_error(code, message, call)
    if code in BILLING:
        return _no_billing_account_error(code, call)
    if code in DENIED:
        named_permission = _QUOTED_PERMISSION.search(message)
        credentials_text = f"The Google credentials of account {call.account} ({call.who})"
        project_text = f" in the project {call.project}" if call.project else ""
        return denied_error(
            credentials_text, named_permission[1] if named_permission else permission_of(call.action), project_text
        )
    mapping = (
        ERROR_MAPPINGS[CODE_BY_STATUS[TOO_MANY_REQUESTS]]
        if status == TOO_MANY_REQUESTS
        else ERROR_MAPPINGS.get(code, UNKNOWN)
    )
    if code in NOT_FOUND:
        mapping = _not_found_mapping(mapping, message, call)
    sentence = f"{call.recipient} refused {call.action}: {shorten(message)} ({code or status or 'no code'})."
    return refusal_error(mapping, sentence, value=call.value, region=_region(call.where), headers=headers)


def _not_found_mapping(mapping: ErrorMapping, message: str, call: CallContext) -> ErrorMapping:
    """Return the error of "not found": InstanceNotFound only where a call about a machine did not find the machine.

    Google answers the same for a missing project or zone; then nothing is known of the machine.
    """
    if not call.action.startswith("compute.instances."):
        return mapping
    quoted_name = _QUOTED_NAME.search(message)
    is_about_another_resource = (
        quoted_name is not None and quoted_name[1].startswith("projects/") and "/instances/" not in quoted_name[1]
    )
    return ERROR_MAPPINGS["PROJECT_NOT_FOUND"] if is_about_another_resource else NO_MACHINE


def protected_from_deletion(call: CallContext) -> EndRefused:
    """Return the error for a machine that somebody has protected from its deletion."""
    name = (call.value or "").rpartition("/")[2]
    project = f" --project {call.project}" if call.project else ""
    return EndRefused(
        f"{name} is protected from deletion (deletionProtection), so Google Cloud does not delete it.",
        lifts=f"gcloud compute instances update {name} --no-deletion-protection --zone {call.where}{project}",
        field="instance",
        value=call.value,
    )


def _region(where: str) -> str:
    """Return the region of a zone or region, for a command in a remedy; a placeholder where there is none."""
    return ids.region_of(where) or (where if ids.REGION.fullmatch(where) else "REGION")


def _bad_credentials_error(code: str, call: CallContext) -> AuthFailed:
    sentence = f"The Google credentials of account {call.account} ({call.who}) are not accepted ({code})."
    return AuthFailed(sentence, field="credentials", value=call.who, next=renewal_command(call.who))


def renewal_command(who: str) -> str:
    """Return the remedy for a credential that does not work any more."""
    if who.startswith("GOOGLE_APPLICATION_CREDENTIALS"):
        return "Make a new key for that service account, or unset GOOGLE_APPLICATION_CREDENTIALS."
    return "Run: gcloud auth application-default login"


def permission_of(action: str) -> str:
    """Return the permission that an action needs, as IAM spells it, where both have one name; else the action."""
    service, _, verb = action.rpartition(".")
    return f"{service}.{'list' if verb == 'aggregatedList' else 'create' if verb == 'insert' else verb}"


def _api_disabled_error(code: str, message: str, call: CallContext) -> AuthFailed:
    api = "compute.googleapis.com" if call.action.startswith("compute.") else _api_named_in(message)
    sentence = f"The service {api} is not enabled in the project {call.project or 'of these credentials'} ({code})."
    remedy = f"Run: gcloud services enable {api}" + (f" --project {call.project}" if call.project else "")
    return AuthFailed(sentence, field="project", value=call.project or None, next=remedy)


def _api_named_in(message: str) -> str:
    match = re.search(r"[a-z]+\.googleapis\.com", message)
    return match[0] if match else "that was asked"


def _no_billing_account_error(code: str, call: CallContext) -> AuthFailed:
    sentence = f"The project {call.project or 'of these credentials'} has no billing account that pays ({code})."
    remedy = "Link one: https://console.cloud.google.com/billing/linkedaccount?project=" + call.project
    return AuthFailed(sentence, field="project", value=call.project or None, next=remedy)


def _no_credentials_error(error: Exception, names: set[str], call: CallContext) -> CloudgpuError:
    if "DefaultCredentialsError" in names:
        sentence = f"There are no Google credentials for account {call.account} that can be used."
        return AuthFailed(sentence, field="credentials", value=call.who, next=renewal_command(call.who))
    if _CLOCK_IS_WRONG.search(str(error)):
        return wrong_clock("Google Cloud", call.where, {}, call.now)
    if getattr(error, "retryable", False) or _is_down(error):
        return unanswered_error(f"{call.recipient} did not renew the credentials for {call.action}", call.value)
    sentence = f"The Google login of account {call.account} ({call.who}) has expired or cannot be used."
    return AuthFailed(sentence, field="credentials", value=call.who, next=renewal_command(call.who))


def _is_down(error: Exception) -> bool:
    """Say whether credentials could not be renewed because a service was down, throttled or not reached."""
    text, causes = str(error), {kind.__name__ for kind in type(error.__cause__).__mro__}
    return bool(_DOWN.search(text)) or ("TransportError" in causes and not _STATUS_4XX.search(text))


def is_gone(error: CloudgpuError) -> bool:
    """Say whether Google answered that what the call is about does not exist."""
    return isinstance(error, InstanceNotFound) or (isinstance(error, InvalidRequest) and code_of(error) in NOT_FOUND)
