"""Maps RunPod's errors to the classes of `cloudgpu.errors`, by status and action; its message is only shown.

Source: the table of failures in RunPod's openapi.json (POST /v2/pods, 2026-08-20). "400 covers both a broken rule and
no capacity" and has no code: at a launch it counts as no capacity. RunPod's errors are objects with `title`, `status`
and `detail`. Any other page may be from a proxy: it proves neither that a pod is gone nor that a launch created none.
"""

from __future__ import annotations

from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    InstanceNotFound,
    InvalidRequest,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
)
from cloudgpu.providers.rest.client import Answer
from cloudgpu.providers.runpod.options import KEY_VARIABLE, PROVIDER, key_location

BILLING_URL = "https://console.runpod.io/user/billing"
# HTTP statuses.
BAD_REQUEST, UNAUTHORIZED, PAYMENT_REQUIRED, FORBIDDEN, NOT_FOUND, TIMED_OUT, SERVER_ERROR = (
    400,
    401,
    402,
    403,
    404,
    408,
    500,
)
CREATE, START = "pods.create", "pods.start"  # actions: the names of calls in messages and metrics


class ApiError(CloudgpuError):
    """An answer of 400 or more; used in this package only. `is_from_runpod`: not from a proxy in between."""

    def __init__(self, answer: Answer, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail, self.is_from_runpod = answer.status, detail, _is_from_runpod(answer)


def _is_from_runpod(answer: Answer) -> bool:
    """Tell whether an answer is in RunPod's error format, and so not from a proxy."""
    body = answer.data if isinstance(answer.data, dict) else {}
    return body.get("status") == answer.status and all(isinstance(body.get(name), str) for name in ("title", "detail"))


def error_of_answer(answer: Answer) -> ApiError:
    """Return the ApiError of an answer, with RunPod's message and each violation of the schema."""
    body = answer.data if isinstance(answer.data, dict) else {}
    violations = body.get("errors")
    messages = [body.get("detail") or body.get("title") or "no reason given"]
    messages += (
        [violation for violation in violations if isinstance(violation, str)] if isinstance(violations, list) else []
    )
    return ApiError(answer, " ".join(str(text) for text in messages))


def translate_error(error: ApiError, action: str, value: str | None, text: str) -> CloudgpuError:
    """Return our error for RunPod's. `value` is the id or offer concerned, `text` RunPod's message without secrets."""
    status, reason = error.status, f"{text.rstrip('.')} ({error.status})"
    if status == UNAUTHORIZED:
        message = f"RunPod does not accept the key: {reason}."
        key_place = key_location() or KEY_VARIABLE
        remedy = f"Make a new key at https://console.runpod.io/user/settings and put it into {key_place}"
        return AuthFailed(message, field=KEY_VARIABLE, next=remedy)
    if status < SERVER_ERROR and not error.is_from_runpod:
        return _proxy_error(action, reason)
    if status == PAYMENT_REQUIRED:
        return QuotaExceeded(
            f"RunPod refuses for want of credit: {reason}.",
            field="balance",
            value=value,
            next=f"Add credit: {BILLING_URL}",
        )
    if (action in (CREATE, START) and status in (BAD_REQUEST, FORBIDDEN)) or (action, status) == (CREATE, NOT_FOUND):
        return _no_capacity_error(action, reason, value)
    if status == FORBIDDEN:
        remedy = "Give the key the right at https://console.runpod.io/user/settings"
        return AuthFailed(
            f"The key may not do {action} at RunPod: {reason}.", field=KEY_VARIABLE, value=action, next=remedy
        )
    return _request_error(action, reason, value, status)


def _proxy_error(action: str, reason: str) -> ProviderUnavailable:
    message = f"The answer to {action} is not from RunPod: {reason}."
    remedy = "Look for a proxy or a login page in between, and try again."
    return ProviderUnavailable(message, field="provider", value=PROVIDER, next=remedy)


def _request_error(action: str, reason: str, value: str | None, status: int) -> CloudgpuError:
    if status == NOT_FOUND and value:
        return InstanceNotFound(f"RunPod has no pod {value!r}.", field="id", value=value)
    is_invalid = BAD_REQUEST <= status < SERVER_ERROR and status not in (
        NOT_FOUND,
        TIMED_OUT,
    )  # an unknown path proves nothing
    kind = InvalidRequest if is_invalid else ProviderUnavailable
    return kind(f"RunPod refuses {action}: {reason}.", field="provider", value=value)


def _no_capacity_error(action: str, reason: str, value: str | None) -> NoCapacity:
    if action == START:
        message = f"RunPod cannot start {value} again: {reason}. A stopped pod starts only on its own host."
        remedy = "Try again later, or end it with cloudgpu down and launch another: its /workspace is on that host."
        return NoCapacity(message, field="instance", value=value, next=remedy)
    message = f"RunPod does not place this pod: {reason}."
    return NoCapacity(message, field="offer", value=value, next="Try another GPU or data centre, or wait.")
