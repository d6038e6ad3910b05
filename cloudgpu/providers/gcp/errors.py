"""Maps what Google's client raises, and what an operation ends with, to the error tree: codes decide, not wording."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    EndRefused,
    InstanceNotFound,
    InvalidRequest,
    Silent,
)
from cloudgpu.providers.gcp.error_codes import (
    BILLING,
    BY_STATUS,
    CREDENTIAL,
    DENIED,
    DISABLED,
    MEANINGS,
    NO_MACHINE,
    NOT_FOUND,
)
from cloudgpu.providers.shared.calls import is_skewed, wrong_clock
from cloudgpu.providers.shared.errors import UNKNOWN, Meaning, denied_error, refusal_error, shorten, unanswered_error

DELETE = "compute.instances.delete"
UNAUTHENTICATED, NOT_THERE, TOO_MANY = 401, 404, 429
_BAD = 400  # the first status that is an error
_CALL = re.compile(r"^(?:GET|POST|PUT|PATCH|DELETE) https?://\S+: ")  # what the client puts before Google's sentence
_PERMISSION = re.compile(r"'([a-z]+\.[A-Za-z]+\.[A-Za-z]+)'")
# Google's words: a token has to be "short-lived ... and in a reasonable timeframe", with a check of its `iat`.
_CLOCK_IS_WRONG = re.compile(r"Invalid JWT: .*\b(iat|reasonable timeframe)\b")
# Google's words for a machine that is not to be deleted, with the reason invalidResourceUsage, as reported in
# terraform-provider-google #1211.
_PROTECTED = re.compile(r"protected against deletion")
_QUOTED_NAME = re.compile(r"'([^']+)'")
# The service that renews a token was at fault: impersonation repeats its answer, the metadata server's says its status,
# and a gateway in between sends a page. google.auth calls none of these retryable.
_DOWN = re.compile(r"""["']code["']: ?(?:429|5\d\d)\b|Status: ?(?:429|5\d\d)\b|^\W*<(?:!doctype|html)""", re.IGNORECASE)
_STATUS_4XX = re.compile(r"Status: ?4(?!29)\d\d\b")
_WRAPPED = 8  # errors in each other, at most
# What is raised before or instead of an answer, by the name of its class: google.auth, requests, json, protobuf.
NO_CREDENTIALS = frozenset(
    "DefaultCredentialsError GoogleAuthError InvalidOperation InvalidResource InvalidType InvalidValue MalformedError "
    "OAuthError ReauthFailError RefreshError UserAccessTokenError".split()
)
SILENT = frozenset("RequestException TransportError ResponseError MutualTLSChannelError OSError".split())
LATE = frozenset("ReadTimeout TimeoutError".split())  # the cause of one of these, where time ran out
NO_ANSWER = frozenset("ParseError JSONDecodeError DecodeError".split())  # a proxy's page, say; it is not shown


@dataclass(frozen=True, slots=True)
class CallContext:
    """What was asked (`compute.instances.insert`), where, and as whom. `value` is what the user named, if anything.

    `project` is empty where it is not known. `now` is this machine's clock, aware UTC. `who` names the credential in
    words, never the credential itself.
    """

    action: str
    where: str
    account: str
    project: str
    who: str
    now: datetime
    value: str | None = None

    @property
    def service_label(self) -> str:
        """Whom we talk to, as a sentence begins."""
        return f"Google Cloud {self.where}".rstrip()


def translated(error: Exception, call: CallContext) -> CloudgpuError | None:
    """Return our error for what Google's client raised; None for what is a defect of ours."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if "GoogleAPICallError" in names:
        return _refused(error, call)
    if names & NO_ANSWER:
        return unanswered_error(
            f"{call.service_label} answered {call.action} with something that is not an answer of Google's", call.value
        )
    if _is_late(error):
        return Silent(f"{call.service_label} did not answer {call.action} in time.", field="provider", value=call.value)
    if names & SILENT:
        return unanswered_error(
            f"{call.service_label} did not answer {call.action} ({type(error).__name__})", call.value
        )
    if names & NO_CREDENTIALS:
        return _no_credentials(error, names, call)
    return None


def _is_late(error: BaseException | None) -> bool:
    """Say whether the call was taken and not answered in time: the client wraps what its wire raised."""
    seen = 0
    while error is not None and seen < _WRAPPED:
        if LATE & {kind.__name__ for kind in type(error).__mro__}:
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False


def operation_error(operation: Mapping[str, Any], call: CallContext) -> CloudgpuError | None:
    """Return what an operation that is done failed with; None where it did not fail.

    Of several errors the one that says most: Google puts a summary code before the causal one.
    """
    errors = operation.get("error", {}).get("errors", ())
    status = int(operation.get("httpErrorStatusCode") or 0)
    if not errors and status < _BAD:
        return None
    known = sorted(errors, key=_is_uninformative)
    code = str(known[0].get("code", "")) if known else ""
    message = str(known[0].get("message", "")) if known else str(operation.get("httpErrorMessage", ""))
    return _error_of_code(code, status, message, call)


def _is_uninformative(fault: Mapping[str, Any]) -> tuple[bool, bool]:
    code = fault.get("code", "")
    return code == "VM_MIN_COUNT_NOT_REACHED", code not in MEANINGS


def code_of(error: CloudgpuError) -> str:
    """Return Google's code that one of these errors stands for; empty for none."""
    found = re.search(r"\(([A-Za-z_]+)\)\.$", error.message)
    return found[1] if found else ""


def _refused(error: Any, call: CallContext) -> CloudgpuError:
    """Return the error for an answer with an error in it."""
    status = int(error.code or 0)
    if status == NOT_THERE and not _is_json(error.response):
        return unanswered_error(
            f"{call.service_label} answered {call.action} with the status {status}, and not as Google does", call.value
        )
    code = next(_codes(error), "")
    text = _CALL.sub("", str(error.message or ""))
    if call.action == DELETE and _PROTECTED.search(text):
        return protected_from_deletion(call)
    headers = getattr(error.response, "headers", None) or {}
    if status == UNAUTHENTICATED and is_skewed(headers, call.now):
        return wrong_clock("Google Cloud", call.where, headers, call.now)
    return _error_of_code(code, status, text, call, headers)


def _is_json(response: Any) -> bool:
    """Say whether an answer is one of an API: a proxy's page says nothing of a machine, least that it is gone."""
    try:
        return response is None or isinstance(response.json(), dict)
    except ValueError:
        return False


def _codes(error: Any) -> Iterator[str]:
    """Yield the codes of an answer that mean something to us, the more exact ones first."""
    reasons = [str(reason) for reason in (getattr(error, "reason", None),) if reason]
    reasons += [str(one.get("reason", "")) for one in error.errors or () if isinstance(one, Mapping)]
    reasons += [str(one.get("reason", "")) for one in error.details or () if isinstance(one, Mapping)]
    yield from (one for one in reasons if one in MEANINGS)
    yield from (one for one in reasons if one)


def _error_of_code(
    code: str, status: int, message: str, call: CallContext, headers: Mapping[str, str] | None = None
) -> CloudgpuError:
    if code not in MEANINGS:
        code = BY_STATUS.get(status, code)
    if code in CREDENTIAL:
        return _bad_credentials(code or str(status), call)
    if code in DISABLED:
        return _api_disabled(code, message, call)
    if code in BILLING:
        return _no_billing_account(code, call)
    if code in DENIED:
        named = _PERMISSION.search(message)
        whose = f"The Google credentials of account {call.account} ({call.who})"
        where = f" in the project {call.project}" if call.project else ""
        return denied_error(whose, named[1] if named else permission(call.action), where)
    meaning = MEANINGS[BY_STATUS[TOO_MANY]] if status == TOO_MANY else MEANINGS.get(code, UNKNOWN)
    if code in NOT_FOUND:
        meaning = _not_found_meaning(meaning, message, call)
    sentence = f"{call.service_label} refused {call.action}: {shorten(message)} ({code or status or 'no code'})."
    return refusal_error(meaning, sentence, value=call.value, region=_region(call.where), headers=headers)


def _not_found_meaning(meaning: Meaning, message: str, call: CallContext) -> Meaning:
    """Return what "not found" means: a machine that is gone only where a machine was asked for, and is what is missing.

    Google says the same of a project or a zone that there is not; then nothing is known of the machine.
    """
    if not call.action.startswith("compute.instances."):
        return meaning
    named = _QUOTED_NAME.search(message)
    other = named is not None and named[1].startswith("projects/") and "/instances/" not in named[1]
    return MEANINGS["PROJECT_NOT_FOUND"] if other else NO_MACHINE


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
    found = re.fullmatch(r"([a-z]+-[a-z]+\d+)(?:-[a-z])?", where)
    return found[1] if found else "REGION"


def _bad_credentials(code: str, call: CallContext) -> AuthFailed:
    sentence = f"The Google credentials of account {call.account} ({call.who}) are not accepted ({code})."
    return AuthFailed(sentence, field="credentials", value=call.who, next=renewal_command(call.who))


def renewal_command(who: str) -> str:
    """Return how a credential is made anew."""
    if who.startswith("GOOGLE_APPLICATION_CREDENTIALS"):
        return "Make a new key for that service account, or unset GOOGLE_APPLICATION_CREDENTIALS."
    return "Run: gcloud auth application-default login"


def permission(action: str) -> str:
    """Return the permission that an action needs, as IAM spells it, where both have one name; else the action."""
    service, _, verb = action.rpartition(".")
    return f"{service}.{'list' if verb == 'aggregatedList' else 'create' if verb == 'insert' else verb}"


def _api_disabled(code: str, message: str, call: CallContext) -> AuthFailed:
    api = "compute.googleapis.com" if call.action.startswith("compute.") else _api(message)
    sentence = f"The service {api} is not enabled in the project {call.project or 'of these credentials'} ({code})."
    remedy = f"Run: gcloud services enable {api}" + (f" --project {call.project}" if call.project else "")
    return AuthFailed(sentence, field="project", value=call.project or None, next=remedy)


def _api(message: str) -> str:
    found = re.search(r"[a-z]+\.googleapis\.com", message)
    return found[0] if found else "that was asked"


def _no_billing_account(code: str, call: CallContext) -> AuthFailed:
    sentence = f"The project {call.project or 'of these credentials'} has no billing account that pays ({code})."
    remedy = "Link one: https://console.cloud.google.com/billing/linkedaccount?project=" + call.project
    return AuthFailed(sentence, field="project", value=call.project or None, next=remedy)


def _no_credentials(error: Exception, names: set[str], call: CallContext) -> CloudgpuError:
    if "DefaultCredentialsError" in names:
        sentence = f"There are no Google credentials for account {call.account} that can be used."
        return AuthFailed(sentence, field="credentials", value=call.who, next=renewal_command(call.who))
    if _CLOCK_IS_WRONG.search(str(error)):
        return wrong_clock("Google Cloud", call.where, {}, call.now)
    if getattr(error, "retryable", False) or _is_down(error):
        return unanswered_error(f"{call.service_label} did not renew the credentials for {call.action}", call.value)
    sentence = f"The Google login of account {call.account} ({call.who}) has expired or cannot be used."
    return AuthFailed(sentence, field="credentials", value=call.who, next=renewal_command(call.who))


def _is_down(error: Exception) -> bool:
    """Say whether credentials could not be renewed because a service was down, throttled or not reached."""
    text, causes = str(error), {kind.__name__ for kind in type(error.__cause__).__mro__}
    return bool(_DOWN.search(text)) or ("TransportError" in causes and not _STATUS_4XX.search(text))


def is_gone(error: CloudgpuError) -> bool:
    """Say whether Google answered that it has no such thing."""
    return isinstance(error, InstanceNotFound) or (isinstance(error, InvalidRequest) and code_of(error) in NOT_FOUND)
