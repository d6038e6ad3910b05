"""The result of one check of `doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cloudgpu.errors import CloudgpuError, ProviderUnavailable, StopUnproved


class Verdict(StrEnum):
    """How a check ended. `fail` prevents launches; `warn` may cost money or data; `note` names an optional setup."""

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; `next` is the remedy if it is not ok, `exit_code` that of its error."""

    name: str
    verdict: Verdict
    message: str
    next: str | None = None
    exit_code: int = 0


def failed_check(name: str, error: CloudgpuError) -> Check:
    """Return the failed check for an error."""
    return Check(name, Verdict.FAIL, error.message, error.next, error.exit_code)


def exit_code_of_checks(codes: Iterable[int]) -> int:
    """Return the most serious exit code: 9, then 8, then the highest of the others; 0 for none."""
    failures = set(codes) - {0}
    most_serious = (code for code in (StopUnproved.exit_code, ProviderUnavailable.exit_code) if code in failures)
    return next(most_serious, max(failures, default=0))
