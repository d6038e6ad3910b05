"""Maps vast.ai's errors to the classes of `cloudgpu.errors`: by a code in their text, else by the HTTP status.

Codes and statuses are from its OpenAPI files and from public programs (dstack, SkyPilot); that missing credit is
reported as `missing_billing`, or by naming credit in the message, is unverified.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    InstanceNotFound,
    InvalidRequest,
    NoCapacity,
    ProviderUnavailable,
)
from cloudgpu.providers.rest.client import Answer
from cloudgpu.providers.shared.errors import shorten

BILLING_PAGE = "https://cloud.vast.ai/billing/"
KEYS_PAGE = "https://cloud.vast.ai/manage-keys/"
# What the tables below have of an error: its class, its `field`, and its `next`.
_NO_CREDIT = (AuthFailed, "billing", f"Pay in at {BILLING_PAGE}, then run it again.")
# A code in the text, the class of the error, its `field`, and its `next`.
_ERRORS_BY_TEXT: tuple[tuple[str, type[CloudgpuError], str, str], ...] = (
    ("no_such_ask", NoCapacity, "offer", ""),
    ("no_such_instance", InstanceNotFound, "instance", ""),
    ("invalid_price", NoCapacity, "offer", ""),  # the minimum bid has risen
    ("auth_error", AuthFailed, "credentials", f"Make a key at {KEYS_PAGE}, and put it into VAST_API_KEY."),
    ("missing_billing", *_NO_CREDIT),
    ("no_ssh_key_for_vm", InvalidRequest, "offer", ""),
    ("label_too_long", InvalidRequest, "tags", "Take shorter names of the machine, its owner and its project."),
    ("invalid_args", InvalidRequest, "request", ""),
)
UNAUTHORIZED = 401  # the HTTP status
_ERRORS_BY_STATUS: dict[int, tuple[type[CloudgpuError], str, str]] = {
    UNAUTHORIZED: (AuthFailed, "credentials", f"Make a key at {KEYS_PAGE}, and put it into VAST_API_KEY."),
    402: _NO_CREDIT,
    403: (AuthFailed, "permission", f"Give the key instance_read, instance_write, user_read and misc at {KEYS_PAGE}."),
}
_CREDIT_PATTERN = re.compile(
    r"\b(?:insufficient|lacks?|not enough|no)\b.{0,20}\b(?:credit|balance|funds)\b", re.IGNORECASE
)


class RefusedWithContract(ProviderUnavailable):
    """A launch was refused but created a contract, whose storage is billed. `why` is the refusal."""

    kind = "left_contract"

    def __init__(self, contract: str, why: CloudgpuError) -> None:
        message = f"{why.message.rstrip('.')}; but vast.ai has created the contract {contract}."
        super().__init__(message, field="instance", value=contract, next=f"Look at {contract} in vast.ai's console.")
        self.contract, self.why = contract, why


def error_of_answer(redact: Callable[[str], str], answer: Answer) -> CloudgpuError:
    """Return the error of an answer; RefusedWithContract if it names a new contract.

    A page that is not a JSON object is not from vast.ai: it proves neither that a contract is gone nor that none was
    created.
    """
    if not isinstance(answer.data, dict) and answer.status != UNAUTHORIZED:
        return _unknown_error(answer.status, redact(str(answer.data or "")))
    body = answer.data if isinstance(answer.data, dict) else {}
    why = _refusal_error(answer.status, redact(f"{body.get('error') or ''} {body.get('msg') or ''}"))
    contract = contract_of(body)
    return why if contract is None else RefusedWithContract(contract, why)


def contract_of(answer: dict[str, Any]) -> str | None:
    """Return the id of the new contract in an answer; None for none."""
    contract_id = answer.get("new_contract")
    return (
        str(contract_id)
        if isinstance(contract_id, int) and not isinstance(contract_id, bool) and contract_id > 0
        else None
    )


def _sentence(status: int, text: str) -> str:
    return f"vast.ai refused ({status}): {shorten(text) or 'it says no more'}."


def _unknown_error(status: int, text: str) -> ProviderUnavailable:
    return ProviderUnavailable(_sentence(status, text), field="provider", value="vast", next="Try again in a minute.")


def _refusal_error(status: int, text: str) -> CloudgpuError:
    sentence = _sentence(status, text)
    for code, kind, field, remedy in _ERRORS_BY_TEXT:
        if code in text:
            return kind(sentence, field=field, next=remedy or None)
    if status < 500 and _CREDIT_PATTERN.search(text):  # noqa: PLR2004  (server errors do not concern credit)
        kind, field, remedy = _NO_CREDIT
        return kind(sentence, field=field, next=remedy)
    if status in _ERRORS_BY_STATUS:
        kind, field, remedy = _ERRORS_BY_STATUS[status]
        return kind(sentence, field=field, next=remedy)
    return _unknown_error(status, text)
