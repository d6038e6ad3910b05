"""How a check of `doctor` ended, as a value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cloudgpu.errors import CloudgpuError, ProviderUnavailable, StopUnproved


class Verdict(StrEnum):
    """How a check ended. Only `fail` stands in the way; `warn` may cost or lose something, `note` could be set up."""

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; `next` is the remedy when it is not ok, `exit_code` that of its error."""

    name: str
    verdict: Verdict
    said: str
    next: str | None = None
    exit_code: int = 0


def failed(name: str, error: CloudgpuError) -> Check:
    """Return the check of something that raised this."""
    return Check(name, Verdict.FAIL, error.message, error.next, error.exit_code)


def gravest(codes: Iterable[int]) -> int:
    """Return the exit code that counts: 9 before 8 before the rest; 0 for none."""
    found = set(codes) - {0}
    first = (code for code in (StopUnproved.exit_code, ProviderUnavailable.exit_code) if code in found)
    return next(first, max(found, default=0))
