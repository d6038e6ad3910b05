"""Maps vast.ai's errors to the classes of `cloudgpu.errors`: by a code in their text, else by the HTTP status.

Codes and statuses are from its OpenAPI files and from public programs (dstack, SkyPilot); that missing credit is
reported as `missing_billing`, or by naming credit in the message, is unverified.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
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
from cloudgpu.providers.shared.errors import ErrorMapping, refusal_error, shorten

BILLING_PAGE = "https://cloud.vast.ai/billing/"
KEYS_PAGE = "https://cloud.vast.ai/manage-keys/"
_NO_CREDIT = ErrorMapping(AuthFailed, "billing", f"Pay in at {BILLING_PAGE}, then run it again.")
_WRONG_KEY = ErrorMapping(AuthFailed, "credentials", f"Make a key at {KEYS_PAGE}, and put it into VAST_API_KEY.")
_UNKNOWN = ErrorMapping(ProviderUnavailable, "provider", "Try again in a minute.")
_ERRORS_BY_TEXT: Mapping[str, ErrorMapping] = {  # by a code in the text
    "no_such_ask": ErrorMapping(NoCapacity, "offer"),
    "no_such_instance": ErrorMapping(InstanceNotFound, "instance"),
    "invalid_price": ErrorMapping(NoCapacity, "offer"),  # the minimum bid has risen
    "auth_error": _WRONG_KEY,
    "missing_billing": _NO_CREDIT,
    "no_ssh_key_for_vm": ErrorMapping(InvalidRequest, "offer"),
    "label_too_long": ErrorMapping(
        InvalidRequest, "tags", "Take shorter names of the machine, its owner and its project."
    ),
    "invalid_args": ErrorMapping(InvalidRequest, "request"),
}
UNAUTHORIZED = 401  # the HTTP status
_ERRORS_BY_STATUS = {
    UNAUTHORIZED: _WRONG_KEY,
    402: _NO_CREDIT,
    403: ErrorMapping(
        AuthFailed, "permission", f"Give the key instance_read, instance_write, user_read and misc at {KEYS_PAGE}."
    ),
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
        return _refusal(_UNKNOWN, answer.status, redact(str(answer.data or "")))
    body = answer.data if isinstance(answer.data, dict) else {}
    text = redact(f"{body.get('error') or ''} {body.get('msg') or ''}")
    why = _refusal(_mapping_of(answer.status, text), answer.status, text)
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


def _refusal(mapping: ErrorMapping, status: int, text: str) -> CloudgpuError:
    sentence = f"vast.ai refused ({status}): {shorten(text) or 'it says no more'}."
    return refusal_error(mapping, sentence, value=None, region="")


def _mapping_of(status: int, text: str) -> ErrorMapping:
    by_text = next((mapping for code, mapping in _ERRORS_BY_TEXT.items() if code in text), None)
    if by_text is not None:
        return by_text
    if status < 500 and _CREDIT_PATTERN.search(text):  # noqa: PLR2004  (server errors do not concern credit)
        return _NO_CREDIT
    return _ERRORS_BY_STATUS.get(status, _UNKNOWN)
