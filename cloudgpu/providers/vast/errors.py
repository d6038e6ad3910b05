"""Maps vast.ai's errors to the error tree: by a word in their text, else by the HTTP status.

Words and statuses are from its OpenAPI files and from public programs (dstack, SkyPilot); that missing credit is
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

BILLING = "https://cloud.vast.ai/billing/"
KEYS = "https://cloud.vast.ai/manage-keys/"
_NO_CREDIT = (AuthFailed, "billing", f"Pay in at {BILLING}, then run it again.")
_WORDS: tuple[tuple[str, type[CloudgpuError], str, str], ...] = (
    ("no_such_ask", NoCapacity, "offer", ""),
    ("no_such_instance", InstanceNotFound, "instance", ""),
    ("invalid_price", NoCapacity, "offer", ""),  # the minimum bid has risen
    ("auth_error", AuthFailed, "credentials", f"Make a key at {KEYS}, and put it into VAST_API_KEY."),
    ("missing_billing", *_NO_CREDIT),
    ("no_ssh_key_for_vm", InvalidRequest, "offer", ""),
    ("label_too_long", InvalidRequest, "tags", "Take shorter names of the machine, its owner and its project."),
    ("invalid_args", InvalidRequest, "request", ""),
)
NO_KEY = 401  # the HTTP status
_STATUSES: dict[int, tuple[type[CloudgpuError], str, str]] = {
    NO_KEY: (AuthFailed, "credentials", f"Make a key at {KEYS}, and put it into VAST_API_KEY."),
    402: _NO_CREDIT,
    403: (AuthFailed, "permission", f"Give the key instance_read, instance_write, user_read and misc at {KEYS}."),
}
_CREDIT = re.compile(r"\b(?:insufficient|lacks?|not enough|no)\b.{0,20}\b(?:credit|balance|funds)\b", re.IGNORECASE)


class RefusedWithContract(ProviderUnavailable):
    """A launch was refused but created a contract, whose storage is billed. `why` is the refusal."""

    kind = "left_contract"

    def __init__(self, contract: str, why: CloudgpuError) -> None:
        message = f"{why.message.rstrip('.')}; but vast.ai has created the contract {contract}."
        super().__init__(message, field="instance", value=contract, next=f"Look at {contract} in vast.ai's console.")
        self.contract, self.why = contract, why


def error_of(redacted: Callable[[str], str], answer: Answer) -> CloudgpuError:
    """Return the error of an answer; RefusedWithContract if it names a new contract.

    A page that is not a JSON object is not from vast.ai: it proves neither that a contract is gone nor that none was
    created.
    """
    if not isinstance(answer.data, dict) and answer.status != NO_KEY:
        return _unknown(answer.status, redacted(str(answer.data or "")))
    body = answer.data if isinstance(answer.data, dict) else {}
    why = _refusal(answer.status, redacted(f"{body.get('error') or ''} {body.get('msg') or ''}"))
    contract = contract_of(body)
    return why if contract is None else RefusedWithContract(contract, why)


def contract_of(answer: dict[str, Any]) -> str | None:
    """Return the id of the new contract in an answer; None for none."""
    found = answer.get("new_contract")
    return str(found) if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None


def _sentence(status: int, words: str) -> str:
    return f"vast.ai refused ({status}): {shorten(words) or 'it says no more'}."


def _unknown(status: int, words: str) -> ProviderUnavailable:
    return ProviderUnavailable(_sentence(status, words), field="provider", value="vast", next="Try again in a minute.")


def _refusal(status: int, words: str) -> CloudgpuError:
    sentence = _sentence(status, words)
    for word, kind, field, remedy in _WORDS:
        if word in words:
            return kind(sentence, field=field, next=remedy or None)
    if status < 500 and _CREDIT.search(words):  # noqa: PLR2004  (server errors do not concern credit)
        kind, field, remedy = _NO_CREDIT
        return kind(sentence, field=field, next=remedy)
    if status in _STATUSES:
        kind, field, remedy = _STATUSES[status]
        return kind(sentence, field=field, next=remedy)
    return _unknown(status, words)
