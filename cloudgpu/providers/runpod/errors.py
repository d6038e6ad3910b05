"""Maps RunPod's answers to the error tree, by status and by what was asked; its sentence is only shown.

Ground: the table of failures in RunPod's openapi.json (POST /v2/pods, 2026-08-20). "400 covers both a broken rule and
no capacity" and has no code: at a launch it is taken for no capacity, and its sentence is shown. RunPod's errors are
objects with `title`, `status` and `detail`. Any other page is of a proxy, say: it proves neither that a pod is gone nor
that a launch made none.
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
from cloudgpu.providers.runpod.options import KEY, KIND, key_from

BILLING = "https://console.runpod.io/user/billing"
BAD, LOGIN, PAYMENT, DENIED, NOT_THERE, TIMED_OUT, FAULTY = 400, 401, 402, 403, 404, 408, 500
CREATE, START = "pods.create", "pods.start"


class Refused(CloudgpuError):
    """An answer of 400 or more, as it came; never leaves this package."""

    def __init__(self, answer: Answer, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail, self.is_theirs = answer.status, detail, _is_theirs(answer)


def _is_theirs(answer: Answer) -> bool:
    """Say whether an answer is an error as RunPod writes it, and not somebody's on the way."""
    body = answer.data if isinstance(answer.data, dict) else {}
    return body.get("status") == answer.status and all(isinstance(body.get(name), str) for name in ("title", "detail"))


def refused(answer: Answer) -> Refused:
    """Return an answer as an error, with RunPod's sentence and each violation of the schema."""
    body = answer.data if isinstance(answer.data, dict) else {}
    faults = body.get("errors")
    texts = [body.get("detail") or body.get("title") or "no reason given"]
    texts += [one for one in faults if isinstance(one, str)] if isinstance(faults, list) else []
    return Refused(answer, " ".join(str(text) for text in texts))


def meaning(error: Refused, action: str, value: str | None, says: str) -> CloudgpuError:
    """Return what a refusal means. `value` is what was asked about, `says` RunPod's sentence as it can be shown."""
    status, reason = error.status, f"{says.rstrip('.')} ({error.status})"
    if status == LOGIN:
        message = f"RunPod does not accept the key: {reason}."
        remedy = f"Make a new key at https://console.runpod.io/user/settings and put it into {key_from() or KEY}"
        return AuthFailed(message, field=KEY, next=remedy)
    if status < FAULTY and not error.is_theirs:
        return _foreign(action, reason)
    if status == PAYMENT:
        message = f"RunPod refuses for want of credit: {reason}."
        return QuotaExceeded(message, field="balance", value=value, next=f"Add credit: {BILLING}")
    if (action in (CREATE, START) and status in (BAD, DENIED)) or (action, status) == (CREATE, NOT_THERE):
        return _no_capacity(action, reason, value)
    if status == DENIED:
        remedy = "Give the key the right at https://console.runpod.io/user/settings"
        return AuthFailed(f"The key may not do {action} at RunPod: {reason}.", field=KEY, value=action, next=remedy)
    return _refused(action, reason, value, status)


def _foreign(action: str, reason: str) -> ProviderUnavailable:
    message = f"The answer to {action} is none of RunPod's errors: {reason}."
    remedy = "Look for a proxy or a login page in between, and try again."
    return ProviderUnavailable(message, field="provider", value=KIND, next=remedy)


def _refused(action: str, reason: str, value: str | None, status: int) -> CloudgpuError:
    if status == NOT_THERE and value:
        return InstanceNotFound(f"RunPod has no pod {value!r}.", field="id", value=value)
    known = BAD <= status < FAULTY and status not in (NOT_THERE, TIMED_OUT)  # a path that is not there says nothing
    kind = InvalidRequest if known else ProviderUnavailable
    return kind(f"RunPod refuses {action}: {reason}.", field="provider", value=value)


def _no_capacity(action: str, reason: str, value: str | None) -> NoCapacity:
    if action == START:
        message = f"RunPod cannot start {value} again: {reason}. A stopped pod starts only on its own host."
        remedy = "Try again later, or end it with cloudgpu down and launch another: its /workspace is on that host."
        return NoCapacity(message, field="instance", value=value, next=remedy)
    message = f"RunPod does not place this pod: {reason}."
    return NoCapacity(message, field="offer", value=value, next="Try another GPU or data centre, or wait.")
